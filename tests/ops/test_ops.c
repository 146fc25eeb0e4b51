/* SPDX-License-Identifier: Apache-2.0 */
/* Every row of elementwise.def with every type: the device against the reference for values of all
 * kinds, and what is refused. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "../support/check.h"
#include "ops/ops.h"
#include "session/context.h"

static const kiln_type types[] = {KILN_F32, KILN_I32, KILN_U8, KILN_I64, KILN_I8};
#define TYPES (sizeof types / sizeof *types)

/* ---- against the reference ---- */

/* The compiler of Mesa 22.3 and 25.0 ends the process over comparisons and quotients of 8 bits with
 * a sign, where there are as many as here. */
static bool compiler_fails_at_i8(const kiln_device_info *device)
{
    return !strcmp(device->platform, "rusticl");
}

/* All rows over the same operands: few kernels with many results each. */
static void every_row(size_t n, enum check_values values)
{
    for (size_t t = 0; t < TYPES; t++) {
        kiln_batch *batch = check_begin();
        const kiln_device_info *device = &batch->context->runtime.device.info;
        kiln_tensor operands[3], masked[3];
        if (types[t] == KILN_I8 && compiler_fails_at_i8(device)) {
            fprintf(stderr, "# no rows of i8 on %s %s\n", device->platform, device->driver_version);
            check_end(batch);
            continue;
        }
        for (unsigned k = 0; k < 3; k++)
            masked[k] = operands[k] = check_input(batch, types[t], DIMS(n), values);
        masked[0] = check_input(batch, KILN_U8, DIMS(n), CHECK_FEW);
        for (unsigned op = 0; op < KILN__OP_COUNT; op++) {
            enum kiln__types rule = (enum kiln__types)kiln__elementwise_rows[op].types;
            if (kiln__types_accept(rule, types[t]))
                check_read(batch, check_elementwise(batch, op,
                                                    rule == KILN__SELECTION ? masked : operands));
        }
        check_run(batch);
        check_end(batch);
    }
}

Test(ops, as_the_reference)
{
    every_row(1009, CHECK_PLAIN);
    every_row(17, CHECK_WIDE);
    every_row(70001, CHECK_WIDE);
    every_row(70001, CHECK_SPECIAL);
    every_row(1, CHECK_PLAIN);
    every_row(0, CHECK_PLAIN);
    check_close();
}

/* A compiler that takes signed overflow for impossible compares what comes before it instead. */
static void compare_what_wraps(kiln_batch *batch, kiln_tensor x, kiln_tensor y)
{
    const kiln_tensor one = kiln_constant(batch, KILN_I32, 1);
    const kiln_tensor minus = kiln_neg(batch, x), other = kiln_neg(batch, y);
    const kiln_tensor next = kiln_add(batch, x, one), last = kiln_sub(batch, x, one);
    const int axis = 1;
    check_read(batch, kiln_minimum(batch, minus, other));
    check_read(batch, kiln_maximum(batch, minus, y));
    check_read(batch, kiln_less(batch, minus, other));
    check_read(batch, kiln_greater(batch, next, x));
    check_read(batch, kiln_less(batch, last, x));
    check_read(batch, kiln_clamp(batch, minus, -3, 90));
    check_read(batch, kiln_abs(batch, minus));
    check_read(batch, kiln_relu(batch, kiln_sub(batch, x, y)));
    check_read(batch, kiln_div(batch, minus, kiln_constant(batch, KILN_I32, -1)));
    check_read(batch, kiln_min(batch, minus, 1, &axis, 0));
    check_read(batch, kiln_max(batch, minus, 1, &axis, 0));
    check_read(batch, kiln_argmin(batch, minus, 1, &axis, 0));
    check_read(batch, kiln_argmax(batch, kiln_sub(batch, one, x), 1, &axis, 0));
    check_read(batch,
               kiln_greater(batch, kiln_cast(batch, kiln_sum(batch, x, 1, &axis, 1), KILN_I32), x));
    check_read(batch, kiln_cumsum(batch, x, 1, 0));
}

