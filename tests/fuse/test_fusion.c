/* SPDX-License-Identifier: Apache-2.0 */
/* Which operations become one kernel, and why a value goes to memory. Nothing here needs a
 * device. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "../support/context.h"
#include "../support/golden.h"
#include "../support/graph.h"
#include "fuse/group.h"
#include "rewrite/passes.h"

static void check_fusion(const char *name, kiln_batch *batch)
{
    struct kiln__text text = {0};
    fusion_text(batch, &text);
    expect_golden(name, &text);
    kiln_batch_release(batch);
}

static size_t count_groups(kiln_batch *batch)
{
    struct kiln__fusion fusion = fusion_of(batch);
    size_t count = fusion.groups.count;
    kiln__fusion_free(&fusion);
    kiln_batch_release(batch);
    return count;
}

/* After the passes. */
static struct kiln__graph rewritten(const kiln_batch *batch)
{
    struct kiln__graph graph = graph_of(batch);
    cr_assert_eq(kiln_batch_status(batch), KILN_OK, "%s", kiln_batch_error(batch));
    cr_assert_eq(kiln__rewrite(&graph, &(struct kiln__kernel_support){0}, NULL, NULL), KILN_OK);
    return graph;
}

static kiln_tensor sum_rows(kiln_batch *batch, kiln_tensor x)
{
    return kiln_sum(batch, x, 1, (int[]){1}, 0);
}

/* ---- one kernel ---- */

Test(fusion, makes_one_kernel_of_a_chain)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_matrix(batch, 4, 8), row = imagine_vector(batch, 8);
    kiln_tensor y = kiln_add(batch, kiln_scale(batch, kiln_relu(batch, x), 2), row);
    ask(batch, kiln_cast(batch, y, KILN_U8));
    check_fusion("fusion_chain", batch);
}

Test(fusion, puts_a_chain_into_the_reduction_that_follows)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_matrix(batch, 4, 8), y = imagine_matrix(batch, 4, 8);
    ask(batch, sum_rows(batch, kiln_square(batch, kiln_sub(batch, x, y))));
    check_fusion("fusion_prologue", batch);
}

Test(fusion, puts_what_follows_a_reduction_into_it)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_matrix(batch, 4, 8), bias = imagine_vector(batch, 4);
    kiln_tensor norm = kiln_sqrt(batch, sum_rows(batch, kiln_square(batch, x)));
    ask(batch, kiln_add(batch, norm, bias));
    check_fusion("fusion_epilogue", batch);
}

Test(fusion, stores_several_results_from_one_kernel)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_vector(batch, 8), y = imagine_vector(batch, 8);
    ask(batch, kiln_add(batch, x, y));
    ask(batch, kiln_sub(batch, x, y));
    ask(batch, kiln_exp(batch, kiln_sub(batch, x, y)));
    check_fusion("fusion_outputs", batch);
}

Test(fusion, stores_a_value_and_what_is_made_of_it)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = kiln_tanh(batch, imagine_vector(batch, 8));
    ask(batch, x);
    ask(batch, kiln_square(batch, x));
    check_fusion("fusion_along", batch);
}

/* Both arms and their meeting are one kernel, and the shared value is computed once in it. */
Test(fusion, closes_a_diamond)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = kiln_exp(batch, imagine_vector(batch, 8));
    kiln_tensor y = kiln_relu(batch, x);
    ask(batch, kiln_mul(batch, kiln_neg(batch, x), y));
    check_fusion("fusion_diamond", batch);
}

Test(fusion, uses_a_value_twice_but_loads_it_once)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_vector(batch, 8);
    ask(batch, kiln_mul(batch, x, kiln_add(batch, x, kiln_mul(batch, x, x))));
    check_fusion("fusion_once", batch);
}

Test(fusion, loads_through_transposes_slices_and_broadcasts)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_matrix(batch, 4, 8), row = imagine_vector(batch, 4);
    kiln_tensor part =
        kiln_slice(batch, x, (int64_t[]){0, 7}, (int64_t[]){4, -1}, (int64_t[]){1, -1});
    ask(batch, kiln_add(batch, kiln_transpose(batch, part, NULL), row));
    check_fusion("fusion_views", batch);
}

/* ---- several reductions over the same rows ---- */

static kiln_tensor softmax(kiln_batch *batch, kiln_tensor x, int axis)
{
    kiln_tensor e = kiln_exp(batch, kiln_sub(batch, x, kiln_max(batch, x, 1, &axis, 1)));
    return kiln_div(batch, e, kiln_sum(batch, e, 1, &axis, 1));
}

