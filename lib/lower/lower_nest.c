/* SPDX-License-Identifier: Apache-2.0 */
/* Map, reduce and rows groups to launches: one, or for long reductions one for their segments and
 * one that combines what these have left; for long running sums one that finds what segments come
 * to, and one that begins each with what is before it. */
#include <assert.h>

#include "lower/lower.h"
#include "plan/traffic.h"

/* That one work-item goes over in several phases: pieces of 512 bytes of f32. Each phase reads them
 * all again, from memory or a large cache, and less at a place takes longer. */
#define LEAST_COLUMNS 128

/* And in one, where there are many: sums of 1,234 rows of 4,567 took a CPU of two cores 1.17 times
 * as long in pieces of 288 as in such. */
#define LONG_COLUMNS 512
#define ITEMS_OF_UNIT 4 /* so that a late unit leaves less behind */

struct lowering {
    struct kiln__plan *plan;
    const struct kiln__group *group;
    struct kiln__space space;
    struct kiln__line_segments lines;
    uint32_t values, positions; /* scratch slots of partial results */
    struct kiln__launch launch;
};

static const struct kiln__traits *traits_of(const struct lowering *lowering)
{
    return kiln__plan_device(lowering->plan, lowering->group)->traits;
}

/* ---- work-items ---- */

/* The last tile of a dimension takes what is left over, so that none is small; a work-group's are
 * as large as its local memory. */
static size_t tiles_along(const struct kiln__variant *variant, size_t dim)
{
    return !variant->chunked  ? kiln__divide_up(dim, variant->tile)
           : dim < KILN__TILE ? 1
                              : dim / KILN__TILE;
}

/* Kept elements, or tiles of them. */
static size_t count_work(const struct lowering *lowering)
{
    const struct kiln__space *space = &lowering->space;
    const struct kiln__variant *variant = &lowering->launch.variant;
    if (!variant->across)
        return space->kept_count;
    size_t last = space->dims[space->rank - 1], other = space->dims[variant->across - 1];
    return space->kept_count / last / other * tiles_along(variant, last) *
           tiles_along(variant, other);
}

/* Reduced elements of each kept one that the launch has to do with. */
static size_t count_reduced(const struct lowering *lowering)
{
    return lowering->launch.variant.stage == KILN__STAGE_FINAL ? lowering->lines.segments
                                                               : lowering->lines.length;
}

/* Where runs of kept elements are walked a chunk is whole vectors, and segments share in making
 * enough chunks. */
static size_t choose_chunk(const struct lowering *lowering)
{
    const struct kiln__traits *traits = traits_of(lowering);
    size_t work = count_work(lowering), chunks = traits->chunks;
    if (lowering->launch.variant.kept_mapping == KILN__AXIS_TILES)
        return kiln__divide_up(work, chunks);
    if (lowering->launch.variant.reduced_mapping == KILN__AXIS_NONE)
        return kiln__chunk_size(traits, work, 1);
    if (lowering->launch.variant.kept_mapping != KILN__AXIS_VECTORS)
        return kiln__chunk_size(traits, work, count_reduced(lowering));
    chunks = lowering->lines.segments < chunks ? chunks / lowering->lines.segments : 1;
    size_t chunk = kiln__divide_up(work, chunks);
    size_t items = ITEMS_OF_UNIT *
                   (size_t)kiln__plan_device(lowering->plan, lowering->group)->info.compute_units;
    size_t least = lowering->group->kind == KILN__GROUP_ROWS ? LEAST_COLUMNS
                   : work >= LONG_COLUMNS * items            ? LONG_COLUMNS
                                                             : 0;
    if (chunk < least)
        chunk = least;
    return kiln__divide_up(chunk, traits->vector) * traits->vector;
}

/* Says how many work-items there are; what of the kept axis one has, or how many share an element
 * of it, in *share. */
static void size_launch(struct lowering *lowering, size_t *share)
{
    struct kiln__launch *launch = &lowering->launch;
    const struct kiln__traits *traits = traits_of(lowering);
    size_t work = count_work(lowering), items;
    if (kiln__axis_shares(launch->variant.kept_mapping)) {
        *share = kiln__axis_mapping_lanes(traits, lowering->group, count_reduced(lowering),
                                          &launch->variant);
        items = work * *share;
        while (launch->variant.shuffles && 1u << (launch->variant.shuffles - 1) < *share)
            launch->variant.shuffles++;
    } else if (launch->variant.across && !traits->chunked) {
        *share = 1;
        items = work << launch->variant.work_group;
    } else {
        *share = traits->chunked ? choose_chunk(lowering)
                                 : (size_t)launch->variant.vector << launch->variant.pairs;
        items = kiln__divide_up(work, *share);
    }
    kiln__launch_line(items, launch);
    if (!kiln__stage_of_segments(launch->variant.stage))
        return;
    launch->dimensions = 2;
    launch->global[1] = lowering->lines.segments;
    launch->local[1] = 1;
}

/* ---- arguments ---- */

