/* SPDX-License-Identifier: Apache-2.0 */
/* Base, strides and batch dimensions of matrix operands and results, and their kernel arguments. */
#include "lower/strided_operands.h"

/* A place while its leading dimensions are not runs yet. */
struct walked {
    struct kiln__operand_place *place;
    const int64_t *stride; /* per dimension of the group */
};

struct merge {
    struct kiln__places *places;
    struct walked walked[KILN__MOST_INPUTS + KILN__MOST_WHOLE];
    uint32_t count;
};

/* Whether leading dimension `d` of the group goes on where the last run ends, everywhere. */
static bool goes_on(const struct merge *merge, uint32_t d)
{
    const uint32_t run = merge->places->count - 1;
    bool all = true;
    for (uint32_t i = 0; i < merge->count; i++)
        all = all && merge->walked[i].stride[d] ==
                         merge->walked[i].place->run[run] * merge->places->size[run];
    return all;
}

static void merge_leading(const struct merge *merge, const struct kiln__group *group)
{
    struct kiln__places *places = merge->places;
    for (uint32_t d = group->shape.rank - 2; d-- > 0;) {
        int64_t size = (int64_t)group->shape.dims[d];
        if (size == 1)
            continue;
        if (places->count && goes_on(merge, d)) {
            places->size[places->count - 1] *= size;
            continue;
        }
        places->size[places->count] = size;
        for (uint32_t i = 0; i < merge->count; i++)
            merge->walked[i].place->run[places->count] = merge->walked[i].stride[d];
        places->count++;
    }
    if (places->count == 0)
        places->size[places->count++] = 1;
}

static struct kiln__operand_place place_of(const struct kiln__plan *plan,
                                           const struct kiln__group *group, uint32_t node,
                                           int64_t offset, const int64_t *stride)
{
    struct kiln__operand_place place = {.slot = plan->slot_of[node], .offset = offset};
    place.item = (uint8_t)kiln_type_size(plan->fusion.graph.nodes.items[node].type);
    place.row = stride[group->shape.rank - 2];
    place.column = stride[group->shape.rank - 1];
    return place;
}

struct kiln__places kiln__places_of(const struct kiln__plan *plan, const struct kiln__group *group)
{
    struct kiln__places places = {.inputs = (uint32_t)group->accesses.count,
                                  .results = (uint32_t)group->stores.count};
    struct merge merge = {.places = &places};
    int64_t dense[KILN__MOST_WHOLE][KILN_MAX_RANK];
    for (uint32_t i = 0; i < places.inputs; i++) {
        const struct kiln__access *access = &group->accesses.items[i];
        places.input[i] = place_of(plan, group, access->node, access->offset, access->stride);
        merge.walked[merge.count++] = (struct walked){&places.input[i], access->stride};
    }
    for (uint32_t i = 0; i < places.results; i++) {
        const struct kiln__store *store = &group->stores.items[i];
        const uint32_t node = group->nodes.items[i];
        kiln__shape_strides(&plan->fusion.graph.nodes.items[node].shape, dense[i]);
        const int64_t *stride = store->placed ? store->stride : dense[i];
        places.out[i] = place_of(plan, group, store->node, 0, stride);
        merge.walked[merge.count++] = (struct walked){&places.out[i], stride};
    }
    merge_leading(&merge, group);
    return places;
}

/* The count of elements tells what the stride of a batch of one would be, so that it has the kernel
 * of larger ones. */
bool kiln__places_have_rows(const struct kiln__plan *plan, const struct kiln__group *group,
                            const struct kiln__places *places, unsigned i, size_t rows,
                            kiln_type type, int64_t elements)
{
    const struct kiln__operand_place *place = &places->input[i];
    const struct kiln__node *node = &plan->fusion.graph.nodes.items[group->accesses.items[i].node];
    bool whole = node->type == type && kiln__node_count(node) % (size_t)elements == 0 &&
                 place->column == 1 && (place->row > 0 || rows == 1) &&
                 place->row % elements == 0 && place->offset % elements == 0;
    for (uint32_t run = 0; run < places->count; run++)
        whole = whole && place->run[run] % elements == 0;
    return whole;
}

bool kiln__places_have_even_results(const struct kiln__places *places)
{
    bool even = true;
    for (uint32_t i = 0; i < places->results; i++) {
        even = even && places->out[i].row % 2 == 0;
        for (uint32_t run = 0; run < places->count; run++)
            even = even && places->out[i].run[run] % 2 == 0;
    }
    return even;
}

void kiln__places_add(struct kiln__launch *launch, const struct kiln__places *places, unsigned i)
{
    const struct kiln__operand_place *place = &places->input[i];
    kiln__launch_offset(launch, place->slot, place->offset, place->item);
    KILN__LAUNCH_INDICES(launch, place->row, place->column);
}

void kiln__places_add_runs(struct kiln__launch *launch, const struct kiln__places *places,
                           uint32_t inputs)
{
    for (uint32_t run = 0; run < places->count; run++) {
        kiln__launch_index(launch, places->size[run]);
        for (uint32_t i = 0; i < inputs; i++)
            kiln__launch_index(launch, places->input[i].run[run]);
        kiln__launch_index(launch, places->out[0].run[run]);
        for (uint32_t i = inputs; i < places->inputs; i++)
            kiln__launch_index(launch, places->input[i].run[run]);
    }
}
