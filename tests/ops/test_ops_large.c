/* SPDX-License-Identifier: Apache-2.0 */
/* Every kind of operation with one dimension beyond 2^16, at each place in turn: work sizes, chunks
 * and index arithmetic of 16 bits and of one grid dimension end there. Memory stays small. */
#include <criterion/criterion.h>
#include <math.h>

#include <kiln/attention.h>
#include <kiln/gradient.h>

#include "../support/check.h"

enum { L = 70001, S = 3 };

/* A tensor of three dimensions, the large one at `place`. */
static kiln_tensor long_at(kiln_batch *batch, kiln_type type, unsigned place, size_t dims[3])
{
    for (unsigned d = 0; d < 3; d++)
        dims[d] = d == place ? L : S - (d == 2);
    return check_input(batch, type, 3, dims, CHECK_PLAIN);
}

static void elementwise_at(unsigned place)
{
    size_t dims[3];
    kiln_batch *batch = check_begin();
    kiln_tensor a = long_at(batch, KILN_F32, place, dims);
    kiln_tensor row = check_input(batch, KILN_F32, 1, dims + 2, CHECK_PLAIN);
    kiln_tensor column = check_input(batch, KILN_F32, DIMS(dims[1], 1), CHECK_PLAIN);
    kiln_tensor b = kiln_add(batch, kiln_mul(batch, a, row), kiln_tanh(batch, column));
    check_read(batch, kiln_cast(batch, kiln_less(batch, b, a), KILN_I32));
    check_tensor(batch, b);
}

static void reduced_at(unsigned place, int axis)
{
    size_t dims[3];
    kiln_batch *batch = check_begin();
    kiln_tensor a = long_at(batch, KILN_F32, place, dims);
    kiln_tensor b = long_at(batch, KILN_I32, place, dims);
    check_read(batch, kiln_sum(batch, b, 1, &axis, 0));
    check_read(batch, kiln_argmax(batch, a, 1, &axis, 0));
    check_tensor(batch, kiln_softmax(batch, a, 1, &axis));
}

static void moved_at(unsigned place)
{
    size_t dims[3];
    kiln_batch *batch = check_begin();
    kiln_tensor a = long_at(batch, KILN_U8, place, dims);
    const int64_t start[3] = {(int64_t)dims[0] - 1, 0, 1}, stop[3] = {-1, (int64_t)dims[1], 2};
    const int64_t step[3] = {-1, 1, 1};
    check_read(batch, kiln_neg(batch, kiln_transpose(batch, a, (size_t[]){2, 0, 1})));
    check_read(batch, kiln_transpose(batch, a, (size_t[]){1, 2, 0}));
    check_read(batch, kiln_reshape(batch, a, 1, (size_t[]){dims[0] * dims[1] * dims[2]}));
    check_read(batch, kiln_concat(batch, 2, (kiln_tensor[]){a, a}, (int)place));
    if (place < 2)
        check_read(batch, kiln_slice(batch, a, start, stop, step));
    check_read(batch, kiln_pad(batch, a, (size_t[]){1, 0, 2}, (size_t[]){0, 1, 0}, 9));
    size_t size = 2;
    check_tensor(batch, kiln_windows(batch, a, place, 1, &size, NULL, NULL));
}

static void product_of(size_t batches, size_t m, size_t k, size_t n)
{
    kiln_batch *batch = check_begin();
    kiln_tensor a = check_input(batch, KILN_F32, DIMS(batches, m, k), CHECK_PLAIN);
    kiln_tensor b = check_input(batch, KILN_F32, DIMS(batches, k, n), CHECK_PLAIN);
    check_tensor(batch, kiln_matmul(batch, a, b));
}

static void attention_of(size_t heads, size_t m, size_t n, size_t d)
{
    kiln_batch *batch = check_begin();
    kiln_tensor q = check_input(batch, KILN_F32, DIMS(heads, m, d), CHECK_PLAIN);
    kiln_tensor k = check_input(batch, KILN_F32, DIMS(heads, n, d), CHECK_PLAIN);
    kiln_tensor v = check_input(batch, KILN_F32, DIMS(heads, n, 2), CHECK_PLAIN);
    check_tensor(batch, kiln_attention(batch, q, k, v, (kiln_tensor){0}, NULL));
}

