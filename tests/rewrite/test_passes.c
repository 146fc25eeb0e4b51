/* SPDX-License-Identifier: Apache-2.0 */
/* What the passes make of a recorded graph, in words, and what they may not leave behind. Nothing
 * here needs a device. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/attention.h>

#include "../support/check.h"
#include "../support/context.h"
#include "../support/golden.h"
#include "../support/graph.h"
#include "../support/random.h"
#include "graph/attention.h"
#include "rewrite/passes.h"
#include "rewrite/rewrite.h"

/* Compare what the passes say and leave with a golden text. */
static void check_passes(const char *name, kiln_batch *batch)
{
    struct kiln__text text = {0};
    kiln__text_add(&text, "recorded\n");
    kiln__graph_dump(&batch->graph, &text);
    passes_text(batch, &text);
    expect_golden(name, &text);
    kiln_batch_release(batch);
}

static kiln_tensor reversed(kiln_batch *batch, kiln_tensor x, int64_t n)
{
    return kiln_slice(batch, x, (int64_t[]){n - 1}, (int64_t[]){-1}, (int64_t[]){-1});
}

/* ---- dead ---- */

Test(passes, drop_what_nobody_asks_for)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_vector(batch, 8), y = imagine_vector(batch, 8);
    kiln_sum(batch, kiln_exp(batch, y), 0, NULL, 0);
    ask(batch, kiln_neg(batch, x));
    kiln_matmul(batch, x, y);
    check_passes("passes_dead", batch);
}

/* ---- common ---- */

Test(passes, compute_equal_nodes_once)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_vector(batch, 8), y = imagine_vector(batch, 8);
    kiln_tensor left = kiln_exp(batch, kiln_add(batch, x, y));
    kiln_tensor right = kiln_exp(batch, kiln_add(batch, x, y));
    kiln_tensor other = kiln_exp(batch, kiln_add(batch, y, x)); /* not the same bits with NaN */
    ask(batch, kiln_mul(batch, left, right));
    ask(batch, other);
    ask(batch, kiln_sum(batch, left, 1, (int[]){0}, 0));
    ask(batch, kiln_sum(batch, right, 1, (int[]){-1}, 0));
    check_passes("passes_common", batch);
}

Test(passes, keep_apart_what_differs_in_anything)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_matrix(batch, 4, 4);
    ask(batch, kiln_sum(batch, x, 1, (int[]){0}, 0));
    ask(batch, kiln_sum(batch, x, 1, (int[]){1}, 0));
    ask(batch, kiln_max(batch, x, 1, (int[]){1}, 0));
    ask(batch, kiln_scale(batch, x, 2));
    ask(batch, kiln_scale(batch, x, 2.5));
    ask(batch, kiln_scale(batch, x, -0.0));
    ask(batch, kiln_scale(batch, x, 0.0));
    ask(batch, kiln_cast(batch, x, KILN_I32));
    ask(batch, kiln_cast(batch, x, KILN_U8));
    check_passes("passes_different", batch);
}

/* ---- fold ---- */

Test(passes, fold_views_of_views)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_matrix(batch, 4, 8);
    kiln_tensor part =
        kiln_slice(batch, x, (int64_t[]){3, 1}, (int64_t[]){-1, 8}, (int64_t[]){-1, 2});
    kiln_tensor turned = kiln_transpose(batch, part, NULL);
    ask(batch, kiln_broadcast(batch, turned, 3, (size_t[]){5, 4, 4}));
    check_passes("passes_views", batch);
}

Test(passes, fold_movements_that_undo_each_other)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_vector(batch, 8), y = imagine_matrix(batch, 4, 8);
    ask(batch, reversed(batch, reversed(batch, x, 8), 8));
    ask(batch, kiln_transpose(batch, kiln_transpose(batch, y, NULL), NULL));
    kiln_tensor shaped = kiln_reshape(batch, y, 3, (size_t[]){2, 2, 8});
    shaped = kiln_reshape(batch, shaped, 1, (size_t[]){32});
    ask(batch, kiln_reshape(batch, shaped, 2, (size_t[]){4, 8}));
    ask(batch, kiln_reshape(batch, shaped, 2, (size_t[]){8, 4}));
    check_passes("passes_undone", batch);
}

