/* SPDX-License-Identifier: Apache-2.0 */
/* Adjoints of operations that move elements. */
#include <kiln/movement.h>
#include <kiln/reductions.h>

#include "api/gradient.h"

void kiln__adjoint_reshape(struct kiln__gradient *walk, const struct kiln__node *node,
                           kiln_tensor y, kiln_tensor g)
{
    struct kiln__shape shape = kiln__gradient_shape(walk, kiln__gradient_operand(walk, node, 0));
    (void)y;
    kiln__gradient_give(walk, node->input[0], kiln_reshape(walk->batch, g, shape.rank, shape.dims));
}

/* ---- views ---- */

/* A view and the gradient that arrives at it, taken back one property after another until it is
 * the input's. */
struct unview {
    kiln_batch *batch;
    struct kiln__shape shape; /* of g */
    struct kiln__view view;
    kiln_tensor g;
};

/* Repetitions are summed: dimensions that come from nowhere go away. */
static void sum_repetitions(struct unview *u)
{
    int axes[KILN_MAX_RANK];
    size_t count = 0;
    struct kiln__shape kept = {0};
    struct kiln__view view = u->view;
    for (uint32_t k = 0; k < u->shape.rank; k++) {
        if (u->view.source[k] < 0 || u->view.step[k] == 0) {
            axes[count++] = (int)k;
            continue;
        }
        view.source[kept.rank] = u->view.source[k];
        view.step[kept.rank] = u->view.step[k];
        kept.dims[kept.rank++] = u->shape.dims[k];
    }
    if (count)
        u->g = kiln_sum(u->batch, u->g, count, axes, 0);
    u->shape = kept;
    u->view = view;
}

/* Dimensions in the input's order, one for each of the input's: those that the view does not run
 * along have 1. */
static void restore_order(struct unview *u, const struct kiln__shape *to)
{
    size_t order[KILN_MAX_RANK], count = 0;
    bool moved = false;
    struct kiln__shape full = {.rank = to->rank};
    struct kiln__view view = {0};
    for (uint32_t d = 0; d < to->rank; d++) {
        full.dims[d] = 1;
        view.source[d] = (int8_t)d;
        view.step[d] = 1;
        view.start[d] = u->view.start[d];
        for (uint32_t k = 0; k < u->shape.rank; k++) {
            if (u->view.source[k] != (int)d)
                continue;
            moved |= k != count;
            order[count++] = k;
            full.dims[d] = u->shape.dims[k];
            view.step[d] = u->view.step[k];
        }
    }
    if (moved)
        u->g = kiln_transpose(u->batch, u->g, order);
    u->g = kiln_reshape(u->batch, u->g, full.rank, full.dims);
    u->shape = full;
    u->view = view;
}

static bool is_whole(const struct unview *u, const struct kiln__shape *to)
{
    for (uint32_t d = 0; d < to->rank; d++)
        if (u->view.step[d] != 1 || u->shape.dims[d] != to->dims[d])
            return false;
    return true;
}

void kiln__adjoint_view(struct kiln__gradient *walk, const struct kiln__node *node, kiln_tensor y,
                        kiln_tensor g)
{
    struct unview u = {walk->batch, node->shape, node->view, g};
    struct kiln__shape to = kiln__gradient_shape(walk, kiln__gradient_operand(walk, node, 0));
    (void)y;
    if (kiln__node_count(node) == 0)
        return; /* nothing was taken */
    sum_repetitions(&u);
    restore_order(&u, &to);
    if (is_whole(&u, &to))
        kiln__gradient_give(walk, node->input[0], u.g);
    else
        kiln__fail(&walk->batch->error, KILN_UNSUPPORTED,
                   "%s: the loss depends on an input through %s, which has no derivative",
                   walk->call, kiln__node_name(node));
}
