/* SPDX-License-Identifier: Apache-2.0 */
/* The mapping of a group's axes to a device: chunks, vectors, work-items, lanes. */
#include "fuse/loop_nest.h"
#include "lower/lower.h"

/* ---- along what vectors run ---- */

/* Whether an access moves in one of the dimensions from `first` to `end`. */
static bool has_stride_in(const struct kiln__space *space, size_t access, uint32_t first,
                          uint32_t end)
{
    for (uint32_t d = first; d < end; d++)
        if (space->stride[access][d] != 0 && space->dims[d] > 1)
            return true;
    return false;
}

/* Whether an access is read as it is for the index of a gather. */
static bool is_index(const struct kiln__group *group, size_t access)
{
    for (size_t i = 0; i < group->steps.count; i++) {
        const struct kiln__step *step = &group->steps.items[i];
        const struct kiln__step *index = step->n_args ? &group->steps.items[step->args[0]] : NULL;
        if (step->kind == KILN__STEP_GATHER && index->kind == KILN__STEP_LOAD &&
            index->index == access)
            return true;
    }
    return false;
}

/* Vectors run where neighbours are: along the reduced dimension, or along the last kept one. What
 * has one element per result or per reduced element is small beside the others. All that rows have
 * lies in one way. */
bool kiln__axis_mapping_is_of_columns(const struct kiln__group *group,
                                      const struct kiln__space *space)
{
    unsigned rows = 0, columns = 0;
    for (size_t i = 0; i < group->accesses.count; i++) {
        if (group->accesses.items[i].kind == KILN__ACCESS_NUMBER)
            continue;
        bool gathered = group->accesses.items[i].kind == KILN__ACCESS_GATHER;
        rows += space->stride[i][space->rank - 1] == 1 && has_stride_in(space, i, 0, space->kept) &&
                !is_index(group, i);
        columns += space->stride[i][space->kept - 1] == 1 && space->dims[space->kept - 1] > 1 &&
                   (gathered || has_stride_in(space, i, space->kept, space->rank));
    }
    return !kiln__group_reduces(group) ||
           (group->kind == KILN__GROUP_REDUCE ? columns > rows : kiln__group_is_of_columns(group));
}

static bool is_linear(const struct kiln__space *space, size_t access)
{
    int64_t run = 1;
    for (uint32_t d = space->rank; d-- > 0;) {
        if (space->stride[access][d] != run)
            return false;
        run *= (int64_t)space->dims[d];
    }
    return true;
}

/* Edges of a work-group's tiles. A transpose of 8192 x 8192 took an H200 0.134 ms with 64, 0.141
 * with 32, and 0.128 are a copy. */
#define LARGEST_TILE 64
#define SMALLEST_TILE 32

/* 1 + the dimension along which an access has its neighbours where they do not lie along the last
 * one: reading it in squares is worth while on devices that walk long runs, and for work-groups of
 * which neighbours would read far from each other. Squares may overlap, so what is changed in place
 * is not walked like that. */
static uint8_t choose_across(const struct kiln__traits *traits, const struct kiln__group *group,
                             const struct kiln__space *space)
{
    uint32_t last = space->rank - 1;
    size_t least = traits->chunked ? traits->vector : SMALLEST_TILE / 2;
    if ((traits->chunked && traits->vector == 1) || space->dims[last] < least)
        return 0;
    for (size_t i = 0; i < group->accesses.count; i++) {
        if (group->accesses.items[i].kind != KILN__ACCESS_MEMORY ||
            kiln__space_vector_access(space, i, last) != KILN__STRIDED)
            continue;
        for (uint32_t d = 0; d < last; d++)
            if (space->stride[i][d] == 1 && space->dims[d] >= least)
                return (uint8_t)(d + 1);
    }
    return 0;
}

/* Only maps know accesses by the element's number, and tiles know rows, not runs over all
 * dimensions. */
static enum kiln__vector_access choose_along(const struct kiln__group *group,
                                             const struct kiln__space *space, size_t access,
                                             uint32_t d, uint8_t across)
{
    bool plain = group->accesses.items[access].kind == KILN__ACCESS_MEMORY;
    enum kiln__vector_access along = kiln__space_vector_access(space, access, d);
    if (across && plain && along == KILN__STRIDED && space->stride[access][across - 1] == 1)
        return KILN__ACROSS;
    return !kiln__group_reduces(group) && !across && is_linear(space, access) ? KILN__LINEAR
                                                                              : along;
}

