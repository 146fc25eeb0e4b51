/* SPDX-License-Identifier: Apache-2.0 */
/* Transposed results of products and reductions: what follows them elementwise is done before the
 * transpose, where it runs in the kernel that makes the result: relu(transpose(a b)) becomes
 * transpose(relu(a b)). The transpose then meets the next view, as that of the next convolution
 * with channels first, and often is nothing together with it. Concatenations of such results are
 * lifted too. All else is folded. */
#include "rewrite/rewrite.h"

/* Of what an operand must at most have to be turned the other way: parameters, as a bias. */
#define SMALL 4

/* A view of all elements in another order of dimensions. */
static bool is_permutation(const struct kiln__rewrite *rewrite, const struct kiln__node *node)
{
    uint32_t seen = 0;
    bool moves = false;
    if (node->kind != KILN__VIEW ||
        node->shape.rank != kiln__rewrite_at(rewrite, node->input[0])->shape.rank)
        return false;
    for (uint32_t k = 0; k < node->shape.rank; k++) {
        int d = node->view.source[k];
        if (d < 0 || node->view.step[k] != 1 || node->view.start[k] ||
            node->shape.dims[k] != kiln__rewrite_at(rewrite, node->input[0])->shape.dims[d])
            return false;
        seen |= 1u << d;
        moves |= d != (int)k;
    }
    return moves && seen == (1u << node->shape.rank) - 1;
}

static bool is_same_order(const struct kiln__node *a, const struct kiln__node *b)
{
    bool same = a->shape.rank == b->shape.rank;
    for (uint32_t k = 0; same && k < a->shape.rank; k++)
        same = a->view.source[k] == b->view.source[k];
    return same;
}

/* Whether what follows the node can be computed where it is made. */
static bool takes_more(const struct kiln__node *node)
{
    return node->kind == KILN__MATMUL || node->kind == KILN__REDUCE ||
           node->kind == KILN__INSERT_SLICE || kiln__node_is_pointwise(node);
}

/* What the permutation `index` is of: below reshapes, where nobody else uses what is between. */
static const struct kiln__node *permuted(const struct kiln__rewrite *rewrite, uint32_t index)
{
    const struct kiln__node *node =
        kiln__rewrite_at(rewrite, kiln__rewrite_at(rewrite, index)->input[0]);
    bool once = rewrite->uses.items[index] <= 1;
    while (node->kind == KILN__RESHAPE && once) {
        index = kiln__rewrite_at(rewrite, index)->input[0];
        once = rewrite->uses.items[index] <= 1 && rewrite->uses.items[node->input[0]] <= 1;
        node = once ? kiln__rewrite_at(rewrite, node->input[0]) : node;
    }
    return node;
}

/* The operand, a permutation of what takes more, whose order the others have or can get; or
 * KILN__NO_NODE. */
static uint32_t find_order(const struct kiln__rewrite *rewrite, const struct kiln__node *node)
{
    for (unsigned i = 0; i < node->n_inputs; i++) {
        const struct kiln__node *operand = kiln__rewrite_at(rewrite, node->input[i]);
        if (kiln__shape_equal(&operand->shape, &node->shape) && is_permutation(rewrite, operand) &&
            takes_more(permuted(rewrite, node->input[i])))
            return node->input[i];
    }
    return KILN__NO_NODE;
}

bool kiln__rewrite_depends_on_inputs_only(const struct kiln__rewrite *rewrite,
                                          const struct kiln__node *node, unsigned deeper)
{
    while (kiln__node_is_movement(node))
        node = kiln__rewrite_at(rewrite, node->input[0]);
    if (!kiln__node_is_pointwise(node) || deeper == 0)
        return kiln__node_is_input(node) || node->kind == KILN__CONSTANT;
    bool all = true;
    for (unsigned i = 0; all && i < node->n_inputs; i++)
        all = kiln__rewrite_depends_on_inputs_only(
            rewrite, kiln__rewrite_at(rewrite, node->input[i]), deeper - 1);
    return all;
}

/* Whether dimensions of several elements keep their order: nothing is turned in memory. */
static bool leaves_order(const struct kiln__node *order)
{
    int last = -1;
    for (uint32_t k = 0; k < order->shape.rank; k++) {
        if (order->shape.dims[k] != 1 && order->view.source[k] < last)
            return false;
        if (order->shape.dims[k] != 1)
            last = order->view.source[k];
    }
    return true;
}

