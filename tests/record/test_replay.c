/* SPDX-License-Identifier: Apache-2.0 */
/* Loops whose step runs again and again: beside the same steps recorded one by one, bit for bit. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/elementwise.h>
#include <kiln/kiln.h>
#include <kiln/reductions.h>

#include "record/batch.h"
#include "session/context.h"

#include "../support/check.h"

TestSuite(replay, .init = check_cheaply);

#define MOST 512

static kiln_batch *batch;

static void begin(bool replayed)
{
    batch = kiln_batch_create(check_context());
    cr_assert(batch);
    if (replayed)
        batch->limits.unrolled = 0;
}

/* With so many steps at once. */
static void begin_stretched(size_t steps)
{
    begin(true);
    batch->limits.stretch = steps;
}

static void run(void)
{
    cr_expect_eq(kiln_batch_execute(batch), KILN_OK, "%s", kiln_batch_error(batch));
}

static void end(void)
{
    kiln_batch_release(batch);
    check_close();
}

static float data[MOST];

static kiln_tensor upload(size_t rows, size_t columns)
{
    for (size_t i = 0; i < MOST; i++)
        data[i] = (float)((int)(i * 37 % 101) - 50) / 128;
    return kiln_upload(batch, KILN_F32, 2, (size_t[]){rows, columns}, data);
}

/* A loop of a few states, with what each step leaves of the first one. */
static void loop_of(size_t steps, size_t count, const kiln_tensor *states, const kiln_tensor *next,
                    kiln_tensor *last, kiln_tensor *stacked)
{
    kiln_loop_options options = KILN_LOOP_INIT;
    options.steps = steps;
    options.state_count = count;
    options.states = states;
    options.next = next;
    options.output_count = stacked != NULL;
    options.outputs = next;
    cr_expect_eq(kiln_loop(batch, &options, last, stacked), KILN_OK, "%s", kiln_batch_error(batch));
}

/* ---- kinds of steps: each records a loop, and gives what is compared ---- */

typedef kiln_tensor record(size_t rows, size_t steps);

/* The weights are what the batch computes first. */
static kiln_tensor product(size_t rows, size_t steps)
{
    const kiln_tensor w = kiln_scale(batch, upload(5, 5), 0.5), x = upload(rows, 5);
    const kiln_tensor state = kiln_loop_state(batch, kiln_scale(batch, x, 2));
    const kiln_tensor next = kiln_tanh(batch, kiln_matmul(batch, state, w));
    kiln_tensor last, stacked;
    loop_of(steps, 1, &state, &next, &last, &stacked);
    return kiln_add(batch, kiln_sum(batch, stacked, 1, (int[]){0}, 0), kiln_scale(batch, last, 3));
}

/* Neighbours, with zeros around. */
static kiln_tensor stencil(size_t rows, size_t steps)
{
    const kiln_tensor state = kiln_loop_state(batch, upload(rows, 7));
    const size_t pads[] = {1, 1};
    const kiln_tensor wide = kiln_pad(batch, state, pads, pads, 0);
    const int64_t up[] = {0, 1}, down[] = {2, 1}, size[] = {(int64_t)rows, 8},
                  far[] = {(int64_t)rows + 2, 8};
    const kiln_tensor sum = kiln_add(batch, kiln_slice(batch, wide, up, size, NULL),
                                     kiln_slice(batch, wide, down, far, NULL));
    const kiln_tensor next =
        kiln_add(batch, kiln_scale(batch, state, 0.5), kiln_scale(batch, sum, 0.25));
    kiln_tensor last;
    loop_of(steps, 1, &state, &next, &last, NULL);
    return last;
}

/* Two states change places; a third is the same behind each step; a fourth nobody asks for. */
static kiln_tensor swap(size_t rows, size_t steps)
{
    const kiln_tensor one = upload(rows, 5), ones = kiln_fill(batch, KILN_F32, 0, NULL, 1);
    const kiln_tensor states[] = {kiln_loop_state(batch, one),
                                  kiln_loop_state(batch, kiln_cumsum(batch, one, 1, 0)),
                                  kiln_loop_state(batch, one), kiln_loop_state(batch, ones)};
    const kiln_tensor next[] = {states[1], kiln_cumsum(batch, states[0], 1, 0),
                                kiln_fill(batch, KILN_F32, 2, (size_t[]){rows, 5}, 4),
                                kiln_add(batch, states[3], ones)};
    kiln_tensor last[4];
    loop_of(steps, 4, states, next, last, NULL);
    return kiln_add(batch, kiln_add(batch, last[0], kiln_scale(batch, last[1], 16)), last[2]);
}

