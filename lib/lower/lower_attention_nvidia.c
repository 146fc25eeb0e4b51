/* SPDX-License-Identifier: Apache-2.0 */
/* How attention is launched on NVIDIA's devices alone: kernels/attention_copies*.cl and
 * attention_wgmma.cl. */
#include <stdio.h>
#include <string.h>

#include "lower/attention_work.h"

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
    if (attention->result != KILN_F32 || attention->lengths || attention->node->attention.window ||
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
        .tile = (uint16_t)kiln__attention_padded_columns(attention->size.e),
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
    const int width = (int)kiln__attention_padded_columns(size->e);
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
                             const struct kiln__attention_work *attention, bool log_sum_exp)
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
        .form = log_sum_exp};
    return fits && plan->options.self_tester->passes(plan->options.self_tester, &self_test);
}

static void launch_wgmma(struct kiln__plan *plan, const struct kiln__attention_work *attention,
                         bool log_sum_exp)
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
             (int)attention->operands.count, log_sum_exp ? " -DLOG_SUM_EXP=1" : "");
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
        &(struct kiln__attention_extra){.scratch = maps, .item = 16, .log_sum_exp = log_sum_exp});
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
    return kiln__attention_stores_log_sum_exp(work) && tensor_cores_fit(plan, work, true);
}

static void lower_wgmma_scaled(struct kiln__plan *plan, uint32_t group, const void *work)
{
    (void)group;
    launch_wgmma(plan, work, true);
}

const struct kiln__lowering kiln__attention_copies = {.fits = copies_fit, .lower = lower_copies};
const struct kiln__lowering kiln__attention_copies_long = {.fits = copies_long_fit,
                                                           .lower = lower_copies_long};
const struct kiln__lowering kiln__attention_wgmma = {.fits = wgmma_fits, .lower = lower_wgmma};
const struct kiln__lowering kiln__attention_wgmma_scaled = {.fits = wgmma_scaled_fits,
                                                            .lower = lower_wgmma_scaled};
