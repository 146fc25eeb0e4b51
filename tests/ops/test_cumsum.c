/* SPDX-License-Identifier: Apache-2.0 */
/* Running sums: answers from numpy.cumsum, then shapes of all kinds against the reference. */
#include <criterion/criterion.h>
#include <math.h>

#include <kiln/gradient.h>

#include "../support/check.h"
#include "../support/context.h"
#include "../support/graph.h"

#define DIMS_OF(...) ((const size_t[]){__VA_ARGS__})

static void expect_floats(size_t n, const float *found, const float *wanted)
{
    for (size_t i = 0; i < n; i++)
        cr_expect(found[i] == wanted[i] || (isnan(found[i]) && isnan(wanted[i])),
                  "element %zu is %.9g, not %.9g", i, found[i], wanted[i]);
}

Test(cumsum, known_answers)
{
    static const float x[] = {1, 2, 3, 4, 5, 6}, odd[] = {1, INFINITY, -INFINITY, 2, NAN, 3};
    static const uint8_t bytes[] = {255, 255, 1};
    static const int32_t large[] = {INT32_MAX, 1, -5};
    static const float along_1[] = {1, 3, 6, 4, 9, 15}, along_0[] = {1, 2, 3, 5, 7, 9};
    static const float back_1[] = {6, 5, 3, 15, 11, 6}, back_0[] = {5, 7, 9, 4, 5, 6};
    static const float of_odd[] = {1, INFINITY, NAN, NAN, NAN, NAN};
    float y[5][6];
    int64_t sums[3], beyond[3];
    kiln_batch *batch = check_begin();
    kiln_tensor a = check_given(batch, KILN_F32, DIMS(2, 3), x);
    kiln_tensor b = check_given(batch, KILN_F32, DIMS(6), odd);
    kiln_tensor c = check_given(batch, KILN_U8, DIMS(3), bytes);
    kiln_tensor d = check_given(batch, KILN_I32, DIMS(3), large);
    expect_ok(kiln_read(batch, kiln_cumsum(batch, a, 1, 0), y[0], 24));
    expect_ok(kiln_read(batch, kiln_cumsum(batch, a, 0, 0), y[1], 24));
    expect_ok(kiln_read(batch, kiln_cumsum(batch, a, -1, 1), y[2], 24));
    expect_ok(kiln_read(batch, kiln_cumsum(batch, a, -2, 1), y[3], 24));
    expect_ok(kiln_read(batch, kiln_cumsum(batch, b, 0, 0), y[4], 24));
    expect_ok(kiln_read(batch, kiln_cumsum(batch, c, 0, 0), sums, 24));
    expect_ok(kiln_read(batch, kiln_cumsum(batch, d, 0, 0), beyond, 24));
    run_batch(batch);
    expect_floats(6, y[0], along_1);
    expect_floats(6, y[1], along_0);
    expect_floats(6, y[2], back_1);
    expect_floats(6, y[3], back_0);
    expect_floats(6, y[4], of_odd);
    cr_expect(sums[0] == 255 && sums[1] == 510 && sums[2] == 511);
    cr_expect(beyond[1] == INT64_C(2147483648) && beyond[2] == INT64_C(2147483643));
    check_end(batch);
    check_close();
}

static void check_shape(kiln_type type, size_t rank, const size_t *dims)
{
    kiln_batch *batch = check_begin();
    kiln_tensor x = check_input(batch, type, rank, dims, CHECK_PLAIN);
    for (int axis = 0; axis < (int)rank; axis++)
        for (int reverse = 0; reverse < 2; reverse++)
            check_read(batch, kiln_cumsum(batch, x, axis, reverse));
    check_run(batch);
    check_end(batch);
}

Test(cumsum, slow_every_axis_of_every_type)
{
    for (unsigned type = KILN_F32; type <= KILN_U8; type++)
        check_shape((kiln_type)type, DIMS(5, 6, 19));
    check_close();
}

/* Shorter and longer than what a work-group takes at once, and nothing at all. */
Test(cumsum, lengths)
{
    static const size_t lengths[] = {1, 2, 63, 255, 256, 257, 1024, 1025, 5003};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        check_shape(KILN_F32, DIMS(3, lengths[i]));
    check_shape(KILN_F32, DIMS(100003));
    check_shape(KILN_F32, DIMS(2, 40000));
    check_shape(KILN_F32, DIMS(7, 50, 3));
    check_shape(KILN_F32, DIMS(0, 5));
    check_shape(KILN_F32, DIMS(5, 0));
    check_close();
}

