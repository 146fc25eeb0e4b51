/* SPDX-License-Identifier: Apache-2.0 */
/* The table of sample operations that pairs and triples are made of. */
#include "samples.h"

#include <criterion/criterion.h>

#include <kiln/elementwise.h>
#include <kiln/reductions.h>

#include "context.h"

#define N SAMPLE_SIZE

/* ---- parts ---- */

static kiln_tensor cut(kiln_batch *batch, kiln_tensor x, int64_t row, int64_t rows, int64_t step)
{
    return kiln_slice(batch, x, (int64_t[]){row, 0}, (int64_t[]){row + rows, N},
                      (int64_t[]){step, 1});
}

static kiln_tensor transposed(kiln_batch *batch, kiln_tensor x)
{
    return kiln_transpose(batch, x, NULL);
}

static kiln_tensor integers(kiln_batch *batch, kiln_tensor x)
{
    return kiln_cast(batch, kiln_scale(batch, x, 4), KILN_I32);
}

static kiln_tensor number(kiln_batch *batch, double value)
{
    return kiln_constant(batch, KILN_F32, value);
}

/* Numbers of rows, of which some are none. */
static kiln_tensor row_numbers(kiln_batch *batch, kiln_tensor x)
{
    kiln_tensor column = kiln_slice(batch, x, (int64_t[]){0, 1}, (int64_t[]){N, 2}, NULL);
    kiln_tensor flat = kiln_reshape(batch, column, 1, (size_t[]){N});
    return kiln_cast(batch, kiln_add(batch, kiln_scale(batch, flat, 2), number(batch, 3.5)),
                     KILN_I32);
}

static kiln_tensor image(kiln_batch *batch, kiln_tensor x)
{
    return kiln_reshape(batch, x, 4, (size_t[]){1, 4, 4, 4});
}

/* ---- samples ---- */

#define FIRST                                                                                      \
    (int[])                                                                                        \
    {                                                                                              \
        0                                                                                          \
    }
#define LAST                                                                                       \
    (int[])                                                                                        \
    {                                                                                              \
        1                                                                                          \
    }
#define SAMPLE(name, expression)                                                                   \
    static kiln_tensor record_##name(kiln_batch *b, kiln_tensor x)                                 \
    {                                                                                              \
        return expression;                                                                         \
    }

SAMPLE(neg, kiln_neg(b, x))
SAMPLE(square, kiln_mul(b, x, x))
SAMPLE(relu_of_sum, kiln_relu(b, kiln_add(b, x, number(b, 0.5))))
SAMPLE(add_row, kiln_add(b, x, cut(b, x, 2, 1, 1)))
SAMPLE(add_turned, kiln_add(b, x, transposed(b, x)))
SAMPLE(clamp, kiln_clamp(b, x, -1, 1.5))
SAMPLE(i32, integers(b, x))
SAMPLE(neg_i32, kiln_neg(b, integers(b, x)))
SAMPLE(u8, kiln_cast(b, kiln_abs(b, x), KILN_U8))
SAMPLE(f16, kiln_cast(b, kiln_mul(b, x, x), KILN_F16))
SAMPLE(less, kiln_less(b, x, transposed(b, x)))
SAMPLE(where, kiln_where(b, kiln_greater(b, x, number(b, 0)), x, kiln_scale(b, x, 0.25)))
SAMPLE(exp, kiln_exp(b, x))
SAMPLE(sin, kiln_sin(b, x))
SAMPLE(tanh, kiln_tanh(b, x))
SAMPLE(gelu_of_row, kiln_gelu(b, kiln_add(b, x, cut(b, x, 0, 1, 1))))
SAMPLE(sum_rows, kiln_sum(b, x, 1, LAST, 0))
SAMPLE(sum_rows_kept, kiln_sum(b, x, 1, LAST, 1))
SAMPLE(sum_columns, kiln_sum(b, x, 1, FIRST, 0))
SAMPLE(sum_all, kiln_sum(b, x, 0, NULL, 0))
SAMPLE(mean_rows, kiln_mean(b, x, 1, LAST, 0))
SAMPLE(max_rows, kiln_max(b, x, 1, LAST, 0))
SAMPLE(max_columns, kiln_max(b, x, 1, FIRST, 1))
SAMPLE(min_of_neg_i32, kiln_min(b, kiln_neg(b, integers(b, x)), 1, LAST, 0))
SAMPLE(argmax_rows, kiln_argmax(b, x, 1, LAST, 0))
SAMPLE(argmin_all, kiln_argmin(b, x, 0, NULL, 0))
SAMPLE(norm_rows, kiln_sqrt(b, kiln_sum(b, kiln_mul(b, x, x), 1, LAST, 0)))
SAMPLE(norm_columns, kiln_norm(b, x, 1, FIRST, 1))
SAMPLE(softmax, kiln_softmax(b, x, 1, LAST))
SAMPLE(softmax_columns, kiln_softmax(b, x, 1, FIRST))
SAMPLE(logsumexp, kiln_logsumexp(b, x, 1, LAST, 0))
SAMPLE(layer_norm, kiln_layer_norm(b, x, cut(b, x, 1, 1, 1), cut(b, x, 3, 1, 1), 1, LAST, 0.5))
SAMPLE(centred, kiln_sub(b, x, kiln_mean(b, x, 1, LAST, 1)))
SAMPLE(product, kiln_matmul(b, x, x))
SAMPLE(product_turned, kiln_matmul(b, x, transposed(b, x)))
SAMPLE(product_parts, kiln_matmul(b, cut(b, x, 0, 3, 1), x))
SAMPLE(dense, kiln_relu(b, kiln_add(b, kiln_matmul(b, x, transposed(b, x)), cut(b, x, 5, 1, 1))))
SAMPLE(residual, kiln_add(b, kiln_matmul(b, x, x), x))
SAMPLE(attention, kiln_attention(b, x, x, x, (kiln_tensor){0}, NULL))
SAMPLE(attention_of_lengths, kiln_attention_with_lengths(b, x, x, x, (kiln_tensor){0},
                                                         kiln_constant(b, KILN_I32, 2), NULL))
