/* SPDX-License-Identifier: Apache-2.0 */
/* Map groups to launches.
 *
 * Arguments, as codegen/map.c declares them:
 *   count, [chunk], [stream], [first dimension], inner dimensions, then per access memory, offset
 *   and strides, per store memory and offset, the strides of a placed store, and the scalars. The
 * count is one of elements, or of tiles where the first dimension is told. */
#include "plan/lower.h"

/* Elements per vector: full width where elements are neighbours, else one by one on devices whose
 * work-items already are the lanes. */
static uint8_t choose_vector(const struct kiln__traits *traits, const struct kiln__space *space,
                             const struct kiln__form *form, size_t accesses)
{
    if (traits->chunked || space->rank == 1)
        return (uint8_t)traits->vector;
    bool whole =
        space->dims[space->rank - 1] % traits->vector == 0 && form->placed != KILN__STRIDED;
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

/* 1 + the dimension along which an access has its neighbours where they do not lie along the last
 * one: reading it in square blocks is worth while on devices that walk long runs. Blocks overlap,
 * so what is changed in place is not walked like that. */
static uint8_t choose_across(const struct kiln__traits *traits, const struct kiln__group *group,
                             const struct kiln__space *space)
{
    uint32_t last = space->rank - 1;
    if (!traits->chunked || traits->vector == 1 || space->dims[last] < traits->vector)
        return 0;
    for (size_t i = 0; i < group->accesses.count; i++) {
        if (group->accesses.items[i].kind != KILN__ACCESS_MEMORY ||
            kiln__space_along(space, i, last) != KILN__STRIDED)
            continue;
        for (uint32_t d = 0; d < last; d++)
            if (space->stride[i][d] == 1 && space->dims[d] >= traits->vector)
                return (uint8_t)(d + 1);
    }
    return 0;
}

/* Turned maps know rows, not runs over all dimensions. */
static enum kiln__along choose_along(const struct kiln__group *group,
                                     const struct kiln__space *space, size_t access, uint8_t across)
{
    bool plain = group->accesses.items[access].kind == KILN__ACCESS_MEMORY;
    enum kiln__along along = kiln__space_along(space, access, space->rank - 1);
    if (across && plain && along == KILN__STRIDED && space->stride[access][across - 1] == 1)
        return KILN__ACROSS;
    return !across && is_linear(space, access) ? KILN__LINEAR : along;
}

/* A part that is one run needs no strides. */
static uint8_t choose_placed(const struct kiln__group *group, const struct kiln__space *space)
{
    size_t row = group->accesses.count;
    if (!group->stores.items[0].placed || is_linear(space, row))
        return 0;
    return (uint8_t)kiln__space_along(space, row, space->rank - 1);
}

static void shape_form(const struct kiln__plan *plan, const struct kiln__group *group,
                       const struct kiln__space *space, struct kiln__form *form)
{
    const struct kiln__traits *traits = plan->options.device->traits;
    kiln__form_start(plan, group, space, form);
    /* The last blocks of tiles overlap, which is one update too many. */
    if (!kiln__form_updates(plan, group, form))
        form->across = choose_across(traits, group, space);
    form->placed = choose_placed(group, space);
    for (size_t i = 0; i < group->accesses.count; i++)
        form->along[i] = (uint8_t)choose_along(group, space, i, form->across);
    form->vector = choose_vector(traits, space, form, group->accesses.count);
    form->aligned = kiln__form_is_aligned(plan, group, form);
    form->streams = traits->nontemporal_stores && group->stores.count == 1 && !form->placed &&
                    (space->rank == 1 || form->across);
}

/* The last tile of a dimension takes what is left over, so that none is small. */
static size_t tiles_along(size_t dim)
{
    return dim < KILN__TILE ? 1 : dim / KILN__TILE;
}

/* Of elements, or of tiles. */
static size_t count_work(const struct kiln__space *space, const struct kiln__form *form)
{
    if (!form->across)
        return space->kept_count;
    size_t last = space->dims[space->rank - 1], across = space->dims[form->across - 1];
    return space->kept_count / last / across * tiles_along(last) * tiles_along(across);
}

static void size_launch(const struct kiln__plan *plan, const struct kiln__space *space,
                        struct kiln__launch *launch, size_t *chunk)
{
    const struct kiln__traits *traits = plan->options.device->traits;
    if (launch->form.across) {
        size_t tiles = count_work(space, &launch->form);
        *chunk = kiln__divide_up(tiles, traits->chunks);
        kiln__launch_line(traits, kiln__divide_up(tiles, *chunk), launch);
        return;
    }
    *chunk = kiln__chunk_size(traits, space->kept_count, 1);
    size_t items = traits->chunked ? kiln__divide_up(space->kept_count, *chunk)
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
    bool done = kiln__launch_index(&launch, (int64_t)count_work(&space, &launch.form));
    done = done && (!launch.form.chunked || kiln__launch_index(&launch, (int64_t)chunk));
    done = done && (!launch.form.streams || kiln__launch_i32(&launch, stream));
    for (uint32_t d = launch.form.across ? 0 : 1; d < space.rank; d++)
        done = done && kiln__launch_index(&launch, (int64_t)space.dims[d]);
    done = done && kiln__launch_accesses(plan, group, &space, &launch, 0) &&
           kiln__launch_stores(plan, group, &space, &launch) &&
           kiln__launch_scalars(group, &launch);
    return kiln__plan_launch(plan, &launch, done);
}