/* A row of q has to fit the device's local memory. */
static void refuse_wide_attention(void)
{
    kiln_batch *batch = check_begin();
    kiln_tensor wide = check_input(batch, KILN_F32, DIMS(2, 5000000), CHECK_PLAIN);
    kiln_attention(batch, wide, wide, wide, (kiln_tensor){0}, NULL);
    expect_error(
        kiln_batch_status(batch), KILN_UNSUPPORTED,
        "kiln_attention: 5000000 columns of q and 5000000 of v need more local memory than "
        "the device has");
    check_end(batch);
}

static void gathered(size_t rows, size_t columns, size_t picks)
{
    kiln_batch *batch = check_begin();
    kiln_tensor x = check_input(batch, KILN_F32, DIMS(rows, columns), CHECK_PLAIN);
    kiln_tensor i = kiln_arange(batch, KILN_I32, (double)picks - 1, -1, -1);
    check_tensor(batch, kiln_gather(batch, x, i, 0));
}

/* ---- */

Test(ops_large, elementwise)
{
    for (unsigned place = 0; place < 3; place++)
        elementwise_at(place);
    check_close();
}

Test(ops_large, reductions)
{
    for (unsigned place = 0; place < 3; place++)
        for (int axis = 0; axis < 2; axis++)
            reduced_at(place, (axis + (int)place) % 3);
    check_close();
}

Test(ops_large, movement)
{
    for (unsigned place = 0; place < 3; place++)
        moved_at(place);
    check_close();
}

Test(ops_large, products)
{
    product_of(1, L, S, 2);
    product_of(1, 2, L, S);
    product_of(1, 2, S, L);
    product_of(L, 2, S, 1);
    check_close();
}

Test(ops_large, attention)
{
    attention_of(1, L, 4, 3);
    attention_of(1, 3, L, 4);
    attention_of(L, 2, 3, 2);
    attention_of(1, 2, 3, 700);
    refuse_wide_attention();
    check_close();
}

Test(ops_large, gathers)
{
    gathered(L, 2, L);
    gathered(2, L, 2);
    gathered(S, 1, L); /* most of them beyond */
    check_close();
}

/* ---- large gradients ---- */

/* Rows in two blocks have the gradients that the same rows have by themselves, and the scores of
 * one block at a time are in memory. */
enum { HEADS = 256, M = 65, N = 256, QUERIES = HEADS * M, KEYS = HEADS * N };

/* Read the gradients of sum(y^2), y an attention of rows in one part or in two. */
static void differentiate(int parts, float *found)
{
    static float x[KEYS];
    kiln_batch *b = kiln_batch_create(check_context());
    for (int i = 0; i < KEYS; i++)
        x[i] = (float)(i % 61) / 32 - 1;
    kiln_tensor q = kiln_upload(b, KILN_F32, DIMS(HEADS, M, 1), x), y[2], out[2];
    kiln_tensor k = kiln_upload(b, KILN_F32, DIMS(HEADS, N, 1), x), inputs[] = {q, k};
    kiln_tensor v = kiln_add(b, k, kiln_constant(b, KILN_F32, 1));
    for (int i = 0; i < parts; i++) {
        kiln_attention_options options = KILN_ATTENTION_OPTIONS_INIT;
        int64_t first = i ? 30 : 0, end = i + 1 == parts ? M : 30;
        options.causal = 1;
        options.diagonal = N / 2 + first;
        kiln_tensor rows =
            kiln_slice(b, q, (int64_t[]){0, first, 0}, (int64_t[]){HEADS, end, 1}, NULL);
        y[i] = kiln_attention(b, rows, k, v, (kiln_tensor){0}, &options);
    }
    kiln_tensor all = kiln_square(b, kiln_concat(b, (size_t)parts, y, 1));
    expect_ok(kiln_grad(b, kiln_sum(b, all, 0, NULL, 0), inputs, 2, out));
    expect_ok(kiln_read(b, out[0], found, QUERIES * sizeof *found));
    expect_ok(kiln_read(b, out[1], found + QUERIES, KEYS * sizeof *found));
    cr_expect_lt(cost_of(b).peak_bytes, (size_t)80 << 20, "%zu", cost_of(b).peak_bytes);
    run_batch(b);
    kiln_batch_release(b);
}

Test(ops_large, gradients_of_attention_come_in_blocks)
{
    static float whole[QUERIES + KEYS], parts[QUERIES + KEYS];
    differentiate(1, whole);
    differentiate(2, parts);
    for (int i = 0; i < QUERIES + KEYS; i++)
        cr_assert_float_eq(whole[i], parts[i], 1e-5 + 1e-4 * fabs(parts[i]), "%d: %g, not %g", i,
                           whole[i], parts[i]);
    check_close();
}
