/* SPDX-License-Identifier: Apache-2.0 */
/* How kernels/attention_backward*.cl are launched: what attention's gradient is made of. */
#include <assert.h>
#include <stdio.h>

#include "graph/attention_backward.h"
#include "lower/matmul.h"
#include "lower/strided_operands.h"

struct backward {
    const struct kiln__node *node;
    const struct kiln__group *group;
    uint32_t number; /* the group's */
    struct kiln__attention_size size;
    enum kiln__attention_backward_result form; /* the node's, or BOTH, which begins with KEYS */
    kiln_type result;                          /* as it is stored */
    struct kiln__strided_operands operands;
    struct kiln__strided_operand out;
};

/* What is the group's result number `result`. */
static struct backward backward_of(const struct kiln__plan *plan, uint32_t index, uint32_t result)
{
    const struct kiln__group *group = &plan->fusion.groups.items[index];
    const struct kiln__graph *graph = &plan->fusion.graph;
    const struct kiln__node *node = &graph->nodes.items[group->nodes.items[result]];
    struct backward backward = {.node = node, .group = group, .number = index};
    assert(node->kind == KILN__ATTENTION_BACKWARD && group->accesses.count >= node->n_inputs);
    backward.size = kiln__attention_backward_size(graph, node);
    backward.form = (enum kiln__attention_backward_result)node->attention.backward_result;
    backward.result = graph->nodes.items[group->stores.items[result].node].type;
    backward.operands = kiln__strided_operands_of(plan, group);
    backward.out = backward.operands.out[result];
    return backward;
}

/* Within the range that matters, so that sums with row numbers do not overflow. */
static int64_t diagonal_of(const struct backward *backward)
{
    const bool by_key = kiln__attention_backward_by_key(backward->node);
    const int64_t queries = (int64_t)(by_key ? backward->size.n : backward->size.m),
                  keys = (int64_t)(by_key ? backward->size.m : backward->size.n),
                  diagonal = backward->node->attention.diagonal;
    if (!backward->node->attention.causal || diagonal > keys)
        return keys;
    return diagonal < -queries ? -queries : diagonal;
}

/* What a form does not read is given as its first input. */
static unsigned operand_or_first(const struct backward *backward, unsigned input)
{
    return input < backward->node->n_inputs ? input : KILN__ROW_OPERAND;
}

/* Both kernels take the same; maps: what one of them needs beside that, or KILN__NO_SLOT. Of BOTH
 * it has the second result, too. */
static void add_arguments(struct kiln__launch *launch, const struct backward *backward,
                          uint32_t maps)
{
    const struct kiln__strided_operands *operands = &backward->operands;
    const double log2_e = 1.4426950408889634;
    for (unsigned i = 0; i <= KILN__STATS; i++)
        kiln__launch_memory(launch, operands->input[operand_or_first(backward, i)].slot);
    kiln__launch_memory(launch, backward->out.slot);
    KILN__LAUNCH_INDICES(launch, (int64_t)backward->size.m, (int64_t)backward->size.n,
                         (int64_t)backward->size.d, (int64_t)backward->size.e);
    kiln__launch_f32(launch, (float)(backward->node->attention.scale * log2_e));
    kiln__launch_index(launch, diagonal_of(backward));
    for (unsigned i = 0; i < KILN__STATS; i++)
        kiln__strided_operands_add(launch, operands, operand_or_first(backward, i));
    const struct kiln__strided_operand *stats =
        &operands->input[operand_or_first(backward, KILN__STATS)];
    kiln__launch_offset(launch, stats->slot, stats->offset, stats->item);
    kiln__launch_offset(launch, backward->out.slot, 0, backward->out.item);
    kiln__launch_index(launch, backward->out.row);
    if (maps != KILN__NO_SLOT) {
        kiln__launch_memory(launch, maps);
        kiln__launch_offset(launch, maps, 0, 16);
    }
    if (backward->form == KILN__BACKWARD_BOTH) {
        kiln__launch_memory(launch, operands->out[1].slot);
        kiln__launch_offset(launch, operands->out[1].slot, 0, operands->out[1].item);
        kiln__launch_index(launch, operands->out[1].row);
    }
    for (uint32_t run = 0; run < operands->count; run++) {
        kiln__launch_index(launch, operands->size[run]);
        for (unsigned i = 0; i <= KILN__STATS; i++)
            kiln__launch_index(launch, operands->input[operand_or_first(backward, i)].run[run]);
        kiln__launch_index(launch, backward->out.run[run]);
        if (maps != KILN__NO_SLOT)
            kiln__launch_index(launch, operands->out[operands->results - 1].run[run]);
    }
}