/* A loop behind a loop, whose step is made of the first one's results. */
static kiln_tensor one_behind_another(size_t rows, size_t steps)
{
    const kiln_tensor x = product(rows, steps), state = kiln_loop_state(batch, upload(rows, 5));
    const kiln_tensor next = kiln_cumsum(batch, kiln_add(batch, state, x), 1, 0);
    kiln_tensor last;
    loop_of(steps, 1, &state, &next, &last, NULL);
    return kiln_sub(batch, last, x);
}

/* A loop in a step, which begins with the state, and with what is the same in all steps. */
static kiln_tensor nested(size_t rows, size_t steps)
{
    const kiln_tensor w = upload(5, 5), bias = kiln_sum(batch, upload(3, 5), 1, (int[]){0}, 0);
    const kiln_tensor outer = kiln_loop_state(batch, upload(rows, 5));
    const kiln_tensor inner[] = {kiln_loop_state(batch, kiln_scale(batch, outer, 0.5)),
                                 kiln_loop_state(batch, bias)};
    const kiln_tensor next[] = {
        kiln_tanh(batch, kiln_add(batch, kiln_matmul(batch, inner[0], w), inner[1])),
        kiln_cumsum(batch, inner[1], 0, 0)};
    kiln_tensor last[2], all;
    loop_of(3, 2, inner, next, last, NULL);
    const kiln_tensor after = kiln_add(batch, last[0], kiln_scale(batch, outer, 0.25));
    loop_of(steps, 1, &outer, &after, &all, NULL);
    return all;
}

/* A state of a narrow type. */
static kiln_tensor narrow(size_t rows, size_t steps)
{
    const kiln_tensor state = kiln_loop_state(batch, kiln_cast(batch, upload(rows, 5), KILN_BF16));
    const kiln_tensor next =
        kiln_cast(batch, kiln_cumsum(batch, kiln_cast(batch, state, KILN_F32), 1, 0), KILN_BF16);
    kiln_tensor last;
    loop_of(steps, 1, &state, &next, &last, NULL);
    return kiln_cast(batch, last, KILN_F32);
}

/* Elements, the number of the step, and what each leaves, from the last one on. */
static kiln_tensor backwards(size_t rows, size_t steps)
{
    const kiln_tensor state = kiln_loop_state(batch, upload(rows, 5)),
                      row = kiln_reshape(batch, upload(1, 5), 1, (size_t[]){5}),
                      number = kiln_loop_step(batch);
    const kiln_tensor numbers =
        kiln_cast(batch, kiln_iota(batch, 2, (size_t[]){steps, 1}, 0), KILN_F32);
    const kiln_tensor all = kiln_mul(batch, numbers, row);
    const kiln_tensor element = kiln_loop_element(batch, all);
    const kiln_tensor sum =
        kiln_add(batch, kiln_mul(batch, element, kiln_cast(batch, number, KILN_F32)), state);
    const kiln_tensor next = kiln_tanh(batch, kiln_cumsum(batch, sum, 1, 0));
    const kiln_tensor left = kiln_scale(batch, next, 0.5);
    kiln_tensor last, stacked;
    kiln_loop_options options = KILN_LOOP_INIT;
    options.steps = steps;
    options.state_count = options.element_count = options.output_count = 1;
    options.states = &state;
    options.next = &next;
    options.elements = &element;
    options.outputs = &left;
    options.step = number;
    options.reverse = 1;
    cr_expect_eq(kiln_loop(batch, &options, &last, &stacked), KILN_OK, "%s",
                 kiln_batch_error(batch));
    return kiln_concat(
        batch, 2,
        (kiln_tensor[]){last, kiln_reshape(batch, stacked, 2, (size_t[]){steps * rows, 5})}, 0);
}

