/* SPDX-License-Identifier: Apache-2.0 */
/* A value does not depend on how many others are computed beside it: every row of elementwise.def
 * gives the same bits in vectors of any width, some of which have instructions of their own, and
 * whatever is computed from it. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/check.h"
#include "ops/ops.h"

#define COUNT 32768

/* From -205 to 205, past the ends of exp's range, by 1/80; `b` goes through other values at each
 * of them. Some are as special as a float can be. */
static void fill_wide(float *a, float *b)
{
    static const float special[] = {INFINITY, -INFINITY, NAN, 0.0f, -0.0f, 1e-40f, -1e-45f, 3e38f};
    for (size_t i = 0; i < COUNT; i++) {
        a[i] = i % 101 ? ((float)i - COUNT / 2) / 80 : special[i / 101 % 8];
        b[i] = i % 103 ? ((float)(i * 7919 % COUNT) - COUNT / 2) / 4096 : special[i / 103 % 8];
    }
}

static kiln_tunable vector_of(kiln_context *context)
{
    kiln_tunable tunable;
    size_t i = 0;
    do
        cr_assert_eq(kiln_context_get_tunable(context, i++, &tunable), KILN_OK);
    while (tunable.name && strcmp(tunable.name, "vector") != 0);
    cr_assert(tunable.name);
    return tunable;
}

/* Every row's result; those that are floats with b added, if it is about `sums`. */
static void record_all(kiln_batch *batch, const float *a, const float *b, bool sums, char **answers)
{
    const kiln_tensor x = check_given(batch, KILN_F32, DIMS(COUNT), a);
    const kiln_tensor y = check_given(batch, KILN_F32, DIMS(COUNT), b);
    const kiln_tensor mask = kiln_greater(batch, x, y);
    for (unsigned op = 0; op < KILN__OP_COUNT; op++) {
        enum kiln__types rule = (enum kiln__types)kiln__elementwise_rows[op].types;
        const kiln_tensor operands[3] = {rule == KILN__SELECTION ? mask : x, y, x};
        if (!kiln__types_accept(rule, KILN_F32) ||
            (sums && kiln__types_result(rule, KILN_F32) != KILN_F32))
            continue;
        const kiln_tensor value = check_elementwise(batch, op, operands);
        answers[op] = check_read(batch, sums ? kiln_add(batch, value, y) : value);
    }
}

static bool same(const void *p, const void *q, size_t i, kiln_type type)
{
    const size_t size = kiln_type_size(type);
    if (type == KILN_F32 && isnan(((const float *)p)[i]) && isnan(((const float *)q)[i]))
        return true;
    return !memcmp((const char *)p + i * size, (const char *)q + i * size, size);
}

static void expect_same(unsigned op, unsigned lanes, const void *found, const void *first,
                        const float *a, const float *b)
{
    const struct kiln__elementwise_row *row = &kiln__elementwise_rows[op];
    const kiln_type type = kiln__types_result((enum kiln__types)row->types, KILN_F32);
    size_t differ = 0, example = 0;
    for (size_t i = 0; i < COUNT; i++)
        if (!same(found, first, i, type)) {
            differ++;
            example = i;
        }
    cr_expect_eq(differ, 0u, "%s: %zu differ in vectors of %u, such as at %.9g, %.9g", row->name,
                 differ, lanes, (double)a[example], (double)b[example]);
}

Test(ops_lanes, slow_any_width_gives_the_same_bits)
{
    static float a[COUNT], b[COUNT];
    char *answers[sizeof((kiln_tunable){0}.candidates) / sizeof(unsigned)][KILN__OP_COUNT] = {0};
    kiln_batch *batches[sizeof answers / sizeof *answers];
    kiln_context *context = check_context();
    const kiln_tunable vector = vector_of(context);
    fill_wide(a, b);
    for (size_t k = 0; k < vector.count; k++) {
        char record[40];
        snprintf(record, sizeof record, "vector %u\n", vector.candidates[k]);
        cr_assert_eq(kiln_context_tune(context, record), KILN_OK, "%s", kiln_last_error());
        batches[k] = check_begin();
        record_all(batches[k], a, b, false, answers[k]);
        run_batch(batches[k]);
        for (unsigned op = 0; op < KILN__OP_COUNT; op++)
            if (k && answers[k][op])
                expect_same(op, vector.candidates[k], answers[k][op], answers[0][op], a, b);
    }
    for (size_t k = 0; k < vector.count; k++)
        check_end(batches[k]);
    check_close();
}

/* A compiler that makes one fma of an operation's last product and a sum makes it in one kernel and
 * not in another. */
Test(ops_lanes, a_sum_behind_it_rounds_anew)
{
    static float a[COUNT], b[COUNT];
    char *values[KILN__OP_COUNT] = {0}, *sums[KILN__OP_COUNT] = {0};
    fill_wide(a, b);
    kiln_batch *alone = check_begin(), *behind = check_begin();
    record_all(alone, a, b, false, values);
    record_all(behind, a, b, true, sums);
    run_batch(alone);
    run_batch(behind);
    for (unsigned op = 0; op < KILN__OP_COUNT; op++) {
        for (size_t i = 0; i < COUNT && sums[op]; i++)
            ((float *)values[op])[i] += b[i];
        if (sums[op])
            expect_same(op, 0, sums[op], values[op], a, b);
    }
    check_end(alone);
    check_end(behind);
    check_close();
}
