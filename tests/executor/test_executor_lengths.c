/* SPDX-License-Identifier: Apache-2.0 */
/* Rows with a length: those of like length travel together, with a mask, and the rest of a row is
 * nobody's. */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "../support/context.h"
#include "../support/served.h"

enum { LONGEST = 40, WIDTH = 4, MOST = 24 * LONGEST * WIDTH };

static float x[MOST], y[MOST];

/* ---- models ---- */

/* The mean of what a row has: [rows, length, WIDTH] gives [rows, WIDTH]. */
static kiln_status record_means(kiln_batch *b, size_t context, size_t rows,
                                const kiln_tensor *inputs, kiln_tensor *outputs, void *user)
{
    size_t dims[KILN_MAX_RANK];
    (void)context, (void)user;
    expect_ok(kiln_tensor_shape(b, inputs[2], NULL, NULL, dims));
    kiln_tensor mask = kiln_reshape(b, inputs[2], 3, (size_t[]){rows, dims[1], 1});
    kiln_tensor kept = kiln_where(b, mask, inputs[0], kiln_constant(b, KILN_F32, 0));
    kiln_tensor sums = kiln_sum(b, kept, 1, (const int[]){1}, 0);
    kiln_tensor counts = kiln_cast(b, inputs[1], KILN_F32);
    outputs[0] = kiln_div(b, sums, kiln_reshape(b, counts, 2, (size_t[]){rows, 1}));
    return KILN_OK;
}

/* Each element looks at all of its row: a sequence of the same length. */
static kiln_status record_attention(kiln_batch *b, size_t context, size_t rows,
                                    const kiln_tensor *inputs, kiln_tensor *outputs, void *user)
{
    size_t dims[KILN_MAX_RANK];
    (void)context, (void)user;
    expect_ok(kiln_tensor_shape(b, inputs[2], NULL, NULL, dims));
    kiln_tensor mask = kiln_reshape(b, inputs[2], 3, (size_t[]){rows, 1, dims[1]});
    outputs[0] = kiln_attention(b, inputs[0], inputs[0], inputs[0], mask, NULL);
    return KILN_OK;
}

/* Neither fixed nor as long as the row. */
static kiln_status record_half(kiln_batch *b, size_t context, size_t rows,
                               const kiln_tensor *inputs, kiln_tensor *outputs, void *user)
{
    size_t dims[KILN_MAX_RANK];
    (void)context, (void)user;
    expect_ok(kiln_tensor_shape(b, inputs[0], NULL, NULL, dims));
    const int64_t stop[] = {(int64_t)rows, (int64_t)(dims[1] + 1) / 2, WIDTH};
    outputs[0] = kiln_slice(b, inputs[0], (const int64_t[]){0, 0, 0}, stop, NULL);
    return KILN_OK;
}

static const kiln_row sequence = {
    .type = KILN_F32, .rank = 2, .dims = {LONGEST, WIDTH}, .sequence = 1};

static kiln_model model_of(kiln_model_recorder record)
{
    kiln_model model = KILN_MODEL_INIT;
    model.record = record;
    model.input_count = model.output_count = 1;
    model.inputs = &sequence;
    return model;
}

static kiln_executor *open_close(kiln_context *context, kiln_model_recorder record,
                                 size_t max_batch, int close_lengths)
{
    kiln_executor *executor;
    kiln_executor_options options = served_options(max_batch, 1, 0);
    kiln_model model = model_of(record);
    options.close_lengths = close_lengths;
    expect_ok(kiln_executor_create(&context, 1, &model, &options, &executor));
    return executor;
}

static kiln_executor *open(kiln_context *context, kiln_model_recorder record, size_t max_batch)
{
    return open_close(context, record, max_batch, 0);
}

/* Rows of a length, from and to where rows of `width` numbers begin. */
static kiln_future *submit(kiln_executor *executor, const float *from, float *to, size_t rows,
                           size_t length, size_t out)
{
    kiln_future *future;
    kiln_request_options request = KILN_REQUEST_OPTIONS_INIT;
    kiln_input in = {from, rows * length * WIDTH * sizeof *from, KILN_F32};
    kiln_output result = {to, rows * out * WIDTH * sizeof *to, KILN_F32};
    request.length = length;
    expect_ok(kiln_executor_submit(executor, &in, &result, rows, &request, &future));
    return future;
}

static void expect_end(kiln_future *future)
{
    expect_ok(kiln_future_wait(future));
    kiln_future_release(future);
}

/* ---- fixed results ---- */

