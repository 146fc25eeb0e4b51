/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of few queries: kernels that divide the keys, and the launch that puts parts together.
 */
#include <stdio.h>
#include <string.h>

#include "lower/attention_work.h"

/* Keys are taken in parts where there are few queries. How long a part is depends on the device and
 * on how many keys there is room for, never on how many there are, nor on how many matrices: bits
 * depend on neither. */
#define FEW_ROWS 8
#define FEW_KEYS 128  /* at least, on a device with work-groups */
#define FEW_LANES 64  /* that share a block of as many keys there */
#define MOST_PARTS 64 /* there */
#define ITEM_KEYS 512 /* of a part on a chunked device */
#define MOST_COLUMNS 512

static size_t keys_of_part(size_t n, bool chunked)
{
    const size_t least = kiln__divide_up(n, MOST_PARTS);
    return chunked ? ITEM_KEYS : kiln__divide_up(least, FEW_LANES) * FEW_LANES;
}

/* Puts the parts together. */
static void launch_join(struct kiln__plan *plan, const struct kiln__attention_work *attention,
                        uint32_t parts, size_t count)
{
    const struct kiln__attention_size *size = &attention->size;
    const struct kiln__strided_operand *out = &attention->operands.out[0];
    const bool chunked = kiln__plan_device(plan, attention->group)->traits->chunked;
    const int group = chunked                                                    ? 1
                      : (int)kiln__attention_padded_columns(size->e) < FEW_LANES ? 32
                                                                                 : FEW_LANES;
    struct kiln__launch launch = kiln__attention_launch(plan, attention, "attention_join", 0);
    launch.variant.stage = KILN__STAGE_FINAL;
    snprintf(launch.options, sizeof launch.options, "-DGROUP=%d -DTOGETHER=%d -DRUNS=%d%s", group,
             chunked ? (int)kiln__attention_vector(plan, attention) : 1,
             (int)attention->operands.count, kiln__attention_result_option(attention));
    launch.global[0] = (size_t)group * size->m;
    launch.global[1] = size->batches;
    launch.local[0] = (size_t)group;
    launch.global[2] = launch.local[1] = launch.local[2] = 1;
    kiln__launch_memory(&launch, parts);
    kiln__launch_offset(&launch, parts, 0, sizeof(float));
    kiln__launch_index(&launch, (int64_t)count);
    kiln__launch_memory(&launch, out->slot);
    kiln__launch_offset(&launch, out->slot, 0, out->item);
    KILN__LAUNCH_INDICES(&launch, out->row, (int64_t)size->m, (int64_t)size->e);
    for (uint32_t run = 0; run < attention->operands.count; run++)
        KILN__LAUNCH_INDICES(&launch, attention->operands.size[run], out->run[run]);
    kiln__plan_launch(plan, &launch);
}

/* Launches what computes parts, or all at once if there is one; `parted`: the dimension of work
 * that counts them. */
static void launch_few(struct kiln__plan *plan, const struct kiln__attention_work *attention,
                       struct kiln__launch *launch, unsigned parted)
{
    const struct kiln__attention_size *size = &attention->size;
    const bool chunked = kiln__plan_device(plan, attention->group)->traits->chunked;
    const size_t keys = keys_of_part(size->n, chunked), count = kiln__divide_up(size->n, keys);
    struct kiln__attention_extra extra = {.scratch = KILN__NO_SLOT};
    if (count > 1) {
        const size_t used = strlen(launch->options);
        snprintf(launch->options + used, sizeof launch->options - used, " -DPARTED=1");
        extra.scratch = kiln__plan_scratch(plan, size->batches * count * size->m * (size->e + 2) *
                                                     sizeof(float));
        extra.item = sizeof(float);
        extra.keys = (int64_t)keys;
        launch->global[parted] = count;
    }
    launch->global[1] = size->batches;
    launch->local[1] = launch->local[2] = 1;
    kiln__attention_add_lengths(plan, attention, launch);
    kiln__attention_add_arguments(launch, attention, &extra);
    kiln__plan_launch(plan, launch);
    if (count > 1)
        launch_join(plan, attention, extra.scratch, count);
}

/* Where bits must not depend on how many rows a batch has, queries may be these rows, two or more:
 * then many of them and few have one kernel. */
static bool has_few_rows(const struct kiln__plan *plan,
                         const struct kiln__attention_work *attention)
{
    return attention->size.m <= (plan->fusion.graph.batch_invariant ? 1 : FEW_ROWS);
}

static bool few_fit(const struct kiln__plan *plan, const void *work)
{
    const struct kiln__attention_work *attention = work;
    const struct kiln__attention_size *size = &attention->size;
    const size_t vector = kiln__attention_vector(plan, attention);
    return has_few_rows(plan, attention) && size->n > 0 && size->d > 0 && size->d % vector == 0 &&
           size->e % vector == 0 && size->d <= MOST_COLUMNS && size->e <= MOST_COLUMNS &&
           attention->operands.input[KILN__KEY].column == 1 &&
           attention->operands.input[KILN__VALUE].column == 1;
}