Test(passes, fold_what_changes_nothing)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_vector(batch, 8), one = kiln_constant(batch, KILN_F32, 1);
    ask(batch, kiln_mul(batch, x, one));
    ask(batch, kiln_mul(batch, one, kiln_neg(batch, x)));
    ask(batch, kiln_cast(batch, kiln_abs(batch, x), KILN_F32));
    /* these change shape or bits */
    ask(batch, kiln_mul(batch, x, kiln_broadcast(batch, one, 2, (size_t[]){2, 8})));
    ask(batch, kiln_add(batch, x, kiln_constant(batch, KILN_F32, 0)));
    check_passes("passes_identity", batch);
}

Test(passes, fold_constants)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_vector(batch, 8);
    kiln_tensor two = kiln_constant(batch, KILN_F32, 2), three = kiln_constant(batch, KILN_F32, 3);
    kiln_tensor six = kiln_mul(batch, two, three);
    kiln_tensor row =
        kiln_broadcast(batch, kiln_exp(batch, kiln_sub(batch, six, six)), 1, (size_t[]){8});
    ask(batch, kiln_add(batch, x, row));
    ask(batch, kiln_cast(batch, kiln_div(batch, three, two), KILN_I32));
    check_passes("passes_constants", batch);
}

/* An integer that wraps around on the device is not a number that doubles know. */
Test(passes, leave_constants_that_wrap_around)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor most = kiln_constant(batch, KILN_I32, 2147483647);
    ask(batch, kiln_add(batch, most, most));
    ask(batch, kiln_sub(batch, most, most));
    check_passes("passes_wrap", batch);
}

/* ---- sink ---- */

Test(passes, sink_transposes_below_additions)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_matrix(batch, 4, 8), row = imagine_vector(batch, 8);
    kiln_tensor two = kiln_constant(batch, KILN_F32, 2);
    kiln_tensor sum = kiln_add(batch, kiln_add(batch, x, row), two);
    ask(batch, kiln_transpose(batch, sum, NULL));
    check_passes("passes_sink_transpose", batch);
}

Test(passes, sink_slices_and_broadcasts)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_vector(batch, 8), y = imagine_vector(batch, 8);
    ask(batch, reversed(batch, kiln_exp(batch, x), 8));
    ask(batch, kiln_broadcast(batch, kiln_neg(batch, y), 2, (size_t[]){3, 8}));
    check_passes("passes_sink_views", batch);
}

Test(passes, sink_gathers_of_less_than_a_table)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor table = imagine_matrix(batch, 100, 8), at = imagine_matrix(batch, 2, 3);
    table = kiln_add(batch, table, imagine_vector(batch, 8));
    table = kiln_mul(batch, table, imagine_matrix(batch, 100, 1));
    ask(batch, kiln_gather(batch, table, kiln_cast(batch, at, KILN_I32), 0));
    check_passes("passes_sink_gather", batch);
}

/* Repeating an expensive value, or computing it for two users, would cost more than storing it. */
Test(passes, do_not_sink_what_is_expensive_to_repeat)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_vector(batch, 8);
    kiln_tensor e = kiln_exp(batch, x), t = kiln_tanh(batch, x);
    ask(batch, kiln_broadcast(batch, e, 2, (size_t[]){3, 8}));
    ask(batch, kiln_add(batch, t, reversed(batch, t, 8)));
    check_passes("passes_sink_not", batch);
}

Test(passes, sink_reshapes_of_equal_shapes_only)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_matrix(batch, 4, 8), y = imagine_matrix(batch, 4, 8);
    kiln_tensor row = imagine_vector(batch, 8);
    ask(batch, kiln_reshape(batch, kiln_add(batch, x, y), 1, (size_t[]){32}));
    ask(batch, kiln_reshape(batch, kiln_add(batch, x, row), 1, (size_t[]){32}));
    check_passes("passes_sink_reshape", batch);
}

/* A product reads a transposed operand in place; moving it would only take the sum apart. */
Test(passes, leave_the_operands_of_products)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_matrix(batch, 4, 8), y = imagine_matrix(batch, 4, 8);
    ask(batch, kiln_matmul_transposed(batch, kiln_add(batch, x, y), 1, y, 0));
    check_passes("passes_product", batch);
}

/* The operands of narrow products, once for all readers, and what a softmax reads of a result. What
 * is asked for, and a weight that is updated from itself, stay as they are for others. */
