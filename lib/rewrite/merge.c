/* SPDX-License-Identifier: Apache-2.0 */
/* Products of one value with several weights, as queries, keys and values are, become one product
 * with the weights side by side, and each a slice of its result. Weights are what is made of
 * buffers alone that the batch does not replace: side by side they are kept (lower/frozen.c),
 * unless rows are so many that a launch more is nothing beside them. A bias of each joins, too.
 * Only where products and attention read the slices, as they lie: what else follows a product runs
 * in its kernel, and would not in that of another slice.
 *
 * An element is the same sum in a wider product. */
#include <stdlib.h>

#include "rewrite/rewrite.h"

/* How far it is looked for what weights are made of. */
#define DEEPEST 4

/* Slices begin where vectors do. */
#define ALIGNED 16

/* A product that may join, by numbers of `from`. */
struct factor {
    uint32_t product, weights; /* the latter a matrix, not repeated for leading dimensions */
    uint32_t bias, result;     /* what is added, or KILN__NO_NODE; the product, or the sum */
};

struct kiln__merge {
    bool *stays_unmerged; /* per node: something reads it that is no product and no attention */
    uint32_t *user;       /* per node: the last that reads it */
    uint32_t *last;       /* per node: the last product that it is the first operand of, plus one */
    uint32_t *previous;   /* per product: the one before it with the same operand, plus one */
    bool *replaced;       /* per node: an import that the batch replaces */
};

static const struct kiln__node *at(const struct kiln__rewrite *rewrite, uint32_t index)
{
    return &rewrite->from->nodes.items[index];
}

/* ---- who reads what ---- */

static bool reads_slices(const struct kiln__node *node)
{
    return node->kind == KILN__MATMUL || node->kind == KILN__ATTENTION;
}

static void merge_look(const struct kiln__graph *graph, struct kiln__merge *merge)
{
    for (size_t i = 0; i < graph->requests.count; i++)
        merge->stays_unmerged[graph->requests.items[i].node] = true;
    for (uint32_t i = (uint32_t)graph->nodes.count; i-- > 0;) {
        const struct kiln__node *node = &graph->nodes.items[i];
        for (unsigned k = 0; k < node->n_inputs; k++) {
            bool apart =
                kiln__node_is_movement(node) ? merge->stays_unmerged[i] : !reads_slices(node);
            merge->stays_unmerged[node->input[k]] |= apart;
            if (!merge->user[node->input[k]])
                merge->user[node->input[k]] = i;
        }
    }
    for (uint32_t i = 0; i < graph->nodes.count; i++) {
        const struct kiln__node *node = &graph->nodes.items[i];
        for (size_t k = 0; node->kind == KILN__IMPORT && k < graph->requests.count; k++)
            merge->replaced[i] |= graph->requests.items[k].replaces == node->binding + 1;
        if (node->kind != KILN__MATMUL)
            continue;
        merge->previous[i] = merge->last[node->input[0]];
        merge->last[node->input[0]] = i + 1;
    }
}

void kiln__rewrite_free_merge(struct kiln__rewrite *rewrite)
{
    struct kiln__merge *merge = rewrite->merge;
    if (!merge)
        return;
    free(merge->stays_unmerged);
    free(merge->user);
    free(merge->last);
    free(merge->previous);
    free(merge->replaced);
    free(merge);
}

static struct kiln__merge *merge_begin(struct kiln__rewrite *rewrite)
{
    size_t count = rewrite->from->nodes.count + 1;
    struct kiln__merge *merge = rewrite->merge = calloc(1, sizeof *merge);
    if (!merge)
        return NULL;
    merge->stays_unmerged = calloc(count, sizeof *merge->stays_unmerged);
    merge->user = calloc(count, sizeof *merge->user);
    merge->last = calloc(count, sizeof *merge->last);
    merge->previous = calloc(count, sizeof *merge->previous);
    merge->replaced = calloc(count, sizeof *merge->replaced);
    if (!merge->stays_unmerged || !merge->user || !merge->last || !merge->previous ||
        !merge->replaced)
        return NULL;
    merge_look(rewrite->from, merge);
    return merge;
}

/* ---- what may join ---- */

/* Made of buffers that stay, by little; what is stored as 16 bits is read as it is by products. */
static bool is_weight(const struct kiln__rewrite *rewrite, uint32_t index, unsigned deeper)
{
    const struct kiln__node *node = at(rewrite, index);
    if (node->kind == KILN__IMPORT)
        return !rewrite->merge->replaced[index] && node->type != KILN_F16 &&
               node->type != KILN_BF16;
    if (!deeper || !(kiln__node_is_movement(node) || kiln__node_is_pointwise(node)))
        return node->kind == KILN__CONSTANT;
    for (unsigned i = 0; i < node->n_inputs; i++)
        if (!is_weight(rewrite, node->input[i], deeper - 1))
            return false;
    return true;
}

