/* SPDX-License-Identifier: Apache-2.0 */
/* The walk of kiln_grad(): what it adds up, leaves out and refuses. The derivatives themselves are
 * in test_grad_operations.c. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "../support/check.h"
#include "../support/context.h"
#include "../support/gradient.h"
#include "../support/graph.h"

/* A value that is used many times gets the sum of what its users give. */
Test(grad, many_users)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = check_positive(batch, DIMS(2, 3));
    kiln_tensor e = kiln_exp(batch, kiln_neg(batch, x));
    kiln_tensor row = kiln_sum(batch, e, 1, (int[]){1}, 1);
    kiln_tensor y = kiln_add(batch, kiln_mul(batch, e, e), kiln_div(batch, e, row));
    y = kiln_sub(batch, y, kiln_mul(batch, x, kiln_log(batch, row)));
    expect_gradient(batch, y, 1, &x);
}

/* Gradients by values in between, one of which depends on the other. */
Test(grad, computed_inputs)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = check_positive(batch, DIMS(3));
    kiln_tensor middle = kiln_square(batch, x), y = kiln_exp(batch, middle), g[3];
    kiln_tensor loss = kiln_sum(batch, y, 0, NULL, 0);
    kiln_grad(batch, loss, (kiln_tensor[]){middle, x, loss}, 3, g);
    double *by_middle = check_values(batch, g[0]), *by_x = check_values(batch, g[1]);
    double *by_loss = check_values(batch, g[2]), *wanted = check_values(batch, y);
    double *at = check_values(batch, x);
    for (size_t i = 0; i < 3; i++) {
        cr_expect_float_eq(by_middle[i], wanted[i], 1e-12);
        cr_expect_float_eq(by_x[i], wanted[i] * 2 * at[i], 1e-9);
    }
    cr_expect_eq(by_loss[0], 1);
    free(by_middle), free(by_x), free(by_loss), free(wanted), free(at);
    check_end(batch);
}

/* The gradient by a repeated matrix itself, not only by the matrix. */
Test(grad, repeated_operand_is_an_input)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor a = check_plain(batch, DIMS(2, 3, 4)), b = check_plain(batch, DIMS(4, 5)), g[2];
    kiln_tensor repeated = kiln_broadcast(batch, b, DIMS(2, 4, 5));
    kiln_tensor loss = kiln_sum(batch, kiln_matmul(batch, a, repeated), 0, NULL, 0);
    expect_ok(kiln_grad(batch, loss, (kiln_tensor[]){repeated, b}, 2, g));
    double *each = check_values(batch, g[0]), *both = check_values(batch, g[1]);
    for (size_t i = 0; i < 20; i++)
        cr_expect_float_eq(each[i] + each[20 + i], both[i], 1e-9);
    cr_expect_neq(each[0], 0);
    free(each), free(both);
    check_end(batch);
}

/* What the loss does not depend on, or only through integers, gets zeros. */
Test(grad, no_dependence)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = check_positive(batch, DIMS(2, 3)), other = check_positive(batch, DIMS(5)), g[3];
    kiln_tensor scalar = check_positive(batch, SCALAR);
    kiln_tensor whole = kiln_cast(batch, kiln_cast(batch, x, KILN_I32), KILN_F32);
    kiln_tensor best = kiln_cast(batch, kiln_argmax(batch, x, 0, NULL, 0), KILN_F32);
    kiln_tensor loss = kiln_add(batch, kiln_sum(batch, whole, 0, NULL, 0), best);
    expect_ok(kiln_grad(batch, loss, (kiln_tensor[]){x, other, scalar}, 3, g));
    expect_zeros(batch, g[0], 6);
    expect_zeros(batch, g[1], 5);
    expect_zeros(batch, g[2], 1);
    check_end(batch);
}

Test(grad, nothing_and_one_element)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = check_positive(batch, DIMS(0, 3)), v = check_positive(batch, DIMS(1, 1)), g[2];
    kiln_tensor loss =
        kiln_add(batch, kiln_sum(batch, kiln_exp(batch, x), 0, NULL, 0), kiln_square(batch, v));
    expect_ok(kiln_grad(batch, loss, (kiln_tensor[]){x, v}, 2, g));
    expect_zeros(batch, g[0], 0);
    double *by_v = check_values(batch, g[1]), *at = check_values(batch, v);
    cr_expect_float_eq(by_v[0], 2 * at[0], 1e-12);
    free(by_v), free(at);
    expect_ok(kiln_grad(batch, loss, NULL, 0, NULL));
    check_end(batch);
}