/* Whether the operand, turned the other way, can be walked in the dimensions of what is permuted,
 * which reshapes may lie below. */
static bool passes_reshapes(const struct kiln__rewrite *rewrite, uint32_t permutation,
                            const struct kiln__node *operand)
{
    const struct kiln__node *order = kiln__rewrite_at(rewrite, permutation);
    const struct kiln__shape *before = &kiln__rewrite_at(rewrite, order->input[0])->shape;
    const struct kiln__shape *below = &permuted(rewrite, permutation)->shape;
    const uint32_t shift = order->shape.rank - operand->shape.rank;
    int64_t own[KILN_MAX_RANK], turned[KILN_MAX_RANK] = {0};
    kiln__shape_strides(&operand->shape, own);
    for (uint32_t k = shift; k < order->shape.rank; k++)
        if (operand->shape.dims[k - shift] != 1)
            turned[order->view.source[k]] = own[k - shift];
    return kiln__shape_restride(before, turned, below, own);
}

static bool is_parameter(const struct kiln__rewrite *rewrite, uint32_t permutation,
                         const struct kiln__node *operand)
{
    const struct kiln__node *order = kiln__rewrite_at(rewrite, permutation);
    return (leaves_order(order) || kiln__node_count(operand) <= kiln__node_count(order) / SMALL) &&
           kiln__rewrite_depends_on_inputs_only(rewrite, operand, KILN__PARAMETER_DEPTH) &&
           passes_reshapes(rewrite, permutation, operand);
}

static bool can_lift(const struct kiln__rewrite *rewrite, const struct kiln__node *node,
                     uint32_t permutation)
{
    const struct kiln__node *order = kiln__rewrite_at(rewrite, permutation);
    for (unsigned i = 0; i < node->n_inputs; i++) {
        const struct kiln__node *operand = kiln__rewrite_at(rewrite, node->input[i]);
        bool turned = is_permutation(rewrite, operand) && is_same_order(operand, order);
        if (!turned && operand->kind != KILN__CONSTANT &&
            !is_parameter(rewrite, permutation, operand))
            return false;
    }
    return true;
}

/* The shape before the permutation that leads to `shape`. */
static struct kiln__shape shape_before(const struct kiln__node *order,
                                       const struct kiln__shape *shape)
{
    struct kiln__shape before = {.rank = shape->rank};
    for (uint32_t k = 0; k < shape->rank; k++)
        before.dims[order->view.source[k]] = shape->dims[k];
    return before;
}

/* An operand that broadcasts to the permutation's result, repeated to what is before it: as `sink`
 * would have it, so that both meet. */
static uint32_t turn_back(struct kiln__rewrite *rewrite, const struct kiln__node *order,
                          const struct kiln__shape *before, uint32_t index)
{
    const struct kiln__node operand = *kiln__rewrite_at(rewrite, index);
    const uint32_t rank = order->shape.rank, shift = rank - operand.shape.rank;
    struct kiln__node view = {.kind = KILN__VIEW, .op = order->op, .n_inputs = 1};
    view.type = operand.type;
    view.input[0] = index;
    view.shape = *before;
    for (uint32_t k = 0; k < rank; k++) {
        int d = order->view.source[k];
        bool has = k >= shift && operand.shape.dims[k - shift] != 1;
        view.view.source[d] = (int8_t)(has ? (int)(k - shift) : -1);
        view.view.step[d] = has;
    }
    return kiln__rewrite_fold(rewrite, &view);
}

static uint32_t lift_operand(struct kiln__rewrite *rewrite, const struct kiln__node *order,
                             const struct kiln__shape *before, uint32_t index)
{
    const struct kiln__node *operand = kiln__rewrite_at(rewrite, index);
    if (is_permutation(rewrite, operand) && is_same_order(operand, order))
        return operand->input[0];
    if (operand->kind != KILN__CONSTANT)
        return turn_back(rewrite, order, before, index);
    struct kiln__node constant = *operand;
    constant.shape = (struct kiln__shape){0};
    return kiln__rewrite_add(rewrite, &constant);
}