/* The matrix that a second operand repeats for all leading dimensions. */
static uint32_t matrix_of(const struct kiln__rewrite *rewrite, uint32_t index)
{
    const struct kiln__node *node = at(rewrite, index);
    const uint32_t rank = node->shape.rank;
    if (rank == 2)
        return index;
    if (node->kind != KILN__VIEW || at(rewrite, node->input[0])->shape.rank != 2 ||
        node->view.start[0] || node->view.start[1])
        return KILN__NO_NODE;
    for (uint32_t k = 0; k < rank; k++)
        if (node->view.source[k] != (k + 2 < rank ? -1 : (int)(k + 2 - rank)) ||
            (k + 2 >= rank && node->view.step[k] != 1))
            return KILN__NO_NODE;
    for (uint32_t k = 0; k < 2; k++)
        if (node->shape.dims[rank - 2 + k] != at(rewrite, node->input[0])->shape.dims[k])
            return KILN__NO_NODE;
    return node->input[0];
}

/* Whether the node has an element for each column, and is the same for all else. */
static bool is_row(const struct kiln__node *node, size_t columns)
{
    return node->shape.rank && node->shape.dims[node->shape.rank - 1] == columns &&
           kiln__node_count(node) == columns;
}

/* A bias that is added to the product and nothing else reads. */
static void find_bias(const struct kiln__rewrite *rewrite, struct factor *factor)
{
    const struct kiln__node *product = at(rewrite, factor->product);
    uint32_t user = rewrite->merge->user[factor->product];
    const struct kiln__node *sum = at(rewrite, user);
    if (rewrite->from_uses[factor->product] != 1 || !user || sum->kind != KILN__ELEMENTWISE ||
        sum->op != KILN__OP_add || sum->input[0] == sum->input[1] ||
        !kiln__shape_equal(&sum->shape, &product->shape))
        return;
    uint32_t bias = sum->input[sum->input[0] == factor->product];
    if (!is_row(at(rewrite, bias), product->shape.dims[product->shape.rank - 1]) ||
        !is_weight(rewrite, bias, DEEPEST) || at(rewrite, bias)->kind == KILN__CONSTANT)
        return;
    factor->bias = bias;
    factor->result = user;
}

static bool may_join(const struct kiln__rewrite *rewrite, uint32_t product, struct factor *factor)
{
    const struct kiln__node *node = at(rewrite, product);
    *factor = (struct factor){product, matrix_of(rewrite, node->input[1]), KILN__NO_NODE, product};
    size_t columns = node->shape.dims[node->shape.rank - 1];
    if (!rewrite->from_uses[product] || factor->weights == KILN__NO_NODE ||
        !kiln__node_count(node) || kiln__node_count(node) / columns >= KILN__MANY_ROWS ||
        columns % ALIGNED || at(rewrite, factor->weights)->kind == KILN__CONSTANT ||
        !is_weight(rewrite, factor->weights, DEEPEST))
        return false;
    find_bias(rewrite, factor);
    return !rewrite->merge->stays_unmerged[factor->result];
}

/* ---- joining ---- */

struct joined {
    KILN__VECTOR(struct factor) factors; /* the last in the graph comes first */
    size_t columns;
};

static uint32_t add_reshape(struct kiln__rewrite *rewrite, uint32_t index, size_t count)
{
    struct kiln__node reshape = {.kind = KILN__RESHAPE, .n_inputs = 1};
    if (index == KILN__NO_NODE || kiln__rewrite_at(rewrite, index)->shape.rank == 1)
        return index;
    reshape.type = kiln__rewrite_at(rewrite, index)->type;
    reshape.input[0] = index;
    reshape.shape = (struct kiln__shape){.rank = 1, .dims = {count}};
    return kiln__rewrite_add(rewrite, &reshape);
}

/* The weights, or the biases, of all factors beside each other. */
static uint32_t concatenate(struct kiln__rewrite *rewrite, const struct joined *joined, bool bias)
{
    uint32_t whole = KILN__NO_NODE;
    size_t start = 0;
    for (size_t i = joined->factors.count; i-- > 0;) {
        const struct factor *factor = &joined->factors.items[i];
        const struct kiln__shape *of_product = &at(rewrite, factor->product)->shape;
        size_t columns = of_product->dims[of_product->rank - 1];
        uint32_t part = kiln__rewrite_copy(rewrite, bias ? factor->bias : factor->weights);
        if (bias)
            part = add_reshape(rewrite, part, columns);
        if (part == KILN__NO_NODE)
            return KILN__NO_NODE;
        struct kiln__node place = {.kind = KILN__INSERT_SLICE, .n_inputs = start ? 2 : 1};
        place.type = kiln__rewrite_at(rewrite, part)->type;
        place.shape = kiln__rewrite_at(rewrite, part)->shape;
        place.shape.dims[place.shape.rank - 1] = joined->columns;
        place.input[0] = part;
        place.input[1] = start ? whole : 0;
        place.view = kiln__view_straight(place.shape.rank);
        place.view.start[place.shape.rank - 1] = (int64_t)start;
        whole = kiln__rewrite_add(rewrite, &place);
        if (whole == KILN__NO_NODE)
            return KILN__NO_NODE;
        start += columns;
    }
    return whole;
}