/* What it reads is computed, turned or repeated; what follows uses it. */
Test(cumsum, slow_among_other_operations)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = check_input(b, KILN_F32, DIMS(40, 33), CHECK_PLAIN);
    kiln_tensor v = check_input(b, KILN_F32, DIMS(33), CHECK_PLAIN);
    check_read(b, kiln_cumsum(b, kiln_transpose(b, x, NULL), 1, 0));
    check_read(b, kiln_relu(b, kiln_cumsum(b, kiln_mul(b, x, v), 0, 1)));
    check_read(b, kiln_cumsum(b, kiln_broadcast(b, v, DIMS(4, 33)), 0, 0));
    int64_t from[] = {2, 0}, to[] = {30, 33};
    check_read(b, kiln_cumsum(b, kiln_slice(b, x, from, to, NULL), 1, 0));
    kiln_tensor bytes = check_input(b, KILN_U8, DIMS(65, 70), CHECK_PLAIN);
    check_read(b, kiln_cumsum(b, kiln_cast(b, bytes, KILN_F32), 0, 0));
    kiln_tensor one = kiln_broadcast(b, kiln_constant(b, KILN_I32, 1), DIMS(70));
    check_read(b, kiln_cumsum(b, one, 0, 1));
    check_read(b, kiln_cumsum(b, kiln_iota(b, DIMS(70), 0), 0, 0));
    check_run(b);
    check_end(b);
    check_close();
}

/* How many launches what `record` asks for takes on a CPU or a GPU that exist only here. */
static size_t count_launches(bool gpu, kiln_tensor (*record)(kiln_batch *))
{
    kiln_batch *batch = kiln_batch_create(gpu ? imagined_gpu() : imagined_cpu());
    ask(batch, record(batch));
    struct kiln__plan plan = plan_of(batch, false);
    size_t count = plan.launches.count;
    kiln__plan_free(&plan);
    kiln_batch_release(batch);
    return count;
}

static kiln_tensor between(kiln_batch *b, kiln_tensor x, int axis)
{
    kiln_tensor sums = kiln_cumsum(b, kiln_scale(b, x, 2), axis, 0);
    return kiln_add(b, sums, kiln_constant(b, KILN_F32, 1));
}

static kiln_tensor along_last(kiln_batch *b)
{
    return between(b, imagine(b, 3, DIMS_OF(5, 60, 70)), 2);
}

static kiln_tensor along_first(kiln_batch *b)
{
    return between(b, imagine(b, 3, DIMS_OF(5, 60, 70)), 0);
}

static kiln_tensor along_middle(kiln_batch *b)
{
    return between(b, imagine(b, 3, DIMS_OF(5, 60, 70)), 1);
}

static kiln_tensor long_line(kiln_batch *b)
{
    return between(b, imagine_vector(b, 1000003), 0);
}

static kiln_tensor of_softmax(kiln_batch *b)
{
    kiln_tensor x = kiln_softmax(b, imagine_matrix(b, 60, 70), 1, (int[]){1});
    return kiln_less(b, kiln_cumsum(b, x, 1, 0), kiln_constant(b, KILN_F32, 0.9));
}

static kiln_tensor of_single_elements(kiln_batch *b)
{
    kiln_tensor sums = kiln_cumsum(b, imagine(b, 3, DIMS_OF(5, 1, 6)), 1, 0);
    return kiln_neg(b, kiln_reshape(b, sums, DIMS(5, 6)));
}

static kiln_tensor twice(kiln_batch *b)
{
    return kiln_cumsum(b, kiln_cumsum(b, imagine_matrix(b, 60, 70), 0, 1), 0, 1);
}

static kiln_tensor reduced(kiln_batch *b)
{
    kiln_tensor x = imagine_matrix(b, 60, 70), sums = kiln_cumsum(b, x, 1, 0);
    return kiln_sum(b, kiln_mul(b, sums, x), 1, (int[]){1}, 0);
}

