/* SPDX-License-Identifier: Apache-2.0 */
/* Sorts on chunked devices: an item for a line (kernels/sort_cpu_lines.cl); items that share long
 * lines, digit by digit (kernels/sort_cpu_digits.cl). */
#include "lower/sort.h"

/* Elements of a part of a line that are worth some more launches. */
#define LEAST 32768

static size_t parts_of(const struct kiln__sorting *sort)
{
    return kiln__sort_runs(sort, sort->traits->chunks, LEAST);
}

/* ---- lines ---- */

/* Parts of which each leaves little: those that the first few are taken from. */
static size_t parts_for_few(const struct kiln__sorting *sort)
{
    return kiln__sort_runs(sort, sort->traits->chunks, LEAST + 4 * sort->kept);
}

static void lower_few(struct kiln__plan *plan, const struct kiln__sorting *sort,
                      const struct kiln__sort_few *few)
{
    const size_t longest = few->listed ? few->listed : kiln__divide_up(sort->extent, few->parts);
    const size_t tasks = sort->lines * few->parts;
    const size_t most = kiln__divide_up(tasks * longest, sort->traits->min_chunk);
    size_t items = tasks < sort->traits->chunks ? tasks : sort->traits->chunks;
    items = items < most ? items : most;
    const uint32_t room = kiln__plan_scratch(plan, 2 * items * longest * sort->key);
    struct kiln__launch launch =
        kiln__sort_launch(plan, sort, "sort_cpu_lines", "sort_lines", 1, "");
    launch.global[0] = items;
    kiln__sort_add_values(sort, &launch);
    launch.bytes = few->bytes;
    kiln__sort_add(few->from, sizeof(int32_t), &launch);
    kiln__sort_add(few->to, sizeof(int32_t), &launch);
    kiln__sort_add(room, sort->key, &launch);
    KILN__LAUNCH_INDICES(&launch, (int64_t)sort->lines, (int64_t)sort->extent, (int64_t)sort->kept,
                         (int64_t)few->parts, (int64_t)few->listed);
    kiln__plan_launch(plan, &launch);
}

static void lower_lines(struct kiln__plan *plan, uint32_t group, const void *work)
{
    const struct kiln__sorting *sort = work;
    (void)group;
    kiln__sort_by_runs(plan, sort, parts_for_few(sort), lower_few);
}

/* ---- digits ---- */

static bool digits_suits(const struct kiln__plan *plan, const void *work)
{
    const struct kiln__sorting *sort = work;
    (void)plan;
    return parts_of(sort) > 1 && parts_for_few(sort) == 1;
}

static void lower_pass(struct kiln__plan *plan, const struct kiln__sorting *sort,
                       const struct kiln__sort_pass *pass)
{
    static const char file[] = "sort_cpu_digits";
    struct kiln__launch count = kiln__sort_launch(plan, sort, file, "sort_count", 1, "");
    struct kiln__launch place = kiln__sort_launch(plan, sort, file, "sort_place", 1, "");
    const int64_t extent = (int64_t)sort->extent, parts = (int64_t)pass->parts;
    count.dimensions = place.dimensions = 2;
    count.global[0] = place.global[0] = pass->parts;
    count.global[1] = place.global[1] = sort->lines;
    count.bytes = pass->read;
    place.bytes = pass->read + pass->written;
    kiln__sort_add_values(sort, &count);
    kiln__sort_add(pass->from, sort->key, &count);
    kiln__sort_add(pass->counts, sizeof(uint32_t), &count);
    KILN__LAUNCH_INDICES(&count, extent, parts, pass->shift, pass->first);
    kiln__sort_add_values(sort, &place);
    kiln__sort_add(pass->from, sort->key, &place);
    kiln__sort_add(pass->to, sort->key, &place);
    kiln__sort_add(pass->counts, sizeof(uint32_t), &place);
    kiln__sort_add(sort->result, sizeof(int32_t), &place);
    KILN__LAUNCH_INDICES(&place, extent, (int64_t)sort->kept, parts, pass->shift, pass->first,
                         pass->last);
    kiln__plan_launch(plan, &count);
    kiln__plan_launch(plan, &place);
}

static void lower_digits(struct kiln__plan *plan, uint32_t group, const void *work)
{
    const struct kiln__sorting *sort = work;
    const size_t parts = parts_of(sort);
    (void)group;
    kiln__sort_by_digits(plan, sort, parts, sort->lines * parts * 256, lower_pass);
}

/* ---- the rows ---- */

const struct kiln__lowering kiln__sort_digits = {.suits = digits_suits, .lower = lower_digits};
const struct kiln__lowering kiln__sort_lines = {.lower = lower_lines};
