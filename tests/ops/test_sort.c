/* SPDX-License-Identifier: Apache-2.0 */
/* Orders: numpy 2.4's and PyTorch 2.15's answers, the reference for many lengths, gradients,
 * errors. */
#include <criterion/criterion.h>
#include <math.h>

#include "../support/gradient.h"
#include "../support/graph.h"
#include "../support/movement.h"

/* ---- known answers ---- */

/* numpy.argsort(kind="stable"), and torch.argsort(descending=True, stable=True), for which NaN is
 * the largest, too. */
Test(sort, known)
{
    static const float x[] = {3, -1, NAN, 3, -INFINITY, -0.0f, 0, INFINITY, -1, 2.5f};
    kiln_batch *b = check_begin();
    kiln_tensor t = check_given(b, KILN_F32, DIMS(10), x);
    EXPECT_ELEMENTS(b, kiln_argsort(b, t, 0, 0), 4, 1, 8, 5, 6, 9, 0, 3, 7, 2);
    b = check_begin();
    t = check_given(b, KILN_F32, DIMS(10), x);
    EXPECT_ELEMENTS(b, kiln_argsort(b, t, 0, 1), 2, 7, 0, 3, 9, 5, 6, 1, 8, 4);
    b = check_begin();
    t = numbers(b, DIMS(6), NUMBERS(INT32_MAX, -1, 0, INT32_MIN, -1, 7));
    EXPECT_ELEMENTS(b, kiln_argsort(b, t, -1, 0), 3, 1, 4, 2, 5, 0);
    b = check_begin();
    t = numbers(b, DIMS(2, 3), NUMBERS(5, 1, 2, 4, 9, 0));
    EXPECT_ELEMENTS(b, kiln_sort(b, t, 0, 0), 4, 1, 0, 5, 9, 2);
    b = check_begin();
    t = numbers(b, DIMS(2, 3), NUMBERS(5, 1, 2, 4, 9, 0));
    EXPECT_ELEMENTS(b, kiln_sort(b, t, 1, 1), 5, 2, 1, 9, 4, 0);
    check_close();
}

/* ONNX's node tests of TopK: of equal ones the first. */
Test(sort, first_few)
{
    kiln_tensor at;
    kiln_batch *b = check_begin();
    kiln_tensor x = counted(b, DIMS(3, 4));
    EXPECT_ELEMENTS(b, kiln_topk(b, x, 3, 1, 0, NULL), 3, 2, 1, 7, 6, 5, 11, 10, 9);
    b = check_begin();
    x = numbers(b, DIMS(3, 4), NUMBERS(0, 1, 2, 3, 4, 5, 6, 7, 11, 10, 9, 8));
    kiln_topk(b, x, 3, 1, 1, &at);
    EXPECT_ELEMENTS(b, at, 0, 1, 2, 0, 1, 2, 3, 2, 1);
    b = check_begin();
    x = numbers(b, DIMS(2, 4), NUMBERS(1, 1, 1, 1, 2, 3, 3, 2));
    kiln_topk(b, x, 2, -1, 0, &at);
    EXPECT_ELEMENTS(b, at, 0, 1, 1, 2);
    b = check_begin();
    x = counted(b, DIMS(3, 4));
    EXPECT_ELEMENTS(b, kiln_topk(b, x, 1, 0, 0, NULL), 8, 9, 10, 11);
    check_close();
}

/* ---- against the reference ---- */

/* Around a work-group's block and beyond it, few lines and many, types and values of all kinds. */
Test(sort, as_the_reference)
{
    static const size_t shapes[][2] = {{5, 1},    {400, 3},  {7, 64},   {3, 1000}, {2, 1023},
                                       {2, 1024}, {3, 1025}, {2, 5000}, {1, 9001}, {3, 3000},
                                       {2, 1024}, {4, 1500}, {2, 4097}, {5, 700}};
    static const kiln_type types[] = {KILN_F32, KILN_I32, KILN_U8, KILN_I64, KILN_I8};
    kiln_batch *b = check_begin();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        kiln_type type = types[i % 5];
        kiln_tensor x = check_input(b, type, 2, shapes[i],
                                    i % 2 && type != KILN_U8 ? CHECK_SPECIAL : CHECK_PLAIN);
        check_read(b, kiln_argsort(b, x, 1, (int)(i / 2 % 2)));
        kiln_tensor few = check_input(b, KILN_F32, 2, shapes[i], CHECK_FEW);
        check_read(b, kiln_argsort(b, few, 1, (int)(i % 2)));
    }
    kiln_tensor x = check_input(b, KILN_F32, DIMS(6, 50, 5), CHECK_PLAIN), at;
    check_read(b, kiln_topk(b, x, 7, 1, 0, &at));
    check_read(b, at);
    check_read(b, kiln_sort(b, kiln_abs(b, x), 0, 1));
    check_read(b, kiln_argsort(b, kiln_cast(b, x, KILN_F16), 2, 0));
    x = check_input(b, KILN_F32, DIMS(2, 1500), CHECK_FEW);
    check_read(b, kiln_topk(b, x, 20, 1, 0, NULL));
    check_run(b);
    check_end(b);
    check_close();
}