/* Two layers with all that training has. */
Test(grad, network)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = check_plain(batch, DIMS(5, 4)), target = check_plain(batch, DIMS(5, 3));
    kiln_tensor p[4] = {check_plain(batch, DIMS(4, 6)), check_plain(batch, DIMS(6)),
                        check_plain(batch, DIMS(6, 3)), check_plain(batch, DIMS(3))};
    kiln_tensor h = kiln_tanh(batch, kiln_add(batch, kiln_matmul(batch, x, p[0]), p[1]));
    kiln_tensor z = kiln_add(batch, kiln_matmul(batch, h, p[2]), p[3]);
    kiln_tensor e = kiln_exp(batch, z);
    kiln_tensor s = kiln_div(batch, e, kiln_sum(batch, e, 1, (int[]){1}, 1));
    kiln_tensor loss = kiln_mean(batch, kiln_square(batch, kiln_sub(batch, s, target)), 0, NULL, 0);
    expect_gradient(batch, loss, 4, p);
}

/* Forward, backward and update of two layers with cross-entropy, as few kernels: five products,
 * with biases, relu, its mask and the updates in them, two sums of columns for the biases, and what
 * the rows of the logits take. */
Test(grad, training_step_is_few_kernels)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_matrix(batch, 128, 64), g[4];
    kiln_tensor p[4] = {imagine_matrix(batch, 64, 128), imagine_vector(batch, 128),
                        imagine_matrix(batch, 128, 10), imagine_vector(batch, 10)};
    static int32_t labels[128], classes[10];
    kiln_tensor label = kiln_upload(batch, KILN_I32, DIMS(128, 1), labels);
    kiln_tensor class = kiln_upload(batch, KILN_I32, DIMS(10), classes);
    kiln_tensor h = kiln_relu(batch, kiln_add(batch, kiln_matmul(batch, x, p[0]), p[1]));
    kiln_tensor z = kiln_add(batch, kiln_matmul(batch, h, p[2]), p[3]);
    kiln_tensor s = kiln_log_softmax(batch, z, 1, (int[]){1});
    kiln_tensor picked =
        kiln_where(batch, kiln_equal(batch, label, class), s, kiln_constant(batch, KILN_F32, 0));
    kiln_tensor loss = kiln_scale(batch, kiln_sum(batch, picked, 0, NULL, 0), -1.0 / 128);
    size_t before = kiln_batch_operation_count(batch);
    expect_ok(kiln_grad(batch, loss, p, 4, g));
    cr_expect_leq(kiln_batch_operation_count(batch) - before, 45, "%zu operations backward",
                  kiln_batch_operation_count(batch) - before);
    for (unsigned i = 0; i < 4; i++)
        ask(batch, kiln_sub(batch, p[i], kiln_scale(batch, g[i], 0.1)));
    ask(batch, loss);
    struct kiln__plan plan = plan_of(batch, true);
    cr_expect_leq(plan.launches.count, 10, "%zu launches", plan.launches.count);
    kiln__plan_free(&plan);
    kiln_batch_release(batch);
}

Test(grad, detached)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = check_positive(batch, DIMS(4)), g[2];
    kiln_tensor still = kiln_detach(batch, kiln_square(batch, x));
    kiln_tensor loss = kiln_sum(batch, kiln_mul(batch, x, still), 0, NULL, 0);
    expect_ok(kiln_grad(batch, loss, (kiln_tensor[]){x, still}, 2, g));
    double *by_x = check_values(batch, g[0]), *by_still = check_values(batch, g[1]);
    double *at = check_values(batch, x);
    for (size_t i = 0; i < 4; i++) {
        cr_expect_float_eq(by_x[i], at[i] * at[i], 1e-12);
        cr_expect_float_eq(by_still[i], at[i], 1e-12);
    }
    free(by_x), free(by_still), free(at);
    check_end(batch);
}