SAMPLE(cumsum_rows, kiln_cumsum(b, x, 1, 0))
SAMPLE(cumsum_columns, kiln_cumsum(b, x, 0, 1))
SAMPLE(cumsum_of_map, kiln_cumsum(b, kiln_tanh(b, x), 1, 0))
SAMPLE(cumsum_between, kiln_relu(b, kiln_cumsum(b, kiln_add(b, x, cut(b, x, 5, 1, 1)), 1, 1)))
SAMPLE(scatter, kiln_scatter_add(b, x, row_numbers(b, x), x, 0))
SAMPLE(scatter_turned, kiln_scatter_add(b, transposed(b, x), row_numbers(b, x), x, 0))
SAMPLE(scatter_on_zeros, kiln_scatter_add(b, kiln_fill(b, KILN_F32, 2, (size_t[]){N, N}, 0),
                                          row_numbers(b, x), kiln_neg(b, x), 0))
SAMPLE(argsort, kiln_argsort(b, x, 1, 0))
SAMPLE(sorted_columns, kiln_sort(b, kiln_tanh(b, x), 0, 1))
SAMPLE(gather, kiln_gather(b, x, row_numbers(b, x), 0))
SAMPLE(gather_largest, kiln_gather(b, x, kiln_argmax(b, x, 1, LAST, 0), 1))
SAMPLE(gather_of_map, kiln_gather(b, kiln_exp(b, x), row_numbers(b, x), 1))
SAMPLE(pad, kiln_pad(b, x, (size_t[]){1, 0}, (size_t[]){0, 2}, 0.5))
SAMPLE(concat, kiln_concat(b, 2, ((kiln_tensor[]){kiln_neg(b, x), x}), 0))
SAMPLE(stack, kiln_stack(b, 2, ((kiln_tensor[]){transposed(b, x), x}), 1))
SAMPLE(place, kiln_insert_slice(b, x, cut(b, x, 4, 4, 1), ((int64_t[]){0, 0}), ((int64_t[]){2, 1})))
SAMPLE(place_on_map, kiln_insert_slice(b, kiln_exp(b, x), kiln_tanh(b, cut(b, x, 0, 4, 1)),
                                       ((int64_t[]){3, 0}), ((int64_t[]){1, 1})))
SAMPLE(place_at, kiln_update_slice(b, kiln_exp(b, x), kiln_tanh(b, cut(b, x, 0, 2, 1)),
                                   kiln_argmax(b, cut(b, x, 0, 1, 1), 1, LAST, 0), 0))
SAMPLE(transpose, transposed(b, x))
SAMPLE(slice, kiln_slice(b, x, ((int64_t[]){7, 1}), ((int64_t[]){-1, 7}), ((int64_t[]){-2, 3})))
SAMPLE(reshape, kiln_reshape(b, x, 3, ((size_t[]){2, 4, 8})))
SAMPLE(reshape_turned, kiln_reshape(b, transposed(b, x), 1, ((size_t[]){N * N})))
SAMPLE(broadcast, kiln_broadcast(b, cut(b, x, 1, 1, 1), 3, ((size_t[]){2, 3, N})))
SAMPLE(windows, kiln_windows(b, x, 0, 1, ((size_t[]){3}), ((size_t[]){2}), ((size_t[]){1})))
SAMPLE(convolution,
       kiln_conv2d(b, image(b, x), kiln_reshape(b, cut(b, x, 0, 4, 1), 4, ((size_t[]){2, 2, 4, 2})),
                   NULL))
