/* SPDX-License-Identifier: Apache-2.0 */
/* Scatter groups to launches: one of kernels/scatter.cl, over a result that holds the base
 * already.
 *
 * A work-group owns some rows, marks the indices that lead there, and adds in the order of its
 * marks, so that every run gives the same bits.
 */
#include "lower/matmul.h"
#include "plan/traffic.h"

#include <stdio.h>
#include <string.h>

/* The tensors as [outer, count or extent, inner]. */
struct scatter {
    size_t outer, count, extent, inner;
};

static struct scatter scatter_of(const struct kiln__plan *plan, const struct kiln__group *group)
{
    const struct kiln__node *nodes = plan->fusion.graph.nodes.items;
    const struct kiln__node *node = &nodes[group->stores.items[0].node];
    struct scatter scatter = {.outer = 1, .inner = 1, .extent = node->shape.dims[node->axis]};
    for (uint32_t d = 0; d < node->shape.rank; d++)
        if (d != node->axis)
            *(d < node->axis ? &scatter.outer : &scatter.inner) *= node->shape.dims[d];
    scatter.count = kiln__node_count(&nodes[node->input[KILN__SCATTER_INDICES]]);
    return scatter;
}

/* A power of two, at least 1, of shares in the rows, so that there are as many work-items or
 * work-groups as are wanted. Each goes over all indices, so that more than enough of them are a
 * loss. */
static size_t choose_classes(size_t wanted, size_t others, const struct scatter *scatter)
{
    size_t classes = 1;
    while (classes < scatter->extent && classes < scatter->count && classes * others < wanted)
        classes *= 2;
    return classes;
}

/* Rows of an item that adds sums up (kernels/scatter_parts.cl is told). */
#define ROWS 64
/* Columns of an item of a chunked device: a few cache lines. */
#define STRIP 256
/* Columns below which walking the indices takes longer than what is done with them. */
#define NARROW 16
/* Work-groups of others: several for each core of the largest. */
#define GROUPS 1024

/* Bytes of sums in a work-group's local memory, and indices of an item, at least
 * (kernels/scatter_atomic.cl). */
#define LOCAL_SUMS 16384
#define OF_AN_ITEM 8

/* Indices for each sum of an item's own. */
#define LEAST_SHARED 8

/* Whether numbers of one column are added up whose sums are the same in any order. */
static bool adds_integers(const struct kiln__plan *plan, const struct kiln__group *group,
                          const struct scatter *scatter)
{
    const struct kiln__node *node = &plan->fusion.graph.nodes.items[group->stores.items[0].node];
    return node->op == KILN_SCATTER_ADD && !kiln__type_row(node->type)->floating &&
           scatter->inner == 1 && scatter->outer == 1;
}

/* Whether items walk a part of the indices each, with sums of their own: on a chunked device, where
 * these are few. */
static bool takes_parts(const struct kiln__plan *plan, const struct kiln__group *group,
                        const struct scatter *scatter)
{
    return kiln__plan_device(plan, group)->traits->chunked && adds_integers(plan, group, scatter) &&
           scatter->count / LEAST_SHARED >= scatter->extent;
}

/* Whether items add as they come: on another device, integers of whole words. */
static bool takes_atomics(const struct kiln__plan *plan, const struct kiln__group *group,
                          const struct scatter *scatter)
{
    const struct kiln__node *node = &plan->fusion.graph.nodes.items[group->stores.items[0].node];
    return !kiln__plan_device(plan, group)->traits->chunked &&
           adds_integers(plan, group, scatter) && kiln_type_size(node->type) >= sizeof(uint32_t);
}

static void size_launch(const struct kiln__device *device, const struct scatter *scatter,
                        struct kiln__launch *launch)
{
    const struct kiln__traits *traits = device->traits;
    const size_t columns = traits->chunked ? STRIP : traits->work_group;
    const size_t cores = device->info.compute_units;
    const bool narrow = scatter->inner < NARROW && cores && cores < traits->chunks;
    size_t strips = kiln__divide_up(scatter->inner, columns);
    launch->dimensions = 3;
    launch->local[0] = traits->chunked ? 1 : traits->work_group;
    launch->local[1] = launch->local[2] = 1;
    launch->global[0] = strips * launch->local[0];
    launch->global[1] = choose_classes(!traits->chunked ? GROUPS
                                       : narrow         ? cores
                                                        : traits->chunks,
                                       strips * scatter->outer, scatter);
    launch->global[2] = scatter->outer;
}

