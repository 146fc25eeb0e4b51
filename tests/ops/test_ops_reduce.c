/* SPDX-License-Identifier: Apache-2.0 */
/* Every reduction with every type: answers from outside, then shapes of all kinds against the
 * reference. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "../support/check.h"
#include "ops/ops.h"

#define EVERY_ROW ((1u << KILN__REDUCE_COUNT) - 1)
#define ROW(name) (1u << KILN__REDUCE_##name)

/* All rows of a mask that take the type, over the axes of a mask. */
static void reduce(unsigned rows, kiln_type type, size_t rank, const size_t *dims, unsigned mask,
                   int keep_dims, enum check_values values)
{
    kiln_batch *batch = check_begin();
    kiln_tensor x = check_input(batch, type, rank, dims, values);
    int axes[KILN_MAX_RANK];
    size_t count = 0;
    for (size_t d = 0; d < rank; d++)
        if (mask >> d & 1)
            axes[count++] = (int)d - (d % 2 ? (int)rank : 0); /* some counted from the end */
    for (unsigned op = 0; op < KILN__REDUCE_COUNT; op++)
        if (rows >> op & 1 &&
            kiln__types_accept((enum kiln__types)kiln__reduce_rows[op].types, type))
            check_read(batch, check_reduction(batch, op, x, count, axes, keep_dims));
    check_run(batch);
    check_end(batch);
}

/* ---- known answers ---- */

struct known {
    kiln_type type;
    unsigned op;
    double answer;
    size_t n;
    double values[6];
};

