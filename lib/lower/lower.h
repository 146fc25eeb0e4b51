/* SPDX-License-Identifier: Apache-2.0 */
/* What turning groups into launches has in common. */
#pragma once

#include <assert.h>

#include "lower/iteration_space.h"
#include "plan/plan.h"

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

/* How many work-items, a power of two, share a kept element of `reduced` elements (WALK_LANES). */
size_t kiln__axis_mapping_lanes(const struct kiln__traits *traits, const struct kiln__group *group,
                                size_t reduced, const struct kiln__variant *variant);

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
