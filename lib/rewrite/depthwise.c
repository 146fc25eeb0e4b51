/* SPDX-License-Identifier: Apache-2.0 */
/* Windows over a padded image, as a convolution of each channel by itself has them, are sums over
 * few elements for each place: what lies in memory with its padding is read only there. Such a sum
 * gathers from the image without padding, by a small table of where elements lie in it, or that
 * they do not. */
#include "rewrite/rewrite.h"

#include <string.h>

/* Of larger windows every element would be looked up as often. */
#define MOST_IN_WINDOW 64

/* Fewer neighbours in memory than these have no vector for each look-up. */
#define FEWEST_CHANNELS 4

/* Windows over an insertion, nodes of `from`, and the dimensions of the image that windows move in.
 */
struct padded {
    const struct kiln__node *windows, *place, *image;
    uint32_t view, first, end;
};

static const struct kiln__node *from_at(const struct kiln__rewrite *rewrite, uint32_t index)
{
    return &rewrite->from->nodes.items[index];
}

/* Whether dimension `d` of the image is dimension `k` of the windows, whole and by itself. */
static bool is_unpadded(const struct padded *padded, uint32_t d, uint32_t k)
{
    const struct kiln__view *windows = &padded->windows->view, *place = &padded->place->view;
    size_t count = padded->image->shape.dims[d];
    bool same = windows->source[k] == (int)d && windows->start[d] == 0 &&
                padded->windows->shape.dims[k] == count && padded->place->shape.dims[d] == count;
    for (uint32_t other = 0; other < padded->windows->shape.rank; other++)
        same = same && (other == k || windows->source[other] != (int)d);
    return same && place->start[d] == 0 && (count == 1 || windows->step[k] == 1);
}

static void find_padded_dims(struct padded *padded)
{
    uint32_t rank = padded->image->shape.rank, last = padded->windows->shape.rank;
    padded->first = 0;
    padded->end = rank;
    while (padded->first < rank && padded->first < last &&
           is_unpadded(padded, padded->first, padded->first))
        padded->first++;
    while (padded->end > padded->first && last > padded->first &&
           is_unpadded(padded, padded->end - 1, last - 1)) {
        padded->end--;
        last--;
    }
}

/* The part lies along the dimensions of the whole, and around it there are zeros. */
static bool is_padding(const struct kiln__rewrite *rewrite, const struct kiln__node *place)
{
    if (place->kind != KILN__INSERT_SLICE || place->n_inputs < 2)
        return false;
    const struct kiln__node *image = from_at(rewrite, place->input[0]),
                            *below = from_at(rewrite, place->input[1]);
    for (uint32_t d = 0; d < image->shape.rank; d++)
        if (place->view.source[d] != (int)d ||
            (place->view.step[d] != 1 && image->shape.dims[d] > 1))
            return false;
    return below->kind == KILN__CONSTANT && below->value == 0 &&
           rewrite->to->nodes.items[rewrite->map[place->input[0]]].kind != KILN__VIEW;
}

/* Beyond all numbers that positions in the padding would have. */
static int64_t most_numbers(const struct padded *padded)
{
    int64_t most = 2;
    for (uint32_t d = padded->first; d < padded->end; d++)
        most *= (int64_t)padded->place->shape.dims[d];
    return most;
}

/* Whether each number, less as many for every element of padding, is an i32. */
static bool is_countable(const struct padded *padded)
{
    int64_t widest = 1;
    for (uint32_t d = padded->first; d < padded->end; d++) {
        int64_t low = padded->place->view.start[d], high = (int64_t)padded->place->shape.dims[d] -
                                                           (int64_t)padded->image->shape.dims[d] -
                                                           low;
        widest = low > widest ? low : high > widest ? high : widest;
    }
    return most_numbers(padded) <= INT32_MAX / (widest + 1);
}

static bool find_padded(const struct kiln__rewrite *rewrite, uint32_t view, struct padded *padded)
{
    const struct kiln__node *windows = from_at(rewrite, view);
    if (windows->kind != KILN__VIEW || rewrite->from_uses[view] != 1 ||
        rewrite->from_uses[windows->input[0]] != 1 || windows->shape.rank > KILN_MAX_RANK ||
        !is_padding(rewrite, from_at(rewrite, windows->input[0])))
        return false;
    const struct kiln__node *place = from_at(rewrite, windows->input[0]);
    *padded = (struct padded){
        .windows = windows, .place = place, .image = from_at(rewrite, place->input[0])};
    padded->view = view;
    find_padded_dims(padded);
    size_t channels = 1;
    for (uint32_t d = padded->end; d < padded->image->shape.rank; d++)
        channels *= padded->image->shape.dims[d];
    return padded->first < padded->end && channels >= FEWEST_CHANNELS &&
           kiln__node_count(padded->image) > 0 && is_countable(padded);
}