Test(passes, narrow_precision_stores_operands_narrow)
{
    kiln_batch *batch = imagined_batch();
    expect_ok(kiln_batch_set_precision(batch, KILN_PRECISION_BF16));
    kiln_tensor x = kiln_tanh(batch, imagine_matrix(batch, 4, 8));
    kiln_tensor w = imagine_weights(batch, 8, 8), none = {0};
    kiln_tensor y = kiln_add(batch, kiln_matmul_transposed(batch, x, 0, w, 1), x);
    ask(batch, kiln_softmax(batch, y, 1, (int[]){-1}));
    w = kiln_sub(batch, w, imagine_matrix(batch, 8, 8));
    ask(batch, w);
    ask(batch, kiln_attention(batch, kiln_matmul(batch, x, w), w, w, none, NULL));
    ask(batch, kiln_neg(batch, w));
    check_passes("passes_policy", batch);
}

/* ---- lift ---- */

static kiln_tensor transposed_product(kiln_batch *batch)
{
    kiln_tensor x = imagine_matrix(batch, 4, 8), w = imagine_weights(batch, 8, 16);
    return kiln_transpose(batch, kiln_matmul(batch, x, w), NULL);
}

/* The bias and what follows run in the product's kernel; two transposes are none. */
Test(passes, lift_what_follows_a_transposed_product)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor y = transposed_product(batch), bias = imagine_matrix(batch, 16, 1);
    y = kiln_relu(batch, kiln_add(batch, y, bias));
    ask(batch, kiln_add(batch, y, kiln_sigmoid(batch, transposed_product(batch))));
    ask(batch, kiln_max(batch, kiln_transpose(batch, y, NULL), 1, (int[]){1}, 0));
    check_passes("passes_lift", batch);
}

/* A convolution of each channel by itself reads around its image; one of all channels is a product,
 * which has the padding in memory. */
/* Heads that are split off a product's rows, [rows, 3 heads of 4] to [2 sequences, heads, 5, 4]. */
static kiln_tensor heads_of(kiln_batch *batch, kiln_tensor y)
{
    y = kiln_reshape(batch, y, 4, (size_t[]){2, 5, 3, 4});
    return kiln_transpose(batch, y, (size_t[]){0, 2, 1, 3});
}

static kiln_tensor product_of_rows(kiln_batch *batch)
{
    kiln_tensor w = imagine_matrix(batch, 6, 12);
    return kiln_matmul(batch, imagine_matrix(batch, 10, 6), w);
}

/* Below reshapes, too; but not what comes for each row of a sequence, which the product's kernel
 * has no dimension for, nor beside others that read the product's rows. */
Test(passes, lift_before_heads)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor y = heads_of(batch, product_of_rows(batch));
    y = kiln_add(batch, y, imagine(batch, 3, (size_t[]){3, 1, 4}));
    ask(batch, kiln_cast(batch, kiln_scale(batch, y, 0.5), KILN_F16));
    check_passes("passes_lift_heads", batch);
}

Test(passes, do_not_lift_before_heads_what_goes_by_rows)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor y = heads_of(batch, product_of_rows(batch));
    ask(batch, kiln_mul(batch, y, imagine_matrix(batch, 5, 4)));
    y = heads_of(batch, product_of_rows(batch));
    ask(batch, kiln_tanh(batch, y));
    ask(batch, kiln_exp(batch, y));
    check_passes("passes_lift_heads_not", batch);
}

/* ---- narrow operands ---- */

/* Rounded before it is moved, so that the product before it stores it so, also where it is copied
 * later: no strides say these rows. But heads that a product has to copy are rounded on the way. */
Test(passes, leave_narrow_operands_narrow)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor y = kiln_cast(batch, kiln_relu(batch, product_of_rows(batch)), KILN_BF16);
    kiln_tensor heads = heads_of(batch, y);
    ask(batch, kiln_attention(batch, heads, heads, heads, (kiln_tensor){0}, NULL));
    y = kiln_cast(batch, kiln_tanh(batch, product_of_rows(batch)), KILN_BF16);
    y = kiln_reshape(batch, heads_of(batch, y), 2, (size_t[]){10, 12});
    ask(batch, kiln_matmul(batch, y, imagine_matrix(batch, 12, 3)));
    heads = heads_of(batch, kiln_cast(batch, kiln_exp(batch, product_of_rows(batch)), KILN_BF16));
    ask(batch, kiln_matmul_transposed(batch, heads, 0, heads, 1));
    check_passes("passes_narrow", batch);
}