SAMPLE(max_pool, kiln_max_pool2d(b, image(b, x), ((size_t[]){2, 2}), NULL))
SAMPLE(iota, kiln_add(b, kiln_iota(b, 2, ((size_t[]){N, N}), 1), integers(b, x)))
SAMPLE(random, kiln_add(b, kiln_random_uniform(b, 2, ((size_t[]){N, N}), kiln_random_key(b, 7)), x))

/* The first of each kind stands for it. */
#define ROW(kind, name)                                                                            \
    {                                                                                              \
#name, SAMPLE_##kind, record_##name                                                        \
    }
const struct sample samples[] = {
    ROW(CHEAP, square),
    ROW(CHEAP, neg),
    ROW(CHEAP, relu_of_sum),
    ROW(CHEAP, add_row),
    ROW(CHEAP, add_turned),
    ROW(CHEAP, clamp),
    ROW(CHEAP, i32),
    ROW(CHEAP, neg_i32),
    ROW(CHEAP, u8),
    ROW(CHEAP, f16),
    ROW(CHEAP, less),
    ROW(CHEAP, where),
    ROW(MAP, exp),
    ROW(MAP, sin),
    ROW(MAP, tanh),
    ROW(MAP, gelu_of_row),
    ROW(REDUCE_ROWS, sum_rows),
    ROW(REDUCE_ROWS, sum_rows_kept),
    ROW(REDUCE_ROWS, mean_rows),
    ROW(REDUCE_ROWS, max_rows),
    ROW(REDUCE_ROWS, min_of_neg_i32),
    ROW(REDUCE_ROWS, argmax_rows),
    ROW(REDUCE_ROWS, norm_rows),
    ROW(REDUCE_COLUMNS, sum_columns),
    ROW(REDUCE_COLUMNS, max_columns),
    ROW(REDUCE_COLUMNS, norm_columns),
    ROW(REDUCE_ALL, sum_all),
    ROW(REDUCE_ALL, argmin_all),
    ROW(ROWS, softmax),
    ROW(ROWS, softmax_columns),
    ROW(ROWS, logsumexp),
    ROW(ROWS, layer_norm),
    ROW(ROWS, centred),
    ROW(PRODUCT, product),
    ROW(PRODUCT, product_turned),
    ROW(PRODUCT, product_parts),
    ROW(PRODUCT, dense),
    ROW(PRODUCT, residual),
    ROW(ATTENTION, attention),
    ROW(ATTENTION, attention_of_lengths),
    ROW(SCAN, cumsum_rows),
    ROW(SCAN, cumsum_columns),
    ROW(SCAN, cumsum_of_map),
    ROW(SCAN, cumsum_between),
    ROW(SCATTER, scatter),
    ROW(SCATTER, scatter_turned),
    ROW(SCATTER, scatter_on_zeros),
    ROW(SORT, argsort),
    ROW(SORT, sorted_columns),
    ROW(GATHER, gather),
    ROW(GATHER, gather_largest),
    ROW(GATHER, gather_of_map),
    ROW(PLACE, place),
    ROW(PLACE, place_on_map),
    ROW(PLACE, place_at),
    ROW(PLACE, pad),
    ROW(PLACE, concat),
    ROW(PLACE, stack),
    ROW(VIEW, transpose),
    ROW(VIEW, slice),
    ROW(VIEW, reshape),
    ROW(VIEW, reshape_turned),
    ROW(VIEW, broadcast),
    ROW(VIEW, windows),
    ROW(PRODUCT, convolution),
    ROW(REDUCE_COLUMNS, max_pool),
    ROW(NUMBER, iota),
    ROW(NUMBER, random),
};
const size_t sample_count = sizeof samples / sizeof *samples;

const struct sample *sample_of(enum sample_kind kind)
{
    for (size_t i = 0; i < sample_count; i++)
        if (samples[i].kind == kind)
            return &samples[i];
    return NULL;
}

/* Cut to what fits, then repeated. */
kiln_tensor sample_square(kiln_batch *batch, kiln_tensor made)
{
    kiln_type type;
    size_t rank, dims[KILN_MAX_RANK], count = 1;
    expect_ok(kiln_tensor_shape(batch, made, &type, &rank, dims));
    for (size_t d = 0; d < rank; d++)
        count *= dims[d];
    kiln_tensor flat = kiln_reshape(batch, made, 1, &count);
    size_t used = count >= N * N ? N * N : count >= N ? N : 1;
    flat = kiln_slice(batch, flat, (int64_t[]){0}, (int64_t[]){(int64_t)used}, (int64_t[]){1});
    flat = kiln_reshape(batch, flat, 2, (size_t[]){used == N * N ? N : 1, used > 1 ? N : 1});
    if (type != KILN_F32)
        flat = kiln_cast(batch, flat, KILN_F32);
    return kiln_broadcast(batch, flat, 2, (size_t[]){N, N});
}
