/* SPDX-License-Identifier: Apache-2.0 */
/* Reduce groups to launches: one, or for long reductions one per segment and one that combines.
 *
 * Arguments, as codegen/reduce.c declares them:
 *   kept count, reduced count, [chunk or lanes], segments, segment length, inner kept and inner
 *   reduced dimensions, then per access memory, offset and strides, [partial results: memory and
 *   offset, of an indexed reduction also positions], per store memory and offset, scalars. */
#include <assert.h>

#include "plan/lower.h"

/* A segment is long enough to hide what combining costs, and depends on nothing but the number of
 * reduced elements, so that a result has the same bits whatever is computed beside it. */
struct segments {
    size_t length, most;
};
static const struct segments chunked_rows = {16384, 16};
static const struct segments chunked_columns = {1024, 16}; /* wide chunks: long runs of each row */
static const struct segments grouped_rows = {16384, 8192};
static const struct segments grouped_columns = {256, 1024}; /* one work-item each */

/* Of a segment's value, whatever accumulator it has, and of a position. */
#define PARTIAL_BYTES 4

struct cut {
    size_t segments, length;
    uint32_t values, positions; /* scratch slots */
};

/* Every segment but the last has a whole number of vectors. */
static void cut_segments(const struct kiln__traits *traits, enum kiln__direction direction,
                         size_t reduced, struct cut *cut)
{
    static const struct segments *const rules[2][2] = {{&grouped_rows, &grouped_columns},
                                                       {&chunked_rows, &chunked_columns}};
    const struct segments *rule = rules[traits->chunked][direction == KILN__ALONG_COLUMNS];
    size_t segments = reduced / rule->length;
    segments = segments > rule->most ? rule->most : segments > 1 ? segments : 1;
    cut->length = kiln__divide_up(reduced, segments);
    if (segments > 1)
        cut->length = kiln__divide_up(cut->length, traits->vector) * traits->vector;
    cut->segments = cut->length ? kiln__divide_up(reduced, cut->length) : 1;
}

/* Whether an access moves in one of the dimensions from `first` to `end`. */
static bool moves(const struct kiln__space *space, size_t access, uint32_t first, uint32_t end)
{
    for (uint32_t d = first; d < end; d++)
        if (space->stride[access][d] != 0 && space->dims[d] > 1)
            return true;
    return false;
}

/* Vectors run where neighbours are: along the reduced dimension, or along the last kept one. What
 * has one element per result or per reduced element is small beside the others. */
static enum kiln__direction choose_direction(const struct kiln__group *group,
                                             const struct kiln__space *space)
{
    unsigned rows = 0, columns = 0;
    for (size_t i = 0; i < group->accesses.count; i++) {
        if (group->accesses.items[i].kind == KILN__ACCESS_NUMBER)
            continue;
        rows += space->stride[i][space->rank - 1] == 1 && moves(space, i, 0, space->kept);
        columns += space->stride[i][space->kept - 1] == 1 && space->dims[space->kept - 1] > 1 &&
                   moves(space, i, space->kept, space->rank);
    }
    return columns > rows ? KILN__ALONG_COLUMNS : KILN__ALONG_ROWS;
}

/* Work-items that are lanes themselves load vectors only along one plain row. */
static bool has_row_vectors(const struct kiln__group *group, const struct kiln__space *space,
                            const struct kiln__form *form)
{
    bool vectors =
        form->aligned && form->direction == KILN__ALONG_ROWS && space->rank - space->kept == 1;
    for (size_t i = 0; i < group->accesses.count; i++)
        vectors = vectors && form->along[i] != KILN__STRIDED;
    return vectors;
}

static void shape_form(const struct kiln__plan *plan, const struct kiln__group *group,
                       const struct kiln__space *space, struct kiln__form *form)
{
    const struct kiln__step *reduced = &group->steps.items[group->reduced_step];
    kiln__form_start(plan, group, space, form);
    form->value_type = group->steps.items[reduced->args[0]].type;
    form->direction = (uint8_t)choose_direction(group, space);
    uint32_t d = form->direction == KILN__ALONG_ROWS ? space->rank - 1 : space->kept - 1;
    for (size_t i = 0; i < group->accesses.count; i++)
        form->along[i] = (uint8_t)kiln__space_along(space, i, d);
    form->aligned = kiln__form_is_aligned(plan, group, form);
    if (!form->chunked && !has_row_vectors(group, space, form))
        form->vector = 1;
    form->aligned = form->aligned && form->vector > 1;
}

/* Along columns a chunk is whole vectors, and segments share in making enough chunks. */
static size_t chunk_of(const struct kiln__traits *traits, const struct kiln__space *space,
                       const struct cut *cut, const struct kiln__launch *launch)
{
    if (launch->form.direction == KILN__ALONG_ROWS)
        return kiln__chunk_size(traits, space->kept_count, cut->length);
    size_t chunks = cut->segments < traits->chunks ? traits->chunks / cut->segments : 1;
    size_t chunk = kiln__divide_up(space->kept_count, chunks);
    return kiln__divide_up(chunk, traits->vector) * traits->vector;
}

/* Chunked: a chunk of results per work-item. Otherwise `lanes` work-items per result along rows,
 * one per result along columns. The second dimension is the segment. */