Test(passes, read_windows_without_their_padding)
{
    kiln_batch *batch = imagined_batch();
    kiln_window_options options = KILN_WINDOW_OPTIONS_INIT;
    options.before[0] = options.before[1] = options.after[1] = 1;
    kiln_tensor x = imagine(batch, 4, (size_t[]){2, 9, 11, 8});
    ask(batch, kiln_conv2d(batch, x, imagine(batch, 4, (size_t[]){3, 3, 8, 5}), &options));
    options.groups = 8;
    options.before[1] = 2;
    ask(batch, kiln_conv2d(batch, x, imagine(batch, 4, (size_t[]){3, 3, 1, 8}), &options));
    check_passes("passes_windows", batch);
}

/* Steps that follow each other: padding that has been read is gone over. */
Test(passes, go_over_padding)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor u = imagine_vector(batch, 8);
    for (int step = 0; step < 4; step++) {
        kiln_tensor p = kiln_pad(batch, u, (size_t[]){1}, (size_t[]){0}, 0);
        kiln_tensor before = kiln_slice(batch, p, (int64_t[]){0}, (int64_t[]){8}, NULL);
        u = kiln_add(batch, kiln_scale(batch, u, 0.5), before);
    }
    ask(batch, u);
    check_passes("passes_pads", batch);
}

/* An image among millions is read as one of few is, the order of its sums with it: the table
 * numbers the elements of an image. */
Test(passes, read_windows_of_any_number_of_images)
{
    kiln_batch *batch = imagined_batch();
    kiln_window_options options = KILN_WINDOW_OPTIONS_INIT;
    options.before[0] = options.after[1] = 1;
    options.groups = 8;
    kiln_tensor key = kiln_random_key(batch, 1);
    kiln_tensor x = kiln_random_uniform(batch, 4, (size_t[]){2000000, 9, 11, 8}, key);
    x = kiln_conv2d(batch, x, imagine(batch, 4, (size_t[]){3, 3, 1, 8}), &options);
    ask(batch, kiln_sum(batch, x, 1, (int[]){0}, 0));
    check_passes("passes_windows_many", batch);
}

/* Queries, keys and values. The sum is read elementwise, and stays apart. */
Test(passes, merge_products_of_one_operand)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine(batch, 3, (size_t[]){2, 4, 8}), y[4];
    for (int i = 0; i < 4; i++) {
        y[i] = kiln_matmul(batch, x, imagine_weights(batch, 8, i == 1 ? 32 : 16));
        y[i] = kiln_add(batch, y[i],
                        kiln_reshape(batch, imagine_weights(batch, 1, i == 1 ? 32 : 16), 1,
                                     (size_t[]){i == 1 ? 32 : 16}));
    }
    kiln_tensor wide = kiln_reshape(batch, y[1], 4, (size_t[]){2, 4, 2, 16});
    wide = kiln_transpose(batch, wide, (size_t[]){0, 2, 1, 3});
    ask(batch, kiln_attention(batch, y[0], y[2], y[0], (kiln_tensor){0}, NULL));
    ask(batch, kiln_matmul(batch, wide, imagine_matrix(batch, 16, 4)));
    ask(batch, kiln_relu(batch, y[3]));
    check_passes("passes_merge", batch);
}

Test(passes, products_of_unlike_precision_stay_apart)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine(batch, 3, (size_t[]){2, 4, 8});
    for (int i = 0; i < 2; i++) {
        expect_ok(kiln_batch_set_precision(batch, i ? KILN_PRECISION_EXACT : KILN_PRECISION_TF32));
        kiln_tensor y = kiln_matmul(batch, x, imagine_weights(batch, 8, 16));
        ask(batch, kiln_matmul(batch, y, imagine_matrix(batch, 16, 4)));
    }
    check_passes("passes_precision", batch);
}

