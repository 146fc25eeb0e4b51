/* SPDX-License-Identifier: Apache-2.0 */
/* A product's group to launches: operands as matrices, choice among the implementations' rows,
 * in-kernel im2col, split-K. */
#include "lower/matmul.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "fuse/layout.h"
#include "lower/workload.h"
#include "util/log.h"

/* Whether nothing is made of what an operand loads but what its type is computed in. */
static bool is_bare(const struct kiln__group *group, struct kiln__operand operand)
{
    bool plain_load = true;
    for (size_t i = operand.first + 1u; i <= operand.value; i++)
        plain_load = plain_load && group->steps.items[i].kind == KILN__STEP_CONVERT &&
                     group->steps.items[i].type == KILN_F32;
    return plain_load;
}

/* A dimension of 1 has no stride; give it the one that makes the matrix a plain or a transposed
 * one. */
static struct kiln__matrix matrix_of(const struct kiln__plan *plan, const struct kiln__group *group,
                                     uint8_t k, int64_t m, int64_t n)
{
    struct kiln__operand operand = kiln__group_operand(group, k);
    assert(operand.access < group->accesses.count);
    const struct kiln__access *from = &group->accesses.items[operand.access];
    kiln_type stored = plan->fusion.graph.nodes.items[from->node].type;
    uint32_t rank = group->shape.rank;
    struct kiln__matrix matrix = {
        .slot = plan->slot_of[from->node], .offset = from->offset, .operand = k};
    matrix.item = (uint8_t)kiln_type_size(stored);
    matrix.stored = stored;
    matrix.blocks = kiln__type_is_block(stored);
    matrix.frozen = !matrix.blocks && kiln__plan_may_prepack(plan, group, k);
    matrix.plain_load = is_bare(group, operand);
    matrix.computed = operand.value > operand.first || stored != KILN_F32;
    matrix.row = from->stride[rank - 2];
    matrix.column = from->stride[rank - 1];
    if (n <= 1)
        matrix.column = 1;
    if (m <= 1)
        matrix.row = matrix.column == 1 ? n : 1;
    matrix.across = (matrix.column == 1) == (k == 1);
    kiln__shape_batch_stride(from->stride, &group->shape, 2, &matrix.batch);
    return matrix;
}

/* Batches whose rows follow each other, all times the same b, are one tall matrix; single rows do
 * whatever their distance, as windows of one dimension, which overlap. */
static void fold_batch(struct kiln__product *product)
{
    if (product->batch == 1 || product->b.batch != 0)
        return;
    if (product->m == 1 && product->a.column == 1 && !product->a.computed && product->a.batch > 0)
        product->a.row = product->a.batch;
    if (product->a.batch != product->m * product->a.row)
        return;
    product->m *= product->batch;
    product->batch = 1;
}

/* Lines as the copy has its rows, one behind the other. */
static bool is_all_of_copy(const struct kiln__product *product)
{
    const struct kiln__matrix *a = &product->a;
    return product->batch == 1 && product->k >= 1 && !a->computed && a->offset == 0 &&
           (a->column == 1 ? a->row == product->k || product->m <= 1
                           : a->row == 1 && a->column == product->m);
}

/* The group that copies the first operand to where the product would read it. */
static uint32_t copies_of(const struct kiln__plan *plan, uint32_t index,
                          const struct kiln__product *product)
{
    const struct kiln__group *group = &plan->fusion.groups.items[index];
    const struct kiln__access *first = &group->accesses.items[0];
    uint32_t maker = plan->fusion.group_of[first->node];
    struct kiln__im2col im2col;
    for (size_t i = 1; i < group->accesses.count; i++)
        if (group->accesses.items[i].node == first->node)
            return KILN__NO_GROUP;
    bool copies = is_all_of_copy(product) && maker < plan->fusion.groups.count &&
                  plan->absorbed[maker] && kiln__plan_im2col(plan, product, maker, &im2col);
    return copies ? maker : KILN__NO_GROUP;
}

/* An element for each of the product's, and none of them twice. */
static bool is_whole(const struct kiln__group *group, const struct kiln__access *access)
{
    for (uint32_t d = 0; d < group->shape.rank; d++)
        if (group->shape.dims[d] != 1 && !access->stride[d])
            return false;
    return true;
}