static size_t size_launch(const struct kiln__plan *plan, const struct kiln__space *space,
                          const struct cut *cut, struct kiln__launch *launch)
{
    const struct kiln__traits *traits = plan->options.device->traits;
    size_t parameter = 1;
    if (traits->chunked) {
        parameter = chunk_of(traits, space, cut, launch);
        launch->global[0] = kiln__divide_up(space->kept_count, parameter);
        launch->local[0] = 1;
    } else {
        /* Several vectors for each lane: a tree costs as much as a few of them. */
        size_t share = launch->form.vector > 1 ? launch->form.vector * 4 : 1;
        if (launch->form.direction == KILN__ALONG_ROWS)
            while (parameter < traits->work_group && parameter * share < cut->length)
                parameter *= 2;
        kiln__launch_line(traits, space->kept_count * parameter, launch);
    }
    launch->dimensions = 2;
    launch->global[1] = launch->form.stage == KILN__STAGE_PARTIAL ? cut->segments : 1;
    launch->local[1] = 1;
    return parameter;
}

static bool add_partials(const struct kiln__group *group, const struct cut *cut,
                         struct kiln__launch *launch)
{
    const struct kiln__reduce_row *row =
        &kiln__reduce_rows[group->steps.items[group->reduced_step].op];
    if (launch->form.stage == KILN__STAGE_WHOLE)
        return true;
    kiln_type type = kiln__reduce_accumulator(row, (kiln_type)launch->form.value_type);
    assert(kiln_type_size(type) <= PARTIAL_BYTES);
    bool done = kiln__launch_memory(launch, cut->values) &&
                kiln__launch_offset(launch, cut->values, 0, kiln_type_size(type));
    return done &&
           (!row->indexed || (kiln__launch_memory(launch, cut->positions) &&
                              kiln__launch_offset(launch, cut->positions, 0, PARTIAL_BYTES)));
}

static bool lower_stage(struct kiln__plan *plan, uint32_t index, const struct kiln__space *space,
                        const struct cut *cut, enum kiln__stage stage)
{
    const struct kiln__group *group = &plan->fusion.groups.items[index];
    struct kiln__launch launch = {
        .source = KILN__SOURCE_REDUCE, .group = index, .kernel = "kiln_reduce"};
    struct cut own = *cut;
    shape_form(plan, group, space, &launch.form);
    launch.form.stage = (uint8_t)stage;
    if (stage != KILN__STAGE_PARTIAL)
        kiln__form_updates(plan, group, &launch.form);
    if (stage == KILN__STAGE_FINAL) {
        launch.form.direction = KILN__ALONG_ROWS;
        if (!launch.form.chunked)
            launch.form.vector = 1;
        launch.form.aligned = false;
        own = (struct cut){.segments = 1, .length = cut->segments};
    }
    launch.bytes = kiln__group_bytes(plan, group);
    size_t parameter = size_launch(plan, space, &own, &launch);
    bool done = kiln__launch_index(&launch, (int64_t)space->kept_count) &&
                kiln__launch_index(&launch, (int64_t)space->reduced_count) &&
                kiln__launch_index(&launch, (int64_t)parameter) &&
                kiln__launch_index(&launch, (int64_t)cut->segments) &&
                kiln__launch_index(&launch, (int64_t)cut->length);
    for (uint32_t d = 1; d < space->rank; d++)
        if (d != space->kept)
            done = done && kiln__launch_index(&launch, (int64_t)space->dims[d]);
    done = done && kiln__launch_accesses(plan, group, space, &launch, 0) &&
           add_partials(group, cut, &launch);
    if (stage != KILN__STAGE_PARTIAL)
        done = done && kiln__launch_stores(plan, group, space, &launch);
    done = done && kiln__launch_scalars(group, &launch);
    return kiln__plan_launch(plan, &launch, done);
}

bool kiln__lower_reduce(struct kiln__plan *plan, uint32_t index)
{
    const struct kiln__group *group = &plan->fusion.groups.items[index];
    struct kiln__space space;
    kiln__space_of(group, &space);
    if (space.kept_count == 0 || group->stores.count == 0)
        return true;
    struct cut cut = {.values = KILN__NO_SLOT, .positions = KILN__NO_SLOT};
    cut_segments(plan->options.device->traits, choose_direction(group, &space), space.reduced_count,
                 &cut);
    if (cut.segments == 1)
        return lower_stage(plan, index, &space, &cut, KILN__STAGE_WHOLE);
    size_t partials = space.kept_count * cut.segments;
    bool indexed = kiln__reduce_rows[group->steps.items[group->reduced_step].op].indexed;
    cut.values = kiln__plan_scratch(plan, partials * PARTIAL_BYTES);
    if (indexed)
        cut.positions = kiln__plan_scratch(plan, partials * PARTIAL_BYTES);
    if (cut.values == KILN__NO_SLOT || (indexed && cut.positions == KILN__NO_SLOT))
        return false;
    return lower_stage(plan, index, &space, &cut, KILN__STAGE_PARTIAL) &&
           lower_stage(plan, index, &space, &cut, KILN__STAGE_FINAL);
}