static struct kiln__launch launch_of(const struct backward *backward, const char *name)
{
    struct kiln__launch launch = {.source = KILN__SOURCE_TEMPLATE,
                                  .group = backward->number,
                                  .file = name,
                                  .kernel = name,
                                  .dimensions = 3};
    launch.variant.wide = true;
    return launch;
}

/* ---- tensor cores of NVIDIA's Hopper ---- */

#define ITEMS 384
#define ROWS 128
#define MOST_COLUMNS 128
#define MAPS 512 /* bytes in which a work-group describes its operands to the copy engine */
#define STAGES 3

static int columns_of(size_t columns)
{
    return columns > 64 ? MOST_COLUMNS : 64;
}

static size_t most_columns(const struct kiln__attention_size *size)
{
    return size->d > size->e ? size->d : size->e;
}

/* Whether the kernel for this form and so many columns has proved right. */
static bool wgmma_passes(struct kiln__self_tester *self_tester,
                         enum kiln__attention_backward_result form, kiln_type type, size_t columns)
{
    const struct kiln__self_test self_test = {
        .kernel = kiln__kernel_named(KILN__KERNEL_ATTENTION_GRADIENT, "wgmma"),
        .type = type,
        .parts = 1,
        .form = (uint8_t)form,
        .tile = (uint16_t)columns_of(columns)};
    return self_tester->passes(self_tester, &self_test);
}

/* What every form takes: rows of 16 bytes, on a device that runs its groups. */
static bool wgmma_takes(const struct kiln__device *device, kiln_type type, double scale, size_t d,
                        size_t e)
{
    return type && device->info.max_work_group >= ITEMS && scale > 0 && d > 0 && d % 8 == 0 &&
           d <= MOST_COLUMNS && e > 0 && e % 8 == 0 && e <= MOST_COLUMNS;
}

bool kiln__has_attention_gradients(const struct kiln__plan_options *options, kiln_type type,
                                   double scale, size_t d, size_t e)
{
    const size_t columns = d > e ? d : e;
    return options->self_tester &&
           kiln__kernel_is_for(kiln__kernel_named(KILN__KERNEL_ATTENTION_GRADIENT, "wgmma"),
                               options->device) &&
           wgmma_takes(options->device, type, scale, d, e) &&
           wgmma_passes(options->self_tester, KILN__BACKWARD_QUERIES, type, columns) &&
           wgmma_passes(options->self_tester, KILN__BACKWARD_BOTH, type, columns);
}

/* Few products for a block let it be a large one; more, or more columns, need the registers. */
static int walked_at_once(const struct backward *backward)
{
    return backward->form <= KILN__BACKWARD_VALUES &&
                   columns_of(most_columns(&backward->size)) == 64
               ? 128
               : 64;
}

static bool wgmma_fits(const struct kiln__plan *plan, const void *work)
{
    const struct backward *backward = work;
    const struct kiln__device *device = kiln__plan_device(plan, backward->group);
    const struct kiln__attention_size *size = &backward->size;
    const kiln_type type = (kiln_type)backward->node->op;
    bool fits = wgmma_takes(device, type, backward->node->attention.scale, size->d, size->e) &&
                size->m < INT32_MAX / 2 && size->n > 0 && size->n < INT32_MAX / 2;
    for (unsigned i = 0; i < backward->node->n_inputs && i < KILN__STATS; i++)
        fits = fits && kiln__strided_operands_have_rows(plan, backward->group, &backward->operands,
                                                        i, i % 2 ? size->n : size->m, type, 8);
    if (backward->node->n_inputs > KILN__STATS)
        fits = fits && backward->operands.input[KILN__STATS].row == KILN__STATS_COLUMNS &&
               backward->operands.input[KILN__STATS].offset % KILN__STATS_COLUMNS == 0;
    return fits &&
           wgmma_passes(plan->options.self_tester, backward->form, type, most_columns(size));
}

/* What a work-group has of operands and stats, and barriers. */
static int local_bytes(enum kiln__attention_backward_result form, int columns, int walked)
{
    const int own = form >= KILN__BACKWARD_KEYS ? 2 : 1,
              others = form > KILN__BACKWARD_LOG_SUM_EXP ? 2 : 1;
    return own * columns * ROWS * 2 + STAGES * walked * (others * columns * 2 + 8) + 1024;
}