/* Bytes of all tiles with such an edge; those of a row more keep columns in different banks. */
static uint64_t tile_bytes(const struct kiln__plan *plan, const struct kiln__group *group,
                           const struct kiln__variant *variant, unsigned edge)
{
    const struct kiln__node *nodes = plan->fusion.graph.nodes.items;
    uint64_t bytes = 0;
    for (size_t i = 0; i < group->accesses.count; i++) {
        if (variant->along[i] != KILN__ACROSS)
            continue;
        kiln_type type = nodes[group->accesses.items[i].node].type;
        bytes += (uint64_t)edge * (edge + 1) * kiln_type_size(kiln__type_row(type)->computed);
    }
    return bytes;
}

/* Tiles take half of the local memory at most, so that another work-group finds room beside them:
 * as large ones as do, and not larger than lines that the items have an element each of. What has
 * no place there is read as it lies. */
static void choose_tile(const struct kiln__plan *plan, const struct kiln__group *group,
                        struct kiln__variant *variant)
{
    const uint64_t room = kiln__plan_device(plan, group)->info.local_memory / 2;
    const unsigned items = 1u << variant->work_group;
    const unsigned tuned = kiln__plan_device(plan, group)->traits->edge;
    const unsigned largest = tuned ? tuned : LARGEST_TILE;
    unsigned edge = largest < items ? largest : items;
    while (edge > SMALLEST_TILE && tile_bytes(plan, group, variant, edge) > room)
        edge /= 2;
    for (size_t i = group->accesses.count;
         i-- > 0 && tile_bytes(plan, group, variant, edge) > room;)
        if (variant->along[i] == KILN__ACROSS)
            variant->along[i] = KILN__STRIDED;
    variant->tile = (uint8_t)edge;
}

/* A part that is one run needs no strides. */
static uint8_t choose_placed(const struct kiln__group *group, const struct kiln__space *space,
                             uint32_t d)
{
    size_t row = group->accesses.count;
    if (!space->placed || is_linear(space, row))
        return 0;
    const enum kiln__vector_access access = kiln__space_vector_access(space, row, d);
    return (uint8_t)(access == KILN__REPEATED ? KILN__STRIDED : access); /* computed positions */
}

/* ---- vectors ---- */

/* Of a window's columns, which are often channels, the width that leaves fewest vectors and single
 * ones behind them. */
static uint8_t choose_column(const struct kiln__traits *traits, const struct kiln__space *space)
{
    size_t columns = space->dims[space->kept - 1], least = SIZE_MAX, best = 1;
    for (size_t width = traits->vector; width >= 4; width /= 2) {
        size_t visits = columns / width + columns % width;
        best = visits < least ? width : best;
        least = visits < least ? visits : least;
    }
    return (uint8_t)best;
}

/* Of columns that are added up every vector of an odd row crosses two cache lines where it is as
 * long as one: sums of 1,234 rows of 4,567 took a CPU 0.86 times as long with half of that.
 *
 * Work-items that are lanes themselves take vectors only along whole runs of neighbours. */
static uint8_t choose_vector(const struct kiln__traits *traits, const struct kiln__group *group,
                             const struct kiln__space *space, const struct kiln__variant *variant)
{
    bool flat = !kiln__group_reduces(group) && space->rank == 1;
    bool crosses = variant->reduced_mapping == KILN__AXIS_BLOCKS &&
                   group->kind == KILN__GROUP_REDUCE &&
                   space->dims[space->kept - 1] % traits->vector != 0;
    if (traits->chunked && variant->kept_mapping == KILN__AXIS_VECTORS &&
        variant->reduced_mapping == KILN__AXIS_EACH)
        return choose_column(traits, space);
    if (traits->chunked && crosses && traits->vector > 8)
        return (uint8_t)(traits->vector / 2);
    if (traits->chunked || flat)
        return (uint8_t)traits->vector;
    if (variant->across)
        return 1;
    bool whole = variant->placed != KILN__STRIDED;
    for (size_t i = 0; i < group->accesses.count; i++)
        whole = whole && variant->along[i] != KILN__STRIDED;
    bool divides = space->dims[space->rank - 1] % traits->vector == 0;
    if (kiln__group_reduces(group))
        whole = whole && variant->aligned && space->rank - space->kept == 1 &&
                variant->kept_mapping == KILN__AXIS_LANES;
    if (group->kind != KILN__GROUP_REDUCE)
        whole = whole && divides;
    return whole ? (uint8_t)traits->vector : 1;
}

/* Functions are long chains in which each operation waits for the one before: two vectors, step by
 * step beside each other, wait together. */
static bool has_costly_step(const struct kiln__group *group)
{
    for (size_t i = 0; i < group->steps.count; i++) {
        const struct kiln__step *step = &group->steps.items[i];
        if (step->kind == KILN__STEP_APPLY && kiln__elementwise_rows[step->op].cost >= KILN__COSTLY)
            return true;
    }
    return false;
}

/* What is gathered waits for its position before: two vectors of an item wait for theirs together.
 * Only where half as many items keep every unit busy. */
#define ITEMS_AT_ONCE 2048

