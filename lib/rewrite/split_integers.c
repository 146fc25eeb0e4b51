/* SPDX-License-Identifier: Apache-2.0 */
/* A product of whole numbers that is too deep for exact sums in f32, and that the device does not
 * add up as such, becomes a sum in i32 of products that are not. Each of them adds to the sum so
 * far in its epilogue. */
#include "rewrite/rewrite.h"

/* Fewer rows or columns are not for tensor cores. */
#define FEWEST 32

static struct kiln__node node_of(enum kiln__kind kind, kiln_type type,
                                 const struct kiln__shape *shape, uint32_t first, uint32_t second)
{
    return (struct kiln__node){.kind = kind,
                               .type = type,
                               .n_inputs = second == KILN__NO_NODE ? 1 : 2,
                               .input = {first, second == KILN__NO_NODE ? 0 : second},
                               .shape = *shape};
}

/* `count` elements of dimension `along` of an operand. */
static uint32_t split_integers_slice(struct kiln__rewrite *rewrite, uint32_t operand,
                                     uint32_t along, size_t first, size_t count)
{
    struct kiln__shape shape = kiln__rewrite_at(rewrite, operand)->shape;
    shape.dims[along] = count;
    struct kiln__node node = node_of(KILN__VIEW, KILN_F32, &shape, operand, KILN__NO_NODE);
    node.op = KILN__SLICE;
    node.view = kiln__view_straight(shape.rank);
    node.view.start[along] = (int64_t)first;
    return kiln__rewrite_add(rewrite, &node);
}

/* The product of a part of the operands, in i32. */
static uint32_t split_integers_multiply(struct kiln__rewrite *rewrite,
                                        const struct kiln__node *product, size_t first,
                                        size_t count)
{
    const uint32_t rank = product->shape.rank;
    uint32_t a = split_integers_slice(rewrite, product->input[0], rank - 1, first, count);
    uint32_t b = a == KILN__NO_NODE
                     ? a
                     : split_integers_slice(rewrite, product->input[1], rank - 2, first, count);
    if (b == KILN__NO_NODE)
        return b;
    struct kiln__node node = node_of(KILN__MATMUL, KILN_F32, &product->shape, a, b);
    uint32_t part = kiln__rewrite_add(rewrite, &node);
    if (part == KILN__NO_NODE)
        return part;
    node = node_of(KILN__CAST, KILN_I32, &product->shape, part, KILN__NO_NODE);
    return kiln__rewrite_add(rewrite, &node);
}

static uint32_t add_parts(struct kiln__rewrite *rewrite, const struct kiln__node *product, size_t k)
{
    const size_t most = KILN__INTEGERS_IN_F32;
    uint32_t sum = split_integers_multiply(rewrite, product, 0, most);
    for (size_t first = most; first < k && sum != KILN__NO_NODE; first += most) {
        uint32_t part =
            split_integers_multiply(rewrite, product, first, k - first < most ? k - first : most);
        if (part == KILN__NO_NODE)
            return part;
        struct kiln__node add = node_of(KILN__ELEMENTWISE, KILN_I32, &product->shape, sum, part);
        add.op = KILN__OP_add;
        sum = kiln__rewrite_add(rewrite, &add);
    }
    if (sum == KILN__NO_NODE)
        return sum;
    struct kiln__node cast = node_of(KILN__CAST, KILN_F32, &product->shape, sum, KILN__NO_NODE);
    return kiln__rewrite_add(rewrite, &cast);
}

static bool has_exact_kernel(const struct kiln__rewrite *rewrite)
{
    const struct kiln__kernel_support *support = rewrite->support;
    return support->exact_integers && support->exact_integers(support);
}

uint32_t kiln__rewrite_split_integers(struct kiln__rewrite *rewrite, const struct kiln__node *node)
{
    if (node->kind != KILN__MATMUL || node->op != KILN__PRODUCT_EXACT_INTEGER)
        return kiln__rewrite_add(rewrite, node);
    const struct kiln__shape *a = &kiln__graph_input(rewrite->to, node, 0)->shape;
    const size_t *dims = node->shape.dims + node->shape.rank - 2, k = a->dims[a->rank - 1];
    if (dims[0] >= FEWEST && dims[1] >= FEWEST && has_exact_kernel(rewrite))
        return kiln__rewrite_add(rewrite, node);
    kiln__rewrite_log(rewrite, "added up in parts of %d, in i32", KILN__INTEGERS_IN_F32);
    return add_parts(rewrite, node, k);
}
