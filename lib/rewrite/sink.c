/* SPDX-License-Identifier: Apache-2.0 */
/* Movements sink below elementwise operations, down to where elements are loaded: there a stride
 * says them, and the operations above fuse. transpose(a + b) becomes transpose(a) + transpose(b).
 * So do gathers that take less of a table than it has: what is gathered is computed, not all rows
 * of the table. */
#include "rewrite/rewrite.h"

#include <string.h>

#include "graph/row_limits.h"

/* Above this cost a value is not computed twice, nor once per repetition. */
#define CHEAP 2

/* Operations that a gather looks through for what it is of. */
#define LOOKED_THROUGH 4

/* A kernel holds no more operations anyway, and the rule calls itself. */
#define DEEPEST 64

static unsigned cost_of(const struct kiln__node *node)
{
    return node->kind == KILN__ELEMENTWISE ? kiln__elementwise_rows[node->op].cost : 1;
}

/* Such a result has its shape from constants, which lose theirs where a movement meets them. It is
 * there at all because folding it would not wrap around as devices do. */
static bool only_constants(const struct kiln__rewrite *rewrite, const struct kiln__node *node)
{
    for (unsigned i = 0; i < node->n_inputs; i++)
        if (kiln__graph_input(rewrite->to, node, i)->kind != KILN__CONSTANT)
            return false;
    return true;
}

/* Whether the elementwise result `index` is computed in a product's kernel, from the product, which
 * nobody else uses, and parameters: moved, it would be in a kernel of its own. */
static bool follows_product(const struct kiln__rewrite *rewrite, uint32_t index)
{
    for (unsigned depth = 0; depth < KILN__PARAMETER_DEPTH; depth++) {
        const struct kiln__node *node = kiln__rewrite_at(rewrite, index);
        uint32_t followed = KILN__NO_NODE;
        for (unsigned i = 0; i < node->n_inputs; i++) {
            const struct kiln__node *operand = kiln__graph_input(rewrite->to, node, i);
            if (kiln__rewrite_depends_on_inputs_only(rewrite, operand, KILN__PARAMETER_DEPTH))
                continue;
            if (followed != KILN__NO_NODE || rewrite->uses.items[node->input[i]] > 1 ||
                !kiln__shape_equal(&operand->shape, &node->shape))
                return false;
            followed = node->input[i];
        }
        if (followed == KILN__NO_NODE)
            return false;
        const struct kiln__node *next = kiln__rewrite_at(rewrite, followed);
        if (!kiln__node_is_pointwise(next))
            return next->kind == KILN__MATMUL;
        index = followed;
    }
    return false;
}

/* Dimensions of which a view shows one element, and the others whole; 0 if it shows anything else.
 */
static uint64_t shows_one_along(const struct kiln__node *node, const struct kiln__node *input)
{
    uint64_t axes = 0;
    if (node->kind != KILN__VIEW || node->shape.rank != input->shape.rank)
        return 0;
    for (uint32_t d = 0; d < node->shape.rank; d++) {
        const size_t dim = node->shape.dims[d], all = input->shape.dims[d];
        bool shows_all = node->view.source[d] == (int)d && dim == all;
        if (dim != 1 && !shows_all)
            return 0;
        axes |= (uint64_t)(all > 1 && dim == 1) << d;
    }
    return axes;
}

static size_t length_along(const struct kiln__shape *shape, uint64_t axes)
{
    size_t length = 1;
    for (uint32_t d = 0; d < shape->rank; d++)
        length *= axes >> d & 1 ? shape->dims[d] : 1;
    return length;
}

/* Whether the reduction goes over all of `shape` along the dimensions, in a kernel that goes on
 * with what it comes to: those of positions do not. */
