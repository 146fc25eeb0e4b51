/* SPDX-License-Identifier: Apache-2.0 */
/* How kernels/attention_*.cl are launched. Each file's head has the recipe. */
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

/* Whether the group has the scales of its rows as well, which the kernel with maps can find. */
bool kiln__attention_has_scales(const struct kiln__attention_work *attention)
{
    return attention->operands.results > 1;
}

static void add_beside(struct kiln__launch *launch, const struct kiln__attention_work *attention,
                       const struct kiln__attention_beside *beside)
{
    if (beside->scratch != KILN__NO_SLOT) {
        kiln__launch_memory(launch, beside->scratch);
        kiln__launch_offset(launch, beside->scratch, 0, beside->item);
    }
    if (beside->keys)
        kiln__launch_index(launch, beside->keys);
    if (beside->scaled) {
        kiln__launch_memory(launch, attention->operands.out[1].slot);
        kiln__launch_offset(launch, attention->operands.out[1].slot, 0, sizeof(float));
    }
}

void kiln__attention_add_arguments(struct kiln__launch *launch,
                                   const struct kiln__attention_work *attention,
                                   const struct kiln__attention_beside *beside)
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
    if (beside)
        add_beside(launch, attention, beside);
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

/* The option that says how lengths, which are integers, lie in memory. */
void kiln__attention_add_lengths(const struct kiln__plan *plan,
                                 const struct kiln__attention_work *attention,
                                 struct kiln__launch *launch)
{
    const size_t used = strlen(launch->options);
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
    size_t lines =
               kiln__attention_room(size->d) + kiln__attention_room(size->e) + KILN__ATTENTION_KEYS,
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
             (int)kiln__attention_room(size->d), (int)kiln__attention_room(size->e),
             kiln__attention_mask_option(attention), (int)attention->operands.count);
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

/* ---- NVIDIA's devices that copy to local memory in the background ---- */

#define COPIES_ITEMS 128
#define COPIES_ROWS 64
#define COPIES_LOCAL 47104
#define COPIES_MOST 128 /* columns of a result */
#define COPIES_DEEPEST (1 << 30)
#define LONG_DEPTH 32 /* columns in a stage of the kernel with long ones */
#define LONG_LOCAL(width) (4 * (8704 + 256 * LONG_DEPTH + COPIES_ROWS * (width)))

static bool has_rows(const struct kiln__plan *plan, const struct kiln__attention_work *attention,
                     unsigned input, kiln_type type, int64_t elements)
{
    const size_t rows = input == KILN__QUERY ? attention->size.m : attention->size.n;
    return kiln__strided_operands_have_rows(plan, attention->group, &attention->operands, input,
                                            rows, type, elements);
}

/* Not for narrow results (of operands that lie as floats), nor where tuning has found another
 * kernel's tile to be better. */
static bool copies_fit(const struct kiln__plan *plan, const void *work)
{
    const struct kiln__attention_work *attention = work;
    const struct kiln__device *device = kiln__plan_device(plan, attention->group);
    if (attention->result != KILN_F32 || attention->lengths ||
        (device->traits->tile && !plan->fusion.graph.batch_invariant))
        return false;
    bool suits = device->info.max_work_group >= COPIES_ITEMS &&
                 device->info.local_memory >= COPIES_LOCAL && !plan->options.shared &&
                 attention->size.d > 0 && attention->size.d < COPIES_DEEPEST &&
                 attention->size.e <= COPIES_MOST;
    for (unsigned i = 0; i < KILN__MASK; i++)
        suits = suits && has_rows(plan, attention, i, KILN_F32, 4);
    return suits;
}

/* Whether a kernel with more local memory than OpenCL C lets one have is proved to work. */
static bool copies_long_fit(const struct kiln__plan *plan, const void *work)
{
    const struct kiln__attention_work *attention = work;
    const struct kiln__self_test self_test = {
        .kernel = kiln__kernel_named(KILN__KERNEL_ATTENTION, "copies_long"),
        .type = KILN_F32,
        .parts = 1,
        .tile = (uint16_t)kiln__attention_room(attention->size.e),
        .mask = !kiln__attention_mask_option(attention) ? (kiln_type)0
                : attention->truths                     ? KILN_U8
                                                        : KILN_F32};
    return copies_fit(plan, work) && attention->size.d <= self_test.tile &&
           plan->options.self_tester->passes(plan->options.self_tester, &self_test);
}