/* A state that is the same behind each step, and what the first one is made of. */
static kiln_tensor still(size_t rows, size_t steps)
{
    const kiln_tensor b0 = upload(1, 5), w = upload(rows, 5);
    const kiln_tensor states[] = {kiln_loop_state(batch, upload(rows, 5)),
                                  kiln_loop_state(batch, upload(1, 5))};
    const kiln_tensor sum = kiln_add(batch, kiln_mul(batch, states[0], kiln_scale(batch, w, 0.25)),
                                     kiln_tanh(batch, states[1]));
    const kiln_tensor next[] = {kiln_cumsum(batch, sum, 1, 0), kiln_scale(batch, b0, 0.5)};
    kiln_tensor last[2];
    loop_of(steps, 2, states, next, last, NULL);
    return kiln_add(batch, last[0], last[1]);
}

/* What each step leaves is the same, or the state before it that is. */
static kiln_tensor left_behind(size_t rows, size_t steps, bool is_state)
{
    const kiln_tensor bias = kiln_scale(batch, upload(1, 5), 0.5);
    const kiln_tensor states[] = {kiln_loop_state(batch, upload(rows, 5)),
                                  kiln_loop_state(batch, upload(1, 5))};
    const kiln_tensor next[] = {kiln_cumsum(batch, kiln_tanh(batch, states[0]), 1, 0), bias};
    kiln_tensor last[2], stacked;
    kiln_loop_options options = KILN_LOOP_INIT;
    options.steps = steps;
    options.state_count = 2;
    options.states = states;
    options.next = next;
    options.output_count = 1;
    options.outputs = is_state ? &states[1] : &bias;
    options.reverse = is_state;
    cr_expect_eq(kiln_loop(batch, &options, last, &stacked), KILN_OK, "%s",
                 kiln_batch_error(batch));
    return kiln_concat(
        batch, 2, (kiln_tensor[]){last[0], kiln_reshape(batch, stacked, 2, (size_t[]){steps, 5})},
        0);
}

static kiln_tensor leaves_a_bias(size_t rows, size_t steps)
{
    return left_behind(rows, steps, false);
}

static kiln_tensor leaves_a_state(size_t rows, size_t steps)
{
    return left_behind(rows, steps, true);
}

/* Recorded one by one, replayed one by one, and two at once. */
static void check_alike(record *made, size_t rows, size_t steps, const char *what)
{
    float found[3][MOST] = {{0}};
    size_t rank, dims[KILN_MAX_RANK];
    for (size_t replayed = 0; replayed < 3; replayed++) {
        if (replayed)
            begin_stretched(replayed);
        else
            begin(false);
        const kiln_tensor y = made(rows, steps);
        cr_assert_eq(kiln_tensor_shape(batch, y, NULL, &rank, dims), KILN_OK, "%s",
                     kiln_batch_error(batch));
        kiln_read(batch, y, found[replayed], dims[0] * dims[1] * sizeof(float));
        cr_expect_eq(batch->loops.count != 0, replayed && steps, "%s", what);
        run();
        run(); /* once more */
        kiln_batch_release(batch);
    }
    for (int i = 1; i < 3; i++)
        cr_expect_arr_eq(found[0], found[i], sizeof found[0], "%s, %zu rows, %zu steps, %d at once",
                         what, rows, steps, i);
}

static const struct {
    record *made;
    const char *name;
} kinds[] = {{product, "product"},
             {stencil, "stencil"},
             {swap, "swap"},
             {one_behind_another, "one behind another"},
             {nested, "nested"},
             {narrow, "narrow"},
             {backwards, "backwards"},
             {still, "still"},
             {leaves_a_bias, "leaves a bias"},
             {leaves_a_state, "leaves a state"}};

Test(replay, is_what_steps_one_by_one_are)
{
    static const size_t steps[] = {1, 2, 5};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t i = 0; i < 3; i++)
            check_alike(kinds[k].made, 3, steps[i], kinds[k].name);
    check_close();
}

Test(replay, slow_of_edge_shapes)
{
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        check_alike(kinds[k].made, 0, 3, kinds[k].name);
        check_alike(kinds[k].made, 1, 4, kinds[k].name);
        check_alike(kinds[k].made, 13, 3, kinds[k].name);
    }
    check_close();
}