/* Integers of which some digits are alike in all: small ones, one and the same, runs, a few that
 * differ in their last digits, in their first ones, in bits between. */
Test(sort, of_few_digits)
{
    static const kiln_type types[] = {KILN_I32, KILN_I64};
    enum { LENGTH = 4500 };
    static int64_t given[7][LENGTH];
    for (size_t i = 0; i < LENGTH; i++) {
        const int32_t any = (int32_t)check_random(1000);
        const int64_t values[] = {
            any,           7, (int64_t)i / 300, any - 500, 1 << 24 | any % 3, (any % 5) * (1 << 27),
            16 * (any % 9)};
        for (size_t k = 0; k < 7; k++)
            given[k][i] = values[k];
    }
    for (size_t t = 0; t < 2; t++) {
        kiln_batch *b = check_begin();
        kiln_tensor x = kiln_cast(b, check_given(b, KILN_I64, DIMS(7, LENGTH), given), types[t]);
        check_read(b, kiln_argsort(b, x, 1, 0));
        check_read(b, kiln_argsort(b, x, 1, 1));
        check_run(b);
        check_end(b);
    }
    check_close();
}

/* Elements that are stored in another type than they are computed in, read as they lie. */
Test(sort, of_types_that_are_only_stored)
{
    static const int64_t wide[] = {5, -7, 5, INT32_MAX, INT32_MIN, 0};
    static const int8_t narrow[] = {5, -7, 5, 127, -128, 0};
    kiln_batch *b = check_begin();
    kiln_tensor x[] = {check_given(b, KILN_I64, DIMS(6), wide),
                       check_given(b, KILN_I8, DIMS(6), narrow),
                       check_input(b, KILN_F16, DIMS(3, 1500), CHECK_PLAIN),
                       check_input(b, KILN_BF16, DIMS(5, 9), CHECK_PLAIN)};
    for (size_t i = 0; i < 4; i++)
        check_read(b, kiln_argsort(b, x[i], -1, (int)(i % 2)));
    check_read(b, kiln_sort(b, x[0], 0, 1));
    check_run(b);
    check_end(b);
    check_close();
}

Test(sort, of_nothing)
{
    kiln_batch *b = check_begin();
    kiln_tensor none = kiln_fill(b, KILN_F32, DIMS(3, 0), 0),
                lines = kiln_fill(b, KILN_F32, DIMS(0, 3), 0);
    check_read(b, kiln_argsort(b, none, 1, 0));
    check_read(b, kiln_sort(b, lines, 1, 1));
    check_read(b, kiln_topk(b, lines, 2, 1, 0, NULL));
    check_read(b, kiln_topk(b, check_input(b, KILN_F32, DIMS(3, 4), CHECK_PLAIN), 0, 1, 0, NULL));
    check_run(b);
    check_end(b);
    check_close();
}

/* ---- gradients ---- */

Test(sort, gradients)
{
    kiln_batch *b = imagined_batch();
    kiln_tensor x = check_input(b, KILN_F32, DIMS(4, 5), CHECK_PLAIN);
    check_gradient(b, kiln_square(b, kiln_topk(b, x, 2, 0, 1, NULL)), 1, &x, 1e-6, NULL);
    kiln_tensor weights = kiln_cast(b, kiln_iota(b, DIMS(4, 5), 1), KILN_F32);
    check_gradient(b, kiln_mul(b, kiln_sort(b, x, 1, 1), weights), 1, &x, 1e-6, NULL);
    check_end(b);
}

/* ---- errors ---- */

Test(sort, errors)
{
    kiln_batch *b = check_begin();
    kiln_tensor at = {1};
    kiln_topk(b, kiln_fill(b, KILN_F32, DIMS(3, 4), 0), 5, 1, 0, &at);
    cr_expect_eq(at.id, 0u);
    check_refusal(b, KILN_INVALID_ARGUMENT,
                  "kiln_topk: 5 elements are not along axis 1 of shape [3,4]");
    b = check_begin();
    kiln_sort(b, kiln_fill(b, KILN_F32, DIMS(3, 4), 0), 2, 0);
    cr_expect_eq(kiln_batch_status(b), KILN_INVALID_ARGUMENT);
    check_end(b);
    b = check_begin();
    kiln_argsort(b, kiln_constant(b, KILN_F32, 1), 0, 0);
    cr_expect_eq(kiln_batch_status(b), KILN_INVALID_ARGUMENT);
    check_end(b);
    kiln_argsort(NULL, at, 0, 0);
    check_close();
}
