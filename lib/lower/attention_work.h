/* SPDX-License-Identifier: Apache-2.0 */
/* What launches of kernels/attention_*.cl are made of. */
#pragma once

#include "graph/attention.h"
#include "lower/matmul.h"
#include "lower/strided_operands.h"

struct kiln__attention_work {
    const struct kiln__node *node;
    const struct kiln__group *group;
    uint32_t number; /* the group's */
    struct kiln__attention_size size;
    bool masked, truths; /* the mask is of u8, not of f32 */
    unsigned lengths;    /* the operand that has them; 0: there are none */
    kiln_type result;    /* as it is stored */
    struct kiln__strided_operands operands;
};

/* What a kernel takes beside what all take. */
struct kiln__attention_extra {
    uint32_t scratch; /* a slot, of elements of so many bytes; or KILN__NO_SLOT */
    uint8_t item;
    int64_t keys;     /* of a part; 0: it takes no such number */
    bool log_sum_exp; /* it stores the log-sum-exp of rows, too */
};

/* Rows and keys that a work-group of attention_gpu.cl has at a time, and what shares them. */
struct kiln__attention_tile {
    size_t columns, rows, keys, lanes;
};

size_t kiln__attention_tile_items(const struct kiln__attention_tile *tile);
size_t kiln__attention_tile_bytes(const struct kiln__attention_tile *tile); /* of local memory */

/* Whether the group stores the log-sum-exp of its rows, too, which the kernel with maps can do. */
bool kiln__attention_stores_log_sum_exp(const struct kiln__attention_work *attention);

/* vector: how generated text reads what is of a narrower type; 0: the kernel takes it as it is. */
struct kiln__launch kiln__attention_launch(const struct kiln__plan *plan,
                                           const struct kiln__attention_work *attention,
                                           const char *name, unsigned vector);

/* The arguments of every such kernel, and what else it takes; NULL: nothing. */
void kiln__attention_add_arguments(struct kiln__launch *launch,
                                   const struct kiln__attention_work *attention,
                                   const struct kiln__attention_extra *extra);

/* The kernels' MASK. */
int kiln__attention_mask_option(const struct kiln__attention_work *attention);

/* The option that says how lengths, which are integers, lie in memory. */
void kiln__attention_add_lengths(const struct kiln__plan *plan,
                                 const struct kiln__attention_work *attention,
                                 struct kiln__launch *launch);

/* The option that says how results are stored. */
const char *kiln__attention_result_option(const struct kiln__attention_work *attention);

/* Elements of a vector of a chunked device's kernels. */
size_t kiln__attention_vector(const struct kiln__plan *plan,
                              const struct kiln__attention_work *attention);

/* Options and work of attention_gpu.cl with such a tile, but for leading dimensions. */
void kiln__attention_set_tile(const struct kiln__plan *plan,
                              const struct kiln__attention_work *attention,
                              const struct kiln__attention_tile *tile, struct kiln__launch *launch);
