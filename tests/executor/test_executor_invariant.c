/* SPDX-License-Identifier: Apache-2.0 */
/* A row's result has the same bits whatever it travelled with: requests of 1 to 300 rows, each a
 * batch of its own, the last rows of the same 300. So each row is in every place, size and company
 * that it can have. */
#include <criterion/criterion.h>
#include <string.h>

#include "../support/context.h"
#include "record/batch.h"

enum { ROWS = 300, MOST_WIDTH = 28 * 28, MOST_OUTPUTS = 128, WEIGHTS = 100000 };

static float x[ROWS * MOST_WIDTH], weights[WEIGHTS];

/* A network: its rows, what it makes of them, and the next of its weights. */
struct network {
    kiln_row in;
    size_t outputs; /* of a row */
    kiln_tensor (*forward)(kiln_batch *batch, kiln_buffer *weights, size_t rows, kiln_tensor x);
};

/* Weights that fit into sums of so many products. */
static kiln_tensor take(kiln_batch *b, kiln_buffer *from, size_t rank, const size_t *dims)
{
    size_t count = 1;
    for (size_t i = 0; i < rank; i++)
        count *= dims[i];
    cr_assert_leq(count, (size_t)WEIGHTS);
    kiln_tensor part =
        kiln_slice(b, kiln_import(b, from), (int64_t[]){0}, (int64_t[]){(int64_t)count}, NULL);
    return kiln_reshape(b, part, rank, dims);
}

#define TAKE(...)                                                                                  \
    take(b, w, sizeof((size_t[]){__VA_ARGS__}) / sizeof(size_t), (size_t[]){__VA_ARGS__})

/* Handwritten digits: a wide product, a product with transposed weights, a softmax. */
static kiln_tensor read_digits(kiln_batch *b, kiln_buffer *w, size_t rows, kiln_tensor in)
{
    (void)rows;
    kiln_tensor hidden = kiln_relu(b, kiln_add(b, kiln_matmul(b, in, TAKE(784, 96)), TAKE(96)));
    kiln_tensor scores = kiln_matmul_transposed(b, hidden, 0, TAKE(10, 96), 1);
    return kiln_softmax(b, kiln_add(b, scores, TAKE(10)), 1, (const int[]){1});
}

/* 4 places that look at those before them, their mean, and a product of it. */
static kiln_tensor attend(kiln_batch *b, kiln_buffer *w, size_t rows, kiln_tensor in)
{
    kiln_attention_options options = KILN_ATTENTION_OPTIONS_INIT;
    options.causal = 1;
    kiln_tensor q = kiln_matmul(b, in, TAKE(128, 16)),
                k = kiln_matmul(b, kiln_tanh(b, in), TAKE(128, 16));
    kiln_tensor seen = kiln_attention(b, q, k, in, (kiln_tensor){0}, &options);
    kiln_tensor means = kiln_mean(b, kiln_tanh(b, seen), 1, (const int[]){1}, 0);
    (void)rows;
    return kiln_matmul(b, means, TAKE(128, 128));
}

/* Queries that look at one memory: rows of an attention's matrix are the batch's. */
static kiln_tensor look_up(kiln_batch *b, kiln_buffer *w, size_t rows, kiln_tensor in)
{
    (void)rows;
    return kiln_attention(b, in, TAKE(200, 32), TAKE(200, 64), (kiln_tensor){0}, NULL);
}

/* Windows with weights, the largest of four, a product. */
static kiln_tensor convolve(kiln_batch *b, kiln_buffer *w, size_t rows, kiln_tensor in)
{
    kiln_tensor y = kiln_relu(b, kiln_conv2d(b, in, TAKE(3, 3, 3, 16), NULL));
    y = kiln_max_pool2d(b, y, (const size_t[]){2, 2}, NULL);
    return kiln_matmul(b, kiln_reshape(b, y, 2, (const size_t[]){rows, 144}), TAKE(144, 128));
}

/* A sequence of 4 both ways: a kernel that takes all steps, where the device has one. */
static kiln_tensor listen(kiln_batch *b, kiln_buffer *w, size_t rows, kiln_tensor in)
{
    kiln_recurrent layer = KILN_RECURRENT_INIT;
    layer.x = kiln_transpose(b, in, (const size_t[]){1, 0, 2});
    layer.w = TAKE(2, 4 * 20, 16);
    layer.r = TAKE(2, 4 * 20, 20);
    layer.bias = TAKE(2, 2 * 4 * 20);
    layer.direction = KILN_BIDIRECTIONAL;
    kiln_tensor last;
    (void)kiln_lstm(b, &layer, &last, NULL);
    return kiln_reshape(b, kiln_transpose(b, last, (const size_t[]){1, 0, 2}), 2,
                        (const size_t[]){rows, 40});
}