static bool goes_over(const struct kiln__rewrite *rewrite, const struct kiln__node *reduction,
                      const struct kiln__shape *shape, uint64_t axes)
{
    uint64_t gone = reduction->axes;
    if (reduction->kind != KILN__REDUCE || kiln__reduce_rows[reduction->op].indexed ||
        !kiln__shape_equal(&rewrite->to->nodes.items[reduction->input[0]].shape, shape))
        return false;
    for (uint32_t d = 0; d < shape->rank; d++)
        gone &= ~((uint64_t)(shape->dims[d] == 1) << d);
    return gone == axes;
}

/* Whether the elementwise result `index` is made of what `shape` comes to along the dimensions: the
 * kernel that goes over these goes on with it. */
static bool follows_reduction(const struct kiln__rewrite *rewrite, uint32_t index,
                              const struct kiln__shape *shape, uint64_t axes, unsigned deeper)
{
    const struct kiln__node *node = kiln__rewrite_at(rewrite, index);
    bool follows = goes_over(rewrite, node, shape, axes);
    if (deeper && (kiln__node_is_pointwise(node) || kiln__node_is_movement(node)))
        for (unsigned i = 0; i < node->n_inputs && !follows; i++)
            follows = follows_reduction(rewrite, node->input[i], shape, axes, deeper - 1);
    return follows;
}

/* Whether the view shows one element of each row that one kernel goes over, once it is computed or
 * to compute it. One element is cheap, whatever it costs. */
static bool shows_one_of_row(const struct kiln__rewrite *rewrite, const struct kiln__node *node)
{
    const struct kiln__node *input = kiln__graph_input(rewrite->to, node, 0);
    const uint64_t axes = shows_one_along(node, input);
    const size_t length = length_along(&input->shape, axes);
    if (!axes)
        return false;
    if (kiln__axes_are_innermost(&input->shape, axes) && length >= KILN__SHORTEST_MAPPED_ROW &&
        length <= KILN__LONGEST_MAPPED_ROW)
        return true;
    return length <= kiln__longest_row(&input->shape, axes) &&
           follows_reduction(rewrite, node->input[0], &input->shape, axes, KILN__PARAMETER_DEPTH);
}

/* Whether the elementwise result `index` is made of a product that nobody else uses: it is computed
 * with that, and then lies in memory. */
static bool comes_with_product(const struct kiln__rewrite *rewrite, uint32_t index, unsigned deeper)
{
    const struct kiln__node *node = kiln__rewrite_at(rewrite, index);
    bool comes = false;
    if (!kiln__node_is_pointwise(node) || deeper == 0)
        return node->kind == KILN__MATMUL && rewrite->uses.items[index] <= 1;
    for (unsigned i = 0; i < node->n_inputs && !comes; i++)
        comes = kiln__shape_equal(&kiln__graph_input(rewrite->to, node, i)->shape, &node->shape) &&
                comes_with_product(rewrite, node->input[i], deeper - 1);
    return comes;
}

/* What moves is the f32 that blocks are read as: such a cast is a load wherever it is
 * (fuse/layout.c).
 */
static bool is_cast_of_blocks(const struct kiln__rewrite *rewrite, const struct kiln__node *node)
{
    return node->kind == KILN__CAST &&
           kiln__node_has_blocks(kiln__graph_input(rewrite->to, node, 0));
}

/* A use beyond this one, or a repetition, computes the input again. What a matrix product reads is
 * in memory anyway, and it reads a transposed matrix as fast as a plain one. */
static bool worth_sinking(const struct kiln__rewrite *rewrite, const struct kiln__node *node)
{
    const struct kiln__node *input = kiln__graph_input(rewrite->to, node, 0);
    const uint8_t readers = rewrite->readers[rewrite->current];
    if (!kiln__node_is_pointwise(input) || only_constants(rewrite, input) ||
        is_cast_of_blocks(rewrite, input))
        return false;
    if (!(readers & KILN__READ_ONCE_COPIED) &&
        (readers || follows_product(rewrite, node->input[0])))
        return false;
    if (shows_one_of_row(rewrite, node))
        return !comes_with_product(rewrite, node->input[0], KILN__PARAMETER_DEPTH);
    bool once = rewrite->uses.items[node->input[0]] <= 1 &&
                kiln__node_count(node) <= kiln__node_count(input);
    return once || cost_of(input) <= CHEAP;
}

