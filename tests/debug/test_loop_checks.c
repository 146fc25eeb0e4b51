/* SPDX-License-Identifier: Apache-2.0 */
/* Loops of which one step is recorded: the step that makes a NaN, has an index out of range, or
 * differs from the host is named, and right ones pass. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include <kiln/kiln.h>

#include "record/batch.h"

#include "../support/check.h"
#include "../support/context.h"

TestSuite(loop_checks, .init = check_cheaply);

#define DIMS(...) sizeof((size_t[]){__VA_ARGS__}) / sizeof(size_t), ((size_t[]){__VA_ARGS__})

enum { N = 3, STEPS = 6 };

static const float identity[N * N] = {1, 0, 0, 0, 1, 0, 0, 0, 1};
static const float start[N * N] = {4, 5, 6, 7, 8, 9, 4.5f, 5.5f, 6.5f};

static kiln_context *context;
static kiln_batch *batch;

static void begin(double check_values, double validate)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    options.check_values = check_values;
    options.validate = validate;
    context = open_context_with(&options);
    batch = kiln_batch_create(context);
    batch->limits.unrolled = 0; /* every loop is replayed */
}

static void end(void)
{
    kiln_batch_release(batch);
    close_context(context);
}

static kiln_tensor upload(const float *values)
{
    return kiln_upload(batch, KILN_F32, DIMS(N, N), values);
}

/* x - 1, through a product, which no kernel with a loop inside has. */
static kiln_tensor one_less(kiln_tensor x)
{
    return kiln_sub(batch, kiln_matmul(batch, x, upload(identity)),
                    kiln_constant(batch, KILN_F32, 1));
}

static kiln_loop_options loop_of(size_t steps, const kiln_tensor *state, const kiln_tensor *next)
{
    kiln_loop_options options = KILN_LOOP_INIT;
    options.steps = steps;
    options.state_count = 1;
    options.states = state;
    options.next = next;
    return options;
}

/* 4 - 1 five times: the root of a negative number is left by step 4 alone, and by those after it.
 */
Test(loop_checks, name_the_step_that_makes_a_nan)
{
    for (int reverse = 0; reverse < 2; reverse++) {
        begin(1, 0);
        float left[STEPS][N * N] = {{-1}};
        const kiln_tensor state = kiln_loop_state(batch, upload(start)), next = one_less(state);
        kiln_tensor root = kiln_name(batch, kiln_sqrt(batch, next), "root"), last, stacked;
        kiln_loop_options options = loop_of(STEPS, &state, &next);
        options.reverse = reverse;
        options.output_count = 1;
        options.outputs = &root;
        expect_ok(kiln_loop(batch, &options, &last, &stacked));
        expect_ok(kiln_read(batch, stacked, left, sizeof left));
        expect_error_part(kiln_batch_execute(batch), KILN_BAD_VALUE,
                          reverse ? "kiln_batch_execute, step 1: %"
                                  : "kiln_batch_execute, step 4: %");
        expect_error_part(kiln_batch_execute(batch), KILN_BAD_VALUE,
                          "sqrt \"root\" (kiln_sqrt, call 7), f32[3,3]: element [0,0] is NaN, and "
                          "no operand has one");
        cr_expect_eq(left[0][0], -1, "the batch has run");
        float more[N * N];
        for (int i = 0; i < N * N; i++)
            more[i] = start[i] + 10;
        expect_ok(kiln_rebind_upload(batch, kiln__batch_tensor(batch, 0), more));
        expect_ok(kiln_batch_execute(batch));
        cr_expect_float_eq(left[reverse ? 0 : STEPS - 1][0], sqrtf(8), 1e-6f);
        end();
    }
}

Test(loop_checks, name_the_step_whose_index_is_out_of_range)
{
    begin(1, 0);
    float result[N * N];
    const kiln_tensor state = kiln_loop_state(batch, upload(start)), step = kiln_loop_step(batch);
    const kiln_tensor rows = kiln_reshape(batch, step, DIMS(1));
    const kiln_tensor next =
        kiln_add(batch, one_less(state), kiln_gather(batch, upload(identity), rows, 0));
    kiln_tensor last;
    kiln_loop_options options = loop_of(STEPS, &state, &next);
    options.step = step;
    expect_ok(kiln_loop(batch, &options, &last, NULL));
    expect_ok(kiln_read(batch, last, result, sizeof result));
    expect_error_part(kiln_batch_execute(batch), KILN_BAD_VALUE, "kiln_batch_execute, step 3: %");
    end();
}