/* What follows the sums. Operations count as their table says, a conversion as an addition. */
static void count_finish(const struct kiln__group *group, struct kiln__product *product)
{
    for (size_t i = group->reduced_step + 1u; i < group->steps.count; i++) {
        const struct kiln__step *step = &group->steps.items[i];
        switch (step->kind) {
        case KILN__STEP_APPLY: product->finish += kiln__elementwise_rows[step->op].cost; break;
        case KILN__STEP_CONVERT: product->finish++; break;
        case KILN__STEP_GATHER: product->loads++; break;
        case KILN__STEP_LOAD:
            product->loads += is_whole(group, &group->accesses.items[step->index]);
            break;
        default: break;
        }
    }
}

static struct kiln__product product_of(const struct kiln__plan *plan, uint32_t index)
{
    const struct kiln__group *group = &plan->fusion.groups.items[index];
    const struct kiln__shape *shape = &group->shape;
    struct kiln__product product = {.device = kiln__plan_device(plan, group), .batch = 1};
    product.m = (int64_t)shape->dims[shape->rank - 2];
    product.n = (int64_t)shape->dims[shape->rank - 1];
    product.k = (int64_t)group->reduced;
    product.sums = group->steps.items[group->reduced_step].op;
    count_finish(group, &product);
    for (uint32_t d = 0; d + 2 < shape->rank; d++)
        product.batch *= (int64_t)shape->dims[d];
    product.a = matrix_of(plan, group, 0, product.m, product.k);
    product.b = matrix_of(plan, group, 1, product.k, product.n);
    product.c = (struct kiln__matrix){
        .slot = KILN__NO_SLOT, .row = product.n, .column = 1, .batch = product.m * product.n};
    product.c.item = sizeof(float);
    fold_batch(&product);
    product.copies = copies_of(plan, index, &product);
    return product;
}

/* Chunked devices write sums and finish them later: they would overwrite what is still to be read.
 * Where nothing finishes them they are the result. */
static bool holds_sums(const struct kiln__plan *plan, const struct kiln__group *group,
                       const struct kiln__store *store)
{
    return plan->fusion.graph.nodes.items[store->node].type == KILN_F32 &&
           (!kiln__plan_device(plan, group)->traits->chunked || !kiln__group_has_epilogue(group) ||
            !plan->slots.items[plan->slot_of[store->node]].in_place);
}

/* Where kernels add up: the first store that can hold sums, if there is one. */
static void place_result(const struct kiln__plan *plan, const struct kiln__group *group,
                         struct kiln__product *product)
{
    for (size_t i = 0; i < group->stores.count; i++) {
        const struct kiln__store *store = &group->stores.items[i];
        if (!holds_sums(plan, group, store))
            continue;
        product->c.slot = plan->slot_of[store->node];
        product->result = (uint8_t)(i + 1);
        return;
    }
}

static struct kiln__selection lower_matmul_choose(const struct kiln__plan *plan,
                                                  const struct kiln__group *group,
                                                  const struct kiln__product *product)
{
    bool plain = !product->a.computed && !product->b.computed && !kiln__group_has_epilogue(group);
    unsigned needs = plain ? 0 : KILN__KERNEL_STEPS;
    needs |= plan->fusion.graph.batch_invariant ? KILN__KERNEL_BATCH_INVARIANT : 0;
    needs |= product->sums == KILN__PRODUCT_EXACT_INTEGER ? KILN__KERNEL_EXACT_INTEGERS : 0;
    const unsigned own = needs | KILN__KERNEL_OWN_ORDER;
    if (plan->fusion.graph.batch_invariant && !plan->options.matmul &&
        kiln__select_is_able(plan, group, KILN__KERNEL_PRODUCT, own, product))
        needs = own;
    return kiln__select(plan, group, KILN__KERNEL_PRODUCT, needs, product);
}

static bool is_empty(const struct kiln__group *group, const struct kiln__product *product)
{
    return group->stores.count == 0 || product->m == 0 || product->n == 0 || product->batch == 0;
}

uint32_t kiln__matmul_absorbed(struct kiln__plan *plan, uint32_t index)
{
    const struct kiln__group *group = &plan->fusion.groups.items[index];
    struct kiln__product product = product_of(plan, index);
    if (product.copies == KILN__NO_GROUP || is_empty(group, &product))
        return KILN__NO_GROUP;
    kiln__plan_tune(plan, index);
    product.device = kiln__plan_device(plan, group);
    const struct kiln__kernel_row *kernel = lower_matmul_choose(plan, group, &product).taken;
    return kernel->traits & KILN__KERNEL_IM2COL ? product.copies : KILN__NO_GROUP;
}

