/* SPDX-License-Identifier: Apache-2.0 */
/* The accuracy of every floating row with one tensor over a dense sample of all floats, against
 * the host in double. KILN_MATH_STEP=1 takes every float there is; the default is every 4096th. */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/bounds.h"
#include "ops/ops.h"
#include "support/check.h"

#define CHUNK ((size_t)1 << 20)

struct worst {
    double ulp;
    float at, found;
    size_t wrong;
};

static bool is_tested(unsigned op)
{
    const struct kiln__elementwise_row *row = &kiln__elementwise_rows[op];
    return row->tensors == 1 && row->types == KILN__FLOATING;
}

/* 0 where a flushed denormal explains the difference, infinity where nothing does. */
static double error_of(double wanted, float found)
{
    if ((isnan(wanted) && isnan(found)) || wanted == found)
        return 0;
    double distance = fabs(found - wanted);
    if (distance <= 2 * check_denormal())
        return 0;
    if (isinf(found) && kiln__bounds_allow(wanted, 0, found))
        return 0;
    return isnan(distance) || isinf(distance) ? INFINITY : distance / kiln__float_ulp(wanted);
}

static void judge(unsigned op, size_t count, const float *x, const float *y, struct worst *worst)
{
    const struct kiln__elementwise_row *row = &kiln__elementwise_rows[op];
    const double first = check_number(KILN_F32, 0), second = check_number(KILN_F32, 1);
    for (size_t i = 0; i < count; i++) {
        if (check_denormal() > 0 && fabsf(x[i]) < FLT_MIN)
            continue;
        double error = error_of(row->host((double)x[i], first, second, false), y[i]);
        if (error > row->max_ulp)
            worst->wrong++;
        if (error > worst->ulp)
            *worst = (struct worst){error, x[i], y[i], worst->wrong};
    }
}

static const float specials[] = {
    0.0f,       -0.0f,       INFINITY,      -INFINITY,      NAN,        FLT_MAX,
    -FLT_MAX,   FLT_MIN,     -FLT_MIN,      0x1p-149f,      -0x1p-149f, 0x1.fffffcp-127f,
    1.0f,       -1.0f,       0x1.000002p0f, 0x1.fffffep-1f, 88.72284f,  88.722839f,
    -87.33655f, -103.97208f, -103.97207f,   0x1p-12f,       0x1p-24f,   9.010914f,
    -14.5f};

/* Floats by their bits: `first`, first + step, ...; the specials lead the first chunk. */
static void fill_chunk(float *x, uint64_t first, uint64_t step)
{
    for (size_t i = 0; i < CHUNK; i++) {
        uint32_t bits = (uint32_t)(first + i * step);
        memcpy(&x[i], &bits, sizeof bits);
    }
    if (first == 0)
        memcpy(x + 1, specials, sizeof specials);
}

static uint64_t step_of(void)
{
    const char *text = getenv("KILN_MATH_STEP");
    uint64_t step = text ? strtoull(text, NULL, 10) : 0;
    return step ? step : 4096;
}

static void report(const struct worst *worst)
{
    for (unsigned op = 0; op < KILN__OP_COUNT; op++) {
        const struct kiln__elementwise_row *row = &kiln__elementwise_rows[op];
        if (!is_tested(op))
            continue;
        fprintf(stderr, "%-10s %6.3f ulp at %.9g (%a); %g are allowed\n", row->name, worst[op].ulp,
                (double)worst[op].at, (double)worst[op].at, (double)row->max_ulp);
        cr_expect_leq(worst[op].ulp, (double)row->max_ulp, "%s(%.9g) is %.9g; %zu are off by more",
                      row->name, (double)worst[op].at, (double)worst[op].found, worst[op].wrong);
    }
}

Test(math, dense_sample, .timeout = 36000)
{
    struct worst worst[KILN__OP_COUNT] = {{0, 0, 0, 0}};
    float *x = malloc(CHUNK * sizeof *x), *y[KILN__OP_COUNT] = {NULL};
    cr_assert(x);
    kiln_batch *batch = check_begin();
    kiln_tensor input = kiln_upload(batch, KILN_F32, DIMS(CHUNK), x);
    for (unsigned op = 0; op < KILN__OP_COUNT; op++)
        if (is_tested(op))
            y[op] = check_read(batch, check_elementwise(batch, op, &input));
    uint64_t step = step_of();
    for (uint64_t first = 0; first < UINT64_C(1) << 32; first += step * CHUNK) {
        fill_chunk(x, first, step);
        run_batch(batch);
        for (unsigned op = 0; op < KILN__OP_COUNT; op++)
            if (y[op])
                judge(op, CHUNK, x, y[op], &worst[op]);
    }
    report(worst);
    check_end(batch);
    free(x);
    check_close();
}

/* Near where a function changes its form, or nearly cancels, every float counts. */
Test(math, dense_around)
{
    static const float centres[] = {
        1.0f,         0.5f,     2.0f,        1.41421356f, 0.70710678f, 0.0625f,   0.00024414062f,
        -1.0f,        -0.5f,    -5.0f,       -10.0f,      -13.0f,      10.0f,     20.0f,
        88.0f,        -87.0f,   0.34657359f, 3.93f,       9.01f,       0x1p-126f, 3.14159274f,
        -1.57079637f, 65536.0f, -11.0f,      -3.0f,       3.0f,        0.9f};
    enum { EACH = 4096, COUNT = EACH * (int)(sizeof centres / sizeof *centres) };
    struct worst worst[KILN__OP_COUNT] = {{0, 0, 0, 0}};
    float *x = malloc(COUNT * sizeof *x), *y[KILN__OP_COUNT] = {NULL};
    cr_assert(x);
    for (int i = 0; i < COUNT; i++) {
        uint32_t bits;
        memcpy(&bits, &centres[i / EACH], sizeof bits);
        bits += (uint32_t)(i % EACH - EACH / 2);
        memcpy(&x[i], &bits, sizeof bits);
    }
    kiln_batch *batch = check_begin();
    kiln_tensor input = kiln_upload(batch, KILN_F32, DIMS(COUNT), x);
    for (unsigned op = 0; op < KILN__OP_COUNT; op++)
        if (is_tested(op))
            y[op] = check_read(batch, check_elementwise(batch, op, &input));
    run_batch(batch);
    for (unsigned op = 0; op < KILN__OP_COUNT; op++)
        if (y[op])
            judge(op, COUNT, x, y[op], &worst[op]);
    report(worst);
    check_end(batch);
    free(x);
    check_close();
}
