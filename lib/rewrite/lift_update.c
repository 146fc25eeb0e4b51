/* SPDX-License-Identifier: Apache-2.0 */
/* Rows that are put into a buffer come out of a reshape, as rotary's two halves do: what makes them
 * goes over the dimensions before it, so they would be stored and read again. The update is done in
 * these dimensions instead, and the buffer is reshaped, which moves nothing. */
#include "rewrite/rewrite.h"

#define MOST_CASTS 4 /* behind the reshape */

static const struct kiln__node *from_at(const struct kiln__rewrite *rewrite, uint32_t index)
{
    return &rewrite->from->nodes.items[index];
}

/* The reshape of what is computed for these values alone, node of `from`; or KILN__NO_NODE. */
static uint32_t find_reshape(const struct kiln__rewrite *rewrite, uint32_t index)
{
    for (unsigned casts = 0; casts < MOST_CASTS && from_at(rewrite, index)->kind == KILN__CAST &&
                             rewrite->from_uses[index] == 1;
         casts++)
        index = from_at(rewrite, index)->input[0];
    const uint32_t below = from_at(rewrite, index)->input[0];
    const bool found =
        from_at(rewrite, index)->kind == KILN__RESHAPE && rewrite->from_uses[index] == 1 &&
        kiln__node_is_pointwise(from_at(rewrite, below)) && rewrite->from_uses[below] == 1;
    return found ? index : KILN__NO_NODE;
}

/* `shape` with the dimensions that `values` got by the reshape as they were before it. False: the
 * axis is not among those that it leaves alone. */
static bool undo_reshape(const struct kiln__shape *before, const struct kiln__shape *values,
                         uint32_t axis, struct kiln__shape *shape)
{
    uint32_t same = 0;
    while (same < before->rank && same < values->rank && before->dims[same] == values->dims[same])
        same++;
    if (axis >= same || values->rank != shape->rank)
        return false;
    shape->rank = before->rank;
    for (uint32_t d = same; d < before->rank; d++)
        shape->dims[d] = before->dims[d];
    return true;
}

/* Node `index` of `from`, a cast or the reshape, as what is before the reshape. */
static uint32_t add_before(struct kiln__rewrite *rewrite, uint32_t index)
{
    struct kiln__node cast = *from_at(rewrite, index);
    if (cast.kind == KILN__RESHAPE)
        return rewrite->map[cast.input[0]];
    cast.input[0] = add_before(rewrite, cast.input[0]);
    if (cast.input[0] == KILN__NO_NODE)
        return KILN__NO_NODE;
    cast.shape = kiln__rewrite_at(rewrite, cast.input[0])->shape;
    return kiln__rewrite_add(rewrite, &cast);
}

static uint32_t add_reshape(struct kiln__rewrite *rewrite, uint32_t index,
                            const struct kiln__shape *shape)
{
    struct kiln__node node = {.kind = KILN__RESHAPE, .n_inputs = 1};
    if (index == KILN__NO_NODE)
        return KILN__NO_NODE;
    node.type = kiln__rewrite_at(rewrite, index)->type;
    node.input[0] = index;
    node.shape = *shape;
    return kiln__rewrite_fold(rewrite, &node);
}

bool kiln__rewrite_lift_update(struct kiln__rewrite *rewrite, const struct kiln__node *node,
                               uint32_t *result)
{
    if (node->kind != KILN__SCATTER || node->op != KILN__SCATTER_DISTINCT)
        return false;
    const uint32_t values = from_at(rewrite, rewrite->current)->input[KILN__SCATTER_VALUES];
    const uint32_t reshape = find_reshape(rewrite, values);
    struct kiln__node lifted = *node;
    if (reshape == KILN__NO_NODE ||
        !undo_reshape(&from_at(rewrite, from_at(rewrite, reshape)->input[0])->shape,
                      &from_at(rewrite, values)->shape, (uint32_t)node->axis, &lifted.shape))
        return false;
    const struct kiln__shape shape = node->shape; /* `to` grows */
    lifted.input[KILN__SCATTER_VALUES] = add_before(rewrite, values);
    lifted.input[KILN__SCATTER_BASE] =
        add_reshape(rewrite, lifted.input[KILN__SCATTER_BASE], &lifted.shape);
    const bool done = lifted.input[KILN__SCATTER_VALUES] != KILN__NO_NODE &&
                      lifted.input[KILN__SCATTER_BASE] != KILN__NO_NODE;
    kiln__rewrite_log(rewrite, "done before a reshape of what it puts there");
    *result =
        add_reshape(rewrite, done ? kiln__rewrite_add(rewrite, &lifted) : KILN__NO_NODE, &shape);
    return true;
}
