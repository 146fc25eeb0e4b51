/* SPDX-License-Identifier: Apache-2.0 */
/* How kernels/attention_slopes*.cl are launched: what attention's gradient is made of. */
#include <assert.h>
#include <stdio.h>

#include "graph/attention_backward.h"
#include "lower/matmul.h"
#include "lower/strided_operands.h"

struct slopes {
    const struct kiln__node *node;
    const struct kiln__group *group;
    uint32_t number; /* the group's */
    struct kiln__attention_size size;
    enum kiln__slopes_form form; /* the node's, or BOTH, which begins with KEYS */
    kiln_type result;            /* as it is stored */
    struct kiln__places places;
    struct kiln__operand_place out;
};

/* What is the group's result number `result`. */
static struct slopes slopes_of(const struct kiln__plan *plan, uint32_t index, uint32_t result)
{
    const struct kiln__group *group = &plan->fusion.groups.items[index];
    const struct kiln__graph *graph = &plan->fusion.graph;
    const struct kiln__node *node = &graph->nodes.items[group->nodes.items[result]];
    struct slopes slopes = {.node = node, .group = group, .number = index};
    assert(node->kind == KILN__SLOPES && group->accesses.count >= node->n_inputs);
    slopes.size = kiln__slopes_size(graph, node);
    slopes.form = (enum kiln__slopes_form)node->attention.form;
    slopes.result = graph->nodes.items[group->stores.items[result].node].type;
    slopes.places = kiln__places_of(plan, group);
    slopes.out = slopes.places.out[result];
    return slopes;
}

/* Within the range that matters, so that sums with row numbers do not overflow. */
static int64_t diagonal_of(const struct slopes *slopes)
{
    const bool by_key = kiln__slopes_by_key(slopes->node);
    const int64_t queries = (int64_t)(by_key ? slopes->size.n : slopes->size.m),
                  keys = (int64_t)(by_key ? slopes->size.m : slopes->size.n),
                  diagonal = slopes->node->attention.diagonal;
    if (!slopes->node->attention.causal || diagonal > keys)
        return keys;
    return diagonal < -queries ? -queries : diagonal;
}

/* What a form does not read is given as its first input. */
static unsigned given(const struct slopes *slopes, unsigned input)
{
    return input < slopes->node->n_inputs ? input : KILN__OWN;
}

/* Both kernels take the same; maps: what one of them needs beside that, or KILN__NO_SLOT. Of BOTH
 * it has the second result, too. */
static void add_arguments(struct kiln__launch *launch, const struct slopes *slopes, uint32_t maps)
{
    const struct kiln__places *places = &slopes->places;
    const double log2_e = 1.4426950408889634;
    for (unsigned i = 0; i <= KILN__STATS; i++)
        kiln__launch_memory(launch, places->input[given(slopes, i)].slot);
    kiln__launch_memory(launch, slopes->out.slot);
    KILN__LAUNCH_INDICES(launch, (int64_t)slopes->size.m, (int64_t)slopes->size.n,
                         (int64_t)slopes->size.d, (int64_t)slopes->size.e);
    kiln__launch_f32(launch, (float)(slopes->node->attention.scale * log2_e));
    kiln__launch_index(launch, diagonal_of(slopes));
    for (unsigned i = 0; i < KILN__STATS; i++)
        kiln__places_add(launch, places, given(slopes, i));
    const struct kiln__operand_place *stats = &places->input[given(slopes, KILN__STATS)];
    kiln__launch_offset(launch, stats->slot, stats->offset, stats->item);
    kiln__launch_offset(launch, slopes->out.slot, 0, slopes->out.item);
    kiln__launch_index(launch, slopes->out.row);
    if (maps != KILN__NO_SLOT) {
        kiln__launch_memory(launch, maps);
        kiln__launch_offset(launch, maps, 0, 16);
    }
    if (slopes->form == KILN__SLOPES_BOTH) {
        kiln__launch_memory(launch, places->out[1].slot);
        kiln__launch_offset(launch, places->out[1].slot, 0, places->out[1].item);
        kiln__launch_index(launch, places->out[1].row);
    }
    for (uint32_t run = 0; run < places->count; run++) {
        kiln__launch_index(launch, places->size[run]);
        for (unsigned i = 0; i <= KILN__STATS; i++)
            kiln__launch_index(launch, places->input[given(slopes, i)].run[run]);
        kiln__launch_index(launch, slopes->out.run[run]);
        if (maps != KILN__NO_SLOT)
            kiln__launch_index(launch, places->out[places->results - 1].run[run]);
    }
}

