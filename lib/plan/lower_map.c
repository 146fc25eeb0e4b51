/* SPDX-License-Identifier: Apache-2.0 */
/* Map groups to launches.
 *
 * Arguments, as codegen/map.c declares them:
 *   count, [chunk], [stream], inner dimensions, then per access memory, offset and strides, per
 *   store memory and offset, and the scalars. */
#include "plan/lower.h"

/* Elements per vector: full width where elements are neighbours, else one by one on devices whose
 * work-items already are the lanes. */
static uint8_t choose_vector(const struct kiln__traits *traits, const struct kiln__space *space,
                             const struct kiln__form *form, size_t accesses)
{
    if (traits->chunked || space->rank == 1)
        return (uint8_t)traits->vector;
    bool whole = space->dims[space->rank - 1] % traits->vector == 0;
    for (size_t i = 0; i < accesses; i++)
        whole = whole && form->along[i] != KILN__STRIDED;
    return whole ? (uint8_t)traits->vector : 1;
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

static void shape_form(const struct kiln__plan *plan, const struct kiln__group *group,
                       const struct kiln__space *space, struct kiln__form *form)
{
    kiln__form_start(plan, group, space, form);
    for (size_t i = 0; i < group->accesses.count; i++)
        form->along[i] = (uint8_t)(is_linear(space, i) ? KILN__LINEAR
                                                       : kiln__space_along(space, i, space->rank - 1));
    form->vector = choose_vector(plan->options.device->traits, space, form, group->accesses.count);
    form->aligned = kiln__form_is_aligned(plan, group, form);
    form->streams = plan->options.device->traits->nontemporal_stores && space->rank == 1 &&
                    group->stores.count == 1;
}

static void size_launch(const struct kiln__plan *plan, const struct kiln__space *space,
                        struct kiln__launch *launch, size_t *chunk)
{
    const struct kiln__traits *traits = plan->options.device->traits;
    *chunk = kiln__chunk_size(traits, space->kept_count, 1);
    size_t items = traits->chunked
                       ? kiln__divide_up(space->kept_count, *chunk)
                       : kiln__divide_up(space->kept_count, launch->form.vector);
    kiln__launch_line(traits, items, launch);
}

bool kiln__lower_map(struct kiln__plan *plan, uint32_t index)
{
    const struct kiln__group *group = &plan->fusion.groups.items[index];
    struct kiln__space space;
    kiln__space_of(group, &space);
    if (space.kept_count == 0 || group->stores.count == 0)
        return true;
    struct kiln__launch launch = {.source = KILN__SOURCE_MAP, .group = index, .kernel = "kiln_map"};
    size_t chunk;
    shape_form(plan, group, &space, &launch.form);
    size_launch(plan, &space, &launch, &chunk);
    launch.bytes = kiln__group_bytes(plan, group);
    bool stream = launch.bytes > plan->options.device->info.cache;
    bool done = kiln__launch_index(&launch, (int64_t)space.kept_count);
    done = done && (!launch.form.chunked || kiln__launch_index(&launch, (int64_t)chunk));
    done = done && (!launch.form.streams || kiln__launch_i32(&launch, stream));
    for (uint32_t d = 1; d < space.rank; d++)
        done = done && kiln__launch_index(&launch, (int64_t)space.dims[d]);
    for (size_t i = 0; i < group->accesses.count; i++)
        done = done && kiln__launch_access(plan, group, &space, &launch, i);
    done = done && kiln__launch_stores(plan, group, &launch);
    done = done && kiln__launch_scalars(group, &launch);
    return kiln__plan_launch(plan, &launch, done);
}
