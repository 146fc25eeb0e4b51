/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/space.h"

#include <assert.h>
#include <stdlib.h>

#include "fuse/layout.h"

/* How many rows of strides there are. Stores that are not placed are row-major. */
static size_t count_rows(const struct kiln__group *group)
{
    bool placed = group->stores.count && group->stores.items[0].placed;
    return group->accesses.count + placed;
}

/* Dimensions a and a + 1 are one run in every access. */
static bool mergeable(const struct kiln__space *space, size_t rows, uint32_t a)
{
    for (size_t i = 0; i < rows; i++)
        if (space->stride[i][a] != space->stride[i][a + 1] * (int64_t)space->dims[a + 1])
            return false;
    return true;
}

static void remove_dimension(struct kiln__space *space, size_t rows, uint32_t d)
{
    for (uint32_t k = d; k + 1 < space->rank; k++) {
        space->dims[k] = space->dims[k + 1];
        for (size_t i = 0; i < rows; i++)
            space->stride[i][k] = space->stride[i][k + 1];
    }
    space->rank--;
    if (d < space->kept)
        space->kept--;
}

/* Merge within the kept and within the reduced dimensions, never across. */
static void merge(struct kiln__space *space, size_t rows)
{
    for (uint32_t d = 0; d < space->rank;) {
        if (space->dims[d] == 1)
            remove_dimension(space, rows, d);
        else
            d++;
    }
    for (uint32_t d = 0; d + 1 < space->rank;) {
        if (d + 1 == space->kept || !mergeable(space, rows, d)) {
            d++;
            continue;
        }
        space->dims[d + 1] *= space->dims[d];
        remove_dimension(space, rows, d);
    }
}

/* Kernels have at least one kept and, of a reduction, one reduced dimension. */
static void insert_dimension(struct kiln__space *space, size_t rows, uint32_t d)
{
    for (uint32_t k = space->rank; k > d; k--) {
        space->dims[k] = space->dims[k - 1];
        for (size_t i = 0; i < rows; i++)
            space->stride[i][k] = space->stride[i][k - 1];
    }
    space->dims[d] = 1;
    for (size_t i = 0; i < rows; i++)
        space->stride[i][d] = 0;
    space->rank++;
}

void kiln__space_of(const struct kiln__group *group, struct kiln__space *space)
{
    bool reduces = kiln__group_reduces(group);
    bool multiplies = group->kind == KILN__GROUP_MATMUL;
    size_t rows = count_rows(group);
    assert(rows <= KILN__MOST_ACCESSES + 1);
    *space = (struct kiln__space){.rank = group->shape.rank};
    space->kept = group->kept - multiplies;
    space->kept_count = space->reduced_count = 1;
    for (uint32_t d = 0; d < space->rank; d++) {
        space->dims[d] = group->shape.dims[d];
        *(d < space->kept ? &space->kept_count : &space->reduced_count) *= space->dims[d];
        for (size_t i = multiplies ? kiln__group_operand_accesses(group) : 0; i < rows; i++)
            space->stride[i][d] = i < group->accesses.count ? group->accesses.items[i].stride[d]
                                                            : group->stores.items[0].stride[d];
    }
    merge(space, rows);
    if (space->kept == 0) {
        insert_dimension(space, rows, 0);
        space->kept = 1;
    }
    if ((reduces || multiplies) && space->rank == space->kept)
        insert_dimension(space, rows, space->rank);
}

bool kiln__space_is_narrow(const struct kiln__group *group, const struct kiln__space *space)
{
    /* Half of the range leaves room for steps beyond the end. */
    const int64_t limit = INT32_MAX / 2;
    if ((int64_t)space->kept_count > limit || (int64_t)space->reduced_count > limit)
        return false;
    for (size_t i = 0; i < count_rows(group); i++) {
        int64_t reach = i < group->accesses.count ? group->accesses.items[i].offset
                                                  : group->stores.items[0].offset;
        for (uint32_t d = 0; d < space->rank; d++) {
            int64_t stride = space->stride[i][d];
            reach += (stride < 0 ? -stride : stride) * (int64_t)space->dims[d];
        }
        if (i < group->accesses.count && group->accesses.items[i].kind == KILN__ACCESS_GATHER)
            reach +=
                llabs(group->accesses.items[i].jump) * (int64_t)group->accesses.items[i].extent;
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

void kiln__operand_strides(const struct kiln__group *group, size_t access,
                           int64_t strides[KILN__LINE_STRIDES])
{
    const int64_t *stride = group->accesses.items[access].stride;
    uint32_t row = group->shape.rank - 2, column = group->shape.rank - 1;
    bool second = access >= kiln__group_operand(group, 1).access;
    kiln__layout_batch_stride(stride, &group->shape, 2, &strides[KILN__BY_BATCH]);
    strides[KILN__BY_LINE] = stride[second ? column : row];
    strides[KILN__BY_DEPTH] = stride[second ? row : column];
}
