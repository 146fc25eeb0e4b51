/* SPDX-License-Identifier: Apache-2.0 */
/* Base, strides and batch dimensions of matrix operands and results, and their kernel arguments. */
#include "lower/strided_operands.h"

/* A place while its leading dimensions are not runs yet. */
struct walked {
    struct kiln__strided_operand *place;
    const int64_t *stride; /* per dimension of the group */
};

struct merge {
    struct kiln__strided_operands *operands;
    struct walked walked[KILN__MOST_INPUTS + KILN__MOST_WHOLE];
    uint32_t count;
};

/* Whether leading dimension `d` of the group goes on where the last run ends, everywhere. */
static bool goes_on(const struct merge *merge, uint32_t d)
{
    const uint32_t run = merge->operands->count - 1;
    bool all = true;
    for (uint32_t i = 0; i < merge->count; i++)
        all = all && merge->walked[i].stride[d] ==
                         merge->walked[i].place->run[run] * merge->operands->size[run];
    return all;
}

static void merge_leading(const struct merge *merge, const struct kiln__group *group)
{
    struct kiln__strided_operands *operands = merge->operands;
    for (uint32_t d = group->shape.rank - 2; d-- > 0;) {
        int64_t size = (int64_t)group->shape.dims[d];
        if (size == 1)
            continue;
        if (operands->count && goes_on(merge, d)) {
            operands->size[operands->count - 1] *= size;
            continue;
        }
        operands->size[operands->count] = size;
        for (uint32_t i = 0; i < merge->count; i++)
            merge->walked[i].place->run[operands->count] = merge->walked[i].stride[d];
        operands->count++;
    }
    if (operands->count == 0)
        operands->size[operands->count++] = 1;
}

static struct kiln__strided_operand place_of(const struct kiln__plan *plan,
                                             const struct kiln__group *group, uint32_t node,
                                             int64_t offset, const int64_t *stride)
{
    struct kiln__strided_operand place = {.slot = plan->slot_of[node], .offset = offset};
    place.item = (uint8_t)kiln_type_size(plan->fusion.graph.nodes.items[node].type);
    place.row = stride[group->shape.rank - 2];
    place.column = stride[group->shape.rank - 1];
    return place;
}

struct kiln__strided_operands kiln__strided_operands_of(const struct kiln__plan *plan,
                                                        const struct kiln__group *group)
{
    struct kiln__strided_operands operands = {.inputs = (uint32_t)group->accesses.count,
                                              .results = (uint32_t)group->stores.count};
    struct merge merge = {.operands = &operands};
    int64_t dense[KILN__MOST_WHOLE][KILN_MAX_RANK];
    for (uint32_t i = 0; i < operands.inputs; i++) {
        const struct kiln__access *access = &group->accesses.items[i];
        operands.input[i] = place_of(plan, group, access->node, access->offset, access->stride);
        merge.walked[merge.count++] = (struct walked){&operands.input[i], access->stride};
    }
    for (uint32_t i = 0; i < operands.results; i++) {
        const struct kiln__store *store = &group->stores.items[i];
        const uint32_t node = group->nodes.items[i];
        kiln__shape_strides(&plan->fusion.graph.nodes.items[node].shape, dense[i]);
        const int64_t *stride = store->placed ? store->stride : dense[i];
        operands.out[i] = place_of(plan, group, store->node, 0, stride);
        merge.walked[merge.count++] = (struct walked){&operands.out[i], stride};
    }
    merge_leading(&merge, group);
    return operands;
}

/* The count of elements tells what the stride of a batch of one would be, so that it has the kernel
 * of larger ones. */
bool kiln__strided_operands_have_rows(const struct kiln__plan *plan,
                                      const struct kiln__group *group,
                                      const struct kiln__strided_operands *operands, unsigned i,
                                      size_t rows, kiln_type type, int64_t elements)
{
    const struct kiln__strided_operand *place = &operands->input[i];
    const struct kiln__node *node = &plan->fusion.graph.nodes.items[group->accesses.items[i].node];
    bool whole = node->type == type && kiln__node_count(node) % (size_t)elements == 0 &&
                 place->column == 1 && (place->row > 0 || rows == 1) &&
                 place->row % elements == 0 && place->offset % elements == 0;
    for (uint32_t run = 0; run < operands->count; run++)
        whole = whole && place->run[run] % elements == 0;
    return whole;
}

bool kiln__strided_operands_have_even_results(const struct kiln__strided_operands *operands)
{
    bool even = true;
    for (uint32_t i = 0; i < operands->results; i++) {
        even = even && operands->out[i].row % 2 == 0;
        for (uint32_t run = 0; run < operands->count; run++)
            even = even && operands->out[i].run[run] % 2 == 0;
    }
    return even;
}

void kiln__strided_operands_add(struct kiln__launch *launch,
                                const struct kiln__strided_operands *operands, unsigned i)
{
    const struct kiln__strided_operand *place = &operands->input[i];
    kiln__launch_offset(launch, place->slot, place->offset, place->item);
    KILN__LAUNCH_INDICES(launch, place->row, place->column);
}

void kiln__strided_operands_add_runs(struct kiln__launch *launch,
                                     const struct kiln__strided_operands *operands, uint32_t inputs)
{
    for (uint32_t run = 0; run < operands->count; run++) {
        kiln__launch_index(launch, operands->size[run]);
        for (uint32_t i = 0; i < inputs; i++)
            kiln__launch_index(launch, operands->input[i].run[run]);
        kiln__launch_index(launch, operands->out[0].run[run]);
        for (uint32_t i = inputs; i < operands->inputs; i++)
            kiln__launch_index(launch, operands->input[i].run[run]);
    }
}