static kiln_tensor both_ways(kiln_batch *b)
{
    kiln_tensor x = imagine_matrix(b, 60, 70);
    return kiln_add(b, kiln_cumsum(b, x, 1, 0), kiln_cumsum(b, x, 1, 1));
}

static kiln_tensor function(kiln_batch *b)
{
    return kiln_cumsum(b, kiln_exp(b, imagine_matrix(b, 60, 70)), 1, 0);
}

static kiln_tensor turned(kiln_batch *b)
{
    return kiln_cumsum(b, kiln_transpose(b, imagine_matrix(b, 60, 70), NULL), 1, 0);
}

static kiln_tensor gradient(kiln_batch *b)
{
    kiln_tensor x = imagine_matrix(b, 60, 70), w = imagine_matrix(b, 60, 70), g;
    kiln_tensor sums = kiln_cumsum(b, kiln_scale(b, x, 2), 1, 0);
    expect_ok(kiln_grad(b, kiln_sum(b, kiln_mul(b, sums, w), 0, NULL, 0), &x, 1, &g));
    return g;
}

/* Nothing goes to memory between running sums and what is around them, along any axis. What is a
 * function, reads across the sums, or goes the other way has a kernel of its own; a long line has
 * one for what its segments come to. */
Test(cumsum, fuses_with_what_is_before_and_behind)
{
    static const struct {
        const char *name;
        kiln_tensor (*record)(kiln_batch *);
        size_t launches[2]; /* on a CPU, on a GPU */
    } rows[] = {{"along the last axis", along_last, {1, 1}},
                {"along the first axis", along_first, {1, 1}},
                {"along the middle axis", along_middle, {1, 1}},
                {"a long line", long_line, {1, 2}},
                {"sums of a softmax", of_softmax, {1, 1}},
                {"sums of sums", twice, {1, 1}},
                {"sums of single elements", of_single_elements, {2, 2}},
                {"a reduction of sums", reduced, {1, 1}},
                {"a gradient", gradient, {1, 1}},
                {"sums both ways", both_ways, {2, 2}},
                {"sums of a function", function, {2, 2}},
                {"sums of a transpose", turned, {2, 2}}};
    for (int gpu = 0; gpu < 2; gpu++)
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
            cr_expect_eq(count_launches(gpu, rows[i].record), rows[i].launches[gpu],
                         "%s: %zu launches", rows[i].name, count_launches(gpu, rows[i].record));
}

/* Values before and behind them, over either axis, of floats and of integers; a row's value
 * repeated; sums that a later phase needs again; more than one in a kernel. */
static void check_neighbours(kiln_type type, size_t rows, size_t columns, int axis)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = check_input(b, type, 2, DIMS_OF(rows, columns), CHECK_PLAIN);
    kiln_tensor v =
        check_input(b, type, 2, axis ? DIMS_OF(rows, 1) : DIMS_OF(1, columns), CHECK_PLAIN);
    kiln_tensor sums = kiln_cumsum(b, kiln_add(b, kiln_add(b, x, x), v), axis, rows % 2 == 1);
    const kiln_type wide = type == KILN_F32 ? KILN_F32 : KILN_I64;
    kiln_tensor row = kiln_cast(b, v, wide);
    check_read(b, kiln_mul(b, kiln_add(b, sums, row), kiln_constant(b, wide, 3)));
    check_read(b, kiln_cumsum(b, kiln_broadcast(b, v, DIMS(rows, columns)), axis, rows % 2 == 1));
    if (rows && columns && type == KILN_F32)
        check_read(b, kiln_sub(b, sums, kiln_max(b, sums, 1, &axis, 1)));
    check_run(b);
    check_end(b);
}

Test(cumsum, slow_neighbours_of_every_length)
{
    static const size_t shapes[][2] = {{0, 5}, {5, 0}, {1, 1}, {37, 1}, {31, 97}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int axis = 0; axis < 2; axis++)
            check_neighbours(i % 2 ? KILN_I32 : KILN_F32, shapes[i][0], shapes[i][1], axis);
    check_neighbours(KILN_I32, 31, 97, 0);
    check_neighbours(KILN_F32, 3, 100003, 1);
    check_neighbours(KILN_F32, 100003, 3, 0);
    check_neighbours(KILN_F32, 2, 300001, 1); /* lines in segments, forward and backward */
    check_neighbours(KILN_I32, 3, 300000, 1);
    check_neighbours(KILN_F32, 300001, 3, 0);
    check_close();
}