static const struct kiln__type_row *type_of(const struct kiln__plan *plan, uint32_t node)
{
    return kiln__type_row(plan->fusion.graph.nodes.items[node].type);
}

static void add_access(const struct kiln__plan *plan, const struct kiln__access *access,
                       struct kiln__launch *launch)
{
    const struct kiln__node *node = &plan->fusion.graph.nodes.items[access->node];
    uint32_t slot = plan->slot_of[access->node];
    kiln__launch_memory(launch, slot);
    kiln__launch_offset(launch, slot, access->offset, kiln_type_size(node->type));
}

/* Whether signs matter; else integers are those that wrap around. */
static bool orders(uint8_t mode)
{
    return mode == KILN_SCATTER_MIN || mode == KILN_SCATTER_MAX;
}

/* Indices that a work-group marks at once; half as many as rounds after which Mesa's llvmpipe
 * leaves loops. */
#define BLOCK 32768

/* Of so many indices: these, their values, and where those go, read and written once each. */
static uint64_t bytes_of(const struct kiln__plan *plan, const struct kiln__group *group,
                         const struct scatter *scatter, size_t count)
{
    static const bool both[] = {true, true};
    const struct kiln__node *result = &plan->fusion.graph.nodes.items[group->stores.items[0].node];
    const uint64_t read = kiln__group_bytes_read(plan, group, both);
    const uint64_t values = scatter->outer * count * scatter->inner;
    const uint64_t most = kiln__node_count(result);
    return (uint64_t)((double)read * (double)count / (double)scatter->count) +
           2 * (values < most ? values : most) * kiln_type_size(result->type);
}

/* The launch for indices `from` to `to` - 1. */
static void lower_mapping(struct kiln__plan *plan, uint32_t index, const struct scatter *scatter,
                          size_t from, size_t to)
{
    const struct kiln__group *group = &plan->fusion.groups.items[index];
    const struct kiln__access *values = &group->accesses.items[KILN__SCATTER_VALUES];
    const struct kiln__access *indices = &group->accesses.items[KILN__SCATTER_INDICES];
    const struct kiln__access result = {.node = group->stores.items[0].node};
    const struct kiln__device *device = kiln__plan_device(plan, group);
    const bool chunked = device->traits->chunked;
    struct kiln__launch launch = {.source = KILN__SOURCE_TEMPLATE, .group = index};
    launch.file = chunked ? "scatter" : "scatter_gpu";
    launch.kernel = "scatter";
    launch.variant.wide = true;
    kiln__launch_reads(plan, KILN__READABLE, 1, &launch);
    launch.bytes = bytes_of(plan, group, scatter, to - from);
    size_launch(device, scatter, &launch);
    const struct kiln__type_row *type = type_of(plan, result.node);
    const struct kiln__node *nodes = plan->fusion.graph.nodes.items;
    const uint8_t mode = nodes[result.node].op;
    char sizes[64];
    if (chunked)
        snprintf(sizes, sizeof sizes, "-DCOLUMNS=%d", STRIP);
    else
        snprintf(sizes, sizeof sizes, "-DWG=%zu -DBLOCK=%d", launch.local[0], BLOCK);
    snprintf(launch.options, sizeof launch.options, "-DTYPE=%s -DCOMBINE=%s -DINDEX=%s %s",
             orders(mode) ? type->device : type->sums, kiln__node_name(&nodes[result.node]),
             type_of(plan, indices->node)->device, sizes);
    add_access(plan, values, &launch);
    add_access(plan, indices, &launch);
    add_access(plan, &result, &launch);
    KILN__LAUNCH_INDICES(&launch, (int64_t)scatter->count, (int64_t)scatter->extent,
                         (int64_t)scatter->inner, (int64_t)launch.global[1], (int64_t)from,
                         (int64_t)to);
    kiln__plan_launch(plan, &launch);
}

/* What launches for integers have alike. */
static struct kiln__launch start_integers(const struct kiln__plan *plan, uint32_t index,
                                          const char *file, const char *kernel)
{
    const struct kiln__group *group = &plan->fusion.groups.items[index];
    const struct kiln__access *indices = &group->accesses.items[KILN__SCATTER_INDICES];
    struct kiln__launch launch = {.source = KILN__SOURCE_TEMPLATE,
                                  .group = index,
                                  .file = file,
                                  .kernel = kernel,
                                  .dimensions = 1,
                                  .global = {1, 1, 1},
                                  .local = {1, 1, 1}};
    launch.variant.wide = true;
    kiln__launch_reads(plan, KILN__READABLE, 1, &launch);
    snprintf(launch.options, sizeof launch.options, "-DTYPE=%s -DINDEX=%s -DROWS=%d",
             type_of(plan, group->stores.items[0].node)->sums, type_of(plan, indices->node)->device,
             ROWS);
    return launch;
}