static struct kiln__launch launch_of(const struct slopes *slopes, const char *name)
{
    struct kiln__launch launch = {.source = KILN__SOURCE_TEMPLATE,
                                  .group = slopes->number,
                                  .file = name,
                                  .kernel = name,
                                  .dimensions = 3};
    launch.form.wide = true;
    return launch;
}

/* ---- tensor cores of NVIDIA's Hopper ---- */

#define ITEMS 384
#define ROWS 128
#define MAPS 512 /* bytes in which a work-group describes its operands to the copy engine */
#define STAGES 3

static int columns_of(size_t columns)
{
    return columns > 64 ? KILN__SLOPES_COLUMNS : 64;
}

static size_t most_columns(const struct kiln__attention_size *size)
{
    return size->d > size->e ? size->d : size->e;
}

struct kiln__proof kiln__slopes_proof(enum kiln__slopes_form form, kiln_type type, size_t columns)
{
    return (struct kiln__proof){.kernel =
                                    kiln__kernel_named(KILN__KERNEL_ATTENTION_GRADIENT, "wgmma"),
                                .type = type,
                                .parts = 1,
                                .form = (uint8_t)form,
                                .tile = (uint16_t)columns_of(columns)};
}

/* Few products for a block let it be a large one; more, or more columns, need the registers. */
static int walked_at_once(const struct slopes *slopes)
{
    return slopes->form <= KILN__SLOPES_VALUES && columns_of(most_columns(&slopes->size)) == 64
               ? 128
               : 64;
}

static bool wgmma_fits(const struct kiln__plan *plan, const void *work)
{
    const struct slopes *slopes = work;
    const struct kiln__device *device = plan->options.device;
    const struct kiln__attention_size *size = &slopes->size;
    const kiln_type type = (kiln_type)slopes->node->op;
    if (!type || device->info.max_work_group < ITEMS || slopes->node->attention.scale <= 0)
        return false;
    bool fits = size->d > 0 && size->d <= KILN__SLOPES_COLUMNS && size->d % 8 == 0 && size->e > 0 &&
                size->e <= KILN__SLOPES_COLUMNS && size->e % 8 == 0 && size->m < INT32_MAX / 2 &&
                size->n > 0 && size->n < INT32_MAX / 2;
    for (unsigned i = 0; i < slopes->node->n_inputs && i < KILN__STATS; i++)
        fits = fits && kiln__places_have_rows(plan, slopes->group, &slopes->places, i,
                                              i % 2 ? size->n : size->m, type, 8);
    if (slopes->node->n_inputs > KILN__STATS)
        fits = fits && slopes->places.input[KILN__STATS].row == KILN__STATS_COLUMNS &&
               slopes->places.input[KILN__STATS].offset % KILN__STATS_COLUMNS == 0;
    const struct kiln__proof proof = kiln__slopes_proof(slopes->form, type, most_columns(size));
    return fits && plan->options.prover->proves(plan->options.prover, &proof);
}

/* What a work-group has of operands and stats, and barriers. */
static int local_bytes(enum kiln__slopes_form form, int columns, int walked)
{
    const int own = form >= KILN__SLOPES_KEYS ? 2 : 1, others = form > KILN__SLOPES_SCALES ? 2 : 1;
    return own * columns * ROWS * 2 + STAGES * walked * (others * columns * 2 + 8) + 1024;
}

