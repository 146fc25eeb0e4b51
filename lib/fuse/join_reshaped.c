/* SPDX-License-Identifier: Apache-2.0 */
/* A reshape between a group and a root renames elements and moves none: the root's are those that
 * the group visits, in the same order. It joins if all that it reads can be walked in the group's
 * dimensions as well. */
#include <string.h>

#include "fuse/fuse.h"

bool kiln__fuse_reshape(const struct kiln__group *group, const struct kiln__shape *shape, bool full,
                        struct kiln__reshaped *reshaped)
{
    reshaped->own = *shape;
    if (full) {
        reshaped->over = kiln__group_visited(group);
        kiln__group_order(group, reshaped->at);
    } else {
        reshaped->over = group->shape;
        reshaped->over.rank = group->kept;
        memcpy(reshaped->at, kiln__fuse_straight, sizeof reshaped->at);
    }
    const size_t count = kiln__shape_count(shape);
    reshaped->used = count > 0 && count == kiln__shape_count(&reshaped->over);
    return reshaped->used;
}

bool kiln__fuse_reshape_access(const struct kiln__reshaped *reshaped, struct kiln__access *access)
{
    int64_t stride[KILN_MAX_RANK];
    if (!kiln__shape_restride(&reshaped->own, access->stride, &reshaped->over, stride))
        return false;
    memset(access->stride, 0, sizeof access->stride);
    for (uint32_t d = 0; d < reshaped->over.rank; d++)
        if (reshaped->over.dims[d] != 1)
            access->stride[reshaped->at[d]] = stride[d];
    return true;
}