void kiln__matmul_work(const struct kiln__plan *plan, uint32_t index, struct kiln__text *text)
{
    struct kiln__product product = product_of(plan, index);
    kiln__text_add(text, "product ");
    if (product.batch != 1)
        kiln__text_add(text, "%" PRId64 "x", product.batch);
    kiln__text_add(text, "%" PRId64 "x%" PRId64 "x%" PRId64 " %c%c", product.m, product.k,
                   product.n, product.a.column == 1 ? 'n' : 't', product.b.column == 1 ? 'n' : 't');
    if (product.copies != KILN__NO_GROUP)
        kiln__text_add(text, " windows");
    if (product.sums != KILN__PRODUCT_EXACT)
        kiln__text_add(text, " %s", kiln__product_name_text(product.sums));
}

void kiln__lower_matmul(struct kiln__plan *plan, uint32_t index)
{
    const struct kiln__group *group = &plan->fusion.groups.items[index];
    assert(group->kind == KILN__GROUP_MATMUL);
    struct kiln__product product = product_of(plan, index);
    if (is_empty(group, &product))
        return;
    place_result(plan, group, &product);
    const struct kiln__selection choice = lower_matmul_choose(plan, group, &product);
    const unsigned traits = choice.taken->traits;
    if (product.c.slot == KILN__NO_SLOT &&
        !(traits & KILN__KERNEL_NO_WORKSPACE && kiln__group_has_epilogue(group)))
        product.c.slot = kiln__plan_scratch(plan, (size_t)(product.batch * product.m * product.n) *
                                                      sizeof(float));
    KILN__LOG(KILN__LOG_DEBUG, "matmul %lldx%lldx%lld, %lld times: %s", (long long)product.m,
              (long long)product.n, (long long)product.k, (long long)product.batch,
              choice.taken->name);
    size_t first = plan->launches.count;
    kiln__lower_by(plan, index, &choice, &product);
    for (size_t i = first; i < plan->launches.count; i++)
        plan->launches.items[i].covers = traits & KILN__KERNEL_IM2COL ? product.copies + 1 : 0;
}

/* ---- for implementations ---- */

struct kiln__launch kiln__product_launch(uint32_t group, const char *file, const char *kernel)
{
    struct kiln__launch launch = {
        .source = KILN__SOURCE_TEMPLATE, .group = group, .file = file, .kernel = kernel};
    launch.variant.wide = true;
    return launch;
}

void kiln__product_range(struct kiln__launch *launch, int64_t x, int64_t y, int64_t z)
{
    launch->dimensions = 3;
    launch->global[0] = (size_t)x;
    launch->global[1] = (size_t)y;
    launch->global[2] = (size_t)z;
    launch->local[0] = launch->local[1] = launch->local[2] = 1;
}

/* An operand's own dimensions, as a space. */
static struct kiln__space operand_space(const struct kiln__group *group,
                                        struct kiln__operand operand)
{
    struct kiln__space space = {.rank = KILN__LINE_STRIDES};
    for (size_t i = operand.access; i < operand.end; i++)
        kiln__operand_strides(group, i, space.stride[i]);
    return space;
}

/* Whether vectors of neighbours along stride `along` of access `i` lie at multiples of their size.
 */
static bool is_aligned(const struct kiln__group *group, const struct kiln__space *space, size_t i,
                       uint32_t along, int64_t vector)
{
    bool aligned = group->accesses.items[i].offset % vector == 0;
    for (uint32_t d = 0; d < space->rank; d++)
        aligned = aligned && (d == along || space->stride[i][d] % vector == 0);
    return aligned || space->stride[i][along] != 1;
}

/* How the accesses of an operand lie along its vectors, and, beside its own elements, what they
 * take; of these the product knows whether they are aligned. Those in blocks, which no pointer
 * names, are read by where they are as well. */
