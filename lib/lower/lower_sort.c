/* SPDX-License-Identifier: Apache-2.0 */
/* Sort groups to launches of kernels/sort.cl: within blocks, then, of longer lines, merges of twice
 * the length one after the other, whose far steps are a launch each.
 *
 * Blocks have 1,024 elements in local memory. Positions are sorted, not values, and are part of
 * each key, so that the order is stable.
 */
#include "lower/matmul.h"

#include <stdio.h>

/* Elements that a work-group holds: 8 KiB of local memory, or 16 of integers of 64 bits. */
#define BLOCK 1024

struct sort {
    struct kiln__plan *plan;
    const struct kiln__traits *traits;
    uint32_t group;
    size_t lines, extent, padded; /* the extent, up to a power of two */
};

static struct kiln__launch launch_of(const struct sort *sort, const char *kernel)
{
    const struct kiln__plan *plan = sort->plan;
    const struct kiln__group *group = &plan->fusion.groups.items[sort->group];
    const struct kiln__access *values = &group->accesses.items[0];
    const struct kiln__node *node = &plan->fusion.graph.nodes.items[values->node];
    const uint32_t order = group->stores.items[0].node;
    const uint32_t slots[] = {plan->slot_of[values->node], plan->slot_of[order]};
    const bool descending = plan->fusion.graph.nodes.items[order].op == KILN__SORT_DESCENDING;
    const struct kiln__traits *traits = sort->traits;
    const char *type = kiln__type_row(node->type)->device;
    struct kiln__launch launch = {.source = KILN__SOURCE_TEMPLATE, .group = sort->group};
    launch.file = "sort";
    launch.kernel = kernel;
    launch.variant.wide = true;
    kiln__launch_reads(plan, KILN__READABLE, 1, &launch);
    launch.dimensions = 1;
    launch.local[0] = traits->chunked ? 1 : traits->work_group;
    for (int d = 1; d < 3; d++)
        launch.global[d] = launch.local[d] = 1;
    snprintf(launch.options, sizeof launch.options,
             "-DTYPE=%s -DORDER=order_%s -DWG=%zu -DBLOCK=%d -DSPAN=%d%s%s", type, type,
             launch.local[0], BLOCK, traits->chunked ? BLOCK : 1,
             node->type == KILN_I64 ? " -DWIDE" : "", descending ? " -DDESCENDING" : "");
    kiln__launch_memory(&launch, slots[0]);
    kiln__launch_offset(&launch, slots[0], values->offset, kiln_type_size(node->type));
    kiln__launch_memory(&launch, slots[1]);
    kiln__launch_offset(&launch, slots[1], 0, sizeof(int32_t));
    return launch;
}

static void lower_blocks(const struct sort *sort, bool merges)
{
    struct kiln__launch launch = launch_of(sort, "sort_blocks");
    const size_t segment = sort->padded < BLOCK ? sort->padded : BLOCK;
    const size_t pieces = sort->lines * kiln__divide_up(sort->extent, segment);
    launch.global[0] = kiln__divide_up(pieces, BLOCK / segment) * launch.local[0];
    KILN__LAUNCH_INDICES(&launch, (int64_t)sort->lines, (int64_t)sort->extent, (int64_t)segment,
                         (int64_t)merges);
    kiln__plan_launch(sort->plan, &launch);
}

static void lower_pass(const struct sort *sort, size_t apart, bool turned)
{
    struct kiln__launch launch = launch_of(sort, "sort_pass");
    const size_t span = sort->traits->chunked ? BLOCK : 1;
    launch.global[0] = sort->lines * (sort->padded / 2 / span);
    KILN__LAUNCH_INDICES(&launch, (int64_t)sort->extent, (int64_t)sort->padded, (int64_t)apart,
                         (int64_t)turned);
    kiln__plan_launch(sort->plan, &launch);
}

void kiln__lower_sort(struct kiln__plan *plan, uint32_t index)
{
    const struct kiln__group *group = &plan->fusion.groups.items[index];
    if (group->stores.count == 0 || kiln__shape_count(&group->shape) == 0)
        return;
    struct sort sort = {.plan = plan,
                        .traits = kiln__plan_device(plan, group)->traits,
                        .group = index,
                        .lines = 1,
                        .extent = group->shape.dims[group->shape.rank - 1],
                        .padded = 2};
    sort.lines = kiln__shape_count(&group->shape) / sort.extent;
    while (sort.padded < sort.extent)
        sort.padded *= 2;
    lower_blocks(&sort, false);
    for (size_t length = (size_t)2 * BLOCK; length <= sort.padded; length *= 2) {
        lower_pass(&sort, length / 2, true);
        for (size_t apart = length / 4; apart >= BLOCK; apart /= 2)
            lower_pass(&sort, apart, false);
        lower_blocks(&sort, true);
    }
}
