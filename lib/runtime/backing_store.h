/* SPDX-License-Identifier: Apache-2.0 */
/* Evictable buffers: one with a backing store, from which its content can be read again
 * (kiln_buffer_set_source()), is only held in device memory while runs read it. Where they go
 * without it, since all that they need is made of it already and kept (runtime/prepacked.h), its
 * memory is given up after a few runs; it is made and filled again when somebody asks for it. Each
 * time that it had to be, the buffer is more patient. Whoever writes it ends this, since nobody
 * else has the content then. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include <kiln/buffer.h>

#include "device/opencl.h"
#include "util/error.h"

struct kiln__backing_store {
    kiln_buffer_reader read; /* NULL: there is none; set before anybody else has the buffer */
    void (*end)(void *user); /* or NULL */
    void *user;
    atomic_bool is_content;   /* the buffer's still: whoever made it false has the memory */
    pthread_mutex_t fetching; /* held while the memory is made and filled, before buffer->lock */
    unsigned users;           /* of the memory, which stays; this and what follows: buffer->lock */
    unsigned idle_runs;       /* since the last use */
    unsigned patience;        /* so many of them, and it goes */
};

/* The buffer's memory, which stays until kiln__backing_release(), whether it has a source or not.
 * By who has entered the budget. Errors: OUT_OF_DEVICE_MEMORY, OUT_OF_HOST_MEMORY, DEVICE_ERROR,
 * what the source answers. */
kiln_status kiln__backing_hold(kiln_buffer *buffer, cl_mem *memory, struct kiln__error *error);
void kiln__backing_release(kiln_buffer *buffer);

/* By who has not entered the budget, and lets others make room. */
kiln_status kiln__backing_hold_unbudgeted(kiln_buffer *buffer, cl_mem *memory,
                                          struct kiln__error *error);

/* A run that uses the buffer was enqueued, and does not read it. */
void kiln__backing_was_unread(kiln_buffer *buffer);

/* Set it, of a buffer that nobody else has; and with the buffer. */
void kiln__backing_begin(kiln_buffer *buffer, kiln_buffer_reader read, void (*end)(void *user),
                         void *user);
void kiln__backing_end(kiln_buffer *buffer);