/* Small whole numbers: sums are exact, and a quotient is as exact as OpenCL C has it, 2.5 ulp. */
static void expect_means(const float *from, const float *means, size_t rows, size_t length)
{
    for (size_t i = 0; i < rows * WIDTH; i++) {
        float sum = 0;
        for (size_t k = 0; k < length; k++)
            sum += from[(i / WIDTH * length + k) * WIDTH + i % WIDTH];
        float mean = sum / (float)length;
        cr_expect(fabsf(means[i] - mean) <= 2.5f * FLT_EPSILON * fabsf(mean),
                  "length %zu, result %zu", length, i);
    }
}

/* What is computed of 191 elements that are asked for, in 4 batches. */
static void expect_company(int close_lengths, double computed)
{
    static const struct {
        size_t rows, length;
    } requests[] = {{1, LONGEST}, {2, 5}, {3, 33}, {1, 8}, {2, 1}, {1, 20}, {4, 3}};
    enum { COUNT = sizeof requests / sizeof *requests };
    kiln_context *context = open_context();
    kiln_executor *executor = open_close(context, record_means, 16, close_lengths);
    kiln_future *futures[COUNT];
    float *from = x, *to = y;
    fill(x, MOST, 1);
    cl_event gate = gate_close(context);
    for (size_t i = 0; i < COUNT; i++) {
        futures[i] = submit(executor, from, to, requests[i].rows, requests[i].length, 1);
        from += requests[i].rows * requests[i].length * WIDTH;
        to += requests[i].rows * WIDTH;
        cr_assert(served_running(executor, 1)); /* the first: the others wait for its end */
    }
    gate_open(gate);
    from = x, to = y;
    for (size_t i = 0; i < COUNT; i++) {
        expect_end(futures[i]);
        expect_means(from, to, requests[i].rows, requests[i].length);
        from += requests[i].rows * requests[i].length * WIDTH;
        to += requests[i].rows * WIDTH;
    }
    kiln_executor_stats stats = served_stats(executor);
    /* Up to 40: 1 of 2 rows and then 3 of 4; up to 8: 9 of 16; up to 32, or to 24: 1 of 2. */
    cr_expect_eq(stats.batches, 4u);
    cr_expect_eq(stats.padding, 10u);
    const double asked = 40 + 99 + (10 + 8 + 2 + 12) + 20;
    cr_expect_float_eq(stats.padding_share, 1 - asked / computed, 1e-9);
    served_end(executor, context);
}

Test(executor_lengths, like_ones_travel_together)
{
    expect_company(0, 80 + 160 + 128 + 64);
}

Test(executor_lengths, close_ones_have_less_padding)
{
    expect_company(1, 80 + 160 + 128 + 48);
}

/* Rows of another length that are gone must not count for what wakes a worker. */
Test(executor_lengths, begin_at_once_after_one_of_another_length_was_cancelled)
{
    kiln_context *context = open_context();
    kiln_executor *executor;
    kiln_executor_options options = served_options(16, 4, 0);
    kiln_model model = model_of(record_means);
    expect_ok(kiln_executor_create(&context, 1, &model, &options, &executor));
    fill(x, MOST, 3);
    kiln_future *gone = submit(executor, x, y, 3, 5, 1);
    kiln_future *first = submit(executor, x, y + 3 * WIDTH, 2, 20, 1);
    cr_expect_eq(kiln_future_wait_for(first, 20000), KILN_NOT_READY);
    expect_ok(kiln_future_cancel(gone));
    kiln_future_release(gone);
    kiln_future *second = submit(executor, x, y + 5 * WIDTH, 2, 20, 1);
    cr_expect_eq(kiln_future_wait_for(second, 300000000), KILN_OK); /* else it waits for an hour */
    cr_expect_eq(kiln_future_poll(first), KILN_OK);
    kiln_future_release(first);
    kiln_future_release(second);
    served_end(executor, context);
}

/* ---- batches by elements ---- */

/* The largest batch of each length, up to LONGEST. */
static size_t largest[LONGEST + 1];

static kiln_status record_noted(kiln_batch *b, size_t context, size_t rows,
                                const kiln_tensor *inputs, kiln_tensor *outputs, void *user)
{
    size_t dims[KILN_MAX_RANK];
    expect_ok(kiln_tensor_shape(b, inputs[2], NULL, NULL, dims));
    largest[dims[1]] = rows > largest[dims[1]] ? rows : largest[dims[1]];
    return record_means(b, context, rows, inputs, outputs, user);
}

