/* SPDX-License-Identifier: Apache-2.0 */
/* The objects that calls are made on. Two contexts live as long as the process; the others come and
 * go within a sequence of calls, and nothing of them may be left at its end. */
#pragma once

#include "fuzz/values.h"
#include "record/batch.h"

enum { CONTEXTS = 3, BATCHES = 3, BUFFERS = 6, EVENTS = 2, OPTIMIZERS = 2 };
enum { EXECUTORS = 2, FUTURES = 3, PARALLELS = 1, RECENT = 16 };
enum { LASTING = 2 }; /* of the contexts */
enum { HOSTS = 2 };

struct batch_slot {
    kiln_batch *batch;
    kiln_tensor recent[RECENT]; /* a ring */
    unsigned recorded;
};

struct world {
    char folder[128], cache[160], bundle[160]; /* paths; nothing else is written to */
    kiln_context *contexts[CONTEXTS];
    unsigned context_references[CONTEXTS];
    struct batch_slot batches[BATCHES];
    kiln_buffer *buffers[BUFFERS];
    unsigned buffer_references[BUFFERS];
    kiln_event *events[EVENTS];
    kiln_optimizer *optimizers[OPTIMIZERS];
    kiln_executor *executors[EXECUTORS];
    unsigned executor_references[EXECUTORS];
    kiln_future *futures[FUTURES];
    kiln_parallel *parallels[PARALLELS];
    struct {
        kiln_context *context;
        void *memory;
    } host[HOSTS]; /* of kiln_host_alloc() */
    cl_command_queue out_of_order;
    kiln_tensor stale[RECENT];
    unsigned forgotten;

    /* Where the call that is under way leaves what it makes. */
    kiln_context *new_context;
    kiln_buffer *new_buffer, *new_buffers[SHORTEST]; /* the latter are released after the call */
    kiln_saved *saved;                               /* freed after it */
    kiln_event *new_event;
    kiln_optimizer *new_optimizer;
    kiln_executor *new_executor;
    kiln_future *new_future;
    kiln_parallel *new_parallel;
    kiln_model *new_model; /* freed after the call */
    const char **words;
    kiln_array array; /* its data is freed after the call */
    void *new_host;
    kiln_tensor results[SHORTEST];
    char *text;
};

extern struct world world;

/* Make the contexts, in a private folder. False: there is no device. */
bool world_begin(void);

/* A batch, with a few inputs; tensors that it had before are stale. */
void batch_fill(struct batch_slot *slot);
struct batch_slot *batch_slot_of(const kiln_batch *batch);
void batch_adopt(kiln_batch *batch);
void batch_note(struct batch_slot *slot, kiln_tensor tensor);

/* Whether it is time to start again. */
bool batch_is_full(const kiln_batch *batch);

/* Whether running the batch is defined and quick. */
bool batch_runs(const kiln_batch *batch);

/* Keep or release what a call made. */
void world_settle(void);

/* Release everything but what lasts. NULL, or a sentence about what is left. */
const char *world_clear(void);

/* A fixed small batch still gives what it gave before, on both contexts. */
bool canary_sings(void);

/* How many kernels may be compiled from now on; then the compiler fails. */
extern unsigned world_builds;