/* The part of `view`, a view of an elementwise result of `result_rank` dimensions, that falls on
 * one of its operands. Dimensions that the operand repeats stay repeated. */
static struct kiln__view operand_view(const struct kiln__node *node,
                                      const struct kiln__node *result,
                                      const struct kiln__node *operand)
{
    struct kiln__view view = {0};
    int shift = (int)(result->shape.rank - operand->shape.rank);
    for (uint32_t d = 0; d < operand->shape.rank; d++)
        if (operand->shape.dims[d] != 1)
            view.start[d] = node->view.start[(int)d + shift];
    for (uint32_t k = 0; k < node->shape.rank; k++) {
        int d = node->view.source[k] - shift;
        bool moves = node->view.source[k] >= 0 && d >= 0 && operand->shape.dims[d] != 1;
        view.source[k] = (int8_t)(moves ? d : -1);
        view.step[k] = moves ? node->view.step[k] : 0;
    }
    return view;
}

/* Whether a view has an element of its operand more than once, along a dimension. */
static bool repeats(const struct kiln__node *node)
{
    for (uint32_t k = 0; node->kind == KILN__VIEW && k < node->shape.rank; k++)
        if (node->shape.dims[k] > 1 && (node->view.source[k] < 0 || node->view.step[k] == 0))
            return true;
    return false;
}

/* Whether a reshape sinks below the node, to all of its operands: where it met one that repeats,
 * at once or further down, it would stay between two operations, which then do not fuse. */
static bool reshape_sinks(const struct kiln__rewrite *rewrite, const struct kiln__node *node,
                          unsigned deeper)
{
    bool sinks = true;
    for (unsigned i = 0; i < node->n_inputs && sinks; i++) {
        const struct kiln__node *operand = kiln__graph_input(rewrite->to, node, i);
        if (operand->kind == KILN__CONSTANT)
            continue;
        sinks = kiln__shape_equal(&operand->shape, &node->shape) && !repeats(operand) &&
                (!deeper || !kiln__node_is_pointwise(operand) ||
                 reshape_sinks(rewrite, operand, deeper - 1));
    }
    return sinks;
}

/* What has become of a movement on another way from the one that sinks: many ways may lead to one
 * operand. */
static uint32_t find_sunk(const struct kiln__rewrite *rewrite, const struct kiln__node *moved)
{
    for (size_t i = rewrite->sunk.count; i-- > 0;) {
        const struct kiln__sunk *sunk = &rewrite->sunk.items[i];
        if (sunk->moved.input[0] == moved->input[0] && !memcmp(&sunk->moved, moved, sizeof *moved))
            return sunk->result;
    }
    return KILN__NO_NODE;
}

static uint32_t sink_deeper(struct kiln__rewrite *rewrite, const struct kiln__node *moved)
{
    uint32_t result = find_sunk(rewrite, moved);
    if (result != KILN__NO_NODE)
        return result;
    rewrite->depth++;
    result = kiln__rewrite_sink(rewrite, moved);
    rewrite->depth--;
    if (!kiln__vector_add(&rewrite->sunk, (struct kiln__sunk){*moved, result}))
        return KILN__NO_NODE;
    return result;
}

/* The movement `node` applied to one operand of the elementwise result below it. */
static uint32_t move_operand(struct kiln__rewrite *rewrite, const struct kiln__node *node,
                             const struct kiln__node *result, uint32_t operand)
{
    const struct kiln__node *input = kiln__rewrite_at(rewrite, operand);
    struct kiln__node moved = *node;
    moved.input[0] = operand;
    moved.type = input->type;
    if (input->kind == KILN__CONSTANT) {
        struct kiln__node constant = *input;
        constant.shape = (struct kiln__shape){0};
        return kiln__rewrite_add(rewrite, &constant);
    }
    if (node->kind == KILN__VIEW)
        moved.view = operand_view(node, result, input);
    return sink_deeper(rewrite, &moved);
}

