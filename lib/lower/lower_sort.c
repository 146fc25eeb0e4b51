/* SPDX-License-Identifier: Apache-2.0 */
/* Sort groups to launches: which row of the catalogue does it, and what its rows have in common.
 *
 * Positions are sorted, not values. */
#include "lower/sort.h"

#include <stdio.h>

/* Which bits of a key differ between elements of a type: all of its own, or of what it is read as.
 */
static void find_bits(struct kiln__sorting *sort)
{
    const struct kiln__type_row *row = kiln__type_row(sort->type);
    const int bits = 8 * (int)kiln_type_size(row->computed), all = bits < 32 ? 32 : bits;
    sort->low = (unsigned)(row->floating ? kiln__type_row(row->computed)->digits - row->digits
                                         : all - bits);
    sort->digits = ((unsigned)all - sort->low + 7) / 8;
}

static struct kiln__sorting sort_of(const struct kiln__plan *plan, uint32_t index)
{
    const struct kiln__group *group = &plan->fusion.groups.items[index];
    const struct kiln__access *values = &group->accesses.items[0];
    const struct kiln__node *nodes = plan->fusion.graph.nodes.items;
    const struct kiln__node *result = &nodes[group->stores.items[0].node];
    const struct kiln__shape *shape = &nodes[result->input[0]].shape;
    struct kiln__sorting sort = {.traits = kiln__plan_device(plan, group)->traits,
                                 .group = index,
                                 .values = plan->slot_of[values->node],
                                 .result = plan->slot_of[group->stores.items[0].node],
                                 .offset = values->offset,
                                 .type = nodes[values->node].type,
                                 .descending = result->op == KILN__SORT_DESCENDING,
                                 .extent = shape->dims[shape->rank - 1],
                                 .kept = result->shape.dims[result->shape.rank - 1]};
    sort.lines = kiln__node_count(result) / sort.kept;
    sort.key = sort.type == KILN_I64 ? 2 * sizeof(uint64_t) : sizeof(uint64_t);
    find_bits(&sort);
    return sort;
}

size_t kiln__sort_runs(const struct kiln__sorting *sort, size_t wanted, size_t least)
{
    const size_t most = sort->extent / least, parts = kiln__divide_up(wanted, sort->lines);
    return most < 1 ? 1 : parts < most ? parts : most;
}

struct kiln__launch kiln__sort_launch(const struct kiln__plan *plan,
                                      const struct kiln__sorting *sort, const char *file,
                                      const char *kernel, size_t local, const char *more)
{
    const kiln_type read = sort->keyed ? KILN_I32 : sort->type;
    const char *type = kiln__type_row(read)->device;
    struct kiln__launch launch = {.source = KILN__SOURCE_TEMPLATE, .group = sort->group};
    launch.file = file;
    launch.kernel = kernel;
    launch.variant.wide = true;
    if (!sort->keyed)
        kiln__launch_reads(plan, KILN__READABLE, 1, &launch);
    launch.dimensions = 1;
    launch.global[0] = launch.local[0] = local;
    for (int d = 1; d < 3; d++)
        launch.global[d] = launch.local[d] = 1;
    snprintf(launch.options, sizeof launch.options,
             "-DTYPE=%s -DORDER=order_%s -DLOW=%u -DPASSES=%u%s%s%s", type, type, sort->low,
             sort->digits, read == KILN_I64 ? " -DWIDE" : "",
             sort->descending ? " -DDESCENDING" : "", more);
    return launch;
}

/* Of all, of a key for each, and of the result. */
static uint64_t bytes_of_values(const struct kiln__sorting *sort)
{
    return (uint64_t)sort->lines * sort->extent * kiln_type_size(sort->type);
}

static uint64_t bytes_of_keys(const struct kiln__sorting *sort)
{
    return (uint64_t)sort->lines * sort->extent * sort->key;
}

static uint64_t bytes_of_result(const struct kiln__sorting *sort)
{
    return (uint64_t)sort->lines * sort->kept * sizeof(int32_t);
}

void kiln__sort_add_values(const struct kiln__sorting *sort, struct kiln__launch *launch)
{
    kiln__launch_memory(launch, sort->values);
    kiln__launch_offset(launch, sort->values, sort->offset, kiln_type_size(sort->type));
}

void kiln__sort_add(uint32_t slot, size_t item, struct kiln__launch *launch)
{
    kiln__launch_memory(launch, slot);
    kiln__launch_offset(launch, slot, 0, item);
}

void kiln__sort_by_runs(struct kiln__plan *plan, const struct kiln__sorting *sort, size_t parts,
                        kiln__sort_lower_few *lower)
{
    struct kiln__sort_few few = {
        .parts = parts, .from = sort->values, .to = sort->result, .bytes = bytes_of_values(sort)};
    if (parts > 1) {
        const uint64_t listed = parts * bytes_of_result(sort);
        few.to = kiln__plan_scratch(plan, listed);
        few.bytes += listed;
        lower(plan, sort, &few);
        few = (struct kiln__sort_few){1, parts * sort->kept, few.to, sort->result, 2 * listed};
    }
    few.bytes += bytes_of_result(sort);
    lower(plan, sort, &few);
}

void kiln__sort_by_digits(struct kiln__plan *plan, const struct kiln__sorting *sort, size_t parts,
                          size_t counts, kiln__sort_lower_pass *lower)
{
    struct kiln__sort_pass pass = {.from = sort->values, .parts = parts};
    uint32_t room[2] = {KILN__NO_SLOT, KILN__NO_SLOT};
    pass.counts = kiln__plan_scratch(plan, counts * sizeof(uint32_t));
    for (unsigned i = 0; i < 2 && i + 1 < sort->digits; i++)
        room[i] = kiln__plan_scratch(plan, bytes_of_keys(sort));
    for (unsigned digit = 0; digit < sort->digits; digit++) {
        pass.shift = sort->low + 8 * digit;
        pass.first = digit == 0;
        pass.last = digit + 1 == sort->digits;
        pass.to = pass.last ? sort->result : room[digit % 2];
        pass.read = pass.first ? bytes_of_values(sort) : bytes_of_keys(sort);
        pass.written = pass.last ? bytes_of_result(sort) : bytes_of_keys(sort);
        lower(plan, sort, &pass);
        pass.from = pass.to;
    }
}

void kiln__lower_sort(struct kiln__plan *plan, uint32_t index)
{
    const struct kiln__group *group = &plan->fusion.groups.items[index];
    if (group->stores.count == 0 || kiln__shape_count(&group->shape) == 0)
        return;
    const struct kiln__sorting sort = sort_of(plan, index);
    const struct kiln__selection choice = kiln__select(plan, group, KILN__KERNEL_SORT, 0, &sort);
    kiln__lower_by(plan, index, &choice, &sort);
}
