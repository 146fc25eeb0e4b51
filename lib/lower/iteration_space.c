/* SPDX-License-Identifier: Apache-2.0 */
/* Merging of adjacent dimensions that every access walks with one stride, to get the rank that a
 * kernel's text has. */
#include "lower/iteration_space.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "fuse/layout.h"

/* The strides of stores that are not row-major over the group's dimensions; false: all are. Whole
 * rows have the same in every store. */
static bool find_placed(const struct kiln__group *group, int64_t stride[KILN_MAX_RANK])
{
    bool full = false;
    for (size_t k = 0; k < group->stores.count; k++)
        full = full || group->stores.items[k].full;
    if (full && group->stores.items[0].placed) {
        memcpy(stride, group->stores.items[0].stride, sizeof group->stores.items[0].stride);
        return true;
    }
    if (!full || group->axes >> group->kept << group->kept == group->axes)
        return false;
    const struct kiln__shape visited = kiln__group_visited(group);
    int64_t own[KILN_MAX_RANK];
    uint32_t at[KILN_MAX_RANK];
    kiln__shape_strides(&visited, own);
    kiln__group_order(group, at);
    for (uint32_t d = 0; d < visited.rank; d++)
        stride[at[d]] = own[d];
    return true;
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
static void iteration_space_merge(struct kiln__space *space, size_t rows)
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
    int64_t placed[KILN_MAX_RANK] = {0};
    *space = (struct kiln__space){.rank = group->shape.rank, .placed = find_placed(group, placed)};
    size_t rows = group->accesses.count + space->placed;
    assert(rows <= KILN__MOST_ACCESSES + 1);
    space->kept = group->kept - multiplies;
    space->kept_count = space->reduced_count = 1;
    for (uint32_t d = 0; d < space->rank; d++) {
        space->dims[d] = group->shape.dims[d];
        *(d < space->kept ? &space->kept_count : &space->reduced_count) *= space->dims[d];
        for (size_t i = multiplies ? kiln__group_operand_accesses(group) : 0; i < rows; i++)
            space->stride[i][d] =
                i < group->accesses.count ? group->accesses.items[i].stride[d] : placed[d];
    }
    iteration_space_merge(space, rows);
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
    for (size_t i = 0; i < group->accesses.count + space->placed; i++) {
        int64_t reach = i < group->accesses.count ? group->accesses.items[i].offset
                                                  : group->stores.items[0].offset;
        for (uint32_t d = 0; d < space->rank; d++) {
            int64_t stride = space->stride[i][d];
            reach += (stride < 0 ? -stride : stride) * (int64_t)space->dims[d];
        }
        if (i < group->accesses.count && group->accesses.items[i].kind == KILN__ACCESS_GATHER)
            reach +=
                llabs(group->accesses.items[i].jump) * (int64_t)group->accesses.items[i].extent;
        if (i == group->accesses.count)
            reach += llabs(group->stores.items[0].jump) * (int64_t)group->stores.items[0].extent;
        if (reach > limit)
            return false;
    }
    return true;
}

enum kiln__vector_access kiln__space_vector_access(const struct kiln__space *space, size_t i,
                                                   uint32_t d)
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
    kiln__shape_batch_stride(stride, &group->shape, 2, &strides[KILN__BY_BATCH]);
    strides[KILN__BY_LINE] = stride[second ? column : row];
    strides[KILN__BY_DEPTH] = stride[second ? row : column];
}