/* ---- running sums ---- */

/* Whether a view shows of running sums only those of single elements, where they start. */
static bool starts_scan(const struct kiln__node *node, const struct kiln__node *scan)
{
    if (node->kind != KILN__VIEW || scan->kind != KILN__SCAN)
        return false;
    const uint32_t axis = kiln__scan_axis(scan);
    const size_t last = scan->shape.dims[axis] - 1;
    bool starts = node->view.start[axis] == (scan->op == KILN__SCAN_BACKWARD ? (int64_t)last : 0);
    for (uint32_t k = 0; k < node->shape.rank; k++)
        starts = starts && (node->view.source[k] != (int)axis || node->shape.dims[k] <= 1);
    return starts;
}

/* The view shows what is added up. */
static uint32_t sink_below_scan(struct kiln__rewrite *rewrite, const struct kiln__node *node,
                                uint32_t added)
{
    struct kiln__node moved = *node, cast = {.kind = KILN__CAST, .n_inputs = 1};
    moved.input[0] = added;
    moved.type = kiln__rewrite_at(rewrite, added)->type;
    cast.type = node->type;
    cast.shape = node->shape;
    cast.input[0] = sink_deeper(rewrite, &moved);
    if (cast.input[0] == KILN__NO_NODE || moved.type == node->type)
        return cast.input[0];
    rewrite->uses.items[cast.input[0]]++;
    return kiln__rewrite_add(rewrite, &cast);
}

/* ---- gathers ---- */

/* Where the axis of what is computed is in an operand; below 0: in none of its dimensions. */
static int axis_in(const struct kiln__node *computed, const struct kiln__node *operand,
                   uint64_t axis)
{
    return (int)axis - (int)(computed->shape.rank - operand->shape.rank);
}

/* Whether the operand is the same for all along the axis of what is computed: nothing is gathered
 * from it. */
static bool is_same_along(const struct kiln__node *computed, const struct kiln__node *operand,
                          uint64_t axis)
{
    const int own = axis_in(computed, operand, axis);
    return own < 0 || (operand->shape.dims[own] == 1 && computed->shape.dims[axis] != 1);
}

/* Whether an index outside of the table, which gives NaN, still does where the gather is of
 * operands: integers give 0 there, and what nothing is gathered from is as it was. */
static bool hands_nan_on(const struct kiln__rewrite *rewrite, uint32_t index, uint64_t axis,
                         unsigned deeper)
{
    const struct kiln__node *node = kiln__rewrite_at(rewrite, index);
    bool sum =
        node->kind == KILN__ELEMENTWISE && (node->op == KILN__OP_add || node->op == KILN__OP_sub ||
                                            node->op == KILN__OP_mul || node->op == KILN__OP_div);
    if (!kiln__node_is_floating(node) || node->kind == KILN__CONSTANT)
        return false;
    if (!kiln__node_is_pointwise(node))
        return true;
    for (unsigned i = 0; i < node->n_inputs; i++) {
        const struct kiln__node *operand = kiln__graph_input(rewrite->to, node, i);
        if (deeper && (sum || node->kind == KILN__CAST) && !is_same_along(node, operand, axis) &&
            hands_nan_on(rewrite, node->input[i], (uint64_t)axis_in(node, operand, axis),
                         deeper - 1))
            return true;
    }
    return false;
}

static bool worth_gathering(const struct kiln__rewrite *rewrite, const struct kiln__node *node)
{
    const struct kiln__node *data = kiln__graph_input(rewrite->to, node, 0);
    return kiln__node_is_pointwise(data) && rewrite->depth < DEEPEST &&
           kiln__node_count(node) < kiln__node_count(data) &&
           (rewrite->depth || hands_nan_on(rewrite, node->input[0], node->axis, LOOKED_THROUGH));
}

/* The gather of an operand; of one that is the same for all along the axis that, where it has this
 * dimension with those of the indices in its place. */