/* Of sum(w * cumsum(x)): what x adds to is weighted by w from there on. */
Test(cumsum, derivative)
{
    static const float x[] = {1, 2, 3}, w[] = {5, 7, 11};
    static const float forward[] = {23, 18, 11}, backward[] = {5, 12, 23};
    for (int reverse = 0; reverse < 2; reverse++) {
        float found[3];
        kiln_batch *b = check_begin();
        kiln_tensor a = check_given(b, KILN_F32, DIMS(3), x), gradient;
        kiln_tensor weight = check_given(b, KILN_F32, DIMS(3), w);
        kiln_tensor sums = kiln_cumsum(b, a, 0, reverse);
        kiln_tensor loss = kiln_sum(b, kiln_mul(b, weight, sums), 0, NULL, 0);
        expect_ok(kiln_grad(b, loss, &a, 1, &gradient));
        expect_ok(kiln_read(b, gradient, found, sizeof found));
        run_batch(b);
        expect_floats(3, found, reverse ? backward : forward);
        check_end(b);
    }
    check_close();
}

Test(cumsum, refuses_an_axis_that_is_not_there)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_matrix(batch, 4, 8);
    cr_expect_eq(kiln_cumsum(batch, x, 2, 0).id, 0);
    cr_expect_str_eq(without_call(kiln_batch_error(batch)),
                     "kiln_cumsum: axis 2 is not one of the dimensions of shape [4,8]");
    kiln_batch_release(batch);
    batch = imagined_batch();
    cr_expect_eq(kiln_cumsum(batch, kiln_constant(batch, KILN_F32, 1), 0, 0).id, 0);
    cr_expect_eq(kiln_batch_status(batch), KILN_INVALID_ARGUMENT);
    kiln_batch_release(batch);
    batch = imagined_batch();
    cr_expect_eq(kiln_cumsum(batch, (kiln_tensor){0}, 0, 0).id, 0);
    cr_expect_eq(kiln_batch_status(batch), KILN_INVALID_HANDLE);
    kiln_batch_release(batch);
}

/* How far `found` is from n times the float 0.1, as a share. */
static double drift(float found, size_t n)
{
    return fabs((double)found / ((double)0.1F * (double)n) - 1);
}

/* The error of a sum of equal numbers, which all round alike, does not grow with how many there
 * are: accumulators add up so many, and others them. */
Test(cumsum, many_equal_elements)
{
    enum { N = 4000000, COLUMNS = 10, ROWS = N / COLUMNS };
    float *x = malloc(N * sizeof *x), *running = malloc(N * sizeof *running), sum, mean;
    float columns[COLUMNS];
    const int first = 0;
    for (size_t i = 0; i < N; i++)
        x[i] = 0.1F;
    kiln_batch *b = check_begin();
    kiln_tensor line = kiln_upload(b, KILN_F32, DIMS(N), x);
    kiln_tensor matrix = kiln_upload(b, KILN_F32, DIMS(ROWS, COLUMNS), x);
    expect_ok(kiln_read(b, kiln_sum(b, line, 0, NULL, 0), &sum, sizeof sum));
    expect_ok(kiln_read(b, kiln_mean(b, line, 0, NULL, 0), &mean, sizeof mean));
    expect_ok(kiln_read(b, kiln_cumsum(b, line, 0, 0), running, N * sizeof *running));
    expect_ok(kiln_read(b, kiln_sum(b, matrix, 1, &first, 0), columns, sizeof columns));
    run_batch(b);
    cr_expect(drift(sum, N) < 6e-7, "the sum is off by %g", drift(sum, N));
    cr_expect(drift(mean, 1) < 6e-7, "the mean is off by %g", drift(mean, 1));
    for (size_t i = 0; i < N; i += 997)
        cr_expect(drift(running[i], i + 1) < 6e-7, "sum %zu is off by %g", i,
                  drift(running[i], i + 1));
    for (int c = 0; c < COLUMNS; c++)
        cr_expect(drift(columns[c], ROWS) < 1.2e-6, "column %d is off by %g", c,
                  drift(columns[c], ROWS));
    check_end(b);
    free(x);
    free(running);
    check_close();
}
