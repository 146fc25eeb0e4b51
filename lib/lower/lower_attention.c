/* SPDX-License-Identifier: Apache-2.0 */
/* How kernels/attention_*.cl are launched on any device. Each file's head has the recipe. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "lower/attention_work.h"

static struct kiln__attention_work attention_of(const struct kiln__plan *plan, uint32_t index)
{
    const struct kiln__group *group = &plan->fusion.groups.items[index];
    const struct kiln__graph *graph = &plan->fusion.graph;
    const struct kiln__node *node = &graph->nodes.items[group->nodes.items[0]];
    struct kiln__attention_work attention = {.node = node, .group = group, .number = index};
    attention.size = kiln__attention_size(graph, node);
    assert(group->kind == KILN__GROUP_ATTENTION && group->accesses.count == node->n_inputs);
    attention.result = graph->nodes.items[group->stores.items[0].node].type;
    attention.operands = kiln__strided_operands_of(plan, group);
    attention.lengths = kiln__attention_lengths(node);
    attention.masked = kiln__attention_is_masked(node);
    if (attention.masked)
        attention.truths = kiln__graph_input(graph, node, KILN__MASK)->type == KILN_U8;
    return attention;
}

/* ---- arguments ---- */

/* Whether the group stores the log-sum-exp of its rows, too, which the kernel with maps can do. */
bool kiln__attention_stores_log_sum_exp(const struct kiln__attention_work *attention)
{
    return attention->operands.results > 1;
}

static void add_extra(struct kiln__launch *launch, const struct kiln__attention_work *attention,
                      const struct kiln__attention_extra *extra)
{
    if (extra->scratch != KILN__NO_SLOT) {
        kiln__launch_memory(launch, extra->scratch);
        kiln__launch_offset(launch, extra->scratch, 0, extra->item);
    }
    if (extra->keys)
        kiln__launch_index(launch, extra->keys);
    if (extra->log_sum_exp) {
        kiln__launch_memory(launch, attention->operands.out[1].slot);
        kiln__launch_offset(launch, attention->operands.out[1].slot, 0, sizeof(float));
    }
}

void kiln__attention_add_arguments(struct kiln__launch *launch,
                                   const struct kiln__attention_work *attention,
                                   const struct kiln__attention_extra *extra)
{
    const struct kiln__attention_size *size = &attention->size;
    const double log2_e = 1.4426950408889634;
    for (unsigned i = 0; i < KILN__MASK; i++)
        kiln__launch_memory(launch, attention->operands.input[i].slot);
    kiln__launch_memory(launch, attention->operands.out[0].slot);
    KILN__LAUNCH_INDICES(launch, (int64_t)size->m, (int64_t)size->n, (int64_t)size->d,
                         (int64_t)size->e);
    kiln__launch_f32(launch, (float)(attention->node->attention.scale * log2_e));
    kiln__launch_index(launch, kiln__attention_diagonal(attention->node, size));
    for (unsigned i = 0; i < KILN__MASK; i++)
        kiln__strided_operands_add(launch, &attention->operands, i);
    kiln__launch_offset(launch, attention->operands.out[0].slot, 0,
                        attention->operands.out[0].item);
    kiln__launch_index(launch, attention->operands.out[0].row);
    if (extra)
        add_extra(launch, attention, extra);
    if (attention->masked) {
        kiln__launch_memory(launch, attention->operands.input[KILN__MASK].slot);
        kiln__strided_operands_add(launch, &attention->operands, KILN__MASK);
    }
    if (attention->lengths) {
        const struct kiln__strided_operand *lengths =
            &attention->operands.input[attention->lengths];
        kiln__launch_memory(launch, lengths->slot);
        kiln__launch_offset(launch, lengths->slot, lengths->offset, lengths->item);
    }
    if (attention->node->attention.window) /* of the node's own rows, before heads become rows */
        kiln__launch_index(launch, kiln__attention_earliest(attention->node, size));
    kiln__strided_operands_add_runs(launch, &attention->operands, KILN__MASK);
}

/* vector: how generated text reads what is of a narrower type; 0: the kernel takes it as it is. */
struct kiln__launch kiln__attention_launch(const struct kiln__plan *plan,
                                           const struct kiln__attention_work *attention,
                                           const char *name, unsigned vector)
{
    struct kiln__launch launch = {.source = KILN__SOURCE_TEMPLATE,
                                  .group = attention->number,
                                  .file = name,
                                  .kernel = name,
                                  .dimensions = 3};
    launch.variant.wide = true;
    if (vector)
        kiln__launch_reads(plan, KILN__MASK + attention->masked, vector, &launch);
    return launch;
}

/* The kernels' MASK. */
int kiln__attention_mask_option(const struct kiln__attention_work *attention)
{
    return !attention->masked ? 0 : attention->truths ? 1 : 2;
}