/* `node`, which stands before the permutation now, and the permutation. */
static uint32_t add_lifted(struct kiln__rewrite *rewrite, const struct kiln__node *node,
                           const struct kiln__node *order, const struct kiln__shape *shape)
{
    struct kiln__node view = *order;
    view.input[0] = kiln__rewrite_add(rewrite, node);
    view.type = node->type;
    view.shape = *shape;
    if (view.input[0] == KILN__NO_NODE)
        return KILN__NO_NODE;
    kiln__rewrite_log(rewrite, "done before a transpose");
    return kiln__rewrite_add(rewrite, &view);
}

static uint32_t lift_pointwise(struct kiln__rewrite *rewrite, const struct kiln__node *node,
                               const struct kiln__node *found)
{
    const struct kiln__node order = *found; /* `to` grows */
    struct kiln__node lifted = *node;
    lifted.shape = shape_before(&order, &node->shape);
    for (unsigned i = 0; i < node->n_inputs; i++) {
        lifted.input[i] = lift_operand(rewrite, &order, &lifted.shape, node->input[i]);
        if (lifted.input[i] == KILN__NO_NODE)
            return KILN__NO_NODE;
    }
    return add_lifted(rewrite, &lifted, &order, &node->shape);
}

/* ---- insertions ---- */

/* Whether the part is a result, part and base are permuted alike, and the insertion itself permutes
 * nothing. (What is only read is turned on the way into its place: nothing is left to lift.) */
static bool can_lift_insertion(const struct kiln__rewrite *rewrite, const struct kiln__node *node)
{
    const struct kiln__node *part = kiln__rewrite_at(rewrite, node->input[0]);
    if (!is_permutation(rewrite, part) || part->shape.rank != node->shape.rank ||
        !takes_more(kiln__rewrite_at(rewrite, part->input[0])))
        return false;
    for (uint32_t k = 0; k < node->shape.rank; k++)
        if (node->view.source[k] != (int)k)
            return false;
    const struct kiln__node *base =
        node->n_inputs > 1 ? kiln__rewrite_at(rewrite, node->input[1]) : NULL;
    return !base || base->kind == KILN__CONSTANT ||
           (is_permutation(rewrite, base) && is_same_order(base, part));
}

static uint32_t lift_insertion(struct kiln__rewrite *rewrite, const struct kiln__node *node)
{
    const struct kiln__node order = *kiln__rewrite_at(rewrite, node->input[0]);
    struct kiln__node lifted = *node;
    lifted.shape = shape_before(&order, &node->shape);
    lifted.input[0] = order.input[0];
    for (uint32_t k = 0; k < node->shape.rank; k++) {
        int d = order.view.source[k];
        lifted.view.source[d] = (int8_t)d;
        lifted.view.step[d] = node->view.step[k];
        lifted.view.start[d] = node->view.start[k];
    }
    if (node->n_inputs > 1) {
        struct kiln__node base = *kiln__rewrite_at(rewrite, node->input[1]);
        lifted.input[1] = base.input[0];
        if (base.kind == KILN__CONSTANT) {
            base.shape = lifted.shape;
            lifted.input[1] = kiln__rewrite_add(rewrite, &base);
        }
        if (lifted.input[1] == KILN__NO_NODE)
            return KILN__NO_NODE;
    }
    return add_lifted(rewrite, &lifted, &order, &node->shape);
}

/* A cast of what a product or an attention reads as narrow as it is: where it has to be put into
 * another order first, that is done as narrow, too. */
static bool is_read_narrow(const struct kiln__rewrite *rewrite, const struct kiln__node *node)
{
    return node->kind == KILN__CAST && rewrite->readers[rewrite->current] &&
           node->type == kiln__node_computed(kiln__rewrite_at(rewrite, node->input[0]));
}

uint32_t kiln__rewrite_lift(struct kiln__rewrite *rewrite, const struct kiln__node *node)
{
    uint32_t update;
    if (kiln__rewrite_lift_update(rewrite, node, &update))
        return update;
    if (node->kind == KILN__INSERT_SLICE && can_lift_insertion(rewrite, node))
        return lift_insertion(rewrite, node);
    uint32_t order = kiln__node_is_pointwise(node) && !is_read_narrow(rewrite, node)
                         ? find_order(rewrite, node)
                         : KILN__NO_NODE;
    return order != KILN__NO_NODE && can_lift(rewrite, node, order)
               ? lift_pointwise(rewrite, node, kiln__rewrite_at(rewrite, order))
               : kiln__rewrite_fold(rewrite, node);
}