#define KNOWN(type, name, answer, ...)                                                             \
    {                                                                                              \
        KILN_##type, KILN__REDUCE_##name, answer,                                                  \
            sizeof((double[]){__VA_ARGS__}) / sizeof(double),                                      \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define INF INFINITY

static const struct known knowns[] = {KNOWN(F32, sum, 10, 1, 2, 3, 4),
                                      KNOWN(F32, sum, NAN, 1, NAN, 2),
                                      KNOWN(F32, sum, NAN, INF, -INF),
                                      KNOWN(F32, sum, INF, INF, 1, 3e38),
                                      KNOWN(F32, product, 24, 1, 2, 3, 4),
                                      KNOWN(F32, product, -0.75, 0.5, -1.5),
                                      KNOWN(F32, product, NAN, INF, 0),
                                      KNOWN(F32, product, NAN, 0, NAN),
                                      KNOWN(F32, product, -INF, -INF, 3),
                                      KNOWN(F32, mean, 2.5, 1, 2, 3, 4),
                                      KNOWN(F32, mean, NAN, NAN, 1),
                                      KNOWN(F32, mean, -0.125, -0.125),
                                      KNOWN(F32, max, 7, -3, 7, 5),
                                      KNOWN(F32, max, -1, -1, -2, -INF),
                                      KNOWN(F32, max, NAN, 1, NAN, 3),
                                      KNOWN(F32, max, NAN, NAN, INF),
                                      KNOWN(F32, max, NAN, INF, NAN),
                                      KNOWN(F32, max, -INF, -INF, -INF),
                                      KNOWN(F32, min, -3, -3, 7, 5),
                                      KNOWN(F32, min, NAN, 1, NAN, -3),
                                      KNOWN(F32, min, INF, INF, INF),
                                      KNOWN(F32, min, NAN, NAN, -INF),
                                      KNOWN(F32, min, NAN, -INF, NAN),
                                      KNOWN(F32, argmax, 1, -3, 7, 5),
                                      KNOWN(F32, argmax, 1, 2, 7, 5, 7),
                                      KNOWN(F32, argmax, 0, 4, 4, 4),
                                      KNOWN(F32, argmax, 0, -INF, -INF, -INF),
                                      KNOWN(F32, argmax, 1, 5, NAN, 9, NAN),
                                      KNOWN(F32, argmax, 0, NAN, INF),
                                      KNOWN(F32, argmax, 2, -INF, -INF, -5),
                                      KNOWN(F32, argmax, 3, 1, 2, INF, NAN),
                                      KNOWN(F32, argmax, 0, -7),
                                      KNOWN(F32, argmax, 0, 0, -0.0),
                                      KNOWN(F32, argmax, 0, -0.0, 0),
                                      KNOWN(F32, argmin, 0, -3, 7, 5),
                                      KNOWN(F32, argmin, 1, 7, 2, 5, 2),
                                      KNOWN(F32, argmin, 0, INF, INF),
                                      KNOWN(F32, argmin, 2, 5, 1, NAN, NAN, 0),
                                      KNOWN(F32, argmin, 1, INF, 3, INF, 3),
                                      KNOWN(F32, argmin, 2, 1, 2, -INF, -INF),
                                      KNOWN(I32, sum, 10, 1, 2, 3, 4),
                                      KNOWN(I32, sum, 2147483648.0, INT32_MAX, 1),
                                      KNOWN(I32, sum, 4294967294.0, INT32_MAX, INT32_MAX),
                                      KNOWN(I64, sum, -0x1p63, 0x1p62, 0x1p62),
                                      KNOWN(I64, product, 0, 0x1p32, 0x1p32),
                                      KNOWN(I64, product, -0x1p63, 0x1p32, -0x1p31),
                                      KNOWN(I64, max, 0x1p53, -1, 0x1p53, -0x1p63),
                                      KNOWN(I64, argmin, 2, -1, 0x1p53, -0x1p63),
                                      KNOWN(I8, sum, -384, -128, -128, -128),
                                      KNOWN(I8, product, 16384, -128, -128),
                                      KNOWN(I8, min, -128, 127, -128),
                                      KNOWN(I8, argmax, 1, -128, 127, 127),
                                      KNOWN(I32, product, -120, 1, 2, 3, 4, -5),
                                      KNOWN(I32, product, 4294967296.0, 65536, 65536),
                                      KNOWN(I32, product, 2147483648.0, 65536, 32768),
                                      KNOWN(I32, max, 16777217, 16777216, 16777217, -5),
                                      KNOWN(I32, max, INT32_MIN, INT32_MIN, INT32_MIN),
                                      KNOWN(I32, min, INT32_MAX, INT32_MAX),
                                      KNOWN(I32, min, INT32_MIN, 0, INT32_MIN, 4),
                                      KNOWN(I32, argmax, 1, 16777216, 16777217, 16777217),
                                      KNOWN(I32, argmax, 0, INT32_MIN, INT32_MIN),
                                      KNOWN(I32, argmax, 2, INT32_MIN, -9, 4),
                                      KNOWN(I32, argmin, 0, INT32_MAX, INT32_MAX),
                                      KNOWN(I32, argmin, 1, 3, -9, -9),
                                      KNOWN(U8, sum, 1020, 255, 255, 255, 255),
                                      KNOWN(U8, sum, 0, 0, 0),
                                      KNOWN(U8, product, 16581375, 255, 255, 255),
                                      KNOWN(U8, product, 0, 0, 7),
                                      KNOWN(U8, max, 255, 3, 255, 128),
                                      KNOWN(U8, max, 0, 0, 0),
                                      KNOWN(U8, min, 3, 3, 255, 128),
                                      KNOWN(U8, min, 255, 255),
                                      KNOWN(U8, argmax, 2, 127, 3, 128, 128),
                                      KNOWN(U8, argmax, 0, 0, 0),
                                      KNOWN(U8, argmin, 0, 255, 255),
                                      KNOWN(U8, argmin, 2, 128, 127, 3)};

static void expect_known(const struct known *known)
{
    char data[64], answer[8];
    const struct kiln__reduce_row *row = &kiln__reduce_rows[known->op];
    size_t size = kiln_type_size(known->type);
    for (size_t i = 0; i < known->n; i++)
        kiln__type_store(known->type, known->values[i], data + i * size);
    kiln_batch *batch = check_begin();
    kiln_tensor x = check_given(batch, known->type, DIMS(known->n), data);
    kiln_tensor y = check_reduction(batch, known->op, x, 0, NULL, 0);
    expect_ok(kiln_read(batch, y, answer, kiln_type_size(kiln__reduce_result(row, known->type))));
    run_batch(batch);
    double found = kiln__type_load(kiln__reduce_result(row, known->type), answer);
    cr_expect(found == known->answer || (isnan(found) && isnan(known->answer)),
              "known %zu: %s %s of %.9g, %.9g, ... is %.9g, not %.9g", (size_t)(known - knowns),
              kiln_type_name(known->type), row->name, known->values[0], known->values[1], found,
              known->answer);
    check_end(batch);
}

Test(ops_reduce, known_answers)
{
    bool seen[KILN__REDUCE_COUNT][16] = {{false}};
    for (size_t i = 0; i < sizeof knowns / sizeof *knowns; i++) {
        expect_known(&knowns[i]);
        seen[knowns[i].op][knowns[i].type] = true;
    }
    for (unsigned op = 0; op < KILN__REDUCE_COUNT; op++)
        for (unsigned type = KILN_F32; type <= KILN_U8; type++)
            cr_expect(seen[op][type] ||
                          !kiln__types_accept((enum kiln__types)kiln__reduce_rows[op].types,
                                              (kiln_type)type),
                      "%s has no known answers", kiln__reduce_rows[op].name);
    check_close();
}

/* One value that matters among many equal ones, wherever it is: vectors, their rest, segments. */
Test(ops_reduce, one_among_many)
{
    static const size_t places[] = {0, 1, 15, 16, 63, 16383, 16384, 50000, 99999, 100001, 100002};
    static const float values[] = {3, NAN};
    enum { N = 100003 };
    float *data = calloc(N, sizeof *data), most, least, sum;
    int32_t place;
    cr_assert(data);
    kiln_batch *batch = check_begin();
    kiln_tensor x = kiln_upload(batch, KILN_F32, DIMS(N), data);
    expect_ok(kiln_read(batch, kiln_argmax(batch, x, 0, NULL, 0), &place, sizeof place));
    expect_ok(kiln_read(batch, kiln_max(batch, x, 0, NULL, 0), &most, sizeof most));
    expect_ok(kiln_read(batch, kiln_min(batch, x, 0, NULL, 0), &least, sizeof least));
    expect_ok(kiln_read(batch, kiln_sum(batch, x, 0, NULL, 0), &sum, sizeof sum));
    for (size_t i = 0; i < 2 * sizeof places / sizeof *places; i++) {
        size_t at = places[i / 2];
        float value = values[i % 2];
        data[at] = value;
        if (at < 50000)
            data[N - 1] = value; /* the first of equals counts */
        run_batch(batch);
        cr_expect_eq(place, (int)at, "argmax is %d, not %zu", place, at);
        cr_expect(isnan(value) ? isnan(most) && isnan(least) && isnan(sum)
                               : most == 3 && least == 0 && sum == (at < 50000 ? 6 : 3),
                  "%g at %zu: max %g, min %g, sum %g", value, at, most, least, sum);
        data[at] = data[N - 1] = 0;
    }
    check_end(batch);
    free(data);
    check_close();
}

Test(ops_reduce, sums_of_many_bytes)
{
    enum { N = 70000 };
    uint8_t *data = malloc(N);
    int64_t all, rows[7];
    cr_assert(data);
    memset(data, 255, N);
    kiln_batch *batch = check_begin();
    kiln_tensor x = check_given(batch, KILN_U8, DIMS(7, N / 7), data);
    expect_ok(kiln_read(batch, kiln_sum(batch, x, 0, NULL, 0), &all, sizeof all));
    expect_ok(kiln_read(batch, kiln_sum(batch, x, 1, (int[]){1}, 0), rows, sizeof rows));
    run_batch(batch);
    cr_expect_eq(all, 17850000);
    cr_expect_eq(rows[6], 2550000);
    check_end(batch);
    free(data);
    check_close();
}

/* ---- shapes ---- */

Test(ops_reduce, slow_every_subset_of_axes)
{
    for (unsigned mask = 1; mask < 8; mask++)
        reduce(EVERY_ROW, KILN_F32, DIMS(5, 6, 19), mask, mask % 2, CHECK_FEW);
    for (unsigned mask = 1; mask < 16; mask++)
        reduce(ROW(sum) | ROW(argmin), KILN_F32, DIMS(3, 17, 2, 5), mask, mask % 2, CHECK_FEW);
    for (unsigned mask = 1; mask < 8; mask *= 2)
        for (unsigned type = KILN_I32; type <= KILN_U8; type++)
            reduce(EVERY_ROW, (kiln_type)type, DIMS(5, 37, 19), mask, 0, CHECK_FEW);
    check_close();
}

Test(ops_reduce, no_axes_are_all_axes)
{
    reduce(EVERY_ROW, KILN_F32, DIMS(3, 5), 0, 0, CHECK_PLAIN);
    reduce(EVERY_ROW, KILN_F32, DIMS(3, 5), 0, 1, CHECK_PLAIN);
    reduce(EVERY_ROW, KILN_F32, SCALAR, 0, 0, CHECK_PLAIN);
    reduce(EVERY_ROW, KILN_I32, SCALAR, 0, 1, CHECK_PLAIN);
    check_close();
}

Test(ops_reduce, slow_lengths_of_rows)
{
    static const size_t lengths[] = {1, 2, 15, 16, 17, 64, 127, 1009, 100003};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (size_t rows = 1; rows <= 3; rows += 2)
            for (unsigned type = KILN_F32; type <= KILN_U8; type++)
                reduce(EVERY_ROW, (kiln_type)type, DIMS(rows, lengths[i]), 2, 0, CHECK_PLAIN);
    reduce(EVERY_ROW, KILN_F32, DIMS(20011, 3), 2, 0, CHECK_FEW);
    reduce(EVERY_ROW, KILN_F32, DIMS(70001, 1), 2, 0, CHECK_FEW);
    check_close();
}

Test(ops_reduce, slow_columns)
{
    static const size_t inner[] = {1, 3, 16, 33, 1009};
    for (size_t i = 0; i < sizeof inner / sizeof *inner; i++) {
        reduce(EVERY_ROW, KILN_F32, DIMS(17, inner[i]), 1, 0, CHECK_FEW);
        reduce(EVERY_ROW, KILN_F32, DIMS(5, 40, inner[i]), 2, 1, CHECK_FEW);
        reduce(EVERY_ROW, KILN_U8, DIMS(17, inner[i]), 1, 0, CHECK_FEW);
    }
    reduce(EVERY_ROW, KILN_F32, DIMS(50021, 3), 1, 0, CHECK_FEW);
    reduce(EVERY_ROW, KILN_F32, DIMS(40009, 33), 1, 0, CHECK_FEW);
    reduce(ROW(sum) | ROW(argmax), KILN_I32, DIMS(40009, 17), 1, 0, CHECK_WIDE);
    reduce(EVERY_ROW, KILN_F32, DIMS(6, 33001), 1, 0, CHECK_FEW);
    reduce(ROW(sum) | ROW(argmin), KILN_F32, DIMS(2111, 1100), 1, 0, CHECK_FEW);
    check_close();
}

Test(ops_reduce, special_values)
{
    /* A product of them is not bounded: it has overflown before it meets a 0. */
    const unsigned bounded = EVERY_ROW & ~ROW(product);
    for (unsigned mask = 1; mask < 4; mask++)
        reduce(bounded, KILN_F32, DIMS(301, 33), mask, 0, CHECK_SPECIAL);
    reduce(bounded, KILN_F32, DIMS(301, 7), 2, 0, CHECK_SPECIAL);
    reduce(bounded, KILN_I32, DIMS(301, 33), 2, 0, CHECK_SPECIAL);
    reduce(bounded, KILN_I64, DIMS(301, 33), 2, 0, CHECK_SPECIAL);
    check_close();
}

/* ---- nothing to reduce ---- */

Test(ops_reduce, no_elements)
{
    const unsigned with_identity = ROW(sum) | ROW(product) | ROW(mean);
    reduce(with_identity, KILN_F32, DIMS(5, 0), 2, 0, CHECK_PLAIN);
    reduce(with_identity, KILN_F32, DIMS(0, 5), 1, 1, CHECK_PLAIN);
    reduce(with_identity, KILN_F32, DIMS(0), 1, 0, CHECK_PLAIN);
    reduce(ROW(sum), KILN_U8, DIMS(0, 70), 1, 0, CHECK_PLAIN);
    reduce(EVERY_ROW, KILN_F32, DIMS(0, 5), 2, 0, CHECK_PLAIN);
    reduce(EVERY_ROW, KILN_F32, DIMS(3, 0, 5), 4, 1, CHECK_PLAIN);
    for (unsigned op = 0; op < KILN__REDUCE_COUNT; op++) {
        kiln_batch *batch = check_begin();
        kiln_tensor x = check_input(batch, KILN_F32, DIMS(5, 0), CHECK_PLAIN);
        check_reduction(batch, op, x, 1, (int[]){1}, 0);
        cr_expect_eq(kiln_batch_status(batch),
                     kiln__reduce_rows[op].empty ? KILN_OK : KILN_INVALID_ARGUMENT, "%s",
                     kiln__reduce_rows[op].name);
        check_end(batch);
    }
    check_close();
}

Test(ops_reduce, axes_are_checked)
{
    static const struct {
        size_t count;
        int axes[2];
    } wrong[] = {{1, {2}}, {1, {-3}}, {2, {0, 0}}, {2, {1, -1}}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        kiln_batch *batch = check_begin();
        kiln_tensor x = check_input(batch, KILN_F32, DIMS(2, 3), CHECK_PLAIN);
        kiln_sum(batch, x, wrong[i].count, wrong[i].axes, 0);
        cr_expect_eq(kiln_batch_status(batch), KILN_INVALID_ARGUMENT, "%zu", i);
        check_end(batch);
    }
    check_close();
}