#define PARTS "scatter_parts"

static void lower_parts(struct kiln__plan *plan, uint32_t index, const struct scatter *scatter)
{
    const struct kiln__group *group = &plan->fusion.groups.items[index];
    const struct kiln__access result = {.node = group->stores.items[0].node};
    const size_t parts = kiln__plan_device(plan, group)->traits->chunks;
    const size_t item = kiln_type_size(plan->fusion.graph.nodes.items[result.node].type);
    const uint32_t sums = kiln__plan_scratch(plan, parts * scatter->extent * item);
    struct kiln__launch part = start_integers(plan, index, PARTS, "scatter_part");
    struct kiln__launch join = start_integers(plan, index, PARTS, "scatter_join");
    part.global[0] = parts;
    join.global[0] = kiln__divide_up(scatter->extent, ROWS);
    part.bytes = bytes_of(plan, group, scatter, scatter->count);
    join.bytes = (parts + 2) * scatter->extent * item;
    add_access(plan, &group->accesses.items[KILN__SCATTER_VALUES], &part);
    add_access(plan, &group->accesses.items[KILN__SCATTER_INDICES], &part);
    kiln__launch_memory(&part, sums);
    kiln__launch_offset(&part, sums, 0, item);
    KILN__LAUNCH_INDICES(&part, (int64_t)scatter->count, (int64_t)scatter->extent);
    kiln__launch_memory(&join, sums);
    kiln__launch_offset(&join, sums, 0, item);
    add_access(plan, &result, &join);
    KILN__LAUNCH_INDICES(&join, (int64_t)scatter->extent, (int64_t)parts);
    kiln__plan_launch(plan, &part);
    kiln__plan_launch(plan, &join);
}

static void lower_atomics(struct kiln__plan *plan, uint32_t index, const struct scatter *scatter)
{
    const struct kiln__group *group = &plan->fusion.groups.items[index];
    const struct kiln__access result = {.node = group->stores.items[0].node};
    const size_t item = kiln_type_size(plan->fusion.graph.nodes.items[result.node].type);
    const size_t local = kiln__plan_device(plan, group)->traits->work_group;
    const size_t groups = kiln__divide_up(scatter->count, local * OF_AN_ITEM);
    struct kiln__launch launch = start_integers(plan, index, "scatter_atomic", "scatter_atomic");
    size_t rows = 1;
    while (rows < scatter->extent && rows * item <= LOCAL_SUMS)
        rows *= 2;
    if (rows * item > LOCAL_SUMS)
        rows = 0;
    const size_t used = strlen(launch.options);
    snprintf(launch.options + used, sizeof launch.options - used,
             " -DWORDS=%zu -DWG=%zu -DROWS=%zu", item / sizeof(uint32_t), local, rows);
    launch.local[0] = local;
    launch.global[0] = local * (groups < GROUPS ? groups : GROUPS);
    launch.bytes = bytes_of(plan, group, scatter, scatter->count);
    add_access(plan, &group->accesses.items[KILN__SCATTER_VALUES], &launch);
    add_access(plan, &group->accesses.items[KILN__SCATTER_INDICES], &launch);
    add_access(plan, &result, &launch);
    KILN__LAUNCH_INDICES(&launch, (int64_t)scatter->count, (int64_t)scatter->extent);
    kiln__plan_launch(plan, &launch);
}

void kiln__lower_scatter(struct kiln__plan *plan, uint32_t index)
{
    const struct kiln__group *group = &plan->fusion.groups.items[index];
    if (group->stores.count == 0 || kiln__shape_count(&group->shape) == 0)
        return;
    const struct scatter scatter = scatter_of(plan, group);
    if (scatter.extent == 0)
        return;
    if (takes_parts(plan, group, &scatter)) {
        lower_parts(plan, index, &scatter);
        return;
    }
    if (takes_atomics(plan, group, &scatter)) {
        lower_atomics(plan, index, &scatter);
        return;
    }
    size_t most = kiln__plan_device(plan, group)->traits->chunked ? scatter.count : BLOCK;
    for (size_t from = 0; from < scatter.count; from += most) {
        size_t left = scatter.count - from;
        lower_mapping(plan, index, &scatter, from, from + (left < most ? left : most));
    }
}