/* As a batch norm has them: an operand may be computed, if from parameters alone. */
Test(passes, lift_beside_factors_that_are_computed)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor y = transposed_product(batch), variance = imagine_matrix(batch, 16, 1);
    kiln_tensor epsilon = kiln_constant(batch, KILN_F32, 1e-5);
    kiln_tensor factor = kiln_rsqrt(batch, kiln_add(batch, variance, epsilon));
    ask(batch, kiln_relu(batch, kiln_mul(batch, y, factor)));
    check_passes("passes_lift_factors", batch);
}

/* Of an image of one position, as it is squeezed and excited: a bias is as large as the result. */
Test(passes, lift_where_nothing_is_turned)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine(batch, 4, (size_t[]){1, 1, 1, 8});
    kiln_tensor y = kiln_matmul(batch, x, imagine_matrix(batch, 8, 16));
    y = kiln_transpose(batch, y, (size_t[]){0, 3, 1, 2});
    ask(batch, kiln_relu(batch, kiln_add(batch, y, imagine(batch, 4, (size_t[]){1, 16, 1, 1}))));
    check_passes("passes_lift_position", batch);
}

Test(passes, lift_concatenations)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor parts[] = {transposed_product(batch), transposed_product(batch)};
    ask(batch, kiln_relu(batch, kiln_concat(batch, 2, parts, 0)));
    check_passes("passes_lift_concat", batch);
}

/* Another operand would be turned instead. */
Test(passes, do_not_lift_what_turns_others)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor y = transposed_product(batch), x = imagine_matrix(batch, 16, 4);
    ask(batch, kiln_add(batch, y, x));
    ask(batch, kiln_sub(batch, y, kiln_max(batch, y, 1, (int[]){1}, 1)));
    check_passes("passes_lift_not", batch);
}

Test(passes, sink_through_deep_chains)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_matrix(batch, 4, 8);
    for (int i = 0; i < 200; i++)
        x = kiln_neg(batch, x);
    ask(batch, kiln_transpose(batch, x, NULL));
    struct kiln__graph graph = graph_of(batch);
    expect_ok(kiln__rewrite(&graph, &(struct kiln__kernel_support){0}, NULL, NULL));
    cr_expect_eq(graph.nodes.count, 202u);
    kiln__graph_free(&graph);
    kiln_batch_release(batch);
}

/* As many ways as 3^40 lead to one operand. */
Test(passes, sink_along_each_way_once)
{
    enum { CHAIN = 40 };
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_matrix(batch, 64, 64);
    for (int i = 0; i < CHAIN; i++)
        x = kiln_add(batch, kiln_mul(batch, x, x), x);
    ask(batch, kiln_slice(batch, x, (int64_t[]){0, 0}, (int64_t[]){64, 1}, NULL));
    struct kiln__graph graph = graph_of(batch);
    expect_ok(kiln__rewrite(&graph, &(struct kiln__kernel_support){0}, NULL, NULL));
    cr_expect_leq(graph.nodes.count, 2u + 2 * CHAIN + CHAIN, "%zu", graph.nodes.count);
    kiln__graph_free(&graph);
    kiln_batch_release(batch);
}

Test(passes, leave_an_empty_graph_empty)
{
    kiln_batch *batch = imagined_batch();
    imagine_vector(batch, 8);
    struct kiln__graph graph = graph_of(batch);
    expect_ok(kiln__rewrite(&graph, &(struct kiln__kernel_support){0}, NULL, NULL));
    cr_expect_eq(graph.nodes.count, 0u);
    kiln__graph_free(&graph);
    kiln_batch_release(batch);
}

/* ---- integers ---- */

Test(passes, add_up_long_products_of_integers_in_parts)
{
    static const int8_t given[4 * 2 * KILN__INTEGERS_IN_F32];
    const size_t k = 2 * KILN__INTEGERS_IN_F32;
    const kiln_tensor none = {0};
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = kiln_upload(batch, KILN_I8, 2, (size_t[]){4, k}, given);
    kiln_tensor y = kiln_upload(batch, KILN_I8, 2, (size_t[]){k, 4}, given);
    ask(batch, kiln_matmul_quantized(batch, x, none, y, 0, none));
    struct kiln__graph graph = graph_of(batch);
    expect_ok(kiln__rewrite(&graph, &(struct kiln__kernel_support){0}, NULL, NULL));
    size_t products = 0;
    for (size_t i = 0; i < graph.nodes.count; i++)
        products += graph.nodes.items[i].kind == KILN__MATMUL;
    cr_expect_eq(products, 2u);
    kiln__graph_free(&graph);
    kiln_batch_release(batch);
}