/* Dimensions `first` to `end` - 1. */
static struct kiln__shape part_of(const struct kiln__shape *shape, uint32_t first, uint32_t end)
{
    struct kiln__shape part = {.rank = end - first};
    memcpy(part.dims, shape->dims + first, part.rank * sizeof *part.dims);
    return part;
}

/* The operations of which the table comes: integers over all that is padded. */
struct table {
    struct kiln__rewrite *rewrite;
    const struct padded *padded;
    struct kiln__shape shape;
    bool failed;
};

static uint32_t depthwise_add(struct table *table, const struct kiln__node *node)
{
    uint32_t index = table->failed ? KILN__NO_NODE : kiln__rewrite_add(table->rewrite, node);
    table->failed = index == KILN__NO_NODE;
    return index;
}

static uint32_t depthwise_apply(struct table *table, enum kiln__elementwise op, uint32_t a,
                                uint32_t b)
{
    return depthwise_add(table, &(struct kiln__node){.kind = KILN__ELEMENTWISE,
                                                     .op = (uint8_t)op,
                                                     .type = KILN_I32,
                                                     .n_inputs = 2,
                                                     .input = {a, b},
                                                     .shape = table->shape});
}

static uint32_t add_number(struct table *table, int64_t number)
{
    return depthwise_add(
        table,
        &(struct kiln__node){.kind = KILN__CONSTANT, .type = KILN_I32, .value = (double)number});
}

/* The index along dimension `d` of what is padded. */
static uint32_t add_position(struct table *table, uint32_t d)
{
    struct kiln__node numbers = {.kind = KILN__IOTA, .type = KILN_I32};
    struct kiln__node view = {.kind = KILN__VIEW, .op = KILN__BROADCAST, .type = KILN_I32};
    numbers.shape = part_of(&table->padded->place->shape, d, d + 1);
    view.shape = table->shape;
    view.n_inputs = 1;
    view.input[0] = depthwise_add(table, &numbers);
    for (uint32_t k = 0; k < view.shape.rank; k++) {
        bool along = k + table->padded->first == d;
        view.view.source[k] = (int8_t)(along ? 0 : -1);
        view.view.step[k] = along;
    }
    return depthwise_add(table, &view);
}

/* How far, along dimension `d`, an element is from either end: below 0 in the padding. */
static uint32_t add_distance(struct table *table, uint32_t d, uint32_t at)
{
    int64_t last = (int64_t)table->padded->image->shape.dims[d] - 1;
    return depthwise_apply(table, KILN__OP_minimum, at,
                           depthwise_apply(table, KILN__OP_sub, add_number(table, last), at));
}

/* A table: the numbers of the image's elements, and far below 0 where there is none. */
static uint32_t add_table(struct table *table)
{
    const struct padded *padded = table->padded;
    uint32_t number = KILN__NO_NODE, distance = KILN__NO_NODE;
    for (uint32_t d = padded->first; d < padded->end; d++) {
        const uint32_t start = add_number(table, padded->place->view.start[d]);
        uint32_t at = depthwise_apply(table, KILN__OP_sub, add_position(table, d), start);
        uint32_t least = add_distance(table, d, at);
        uint32_t count = add_number(table, (int64_t)padded->image->shape.dims[d]);
        bool first = d == padded->first;
        distance = first ? least : depthwise_apply(table, KILN__OP_minimum, distance, least);
        number = first ? at
                       : depthwise_apply(table, KILN__OP_add,
                                         depthwise_apply(table, KILN__OP_mul, number, count), at);
    }
    distance = depthwise_apply(table, KILN__OP_minimum, distance, add_number(table, 0));
    distance =
        depthwise_apply(table, KILN__OP_mul, distance, add_number(table, most_numbers(padded)));
    return depthwise_apply(table, KILN__OP_add, number, distance);
}