/* 24 rows at most, and 100 elements: 12 rows of 8, 6 of 16, 3 of 32, 2 of 40. */
static kiln_executor *open_bounded(kiln_context *context, size_t max_elements)
{
    kiln_executor *executor;
    kiln_executor_options options = served_options(24, 1, 0);
    kiln_model model = model_of(record_noted);
    options.max_elements = max_elements;
    memset(largest, 0, sizeof largest);
    expect_ok(kiln_executor_create(&context, 1, &model, &options, &executor));
    return executor;
}

static kiln_status try(kiln_executor *executor, size_t rows, size_t length)
{
    kiln_future *future;
    kiln_request_options request = KILN_REQUEST_OPTIONS_INIT;
    kiln_input in = {x, rows * length * WIDTH * sizeof *x, KILN_F32};
    kiln_output out = {y, rows * WIDTH * sizeof *y, KILN_F32};
    request.length = length;
    const kiln_status status = kiln_executor_submit(executor, &in, &out, rows, &request, &future);
    if (!status)
        expect_end(future);
    return status;
}

Test(executor_lengths, a_batch_of_long_ones_has_fewer_rows)
{
    kiln_context *context = open_context();
    kiln_executor *executor = open_bounded(context, 100);
    fill(x, MOST, 4);
    cr_expect_eq(largest[8], 12u);
    cr_expect_eq(largest[16], 6u);
    cr_expect_eq(largest[32], 3u);
    cr_expect_eq(largest[LONGEST], 2u);
    cr_expect_eq(try(executor, 12, 8), KILN_OK);
    cr_expect_eq(try(executor, 7, 9), KILN_TOO_LARGE);
    cr_expect_str_eq(kiln_last_error(),
                     "kiln_executor_submit: 7 rows, and a batch has at most 6 of their length");
    cr_expect_eq(try(executor, 3, 32), KILN_OK);
    cr_expect_eq(try(executor, 4, 32), KILN_TOO_LARGE);
    cr_expect_eq(try(executor, 2, LONGEST), KILN_OK);
    cr_expect_eq(try(executor, 3, LONGEST), KILN_TOO_LARGE);
    cr_expect_float_eq(served_stats(executor).fill, 1, 1e-9);
    kiln_executor_release(executor);
    executor = open_bounded(context, 1); /* two always fit, */
    cr_expect_eq(largest[8], 2u);
    cr_expect_eq(try(executor, 2, LONGEST), KILN_OK);
    kiln_executor_release(executor);
    executor = open_bounded(context, SIZE_MAX); /* and no more than a batch has */
    cr_expect_eq(largest[LONGEST], 24u);
    served_end(executor, context);
}

/* Many of all lengths, which wait while the device is busy, and as many in one call. */
Test(executor_lengths, a_bound_of_elements_changes_no_bit)
{
    enum { COUNT = 60, ROWS = 20 };
    static float wanted[COUNT * WIDTH], whole[ROWS * WIDTH];
    kiln_context *context = open_context();
    kiln_future *futures[COUNT];
    fill(x, MOST, 5);
    for (size_t bound = 0; bound < 200; bound += 100) {
        kiln_executor *executor = open_bounded(context, bound);
        cl_event gate = gate_close(context);
        for (size_t i = 0; i < COUNT; i++)
            futures[i] = submit(executor, x + i, y + i * WIDTH, 1, 1 + i * 7 % LONGEST, 1);
        gate_open(gate);
        for (size_t i = 0; i < COUNT; i++)
            expect_end(futures[i]);
        if (bound)
            cr_expect_arr_eq(y, wanted, sizeof wanted);
        memcpy(wanted, y, sizeof wanted);
        const kiln_input in = {x, ROWS * LONGEST * WIDTH * sizeof *x, KILN_F32};
        const kiln_output out = {y, ROWS * WIDTH * sizeof *y, KILN_F32};
        expect_ok(kiln_executor_run(executor, &in, &out, ROWS, NULL));
        if (bound)
            cr_expect_arr_eq(y, whole, sizeof whole);
        memcpy(whole, y, sizeof whole);
        kiln_executor_release(executor);
    }
    close_context(context);
}

/* ---- results as long as their rows ---- */

static void expect_attention(const float *from, const float *found, size_t length)
{
    kiln_context *context = open_context();
    kiln_batch *batch = kiln_batch_create(context);
    static float wanted[LONGEST * WIDTH];
    const size_t dims[] = {length, WIDTH};
    kiln_tensor row = kiln_upload(batch, KILN_F32, 2, dims, from);
    kiln_tensor all = kiln_attention(batch, row, row, row, (kiln_tensor){0}, NULL);
    expect_ok(kiln_read(batch, all, wanted, length * WIDTH * sizeof *wanted));
    run_batch(batch);
    for (size_t i = 0; i < length * WIDTH; i++)
        cr_expect_float_eq(found[i], wanted[i], 1e-5, "length %zu, %zu", length, i);
    kiln_batch_release(batch);
    close_context(context);
}