Test(ops, integers_wrap_around_under_comparisons_too)
{
    static const size_t columns[] = {7, 64};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        kiln_batch *batch = check_begin();
        kiln_tensor x = check_input(batch, KILN_I32, DIMS(33, columns[i]), CHECK_SPECIAL);
        compare_what_wraps(batch, x,
                           check_input(batch, KILN_I32, DIMS(33, columns[i]), CHECK_SPECIAL));
        check_run(batch);
        check_end(batch);
    }
    check_close();
}

/* Chains of the smaller and the larger of values that are negated, or become so when a compiler is
 * through with them. */
static void compare_chains(kiln_batch *batch, kiln_tensor x, kiln_tensor y, int axis)
{
    const kiln_tensor minus = kiln_neg(batch, x), other = kiln_neg(batch, y);
    const kiln_tensor values[] = {minus,
                                  kiln_sub(batch, x, y),
                                  kiln_sub(batch, minus, x),
                                  kiln_sub(batch, minus, y),
                                  kiln_abs(batch, minus),
                                  kiln_sign(batch, x),
                                  kiln_neg(batch, kiln_abs(batch, x)),
                                  kiln_div(batch, x, kiln_constant(batch, KILN_I32, -1)),
                                  kiln_mul(batch, x, kiln_constant(batch, KILN_I32, -1)),
                                  kiln_where(batch, kiln_less(batch, x, y), minus, y)};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        check_read(batch, kiln_min(batch, values[i], 1, &axis, 0));
        check_read(batch, kiln_max(batch, values[i], 1, &axis, 0));
    }
    check_read(batch,
               kiln_minimum(batch, kiln_minimum(batch, minus, other), kiln_neg(batch, minus)));
    check_read(batch, kiln_maximum(batch, kiln_maximum(batch, y, minus), other));
    check_read(batch, kiln_clamp(batch, kiln_minimum(batch, y, minus), -70, 60));
}

/* Down columns an item's loop is unrolled, and compilers put its steps together. */
Test(ops, integers_keep_their_signs_in_chains)
{
    for (int axis = 0; axis < 2; axis++) {
        kiln_batch *batch = check_begin();
        kiln_tensor x = check_input(batch, KILN_I32, DIMS(64, 65), CHECK_PLAIN);
        compare_chains(batch, x, check_input(batch, KILN_I32, DIMS(64, 65), CHECK_PLAIN), axis);
        check_run(batch);
        check_end(batch);
    }
    check_close();
}

/* A type that a row does not take is refused in words. */
Test(ops, types_are_checked)
{
    for (unsigned op = 0; op < KILN__OP_COUNT; op++) {
        const struct kiln__elementwise_row *row = &kiln__elementwise_rows[op];
        enum kiln__types rule = (enum kiln__types)row->types;
        for (size_t t = 0; t < TYPES; t++) {
            kiln_batch *batch = check_begin();
            kiln_tensor x = check_input(batch, types[t], DIMS(3), CHECK_PLAIN);
            kiln_tensor y = check_input(batch, types[(t + 1) % TYPES], DIMS(3), CHECK_PLAIN);
            kiln_tensor mask = check_input(batch, KILN_U8, DIMS(3), CHECK_FEW);
            enum kiln__elementwise own = kiln__elementwise_of((enum kiln__elementwise)op, types[t]);
            bool accepts = own == KILN__OP_COUNT ||
                           kiln__types_accept(kiln__elementwise_rows[own].types, types[t]);
            kiln_tensor first = rule == KILN__SELECTION ? mask : x;
            kiln_tensor made = check_elementwise(batch, op, (kiln_tensor[]){first, x, x});
            cr_expect_eq(kiln_batch_status(batch), accepts ? KILN_OK : KILN_TYPE_MISMATCH, "%s %s",
                         row->name, kiln_type_name(types[t]));
            if (accepts)
                cr_expect_eq(kiln__batch_node(batch, made, "test", "made")->type,
                             kiln__types_result(rule, types[t]), "%s", row->name);
            if (accepts && row->tensors > 1) {
                check_elementwise(batch, op, (kiln_tensor[]){first, y, x});
                cr_expect_eq(kiln_batch_status(batch), KILN_TYPE_MISMATCH, "%s", row->name);
            }
            check_end(batch);
        }
    }
    check_close();
}