Test(fusion, makes_one_kernel_of_softmax)
{
    kiln_batch *batch = imagined_batch();
    ask(batch, softmax(batch, imagine_matrix(batch, 4, 8), 1));
    check_fusion("fusion_softmax", batch);
}

/* One result per row and several per element, operands of both kinds, and dimensions dropped. */
Test(fusion, makes_one_kernel_of_layer_norm_and_what_follows)
{
    kiln_batch *batch = imagined_batch();
    const int last = -1;
    kiln_tensor x = imagine_matrix(batch, 4, 8), w = imagine_vector(batch, 8);
    kiln_tensor y = kiln_layer_norm(batch, x, w, w, 1, &last, 1e-5);
    kiln_tensor sum = kiln_sum(batch, kiln_mul(batch, y, x), 1, &last, 0);
    ask(batch, y);
    ask(batch, kiln_mul(batch, sum, imagine_vector(batch, 4)));
    check_fusion("fusion_layer_norm", batch);
}

/* What is left of the mean is made again where gradients need it: one kernel for the rows, one for
 * the sums over them. */
Test(fusion, makes_one_kernel_of_layer_norm_and_its_gradient_along_rows)
{
    kiln_batch *batch = imagined_batch();
    const int last = -1;
    kiln_tensor in[] = {imagine_matrix(batch, 4, 8), imagine_vector(batch, 8),
                        imagine_vector(batch, 8)};
    kiln_tensor y = kiln_layer_norm(batch, in[0], in[1], in[2], 1, &last, 1e-5), gradients[3];
    kiln_tensor loss = kiln_sum(batch, kiln_mul(batch, y, imagine_matrix(batch, 4, 8)), 0, NULL, 0);
    cr_assert_eq(kiln_grad(batch, loss, in, 3, gradients), KILN_OK);
    ask(batch, y);
    for (int i = 0; i < 3; i++)
        ask(batch, gradients[i]);
    size_t groups = count_groups(batch);
    cr_expect_eq(groups, 2u, "%zu", groups);
}

/* Two reductions of one input, without a value of one in the other. */
Test(fusion, reduces_what_it_has_loaded_twice)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_matrix(batch, 4, 8);
    ask(batch, sum_rows(batch, x));
    ask(batch, sum_rows(batch, kiln_square(batch, x)));
    cr_expect_eq(count_groups(batch), 1u);
}

Test(fusion, makes_one_kernel_of_each_normalization)
{
    const int last = -1;
    kiln_tensor (*const functions[])(kiln_batch *, kiln_tensor, size_t,
                                     const int *) = {kiln_softmax, kiln_log_softmax};
    for (size_t i = 0; i < 2; i++) {
        kiln_batch *batch = imagined_batch();
        ask(batch, functions[i](batch, imagine_matrix(batch, 4, 8), 1, &last));
        cr_expect_eq(count_groups(batch), 1u, "%zu", i);
    }
    for (int keep = 0; keep < 2; keep++) {
        kiln_batch *batch = imagined_batch();
        ask(batch, kiln_logsumexp(batch, imagine_matrix(batch, 4, 8), 1, &last, keep));
        cr_expect_eq(count_groups(batch), 1u);
        batch = imagined_batch();
        ask(batch, kiln_variance(batch, imagine_matrix(batch, 4, 8), 1, &last, 1, keep));
        cr_expect_eq(count_groups(batch), 1u);
        batch = imagined_batch();
        ask(batch,
            kiln_rms_norm(batch, imagine_matrix(batch, 4, 8), (kiln_tensor){0}, 1, &last, 0));
        cr_expect_eq(count_groups(batch), 1u);
    }
}

/* Asked for and reduced; reduced rows that would be short or very long are left to two kernels. */
Test(fusion, goes_on_with_the_reduction_of_a_map)
{
    static const struct {
        size_t n, groups;
    } rows[] = {{15, 2}, {16, 1}, {1 << 13, 1}, {(1 << 13) + 1, 2}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        kiln_batch *batch = imagined_batch();
        kiln_tensor x = imagine_matrix(batch, 4, rows[i].n);
        kiln_tensor sum = kiln_add(batch, x, kiln_tanh(batch, x));
        ask(batch, sum);
        ask(batch, sum_rows(batch, sum));
        cr_expect_eq(count_groups(batch), rows[i].groups, "%zu", rows[i].n);
    }
}

