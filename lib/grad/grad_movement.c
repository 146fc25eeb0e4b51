/* SPDX-License-Identifier: Apache-2.0 */
/* Adjoints of operations that move elements. */
#include <kiln/movement.h>
#include <kiln/reductions.h>

#include "grad/gradient.h"

void kiln__adjoint_reshape(struct kiln__gradient *walk, const struct kiln__node *node,
                           kiln_tensor y, kiln_tensor g)
{
    struct kiln__shape shape = kiln__gradient_shape(walk, kiln__gradient_operand(walk, node, 0));
    (void)y;
    kiln__gradient_accumulate(walk, node->input[0],
                              kiln_reshape(walk->batch, g, shape.rank, shape.dims));
}

static kiln_tensor record_view(kiln_batch *batch, kiln_tensor x, const struct kiln__shape *shape,
                               const struct kiln__view *view)
{
    if (batch->error.status)
        return (kiln_tensor){0};
    struct kiln__node node = {.kind = KILN__VIEW,
                              .op = KILN__VIEW_COMPOSED,
                              .type = KILN_F32,
                              .n_inputs = 1,
                              .shape = *shape,
                              .view = *view};
    node.input[0] = kiln__tensor_index(x);
    return kiln__batch_record(batch, &node, "kiln_grad");
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

/* Whether dimension k has one element, of a dimension of the input that another one runs along. */
static bool is_diagonal(const struct unview *u, uint32_t k)
{
    for (uint32_t j = 0; j < u->shape.rank && u->shape.dims[k] == 1; j++)
        if (j != k && u->view.source[j] == u->view.source[k] && (u->shape.dims[j] != 1 || j < k))
            return true;
    return false;
}

/* Windows of a single element are none. */
static void drop_single_windows(struct unview *u)
{
    struct kiln__shape kept = {0};
    struct kiln__view view = u->view;
    for (uint32_t k = 0; k < u->shape.rank; k++) {
        if (is_diagonal(u, k))
            continue;
        view.source[kept.rank] = u->view.source[k];
        view.step[kept.rank] = u->view.step[k];
        kept.dims[kept.rank++] = u->shape.dims[k];
    }
    if (kept.rank < u->shape.rank)
        u->g = kiln_reshape(u->batch, u->g, kept.rank, kept.dims);
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

/* What the view left out gets zeros. */
static kiln_tensor fill_up(const struct unview *u, const struct kiln__shape *to)
{
    if (is_whole(u, to))
        return u->g;
    kiln_tensor zeros = kiln_fill(u->batch, KILN_F32, to->rank, to->dims, 0);
    return kiln_insert_slice(u->batch, zeros, u->g, u->view.start, u->view.step);
}

/* ---- windows ---- */

/* Two dimensions of the view that run along the same one of the input: `along` the windows, and
 * `within` one of them. */
static bool find_windows(const struct unview *u, uint32_t *along, uint32_t *within)
{
    for (uint32_t j = 0; j < u->shape.rank; j++)
        for (uint32_t k = j + 1; k < u->shape.rank; k++) {
            if (u->view.source[j] != u->view.source[k])
                continue;
            bool first = u->shape.dims[j] < u->shape.dims[k];
            *along = first ? k : j;
            *within = first ? j : k;
            return true;
        }
    return false;
}

/* Move dimensions `within` and `along` to the end. */
static void move_windows_last(struct unview *u, uint32_t along, uint32_t within)
{
    size_t order[KILN_MAX_RANK];
    uint32_t rank = u->shape.rank, count = 0;
    struct unview moved = *u;
    for (uint32_t k = 0; k < rank; k++)
        if (k != along && k != within)
            order[count++] = k;
    order[count++] = within;
    order[count++] = along;
    for (uint32_t k = 0; k < rank; k++) {
        moved.shape.dims[k] = u->shape.dims[order[k]];
        moved.view.source[k] = u->view.source[order[k]];
        moved.view.step[k] = u->view.step[order[k]];
    }
    moved.g = kiln_transpose(u->batch, u->g, order);
    *u = moved;
}

/* Windows side by side are the input's dimension, cut into pieces: they are joined where the
 * windows run, so that what lies together stays together. */
static bool join_tiles(struct unview *u, uint32_t along, uint32_t within)
{
    size_t order[KILN_MAX_RANK];
    struct unview joined = *u;
    if (u->view.step[along] != u->view.step[within] * (int64_t)u->shape.dims[within])
        return false;
    joined.shape.rank = 0;
    for (uint32_t k = 0, count = 0; k < u->shape.rank; k++) {
        if (k == within)
            continue;
        const uint32_t at = joined.shape.rank++;
        order[count++] = k;
        if (k == along)
            order[count++] = within;
        joined.shape.dims[at] = u->shape.dims[k] * (k == along ? u->shape.dims[within] : 1);
        joined.view.source[at] = u->view.source[k];
        joined.view.step[at] = u->view.step[k == along ? within : k];
    }
    joined.g = kiln_reshape(u->batch, kiln_transpose(u->batch, u->g, order), joined.shape.rank,
                            joined.shape.dims);
    *u = joined;
    return true;
}

/* Element g[.., j, i] came from the input's element x = start + j * within + i * along. Each j gets
 * a row in which g[.., j, i] is put at place x - j * within, among zeros. The input's gradient at x
 * is then the sum over j of that place of row j, whatever `along` is: a view, since rows lie one
 * behind the other, and what is beyond one end of a row is a zero: rows are that much longer than
 * the input. No two elements are added up in one memory. */
static kiln_tensor put_into_rows(const struct unview *u, size_t length, int64_t first)
{
    const uint32_t rank = u->shape.rank, last = rank - 1;
    struct kiln__shape shape = u->shape;
    int64_t start[KILN_MAX_RANK] = {0}, step[KILN_MAX_RANK];
    for (uint32_t k = 0; k < rank; k++)
        step[k] = 1;
    start[last] = first;
    step[last] = u->view.step[last];
    shape.dims[last] = length;
    kiln_tensor zeros = kiln_fill(u->batch, KILN_F32, rank, shape.dims, 0);
    kiln_tensor rows = kiln_insert_slice(u->batch, zeros, u->g, start, step);
    shape.dims[last - 1] *= length;
    return kiln_reshape(u->batch, rows, rank - 1, shape.dims);
}

/* Join the last two dimensions, windows over the input's dimension of `extent`, to that one. */
static void sum_windows(struct unview *u, size_t extent)
{
    const uint32_t last = u->shape.rank - 1, row = last - 1;
    const int64_t within = u->view.step[row];
    const int64_t reach = within * ((int64_t)u->shape.dims[row] - 1);
    const size_t length = extent + (size_t)(reach < 0 ? -reach : reach);
    const int8_t d = u->view.source[last];
    kiln_tensor rows = put_into_rows(u, length, u->view.start[d]);

    struct kiln__shape shape = u->shape;
    struct kiln__view view = {0};
    for (uint32_t k = 0; k <= last; k++) {
        view.source[k] = (int8_t)(k < last ? k : row);
        view.step[k] = 1;
    }
    view.step[row] = (int64_t)length - within;
    shape.dims[last] = extent;
    u->g = kiln_sum(u->batch, record_view(u->batch, rows, &shape, &view), 1, (int[]){(int)row}, 0);
    u->shape.rank = last;
    u->shape.dims[row] = extent;
    u->view.source[row] = d;
    u->view.step[row] = 1;
    u->view.start[d] = 0;
}

void kiln__adjoint_view(struct kiln__gradient *walk, const struct kiln__node *node, kiln_tensor y,
                        kiln_tensor g)
{
    struct unview u = {walk->batch, node->shape, node->view, g};
    struct kiln__shape to = kiln__gradient_shape(walk, kiln__gradient_operand(walk, node, 0));
    uint32_t first, second;
    (void)y;
    if (kiln__node_count(node) == 0)
        return; /* nothing was taken */
    sum_repetitions(&u);
    drop_single_windows(&u);
    while (!u.batch->error.status && find_windows(&u, &first, &second)) {
        if (join_tiles(&u, first, second) || join_tiles(&u, second, first))
            continue;
        move_windows_last(&u, first, second);
        sum_windows(&u, to.dims[u.view.source[u.shape.rank - 1]]);
    }
    restore_order(&u, &to);
    kiln__gradient_accumulate(walk, node->input[0], fill_up(&u, &to));
}

/* ---- places ---- */

/* The part gets what stands in its place; the base what is left, zeros there. */
void kiln__adjoint_insert_slice(struct kiln__gradient *walk, const struct kiln__node *node,
                                kiln_tensor y, kiln_tensor g)
{
    kiln_batch *batch = walk->batch;
    struct kiln__shape part = kiln__gradient_shape(walk, kiln__gradient_operand(walk, node, 0));
    (void)y;
    if (kiln__gradient_wants(walk, node->input[0]) && kiln__shape_count(&part))
        kiln__gradient_accumulate(walk, node->input[0], record_view(batch, g, &part, &node->view));
    if (node->n_inputs < 2 || !kiln__gradient_wants(walk, node->input[1]))
        return;
    struct kiln__node left = *node;
    left.type = KILN_F32; /* the place may be of a narrower type */
    kiln_tensor zeros = kiln_fill(batch, KILN_F32, part.rank, part.dims, 0);
    left.input[0] = kiln__tensor_index(zeros);
    left.input[1] = kiln__tensor_index(g);
    if (!batch->error.status)
        kiln__gradient_accumulate(walk, node->input[1],
                                  kiln__batch_record(batch, &left, walk->call));
}