/* The options of windows, and of how lengths, which are integers, lie in memory. */
void kiln__attention_add_lengths(const struct kiln__plan *plan,
                                 const struct kiln__attention_work *attention,
                                 struct kiln__launch *launch)
{
    const struct kiln__attention *how = &attention->node->attention;
    size_t used = strlen(launch->options);
    if (how->window)
        used += (size_t)snprintf(launch->options + used, sizeof launch->options - used,
                                 " -DWINDOW=%d", how->causal ? 1 : 2);
    if (!attention->lengths)
        return;
    const uint32_t node = attention->group->accesses.items[attention->lengths].node;
    const kiln_type type = plan->fusion.graph.nodes.items[node].type;
    snprintf(launch->options + used, sizeof launch->options - used, " -DLENGTHS=%d",
             type == KILN_I64  ? 2
             : type == KILN_I8 ? 3
                               : 1);
}

/* ---- chunked devices ---- */

#define TILE 4

/* Vectors of rows for an item: four use the registers best; fewer where there are few rows, few
 * items for the device's units, or little local memory. */
static size_t choose_row_vectors(const struct kiln__plan *plan,
                                 const struct kiln__attention_work *attention, size_t vector)
{
    const struct kiln__attention_size *size = &attention->size;
    const kiln_device_info *device = &kiln__plan_device(plan, attention->group)->info;
    size_t lines = kiln__attention_padded_columns(size->d) +
                   kiln__attention_padded_columns(size->e) + KILN__ATTENTION_KEYS,
           vectors = 4;
    const unsigned tuned =
        kiln__plan_device(plan, attention->group)->traits->tile; /* 1 + the logarithm */
    for (; vectors > 1; vectors /= 2) {
        bool many_rows = size->m * 2 > vectors * vector;
        bool many_items =
            size->batches * kiln__divide_up(size->m, vectors * vector) >= device->compute_units;
        if ((tuned ? vectors <= 1u << (tuned - 1) : many_rows && many_items) &&
            lines * vectors * vector * sizeof(float) <= device->local_memory / 2)
            break;
    }
    return vectors;
}

size_t kiln__attention_vector(const struct kiln__plan *plan,
                              const struct kiln__attention_work *attention)
{
    const size_t vector = kiln__plan_device(plan, attention->group)->traits->vector;
    return vector >= 16 ? 16 : vector >= 8 ? 8 : 4;
}

static void lower_items(struct kiln__plan *plan, uint32_t group, const void *work)
{
    const struct kiln__attention_work *attention = work;
    (void)group;
    /* else only_copies() of fuse/transposed_store.c says too much */
    assert(attention->result == KILN_F32);
    const struct kiln__attention_size *size = &attention->size;
    size_t vector = kiln__attention_vector(plan, attention);
    while (vector > 4 && kiln__attention_local(size->d, size->e) / 4 * vector >
                             kiln__plan_device(plan, attention->group)->info.local_memory)
        vector /= 2;
    size_t vectors = choose_row_vectors(plan, attention, vector);
    struct kiln__launch launch =
        kiln__attention_launch(plan, attention, "attention_cpu", (unsigned)vector);
    snprintf(launch.options, sizeof launch.options,
             "-DVECTOR=%d -DROW_VECTORS=%d -DTILE_KEYS=%d -DTILE_VALUES=%d -DBLOCK_KEYS=%d "
             "-DDEPTH=%d -DWIDTH=%d -DMASK=%d -DRUNS=%d",
             (int)vector, (int)vectors, TILE, TILE, KILN__ATTENTION_KEYS,
             (int)kiln__attention_padded_columns(size->d),
             (int)kiln__attention_padded_columns(size->e), kiln__attention_mask_option(attention),
             (int)attention->operands.count);
    kiln__attention_add_lengths(plan, attention, &launch);
    launch.global[0] = kiln__divide_up(size->m, vectors * vector);
    launch.global[1] = size->batches;
    launch.global[2] = launch.local[0] = launch.local[1] = launch.local[2] = 1;
    kiln__attention_add_arguments(&launch, attention, NULL);
    kiln__plan_launch(plan, &launch);
}

/* ---- other devices ---- */

/* What a work-group owns: the first row that holds d and e and fits the local memory. The second is
 * for few work-groups, whose items cannot wait for each other's: 40 x 77 queries and 300 keys of 32
 * columns took an H200 0.065 ms by the first, 0.050 by twice as many items. */
static const struct kiln__attention_tile shapes[] = {
    {32, 64, 32, 8},   {32, 64, 32, 16},  {64, 64, 32, 16}, {64, 32, 32, 8}, {128, 32, 32, 16},
    {128, 16, 16, 16}, {256, 16, 16, 16}, {256, 8, 8, 8},   {512, 8, 8, 8}};