/* Segments of a long row, or column, side by side are better than one kernel. */
Test(fusion, keeps_long_rows_and_long_columns_apart)
{
    kiln_batch *batch = imagined_batch();
    ask(batch, softmax(batch, imagine_matrix(batch, 4, (1 << 17) + 1), 1));
    cr_expect_eq(count_groups(batch), 4u);
    batch = imagined_batch();
    ask(batch, softmax(batch, imagine_matrix(batch, 4, 1 << 17), 1));
    cr_expect_eq(count_groups(batch), 1u);
    batch = imagined_batch();
    ask(batch, softmax(batch, imagine_matrix(batch, (1 << 11) + 1, 4), 0));
    cr_expect_eq(count_groups(batch), 4u);
    batch = imagined_batch();
    ask(batch, softmax(batch, imagine_matrix(batch, 1 << 11, 4), 0));
    cr_expect_eq(count_groups(batch), 1u);
}

/* So they are for rows that lie in pieces. */
Test(fusion, keeps_long_scattered_rows_apart)
{
    for (size_t i = 0; i < 2; i++) {
        kiln_batch *batch = imagined_batch();
        kiln_tensor x = imagine(batch, 3, (size_t[]){2, 4, (1 << 14) + i});
        ask(batch, kiln_softmax(batch, x, 2, (int[]){0, 2}));
        cr_expect_eq(count_groups(batch), i ? 4u : 1u);
    }
}

/* Columns that are read and rows that are stored: no walk has neighbours in both. */
Test(fusion, keeps_apart_what_lies_in_two_ways)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = kiln_transpose(batch, imagine_matrix(batch, 64, 48), NULL);
    ask(batch, softmax(batch, x, 0));
    cr_expect_gt(count_groups(batch), 1u);
}

/* Square: a row's value that stands along the columns is another row's. */
Test(fusion, does_not_take_another_rows_value)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_matrix(batch, 8, 8);
    kiln_tensor sums = sum_rows(batch, x);
    ask(batch, kiln_sub(batch, x, sums));
    ask(batch, sum_rows(batch, kiln_sub(batch, x, sums)));
    struct kiln__fusion fusion = fusion_of(batch);
    size_t differences = 0;
    for (size_t i = 0; i < fusion.groups.count; i++)
        for (size_t k = 0; k < fusion.groups.items[i].steps.count; k++) {
            const struct kiln__step *steps = fusion.groups.items[i].steps.items;
            if (steps[k].kind != KILN__STEP_APPLY || steps[k].op != KILN__OP_sub)
                continue;
            differences++;
            cr_expect_eq(steps[steps[k].args[1]].kind, KILN__STEP_LOAD, "of group %zu", i);
        }
    cr_expect_gt(differences, 0u);
    cr_expect_gt(fusion.groups.count, 1u);
    kiln__fusion_free(&fusion);
    kiln_batch_release(batch);
}

/* What it goes on with saves more than what only reads the same, even if that is nearer. */
Test(fusion, joins_the_producer_before_a_sibling)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_matrix(batch, 4, 8), w = imagine_matrix(batch, 4, 8);
    kiln_tensor made = kiln_exp(batch, x);
    ask(batch, made);
    ask(batch, kiln_sin(batch, w));
    ask(batch, kiln_mul(batch, made, w));
    struct kiln__fusion fusion = fusion_of(batch);
    cr_assert_eq(fusion.groups.count, 2u);
    cr_expect_eq(fusion.groups.items[0].stores.count, 2u);
    cr_expect_eq(fusion.groups.items[1].stores.count, 1u);
    kiln__fusion_free(&fusion);
    kiln_batch_release(batch);
}

/* ---- several kernels, and why ---- */

Test(fusion, stores_what_is_expensive_and_shared)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_matrix(batch, 4, 8);
    kiln_tensor e = kiln_exp(batch, kiln_tanh(batch, x));
    ask(batch, sum_rows(batch, e));
    ask(batch, kiln_sum(batch, e, 1, (int[]){0}, 0));
    check_fusion("fusion_shared", batch);
}

Test(fusion, computes_what_is_cheap_again)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_matrix(batch, 4, 8);
    kiln_tensor n = kiln_neg(batch, x);
    ask(batch, sum_rows(batch, n));
    ask(batch, kiln_sum(batch, n, 1, (int[]){0}, 0));
    check_fusion("fusion_cheap", batch);
}