static bool gathers_much(const struct kiln__plan *plan, const struct kiln__group *group,
                         const struct kiln__space *space, const struct kiln__variant *variant)
{
    size_t items = (size_t)kiln__plan_device(plan, group)->info.compute_units * ITEMS_AT_ONCE;
    bool gathers = false;
    for (size_t i = 0; i < group->accesses.count; i++)
        gathers = gathers || group->accesses.items[i].kind == KILN__ACCESS_GATHER;
    return gathers && space->kept_count / variant->vector / 2 >= items;
}

/* Elements take so few steps that memory is what they wait for: rows that are read at once share
 * loads and stores of their totals. */
static uint8_t choose_rows(const struct kiln__group *group)
{
    bool few = kiln__group_reads_once(group) ? group->reduced_step <= 6 : group->steps.count <= 16;
    return few ? 4 : 1;
}

/* ---- the whole ---- */

/* Columns of which fewer than a vector lie beside each other, again and again: [1000,50,3] along
 * the second dimension took a CPU twice the time in blocks of rows. */
static bool carries_short_runs(const struct kiln__traits *traits, const struct kiln__group *group,
                               const struct kiln__space *space)
{
    return kiln__group_scan(group) && kiln__group_is_of_columns(group) && space->kept > 1 &&
           space->dims[space->kept - 1] < traits->vector;
}

/* The elements of a window are few, and neighbours read the same ones: their totals stay in
 * registers. Longer columns are read row by row, as they lie. */
#define MOST_IN_WINDOW 64

static enum kiln__axis_mapping choose_columns(const struct kiln__group *group,
                                              const struct kiln__space *space)
{
    bool few = group->kind == KILN__GROUP_REDUCE && space->reduced_count <= MOST_IN_WINDOW;
    return few ? KILN__AXIS_EACH : KILN__AXIS_BLOCKS;
}

static void choose_mappings(const struct kiln__traits *traits, const struct kiln__group *group,
                            const struct kiln__space *space, enum kiln__stage stage,
                            struct kiln__variant *variant)
{
    bool final = stage == KILN__STAGE_FINAL, chunked = traits->chunked;
    bool reduces = kiln__group_reduces(group), phased = !kiln__group_reads_once(group);
    if (chunked && carries_short_runs(traits, group, space)) {
        variant->kept_mapping = variant->reduced_mapping = KILN__AXIS_EACH;
        return;
    }
    if (kiln__axis_mapping_is_of_columns(group, space) && !final) {
        variant->kept_mapping = variant->across ? KILN__AXIS_TILES
                                : chunked       ? KILN__AXIS_VECTORS
                                : reduces       ? KILN__AXIS_COLUMNS
                                                : KILN__AXIS_ITEM;
        variant->reduced_mapping = !reduces  ? KILN__AXIS_NONE
                                   : chunked ? choose_columns(group, space)
                                   : phased  ? KILN__AXIS_LANES
                                             : KILN__AXIS_EACH;
        return;
    }
    variant->kept_mapping = chunked ? KILN__AXIS_EACH : KILN__AXIS_LANES;
    variant->reduced_mapping = final     ? KILN__AXIS_PARTIALS
                               : chunked ? KILN__AXIS_VECTORS
                                         : KILN__AXIS_LANES;
}

/* Rows that are read twice, and long enough for all lanes of a larger work-group: fewer of them at
 * once are more likely to be in the cache still. Softmax of 1024 x 50257 took an H200 0.238 ms with
 * 256 lanes, 0.208 with 512, 0.181 with 1024. */
#define LONG_ROW 16384

static unsigned count_visits(const struct kiln__group *group, const struct kiln__variant *variant)
{
    struct kiln__nest nest;
    kiln__nest_of(group, !variant->native_math, &nest);
    unsigned visits = nest.phases;
    for (unsigned phase = 1; phase < nest.phases && variant->online; phase++)
        visits -= kiln__nest_is_online(group, &nest, phase);
    return visits;
}

/* Columns that are read twice have one lane to 16 items of a work-group at most, and so are long
 * for it early. Softmax down the 1,500 of 333 columns took an H200 15.5 us with 256 items, 11.2
 * with 1024, of 64 such 229 and 145, down the 2,000 of 2,048 19 and 13; of 64 times 1,500 columns
 * of 333 it took 99 and 144. */
#define LONG_COLUMN 1024

static bool wants_larger_group(const struct kiln__group *group, const struct kiln__space *space,
                               const struct kiln__variant *variant)
{
    bool columns = variant->kept_mapping == KILN__AXIS_COLUMNS;
    size_t least = columns ? LONG_COLUMN : LONG_ROW;
    return kiln__axis_shares(variant->kept_mapping) &&
           variant->reduced_mapping == KILN__AXIS_LANES && !variant->carried &&
           space->reduced_count >= least && count_visits(group, variant) > 1;
}