/* a^b log(a) of a = 0: 0 up to b = 0, where a^b is 0 or does not grow, and then without a bound. As
 * torch.pow has it. */
Test(grad, power_of_zero_by_the_exponent)
{
    static const float zeros[4] = {0, 0, 0, 0}, exponents[4] = {2, 0.5, 0, -1};
    static const double wanted[4] = {0, 0, 0, -INFINITY};
    kiln_batch *batch = imagined_batch();
    kiln_tensor a = check_given(batch, KILN_F32, DIMS(4), zeros);
    kiln_tensor b = check_given(batch, KILN_F32, DIMS(4), exponents), g;
    kiln_tensor loss = kiln_sum(batch, kiln_pow(batch, a, b), 0, NULL, 0);
    expect_ok(kiln_grad(batch, loss, &b, 1, &g));
    double *found = check_values(batch, g);
    for (size_t i = 0; i < 4; i++)
        cr_expect_eq(found[i], wanted[i], "%g: %g", exponents[i], found[i]);
    free(found);
    check_end(batch);
}

/* ---- misuse ---- */

static void expect_refused(kiln_batch *batch, kiln_status status, const char *sentence,
                           const kiln_tensor *out, size_t n)
{
    cr_expect_eq(kiln_batch_status(batch), status);
    cr_expect_str_eq(without_call(kiln_batch_error(batch)), sentence);
    for (size_t i = 0; i < n; i++)
        cr_expect_eq(out[i].id, 0);
    check_end(batch);
}

Test(grad, losses_are_checked)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = check_plain(batch, DIMS(3)), g[2] = {{7}, {7}};
    kiln_grad(batch, x, &x, 1, g);
    expect_refused(batch, KILN_SHAPE_MISMATCH,
                   "kiln_grad: loss has shape [3], and a gradient is one of a single element; sum "
                   "it",
                   g, 1);

    batch = imagined_batch();
    x = check_input(batch, KILN_I32, DIMS(1), CHECK_PLAIN);
    kiln_grad(batch, x, &x, 1, g);
    expect_refused(batch, KILN_TYPE_MISMATCH,
                   "kiln_grad: loss is i32, and only floating types have a gradient", g, 1);

    batch = imagined_batch();
    x = check_plain(batch, DIMS(1));
    kiln_grad(batch, (kiln_tensor){0}, &x, 1, g);
    expect_refused(batch, KILN_INVALID_HANDLE, "kiln_grad: operand loss is the empty tensor", g, 1);
}

Test(grad, inputs_are_checked)
{
    kiln_batch *batch, *another = imagined_batch();
    kiln_tensor foreign = check_plain(another, DIMS(3)), x, g[2] = {{7}, {7}};
    batch = imagined_batch();
    x = check_plain(batch, DIMS(1));
    g[1] = check_input(batch, KILN_I32, DIMS(1), CHECK_PLAIN);
    kiln_grad(batch, x, (kiln_tensor[]){x, g[1]}, 2, g);
    expect_refused(batch, KILN_TYPE_MISMATCH,
                   "kiln_grad: inputs[1] is i32, and only floating types have a gradient", g, 2);

    batch = imagined_batch();
    x = check_plain(batch, DIMS(1));
    kiln_grad(batch, x, &foreign, 1, g);
    expect_refused(batch, KILN_INVALID_HANDLE,
                   "kiln_grad: operand inputs[0] is a tensor of another batch, or of this one "
                   "before a reset",
                   g, 1);

    batch = imagined_batch();
    x = check_plain(batch, DIMS(1));
    kiln_grad(batch, x, NULL, 1, g);
    expect_refused(batch, KILN_INVALID_ARGUMENT, "kiln_grad: inputs is NULL", g, 1);

    batch = imagined_batch();
    x = check_plain(batch, DIMS(1));
    kiln_grad(batch, x, &x, 1, NULL);
    expect_refused(batch, KILN_INVALID_ARGUMENT, "kiln_grad: out is NULL", NULL, 0);

    cr_expect_eq(kiln_grad(NULL, x, &x, 1, g), KILN_INVALID_ARGUMENT);
    cr_expect_str_eq(kiln_last_error(), "kiln_grad: batch is NULL");
    kiln_batch_release(another);
}