static void lower_wgmma(struct kiln__plan *plan, uint32_t group, const void *work)
{
    const struct backward *backward = work;
    (void)group;
    static const int marks[] = {26, 33, 35, 35, 29}; /* by form */
    const struct kiln__attention_size *size = &backward->size;
    struct kiln__launch launch = launch_of(backward, "attention_backward_wgmma");
    const int columns = columns_of(most_columns(size)), walked = walked_at_once(backward);
    const size_t tiles = kiln__divide_up(size->m, ROWS);
    uint32_t maps = kiln__plan_scratch(plan, tiles * size->batches * MAPS);
    snprintf(launch.options, sizeof launch.options,
             "-DFORM=%d -DMARKS=%d -DTYPE=%s -DRESULT=%s -DDEPTH=%d -DWALKED=%d -DSTAGES=%d "
             "-DLOCAL=%d -DALIGNED=%d -DRUNS=%d%s",
             (int)backward->form, marks[backward->form],
             kiln_type_name((kiln_type)backward->node->op), kiln_type_name(backward->result),
             columns, walked, STAGES, local_bytes(backward->form, columns, walked),
             kiln__strided_operands_have_even_results(&backward->operands),
             (int)backward->operands.count,
             backward->form == KILN__BACKWARD_BOTH ? " -DPAIR=1" : "");
    launch.self_tested = true;
    launch.global[0] = size->batches * ITEMS;
    launch.global[1] = tiles;
    launch.local[0] = ITEMS;
    launch.global[2] = launch.local[1] = launch.local[2] = 1;
    add_arguments(&launch, backward, maps);
    kiln__plan_launch(plan, &launch);
}

/* ---- other devices ---- */

static void lower_rows(struct kiln__plan *plan, uint32_t group, const void *work)
{
    const struct backward *backward = work;
    (void)group;
    const struct kiln__attention_size *size = &backward->size;
    struct kiln__launch launch = launch_of(backward, "attention_backward");
    kiln__launch_reads(plan, KILN__READABLE, 1, &launch);
    snprintf(launch.options, sizeof launch.options, "-DFORM=%d -DDEPTH=%d -DRUNS=%d%s",
             (int)backward->form, (int)kiln__attention_padded_columns(most_columns(size)),
             (int)backward->operands.count,
             backward->result == KILN_F16    ? " -DRESULT_F16"
             : backward->result == KILN_BF16 ? " -DRESULT_BF16"
                                             : "");
    launch.global[0] = size->m;
    launch.global[1] = size->batches;
    launch.global[2] = launch.local[0] = launch.local[1] = launch.local[2] = 1;
    add_arguments(&launch, backward, KILN__NO_SLOT);
    kiln__plan_launch(plan, &launch);
}

/* ---- the rows ---- */

const struct kiln__lowering kiln__attention_gradient_wgmma = {.fits = wgmma_fits,
                                                              .lower = lower_wgmma};
const struct kiln__lowering kiln__attention_gradient_rows = {.lower = lower_rows};

static struct kiln__selection lower_attention_backward_choose(const struct kiln__plan *plan,
                                                              const struct backward *backward)
{
    return kiln__select(plan, backward->group, KILN__KERNEL_ATTENTION_GRADIENT, 0, backward);
}

static void lower_one(struct kiln__plan *plan, uint32_t index, uint32_t result)
{
    const struct backward backward = backward_of(plan, index, result);
    if (kiln__node_count(backward.node) == 0)
        return;
    const struct kiln__selection choice = lower_attention_backward_choose(plan, &backward);
    kiln__lower_by(plan, index, &choice, &backward);
}

/* Keys and values at once, where both are stored as the same type. */
static bool lower_both(struct kiln__plan *plan, uint32_t index)
{
    struct backward backward = backward_of(plan, index, 0);
    backward.form = KILN__BACKWARD_BOTH;
    if (backward_of(plan, index, 1).result != backward.result ||
        kiln__node_count(backward.node) == 0)
        return false;
    const struct kiln__selection choice = lower_attention_backward_choose(plan, &backward);
    const bool pairs = choice.taken->traits & KILN__KERNEL_PAIR;
    if (pairs)
        kiln__lower_by(plan, index, &choice, &backward);
    return pairs;
}

void kiln__lower_attention_backward(struct kiln__plan *plan, uint32_t index)
{
    const struct kiln__group *group = &plan->fusion.groups.items[index];
    if (group->stores.count > 1 && lower_both(plan, index))
        return;
    for (uint32_t i = 0; i < group->stores.count; i++)
        lower_one(plan, index, i);
}

void kiln__lower_log_sum_exp(struct kiln__plan *plan, uint32_t index)
{
    lower_one(plan, index, 1);
}