/* Beside float64, and far beyond what can be recorded one by one. */
Test(replay, has_no_bound)
{
    const size_t steps = 10007;
    float w[4] = {0.6f, -0.8f, 0.8f, 0.6f}, found[2], x[2] = {1, 0};
    double expected[2] = {1, 0};
    begin(false);
    const kiln_tensor state =
        kiln_loop_state(batch, kiln_upload(batch, KILN_F32, 2, (size_t[]){1, 2}, x));
    const kiln_tensor next =
        kiln_matmul(batch, state, kiln_upload(batch, KILN_F32, 2, (size_t[]){2, 2}, w));
    kiln_tensor last;
    loop_of(steps, 1, &state, &next, &last, NULL);
    kiln_read(batch, last, found, sizeof found);
    run();
    for (size_t i = 0; i < steps; i++) {
        const double first = expected[0] * w[0] + expected[1] * w[2];
        expected[1] = expected[0] * w[1] + expected[1] * w[3];
        expected[0] = first;
    }
    for (int i = 0; i < 2; i++)
        cr_expect_float_eq(found[i], expected[i], 1e-3, "%g, not %g", (double)found[i],
                           expected[i]);
    end();
}

/* Half an hour's steps, of which few are taken: sqrt(2) by Newton, and how many it took; a state
 * that has ended elsewhere stays. */
Test(replay, ends_early)
{
    static const float targets[] = {2, 9, 1e6f};
    const size_t count = 3;
    float root[3];
    int32_t taken = -1;
    for (int at_once = 0; at_once < 2; at_once++) {
        begin(true);
        const kiln_tensor target = kiln_upload(batch, KILN_F32, 1, &count, targets);
        kiln_loop_options options = KILN_LOOP_INIT;
        const kiln_tensor states[] = {
            kiln_loop_state(batch, at_once ? kiln_sqrt(batch, target) : target),
            kiln_loop_state(batch, kiln_constant(batch, KILN_I32, 0))};
        const kiln_tensor mean =
            kiln_scale(batch, kiln_add(batch, states[0], kiln_div(batch, target, states[0])), 0.5);
        const int64_t start = 2, stop = -1, step = -1;
        const kiln_tensor turned = kiln_slice(batch, mean, &start, &stop, &step);
        const kiln_tensor next[] = {kiln_slice(batch, turned, &start, &stop, &step),
                                    kiln_add(batch, states[1], kiln_constant(batch, KILN_I32, 1))};
        const kiln_tensor off =
            kiln_abs(batch, kiln_sub(batch, kiln_square(batch, states[0]), target));
        kiln_tensor last[2];
        const kiln_tensor near = kiln_less(batch, off, kiln_scale(batch, target, 1e-5));
        options.until =
            kiln_greater(batch, kiln_min(batch, kiln_cast(batch, near, KILN_F32), 0, NULL, 0),
                         kiln_constant(batch, KILN_F32, 0));
        options.steps = 30000000;
        options.state_count = 2;
        options.states = states;
        options.next = next;
        cr_expect_eq(kiln_loop(batch, &options, last, NULL), KILN_OK, "%s",
                     kiln_batch_error(batch));
        kiln_read(batch, last[0], root, sizeof root);
        kiln_read(batch, last[1], &taken, sizeof taken);
        run();
        cr_expect(at_once ? taken == 0 : taken > 10 && taken < 20, "%d", (int)taken);
        for (int i = 0; i < 3; i++)
            cr_expect_float_eq(root[i], sqrtf(targets[i]), 1e-4f * root[i]);
        end();
    }
}

/* ---- buffers ---- */

/* A buffer that the loop begins with, and its result goes over, in one run after the other. */
Test(replay, over_a_buffer)
{
    static const size_t dims[] = {4};
    float found[4], start[] = {1, 2, 3, 4};
    for (int replayed = 0; replayed < 2; replayed++) {
        begin(replayed);
        kiln_buffer *buffer = NULL;
        cr_assert_eq(kiln_buffer_create(check_context(), KILN_F32, 1, dims, &buffer), KILN_OK);
        cr_assert_eq(kiln_buffer_write(buffer, 0, start, sizeof start), KILN_OK);
        const kiln_tensor x = kiln_import(batch, buffer), state = kiln_loop_state(batch, x);
        const kiln_tensor next = kiln_cumsum(batch, kiln_add(batch, state, x), 0, 0);
        kiln_tensor last;
        loop_of(2, 1, &state, &next, &last, NULL);
        kiln_export(batch, kiln_scale(batch, kiln_add(batch, last, x), 0.25), buffer);
        run();
        run();
        cr_assert_eq(kiln_buffer_read(buffer, 0, found, sizeof found), KILN_OK);
        float expected[4] = {1, 2, 3, 4};
        for (int again = 0; again < 2; again++) {
            float y[4];
            memcpy(y, expected, sizeof y);
            for (int step = 0; step < 2; step++)
                for (int i = 0; i < 4; i++)
                    y[i] = y[i] + expected[i] + (i ? y[i - 1] : 0);
            for (int i = 0; i < 4; i++)
                expected[i] = (y[i] + expected[i]) / 4;
        }
        cr_expect_arr_eq(found, expected, sizeof found);
        kiln_buffer_release(buffer);
        end();
    }
}