/* Along the run nothing changes but queries, masks and results, and there are few of these. */
static bool shares_keys(const struct kiln__attention_work *attention, uint32_t run)
{
    const struct kiln__strided_operands *operands = &attention->operands;
    return operands->size[run] <= FEW_ROWS && operands->input[KILN__KEY].run[run] == 0 &&
           operands->input[KILN__VALUE].run[run] == 0 &&
           (!attention->lengths || operands->input[attention->lengths].run[run] == 0);
}

/* The run is no more: later ones are one earlier. */
static void drop_run(struct kiln__strided_operand *place, uint32_t run, uint32_t count)
{
    for (uint32_t i = run; i + 1 < count; i++)
        place->run[i] = place->run[i + 1];
    place->run[count - 1] = 0;
}

/* Matrices of one query that share keys, such as a decoder's heads, as one of several: keys are
 * read once for all. Those of causal ones would see further keys. It depends on the run's size
 * alone, not on how many matrices there are, so that a text has its bits in all company. */
static void share_keys(struct kiln__attention_work *attention)
{
    struct kiln__strided_operands *operands = &attention->operands;
    const uint32_t count = operands->count;
    uint32_t run = 0;
    while (run < count && !shares_keys(attention, run))
        run++;
    if (attention->size.m != 1 || attention->node->attention.causal || run == count)
        return;
    attention->size.m = (size_t)operands->size[run];
    attention->size.batches /= attention->size.m;
    operands->input[KILN__QUERY].row = operands->input[KILN__QUERY].run[run];
    operands->out[0].row = operands->out[0].run[run];
    if (attention->masked)
        operands->input[KILN__MASK].row = operands->input[KILN__MASK].run[run];
    for (uint32_t i = 0; i < operands->inputs; i++)
        drop_run(&operands->input[i], run, count);
    drop_run(&operands->out[0], run, count);
    for (uint32_t i = run; i + 1 < count; i++)
        operands->size[i] = operands->size[i + 1];
    operands->size[count - 1] = 1;
    operands->count = count > 1 ? count - 1 : 1;
}

static void lower_few(struct kiln__plan *plan, uint32_t group, const void *work)
{
    struct kiln__attention_work shared = *(const struct kiln__attention_work *)work;
    const struct kiln__attention_work *attention = &shared;
    const struct kiln__attention_size *size = &attention->size;
    const size_t vector = kiln__attention_vector(plan, attention);
    share_keys(&shared);
    struct kiln__launch launch =
        kiln__attention_launch(plan, attention, "attention_cpu_few", (unsigned)vector);
    (void)group;
    snprintf(launch.options, sizeof launch.options,
             "-DVECTOR=%d -DROWS=%d -DCOLUMNS=%d -DDEPTH=%d -DWIDTH=%d -DMASK=%d -DRUNS=%d",
             (int)vector, (int)size->m, size->e % (2 * vector) ? 1 : 2,
             (int)kiln__attention_padded_columns(size->d),
             (int)kiln__attention_padded_columns(size->e), kiln__attention_mask_option(attention),
             (int)attention->operands.count);
    launch.global[0] = launch.global[2] = launch.local[0] = 1;
    launch_few(plan, attention, &launch, 0);
}

static struct kiln__attention_tile few_shape(const struct kiln__attention_work *attention)
{
    const size_t d = attention->size.d, e = attention->size.e, columns = d > e ? d : e;
    return (struct kiln__attention_tile){columns > FEW_LANES ? 2 * FEW_LANES : FEW_LANES, FEW_ROWS,
                                         FEW_LANES, FEW_LANES};
}

static bool few_groups_fit(const struct kiln__plan *plan, const void *work)
{
    const struct kiln__attention_work *attention = work;
    const struct kiln__attention_tile shape = few_shape(attention);
    const kiln_device_info *device = &kiln__plan_device(plan, attention->group)->info;
    return has_few_rows(plan, attention) && !kiln__attention_stores_log_sum_exp(attention) &&
           attention->size.d <= shape.columns && attention->size.e <= shape.columns &&
           kiln__attention_tile_bytes(&shape) <= device->local_memory &&
           kiln__attention_tile_items(&shape) <= device->max_work_group;
}

static bool few_groups_suit(const struct kiln__plan *plan, const void *work)
{
    const struct kiln__attention_work *attention = work;
    (void)plan;
    return attention->lengths && attention->size.n >= FEW_KEYS;
}

static void lower_few_groups(struct kiln__plan *plan, uint32_t group, const void *work)
{
    const struct kiln__attention_work *attention = work;
    const struct kiln__attention_tile shape = few_shape(attention);
    (void)group;
    struct kiln__launch launch = kiln__attention_launch(plan, attention, "attention_gpu", 1);
    kiln__attention_set_tile(plan, attention, &shape, &launch);
    launch_few(plan, attention, &launch, 2);
}

const struct kiln__lowering kiln__attention_few = {.fits = few_fit, .lower = lower_few};
const struct kiln__lowering kiln__attention_few_groups = {
    .fits = few_groups_fit, .suits = few_groups_suit, .lower = lower_few_groups};