/* Both kernels have the same results, to the bit. */
static void launch_copies(struct kiln__plan *plan, const struct kiln__attention_work *attention,
                          bool is_long)
{
    const struct kiln__attention_size *size = &attention->size;
    struct kiln__launch launch = kiln__attention_launch(plan, attention, "attention_copies", 1);
    const int width = (int)kiln__attention_room(size->e);
    int used =
        snprintf(launch.options, sizeof launch.options, "-DWIDTH=%d -DMASK=%d -DRUNS=%d", width,
                 kiln__attention_mask_option(attention), (int)attention->operands.count);
    if (is_long) {
        launch.file = "attention_copies_long";
        launch.self_tested = true;
        snprintf(launch.options + used, sizeof launch.options - (size_t)used,
                 " -DDEPTH=%d -DLOCAL=%d", LONG_DEPTH, LONG_LOCAL(width));
    }
    launch.global[0] = size->batches * COPIES_ITEMS;
    launch.global[1] = kiln__divide_up(size->m, COPIES_ROWS);
    launch.local[0] = COPIES_ITEMS;
    launch.global[2] = launch.local[1] = launch.local[2] = 1;
    kiln__attention_add_arguments(&launch, attention, NULL);
    kiln__plan_launch(plan, &launch);
}

static void lower_copies(struct kiln__plan *plan, uint32_t group, const void *work)
{
    (void)group;
    launch_copies(plan, work, false);
}

static void lower_copies_long(struct kiln__plan *plan, uint32_t group, const void *work)
{
    (void)group;
    launch_copies(plan, work, true);
}

/* ---- tensor cores of NVIDIA's Hopper ---- */

#define WGMMA_ITEMS 384
#define WGMMA_ROWS 128
#define WGMMA_MAPS 384 /* bytes in which a work-group describes its operands to the copy engine */
#define WGMMA_STAGES 2
#define WGMMA_MOST 128 /* columns */

static int wgmma_columns(const struct kiln__attention_size *size)
{
    return size->d > 64 || size->e > 64 ? WGMMA_MOST : 64;
}

/* The mask's type as it lies in memory, which the kernel reads as it is: truths as the u8 that they
 * are. 0: there is none. */
static kiln_type stored_mask(const struct kiln__plan *plan,
                             const struct kiln__attention_work *attention)
{
    if (!attention->masked)
        return (kiln_type)0;
    const uint32_t node = attention->group->accesses.items[KILN__MASK].node;
    const kiln_type type = plan->fusion.graph.nodes.items[node].type;
    return type == KILN_BOOL ? KILN_U8 : type;
}

/* The kernel's MASK; -1: it reads none of that type. */
static int wgmma_mask(kiln_type stored)
{
    static const struct {
        kiln_type type;
        int mask;
    } masks[] = {{(kiln_type)0, 0}, {KILN_U8, 1}, {KILN_F32, 2}, {KILN_F16, 3}, {KILN_BF16, 4}};
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++)
        if (masks[i].type == stored)
            return masks[i].mask;
    return -1;
}

/* Whether two neighbouring keys of the mask can be read at once, wherever the first is an even one.
 */
static bool has_pairs(const struct kiln__attention_work *attention)
{
    const struct kiln__strided_operand *mask = &attention->operands.input[KILN__MASK];
    bool even = attention->masked && attention->size.n % 2 == 0 && mask->column == 1 &&
                mask->row % 2 == 0 && mask->offset % 2 == 0;
    for (uint32_t run = 0; run < attention->operands.count; run++)
        even = even && mask->run[run] % 2 == 0;
    return even;
}

