/* SPDX-License-Identifier: Apache-2.0 */
/* Einstein's sums: numpy 2.4's answers in float64, integers, gradients, errors. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "../support/gradient.h"
#include "../support/graph.h"
#include "../support/movement.h"
#include "../support/pattern.h"

struct row {
    const char *equation;
    size_t n;
    struct {
        size_t rank, dims[4];
        unsigned salt;
    } operand[3];
    size_t count;
    double answer[24];
};

static const struct row rows[] = {
    {"ij,jk->ik",
     2,
     {{2, {2, 3}, 1}, {2, {3, 4}, 2}},
     8,
     {0.421875, 0.0625, 1.703125, 1.75, 2.34375, -0.796875, -0.265625, -0.015625}},
    {"ij,jk",
     2,
     {{2, {2, 3}, 1}, {2, {3, 4}, 2}},
     8,
     {0.421875, 0.0625, 1.703125, 1.75, 2.34375, -0.796875, -0.265625, -0.015625}},
    {"bij,bjk->kbi",
     2,
     {{3, {2, 3, 4}, 3}, {3, {2, 4, 2}, 4}},
     12,
     {0.28125, -0.203125, -1.421875, 3.203125, 2.828125, 2.328125, -1.859375, 0.171875, -0.875,
      0.703125, 1.25, 0.546875}},
    {"...ij,...jk",
     2,
     {{3, {2, 3, 4}, 3}, {3, {2, 4, 2}, 4}},
     12,
     {0.28125, -1.859375, -0.203125, 0.171875, -1.421875, -0.875, 3.203125, 0.703125, 2.828125,
      1.25, 2.328125, 0.546875}},
    {"ij->ji", 1, {{2, {2, 3}, 1}}, 6, {-1.25, -1, 0, -0.375, -0.875, 1}},
    {"ij->", 1, {{2, {2, 3}, 1}}, 1, {-2.5}},
    {"ij->j", 1, {{2, {2, 3}, 1}}, 3, {-2.25, -0.375, 0.125}},
    {"ii->i", 1, {{2, {3, 3}, 5}}, 3, {-0.75, 0.125, -1.375}},
    {"ii", 1, {{2, {3, 3}, 5}}, 1, {-2}},
    {"...ii->...i", 1, {{3, {2, 3, 3}, 6}}, 6, {-0.625, 0.25, -1.25, 0.25, -0.625, -1}},
    {"i,j->ji",
     2,
     {{1, {3}, 1}, {1, {4}, 2}},
     12,
     {1.40625, 0, 0.984375, -0.15625, 0, -0.109375, 0.9375, 0, 0.65625, 1.09375, 0, 0.765625}},
    {"ij,ij->", 2, {{2, {2, 3}, 1}, {2, {2, 3}, 2}}, 1, {4.15625}},
    {"ij,kj->ik",
     2,
     {{2, {2, 3}, 1}, {2, {3, 3}, 5}},
     6,
     {1.265625, 1.828125, 0.265625, 0.1875, -0.921875, -2.40625}},
    {"ij,jk,bkl->bil",
     3,
     {{2, {2, 3}, 1}, {2, {3, 4}, 2}, {3, {2, 4, 2}, 4}},
     8,
     {0.693359375, 3.5546875, -1.66210938, 1.00195312, -1.2265625, -3.49023438, 3.64257812,
      0.6484375}},
    {"bijk,jl->bikl",
     2,
     {{4, {2, 2, 3, 2}, 3}, {2, {3, 2}, 9}},
     16,
     {0.09375, -0.890625, 0.625, -0.84375, -0.4375, 1.15625, -0.53125, 1.046875, -0.046875, 0.46875,
      -0.765625, 0.203125, 0.546875, -0.078125, -0.4375, -0.5}},
    {"i...,i...->...",
     2,
     {{3, {2, 3, 2}, 3}, {3, {2, 3, 2}, 4}},
     6,
     {1.1875, 0.40625, 2.03125, 0.46875, 0.46875, 2.03125}},
    {"ij,b...j->b...i",
     2,
     {{2, {3, 3}, 5}, {3, {2, 2, 3}, 6}},
     12,
     {0.875, 0.734375, 0.34375, 0.875, 1.9375, 1.625, 0.25, 1.390625, 3.03125, -0.28125, 0.171875,
      0.25}},
    {"a b , b c -> a c",
     2,
     {{2, {2, 3}, 1}, {2, {3, 2}, 2}},
     4,
     {1.625, -1.140625, 1.15625, 1.328125}},
    {"bi,bj->bij",
     2,
     {{2, {2, 3}, 1}, {2, {2, 2}, 7}},
     12,
     {0.625, -0.9375, 0, 0, 0.4375, -0.65625, 0.125, 0.25, 0.046875, 0.09375, -0.125, -0.25}},
    {"ij,j->i", 2, {{2, {2, 3}, 1}, {1, {3}, 2}}, 2, {2.0625, 0.328125}},
    {"...j,j", 2, {{3, {2, 2, 3}, 1}, {1, {3}, 2}}, 4, {2.0625, 0.328125, -1, 0.953125}},
    {"ijk,jk->ki", 2, {{3, {2, 3, 2}, 1}, {2, {3, 2}, 2}}, 4, {2.15625, -0.78125, 2, -0.625}},
    {"ba,c->bca",
     2,
     {{2, {2, 3}, 1}, {1, {2}, 2}},
     12,
     {1.40625, 0, 0.984375, -0.15625, 0, -0.109375, 1.125, 0.421875, -1.125, -0.125, -0.046875,
      0.125}},
    {"...a,...a->...",
     2,
     {{3, {1, 2, 3}, 1}, {3, {2, 1, 3}, 2}},
     4,
     {2.0625, 0.328125, 0.109375, 2.09375}},
};

static kiln_tensor record(kiln_batch *b, const struct row *row, kiln_tensor *operands)
{
    for (size_t i = 0; i < row->n; i++)
        operands[i] = pattern(b, row->operand[i].rank, row->operand[i].dims, row->operand[i].salt);
    return kiln_einsum(b, row->equation, row->n, operands);
}

/* All in one batch: few kernels to compile. */
Test(einsum, known)
{
    enum { ROWS = sizeof rows / sizeof *rows };
    const float *found[ROWS];
    kiln_tensor operands[3];
    kiln_batch *b = check_begin();
    for (size_t i = 0; i < ROWS; i++) {
        kiln_tensor y = record(b, &rows[i], operands);
        cr_assert_eq(kiln_batch_status(b), KILN_OK, "%s: %s", rows[i].equation,
                     kiln_batch_error(b));
        cr_assert_eq(kiln__node_count(kiln__batch_node(b, y, "test", "y")), rows[i].count, "%s",
                     rows[i].equation);
        found[i] = check_read(b, y);
    }
    check_run(b);
    for (size_t i = 0; i < ROWS; i++)
        for (size_t k = 0; k < rows[i].count; k++)
            cr_expect_float_eq((double)found[i][k], rows[i].answer[k], 1e-5, "%s: %g, not %g",
                               rows[i].equation, (double)found[i][k], rows[i].answer[k]);
    check_end(b);
    check_close();
}

