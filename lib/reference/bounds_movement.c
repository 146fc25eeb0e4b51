/* SPDX-License-Identifier: Apache-2.0 */
/* What is moved keeps its error. */
#include <math.h>

#include "reference/bounds_rules.h"

void kiln__bound_view(const struct kiln__bounding *walk, const struct kiln__node *node,
                      double *result)
{
    struct kiln__bounded x = kiln__bounded_operand(walk, node, 0);
    size_t index[KILN_MAX_RANK];
    for (size_t i = 0; i < kiln__node_count(node); i++) {
        kiln__shape_indices(&node->shape, i, index);
        result[i] =
            x.errors[kiln__view_number(&node->view, node->shape.rank, index, &x.node->shape)];
    }
}

void kiln__bound_insert_slice(const struct kiln__bounding *walk, const struct kiln__node *node,
                              double *result)
{
    struct kiln__bounded part = kiln__bounded_operand(walk, node, 0);
    size_t index[KILN_MAX_RANK];
    for (size_t i = 0; i < kiln__node_count(node); i++)
        result[i] = node->n_inputs > 1 ? kiln__bounded_operand(walk, node, 1).errors[i] : INFINITY;
    for (size_t i = 0; i < kiln__node_count(part.node); i++) {
        kiln__shape_indices(&part.node->shape, i, index);
        result[kiln__view_number(&node->view, part.node->shape.rank, index, &node->shape)] =
            part.errors[i];
    }
}

/* Whether the index that decides about element `number` may be another one on a device. */
static bool is_index_open(const struct kiln__node *node, const struct kiln__bounded *data,
                          const struct kiln__bounded *indices, size_t number)
{
    size_t inner = 1;
    for (uint32_t d = (uint32_t)node->axis + 1; d < data->node->shape.rank; d++)
        inner *= data->node->shape.dims[d];
    return indices->errors[number / inner % kiln__node_count(indices->node)] > 0;
}

void kiln__bound_gather(const struct kiln__bounding *walk, const struct kiln__node *node,
                        double *result)
{
    struct kiln__bounded data = kiln__bounded_operand(walk, node, 0),
                         indices = kiln__bounded_operand(walk, node, 1);
    for (size_t i = 0; i < kiln__node_count(node); i++) {
        size_t number =
            kiln__gathered_number(node, &data.node->shape, &indices.node->shape, indices.values, i);
        result[i] = number == SIZE_MAX ? 0 : data.errors[number];
        if (is_index_open(node, &data, &indices, i))
            result[i] = INFINITY;
    }
}

void kiln__bound_reshape(const struct kiln__bounding *walk, const struct kiln__node *node,
                         double *result)
{
    struct kiln__bounded x = kiln__bounded_operand(walk, node, 0);
    for (size_t i = 0; i < kiln__node_count(node); i++)
        result[i] = x.errors[i];
}