static bool tensor_cores_fit(const struct kiln__plan *plan,
                             const struct kiln__attention_work *attention, bool scaled)
{
    const struct kiln__device *device = kiln__plan_device(plan, attention->group);
    const struct kiln__attention_size *size = &attention->size;
    kiln_type type = (kiln_type)attention->node->op, mask = stored_mask(plan, attention);
    if (!type || wgmma_mask(mask) < 0 || device->info.max_work_group < WGMMA_ITEMS ||
        plan->options.shared || attention->node->attention.scale <= 0)
        return false;
    bool fits = size->d > 0 && size->d <= WGMMA_MOST && size->d % 8 == 0 && size->e <= WGMMA_MOST &&
                size->e % 8 == 0 && size->n > 0 && size->m < INT32_MAX / 2 &&
                size->n < INT32_MAX / 2;
    for (uint32_t i = 0; i < KILN__MASK; i++)
        fits = fits && has_rows(plan, attention, i, type, 8);
    const struct kiln__self_test self_test = {
        .kernel = kiln__kernel_named(KILN__KERNEL_ATTENTION, "wgmma"),
        .type = type,
        .parts = 1,
        .tile = (uint16_t)wgmma_columns(size),
        .mask = mask,
        .form = scaled};
    return fits && plan->options.self_tester->passes(plan->options.self_tester, &self_test);
}

static void launch_wgmma(struct kiln__plan *plan, const struct kiln__attention_work *attention,
                         bool scaled)
{
    const struct kiln__attention_size *size = &attention->size;
    struct kiln__launch launch = kiln__attention_launch(plan, attention, "attention_wgmma", 0);
    int columns = wgmma_columns(size);
    size_t tiles = kiln__divide_up(size->m, WGMMA_ROWS);
    uint32_t maps = kiln__plan_scratch(plan, tiles * size->batches * WGMMA_MAPS);
    snprintf(launch.options, sizeof launch.options,
             "-DTYPE=%s -DRESULT=%s -DDEPTH=%d -DSTAGES=%d -DLOCAL=%d -DALIGNED=%d -DRUNS=%d%s",
             kiln_type_name((kiln_type)attention->node->op), kiln_type_name(attention->result),
             columns, WGMMA_STAGES, columns * (256 + WGMMA_STAGES * 512) + 1024,
             kiln__strided_operands_have_even_results(&attention->operands),
             (int)attention->operands.count, scaled ? " -DSCALED=1" : "");
    if (attention->masked) {
        const size_t used = strlen(launch.options);
        snprintf(launch.options + used, sizeof launch.options - used, " -DMASK=%d -DPAIRS=%d",
                 wgmma_mask(stored_mask(plan, attention)), has_pairs(attention));
    }
    kiln__attention_add_lengths(plan, attention, &launch);
    launch.self_tested = true;
    launch.global[0] = size->batches * WGMMA_ITEMS;
    launch.global[1] = tiles;
    launch.local[0] = WGMMA_ITEMS;
    launch.global[2] = launch.local[1] = launch.local[2] = 1;
    kiln__attention_add_arguments(
        &launch, attention,
        &(struct kiln__attention_beside){.scratch = maps, .item = 16, .scaled = scaled});
    kiln__plan_launch(plan, &launch);
}

static bool wgmma_fits(const struct kiln__plan *plan, const void *work)
{
    return tensor_cores_fit(plan, work, false);
}

static void lower_wgmma(struct kiln__plan *plan, uint32_t group, const void *work)
{
    (void)group;
    launch_wgmma(plan, work, false);
}

static bool wgmma_scaled_fits(const struct kiln__plan *plan, const void *work)
{
    return kiln__attention_has_scales(work) && tensor_cores_fit(plan, work, true);
}

static void lower_wgmma_scaled(struct kiln__plan *plan, uint32_t group, const void *work)
{
    (void)group;
    launch_wgmma(plan, work, true);
}

/* ---- the rows ---- */

const struct kiln__lowering kiln__attention_items = {.lower = lower_items};
const struct kiln__lowering kiln__attention_groups = {.fits = groups_fit, .lower = lower_groups};
const struct kiln__lowering kiln__attention_copies = {.fits = copies_fit, .lower = lower_copies};
const struct kiln__lowering kiln__attention_copies_long = {.fits = copies_long_fit,
                                                           .lower = lower_copies_long};
const struct kiln__lowering kiln__attention_wgmma = {.fits = wgmma_fits, .lower = lower_wgmma};
const struct kiln__lowering kiln__attention_wgmma_scaled = {.fits = wgmma_scaled_fits,
                                                            .lower = lower_wgmma_scaled};

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
    if (kiln__attention_has_scales(&attention) && !(choice.taken->traits & KILN__KERNEL_SCALES))
        kiln__lower_log_sum_exp(plan, index);
}
