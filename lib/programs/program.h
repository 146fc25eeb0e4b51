/* SPDX-License-Identifier: Apache-2.0 */
/* Programs of one context: from memory, else from disk, else compiled.
 *
 * A program that was compiled is stored on disk in the background, after its first launch where the
 * device's binary is complete only then (programs/store_thread.h). Any trouble with the disk
 * degrades to compilation and is counted. */
#pragma once

#include <stdint.h>

#include <kiln/context.h>

#include "device/device.h"

struct kiln__programs; /* the programs of one context; safe to use from many threads */
struct kiln__program;  /* one program; lives as long as its programs */

struct kiln__programs_options {
    const char *folder; /* NULL: the default place */
    uint64_t limit;     /* most bytes on disk; 0: 256 MiB */
    kiln_cache_mode mode;
    kiln_compile_mode compile;
};

struct kiln__programs_stats {
    uint64_t compiled;  /* built from source */
    uint64_t from_disk; /* built from a binary of the disk cache */
    uint64_t from_memory;
    uint64_t stores;   /* entries written */
    uint64_t failures; /* entries rejected, unreadable or not writable */
    uint64_t pending;  /* programs that are to be stored still */
    uint64_t compile_ns;
};

/* Errors: OUT_OF_HOST_MEMORY. A folder that cannot be used is no error. */
kiln_status kiln__programs_create(cl_context context, const struct kiln__device *device,
                                  const struct kiln__programs_options *options,
                                  struct kiln__programs **programs, struct kiln__error *error);

/* Has what is pending stored, for a second at most, then releases all programs. */
void kiln__programs_destroy(struct kiln__programs *programs);

/* A program that is in memory already, found by the caller's own short name for it (for instance
 * the structure of a fused group), before any source text is made. NULL: not in memory. */
struct kiln__program *kiln__programs_find(struct kiln__programs *programs, const void *name,
                                          size_t name_length);

/* Whether it is in memory; that is not counted as a look-up. */
bool kiln__programs_has(struct kiln__programs *programs, const void *name, size_t name_length);

/* How programs are compiled; never DEFAULT. */
kiln_compile_mode kiln__programs_compile_mode(const struct kiln__programs *programs);

/* Whether programs are looked for on disk. */
bool kiln__programs_have_disk(const struct kiln__programs *programs);

/* Whether what a batch waits for is compiled side by side. */
bool kiln__programs_compile_in_parallel(const struct kiln__programs *programs);

/* Whether batches run before their kernels are compiled, where that can be. */
bool kiln__programs_compile_in_background(const struct kiln__programs *programs);

/* The program of `source`, to be found as `name` from now on. `kernel` is the kernel that users
 * know it by in `kiln cache list`. The traits' build options are added to `options`.
 * Two threads that ask at once: one compiles, the other waits for it.
 * Errors: BUILD_FAILED with the compiler's log, or where it would have to be compiled and must not;
 * DEVICE_ERROR, OUT_OF_HOST_MEMORY. */
kiln_status kiln__programs_get(struct kiln__programs *programs, const void *name,
                               size_t name_length, const char *source, const char *options,
                               const char *kernel, struct kiln__program **program,
                               struct kiln__error *error);

/* A program that will be asked for, and one launch of it. */
struct kiln__program_spec {
    const void *name;
    size_t name_length;
    const char *source, *options, *kernel;
    unsigned dimensions;
    const size_t *global, *local;
};

/* Whether a program of these options only serves until the same text is compiled with more care: it
 * is not worth storing. */
bool kiln__program_is_quick(const struct kiln__device *device, const char *options);

/* The specs that neither memory nor the disk cache has; without memory none. Owner of `items`: the
 * caller, free(). */
struct kiln__missing {
    const struct kiln__program_spec **items;
    size_t count;
};
void kiln__programs_find_missing(struct kiln__programs *programs,
                                 const struct kiln__program_spec *specs, size_t count,
                                 struct kiln__missing *missing);

/* Have programs compiled side by side on `threads` threads (0: as many as there are cores) and
 * stored, before the first launch where that can be. An error comes when the program is got. */
void kiln__programs_prepare(struct kiln__programs *programs, const struct kiln__program_spec *specs,
                            size_t count, unsigned threads);

/* The same for programs that are asked for right away: nothing waits for a store, and where it
 * would not be sooner, or is not wanted, nothing happens. */
void kiln__programs_compile_missing(struct kiln__programs *programs,
                                    const struct kiln__program_spec *specs, size_t count);

/* A kernel of the program was enqueued, with these sizes. Where the binary is complete only now,
 * the first time has it stored; cheap otherwise. */
void kiln__program_launched(struct kiln__program *program, unsigned dimensions,
                            const size_t *global, const size_t *local);

/* Wait until everything launched so far is stored, or known not to be. */
void kiln__programs_sync(struct kiln__programs *programs);

void kiln__programs_get_stats(struct kiln__programs *programs, struct kiln__programs_stats *stats);