Test(fusion, stores_what_a_broadcast_would_repeat)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_matrix(batch, 64, 64), row = imagine_vector(batch, 64);
    ask(batch, kiln_mul(batch, x, kiln_sigmoid(batch, row)));
    check_fusion("fusion_repeated", batch);
}

Test(fusion, stores_what_strides_cannot_say)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor turned = kiln_transpose(batch, imagine_matrix(batch, 4, 8), NULL);
    ask(batch, sum_rows(batch, kiln_reshape(batch, turned, 2, (size_t[]){2, 16})));
    check_fusion("fusion_moved", batch);
}

/* A square has one operand: it is made again for each of its users, as any cheap value is. */
Test(fusion, counts_an_operand_once)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_matrix(batch, 8, 16), square = kiln_mul(batch, x, x);
    ask(batch, sum_rows(batch, square));
    ask(batch, kiln_sum(batch, square, 1, (int[]){0}, 0));
    struct kiln__fusion fusion = fusion_of(batch);
    cr_expect_eq(fusion.groups.count, 2u);
    for (uint32_t i = 0; i < fusion.graph.nodes.count; i++)
        cr_expect(fusion.graph.nodes.items[i].kind != KILN__ELEMENTWISE || !fusion.stored[i]);
    kiln__fusion_free(&fusion);
    kiln_batch_release(batch);
}

/* Fifty steps of z = z z + c, and how many of them stay small. */
Test(fusion, makes_few_kernels_of_a_loop)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor a = imagine_vector(batch, 64), b = imagine_vector(batch, 64);
    kiln_tensor x = a, y = b, count = kiln_fill(batch, KILN_F32, 1, (size_t[]){64}, 0);
    for (int i = 0; i < 50; i++) {
        kiln_tensor xx = kiln_mul(batch, x, x), yy = kiln_mul(batch, y, y);
        kiln_tensor next = kiln_add(batch, kiln_sub(batch, xx, yy), a);
        y = kiln_add(batch, kiln_mul(batch, kiln_scale(batch, x, 2), y), b);
        x = next;
        kiln_tensor size = kiln_add(batch, kiln_mul(batch, x, x), kiln_mul(batch, y, y));
        kiln_tensor small = kiln_less(batch, size, kiln_constant(batch, KILN_F32, 4));
        count = kiln_add(batch, count, kiln_cast(batch, small, KILN_F32));
    }
    ask(batch, count);
    struct kiln__fusion fusion = fusion_of(batch);
    cr_expect_leq(fusion.groups.count, 16u, "%zu", fusion.groups.count);
    for (size_t i = 0; i < fusion.groups.count; i++)
        cr_expect_geq(fusion.groups.items[i].steps.count, 10u, "a lone operation");
    kiln__fusion_free(&fusion);
    kiln_batch_release(batch);
}

/* ---- reshapes ---- */

/* Nothing is moved: what follows is computed in the dimensions of what is before. */
Test(fusion, goes_on_behind_a_reshape)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor w = imagine_matrix(batch, 8, 12);
    kiln_tensor y = kiln_matmul(batch, imagine_matrix(batch, 32, 8), w);
    y = kiln_add(batch, y, imagine_vector(batch, 12));
    y = kiln_reshape(batch, y, 3, (size_t[]){4, 8, 12});
    kiln_tensor by = imagine(batch, 3, (size_t[]){4, 8, 12});
    y = kiln_mul(batch, kiln_gelu(batch, y), by);
    ask(batch, y);
    check_fusion("fusion_reshaped", batch);
}

/* How many groups are launched on a device whose kernels take narrow operands and store such
 * results. */
static size_t launched(kiln_batch *batch)
{
    struct kiln__graph graph = rewritten(batch);
    struct kiln__fusion fusion;
    cr_assert(kiln__fuse(&graph, &(struct kiln__kernel_support){.narrow_operands = true}, &fusion));
    size_t count = 0;
    for (size_t i = 0; i < fusion.groups.count; i++)
        count += fusion.groups.items[i].stores.count > 0;
    kiln__fusion_free(&fusion);
    kiln_batch_release(batch);
    return count;
}

/* How many groups an encoder's layer has, of narrow values where `narrow`: a cast before what moves
 * the heads, between transpose and reshape, or last. */
