/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/space.h"

/* Dimensions a and a + 1 are one run in every access. The stores are row-major, so they are. */
static bool mergeable(const struct kiln__space *space, size_t accesses, uint32_t a)
{
    for (size_t i = 0; i < accesses; i++)
        if (space->stride[i][a] != space->stride[i][a + 1] * (int64_t)space->dims[a + 1])
            return false;
    return true;
}

static void remove_dimension(struct kiln__space *space, size_t accesses, uint32_t d)
{
    for (uint32_t k = d; k + 1 < space->rank; k++) {
        space->dims[k] = space->dims[k + 1];
        for (size_t i = 0; i < accesses; i++)
            space->stride[i][k] = space->stride[i][k + 1];
    }
    space->rank--;
    if (d < space->kept)
        space->kept--;
}

/* Merge within the kept and within the reduced dimensions, never across. */
static void merge(struct kiln__space *space, size_t accesses)
{
    for (uint32_t d = 0; d < space->rank;) {
        if (space->dims[d] == 1)
            remove_dimension(space, accesses, d);
        else
            d++;
    }
    for (uint32_t d = 0; d + 1 < space->rank;) {
        if (d + 1 == space->kept || !mergeable(space, accesses, d)) {
            d++;
            continue;
        }
        space->dims[d + 1] *= space->dims[d];
        remove_dimension(space, accesses, d);
    }
}

/* Kernels have at least one kept and, of a reduction, one reduced dimension. */
static void insert_dimension(struct kiln__space *space, size_t accesses, uint32_t d)
{
    for (uint32_t k = space->rank; k > d; k--) {
        space->dims[k] = space->dims[k - 1];
        for (size_t i = 0; i < accesses; i++)
            space->stride[i][k] = space->stride[i][k - 1];
    }
    space->dims[d] = 1;
    for (size_t i = 0; i < accesses; i++)
        space->stride[i][d] = 0;
    space->rank++;
}

void kiln__space_of(const struct kiln__group *group, struct kiln__space *space)
{
    bool reduces = group->kind == KILN__GROUP_REDUCE;
    size_t accesses = group->accesses.count;
    *space = (struct kiln__space){.rank = group->shape.rank};
    space->kept = reduces ? group->kept : space->rank;
    space->kept_count = space->reduced_count = 1;
    for (uint32_t d = 0; d < space->rank; d++) {
        space->dims[d] = group->shape.dims[d];
        *(d < space->kept ? &space->kept_count : &space->reduced_count) *= space->dims[d];
        for (size_t i = 0; i < accesses; i++)
            space->stride[i][d] = group->accesses.items[i].stride[d];
    }
    merge(space, accesses);
    if (space->kept == 0) {
        insert_dimension(space, accesses, 0);
        space->kept = 1;
    }
    if (reduces && space->rank == space->kept)
        insert_dimension(space, accesses, space->rank);
}

bool kiln__space_is_narrow(const struct kiln__group *group, const struct kiln__space *space)
{
    /* Half of the range leaves room for steps beyond the end. */
    const int64_t limit = INT32_MAX / 2;
    if ((int64_t)space->kept_count > limit || (int64_t)space->reduced_count > limit)
        return false;
    for (size_t i = 0; i < group->accesses.count; i++) {
        int64_t reach = group->accesses.items[i].offset;
        for (uint32_t d = 0; d < space->rank; d++) {
            int64_t stride = space->stride[i][d];
            reach += (stride < 0 ? -stride : stride) * (int64_t)space->dims[d];
        }
        if (reach > limit)
            return false;
    }
    return true;
}

enum kiln__along kiln__space_along(const struct kiln__space *space, size_t i, uint32_t d)
{
    int64_t stride = space->stride[i][d];
    return stride == 0 ? KILN__REPEATED : stride == 1 ? KILN__CONTIGUOUS : KILN__STRIDED;
}
