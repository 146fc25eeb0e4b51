/* SPDX-License-Identifier: Apache-2.0 */
/* A program and the table that it stands in: what program.c, which loads and stores one, and
 * program_table.c, which keeps them, share. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "programs/kernel_objects.h"
#include "programs/program.h"
#include "store/store.h"

#define KILN__PROGRAM_BUCKETS 1024
#define KILN__PROGRAM_VARIANTS 96 /* bytes */

struct kiln__store_thread;

enum kiln__program_state { KILN__PROGRAM_LOADING, KILN__PROGRAM_READY, KILN__PROGRAM_FAILED };

/* Whether a program still has to be put on disk. */
enum kiln__program_storing {
    KILN__PROGRAM_STORED,       /* or it never will be */
    KILN__PROGRAM_WANTS_LAUNCH, /* its binary is complete only then */
    KILN__PROGRAM_WAITS         /* the storing has it */
};

struct kiln__program {
    struct kiln__programs *owner;
    struct kiln__program *next; /* in its bucket */
    /* Set before others can see the program. */
    void *name;
    size_t name_length;
    char *kernel;
    /* Guarded by the programs' mutex. */
    enum kiln__program_state state;
    unsigned waiting; /* threads that wait for its state */
    /* The loading thread's until the state is READY or FAILED, then constant. */
    cl_program cl;
    struct kiln__key key;
    struct kiln__error error;
    struct kiln__kernels kernels; /* of `cl` */
    /* The loading thread's, then of whoever moved `storing` on, then the storing's. */
    atomic_int storing; /* enum kiln__program_storing */
    struct kiln__program *next_to_store;
    char *options, *source; /* until it is stored, where another process compiles them again */
    void *binary;           /* until it is stored, where it was complete once it was built */
    size_t binary_length;
    char variants[KILN__PROGRAM_VARIANTS]; /* see programs/compile_queue.h */
    unsigned job;                          /* the storing's number for it */
    struct kiln__lock lock;
};

struct kiln__programs {
    pid_t pid;
    cl_context context;
    struct kiln__device device;
    struct kiln__text shared_key;
    struct kiln__disk_store *store;
    uint64_t limit; /* of the store */
    kiln_compile_mode compile;
    struct kiln__store_thread *storing;
    atomic_uint_fast64_t compiled, from_disk, from_memory, stored_by_workers, compile_ns;
    atomic_uint patience_ms;
    /* Guards the buckets. A program in state LOADING belongs to the thread that put it there; all
     * others wait on `changed` for what becomes of it. The mutex is never held during a call of
     * OpenCL, a file operation or a compilation. */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct kiln__program *buckets[KILN__PROGRAM_BUCKETS];
};

/* What kiln__programs_get() was asked for. */
struct kiln__program_request {
    const char *source, *options, *kernel;
};

/* NULL without memory. The name and the kernel's name are copied. */
struct kiln__program *kiln__program_make(struct kiln__programs *programs, const void *name,
                                         size_t name_length, const char *kernel);

/* From disk, else compiled, on the thread that owns the program while it is loading. Errors, kept
 * in the program: those of kiln__programs_get(). */
kiln_status kiln__program_load(struct kiln__program *program,
                               const struct kiln__program_request *request);

/* The memory of a program that was not made. */
void kiln__program_free(struct kiln__program *program);

/* All options that it is built with: the device's and its own. */
void kiln__program_options(const struct kiln__programs *programs, const char *own,
                           struct kiln__text *options);

/* What PoCL calls the variant that a launch takes: there is one for each local size, and for grids
 * below and from 65,535 on. */
void kiln__program_variants(unsigned dimensions, const size_t *global, const size_t *local,
                            char variants[KILN__PROGRAM_VARIANTS]);

/* It is stored, or will not be: what was kept for that goes. */
void kiln__program_stored(struct kiln__program *program);

/* A program that was: its memory, and unless this is a child of fork (`ours` is false) what the
 * driver and the disk have of it. */
void kiln__program_release(struct kiln__program *program, bool ours);