Test(ops, refusals_say_why)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = check_input(b, KILN_F32, DIMS(3), CHECK_PLAIN);
    kiln_where(b, x, x, x);
    check_refusal(
        b, KILN_TYPE_MISMATCH,
        "kiln_where: the mask is f32, and only bool and u8 are taken; a comparison makes one");
    b = check_begin();
    x = check_input(b, KILN_F32, DIMS(3), CHECK_PLAIN);
    kiln_where(b, kiln_less(b, x, x), x, kiln_cast(b, x, KILN_I32));
    check_refusal(b, KILN_TYPE_MISMATCH, "kiln_where: operands are f32 and i32; cast one of them");
    b = check_begin();
    kiln_clamp(b, check_input(b, KILN_U8, DIMS(3), CHECK_PLAIN), -1, 7);
    check_refusal(b, KILN_INVALID_ARGUMENT, "kiln_clamp: u8 cannot hold -1");
    b = check_begin();
    kiln_isnan(b, check_input(b, KILN_I32, DIMS(3), CHECK_PLAIN));
    check_refusal(b, KILN_TYPE_MISMATCH,
                  "kiln_isnan: operands are i32, and only floating types are taken");
    b = check_begin();
    x = check_input(b, KILN_F32, DIMS(3), CHECK_PLAIN);
    kiln_where(b, check_input(b, KILN_U8, DIMS(2), CHECK_FEW), x, x);
    check_refusal(b, KILN_SHAPE_MISMATCH, "kiln_where: shapes [2] and [3] do not broadcast");
    b = check_begin();
    kiln_leaky_relu(b, (kiln_tensor){0}, 1);
    cr_expect_eq(kiln_batch_status(b), KILN_INVALID_HANDLE);
    check_end(b);
    kiln_leaky_relu(NULL, (kiln_tensor){0}, 1);
    check_close();
}

/* (1 + 2^-12)^2 - (1 + 2^-11) is what rounding the product loses. */
Test(ops, fma_rounds_once)
{
    static const float a[] = {0x1.001p0f}, c[] = {-0x1.002p0f};
    kiln_batch *b = check_begin();
    kiln_tensor x = check_given(b, KILN_F32, DIMS(1), a);
    const float *y = check_read(b, kiln_fma(b, x, x, check_given(b, KILN_F32, DIMS(1), c)));
    run_batch(b);
    bool twice = check_context()->runtime.device.traits->emulates_fma;
    cr_expect_eq(*y, twice ? 0 : 0x1p-24f);
    check_end(b);
    check_close();
}

/* Numbers reach the kernel, and a mask what it masks: conditions of elements of 1 and 4 bytes,
 * stored and used in the same kernel. */
Test(ops, masks_and_numbers)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = check_input(b, KILN_F32, DIMS(70, 33), CHECK_PLAIN);
    kiln_tensor row = check_input(b, KILN_F32, DIMS(33), CHECK_PLAIN);
    kiln_tensor small = check_input(b, KILN_U8, DIMS(70, 1), CHECK_PLAIN);
    kiln_tensor below = kiln_less(b, x, row);
    kiln_tensor odd = kiln_greater(b, small, kiln_constant(b, KILN_U8, 100));
    kiln_tensor both = kiln_logical_and(b, below, odd);
    check_read(b, both);
    check_read(b, kiln_where(b, both, kiln_leaky_relu(b, x, -0.75), kiln_clamp(b, row, -1.5, 0.5)));
    check_read(b, kiln_where(b, both, small, kiln_clamp(b, small, 5, 9)));
    check_read(b, kiln_sum(b, kiln_logical_not(b, both), 1, (int[]){0}, 0));
    check_read(b, kiln_max(b, kiln_transpose(b, below, NULL), 1, (int[]){1}, 0));
    check_run(b);
    check_end(b);
    check_close();
}