#define FEW_GROUPS 4 /* of a unit */

#define ITEM_ROWS 8 /* rows of an item */

size_t kiln__attention_tile_items(const struct kiln__attention_tile *tile)
{
    return tile->rows / ITEM_ROWS * tile->lanes;
}

size_t kiln__attention_tile_bytes(const struct kiln__attention_tile *tile)
{
    return (tile->columns * (tile->rows + 4) + tile->columns * (tile->keys + 1) +
            (tile->keys + tile->lanes) * tile->rows) *
           sizeof(float);
}

/* NULL if none is for this device and these sizes. */
static const struct kiln__attention_tile *choose_shape(const struct kiln__plan *plan,
                                                       const struct kiln__attention_work *attention)
{
    const kiln_device_info *device = &kiln__plan_device(plan, attention->group)->info;
    size_t columns = attention->size.d > attention->size.e ? attention->size.d : attention->size.e;
    const bool batch_invariant =
        plan->fusion.graph.batch_invariant; /* keys are taken in blocks of the shape's */
    const unsigned tuned =
        batch_invariant ? 0 : kiln__plan_device(plan, attention->group)->traits->tile;
    size_t groups = attention->size.batches * kiln__divide_up(attention->size.m, shapes[0].rows);
    size_t first = !batch_invariant && groups < (size_t)device->compute_units * FEW_GROUPS;
    for (size_t i = tuned ? tuned - 1 : first; i < sizeof shapes / sizeof *shapes; i++)
        if (columns <= shapes[i].columns &&
            kiln__attention_tile_bytes(&shapes[i]) <= device->local_memory &&
            kiln__attention_tile_items(&shapes[i]) <= device->max_work_group)
            return &shapes[i];
    return NULL;
}

static bool groups_fit(const struct kiln__plan *plan, const void *work)
{
    return choose_shape(plan, work);
}

const char *kiln__attention_result_option(const struct kiln__attention_work *attention)
{
    return attention->result == KILN_F16    ? " -DRESULT_F16"
           : attention->result == KILN_BF16 ? " -DRESULT_BF16"
                                            : "";
}

void kiln__attention_set_tile(const struct kiln__plan *plan,
                              const struct kiln__attention_work *attention,
                              const struct kiln__attention_tile *tile, struct kiln__launch *launch)
{
    const size_t items = kiln__attention_tile_items(tile);
    snprintf(launch->options, sizeof launch->options,
             "-DROWS=%d -DKEYS=%d -DLANES=%d -DDEPTH=%d -DWIDTH=%d -DMASK=%d -DRUNS=%d%s%s",
             (int)tile->rows, (int)tile->keys, (int)tile->lanes, (int)tile->columns,
             (int)tile->columns, kiln__attention_mask_option(attention),
             (int)attention->operands.count, kiln__attention_result_option(attention),
             kiln__plan_device(plan, attention->group)->traits->emulates_fma ? " -DNO_FMA" : "");
    launch->global[0] = kiln__divide_up(attention->size.m, tile->rows) * items;
    launch->local[0] = items;
    launch->global[2] = 1;
}

static void lower_groups(struct kiln__plan *plan, uint32_t group, const void *work)
{
    const struct kiln__attention_work *attention = work;
    struct kiln__launch launch = kiln__attention_launch(plan, attention, "attention_gpu", 1);
    (void)group;
    kiln__attention_set_tile(plan, attention, choose_shape(plan, attention), &launch);
    kiln__attention_add_lengths(plan, attention, &launch);
    launch.global[1] = attention->size.batches;
    launch.local[1] = launch.local[2] = 1;
    kiln__attention_add_arguments(&launch, attention, NULL);
    kiln__plan_launch(plan, &launch);
}

/* ---- the rows ---- */

const struct kiln__lowering kiln__attention_items = {.lower = lower_items};
const struct kiln__lowering kiln__attention_groups = {.fits = groups_fit, .lower = lower_groups};

void kiln__lower_attention(struct kiln__plan *plan, uint32_t index)
{
    const struct kiln__group *group = &plan->fusion.groups.items[index];
    if (group->stores.count == 0)
        return;
    const struct kiln__attention_work attention = attention_of(plan, index);
    if (attention.size.m == 0 || attention.size.e == 0 || attention.size.batches == 0)
        return;
    const struct kiln__selection choice =
        kiln__select(plan, group, KILN__KERNEL_ATTENTION, 0, &attention);
    kiln__lower_by(plan, index, &choice, &attention);
    if (kiln__attention_stores_log_sum_exp(&attention) &&
        !(choice.taken->traits & KILN__KERNEL_LOG_SUM_EXP))
        kiln__lower_log_sum_exp(plan, index);
}