static size_t groups_of_heads(bool narrow, int place)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = kiln_upload(batch, narrow ? KILN_BF16 : KILN_F32, 2, (size_t[]){40, 24}, "");
    kiln_type type = narrow ? KILN_BF16 : KILN_F32;
    kiln_tensor y = kiln_matmul(batch, x, imagine_matrix(batch, 24, 72)), part[3];
    y = kiln_cast(batch, kiln_add(batch, y, imagine_vector(batch, 72)), type);
    y = kiln_reshape(batch, y, 5, (size_t[]){2, 20, 3, 3, 8});
    y = kiln_transpose(batch, y, (size_t[]){2, 0, 3, 1, 4});
    for (int64_t i = 0; i < 3; i++) {
        kiln_tensor one =
            kiln_slice(batch, y, (int64_t[]){i, 0, 0, 0, 0}, (int64_t[]){i + 1, 2, 3, 20, 8}, NULL);
        part[i] = kiln_reshape(batch, one, 4, (size_t[]){2, 3, 20, 8});
    }
    y = kiln_attention(batch, part[0], part[1], part[2], (kiln_tensor){0}, NULL);
    y = place == 0 ? kiln_cast(batch, y, type) : y;
    y = kiln_transpose(batch, y, (size_t[]){0, 2, 1, 3});
    y = place == 1 ? kiln_cast(batch, y, type) : y;
    y = kiln_reshape(batch, y, 2, (size_t[]){40, 24});
    y = place == 2 ? kiln_cast(batch, y, type) : y;
    ask(batch, kiln_matmul(batch, y, imagine_matrix(batch, 24, 24)));
    return launched(batch);
}

Test(fusion, casts_and_moves_heads_in_the_kernels_beside)
{
    for (int place = 0; place < 3; place++) {
        cr_expect_eq(groups_of_heads(false, place), 3u, "%zu", groups_of_heads(false, place));
        cr_expect_eq(groups_of_heads(true, place), 3u, "%d: %zu", place,
                     groups_of_heads(true, place));
    }
}

/* Four heads of queries to one of keys, and then eight of queries. */
Test(fusion, stores_attention_narrow_behind_a_reshape)
{
    for (int cast_first = 0; cast_first < 2; cast_first++) {
        kiln_batch *batch = imagined_batch();
        kiln_tensor q = kiln_upload(batch, KILN_F16, 4, (size_t[]){2, 4, 16, 8}, "");
        kiln_tensor k = kiln_upload(batch, KILN_F16, 4, (size_t[]){2, 1, 16, 8}, "");
        kiln_tensor y = kiln_attention(batch, q, k, k, (kiln_tensor){0}, NULL);
        y = cast_first ? kiln_cast(batch, y, KILN_F16) : y;
        y = kiln_reshape(batch, y, 4, (size_t[]){1, 8, 16, 8});
        ask(batch, cast_first ? y : kiln_cast(batch, y, KILN_F16));
        cr_expect_eq(launched(batch), 1u);
    }
}

Test(fusion, computes_cheap_operands_in_the_product_and_reads_transposed_ones_in_place)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_matrix(batch, 24, 8), w = imagine_matrix(batch, 16, 8);
    kiln_tensor y = kiln_matmul_transposed(batch, kiln_relu(batch, x), 0, w, 1);
    ask(batch, kiln_add(batch, y, imagine_vector(batch, 16)));
    check_fusion("fusion_product", batch);
}

/* ---- what is computed where a product reads it ---- */

/* How many groups the product of x and a plain matrix of `n` columns has. */
static size_t groups_with(kiln_batch *batch, kiln_tensor x, size_t n)
{
    size_t rank, dims[KILN_MAX_RANK];
    expect_ok(kiln_tensor_shape(batch, x, NULL, &rank, dims));
    ask(batch, kiln_matmul(batch, x, imagine_matrix(batch, dims[rank - 1], n)));
    struct kiln__fusion fusion = fusion_of(batch);
    size_t count = fusion.groups.count;
    kiln__fusion_free(&fusion);
    kiln_batch_release(batch);
    return count;
}

Test(fusion, computes_operands_that_movements_lie_between)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = kiln_scale(batch, imagine_matrix(batch, 24, 18), 2);
    kiln_tensor bias = kiln_add(batch, x, imagine_vector(batch, 18));
    kiln_tensor turned = kiln_transpose(batch, bias, NULL);
    cr_expect_eq(groups_with(batch, turned, 5), 1u);
    batch = imagined_batch();
    x = kiln_scale(batch, imagine_matrix(batch, 24, 18), 2);
    cr_expect_eq(groups_with(batch, kiln_reshape(batch, x, 2, (size_t[]){36, 12}), 5), 1u);
}