Test(einsum, integers_and_nothing)
{
    kiln_batch *b = check_begin();
    kiln_tensor x[] = {counted(b, DIMS(2, 3)), counted_from(b, 1, DIMS(3, 2))};
    kiln_type type;
    kiln_tensor sums = kiln_einsum(b, "ij,jk->ik", 2, x);
    expect_ok(kiln_tensor_shape(b, sums, &type, NULL, NULL));
    cr_expect_eq(type, KILN_I64, "sums of integers are i64");
    EXPECT_ELEMENTS(b, kiln_cast(b, sums, KILN_I32), 13, 16, 40, 52);
    b = check_begin();
    kiln_tensor y[] = {kiln_fill(b, KILN_F32, DIMS(2, 0), 1),
                       kiln_fill(b, KILN_F32, DIMS(0, 3), 1)};
    static const double zeros[6];
    EXPECT_PATTERN(b, kiln_einsum(b, "ij,jk->ik", 2, y), zeros);
    check_close();
}

Test(einsum, gradients)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i += 3) {
        kiln_batch *b = imagined_batch();
        kiln_tensor operands[3];
        kiln_tensor y = record(b, &rows[i], operands);
        check_gradient(b, kiln_square(b, y), rows[i].n, operands, 1e-6, NULL);
        check_end(b);
    }
}

Test(einsum, errors)
{
    static const struct {
        const char *equation, *what;
    } wrong[] = {
        {"ij,j1->i", "has something else than letters, commas, one ... a term and ->"},
        {"ij->i", "has not as many terms as there are operands"},
        {"ij,jk,kl->il", "has not as many terms as there are operands"},
        {"i,jk->ik", "has a term that is not of its operand's rank"},
        {"ij,ik->jk", "gives one letter to dimensions of different size"},
        {"ij,jk->ix", "has a letter in its result that no operand has"},
        {"ij,jk->ii", "has a letter twice in its result"},
        {"ij,jk->ik,k", "goes on behind its result"},
        {"abcdefghi,jk->a", "has a term of more than 8 letters"},
    };
    char sentence[160];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        kiln_batch *b = check_begin();
        kiln_tensor x[] = {pattern(b, DIMS(2, 3), 1), pattern(b, DIMS(3, 4), 2)};
        cr_expect_eq(kiln_einsum(b, wrong[i].equation, 2, x).id, 0u);
        snprintf(sentence, sizeof sentence, "kiln_einsum: \"%s\" %s", wrong[i].equation,
                 wrong[i].what);
        check_refusal(b, KILN_INVALID_ARGUMENT, sentence);
    }
    kiln_batch *b = check_begin();
    kiln_einsum(b, NULL, 0, NULL);
    cr_expect_eq(kiln_batch_status(b), KILN_INVALID_ARGUMENT);
    check_end(b);
    check_close();
}