/* What a lane puts into local memory at most: of each reduction a value and a position. */
static uint64_t lane_bytes(const struct kiln__group *group, const struct kiln__variant *variant)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < group->steps.count && variant->kept_mapping == KILN__AXIS_COLUMNS; i++)
        bytes += group->steps.items[i].kind == KILN__STEP_REDUCED ? 8 : 0;
    return bytes;
}

/* With half of the local memory at most, so that another work-group finds room beside it. */
static void widen_group(const struct kiln__plan *plan, const struct kiln__group *group,
                        struct kiln__variant *variant)
{
    const struct kiln__device *device = kiln__plan_device(plan, group);
    const uint64_t bytes = lane_bytes(group, variant), room = device->info.local_memory / 2;
    while (2u << variant->work_group <= device->traits->long_work_group &&
           2u << variant->work_group <= device->info.max_work_group &&
           bytes << (variant->work_group + 1) <= room)
        variant->work_group++;
}

/* What depends on the walks, and on how wide vectors then are. */
static void choose_details(const struct kiln__plan *plan, const struct kiln__group *group,
                           const struct kiln__space *space, struct kiln__variant *variant)
{
    const struct kiln__traits *traits = kiln__plan_device(plan, group)->traits;
    bool single = variant->stage == KILN__STAGE_FINAL && !traits->chunked;
    variant->vector = single ? 1 : choose_vector(traits, group, space, variant);
    variant->aligned =
        variant->aligned && variant->vector > 1 && variant->stage != KILN__STAGE_FINAL;
    if (variant->vector > 1 && !kiln__group_reduces(group))
        variant->pairs = variant->kept_mapping == KILN__AXIS_VECTORS ? has_costly_step(group)
                         : variant->kept_mapping == KILN__AXIS_ITEM
                             ? gathers_much(plan, group, space, variant)
                             : false;
    variant->streams = traits->nontemporal_stores && !kiln__group_reduces(group) &&
                       group->stores.count == 1 && !variant->placed &&
                       (space->rank == 1 || variant->across);
    if (variant->reduced_mapping == KILN__AXIS_BLOCKS)
        variant->rows = traits->rows ? (uint8_t)traits->rows : choose_rows(group);
    variant->shuffles = variant->kept_mapping == KILN__AXIS_LANES && traits->shuffles;
    if (variant->reduced_mapping == KILN__AXIS_VECTORS && group->kind == KILN__GROUP_REDUCE)
        variant->partials = (uint8_t)traits->long_run;
    if (kiln__axis_shares(variant->kept_mapping) && kiln__group_scan(group))
        variant->carried = traits->carried
                               ? (uint8_t)traits->carried
                               : kiln__axis_scan_elements(space->reduced_count, variant);
    else if (variant->reduced_mapping == KILN__AXIS_LANES && !kiln__group_reads_once(group))
        variant->held = kiln__axis_cached_vectors(traits, group, space->reduced_count, variant);
    if (variant->held)
        variant->reduced_mapping = KILN__AXIS_HELD;
    variant->online = kiln__axis_is_online(traits, group, space, variant);
    if (wants_larger_group(group, space, variant))
        widen_group(plan, group, variant);
    if (traits->small_maps && variant->kept_mapping == KILN__AXIS_ITEM &&
        variant->reduced_mapping == KILN__AXIS_NONE)
        variant->work_group--;
}

void kiln__axis_mapping_choose(const struct kiln__plan *plan, const struct kiln__group *group,
                               const struct kiln__space *space, enum kiln__stage stage,
                               struct kiln__variant *variant)
{
    const struct kiln__traits *traits = kiln__plan_device(plan, group)->traits;
    kiln__variant_start(plan, group, space, variant);
    variant->stage = stage;
    /* The last blocks of tiles overlap, which is one update too many. */
    bool updates = stage != KILN__STAGE_PARTIAL && kiln__variant_updates(plan, group, variant);
    if (!kiln__group_reduces(group) && !updates)
        variant->across = choose_across(traits, group, space);
    bool lanes = !traits->chunked && kiln__group_scan(group); /* of which each has neighbours */
    uint32_t along = kiln__axis_mapping_is_of_columns(group, space) && !lanes ? space->kept - 1
                                                                              : space->rank - 1;
    variant->placed = stage == KILN__STAGE_PARTIAL ? 0 : choose_placed(group, space, along);
    choose_mappings(traits, group, space, stage, variant);
    for (size_t i = 0; i < group->accesses.count; i++)
        variant->along[i] = choose_along(group, space, i, along, variant->across);
    if (variant->across && !traits->chunked)
        choose_tile(plan, group, variant);
    variant->aligned = kiln__variant_is_aligned(plan, group, variant);
    choose_details(plan, group, space, variant);
}