Test(executor_lengths, padding_is_out_of_sight_and_changes_no_bit)
{
    static const size_t lengths[] = {3, 17, 5, LONGEST, 8, 1};
    enum { COUNT = sizeof lengths / sizeof *lengths };
    static float alone[COUNT][LONGEST * WIDTH], together[COUNT][LONGEST * WIDTH];
    kiln_context *context = open_context();
    kiln_executor *executor = open(context, record_attention, 8);
    kiln_future *futures[COUNT];
    fill(x, MOST, 2);
    for (size_t i = 0; i < MOST; i++)
        x[i] /= 7;
    for (size_t i = 0; i < COUNT; i++)
        expect_end(submit(executor, x + i, alone[i], 1, lengths[i], lengths[i]));
    cl_event gate = gate_close(context);
    for (size_t i = 0; i < COUNT; i++)
        futures[i] = submit(executor, x + i, together[i], 1, lengths[i], lengths[i]);
    gate_open(gate);
    for (size_t i = 0; i < COUNT; i++) {
        expect_end(futures[i]);
        cr_expect_arr_eq(together[i], alone[i], lengths[i] * WIDTH * sizeof(float), "%zu", i);
        expect_attention(x + i, alone[i], lengths[i]);
    }
    served_end(executor, context);
}

/* ---- errors ---- */

static void expect_refused(kiln_executor *executor, size_t bytes, size_t length, kiln_status wanted,
                           const char *sentence)
{
    kiln_future *future;
    kiln_request_options request = KILN_REQUEST_OPTIONS_INIT;
    kiln_input in = {x, bytes, KILN_F32};
    kiln_output out = {y, 2 * WIDTH * sizeof *y, KILN_F32};
    request.length = length;
    expect_error(kiln_executor_submit(executor, &in, &out, 2, &request, &future), wanted, sentence);
}

Test(executor_lengths, of_requests_are_looked_at)
{
    kiln_context *context = open_context();
    kiln_executor *executor = open(context, record_means, 4);
    expect_refused(executor, 2 * 4 * WIDTH * sizeof *x, 5, KILN_INVALID_ARGUMENT,
                   "kiln_executor_submit: input 0 has 128 bytes, and 2 rows of length 5 of the "
                   "model have 160");
    expect_refused(executor, 2 * 4 * WIDTH * sizeof *x, 0, KILN_INVALID_ARGUMENT,
                   "kiln_executor_submit: input 0 has 128 bytes, and 2 rows of length 40 of the "
                   "model have 1280");
    expect_refused(executor, 2 * 41 * WIDTH * sizeof *x, 41, KILN_TOO_LARGE,
                   "kiln_executor_submit: a length of 41, and the greatest is 40");
    kiln_executor_release(executor);
    executor = served_create(context, NULL);
    kiln_request_options request = KILN_REQUEST_OPTIONS_INIT;
    kiln_future *future;
    request.length = 1;
    expect_error(served_try(executor, x, y, 1, &request, &future), KILN_INVALID_ARGUMENT,
                 "kiln_executor_submit: a length of 1, and the model has no sequences");
    served_end(executor, context);
}

Test(executor_lengths, of_models_are_looked_at)
{
    kiln_context *context = open_context();
    kiln_executor *executor;
    kiln_row rows[2] = {sequence, sequence};
    kiln_model model = model_of(record_half);
    expect_error(kiln_executor_create(&context, 1, &model, NULL, &executor), KILN_SHAPE_MISMATCH,
                 "kiln_executor_create: output 0 of the model for 2 rows has 128 bytes of f32 a "
                 "row, which is not what it had for fewer or shorter rows");
    model.inputs = rows;
    model.input_count = 2;
    rows[1].dims[0] = 41;
    expect_error(kiln_executor_create(&context, 1, &model, NULL, &executor), KILN_INVALID_ARGUMENT,
                 "kiln_executor_create: input 1: a sequence of length 41 beside one of 40");
    rows[1].dims[0] = ((size_t)1 << 18) + 1;
    expect_error(kiln_executor_create(&context, 1, &model, NULL, &executor), KILN_INVALID_ARGUMENT,
                 "kiln_executor_create: input 1: a sequence of length 262145; 1 to 262144 are "
                 "taken");
    close_context(context);
}
