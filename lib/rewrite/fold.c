/* SPDX-License-Identifier: Apache-2.0 */
/* Constants are computed at planning time; movements of movements become one; operations that
 * change nothing go away. Only rewrites that keep every bit. */
#include <string.h>

#include "graph/row_limits.h"
#include "rewrite/rewrite.h"

static const struct kiln__node *input_of(const struct kiln__rewrite *rewrite,
                                         const struct kiln__node *node, unsigned i)
{
    return kiln__graph_input(rewrite->to, node, i);
}

static bool all_inputs_constant(const struct kiln__rewrite *rewrite, const struct kiln__node *node)
{
    bool constant = node->n_inputs > 0;
    for (unsigned i = 0; i < node->n_inputs; i++)
        constant = constant && input_of(rewrite, node, i)->kind == KILN__CONSTANT;
    return constant;
}

/* The value of a pointwise operation over constants, as the device has it. */
static double constant_value(const struct kiln__rewrite *rewrite, const struct kiln__node *node)
{
    double operand[3] = {0};
    const kiln_type last = input_of(rewrite, node, node->n_inputs - 1u)->type;
    for (unsigned i = 0; i < node->n_inputs; i++)
        operand[i] = input_of(rewrite, node, i)->value;
    double value =
        node->kind == KILN__ELEMENTWISE
            ? kiln__elementwise_value((enum kiln__elementwise)node->op, last, operand)
            : kiln__value_cast(last, node->type, operand[0], node->op == KILN__CAST_SATURATED);
    return kiln__node_is_floating(node) ? kiln__type_round(node->type, value) : value;
}

static uint32_t fold_constant(struct kiln__rewrite *rewrite, const struct kiln__node *node)
{
    struct kiln__node constant = {.kind = KILN__CONSTANT, .type = node->type, .shape = node->shape};
    if (kiln__node_is_movement(node))
        constant.value = input_of(rewrite, node, 0)->value;
    else if (kiln__node_is_pointwise(node))
        constant.value = constant_value(rewrite, node);
    else
        return kiln__rewrite_add(rewrite, node);
    kiln__rewrite_log(rewrite, "folded to the constant %s",
                      kiln__value_text(node->type, constant.value).text);
    return kiln__rewrite_add(rewrite, &constant);
}

/* The view `outer` of the view `inner` as a view of inner's input. */
static struct kiln__view compose(const struct kiln__node *outer, const struct kiln__node *inner,
                                 uint32_t input_rank)
{
    struct kiln__view view = {0};
    const struct kiln__view *a = &outer->view, *b = &inner->view;
    for (uint32_t d = 0; d < input_rank; d++)
        view.start[d] = b->start[d];
    for (uint32_t k = 0; k < inner->shape.rank; k++)
        if (b->source[k] >= 0)
            view.start[b->source[k]] += b->step[k] * a->start[k];
    for (uint32_t k = 0; k < outer->shape.rank; k++) {
        int middle = a->source[k];
        int source = middle >= 0 ? b->source[middle] : -1;
        view.source[k] = (int8_t)source;
        view.step[k] = source >= 0 ? a->step[k] * b->step[middle] : 0;
    }
    return view;
}

/* Where the view shows exactly the part of an insertion, or nothing of it, what it shows instead.
 */
static bool see_through(const struct kiln__rewrite *rewrite, struct kiln__node *view)
{
    const struct kiln__node *insertion = input_of(rewrite, view, 0);
    const struct kiln__node *part = input_of(rewrite, insertion, 0);
    struct kiln__box seen = kiln__rewrite_box(&view->view, &view->shape, insertion->shape.rank),
                     placed =
                         kiln__rewrite_box(&insertion->view, &part->shape, insertion->shape.rank);
    if (insertion->n_inputs > 1 && !kiln__rewrite_boxes_overlap(&seen, &placed)) {
        view->input[0] = kiln__rewrite_skip_links(rewrite, insertion->input[1], &seen);
        return true;
    }
    if (memcmp(&view->view, &insertion->view, sizeof view->view) ||
        !kiln__shape_equal(&view->shape, &part->shape))
        return false;
    view->input[0] = insertion->input[0];
    view->view = kiln__view_straight(part->shape.rank);
    return true;
}

static void compose_below(struct kiln__rewrite *rewrite, struct kiln__node *view)
{
    const struct kiln__node *input = input_of(rewrite, view, 0);
    view->view = compose(view, input, input_of(rewrite, input, 0)->shape.rank);
    view->op = KILN__VIEW_COMPOSED;
    view->input[0] = input->input[0];
    kiln__rewrite_log(rewrite, "one view with the view below it");
}