static void lower_wgmma(struct kiln__plan *plan, uint32_t group, const void *work)
{
    const struct slopes *slopes = work;
    (void)group;
    static const int marks[] = {26, 33, 35, 35, 29}; /* by form */
    const struct kiln__attention_size *size = &slopes->size;
    struct kiln__launch launch = launch_of(slopes, "attention_slopes_wgmma");
    const int columns = columns_of(most_columns(size)), walked = walked_at_once(slopes);
    const size_t tiles = kiln__divide_up(size->m, ROWS);
    uint32_t maps = kiln__plan_scratch(plan, tiles * size->batches * MAPS);
    snprintf(launch.options, sizeof launch.options,
             "-DFORM=%d -DMARKS=%d -DTYPE=%s -DRESULT=%s -DDEPTH=%d -DWALKED=%d -DSTAGES=%d "
             "-DLOCAL=%d -DALIGNED=%d -DRUNS=%d%s",
             (int)slopes->form, marks[slopes->form], kiln_type_name((kiln_type)slopes->node->op),
             kiln_type_name(slopes->result), columns, walked, STAGES,
             local_bytes(slopes->form, columns, walked),
             kiln__places_have_even_results(&slopes->places), (int)slopes->places.count,
             slopes->form == KILN__SLOPES_BOTH ? " -DPAIR=1" : "");
    launch.proved = true;
    launch.global[0] = size->batches * ITEMS;
    launch.global[1] = tiles;
    launch.local[0] = ITEMS;
    launch.global[2] = launch.local[1] = launch.local[2] = 1;
    add_arguments(&launch, slopes, maps);
    kiln__plan_launch(plan, &launch);
}

/* ---- other devices ---- */

static void lower_rows(struct kiln__plan *plan, uint32_t group, const void *work)
{
    const struct slopes *slopes = work;
    (void)group;
    const struct kiln__attention_size *size = &slopes->size;
    struct kiln__launch launch = launch_of(slopes, "attention_slopes");
    kiln__launch_reads(plan, 1, &launch);
    snprintf(launch.options, sizeof launch.options, "-DFORM=%d -DDEPTH=%d -DRUNS=%d%s",
             (int)slopes->form, (int)kiln__attention_room(most_columns(size)),
             (int)slopes->places.count,
             slopes->result == KILN_F16    ? " -DRESULT_F16"
             : slopes->result == KILN_BF16 ? " -DRESULT_BF16"
                                           : "");
    launch.global[0] = size->m;
    launch.global[1] = size->batches;
    launch.global[2] = launch.local[0] = launch.local[1] = launch.local[2] = 1;
    add_arguments(&launch, slopes, KILN__NO_SLOT);
    kiln__plan_launch(plan, &launch);
}

/* ---- the rows ---- */

const struct kiln__lowering kiln__attention_gradient_wgmma = {.fits = wgmma_fits,
                                                              .lower = lower_wgmma};
const struct kiln__lowering kiln__attention_gradient_rows = {.lower = lower_rows};

static struct kiln__selection choose(const struct kiln__plan *plan, const struct slopes *slopes)
{
    return kiln__select(plan, KILN__KERNEL_ATTENTION_GRADIENT, 0, slopes);
}

static void lower_one(struct kiln__plan *plan, uint32_t index, uint32_t result)
{
    const struct slopes slopes = slopes_of(plan, index, result);
    if (kiln__node_count(slopes.node) == 0)
        return;
    const struct kiln__selection choice = choose(plan, &slopes);
    kiln__lower_by(plan, index, &choice, &slopes);
}

/* Keys and values at once, where both are stored as the same type. */
static bool lower_both(struct kiln__plan *plan, uint32_t index)
{
    struct slopes slopes = slopes_of(plan, index, 0);
    slopes.form = KILN__SLOPES_BOTH;
    if (slopes_of(plan, index, 1).result != slopes.result || kiln__node_count(slopes.node) == 0)
        return false;
    const struct kiln__selection choice = choose(plan, &slopes);
    const bool pairs = choice.taken->traits & KILN__KERNEL_PAIR;
    if (pairs)
        kiln__lower_by(plan, index, &choice, &slopes);
    return pairs;
}

void kiln__lower_slopes(struct kiln__plan *plan, uint32_t index)
{
    const struct kiln__group *group = &plan->fusion.groups.items[index];
    if (group->stores.count > 1 && lower_both(plan, index))
        return;
    for (uint32_t i = 0; i < group->stores.count; i++)
        lower_one(plan, index, i);
}

void kiln__lower_scales(struct kiln__plan *plan, uint32_t index)
{
    lower_one(plan, index, 1);
}