/* The host's function of a kernel is wrong where x is below 2. */
static void three_quarters(const kiln_array *inputs, const kiln_array *outputs,
                           const double *scalars, void *user)
{
    const float *x = inputs[0].data;
    float *y = outputs[0].data;
    (void)scalars;
    (void)user;
    for (int i = 0; i < N * N; i++)
        y[i] = 0.75f * x[i] + (x[i] < 2 ? 0.5f : 0);
}

static kiln_tensor by_own_kernel(kiln_tensor x)
{
    const kiln_custom_tensor in = {.name = "x", .type = KILN_F32};
    const kiln_custom_tensor out = {.name = "y", .type = KILN_F32, .rank = 2, .dims = {N, N}};
    kiln_custom_kernel kernel = KILN_CUSTOM_KERNEL_INIT;
    kiln_tensor y;
    kernel.name = "three_quarters";
    kernel.source = "y[get_global_id(0)] = 0.75f * x[get_global_id(0)];";
    kernel.inputs = &in;
    kernel.input_count = 1;
    kernel.outputs = &out;
    kernel.output_count = 1;
    kernel.host = three_quarters;
    expect_ok(kiln_custom(batch, &kernel, &x, &y));
    return y;
}

/* 4, 3, 2.25: step 3 begins with 1.6875. The loop is the inner one of two. */
Test(loop_checks, name_the_step_that_differs_from_the_host)
{
    begin(0, 1);
    float result[N * N];
    const kiln_tensor outer = kiln_loop_state(batch, upload(start));
    const kiln_tensor inner = kiln_loop_state(batch, outer), next = by_own_kernel(inner);
    kiln_tensor left, last;
    kiln_loop_options inside = loop_of(2, &inner, &next), around = loop_of(3, &outer, &left);
    expect_ok(kiln_loop(batch, &inside, &left, NULL));
    expect_ok(kiln_loop(batch, &around, &last, NULL));
    expect_ok(kiln_read(batch, last, result, sizeof result));
    expect_error_part(kiln_batch_execute(batch), KILN_WRONG_RESULT,
                      "kiln_batch_execute, step 1, step 1: %");
    expect_error_part(kiln_batch_execute(batch), KILN_WRONG_RESULT,
                      "element [0,0]: the device has 1.265625 and the host 1.765625");
    end();
}

/* Elements, outputs, an end, a loop in a loop, a buffer that is updated in place: what it has been
 * left with. */
static void take_right_steps(double looked_at, float *found)
{
    begin(looked_at, looked_at);
    float xs[STEPS * N * N], stacked_values[STEPS * N * N];
    for (int i = 0; i < STEPS * N * N; i++)
        xs[i] = (float)(i % 7) / 8;
    kiln_buffer *buffer = make_buffer(context, N * N, start);
    const kiln_tensor given = kiln_reshape(batch, kiln_import(batch, buffer), DIMS(N, N));
    const kiln_tensor element =
        kiln_loop_element(batch, kiln_upload(batch, KILN_F32, DIMS(STEPS, N, N), xs));
    const kiln_tensor state = kiln_loop_state(batch, given);
    const kiln_tensor inner = kiln_loop_state(batch, state), inner_next = one_less(inner);
    kiln_tensor shrunk, next, one, last, all;
    kiln_loop_options inside = loop_of(9, &inner, &inner_next);
    inside.until =
        kiln_less(batch, kiln_max(batch, inner, 0, NULL, 0), kiln_constant(batch, KILN_F32, 4));
    expect_ok(kiln_loop(batch, &inside, &shrunk, NULL));
    next = kiln_add(batch, kiln_matmul(batch, shrunk, element), state);
    one = kiln_neg(batch, next);
    kiln_loop_options around = loop_of(STEPS, &state, &next);
    around.element_count = around.output_count = 1;
    around.elements = &element;
    around.outputs = &one;
    expect_ok(kiln_loop(batch, &around, &last, &all));
    expect_ok(kiln_export(batch, kiln_reshape(batch, last, DIMS(N * N)), buffer));
    expect_ok(kiln_read(batch, all, stacked_values, sizeof stacked_values));
    run_batch(batch);
    run_batch(batch);
    expect_ok(kiln_buffer_read(buffer, 0, found, N * N * sizeof *found));
    memcpy(found + N * N, stacked_values, sizeof stacked_values);
    kiln_buffer_release(buffer);
    end();
}

Test(loop_checks, pass_what_is_right)
{
    float plain[(STEPS + 1) * N * N], looked_at[(STEPS + 1) * N * N];
    take_right_steps(0, plain);
    take_right_steps(1, looked_at);
    for (int i = 0; i < (STEPS + 1) * N * N; i++)
        cr_expect_eq(looked_at[i], plain[i], "%d: %g, not %g", i, (double)looked_at[i],
                     (double)plain[i]);
}
