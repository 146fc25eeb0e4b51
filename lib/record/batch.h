/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a batch, and how operations are recorded into it. */
#pragma once

#include <kiln/batch.h>

#include "graph/graph.h"
#include "graph/labels.h"
#include "runtime/bindings.h"
#include "runtime/buffer.h"
#include "util/error.h"
#include "util/index.h"

/* The tensor that is none: an operand that is left out, what a failed call returns. */
static const kiln_tensor kiln__none = {0};

/* By which kernels a plan is run while others are compiled: tiers, which a batch goes through from
 * the last to the first (session/background.h). */
enum kiln__tier {
    KILN__TIER_OWN,      /* its own, short launches joined where the plan has them so */
    KILN__TIER_UNJOINED, /* its own, no launches joined: until that has paid */
    KILN__TIER_BASELINE, /* quick or generic ones: until its own are there */
    KILN__TIERS
};

/* A plan and its kernels, lent to one batch (session/plan_cache.h). */
struct kiln__lease {
    struct kiln__plan_entry *entry;
    const struct kiln__plan *plan;
    struct kiln__executable *executable; /* NULL: it needs more memory than there may be */
    bool checked;
    enum kiln__tier tier;
};

/* What recording goes by of where the batch will run, as numbers. */
struct kiln__record_limits {
    uint64_t upload_bytes; /* of one tensor, at most */
    uint64_t local_memory; /* bytes that a kernel's work-group has */
    size_t work_group;     /* most items of one; 0: not known */
    size_t cores, vector;  /* of a CPU, and floats of a vector of its; 0: it is none */
    size_t unrolled;       /* most operations of a loop that is recorded step by step */
    size_t stretch;        /* most steps of another one that are a graph together; 0: each is one */
    /* Of gradients of attention: elements of scores in memory at once, to aim for, and whether what
     * is multiplied may be rounded to the operands' type. */
    size_t scores;
    bool rounds_gradients;
};

struct kiln_batch {
    kiln_context *context;
    struct kiln__record_limits limits;
    /* Whether gradients of such an attention, of d or e columns, are recorded as
     * nodes of their own (graph/attention_backward.h): the device has kernels for them. NULL: none
     * are. */
    bool (*takes_attention_backward)(const kiln_batch *batch, kiln_type type, double scale,
                                     size_t d, size_t e);
    uint32_t serial;              /* of this recording; part of every tensor's id */
    struct kiln__error error;     /* the first one */
    struct kiln__error run_error; /* of the last call that ran or asked about it; no run is refused
                                     for it */
    struct kiln__graph graph;
    struct kiln__bindings bindings;
    struct kiln__index imports;                    /* nodes, by the memory of their buffers */
    struct kiln__index exports;                    /* requests, by the memory of their buffers */
    KILN__VECTOR(kiln_buffer *) buffers;           /* retained */
    KILN__VECTOR(void *) tables;                   /* that operations upload; owned */
    KILN__VECTOR(uint32_t) reads;                  /* the requests that are reads, in order */
    KILN__VECTOR(struct kiln__replayed *) loops;   /* of which one step is recorded (replayed.h) */
    KILN__VECTOR(struct kiln__stepwise *) kernels; /* that take all steps (replayed.h) */
    KILN__VECTOR(uint32_t)
    instead;                    /* of the first nodes: which one is meant by it. Gradients of
                                   such loops have put others there */
    struct kiln__labels labels; /* of the graph's nodes */
    size_t operations;
    uint8_t product;  /* enum kiln__product_name: of products recorded from now on */
    bool changed;     /* since `lease` was taken */
    bool unvalidated; /* its runs are never compared with the host: they are timed */
    bool divided;     /* what it updates weights by is this process's part of their gradients */

    /* The call that is being recorded (record/call.h). */
    unsigned depth; /* calls that it is in */
    struct kiln__speaker speaker;
    size_t spoken; /* so many of its operands have names, as far as it has looked at them */
    struct {
        uint32_t node;
        char word[16];
    } operands[3];