/* Types that are only stored are widened as they are read, transposed or not. */
Test(fusion, widens_operands_where_they_are_read)
{
    for (int transposes = 0; transposes < 4; transposes++) {
        kiln_batch *batch = imagined_batch();
        kiln_tensor x = kiln_upload(batch, KILN_F16, 2, (size_t[]){8, 8}, "");
        kiln_tensor w = kiln_upload(batch, KILN_BF16, 2, (size_t[]){8, 8}, "");
        ask(batch, kiln_matmul_transposed(batch, x, transposes & 1, w, transposes >> 1));
        struct kiln__fusion fusion = fusion_of(batch);
        cr_expect_eq(fusion.groups.count, 1u);
        kiln__fusion_free(&fusion);
        kiln_batch_release(batch);
    }
}

Test(fusion, stores_operands_that_do_not_pay_in_a_product)
{
    kiln_batch *batch = imagined_batch(); /* expensive */
    cr_expect_eq(groups_with(batch, kiln_exp(batch, imagine_matrix(batch, 24, 6)), 5), 2u);
    batch = imagined_batch(); /* few rows */
    cr_expect_eq(groups_with(batch, kiln_scale(batch, imagine_matrix(batch, 8, 6), 2), 5), 2u);
    batch = imagined_batch(); /* used by others */
    kiln_tensor x = kiln_scale(batch, imagine_matrix(batch, 24, 6), 2);
    ask(batch, kiln_neg(batch, x));
    cr_expect_eq(groups_with(batch, x, 5), 2u);
    batch = imagined_batch(); /* asked for */
    x = kiln_scale(batch, imagine_matrix(batch, 24, 6), 2);
    ask(batch, x);
    cr_expect_eq(groups_with(batch, x, 5), 2u);
    batch = imagined_batch(); /* two large loads */
    x = kiln_mul(batch, imagine_matrix(batch, 24, 6), imagine_matrix(batch, 24, 6));
    cr_expect_eq(groups_with(batch, x, 5), 2u);
    batch = imagined_batch(); /* it would lie in another way */
    x = kiln_scale(batch, kiln_transpose(batch, imagine_matrix(batch, 6, 24), NULL), 2);
    cr_expect_eq(groups_with(batch, x, 5), 2u);
    batch = imagined_batch(); /* a kernel before it ends with it */
    x = kiln_matmul(batch, imagine_matrix(batch, 24, 6), imagine_matrix(batch, 6, 4));
    cr_expect_eq(groups_with(batch, kiln_relu(batch, x), 5), 2u);
    batch = imagined_batch(); /* a product for a library */
    x = kiln_scale(batch, imagine_matrix(batch, 2048, 512), 2);
    cr_expect_eq(groups_with(batch, x, 2048), 2u);
    batch = imagined_batch(); /* not one matrix with all rows, as the product's kernel takes it */
    x = kiln_mul(batch, imagine(batch, 3, (size_t[]){3, 8, 6}), imagine_matrix(batch, 8, 1));
    cr_expect_eq(groups_with(batch, x, 5), 2u);
    batch = imagined_batch(); /* matrices at no single distance */
    x = kiln_mul(batch, imagine(batch, 4, (size_t[]){2, 3, 8, 6}),
                 imagine(batch, 4, (size_t[]){1, 3, 1, 6}));
    cr_expect_eq(groups_with(batch, x, 5), 2u);
}

/* What makes a value that it is made from is decided later: it is in memory after all. */
Test(fusion, stores_an_operand_of_what_is_stored_later)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine(batch, 3, (size_t[]){4, 6, 6}), half = kiln_scale(batch, x, 0.5);
    kiln_tensor more = kiln_add(batch, half, imagine_vector(batch, 6));
    kiln_tensor first = kiln_matmul(batch, more, imagine_matrix(batch, 6, 5));
    kiln_tensor turned = kiln_transpose(batch, half, (size_t[]){1, 0, 2});
    kiln_tensor flat = kiln_reshape(batch, turned, 2, (size_t[]){24, 6});
    ask(batch, kiln_matmul(batch, flat, imagine_matrix(batch, 6, 7)));
    ask(batch, first);
    struct kiln__fusion fusion = fusion_of(batch);
    for (size_t i = 0; i < fusion.groups.count; i++)
        if (fusion.groups.items[i].kind == KILN__GROUP_MATMUL)
            cr_expect_eq(fusion.groups.items[i].accesses.count, 2u);
    kiln__fusion_free(&fusion);
    kiln_batch_release(batch);
}