/* What the kernel's loops go by. */
static void add_sizes(struct lowering *lowering, size_t share)
{
    struct kiln__launch *launch = &lowering->launch;
    const struct kiln__variant *variant = &launch->variant;
    const struct kiln__space *space = &lowering->space;
    unsigned tuned = traits_of(lowering)->stream;
    bool stream = tuned ? tuned > 1
                        : kiln__group_bytes(lowering->plan, lowering->group) >
                              kiln__plan_device(lowering->plan, lowering->group)->info.cache;
    kiln__launch_add(launch, KILN__INDEX(count_work(lowering)), "n", 0, 0);
    if (variant->reduced_mapping != KILN__AXIS_NONE)
        kiln__launch_add(launch, KILN__INDEX(space->reduced_count), "reduced", 0, 0);
    if (variant->kept_mapping != KILN__AXIS_ITEM && (variant->chunked || !variant->across) &&
        !variant->shuffles)
        kiln__launch_add(launch, KILN__INDEX(share),
                         kiln__axis_shares(variant->kept_mapping) ? "lanes" : "chunk", 0, 0);
    if (variant->streams)
        kiln__launch_add(launch,
                         (struct kiln__argument){.kind = KILN__ARGUMENT_I32, .integer = stream},
                         variant->across ? "wanted" : "stream", 0, 0);
    if (kiln__stage_of_segments(variant->stage))
        kiln__launch_add(launch, KILN__INDEX(lowering->lines.length), "length", 0, 0);
    if (variant->stage == KILN__STAGE_FINAL)
        kiln__launch_add(launch, KILN__INDEX(lowering->lines.segments), "segments", 0, 0);
    for (uint32_t d = variant->across ? 0 : 1; d < space->rank; d++)
        if (d != space->kept)
            kiln__launch_add(launch, KILN__INDEX(space->dims[d]), "d#", d, 0);
}

static void add_partial(struct lowering *lowering, uint32_t slot, kiln_type type, const char *name,
                        const char *name_of_offset)
{
    struct kiln__launch *launch = &lowering->launch;
    struct kiln__argument memory = {.kind = KILN__ARGUMENT_MEMORY, .slot = slot};
    struct kiln__argument offset = {.kind = KILN__ARGUMENT_OFFSET, .slot = slot};
    unsigned step = kiln__group_total(lowering->group);
    assert(slot != KILN__NO_SLOT || lowering->plan->failed);
    memory.type = type;
    memory.constant = launch->variant.stage != KILN__STAGE_PARTIAL;
    memory.restricted = true;
    offset.item = (uint8_t)kiln_type_size(type);
    kiln__launch_add(launch, memory, name, step, 0);
    kiln__launch_add(launch, offset, name_of_offset, step, 0);
}

static const struct kiln__reduce_row *row_of(const struct kiln__group *group)
{
    const struct kiln__step *total = &group->steps.items[kiln__group_total(group)];
    return &kiln__reduce_rows[total->kind == KILN__STEP_SCANNED ? KILN__REDUCE_sum : total->op];
}

/* What the total of a segment is kept in. */
static kiln_type partial_type(const struct kiln__group *group)
{
    const struct kiln__step *steps = group->steps.items;
    kiln_type type = steps[steps[kiln__group_total(group)].args[0]].type;
    return kiln__reduce_accumulator(row_of(group), type);
}

static void add_partials(struct lowering *lowering)
{
    if (lowering->launch.variant.stage == KILN__STAGE_WHOLE)
        return;
    add_partial(lowering, lowering->values, partial_type(lowering->group), "partial_t#",
                "partial_t#_offset");
    if (row_of(lowering->group)->indexed)
        add_partial(lowering, lowering->positions, KILN_I32, "partial_j#", "partial_j#_offset");
}

/* ---- launches ---- */

static void lower_stage(struct lowering *lowering, uint32_t index, enum kiln__stage stage)
{
    static const char *const names[] = {[KILN__GROUP_MAP] = "kiln_map",
                                        [KILN__GROUP_REDUCE] = "kiln_reduce",
                                        [KILN__GROUP_ROWS] = "kiln_rows"};
    struct kiln__plan *plan = lowering->plan;
    const struct kiln__group *group = lowering->group;
    struct kiln__launch *launch = &lowering->launch;
    size_t share;
    *launch = (struct kiln__launch){
        .source = KILN__SOURCE_NEST, .group = index, .kernel = names[group->kind]};
    kiln__axis_mapping_choose(plan, group, &lowering->space, stage, &launch->variant);
    size_launch(lowering, &share);
    add_sizes(lowering, share);
    kiln__launch_accesses(plan, group, &lowering->space, launch, 0, group->accesses.count);
    add_partials(lowering);
    if (stage != KILN__STAGE_PARTIAL)
        kiln__launch_stores(plan, group, &lowering->space, launch);
    kiln__launch_scalars(group, launch, 0, group->steps.count);
    kiln__plan_launch(plan, launch);
    kiln__plan_prepack_group(plan, group);
}

void kiln__lower_nest(struct kiln__plan *plan, uint32_t index)
{
    struct lowering lowering = {.plan = plan, .group = &plan->fusion.groups.items[index]};
    const struct kiln__group *group = lowering.group;
    kiln__space_of(group, &lowering.space);
    bool empty = lowering.space.kept_count == 0 || group->stores.count == 0 ||
                 (group->stores.items[0].position && group->stores.items[0].extent == 0);
    if (empty || (group->kind == KILN__GROUP_ROWS && lowering.space.reduced_count == 0))
        return;
    lowering.lines = kiln__axis_mapping_segments(plan, group, &lowering.space);
    if (lowering.lines.segments == 1) {
        lower_stage(&lowering, index, KILN__STAGE_WHOLE);
        return;
    }
    size_t partials = lowering.space.kept_count * lowering.lines.segments;
    lowering.values = kiln__plan_scratch(plan, partials * kiln_type_size(partial_type(group)));
    if (row_of(group)->indexed)
        lowering.positions = kiln__plan_scratch(plan, partials * sizeof(int32_t));
    lower_stage(&lowering, index, KILN__STAGE_PARTIAL);
    lower_stage(&lowering, index, kiln__group_scan(group) ? KILN__STAGE_BEHIND : KILN__STAGE_FINAL);
}