static uint32_t fold_view(struct kiln__rewrite *rewrite, const struct kiln__node *node)
{
    struct kiln__node view = *node;
    for (bool changed = true; changed;) {
        enum kiln__kind below = input_of(rewrite, &view, 0)->kind;
        changed = false;
        if (below == KILN__VIEW) {
            compose_below(rewrite, &view);
            changed = true;
        } else if (below == KILN__INSERT_SLICE && see_through(rewrite, &view)) {
            kiln__rewrite_log(rewrite, "reads what was placed, or what was not placed over");
            changed = true;
        }
    }
    if (!kiln__view_is_identity(&view.view, &view.shape, &input_of(rewrite, &view, 0)->shape))
        return kiln__rewrite_add(rewrite, &view);
    kiln__rewrite_log(rewrite, "changes nothing");
    return view.input[0];
}

/* Nothing placed, or all of the result. */
static uint32_t fold_insertion(struct kiln__rewrite *rewrite, const struct kiln__node *node)
{
    const struct kiln__node *part = input_of(rewrite, node, 0);
    struct kiln__node insertion = *node;
    if (kiln__view_is_identity(&node->view, &part->shape, &node->shape))
        return node->input[0];
    if (node->n_inputs > 1 && kiln__node_count(part) == 0)
        return node->input[1];
    if (kiln__node_count(part) == kiln__node_count(node))
        insertion.n_inputs = 1; /* it covers the base */
    return kiln__rewrite_add(rewrite, &insertion);
}

static uint32_t fold_reshape(struct kiln__rewrite *rewrite, const struct kiln__node *node)
{
    struct kiln__node reshape = *node;
    while (input_of(rewrite, &reshape, 0)->kind == KILN__RESHAPE)
        reshape.input[0] = input_of(rewrite, &reshape, 0)->input[0];
    if (!kiln__shape_equal(&reshape.shape, &input_of(rewrite, &reshape, 0)->shape))
        return kiln__rewrite_add(rewrite, &reshape);
    kiln__rewrite_log(rewrite, "changes nothing");
    return reshape.input[0];
}

/* Dimensions of 1 behind the first that is reduced are reduced, too, where the rows are the last
 * dimensions then: their kernels are others than those of rows that lie in pieces. */
static uint32_t fold_reduction(struct kiln__rewrite *rewrite, const struct kiln__node *node)
{
    const struct kiln__shape *shape = &input_of(rewrite, node, 0)->shape;
    const uint32_t rank = shape->rank;
    uint32_t first = 0;
    while (first < rank && !(node->axes >> first & 1))
        first++;
    const uint64_t rows = ((uint64_t)1 << rank) - ((uint64_t)1 << first);
    if (node->axes == rows || !kiln__axes_are_innermost(shape, node->axes))
        return kiln__rewrite_add(rewrite, node);
    struct kiln__node reduction = *node;
    reduction.axes = rows;
    reduction.shape = (struct kiln__shape){.rank = first};
    memcpy(reduction.shape.dims, shape->dims, first * sizeof *shape->dims);
    struct kiln__node reshape = {
        .kind = KILN__RESHAPE, .type = node->type, .shape = node->shape, .n_inputs = 1};
    reshape.input[0] = kiln__rewrite_add(rewrite, &reduction);
    if (reshape.input[0] == KILN__NO_NODE)
        return KILN__NO_NODE;
    rewrite->uses.items[reshape.input[0]]++;
    kiln__rewrite_log(rewrite, "goes along dimensions of 1, too");
    return kiln__rewrite_add(rewrite, &reshape);
}

/* x * 1, and a cast to the type that x has. */
static bool pointwise_is_identity(const struct kiln__rewrite *rewrite,
                                  const struct kiln__node *node, unsigned *operand)
{
    *operand = 0;
    if (node->kind == KILN__CAST)
        return input_of(rewrite, node, 0)->type == node->type;
    if (node->op != KILN__OP_mul)
        return false;
    for (unsigned i = 0; i < 2; i++) {
        const struct kiln__node *factor = input_of(rewrite, node, i);
        *operand = 1 - i;
        if (factor->kind == KILN__CONSTANT &&
            kiln__value_number(factor->type, factor->value) == 1 &&
            kiln__shape_equal(&input_of(rewrite, node, *operand)->shape, &node->shape))
            return true;
    }
    return false;
}

uint32_t kiln__rewrite_fold(struct kiln__rewrite *rewrite, const struct kiln__node *node)
{
    unsigned operand;
    if (all_inputs_constant(rewrite, node))
        return fold_constant(rewrite, node);
    if (node->kind == KILN__VIEW)
        return fold_view(rewrite, node);
    if (node->kind == KILN__RESHAPE)
        return fold_reshape(rewrite, node);
    if (node->kind == KILN__INSERT_SLICE)
        return fold_insertion(rewrite, node);
    if (node->kind == KILN__REDUCE)
        return fold_reduction(rewrite, node);
    if (kiln__node_is_pointwise(node) && pointwise_is_identity(rewrite, node, &operand)) {
        kiln__rewrite_log(rewrite, "changes nothing");
        return node->input[operand];
    }
    return kiln__rewrite_add(rewrite, node);
}