/* ---- limits ---- */

Test(fusion, cuts_long_chains)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_vector(batch, 8), y = x;
    for (int i = 0; i < 300; i++)
        y = kiln_add(batch, y, kiln_constant(batch, KILN_F32, i));
    ask(batch, y);
    struct kiln__fusion fusion = fusion_of(batch);
    cr_expect_geq(fusion.groups.count, 2u);
    cr_expect_leq(fusion.groups.count, 8u);
    for (size_t i = 0; i < fusion.groups.count; i++)
        cr_expect_leq(fusion.groups.items[i].steps.count, 160u);
    kiln__fusion_free(&fusion);
    kiln_batch_release(batch);
}

Test(fusion, keeps_to_the_arguments_that_a_kernel_may_have)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor sum = imagine_vector(batch, 8);
    for (int i = 0; i < 60; i++)
        sum = kiln_add(batch, sum, imagine_vector(batch, 8));
    ask(batch, sum);
    struct kiln__fusion fusion = fusion_of(batch);
    cr_expect_geq(fusion.groups.count, 3u);
    for (size_t i = 0; i < fusion.groups.count; i++) {
        const struct kiln__group *group = &fusion.groups.items[i];
        cr_expect_leq(group->accesses.count + group->stores.count, 28u);
    }
    kiln__fusion_free(&fusion);
    kiln_batch_release(batch);
}

Test(fusion, keeps_to_the_limits_with_many_results)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_vector(batch, 8);
    for (int i = 0; i < 60; i++)
        ask(batch, kiln_add(batch, x, kiln_constant(batch, KILN_F32, i)));
    struct kiln__fusion fusion = fusion_of(batch);
    size_t stores = 0;
    cr_expect_leq(fusion.groups.count, 4u, "results of one input are not kept together");
    for (size_t i = 0; i < fusion.groups.count; i++) {
        const struct kiln__group *group = &fusion.groups.items[i];
        cr_expect_leq(group->accesses.count + group->stores.count, 28u);
        stores += group->stores.count;
    }
    cr_expect_eq(stores, 60u);
    kiln__fusion_free(&fusion);
    kiln_batch_release(batch);
}

/* ---- nothing to do ---- */

Test(fusion, makes_no_kernel_of_inputs_that_are_read)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_vector(batch, 8);
    ask(batch, x);
    ask(batch, kiln_reshape(batch, x, 2, (size_t[]){2, 4}));
    cr_expect_eq(count_groups(batch), 0u);
}

/* Every value that goes to memory is made by exactly one group, after all that it loads. */
Test(fusion, orders_groups_by_what_they_load)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_matrix(batch, 16, 16);
    for (int i = 0; i < 30; i++) {
        kiln_tensor rows = kiln_mean(batch, x, 1, (int[]){i % 2}, 1);
        x = kiln_matmul(batch, kiln_tanh(batch, kiln_sub(batch, x, rows)),
                        kiln_transpose(batch, x, NULL));
        if (i % 7 == 0)
            ask(batch, kiln_sum(batch, x, 0, NULL, 0));
    }
    ask(batch, x);
    struct kiln__fusion fusion = fusion_of(batch);
    size_t *maker = calloc(fusion.graph.nodes.count, sizeof *maker);
    cr_assert(maker);
    for (size_t g = 0; g < fusion.groups.count; g++) {
        const struct kiln__group *group = &fusion.groups.items[g];
        for (size_t i = 0; i < group->accesses.count; i++) {
            uint32_t node = group->accesses.items[i].node;
            bool input = kiln__node_is_input(&fusion.graph.nodes.items[node]);
            cr_assert(input || maker[node] != 0, "group %zu loads %u too early", g, node);
        }
        for (size_t i = 0; i < group->stores.count; i++)
            cr_assert_eq(maker[group->stores.items[i].node]++, 0u);
    }
    for (size_t i = 0; i < fusion.graph.requests.count; i++)
        cr_expect_eq(maker[fusion.graph.requests.items[i].node], 1u);
    free(maker);
    kiln__fusion_free(&fusion);
    kiln_batch_release(batch);
}
