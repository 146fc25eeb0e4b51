/* SPDX-License-Identifier: Apache-2.0 */
/* What a product computes for each element of an operand as it reads it. A kernel reads an element
 * once for each tile that it goes into (kernels/matmul_*.cl stage or pack what they use often), a
 * kernel before the product once, but it stores it as well. So a prologue is worth while if
 *
 *   - nobody else uses it, and it is cheap beside the multiplications of a tile: casts, scales;
 *   - it is made from inputs of the batch: what another kernel makes is changed there, before it is
 *     stored, for nothing. (What lies in memory in a narrower type is read as it is, whoever made
 *     it: layout.c);
 *   - it reads no more than one load as large as the operand, which lies as the operand would: the
 *     product's kernel is the same with it and without, and so is the order in which it adds up;
 *   - the product is not one for a library (CLBlast takes memory as it is): beside so many
 *     multiplications a kernel before it is nothing. But what lies in blocks is several times as
 *     large in f32;
 *   - it does not round to a narrow type where tensor cores read that as it lies: they are taken or
 *     not whatever the size, and weights are rounded once. */
#include <assert.h>
#include <string.h>

#include "fuse/fuse.h"
#include "fuse/limits.h"

/* The different nodes that a prologue loads; the first is as large as the prologue. */
struct leaves {
    uint32_t nodes[KILN__MOST_OPERAND_LOADS];
    unsigned count;
    bool possible;
};

static bool is_leaf_possible(const struct kiln__fuser *fuser, uint32_t index)
{
    const struct kiln__layout *layout = &fuser->layouts[index];
    return layout->known && kiln__node_is_input(kiln__fuse_node(fuser, layout->base));
}

static void find_leaves(const struct kiln__fuser *fuser, uint32_t index, bool root,
                        struct leaves *leaves)
{
    const struct kiln__node *node = kiln__fuse_node(fuser, index);
    if (node->kind == KILN__CONSTANT || !leaves->possible)
        return;
    if (root || (kiln__fuse_in_registers(fuser, index) && !fuser->layouts[index].known)) {
        leaves->possible = kiln__node_is_pointwise(node) && node->kind != KILN__GATHER;
        for (unsigned k = 0; k < node->n_inputs; k++)
            find_leaves(fuser, node->input[k], false, leaves);
        return;
    }
    for (unsigned i = 0; i < leaves->count; i++)
        if (leaves->nodes[i] == index)
            return;
    leaves->possible = leaves->count < KILN__MOST_OPERAND_LOADS && is_leaf_possible(fuser, index);
    if (leaves->possible)
        leaves->nodes[leaves->count++] = index;
}

/* An access as a layout over the same dimensions. */
static struct kiln__layout layout_of(const struct kiln__access *access)
{
    struct kiln__layout layout = {.known = true, .base = access->node, .offset = access->offset};
    memcpy(layout.stride, access->stride, sizeof layout.stride);
    return layout;
}

static bool is_main(const struct kiln__fuser *fuser, uint32_t index, uint32_t leaf)
{
    const struct kiln__shape *shape = &kiln__fuse_node(fuser, index)->shape;
    struct kiln__access access = kiln__fuse_access(fuser, leaf, kiln__fuse_straight, shape->rank);
    struct kiln__layout layout = layout_of(&access);
    return kiln__layout_is_dense(&layout, shape);
}

/* One leaf is as large as the prologue, and lies like it; it comes first. */
static struct leaves leaves_of(const struct kiln__fuser *fuser, uint32_t index)
{
    struct leaves leaves = {.possible = true};
    size_t count = kiln__node_count(kiln__fuse_node(fuser, index));
    unsigned large = 0;
    find_leaves(fuser, index, true, &leaves);
    for (unsigned i = 0; leaves.possible && i < leaves.count; i++) {
        uint32_t leaf = leaves.nodes[i];
        if (kiln__node_count(kiln__fuse_node(fuser, leaf)) < count)
            continue;
        leaves.possible = large++ == 0 && is_main(fuser, index, leaf);
        leaves.nodes[i] = leaves.nodes[0];
        leaves.nodes[0] = leaf;
    }
    leaves.possible = leaves.possible && large == 1 && count > 0;
    return leaves;
}

