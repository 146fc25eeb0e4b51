/* SPDX-License-Identifier: Apache-2.0 */
/* Strided layouts of values behind movements and casts, and tests of them: dense, contiguous rows,
 * fit for a product. */
#include "fuse/layout.h"

static struct kiln__layout layout_of_view(const struct kiln__node *node,
                                          const struct kiln__node *input,
                                          const struct kiln__layout *below)
{
    struct kiln__layout layout = {.known = true, .base = below->base, .offset = below->offset};
    for (uint32_t d = 0; d < input->shape.rank; d++)
        layout.offset += node->view.start[d] * below->stride[d];
    for (uint32_t k = 0; k < node->shape.rank; k++)
        if (node->view.source[k] >= 0)
            layout.stride[k] = node->view.step[k] * below->stride[node->view.source[k]];
    return layout;
}

/* A cast of what lies in memory to what loads make of it anyway. */
static bool is_loaded_so(const struct kiln__graph *graph, const struct kiln__node *node,
                         const struct kiln__layout *layouts)
{
    if (node->kind != KILN__CAST || !layouts[node->input[0]].known)
        return false;
    return node->type == kiln__node_computed(kiln__graph_input(graph, node, 0)) &&
           graph->nodes.items[layouts[node->input[0]].base].kind != KILN__IOTA;
}

struct kiln__layout kiln__layout_of(const struct kiln__graph *graph, uint32_t index,
                                    const struct kiln__layout *layouts, bool in_memory)
{
    const struct kiln__node *node = &graph->nodes.items[index];
    bool found = in_memory || node->kind == KILN__IOTA;
    struct kiln__layout layout = {.known = found, .base = index};
    if (found) {
        kiln__shape_strides(&node->shape, layout.stride);
        return layout;
    }
    if (is_loaded_so(graph, node, layouts))
        return layouts[node->input[0]];
    if (!kiln__node_is_movement(node) || !layouts[node->input[0]].known)
        return layout;
    const struct kiln__node *input = kiln__graph_input(graph, node, 0);
    const struct kiln__layout *below = &layouts[node->input[0]];
    if (node->kind == KILN__VIEW)
        return layout_of_view(node, input, below);
    layout = (struct kiln__layout){.base = below->base, .offset = below->offset};
    layout.known = kiln__shape_restride(&input->shape, below->stride, &node->shape, layout.stride);
    return layout;
}

bool kiln__layout_is_dense(const struct kiln__layout *layout, const struct kiln__shape *shape)
{
    int64_t stride[KILN_MAX_RANK];
    bool same = layout->known;
    kiln__shape_strides(shape, stride);
    for (uint32_t d = 0; d < shape->rank; d++)
        same = same && (shape->dims[d] == 1 || layout->stride[d] == stride[d]);
    return same;
}

bool kiln__layout_has_rows(const struct kiln__layout *layout, const struct kiln__shape *shape)
{
    const uint32_t last = shape->rank - 1;
    bool rows = layout->known && layout->offset % KILN__ROWS_START == 0 &&
                (layout->stride[last] == 1 || shape->dims[last] == 1) &&
                (layout->stride[last - 1] > 0 || shape->dims[last - 1] == 1);
    for (uint32_t d = 0; d < last; d++)
        rows = rows && layout->stride[d] % KILN__ROWS_START == 0;
    return rows || (kiln__layout_is_dense(layout, shape) && layout->offset == 0);
}

bool kiln__layout_suits_matmul(const struct kiln__layout *layout, const struct kiln__shape *shape)
{
    return layout->known && kiln__shape_suits_matmul(shape, layout->stride);
}
