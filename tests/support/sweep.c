/* SPDX-License-Identifier: Apache-2.0 */
/* Error sweeps of elementwise rows, in ulps against the host. */
#include "sweep.h"

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "ops/ops.h"
#include "reference/bounds.h"

#define CHUNK ((size_t)1 << 18)

static const float specials[] = {
    0.0f,       -0.0f,       INFINITY,      -INFINITY,      NAN,        FLT_MAX,
    -FLT_MAX,   FLT_MIN,     -FLT_MIN,      0x1p-149f,      -0x1p-149f, 0x1.fffffcp-127f,
    1.0f,       -1.0f,       0x1.000002p0f, 0x1.fffffep-1f, 88.72284f,  88.722839f,
    -87.33655f, -103.97208f, -103.97207f,   0x1p-12f,       0x1p-24f,   9.010914f,
    -14.5f,     0.5f,        -2.0f,         3.0f,           16777216.0f};
enum { SPECIALS = sizeof specials / sizeof *specials };

bool sweep_takes(unsigned op)
{
    enum kiln__types rule = (enum kiln__types)kiln__elementwise_rows[op].types;
    return kiln__types_accept(rule, KILN_F32) &&
           kiln__types_operand(rule, 0, KILN_F32) == KILN_F32 &&
           kiln__types_result(rule, KILN_F32) == KILN_F32;
}

/* ---- judging ---- */

/* 0 where a flushed denormal explains the difference, infinity where nothing does. */
static double error_of(double wanted, float found)
{
    if ((isnan(wanted) && isnan(found)) || wanted == found)
        return 0;
    double distance = fabs(found - wanted);
    if (distance <= 2 * check_denormal())
        return 0;
    if (isinf(found) && kiln__bounds_allow(KILN_F32, wanted, 0, found))
        return 0;
    return isnan(distance) || isinf(distance) ? INFINITY
                                              : distance / kiln__type_ulp(KILN_F32, wanted);
}

static void judge(const struct kiln__elementwise_row *row, const double *operands, float found,
                  struct sweep *sweep)
{
    for (unsigned k = 0; k < row->arity; k++)
        if (fabs(operands[k]) < check_denormal())
            return; /* may be flushed before anything is computed */
    double error = error_of(row->host(operands[0], operands[1], operands[2], false), found);
    sweep->tested++;
    sweep->wrong += error > row->max_ulp;
    if (sweep->tested > 1 && error <= sweep->ulp)
        return;
    sweep->ulp = error;
    sweep->found = found;
    memcpy(sweep->at, operands, sizeof sweep->at);
}

/* ---- running ---- */

/* One row over chunks of operands. */
struct bench {
    const struct kiln__elementwise_row *row;
    kiln_batch *batch;
    float *operands[3]; /* of tensors */
    const float *result;
    size_t count;
};

static struct bench open_bench(unsigned op, size_t count)
{
    struct bench bench = {&kiln__elementwise_rows[op], check_begin(), {NULL}, NULL, count};
    kiln_tensor tensors[3] = {{0}};
    for (unsigned k = 0; k < bench.row->tensors; k++) {
        bench.operands[k] = malloc(count * sizeof(float));
        cr_assert(bench.operands[k]);
        tensors[k] = kiln_upload(bench.batch, KILN_F32, DIMS(count), bench.operands[k]);
    }
    bench.result = check_read(bench.batch, check_elementwise(bench.batch, op, tensors));
    return bench;
}

static void run_bench(const struct bench *bench, struct sweep *sweep)
{
    double operands[3] = {0};
    run_batch(bench->batch);
    for (unsigned k = bench->row->tensors; k < bench->row->arity; k++)
        operands[k] = check_number(KILN_F32, k - bench->row->tensors);
    for (size_t i = 0; i < bench->count; i++) {
        for (unsigned k = 0; k < bench->row->tensors; k++)
            operands[k] = (double)bench->operands[k][i];
        judge(bench->row, operands, bench->result[i], sweep);
    }
}

static void close_bench(struct bench *bench)
{
    check_end(bench->batch);
    for (unsigned k = 0; k < 3; k++)
        free(bench->operands[k]);
}

/* ---- operands ---- */

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Floats by their bits: `first`, first + step, ...; the specials lead the first chunk. */
static void fill_by_bits(float *x, uint64_t first, uint64_t step)
{
    for (size_t i = 0; i < CHUNK; i++)
        x[i] = from_bits((uint32_t)(first + i * step));
    if (first == 0)
        memcpy(x + 1, specials, sizeof specials);
}

/* Any float, or one of common size. */
static float any_float(void)
{
    return check_random(2) ? from_bits(check_random(1u << 16) << 16 | check_random(1u << 16))
                           : (float)check_random(1 << 24) * 0x1p-20f - 8;
}

/* Every combination of specials, then random values; one operand in four is near the first, where
 * differences cancel. */
static void fill_at_random(const struct bench *bench, bool is_first)
{
    size_t grid = 1;
    for (unsigned k = 0; k < bench->row->tensors; k++)
        grid *= SPECIALS;
    for (size_t i = 0; i < bench->count; i++) {
        size_t number = i;
        float first = any_float();
        for (unsigned k = 0; k < bench->row->tensors; k++, number /= SPECIALS) {
            float value = k == 0            ? first
                          : check_random(4) ? any_float()
                                            : first * (1 + (float)check_random(64) * 0x1p-22f);
            bench->operands[k][i] = is_first && i < grid ? specials[number % SPECIALS] : value;
        }
    }
}

void sweep_row(unsigned op, uint64_t step, struct sweep *sweep)
{
    struct bench bench = open_bench(op, CHUNK);
    bool single = bench.row->tensors == 1;
    uint64_t stride = step * CHUNK * (single ? 1 : 4);
    check_seed(op);
    *sweep = (struct sweep){0};
    for (uint64_t first = 0; first < UINT64_C(1) << 32; first += stride) {
        if (single)
            fill_by_bits(bench.operands[0], first, step);
        else
            fill_at_random(&bench, first == 0);
        run_bench(&bench, sweep);
    }
    close_bench(&bench);
}

void sweep_around(unsigned op, const float *centres, size_t count, size_t each, struct sweep *sweep)
{
    struct bench bench = open_bench(op, count * each);
    *sweep = (struct sweep){0};
    for (size_t i = 0; i < count * each; i++) {
        uint32_t bits;
        memcpy(&bits, &centres[i / each], sizeof bits);
        bench.operands[0][i] = from_bits(bits + (uint32_t)(i % each) - (uint32_t)(each / 2));
    }
    run_bench(&bench, sweep);
    close_bench(&bench);
}

struct sweep_text sweep_call(unsigned op, const struct sweep *sweep)
{
    const struct kiln__elementwise_row *row = &kiln__elementwise_rows[op];
    struct sweep_text call;
    size_t size = sizeof call.text;
    int length = snprintf(call.text, size, "%s(", row->name);
    for (unsigned k = 0; k < row->arity; k++)
        length += snprintf(call.text + length, size - (size_t)length, "%s%.9g", k ? ", " : "",
                           sweep->at[k]);
    snprintf(call.text + length, size - (size_t)length, ")");
    return call;
}
