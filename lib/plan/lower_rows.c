/* SPDX-License-Identifier: Apache-2.0 */
/* Rows groups to launches, one each.
 *
 * Arguments, as codegen/rows_parts.c declares them:
 *   kept count, reduced count, chunk or lanes, inner kept and inner reduced dimensions, then per
 *   access memory, offset and strides, per store memory and offset, scalars. */
#include "plan/lower.h"

/* Work-items that are lanes themselves load and store vectors only along one plain row. */
static bool has_vectors(const struct kiln__space *space, const struct kiln__form *form)
{
    return form->aligned && space->rank - space->kept == 1 &&
           space->dims[space->kept] % form->vector == 0;
}

static void shape_form(const struct kiln__plan *plan, const struct kiln__group *group,
                       const struct kiln__space *space, struct kiln__form *form)
{
    kiln__form_start(plan, group, space, form);
    bool plain = true;
    for (size_t i = 0; i < group->accesses.count; i++) {
        form->along[i] = (uint8_t)kiln__space_along(space, i, space->rank - 1);
        plain = plain && form->along[i] != KILN__STRIDED;
    }
    form->aligned = kiln__form_is_aligned(plan, group, form);
    if (!form->chunked && !(plain && has_vectors(space, form)))
        form->vector = 1;
    form->aligned = form->aligned && form->vector > 1;
}

/* As many vectors as a work-item has registers for, beside those it computes with. */
#define MOST_HELD 8

/* Each lane has as many vectors as it can hold: a tree costs as much as a few of them. Few lanes
 * have two, so that neighbours read neighbours. Kernels differ in a power of two. */
static size_t choose_lanes(const struct kiln__traits *traits, size_t reduced,
                           struct kiln__form *form)
{
    size_t lanes = 1, held = 1;
    while (lanes < traits->work_group &&
           lanes * form->vector * (lanes < 8 ? 2 : MOST_HELD) < reduced)
        lanes *= 2;
    while (held * lanes * form->vector < reduced)
        held *= 2;
    form->held = held <= MOST_HELD ? (uint8_t)held : 0;
    return lanes;
}

/* Chunked: a run of rows per work-item. Otherwise `lanes` work-items, a power of two, share a
 * row. */
static size_t size_launch(const struct kiln__plan *plan, const struct kiln__space *space,
                          struct kiln__launch *launch)
{
    const struct kiln__traits *traits = plan->options.device->traits;
    size_t parameter;
    if (traits->chunked) {
        parameter = kiln__chunk_size(traits, space->kept_count, space->reduced_count);
        launch->dimensions = 1;
        launch->global[0] = kiln__divide_up(space->kept_count, parameter);
        launch->local[0] = 1;
        return parameter;
    }
    parameter = choose_lanes(traits, space->reduced_count, &launch->form);
    kiln__launch_line(traits, space->kept_count * parameter, launch);
    return parameter;
}

bool kiln__lower_rows(struct kiln__plan *plan, uint32_t index)
{
    const struct kiln__group *group = &plan->fusion.groups.items[index];
    struct kiln__launch launch = {
        .source = KILN__SOURCE_ROWS, .group = index, .kernel = "kiln_rows"};
    struct kiln__space space;
    kiln__space_of(group, &space);
    if (space.kept_count == 0 || group->stores.count == 0)
        return true;
    shape_form(plan, group, &space, &launch.form);
    launch.bytes = kiln__group_bytes(plan, group);
    size_t parameter = size_launch(plan, &space, &launch);
    bool done = kiln__launch_index(&launch, (int64_t)space.kept_count) &&
                kiln__launch_index(&launch, (int64_t)space.reduced_count) &&
                kiln__launch_index(&launch, (int64_t)parameter);
    for (uint32_t d = 1; d < space.rank; d++)
        if (d != space.kept)
            done = done && kiln__launch_index(&launch, (int64_t)space.dims[d]);
    done = done && kiln__launch_accesses(plan, group, &space, &launch, 0) &&
           kiln__launch_stores(plan, group, &space, &launch) &&
           kiln__launch_scalars(group, &launch);
    return kiln__plan_launch(plan, &launch, done);
}