static uint32_t gather_operand(struct kiln__rewrite *rewrite, const struct kiln__node *node,
                               const struct kiln__node *computed, uint32_t index)
{
    const struct kiln__node operand = rewrite->to->nodes.items[index];
    const uint32_t indices = kiln__graph_input(rewrite->to, node, 1)->shape.rank;
    const int axis = axis_in(computed, &operand, node->axis);
    if (axis < 0)
        return index;
    const bool all = is_same_along(computed, &operand, node->axis);
    struct kiln__node moved = *node;
    moved.type = kiln__node_has_blocks(&operand) ? KILN_F32 : operand.type;
    moved.axis = (uint64_t)axis;
    moved.input[0] = index;
    moved.shape.rank = operand.shape.rank - 1 + indices;
    for (uint32_t d = 0; d < moved.shape.rank; d++) {
        const struct kiln__shape *of_indices = &kiln__graph_input(rewrite->to, node, 1)->shape;
        bool inside = d >= (uint32_t)axis && d < (uint32_t)axis + indices;
        moved.shape.dims[d] = inside               ? all ? 1 : of_indices->dims[d - (uint32_t)axis]
                                            : d < (uint32_t)axis ? operand.shape.dims[d]
                                                   : operand.shape.dims[d + 1 - indices];
    }
    if (operand.kind == KILN__CONSTANT) {
        struct kiln__node constant = operand;
        constant.shape = moved.shape;
        return kiln__rewrite_add(rewrite, &constant);
    }
    if (all) {
        moved.kind = KILN__RESHAPE;
        moved.op = 0;
        moved.n_inputs = 1;
    }
    return sink_deeper(rewrite, &moved);
}

static uint32_t sink_gather(struct kiln__rewrite *rewrite, const struct kiln__node *node)
{
    if (!worth_gathering(rewrite, node))
        return kiln__rewrite_add(rewrite, node);
    const struct kiln__node below = rewrite->to->nodes.items[node->input[0]];
    struct kiln__node result = below;
    result.shape = node->shape;
    for (unsigned i = 0; i < below.n_inputs; i++) {
        result.input[i] = gather_operand(rewrite, node, &below, below.input[i]);
        if (result.input[i] == KILN__NO_NODE)
            return KILN__NO_NODE;
        rewrite->uses.items[result.input[i]]++;
    }
    kiln__rewrite_log(rewrite, "done before %s", kiln__node_name(&below));
    return kiln__rewrite_add(rewrite, &result);
}

uint32_t kiln__rewrite_sink(struct kiln__rewrite *rewrite, const struct kiln__node *node)
{
    if (rewrite->depth == 0)
        rewrite->sunk.count = 0;
    if (node->kind == KILN__GATHER && node->op == KILN__GATHER_OPEN)
        return sink_gather(rewrite, node);
    if (!kiln__node_is_movement(node))
        return kiln__rewrite_add(rewrite, node);
    const struct kiln__node below = rewrite->to->nodes.items[node->input[0]];
    if (rewrite->depth < DEEPEST && starts_scan(node, &below))
        return sink_below_scan(rewrite, node, below.input[0]);
    if (rewrite->depth >= DEEPEST || !worth_sinking(rewrite, node))
        return kiln__rewrite_fold(rewrite, node);
    if (node->kind == KILN__RESHAPE && !reshape_sinks(rewrite, &below, KILN__PARAMETER_DEPTH))
        return kiln__rewrite_fold(rewrite, node);
    struct kiln__node result = below;
    result.shape = node->shape;
    for (unsigned i = 0; i < below.n_inputs; i++) {
        result.input[i] = move_operand(rewrite, node, &below, below.input[i]);
        if (result.input[i] == KILN__NO_NODE)
            return KILN__NO_NODE;
        rewrite->uses.items[result.input[i]]++;
    }
    kiln__rewrite_log(rewrite, "moved below %s", kiln__node_name(&below));
    return kiln__rewrite_clone_at(rewrite, node->input[0], &result);
}