/* A loop whose step is planned once and runs again and again. */
static kiln_tensor go_round(kiln_batch *b, kiln_buffer *w, size_t rows, kiln_tensor in)
{
    kiln_loop_options loop = KILN_LOOP_INIT;
    const kiln_tensor state = kiln_loop_state(b, in);
    const kiln_tensor next = kiln_tanh(b, kiln_add(b, kiln_matmul(b, state, TAKE(24, 24)), in));
    kiln_tensor last;
    (void)rows;
    b->limits.unrolled = 0;
    loop.steps = 5;
    loop.state_count = 1;
    loop.states = &state;
    loop.next = &next;
    return kiln_loop(b, &loop, &last, NULL) ? (kiln_tensor){0} : last;
}

struct user {
    const struct network *network;
    kiln_buffer *weights;
};

static kiln_status record(kiln_batch *batch, size_t context, size_t rows, const kiln_tensor *inputs,
                          kiln_tensor *outputs, void *user)
{
    const struct user *with = user;
    (void)context;
    outputs[0] = with->network->forward(batch, with->weights, rows, inputs[0]);
    return KILN_OK;
}

/* Thirds and the like, so that nothing is exact. */
static void fill_parts(float *values, size_t count, unsigned seed, float by)
{
    fill(values, count, seed);
    for (size_t i = 0; i < count; i++)
        values[i] /= by;
}

static void serve(kiln_executor *executor, const struct network *network, size_t width, size_t rows,
                  float *y)
{
    kiln_future *future;
    kiln_input in = {x + (ROWS - rows) * width, rows * width * sizeof *x, KILN_F32};
    kiln_output out = {y, rows * network->outputs * sizeof *y, KILN_F32};
    expect_ok(kiln_executor_submit(executor, &in, &out, rows, NULL, &future));
    expect_ok(kiln_future_wait(future));
    kiln_future_release(future);
}

static void expect_alike_by(const struct network *network, kiln_precision precision)
{
    static float all[ROWS * MOST_OUTPUTS], some[ROWS * MOST_OUTPUTS];
    kiln_context *context = open_context();
    kiln_executor_options options = KILN_EXECUTOR_OPTIONS_INIT;
    kiln_executor *executor;
    size_t width = 1, outputs = network->outputs;
    for (size_t i = 0; i < network->in.rank; i++)
        width *= network->in.dims[i];
    fill_parts(x, ROWS * width, 1, 3);
    fill_parts(weights, WEIGHTS, 2, 48);
    struct user user = {network, make_buffer(context, WEIGHTS, weights)};
    kiln_model model = {sizeof model,     record,   &user, 1, &network->in, 1,
                        sizeof(kiln_row), precision};
    options.max_batch = ROWS;
    expect_ok(kiln_executor_create(&context, 1, &model, &options, &executor));
    kiln_buffer_release(user.weights);
    serve(executor, network, width, ROWS, all);
    for (size_t rows = 1, different = 0; rows < ROWS && !different; rows++) {
        const float *wanted = all + (ROWS - rows) * outputs;
        serve(executor, network, width, rows, some);
        for (size_t i = 0; i < rows * outputs; i++)
            different += memcmp(&some[i], &wanted[i], sizeof *some) != 0;
        cr_expect_eq(different, 0u, "of %zu rows %zu results of %zu differ", rows, different,
                     rows * outputs);
    }
    kiln_executor_release(executor);
    close_context(context);
}

static void expect_alike(const struct network *network)
{
    expect_alike_by(network, KILN_PRECISION_DEFAULT);
    expect_alike_by(network, KILN_PRECISION_BF16);
}

Test(executor_alike, slow_rows_of_the_digits_network)
{
    expect_alike(&(const struct network){{KILN_F32, 1, {784}, 0, 0}, 10, read_digits});
}

Test(executor_alike, slow_rows_of_attention)
{
    expect_alike(&(const struct network){{KILN_F32, 2, {4, 128}, 0, 0}, 128, attend});
}

Test(executor_alike, slow_rows_that_are_queries)
{
    expect_alike(&(const struct network){{KILN_F32, 1, {32}, 0, 0}, 64, look_up});
}

Test(executor_alike, slow_rows_of_a_convolution)
{
    expect_alike(&(const struct network){{KILN_F32, 3, {8, 8, 3}, 0, 0}, 128, convolve});
}

Test(executor_alike, rows_of_a_recurrent_layer)
{
    expect_alike_by(&(const struct network){{KILN_F32, 2, {4, 16}, 0, 0}, 40, listen},
                    KILN_PRECISION_DEFAULT);
}

Test(executor_alike, rows_of_a_loop_that_is_replayed)
{
    expect_alike_by(&(const struct network){{KILN_F32, 1, {24}, 0, 0}, 24, go_round},
                    KILN_PRECISION_DEFAULT);
}