static void add_operand(const struct kiln__plan *plan, const struct kiln__matrix *matrix,
                        enum kiln__argument_section part, struct kiln__launch *launch)
{
    const struct kiln__group *group = &plan->fusion.groups.items[launch->group];
    struct kiln__variant *variant = &launch->variant;
    struct kiln__operand operand = kiln__group_operand(group, matrix->operand);
    struct kiln__space space = operand_space(group, operand);
    uint32_t along = matrix->across ? KILN__BY_LINE : KILN__BY_DEPTH;
    variant->along[operand.access] = KILN__CONTIGUOUS;
    for (size_t i = operand.access + 1u; i < operand.end; i++) {
        variant->along[i] = (uint8_t)kiln__space_vector_access(&space, i, along);
        variant->aligned = variant->aligned && is_aligned(group, &space, i, along, variant->vector);
    }
    launch->part = part;
    kiln__launch_accesses(plan, group, &space, launch, operand.access + !matrix->blocks,
                          operand.end);
    kiln__launch_scalars(group, launch, operand.first, operand.value + 1u);
    launch->part = KILN__SECTION_GROUP;
}

/* The group's steps walk lines, which are rows of all matrices of the batch, and their columns. */
static void add_epilogue(const struct kiln__plan *plan, const struct kiln__product *product,
                         const struct kiln__space *space, struct kiln__launch *launch)
{
    const struct kiln__group *group = &plan->fusion.groups.items[launch->group];
    kiln__launch_add(launch, KILN__INDEX(product->m), "epilogue_m", 0, 0);
    kiln__launch_add(launch, KILN__INDEX(product->n), "epilogue_n", 0, 0);
    for (uint32_t d = 1; d < space->kept; d++)
        kiln__launch_add(launch, KILN__INDEX(space->dims[d]), "d#", d, 0);
    kiln__launch_accesses(plan, group, space, launch, kiln__group_operand_accesses(group),
                          group->accesses.count);
    kiln__launch_stores(plan, group, space, launch);
    kiln__launch_scalars(group, launch, group->reduced_step, group->steps.count);
}

static uint8_t reads_of(const struct kiln__matrix *a, const struct kiln__matrix *b)
{
    bool swapped = (a && a->operand == 1) || (b && b->operand == 0);
    unsigned reads = (a ? KILN__READS_A : 0) | (b ? KILN__READS_B : 0);
    reads |= a && a->across ? KILN__READS_A_ACROSS : 0;
    reads |= b && b->across ? KILN__READS_B_ACROSS : 0;
    return (uint8_t)(reads | (swapped ? KILN__READS_SWAPPED : 0));
}

static const struct kiln__matrix *if_computed(const struct kiln__matrix *matrix)
{
    return matrix && matrix->computed ? matrix : NULL;
}

static void add_extras(const struct kiln__plan *plan, const struct kiln__extras *extras,
                       struct kiln__launch *launch)
{
    const struct kiln__group *group = &plan->fusion.groups.items[launch->group];
    const struct kiln__matrix *a = if_computed(extras->a), *b = if_computed(extras->b);
    struct kiln__variant *variant = &launch->variant;
    struct kiln__space space;
    bool epilogue = extras->product && kiln__group_has_epilogue(group);
    if (!a && !b && !epilogue)
        return;
    kiln__space_of(group, &space);
    kiln__variant_start(plan, group, &space, variant);
    variant->wide = true;
    variant->epilogue = epilogue;
    variant->operands = a || b ? reads_of(a, b) : 0;
    variant->vector = (uint8_t)extras->vector;
    if (epilogue) {
        variant->result = extras->product->result;
        kiln__variant_updates(plan, group, variant);
        for (size_t i = kiln__group_operand_accesses(group); i < group->accesses.count; i++)
            variant->along[i] = (uint8_t)kiln__space_vector_access(&space, i, space.rank - 1);
    }
    variant->aligned = extras->aligned && kiln__variant_is_aligned(plan, group, variant);
    if (a)
        add_operand(plan, a, KILN__SECTION_OPERAND_A, launch);
    if (b)
        add_operand(plan, b, KILN__SECTION_OPERAND_B, launch);
    if (epilogue)
        add_epilogue(plan, extras->product, &space, launch);
}

void kiln__plan_add_product_launch(struct kiln__plan *plan, const struct kiln__extras *extras,
                                   struct kiln__launch *launch)
{
    add_extras(plan, extras, launch);
    kiln__plan_launch(plan, launch);
}

void kiln__launch_indices(struct kiln__launch *launch, size_t count, const int64_t *values)
{
    for (size_t i = 0; i < count; i++)
        kiln__launch_index(launch, values[i]);
}