/* Whether the value is rounded to a floating type of 16 bits here, and perhaps read as f32 again.
 */
static bool is_rounded(const struct kiln__fuser *fuser, uint32_t index)
{
    const struct kiln__node *node = kiln__fuse_node(fuser, index);
    if (node->kind == KILN__CAST && node->type == KILN_F32)
        node = kiln__fuse_in_registers(fuser, node->input[0])
                   ? kiln__fuse_node(fuser, node->input[0])
                   : node;
    return node->kind == KILN__CAST && kiln__node_is_floating(node) && node->type != KILN_F32;
}

bool kiln__fuse_may_be_prologue(const struct kiln__fuser *fuser, uint32_t index)
{
    return (fuser->for_products[index] && kiln__fuse_in_registers(fuser, index) &&
            !(fuser->fusion->narrow_operands && is_rounded(fuser, index)) &&
            fuser->sizes[index].cost <= KILN__CHEAP_OPERAND && leaves_of(fuser, index).possible);
}

/* ---- through movements ---- */

/* `layout` is over the dimensions of `from`; where its elements are for `to`, which is made from it
 * by movements. */
static struct kiln__layout compose_layout(struct kiln__fuser *fuser, uint32_t from, uint32_t to,
                                          struct kiln__layout layout)
{
    if (from == to)
        return layout;
    uint32_t input = kiln__fuse_node(fuser, to)->input[0];
    struct kiln__layout own = fuser->layouts[input];
    fuser->layouts[input] = compose_layout(fuser, from, input, layout);
    layout = kiln__layout_of(&fuser->fusion->graph, to, fuser->layouts, false);
    fuser->layouts[input] = own;
    return layout;
}

/* Whether a leaf has one stride for all leading dimensions, and none of its own where a kernel
 * takes all matrices of a as one. */
static bool leaf_suits(struct kiln__fuser *fuser, uint32_t from, uint32_t to, uint32_t leaf,
                       bool folds)
{
    const struct kiln__shape *shape = &kiln__fuse_node(fuser, to)->shape;
    uint32_t rank = kiln__fuse_node(fuser, from)->shape.rank;
    struct kiln__access access = kiln__fuse_access(fuser, leaf, kiln__fuse_straight, rank);
    struct kiln__layout layout = compose_layout(fuser, from, to, layout_of(&access));
    int64_t batch, rows = (int64_t)shape->dims[shape->rank - 2];
    if (!layout.known || !kiln__shape_batch_stride(layout.stride, shape, 2, &batch))
        return false;
    bool alone =
        kiln__shape_count(shape) == shape->dims[shape->rank - 2] * shape->dims[shape->rank - 1];
    return !folds || alone || batch == rows * layout.stride[shape->rank - 2];
}

static bool is_for_library(const struct kiln__fuser *fuser, const struct kiln__node *product)
{
    const struct kiln__shape *a = &kiln__fuse_node(fuser, product->input[0])->shape;
    size_t n = product->shape.dims[product->shape.rank - 1], k = a->dims[a->rank - 1];
    return n >= KILN__LIBRARY_EDGE && kiln__node_count(product) / n >= KILN__LIBRARY_EDGE &&
           k >= KILN__LIBRARY_DEPTH;
}

/* Few rows are read element by element (kernels/matmul_cpu_skinny.cl), again for each block of
 * columns: more than a cast costs more than to store them does. */
static bool has_few_rows(const struct kiln__fuser *fuser, const struct kiln__node *product,
                         uint32_t chain)
{
    size_t n = product->shape.dims[product->shape.rank - 1];
    const struct kiln__node *node = kiln__fuse_node(fuser, chain);
    bool cast = node->kind == KILN__CAST && fuser->layouts[node->input[0]].known;
    return !cast && n && kiln__node_count(product) / n < KILN__FEWEST_ROWS;
}

/* All matrices of a may be taken as one where they are multiplied by the same b. */
static bool may_fold(const struct kiln__fuser *fuser, const struct kiln__node *product)
{
    const struct kiln__layout *b = &fuser->layouts[product->input[1]];
    int64_t batch;
    return kiln__shape_batch_stride(b->stride, &product->shape, 2, &batch) && batch == 0;
}

