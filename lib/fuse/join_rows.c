/* SPDX-License-Identifier: Apache-2.0 */
/* Roots and groups over the same rows: dimensions that a reduction drops, or the one that a scan
 * goes along. A group starts with either, or as a map whose last dimensions the root reduces; the
 * first further such root, or map over whole rows, makes it a rows group. */
#include "fuse/group_kinds.h"

bool kiln__fuse_runs_along_rows(const struct kiln__join *join, const struct kiln__access *access)
{
    const struct kiln__shape *shape = &join->group->shape;
    uint32_t first = join->columns ? 0 : join->kept;
    for (uint32_t d = join->columns ? join->kept : shape->rank; d-- > first;)
        if (shape->dims[d] != 1)
            return access->stride[d] == 0 || access->stride[d] == 1;
    return true;
}

/* Rows end in the last dimensions; others lie in pieces. */
static bool is_of_one_run(const struct kiln__join *join)
{
    return join->axes >> join->kept << join->kept == join->axes;
}

/* Say what the group's rows are, or would be if the root reduced them. */
static bool find_rows(struct kiln__join *join, const struct kiln__node *root)
{
    bool reduces = kiln__group_reduces(join->group);
    if (!reduces && root->kind != KILN__REDUCE)
        return false;
    join->axes = reduces ? join->group->axes : root->axes;
    join->kept = reduces ? join->group->kept : root->shape.rank;
    join->length = 1;
    for (uint32_t d = join->kept; d < join->group->shape.rank; d++)
        join->length *= join->group->shape.dims[d];
    join->columns = kiln__group_is_of_columns(join->group);
    return reduces || is_of_one_run(join);
}

static bool is_over_rows(struct kiln__join *join, const struct kiln__node *root)
{
    const struct kiln__group *group = join->group;
    const struct kiln__shape visited = kiln__group_visited(group);
    const struct kiln__step *scan = kiln__group_scan(group);
    bool scans = root->kind == KILN__SCAN;
    join->full = kiln__shape_equal(&root->shape, &visited);
    if (kiln__node_goes_over_rows(root))
        return (scans ? !scan || scan->op == root->op : !kiln__reduce_rows[root->op].indexed) &&
               root->axes == join->axes &&
               kiln__shape_equal(&kiln__fuse_node(join->fuser, root->input[0])->shape, &visited);
    if (!kiln__node_is_pointwise(root))
        return false;
    if (join->full || kiln__fuse_is_per_result(group, join->kept, &root->shape))
        return true;
    join->full = kiln__fuse_reshape(group, &root->shape, true, &join->reshaped);
    return join->full || kiln__fuse_reshape(group, &root->shape, false, &join->reshaped);
}

static bool has_good_length(const struct kiln__join *join, const struct kiln__node *root)
{
    /* Of a row of one element, and of no rows, nobody could say whether the root is one for each
     * element. */
    if (kiln__group_scan(join->group) && kiln__node_is_pointwise(root))
        return join->length > 1 && kiln__shape_count(&join->group->shape) > 0;
    const struct kiln__shape visited = kiln__group_visited(join->group);
    const size_t longest = kiln__longest_row(&visited, join->axes);
    return kiln__group_reduces(join->group) ? join->length > 1 && join->length <= longest
                                            : join->length >= KILN__SHORTEST_MAPPED_ROW &&
                                                  join->length <= KILN__LONGEST_MAPPED_ROW;
}

/* Whether one kernel suits what the group has: one value per reduction, neighbours in memory. */
static bool join_rows_suits(const struct kiln__join *join)
{
    const struct kiln__group *group = join->group;
    bool suits = !group->stores.items[0].placed;
    for (size_t i = 0; i < group->steps.count; i++)
        suits = suits && (group->steps.items[i].kind != KILN__STEP_REDUCED ||
                          !kiln__reduce_rows[group->steps.items[i].op].indexed);
    for (size_t i = 0; i < group->accesses.count; i++)
        suits = suits && group->accesses.items[i].kind != KILN__ACCESS_GATHER &&
                kiln__fuse_runs_along_rows(join, &group->accesses.items[i]);
    return suits;
}

bool kiln__fuse_join_rows(struct kiln__join *join)
{
    const struct kiln__node *root = kiln__fuse_node(join->fuser, join->index);
    join->rows = true;
    uint32_t value = kiln__node_goes_over_rows(root) ? root->input[0] : join->index;
    return find_rows(join, root) && is_over_rows(join, root) && has_good_length(join, root) &&
           join_rows_suits(join) &&
           (!kiln__group_scan(join->group) || kiln__fuse_suits_scan(join->fuser, value));
}