/* What the windows show of it. */
static uint32_t add_indices(struct kiln__rewrite *rewrite, const struct padded *padded)
{
    struct table table = {.rewrite = rewrite, .padded = padded};
    const struct kiln__node *windows = padded->windows;
    uint32_t behind = padded->image->shape.rank - padded->end;
    struct kiln__node view = {
        .kind = KILN__VIEW, .op = windows->op, .type = KILN_I32, .n_inputs = 1};
    table.shape = part_of(&padded->place->shape, padded->first, padded->end);
    view.input[0] = add_table(&table);
    view.shape = part_of(&windows->shape, padded->first, windows->shape.rank - behind);
    for (uint32_t k = 0; k < view.shape.rank; k++) {
        int source = windows->view.source[padded->first + k];
        view.view.source[k] = (int8_t)(source < 0 ? source : source - (int)padded->first);
        view.view.step[k] = windows->view.step[padded->first + k];
    }
    for (uint32_t d = padded->first; d < padded->end; d++)
        view.view.start[d - padded->first] = windows->view.start[d];
    return depthwise_add(&table, &view);
}

/* The dimensions that windows move in as one. */
static uint32_t add_image(struct kiln__rewrite *rewrite, const struct padded *padded)
{
    const struct kiln__shape *image = &padded->image->shape;
    struct kiln__node rows = {.kind = KILN__RESHAPE, .type = padded->image->type, .n_inputs = 1};
    const struct kiln__shape moved = part_of(image, padded->first, padded->end);
    rows.input[0] = rewrite->map[padded->place->input[0]];
    rows.shape = part_of(image, 0, padded->first);
    rows.shape.dims[rows.shape.rank++] = kiln__shape_count(&moved);
    for (uint32_t d = padded->end; d < image->rank; d++)
        rows.shape.dims[rows.shape.rank++] = image->dims[d];
    return padded->end - padded->first == 1 ? rows.input[0] : kiln__rewrite_add(rewrite, &rows);
}

/* What stands for the windows; `index` itself where they are over no padding. */
static uint32_t depthwise_gather(struct kiln__rewrite *rewrite, uint32_t from, uint32_t index)
{
    struct padded padded;
    if (!find_padded(rewrite, from, &padded))
        return index;
    struct kiln__node node = {.kind = KILN__GATHER, .op = KILN__GATHER_PADDED, .n_inputs = 2};
    node.type = padded.windows->type;
    node.shape = padded.windows->shape;
    node.axis = padded.first;
    node.input[0] = add_image(rewrite, &padded);
    node.input[1] = add_indices(rewrite, &padded);
    if (node.input[0] == KILN__NO_NODE || node.input[1] == KILN__NO_NODE)
        return KILN__NO_NODE;
    kiln__rewrite_log(rewrite, "reads windows without their padding");
    return kiln__rewrite_clone_at(rewrite, index, &node);
}

/* An operation on windows, on what stands for them. */
static uint32_t gather_operands(struct kiln__rewrite *rewrite, uint32_t from, uint32_t index)
{
    const struct kiln__node *recorded = from_at(rewrite, from);
    struct kiln__node node = rewrite->to->nodes.items[index];
    bool changed = false;
    for (unsigned k = 0; k < node.n_inputs; k++) {
        uint32_t operand = depthwise_gather(rewrite, recorded->input[k], node.input[k]);
        if (operand == KILN__NO_NODE)
            return operand;
        changed = changed || operand != node.input[k];
        node.input[k] = operand;
    }
    return changed ? kiln__rewrite_clone_at(rewrite, index, &node) : index;
}

uint32_t kiln__rewrite_depthwise(struct kiln__rewrite *rewrite, const struct kiln__node *node)
{
    if (node->kind != KILN__REDUCE)
        return kiln__rewrite_add(rewrite, node);
    uint32_t from = from_at(rewrite, rewrite->current)->input[0];
    const struct kiln__node *input = from_at(rewrite, from);
    struct kiln__node reduce = *node;
    if (kiln__node_count(node) == 0 ||
        kiln__node_count(input) / kiln__node_count(node) > MOST_IN_WINDOW)
        return kiln__rewrite_add(rewrite, node);
    if (kiln__node_is_pointwise(input) && rewrite->from_uses[from] == 1)
        reduce.input[0] = gather_operands(rewrite, from, node->input[0]);
    else
        reduce.input[0] = depthwise_gather(rewrite, from, node->input[0]);
    return reduce.input[0] == KILN__NO_NODE ? KILN__NO_NODE : kiln__rewrite_add(rewrite, &reduce);
}