/* ---- left out ---- */

/* All rules one after the other, also those that have nothing to find. */
static void run_rules(struct kiln__graph *graph, const struct kiln__kernel_support *support)
{
    static kiln__rule *const rules[] = {kiln__rewrite_split_integers, kiln__rewrite_cse,
                                        kiln__rewrite_fold,           kiln__rewrite_sink,
                                        kiln__rewrite_merge,          kiln__rewrite_lift,
                                        kiln__rewrite_depthwise,      kiln__rewrite_cse};
    struct kiln__graph spare = {0};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        cr_assert(kiln__rewrite_run(graph, &spare, rules[i], support, NULL));
    kiln__graph_free(&spare);
}

static void expect_same_graph(const struct kiln__graph *a, const struct kiln__graph *b,
                              uint64_t seed)
{
    cr_assert(
        a->nodes.count == b->nodes.count && a->became.count == b->became.count &&
            !memcmp(a->nodes.items, b->nodes.items, a->nodes.count * sizeof *a->nodes.items) &&
            !memcmp(a->became.items, b->became.items, a->became.count * sizeof *a->became.items),
        "seed %llu", (unsigned long long)seed);
    cr_assert_eq(a->requests.count, b->requests.count);
    for (size_t i = 0; i < a->requests.count; i++)
        cr_assert_eq(a->requests.items[i].node, b->requests.items[i].node);
}

Test(passes, are_left_out_only_where_they_do_nothing)
{
    const struct kiln__kernel_support support = {.narrow_operands = true};
    for (uint64_t seed = 1; seed <= 1500; seed++) {
        kiln_batch *batch = imagined_batch();
        struct kiln__graph all, some;
        struct kiln__error error = {0};
        random_record(batch, seed, 0, seed % 4 ? 8 : 40);
        cr_assert(kiln__graph_copy(&batch->graph, &all) && kiln__graph_copy(&batch->graph, &some));
        if (!kiln__graph_narrow(&all)) {
            run_rules(&all, &support);
            cr_assert(!kiln__rewrite(&some, &support, NULL, &error), "%s", error.text);
            expect_same_graph(&all, &some, seed);
        }
        kiln__graph_free(&all);
        kiln__graph_free(&some);
        check_end(batch);
    }
}

/* ---- the verifier ---- */

/* One of each kind: uploads 0 and 1, add 2, transpose 3, product 4, sum 5, reshape 6, cast 7. */
static struct kiln__graph sound_graph(void)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_matrix(batch, 4, 8), y = imagine_matrix(batch, 4, 8);
    kiln_tensor turned = kiln_transpose(batch, kiln_add(batch, x, y), NULL);
    kiln_tensor sum = kiln_sum(batch, kiln_matmul(batch, y, turned), 1, (int[]){0}, 0);
    ask(batch, kiln_cast(batch, kiln_reshape(batch, sum, 2, (size_t[]){2, 2}), KILN_I32));
    struct kiln__graph graph = graph_of(batch);
    kiln_batch_release(batch);
    return graph;
}

#define EXPECT_BROKEN(sentence, change)                                                            \
    do {                                                                                           \
        char wrong[160] = "";                                                                      \
        struct kiln__graph graph = sound_graph();                                                  \
        struct kiln__node *node = graph.nodes.items;                                               \
        cr_assert_null(kiln__graph_verify(&graph, wrong), "%s", wrong);                            \
        change;                                                                                    \
        (void)node;                                                                                \
        cr_expect(kiln__graph_verify(&graph, wrong) == wrong, "not seen: %s", sentence);           \
        cr_expect_str_eq(wrong, sentence);                                                         \
        kiln__graph_free(&graph);                                                                  \
    } while (0)