/* ---- gradients ---- */

/* A loop in a loop, and a loss that is read as well: it is the one that the gradient is of. */
Test(replay, has_gradients)
{
    float found[2][1 + 25] = {{0}};
    kiln_batch_cost cost[2];
    for (int replayed = 0; replayed < 2; replayed++) {
        begin(replayed);
        const kiln_tensor w = upload(5, 5), x = upload(3, 5);
        const kiln_tensor outer = kiln_loop_state(batch, x), inner = kiln_loop_state(batch, outer);
        const kiln_tensor next = kiln_tanh(batch, kiln_matmul(batch, inner, w));
        kiln_tensor last, all, gradient;
        loop_of(2, 1, &inner, &next, &last, NULL);
        const kiln_tensor after = kiln_add(batch, last, kiln_scale(batch, outer, 0.25));
        loop_of(3, 1, &outer, &after, &all, NULL);
        const kiln_tensor loss = kiln_sum(batch, kiln_square(batch, all), 0, NULL, 0);
        kiln_read(batch, loss, &found[replayed][0], sizeof(float));
        cr_expect_eq(kiln_grad(batch, loss, &w, 1, &gradient), KILN_OK, "%s",
                     kiln_batch_error(batch));
        kiln_read(batch, gradient, &found[replayed][1], 25 * sizeof(float));
        cr_expect_eq(kiln_batch_get_cost(batch, &cost[replayed]), KILN_OK);
        run();
        end();
    }
    cr_expect_arr_eq(found[0], found[1], sizeof found[0]);
    cr_expect_eq(cost[0].launches, cost[1].launches); /* no loop runs beside its steps */
    cr_expect_neq(found[0][1], 0);
}

/* The last of either state, or what the steps leave. */
static kiln_tensor one_result(kiln_tensor w, kiln_tensor x, int which, kiln_tensor *last)
{
    const kiln_tensor states[] = {kiln_loop_state(batch, x), kiln_loop_state(batch, x)};
    const kiln_tensor next[] = {
        kiln_tanh(batch, kiln_matmul(batch, states[0], w)),
        kiln_add(batch, states[1], kiln_cumsum(batch, states[0], 1, 0)),
    };
    kiln_tensor stacked;
    loop_of(3, 2, states, next, last, &stacked);
    return which < 2 ? last[which] : kiln_sum(batch, stacked, 1, (int[]){0}, 0);
}

/* Others of the loop are not asked for, in a loop or in one of its steps. */
Test(replay, slow_gradients_of_one_result)
{
    for (int which = 0; which < 6; which++) {
        float found[2][25 + 15] = {{0}};
        for (int replayed = 0; replayed < 2; replayed++) {
            begin(replayed);
            const kiln_tensor by[] = {upload(5, 5), upload(3, 5)};
            const kiln_tensor outer = kiln_loop_state(batch, by[1]);
            kiln_tensor y = one_result(by[0], which < 3 ? by[1] : outer, which % 3,
                                       (kiln_tensor[2]){{0}}),
                        gradients[2];
            if (which >= 3)
                loop_of(2, 1, &outer, &y, &y, NULL);
            const kiln_tensor loss = kiln_sum(batch, kiln_square(batch, y), 0, NULL, 0);
            cr_expect_eq(kiln_grad(batch, loss, by, 2, gradients), KILN_OK, "%s",
                         kiln_batch_error(batch));
            kiln_read(batch, gradients[0], found[replayed], 25 * sizeof(float));
            kiln_read(batch, gradients[1], found[replayed] + 25, 15 * sizeof(float));
            run();
            end();
        }
        cr_expect_arr_eq(found[0], found[1], sizeof found[0], "%d", which);
        cr_expect_neq(found[0][26], 0, "%d", which);
    }
}