static bool prologue_repeats(const struct kiln__fuser *fuser, uint32_t index, uint32_t base)
{
    return kiln__node_count(kiln__fuse_node(fuser, index)) >
           kiln__node_count(kiln__fuse_node(fuser, base));
}

/* What lies, or will lie, in memory for an operand that is at most a cast of it. */
static kiln_type stored_type(const struct kiln__fuser *fuser, uint32_t operand)
{
    const struct kiln__layout *layout = &fuser->layouts[operand];
    const struct kiln__node *node = kiln__fuse_node(fuser, layout->base);
    if (layout->known && fuser->prologue[layout->base] && node->kind == KILN__CAST)
        layout = &fuser->layouts[node->input[0]];
    if (!layout->known && kiln__fuse_is_widened(fuser, operand))
        return kiln__fuse_node(fuser, kiln__fuse_node(fuser, operand)->input[0])->type;
    return layout->known ? kiln__fuse_node(fuser, layout->base)->type : KILN_F32;
}

/* Whether a product's kernel may take both operands as narrow as they are in memory. */
static bool takes_narrow(const struct kiln__fuser *fuser, const struct kiln__node *product)
{
    kiln_type a = stored_type(fuser, product->input[0]), b = stored_type(fuser, product->input[1]);
    return fuser->fusion->narrow_operands && a == b &&
           (a == KILN_I8 || (kiln__type_row(a)->floating && kiln_type_size(a) == 2));
}

bool kiln__fuse_operand_suits(struct kiln__fuser *fuser, uint32_t index, unsigned k)
{
    const struct kiln__node *product = kiln__fuse_node(fuser, index);
    uint32_t operand = product->input[k], base = fuser->layouts[operand].base;
    if (!fuser->prologue[base])
        return kiln__fuse_node(fuser, base)->type == kiln__fuse_node(fuser, operand)->type ||
               kiln__type_is_block(stored_type(fuser, operand)) ||
               !is_for_library(fuser, product) || prologue_repeats(fuser, operand, base) ||
               takes_narrow(fuser, product);
    struct leaves leaves = leaves_of(fuser, base);
    bool folds = k == 0 && may_fold(fuser, product);
    bool suits = (!is_for_library(fuser, product) || takes_narrow(fuser, product) ||
                  kiln__type_is_block(stored_type(fuser, operand))) &&
                 !(k == 0 && has_few_rows(fuser, product, base));
    for (unsigned i = 0; suits && i < leaves.count; i++)
        suits = leaf_suits(fuser, base, operand, leaves.nodes[i], i > 0 && folds);
    return suits;
}

/* ---- the steps ---- */

static void move_accesses(struct kiln__builder *builder, size_t first, uint32_t from, uint32_t to)
{
    const struct kiln__shape *shape = &kiln__fuse_node(builder->fuser, to)->shape;
    for (size_t i = first; i < builder->group->accesses.count; i++) {
        struct kiln__access *access = &builder->group->accesses.items[i];
        struct kiln__layout layout = compose_layout(builder->fuser, from, to, layout_of(access));
        assert(layout.known);
        access->offset = layout.offset;
        for (uint32_t d = 0; d < KILN_MAX_RANK; d++)
            access->stride[d] = d < shape->rank && shape->dims[d] != 1 ? layout.stride[d] : 0;
    }
}

uint16_t kiln__fuse_operand(struct kiln__builder *builder, uint32_t index)
{
    struct kiln__fuser *fuser = builder->fuser;
    uint32_t base = fuser->layouts[index].base, rank = kiln__fuse_node(fuser, base)->shape.rank;
    size_t first = builder->group->accesses.count;
    if (!fuser->prologue[base])
        return kiln__fuse_load(builder, index);
    kiln__fuse_compute(builder, leaves_of(fuser, base).nodes[0], false, kiln__fuse_straight, rank);
    uint16_t value = kiln__fuse_compute(builder, base, true, kiln__fuse_straight, rank);
    move_accesses(builder, first, base, index);
    fuser->memo.count = 0; /* the other operand has steps of its own */
    return value;
}
