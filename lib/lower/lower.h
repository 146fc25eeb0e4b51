/* SPDX-License-Identifier: Apache-2.0 */
/* Groups to launches: what later stages ask, what kinds of groups have in common. */
#pragma once

#include <assert.h>

#include "lower/iteration_space.h"
#include "plan/plan_builder.h"

/* ---- what later stages call ---- */

/* Plan what `fusion`, which is taken over, computes. Errors: OUT_OF_HOST_MEMORY. */
kiln_status kiln__plan_make(struct kiln__fusion *fusion, const struct kiln__plan_options *options,
                            struct kiln__plan *plan, struct kiln__error *error);

/* Whether a product's kernel for the device accumulates integers exactly, at any depth. */
bool kiln__matmul_has_exact_integers(const struct kiln__plan_options *options);

/* Whether the device has kernels for all gradients of such an attention that store no scores
 * (graph/attention_backward.h); d and e: columns. The first time that takes as long as compiling
 * them. */
bool kiln__has_attention_gradients(const struct kiln__plan_options *options, kiln_type type,
                                   double scale, size_t d, size_t e);

/* ---- the passes of planning (plan_make.c) ---- */

/* Turn a group into launches (lower_nest.c, lower_matmul.c, ...). */
typedef void kiln__lower(struct kiln__plan *plan, uint32_t group);
kiln__lower kiln__lower_nest, kiln__lower_matmul, kiln__lower_attention,
    kiln__lower_attention_backward, kiln__lower_scatter, kiln__lower_sort, kiln__lower_custom;

/* The log-sum-exp of an attention whose kernel does not store it (lower_attention_backward.c). */
kiln__lower kiln__lower_log_sum_exp;

/* Mark which slots are frozen (frozen.c). */
void kiln__plan_find_frozen(const struct kiln__plan_builder *builder);

/* Find the absorbed groups, which their readers' kernels compute: they have no launches
 * (implicit_im2col.c). False without memory. */
bool kiln__plan_find_absorbed(struct kiln__plan_builder *builder);

/* Once all launches are there: which slots are kept, and what names them (frozen.c). False without
 * memory. */
bool kiln__plan_choose_prepacked(struct kiln__plan *plan);

/* Launches that most runs leave out stand before all others, which they read nothing of: they keep
 * no launches apart that could become one (frozen.c). */
void kiln__plan_prepack_first(struct kiln__plan *plan);

/* Whether all that operand `operand` of the group is made of is frozen (frozen.c). */
bool kiln__plan_may_prepack(const struct kiln__plan *plan, const struct kiln__group *group,
                            unsigned operand);

/* The last launch makes working memory `slot` of operand `operand` alone: where that is frozen, the
 * launch can be left out as long as the buffers are not written and its memory is kept. */
void kiln__plan_prepack(struct kiln__plan *plan, uint32_t slot, unsigned operand);

/* The same of the last launch, which is the only one of its group. */
void kiln__plan_prepack_group(struct kiln__plan *plan, const struct kiln__group *group);

/* ---- for all kinds of groups ---- */

static inline size_t kiln__divide_up(size_t a, size_t b)
{
    assert(b > 0);
    return a / b + (a % b != 0);
}

/* An argument: an index. */
#define KILN__INDEX(value)                                                                         \
    ((struct kiln__argument){.kind = KILN__ARGUMENT_INDEX, .integer = (int64_t)(value)})

/* How the device computes: alike in all its kernels, so that their results are, too. */
void kiln__variant_arithmetic(const struct kiln__device *device, struct kiln__variant *variant);

/* The part of a form that device and space decide. */
void kiln__variant_start(const struct kiln__plan *plan, const struct kiln__group *group,
                         const struct kiln__space *space, struct kiln__variant *variant);

/* Whether all contiguous vectors lie at multiples of their size. */
bool kiln__variant_is_aligned(const struct kiln__plan *plan, const struct kiln__group *group,
                              const struct kiln__variant *variant);

/* Results per work-item of a chunked device, each of `work` elements: a multiple of the vector. */
size_t kiln__chunk_size(const struct kiln__traits *traits, size_t count, size_t work);

/* A one-dimensional range of at least `items` work-items, in work-groups of the form's size. */
void kiln__launch_line(size_t items, struct kiln__launch *launch);

/* Say which accesses read what a store of the same group overwrites; true if any does. */
bool kiln__variant_updates(const struct kiln__plan *plan, const struct kiln__group *group,
                           struct kiln__variant *variant);

/* A group's form for one of its launches (axis_mapping.c). */
void kiln__axis_mapping_choose(const struct kiln__plan *plan, const struct kiln__group *group,
                               const struct kiln__space *space, enum kiln__stage stage,
                               struct kiln__variant *variant);

/* How many work-items, a power of two, share a kept element of `reduced` elements (axis_lanes.c).
 */
size_t kiln__axis_mapping_lanes(const struct kiln__traits *traits, const struct kiln__group *group,
                                size_t reduced, const struct kiln__variant *variant);

/* Vectors that each of them holds from phase to phase, 0: none; neighbours of which it makes
 * running sums; and whether a phase rescales by the running maximum instead of visiting the line
 * again. */
uint8_t kiln__axis_cached_vectors(const struct kiln__traits *traits,
                                  const struct kiln__group *group, size_t reduced,
                                  const struct kiln__variant *variant);
uint8_t kiln__axis_scan_elements(size_t reduced, const struct kiln__variant *variant);
bool kiln__axis_is_online(const struct kiln__traits *traits, const struct kiln__group *group,
                          const struct kiln__space *space, const struct kiln__variant *variant);

/* Whether vectors run along the kept dimensions of a group that reduces. */
bool kiln__axis_mapping_is_of_columns(const struct kiln__group *group,
                                      const struct kiln__space *space);

/* The segments that a reduction is cut into. */
struct kiln__line_segments {
    size_t segments, length;
};
struct kiln__line_segments kiln__axis_mapping_segments(const struct kiln__plan *plan,
                                                       const struct kiln__group *group,
                                                       const struct kiln__space *space);

/* Memory (that of a store is not named again), offset and strides of accesses `first` to `end` - 1:
 * the strides that its form leaves open; of a gather also the stride and extent of its axis. */
void kiln__launch_accesses(const struct kiln__plan *plan, const struct kiln__group *group,
                           const struct kiln__space *space, struct kiln__launch *launch,
                           size_t first, size_t end);

/* Memory and offset of every store, strides of those that have some. */
void kiln__launch_stores(const struct kiln__plan *plan, const struct kiln__group *group,
                         const struct kiln__space *space, struct kiln__launch *launch);

/* The scalars of steps `from` to `to` - 1. */
void kiln__launch_scalars(const struct kiln__group *group, struct kiln__launch *launch, size_t from,
                          size_t to);

/* Have generated text read those of the first `operands` that a kernel for a single node takes in a
 * narrower type than the one that it computes in, in vectors of so many. */
void kiln__launch_reads(const struct kiln__plan *plan, unsigned operands, unsigned vector,
                        struct kiln__launch *launch);

/* Append the launch, which is taken over, and its step. */
void kiln__plan_launch(struct kiln__plan *plan, struct kiln__launch *launch);
