/* SPDX-License-Identifier: Apache-2.0 */
/* Counters of calls, transfers and objects, and the text of all of them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "calls.h"

/* Key, type, release. */
#define LAYER__KINDS(X)                                                                            \
    X(context, cl_context, clReleaseContext)                                                       \
    X(queue, cl_command_queue, clReleaseCommandQueue)                                              \
    X(mem, cl_mem, clReleaseMemObject)                                                             \
    X(program, cl_program, clReleaseProgram)                                                       \
    X(kernel, cl_kernel, clReleaseKernel)                                                          \
    X(event, cl_event, clReleaseEvent)                                                             \
    X(sampler, cl_sampler, clReleaseSampler)                                                       \
    X(device, cl_device_id, clReleaseDevice)

/* Each has a .count and a .bytes. */
#define LAYER__TRANSFERS(X) X(upload) X(download) X(copy) X(fill) X(map) X(create_copy)

#define LAYER__TALLIES(X)                                                                          \
    X(launches, "launches")                                                                        \
    X(source_programs, "source_programs")                                                          \
    X(binary_programs, "binary_programs")                                                          \
    X(allocated, "allocated.bytes")                                                                \
    X(eligible, "eligible")                                                                        \
    X(eligible_event, "eligible.event")                                                            \
    X(failures, "failures")

#define LAYER__ENUM_KIND(key, type, release) LAYER__KIND_##key,
#define LAYER__ENUM_TRANSFER(key) LAYER__##key,
#define LAYER__ENUM_TALLY(key, text) LAYER__TALLY_##key,
enum layer__kind { LAYER__KINDS(LAYER__ENUM_KIND) LAYER__KIND_COUNT };
enum layer__transfer { LAYER__TRANSFERS(LAYER__ENUM_TRANSFER) LAYER__TRANSFER_COUNT };
enum layer__tally { LAYER__TALLIES(LAYER__ENUM_TALLY) LAYER__TALLY_COUNT };

void layer__called(enum layer__call call);
void layer__tallied(enum layer__tally tally, uint64_t amount);
void layer__moved(enum layer__transfer transfer, uint64_t bytes);
void layer__created(enum layer__kind kind, int64_t objects);
void layer__retained(enum layer__kind kind);
void layer__released(enum layer__kind kind);

/* Whether a context was ever created; a reset does not forget it. */
bool layer__saw_context(void);

/* Remember the call that was made to fail last. */
void layer__failed(enum layer__call call);

/* The call of that name; LAYER__CALLS if there is none. */
enum layer__call layer__call_named(const char *name, size_t length);

/* Bodies of the public functions of the same names. */
uint64_t layer__count(const char *key);
const char *layer__snapshot(void);
void layer__counts_reset(void);
