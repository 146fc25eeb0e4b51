/* SPDX-License-Identifier: Apache-2.0 */
/* The device memory that a context has: that of its buffers, and that of its pools. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/opencl.h"
#include "util/vector.h"

struct kiln__pool;

struct kiln__budget {
    cl_context context;
    cl_command_queue
        touches;       /* where memory is asked for in earnest; NULL: it is when it is made */
    bool pages;        /* of the host, in which the device works (pages.h) */
    bool idle_release; /* the driver releases memory only while nothing else goes on */
    uint64_t device_memory, limit; /* the device's bytes; those that the pools may have of them */
    pthread_mutex_t reserving;     /* held while it is seen whether there is room for more */
    atomic_uint_fast64_t bytes;    /* that the pools have, in use and idle */
    atomic_uint_fast64_t buffers;  /* that buffers have, those of the program's cl_mem left out */
    atomic_uint_fast64_t releases; /* counted before each: who has noted an object's address before
                                      it took the object knows whether it still is the same */
    struct kiln__pool *_Atomic pools; /* all, from the last made on */
    pthread_rwlock_t turns;           /* shared by those that take and have not given back yet */
    pthread_mutex_t
        keeping; /* guards what follows; no OpenCL call that can wait is made under it */
    struct kiln__prepacked *prepacked; /* all that has memory (prepacked.h), from the last on, */
    uint64_t prepacked_bytes;          /* so much, of `bytes` */
    pthread_mutex_t ending;            /* guards these: */
    KILN__VECTOR(cl_mem) ended;        /* what `idle_release` has left to release, */
    uint64_t ended_bytes;              /* and its bytes */
    atomic_bool ended_enough;
};

/* `limit`: 0 is the device's. */
void kiln__budget_begin(struct kiln__budget *budget, cl_context context, uint64_t device_memory,
                        uint64_t limit);
void kiln__budget_end(struct kiln__budget *budget);

/* Around taking, enqueuing and giving back. `alone`: while nobody else does, for who found no room
 * and has given back what it had: others may have had the rest for a moment. */
void kiln__budget_enter(struct kiln__budget *budget, bool alone);
void kiln__budget_leave(struct kiln__budget *budget);

/* One try: memory of `bytes` bytes for a pool or a buffer, which counts from then on. The sentence
 * says for how much it was asked, who holds what, and what is free. Errors: OUT_OF_DEVICE_MEMORY
 * and what the driver answers. */
kiln_status kiln__budget_create(struct kiln__budget *budget, bool pool, size_t asked, size_t bytes,
                                cl_mem *memory, struct kiln__error *error);

/* Memory that does not count; NULL with the driver's answer in *code. */
cl_mem kiln__budget_allocate(const struct kiln__budget *budget, size_t bytes, cl_int *code);

/* Release an object of so many bytes that may be the last one's, which commands keep until they
 * have ended: at once, or once nobody is inside and all queues are finished. */
void kiln__budget_release_object(struct kiln__budget *budget, cl_mem memory, size_t bytes);

/* Count a release that is to come. */
void kiln__budget_count_release(struct kiln__budget *budget);

/* NULL does nothing. */
void kiln__budget_release(struct kiln__budget *budget, bool pool, cl_mem memory, size_t bytes);

/* Memory of a buffer; where there is none, after the pools have given theirs back, and with no run
 * that is being enqueued. By who has not entered. Errors: as kiln__budget_create(). */
kiln_status kiln__budget_create_buffer(struct kiln__budget *budget, size_t bytes, cl_mem *memory,
                                       struct kiln__error *error);

/* Wait for all queues of the pools, and release their idle memory; what was let go, too, by who is
 * alone. */
void kiln__budget_make_room(struct kiln__budget *budget, bool alone);

/* Release the idle memory of all pools, and what is kept of buffers. By who has not entered. */
void kiln__budget_trim(struct kiln__budget *budget);

/* The latter alone (prepacked.c). */
void kiln__prepacked_trim(struct kiln__budget *budget);