/* The product of all factors. */
static uint32_t add_product(struct kiln__rewrite *rewrite, const struct kiln__node *node,
                            const struct joined *joined)
{
    struct kiln__node product = *node;
    product.shape.dims[product.shape.rank - 1] = joined->columns;
    product.input[1] = concatenate(rewrite, joined, false);
    if (product.shape.rank > 2 && product.input[1] != KILN__NO_NODE) {
        struct kiln__node view = *at(rewrite, at(rewrite, rewrite->current)->input[1]);
        view.shape.dims[view.shape.rank - 1] = joined->columns;
        view.input[0] = product.input[1];
        product.input[1] = kiln__rewrite_add(rewrite, &view);
    }
    return product.input[1] == KILN__NO_NODE ? KILN__NO_NODE : kiln__rewrite_add(rewrite, &product);
}

static uint32_t add_sum(struct kiln__rewrite *rewrite, uint32_t product, uint32_t bias)
{
    struct kiln__node sum = {.kind = KILN__ELEMENTWISE, .op = KILN__OP_add, .n_inputs = 2};
    sum.type = kiln__rewrite_at(rewrite, product)->type;
    sum.shape = kiln__rewrite_at(rewrite, product)->shape;
    sum.input[0] = product;
    sum.input[1] = bias;
    return kiln__rewrite_add(rewrite, &sum);
}

/* Slices of `whole` stand in for the factors' products, or results. */
static bool merge_slice(struct kiln__rewrite *rewrite, const struct joined *joined, uint32_t whole,
                        bool results)
{
    size_t start = 0;
    for (size_t i = joined->factors.count; i-- > 0;) {
        const struct factor *factor = &joined->factors.items[i];
        struct kiln__node slice = {.kind = KILN__VIEW, .op = KILN__SLICE, .n_inputs = 1};
        slice.type = kiln__rewrite_at(rewrite, whole)->type;
        slice.shape = at(rewrite, factor->product)->shape;
        slice.input[0] = whole;
        slice.view = kiln__view_straight(slice.shape.rank);
        slice.view.start[slice.shape.rank - 1] = (int64_t)start;
        start += slice.shape.dims[slice.shape.rank - 1];
        uint32_t index = kiln__rewrite_add(rewrite, &slice);
        if (index == KILN__NO_NODE)
            return false;
        kiln__rewrite_replace(rewrite, results ? factor->result : factor->product, index);
    }
    return true;
}

/* What the current product, one of them, becomes. */
static uint32_t merge_join(struct kiln__rewrite *rewrite, const struct kiln__node *node,
                           const struct joined *joined)
{
    bool has_bias = joined->factors.items[0].bias != KILN__NO_NODE;
    /* Before the product: its kernel adds what is there by then. */
    uint32_t bias = has_bias ? concatenate(rewrite, joined, true) : 0;
    uint32_t product = bias == KILN__NO_NODE ? bias : add_product(rewrite, node, joined);
    if (product == KILN__NO_NODE || !merge_slice(rewrite, joined, product, false))
        return KILN__NO_NODE;
    uint32_t sum = has_bias ? add_sum(rewrite, product, bias) : product;
    if (sum == KILN__NO_NODE || (has_bias && !merge_slice(rewrite, joined, sum, true)))
        return KILN__NO_NODE;
    kiln__rewrite_log(rewrite, "one product with %zu others of the same operand",
                      joined->factors.count - 1);
    return rewrite->map[rewrite->current];
}

/* The product, which is the first of its operand, and others like it. */
static void merge_gather(struct kiln__rewrite *rewrite, uint32_t operand, struct joined *joined)
{
    const struct kiln__merge *merge = rewrite->merge;
    struct factor first, factor;
    if (!may_join(rewrite, rewrite->current, &first))
        return;
    const struct kiln__node *own = at(rewrite, rewrite->current);
    for (uint32_t i = merge->last[operand]; i; i = merge->previous[i - 1]) {
        const struct kiln__node *node = at(rewrite, i - 1);
        if (node->input[0] != operand || node->op != own->op ||
            node->shape.rank != own->shape.rank ||
            at(rewrite, node->input[1])->type != at(rewrite, own->input[1])->type ||
            !may_join(rewrite, i - 1, &factor) ||
            (factor.bias == KILN__NO_NODE) != (first.bias == KILN__NO_NODE))
            continue;
        if (!kiln__vector_add(&joined->factors, factor)) {
            joined->factors.count = 0;
            return;
        }
        joined->columns += node->shape.dims[node->shape.rank - 1];
    }
}

uint32_t kiln__rewrite_merge(struct kiln__rewrite *rewrite, const struct kiln__node *node)
{
    struct joined joined = {0};
    if (node->kind != KILN__MATMUL)
        return kiln__rewrite_add(rewrite, node);
    if (!rewrite->merge && !merge_begin(rewrite))
        return KILN__NO_NODE;
    uint32_t operand = at(rewrite, rewrite->current)->input[0];
    merge_gather(rewrite, operand, &joined);
    uint32_t result = joined.factors.count > 1 ? merge_join(rewrite, node, &joined)
                                               : kiln__rewrite_add(rewrite, node);
    kiln__vector_free(&joined.factors);
    return result;
}
