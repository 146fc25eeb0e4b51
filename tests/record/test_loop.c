/* SPDX-License-Identifier: Apache-2.0 */
/* Loops: beside the same steps on the host, as one kernel and step by step; where they end; what is
 * refused. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/elementwise.h>
#include <kiln/kiln.h>
#include <kiln/reductions.h>

#include "record/batch.h"

#include "../support/check.h"

TestSuite(loop, .init = check_cheaply);

#define MOST 64

/* One kernel; recorded step by step; one step, run again and again. */
enum way { IN_KERNEL, APART, REPLAYED, WAYS };

static kiln_batch *batch;

static void begin(void)
{
    batch = kiln_batch_create(check_context());
    cr_assert(batch);
}

static void begin_by(enum way way)
{
    begin();
    if (way == REPLAYED)
        batch->limits.unrolled = 0;
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

static size_t launches(void)
{
    kiln_batch_cost cost;
    cr_expect_eq(kiln_batch_get_cost(batch, &cost), KILN_OK);
    return cost.launches;
}

static kiln_tensor number(double value)
{
    return kiln_constant(batch, KILN_F32, value);
}

/* The same elements, by movements that a kernel with a loop inside does not have. */
static kiln_tensor turned_twice(kiln_tensor x)
{
    size_t rank, dims[KILN_MAX_RANK];
    cr_assert_eq(kiln_tensor_shape(batch, x, NULL, &rank, dims), KILN_OK);
    const int64_t start = (int64_t)dims[0] - 1, stop = -1, step = -1;
    return kiln_slice(batch, kiln_slice(batch, x, &start, &stop, &step), &start, &stop, &step);
}

/* x = x * w + 0.5 * step, which rounds alike everywhere; but for a kernel the step is not
 * elementwise, of the same values. */
static kiln_tensor record_steps(kiln_tensor x, kiln_tensor w, size_t steps, enum way way)
{
    kiln_loop_options options = KILN_LOOP_INIT;
    const kiln_tensor state = kiln_loop_state(batch, x);
    kiln_tensor last;
    options.step = kiln_loop_step(batch);
    const kiln_tensor half = kiln_mul(batch, kiln_cast(batch, options.step, KILN_F32), number(0.5));
    kiln_tensor next = kiln_add(batch, kiln_mul(batch, state, w), half);
    if (way)
        next = turned_twice(next);
    options.steps = steps;
    options.state_count = 1;
    options.states = &state;
    options.next = &next;
    cr_expect_eq(kiln_loop(batch, &options, &last, NULL), KILN_OK, "%s", kiln_batch_error(batch));
    return last;
}

static void check_steps(size_t count, size_t steps, enum way way)
{
    float x[MOST], w[MOST], y[MOST];
    for (size_t i = 0; i < count; i++) {
        x[i] = (float)i / 3;
        w[i] = 1 - (float)i / 64;
    }
    begin_by(way);
    const kiln_tensor last = record_steps(kiln_upload(batch, KILN_F32, 1, &count, x),
                                          kiln_upload(batch, KILN_F32, 1, &count, w), steps, way);
    kiln_read(batch, last, y, count * sizeof *y);
    if (steps && count && way == IN_KERNEL)
        cr_expect_eq(launches(), 1);
    run();
    for (size_t i = 0; i < count; i++) {
        volatile float expected = x[i];
        for (size_t k = 0; k < steps; k++) {
            expected = expected * w[i];
            expected = expected + 0.5f * (float)k;
        }
        cr_expect_eq(y[i], expected, "%zu elements, %zu steps, element %zu: %.9g, not %.9g", count,
                     steps, i, (double)y[i], (double)expected);
    }
    end();
}

Test(loop, steps)
{
    static const size_t counts[] = {0, 1, 7, 16, 61}, steps[] = {0, 1, 13, 1009};
    for (size_t i = 0; i < 5; i++)
        for (size_t k = 0; k < 4; k++)
            check_steps(counts[i], steps[k], IN_KERNEL);
}

Test(loop, slow_step_by_step)
{
    static const size_t steps[] = {0, 1, 2, 13};
    for (size_t i = 0; i < 4; i++) {
        check_steps(7, steps[i], APART);
        check_steps(7, steps[i], REPLAYED);
    }
}

/* More than are recorded one by one: beyond what waits in the queue at once. */
Test(loop, many_steps)
{
    check_steps(61, 1009, APART);
}

/* ---- where it ends ---- */

/* How many doublings until each element, or the largest, is beyond `end`. */
static void check_until(float end_at, bool each, enum way way, int32_t *taken)
{
    static const float x[] = {1, 2, 3, 100, NAN};
    const size_t count = 5;
    kiln_loop_options options = KILN_LOOP_INIT;
    begin_by(way);
    kiln_tensor states[] = {kiln_loop_state(batch, kiln_upload(batch, KILN_F32, 1, &count, x)),
                            kiln_loop_state(batch, kiln_fill(batch, KILN_I32, each, &count, 0))};
    kiln_tensor next[] = {kiln_mul(batch, states[0], number(2)),
                          kiln_add(batch, states[1], kiln_constant(batch, KILN_I32, 1))};
    kiln_tensor last[2];
    if (way)
        next[0] = turned_twice(next[0]);
    options.until =
        each ? kiln_greater(batch, states[0], number(end_at))
             : kiln_greater_equal(batch, states[1], kiln_constant(batch, KILN_I32, end_at));
    options.steps = 20;
    options.state_count = 2;
    options.states = states;
    options.next = next;
    cr_expect_eq(kiln_loop(batch, &options, last, NULL), KILN_OK, "%s", kiln_batch_error(batch));
    kiln_read(batch, last[1], taken, (each ? count : 1) * sizeof *taken);
    run();
    end();
}

/* Before the first step, on the way, never; NaN is not beyond anything. */
Test(loop, until)
{
    int32_t taken[5];
    for (enum way way = IN_KERNEL; way < WAYS; way++) {
        check_until(10, true, way, taken);
        cr_expect_arr_eq(taken, ((int32_t[]){4, 3, 2, 0, 20}), sizeof taken);
        check_until(0, false, way, taken);
        cr_expect_eq(taken[0], 0);
        check_until(7, false, way, taken);
        cr_expect_eq(taken[0], 7);
        check_until(1000, false, way, taken);
        cr_expect_eq(taken[0], 20);
    }
}

/* A condition of one element, of a higher rank than a state, leaves its shape as it is. */
Test(loop, slow_until_of_any_rank)
{
    static const float x[6] = {0};
    const size_t dims[] = {2, 3};
    for (enum way way = IN_KERNEL; way < WAYS; way++) {
        kiln_loop_options options = KILN_LOOP_INIT;
        kiln_tensor last;
        int32_t taken = -1;
        size_t rank = 9, shape[KILN_MAX_RANK];
        begin_by(way);
        const kiln_tensor initial = kiln_constant(batch, KILN_I32, 0);
        const kiln_tensor state = kiln_loop_state(batch, initial);
        kiln_tensor zero = kiln_constant(batch, KILN_I32, 0);
        if (way)
            zero = kiln_cast(batch,
                             kiln_sum(batch,
                                      kiln_mul(batch, kiln_upload(batch, KILN_F32, 2, dims, x),
                                               kiln_cast(batch, state, KILN_F32)),
                                      0, NULL, 0),
                             KILN_I32);
        const kiln_tensor next =
            kiln_add(batch, kiln_add(batch, state, kiln_constant(batch, KILN_I32, 1)), zero);
        options.until =
            kiln_reshape(batch, kiln_greater(batch, state, kiln_constant(batch, KILN_I32, 2)), 2,
                         (size_t[]){1, 1});
        options.steps = 7;
        options.state_count = 1;
        options.states = &state;
        options.next = &next;
        cr_expect_eq(kiln_loop(batch, &options, &last, NULL), KILN_OK, "%s",
                     kiln_batch_error(batch));
        cr_expect_eq(kiln_tensor_shape(batch, last, NULL, &rank, shape), KILN_OK);
        cr_expect_eq(rank, 0);
        kiln_read(batch, last, &taken, sizeof taken);
        run();
        cr_expect_eq(taken, 3);
        end();
    }
}

/* ---- elements and outputs ---- */

/* Running sums, from either end, and what is left of each step. */
static void check_scan(bool reverse, enum way way)
{
    static const float xs[] = {1, 2, 3, 10, 20, 30};
    const size_t dims[] = {3, 2}, row = 2;
    float sums[6], total[2];
    kiln_loop_options options = KILN_LOOP_INIT;
    begin_by(way);
    const kiln_tensor state = kiln_loop_state(batch, kiln_fill(batch, KILN_F32, 1, &row, 0));
    const kiln_tensor element = kiln_loop_element(batch, kiln_upload(batch, KILN_F32, 2, dims, xs));
    kiln_tensor next = kiln_add(batch, state, element);
    if (way)
        next = turned_twice(next);
    kiln_tensor last, stacked;
    options.steps = 3;
    options.state_count = options.element_count = options.output_count = 1;
    options.states = &state;
    options.next = options.outputs = &next;
    options.elements = &element;
    options.reverse = reverse;
    cr_expect_eq(kiln_loop(batch, &options, &last, &stacked), KILN_OK, "%s",
                 kiln_batch_error(batch));
    kiln_read(batch, last, total, sizeof total);
    kiln_read(batch, stacked, sums, sizeof sums);
    run();
    cr_expect_arr_eq(total, ((float[]){24, 42}), sizeof total);
    if (reverse)
        cr_expect_arr_eq(sums, ((float[]){24, 42, 23, 40, 20, 30}), sizeof sums);
    else
        cr_expect_arr_eq(sums, ((float[]){1, 2, 4, 12, 24, 42}), sizeof sums);
    end();
}

Test(loop, scan)
{
    for (enum way way = IN_KERNEL; way < WAYS; way++) {
        check_scan(false, way);
        check_scan(true, way);
    }
}

/* A number for each step, and one for all, beside many elements: s * x + bias. */
Test(loop, numbers)
{
    static const float xs[] = {2, 3, 5}, bias[] = {7};
    const size_t steps = 3, count = 19, one = 1;
    float start[19], found[19];
    for (size_t i = 0; i < count; i++)
        start[i] = (float)i;
    kiln_loop_options options = KILN_LOOP_INIT;
    begin();
    const kiln_tensor state =
        kiln_loop_state(batch, kiln_upload(batch, KILN_F32, 1, &count, start));
    const kiln_tensor x = kiln_loop_element(batch, kiln_upload(batch, KILN_F32, 1, &steps, xs));
    const kiln_tensor next =
        kiln_add(batch, kiln_mul(batch, state, x), kiln_upload(batch, KILN_F32, 1, &one, bias));
    kiln_tensor last;
    options.steps = steps;
    options.state_count = options.element_count = 1;
    options.states = &state;
    options.next = &next;
    options.elements = &x;
    cr_expect_eq(kiln_loop(batch, &options, &last, NULL), KILN_OK, "%s", kiln_batch_error(batch));
    kiln_read(batch, last, found, sizeof found);
    cr_expect_eq(launches(), 1);
    run();
    for (size_t i = 0; i < count; i++)
        cr_expect_eq(found[i], ((start[i] * 2 + 7) * 3 + 7) * 5 + 7);
    end();
}

/* ---- gradients ---- */

/* dL/dx and dL/dw, L the sum of squares behind the last step. */
static void find_gradients(size_t count, size_t steps, enum way way, float *found)
{
    float x[MOST], w[MOST];
    kiln_tensor gradients[2];
    for (size_t i = 0; i < count; i++) {
        x[i] = (float)i / 3 - 1;
        w[i] = 1 - (float)i / 64;
    }
    begin();
    const kiln_tensor given[] = {kiln_upload(batch, KILN_F32, 1, &count, x),
                                 kiln_upload(batch, KILN_F32, 1, &count, w)};
    const kiln_tensor last = record_steps(given[0], given[1], steps, way);
    const kiln_tensor loss = kiln_sum(batch, kiln_square(batch, last), 0, NULL, 0);
    cr_expect_eq(kiln_grad(batch, loss, given, 2, gradients), KILN_OK, "%s",
                 kiln_batch_error(batch));
    for (int k = 0; k < 2; k++)
        kiln_read(batch, gradients[k], found + (size_t)k * count, count * sizeof *found);
    run();
    end();
}

Test(loop, gradient_is_that_of_the_steps)
{
    float one[2 * MOST], other[2 * MOST];
    find_gradients(17, 11, IN_KERNEL, one);
    find_gradients(17, 11, APART, other);
    cr_expect_arr_eq(one, other, 34 * sizeof *one);
    find_gradients(17, 11, REPLAYED, other);
    cr_expect_arr_eq(one, other, 34 * sizeof *one);
}

/* The states of all steps would be 80 MB: they are kept in parts. Linear in x: dL/dx is known. */
Test(loop, gradient_in_parts)
{
    static float x[4096], found[4096];
    const size_t count = 4096;
    begin();
    kiln_loop_options options = KILN_LOOP_INIT;
    const kiln_tensor given = kiln_upload(batch, KILN_F32, 1, &count, x);
    const kiln_tensor state = kiln_loop_state(batch, given);
    const kiln_tensor next = kiln_sub(batch, state, kiln_mul(batch, state, number(0x1p-14)));
    kiln_tensor last, gradient;
    options.steps = 5000;
    options.state_count = 1;
    options.states = &state;
    options.next = &next;
    for (size_t i = 0; i < count; i++)
        x[i] = (float)i;
    kiln_loop(batch, &options, &last, NULL);
    kiln_grad(batch, kiln_sum(batch, last, 0, NULL, 0), &given, 1, &gradient);
    kiln_read(batch, gradient, found, sizeof found);
    run();
    for (size_t i = 0; i < count; i++)
        cr_expect_float_eq(found[i], (float)pow(1 - 0x1p-14, 5000), 1e-4f);
    end();
}

/* ---- refused ---- */

static void expect_refused(const kiln_loop_options *options, kiln_status status,
                           const char *sentence)
{
    kiln_tensor last[2] = {{1}, {1}}, stacked[2];
    cr_expect_eq(kiln_loop(batch, options, last, stacked), status);
    cr_expect(options->state_count == 0 || last[0].id == 0);
    cr_expect(strstr(kiln_batch_error(batch), sentence), "%s", kiln_batch_error(batch));
}

Test(loop, refused)
{
    static const size_t dims[] = {3, 2};
    for (int which = 0; which < 8; which++) {
        begin();
        kiln_loop_options options = KILN_LOOP_INIT;
        const kiln_tensor x = kiln_fill(batch, KILN_F32, 2, dims, 1);
        kiln_tensor state = kiln_loop_state(batch, x), next = state, element = x;
        options.steps = 4;
        options.state_count = 1;
        options.states = &state;
        options.next = &next;
        options.elements = &element;
        options.outputs = &next;
        if (which == 0)
            state = x;
        if (which == 1)
            next = kiln_cast(batch, state, KILN_I32);
        if (which == 2)
            next = kiln_sum(batch, state, 0, NULL, 0);
        if (which == 3)
            options.until = kiln_square(batch, state);
        if (which == 4)
            options.until = kiln_loop_step(batch), options.step = x;
        if (which == 5)
            element = kiln_loop_element(batch, x), options.element_count = 1;
        if (which == 6)
            next = kiln_cumsum(batch, state, 0, 0), options.steps = (size_t)1 << 31;
        if (which == 7)
            options.state_count = 0;
        static const struct {
            kiln_status status;
            const char *sentence;
        } expected[] = {
            {KILN_INVALID_ARGUMENT, "states[0] is none of kiln_loop_state()"},
            {KILN_TYPE_MISMATCH, "state 0 is f32 at first and i32 after a step"},
            {KILN_SHAPE_MISMATCH, "state 0 has shape [3,2] at first and [] after a step"},
            {KILN_TYPE_MISMATCH, "until is f32, and it takes a mask"},
            {KILN_INVALID_ARGUMENT, "step is none of kiln_loop_step()"},
            {KILN_SHAPE_MISMATCH, "xs of shape [3,2], and the loop takes 4 steps"},
            {KILN_TOO_LARGE, "2147483648 steps, and 2^31 - 1 are the most"},
            {KILN_INVALID_ARGUMENT, "there is no state"},
        };
        expect_refused(&options, expected[which].status, expected[which].sentence);
        end();
    }
}

/* A condition on the number of a step, and a state that begins as another one of the loop is. */
Test(loop, refuses_what_a_step_is_made_of)
{
    static const size_t dims[] = {3};
    for (int which = 0; which < 3; which++) {
        begin();
        kiln_loop_options options = KILN_LOOP_INIT;
        const kiln_tensor x = kiln_fill(batch, KILN_F32, 1, dims, 1);
        kiln_tensor states[2] = {kiln_loop_state(batch, x)};
        states[1] = kiln_loop_state(batch, which == 0 ? kiln_scale(batch, states[0], 2) : x);
        const kiln_tensor element = kiln_loop_element(batch, which == 1 ? states[0] : x);
        options.steps = 3;
        options.state_count = 2;
        options.states = options.next = states;
        options.elements = &element;
        options.element_count = which == 1;
        if (which == 2) {
            options.step = kiln_loop_step(batch);
            options.until = kiln_equal(batch, options.step, kiln_fill(batch, KILN_I32, 0, NULL, 2));
        }
        expect_refused(&options, KILN_INVALID_ARGUMENT,
                       which == 0   ? "state 1 is at first what a step of this loop is made of"
                       : which == 1 ? "elements[0] is of what a step of this loop is made of"
                                    : "until depends on an element or the number of a step");
        end();
    }
}