/* By a result of a loop and by what the loop is made of, of it and of another result. */
Test(replay, gradient_by_a_result)
{
    for (int which = 0; which < 3; which++) {
        float found[2][15 + 15] = {{0}};
        for (int replayed = 0; replayed < 2; replayed++) {
            begin(replayed);
            const kiln_tensor w = upload(5, 5), x = upload(3, 5);
            kiln_tensor last[2], gradients[2];
            const kiln_tensor y = one_result(w, x, which, last);
            const kiln_tensor loss =
                kiln_sum(batch, kiln_mul(batch, y, kiln_square(batch, last[0])), 0, NULL, 0);
            cr_expect_eq(kiln_grad(batch, loss, (kiln_tensor[]){last[0], x}, 2, gradients), KILN_OK,
                         "%s", kiln_batch_error(batch));
            for (size_t k = 0; k < 2; k++)
                kiln_read(batch, gradients[k], found[replayed] + 15 * k, 15 * sizeof(float));
            run();
            end();
        }
        cr_expect_arr_eq(found[0], found[1], sizeof found[0], "%d", which);
        cr_expect_neq(found[0][16], 0);
    }
}

/* Rusticl copies a kernel for each launch: 70,000 take it nine minutes. */
static bool launches_are_dear(void)
{
    return !strcmp(check_context()->runtime.device.info.platform, "rusticl");
}

/* It is not made of what is asked for: no step is recorded by itself. */
Test(replay, gradient_by_a_result_alone)
{
    const bool dear = launches_are_dear();
    begin(dear);
    const kiln_tensor w = upload(5, 5), x = upload(3, 5), state = kiln_loop_state(batch, x);
    const kiln_tensor next = kiln_tanh(batch, kiln_matmul(batch, state, w));
    kiln_tensor last, gradient;
    float found[2][15];
    loop_of(dear ? 700 : 70000, 1, &state, &next, &last, NULL);
    const kiln_tensor loss = kiln_sum(batch, kiln_square(batch, last), 0, NULL, 0);
    cr_expect_eq(kiln_grad(batch, loss, &last, 1, &gradient), KILN_OK, "%s",
                 kiln_batch_error(batch));
    kiln_read(batch, kiln_scale(batch, last, 2), found[0], sizeof found[0]);
    kiln_read(batch, gradient, found[1], sizeof found[1]);
    run();
    cr_expect_arr_eq(found[0], found[1], sizeof found[0]);
    end();
}

/* For a gradient steps are recorded one by one. */
Test(replay, gradient_of_too_many)
{
    begin(false);
    const kiln_tensor w = upload(5, 5), x = upload(3, 5), state = kiln_loop_state(batch, x);
    const kiln_tensor next = kiln_tanh(batch, kiln_matmul(batch, state, w));
    kiln_tensor last, gradient;
    loop_of(70000, 1, &state, &next, &last, NULL);
    const kiln_tensor loss = kiln_sum(batch, kiln_mul(batch, last, x), 0, NULL, 0);
    cr_expect_eq(kiln_grad(batch, loss, &x, 1, &gradient), KILN_TOO_LARGE);
    cr_expect(strstr(kiln_batch_error(batch), "a loop of 70000 steps"), "%s",
              kiln_batch_error(batch));
    cr_expect_eq(gradient.id, 0);
    end();
}

/* ---- asking ---- */

Test(replay, says_what_it_does)
{
    char *text = NULL;
    kiln_batch_cost cost;
    begin_stretched(3);
    float found[15];
    kiln_read(batch, product(3, 7), found, sizeof found);
    cr_expect_eq(kiln_batch_prepare(batch, 1), KILN_OK, "%s", kiln_batch_error(batch));
    cr_expect_eq(kiln_batch_get_cost(batch, &cost), KILN_OK);
    cr_expect(cost.launches >= 7 && cost.launches < 7 * 4, "%zu", cost.launches);
    cr_expect(cost.peak_bytes >= sizeof found);
    cr_expect_eq(kiln_batch_explain(batch, &text), KILN_OK);
    cr_expect(strstr(text, "==== a part that runs 2 times, 3 steps each ===="), "%s", text);
    cr_expect(strstr(text, "==== a part that runs 1 times ===="), "%s", text);
    kiln_free(text);
    run();
    end();
}