Test(verify, names_what_is_broken)
{
    EXPECT_BROKEN("node %2 (?): wrong kind", node[2].kind = 99);
    EXPECT_BROKEN("node %0 (upload): wrong type", node[0].type = 0);
    EXPECT_BROKEN("node %2 (add): wrong number of inputs", node[2].n_inputs = 0);
    EXPECT_BROKEN("node %4 (matmul): wrong number of inputs", node[4].n_inputs = 1);
    EXPECT_BROKEN("node %2 (add): wrong number of inputs",
                  node[2].n_inputs = KILN__MOST_INPUTS + 1);
    EXPECT_BROKEN("node %2 (add): wrong order of inputs", node[2].input[0] = 2);
    EXPECT_BROKEN("node %2 (add): wrong order of inputs", node[2].input[1] = 6);
    EXPECT_BROKEN("node %2 (add): wrong arity", node[2].n_inputs = 1);
    EXPECT_BROKEN("node %2 (exp): wrong type",
                  (node[2].op = KILN__OP_exp, node[2].n_inputs = 1, node[2].type = KILN_I32));
    EXPECT_BROKEN("node %2 (add): wrong operand type", node[0].type = KILN_I32);
    EXPECT_BROKEN("node %2 (add): wrong operand shapes", node[0].shape.dims[1] = 7);
    EXPECT_BROKEN("node %2 (add): wrong shape", node[2].shape.dims[0] = 5);
    EXPECT_BROKEN("node %3 (transpose): wrong source dimension", node[3].view.source[0] = 2);
    EXPECT_BROKEN("node %3 (transpose): wrong range", node[3].view.start[0] = 1);
    EXPECT_BROKEN("node %3 (transpose): wrong range", node[3].view.step[1] = -1);
    EXPECT_BROKEN("node %3 (transpose): wrong type", node[3].type = KILN_U8);
    EXPECT_BROKEN("node %4 (matmul): wrong inner dimension", node[4].shape.dims[0] = 3);
    EXPECT_BROKEN("node %4 (matmul): wrong rank", node[4].shape.rank = 3);
    EXPECT_BROKEN("node %5 (sum): wrong rank", node[5].shape.rank = 0);
    EXPECT_BROKEN("node %5 (sum): wrong kept dimension", node[5].shape.dims[0] = 5);
    EXPECT_BROKEN("node %5 (sum): wrong type", node[5].type = KILN_I32);
    EXPECT_BROKEN("node %6 (reshape): wrong count", node[6].shape.dims[0] = 3);
    EXPECT_BROKEN("node %6 (reshape): wrong type", node[6].type = KILN_I32);
    EXPECT_BROKEN("node %7 (cast): wrong shape", node[7].shape.dims[0] = 4);
    EXPECT_BROKEN("result #0 names no node", graph.requests.items[0].node = 8);
}

Test(verify, sees_lengths_of_attention)
{
    char wrong[160] = "";
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine(batch, 3, (size_t[]){3, 4, 5});
    kiln_tensor lengths = kiln_argmax(batch, imagine(batch, 2, (size_t[]){3, 4}), 1, (int[]){1}, 0);
    ask(batch, kiln_attention_with_lengths(batch, x, x, x, (kiln_tensor){0}, lengths, NULL));
    struct kiln__graph graph = graph_of(batch);
    struct kiln__node *node = &graph.nodes.items[graph.nodes.count - 1];
    cr_assert_null(kiln__graph_verify(&graph, wrong), "%s", wrong);
    struct kiln__node *of = &graph.nodes.items[node->input[KILN__MASK]];
    of->shape.dims[0] = 1;
    cr_expect_not_null(kiln__graph_verify(&graph, wrong));
    cr_expect(strstr(wrong, "(reshape): wrong count"), "%s", wrong);
    node->input[KILN__MASK] = node->input[0];
    of->shape.dims[0] = 3;
    cr_expect_not_null(kiln__graph_verify(&graph, wrong));
    cr_expect(strstr(wrong, "(attention): wrong shape of the lengths"), "%s", wrong);
    kiln__graph_free(&graph);
    kiln_batch_release(batch);
}

Test(verify, sees_leading_dimensions_of_products)
{
    char wrong[160] = "";
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine(batch, 3, (size_t[]){3, 4, 5}),
                y = imagine(batch, 3, (size_t[]){3, 5, 6});
    ask(batch, kiln_matmul(batch, x, y));
    struct kiln__graph graph = graph_of(batch);
    graph.nodes.items[2].shape.dims[0] = 2;
    cr_expect_not_null(kiln__graph_verify(&graph, wrong));
    cr_expect_str_eq(wrong, "node %2 (matmul): wrong leading dimension");
    kiln__graph_free(&graph);
    kiln_batch_release(batch);
}