    /* What running it leaves here (api/api_batch.c). */
    struct kiln__lease lease; /* plan and kernels; empty until needed */
    struct kiln__micro_batches
        *parts; /* that it runs in; NULL: it fits into the memory that there is */
    struct kiln__loop_runs *looped; /* that it runs in, if it has loops of which one step is
                                       recorded; NULL: not planned yet */
    struct kiln__run *last;         /* the latest run, or NULL */
};

/* Start an empty recording: earlier tensors are no longer valid. */
void kiln__batch_begin(kiln_batch *batch);

/* The status of a call that runs or asks about a batch, whose sentence the batch keeps: it is this
 * thread's last error. The batch may be NULL. */
kiln_status kiln__batch_report(kiln_batch *batch, kiln_status status);

/* Free the memory of a recording that nobody records into any more. */
void kiln__batch_drop(kiln_batch *batch);

/* The node of a tensor; NULL, with the error recorded, if it is none of this batch. `call` and
 * `operand` are for the sentence. Also NULL if the batch is NULL or has failed. */
const struct kiln__node *kiln__batch_node(kiln_batch *batch, kiln_tensor tensor, const char *call,
                                          const char *operand);

/* The same of an operand that must be of a floating type. */
const struct kiln__node *kiln__batch_floating(kiln_batch *batch, kiln_tensor tensor,
                                              const char *call, const char *operand);

/* Note, for sentences, a named operand of the call that is being recorded (call.c). */
void kiln__call_operand(kiln_batch *batch, const char *word, uint32_t node);

uint32_t kiln__tensor_index(kiln_tensor tensor);

/* The node of a tensor that is one of the batch. */
static inline const struct kiln__node *kiln__tensor_node(const kiln_batch *batch,
                                                         kiln_tensor tensor)
{
    return &batch->graph.nodes.items[kiln__tensor_index(tensor)];
}

/* The node that is meant by one by now. */
static inline uint32_t kiln__batch_instead(const kiln_batch *batch, uint32_t index)
{
    return index < batch->instead.count ? batch->instead.items[index] : index;
}

/* The tensor of node number `index`, and of the one that is meant by a tensor of the batch. */
kiln_tensor kiln__batch_tensor(const kiln_batch *batch, uint32_t index);
kiln_tensor kiln__batch_resolve(const kiln_batch *batch, kiln_tensor tensor);

/* Memory of zeros for a table that the call uploads; the batch owns it. NULL, with the error
 * recorded, without memory. */
void *kiln__batch_alloc(kiln_batch *batch, size_t count, size_t item, const char *call);

/* Append a node and name it. Operands that are stored in a narrower type than operations compute in
 * are cast before it. */
kiln_tensor kiln__batch_record(kiln_batch *batch, const struct kiln__node *node, const char *call);

/* Record a number as a scalar constant. Errors: INVALID_ARGUMENT if an integer type cannot hold it.
 */
kiln_tensor kiln__batch_number(kiln_batch *batch, kiln_type type, double value, const char *call);
/* Record a constant of a shape; it fails where the type cannot hold the value. */
kiln_tensor kiln__record_fill(kiln_batch *batch, const char *call, kiln_type type,
                              const struct kiln__shape *shape, double value);

/* kiln_import() on behalf of a call. */
kiln_tensor kiln__record_import(kiln_batch *batch, kiln_buffer *buffer, const char *call);

/* Whether a result of the batch is left in the buffer. */
bool kiln__batch_exports_to(const kiln_batch *batch, const kiln_buffer *buffer);

/* Check dimensions, or a type and dimensions, that a call was given. */
bool kiln__check_dims(kiln_batch *batch, const char *call, size_t rank, const size_t *dims,
                      struct kiln__shape *shape);
/* Whether elements of a type lie apart: no operation gives one of blocks. */
bool kiln__check_no_blocks(kiln_batch *batch, const char *call, kiln_type type);
bool kiln__check_shape(kiln_batch *batch, const char *call, kiln_type type, size_t rank,
                       const size_t *dims, struct kiln__shape *shape);

/* Dimension `axis` of `rank` from the front; negative ones count from the end. */
bool kiln__find_axis(kiln_batch *batch, const char *call, int axis, uint32_t rank, uint32_t *found);

/* Whether the batch takes recordings: not NULL, not failed. */
bool kiln__batch_is_open(kiln_batch *batch, const char *call);
