/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients on the device: as the reference, and as others compute them. */
#include <criterion/criterion.h>
#include <math.h>

#include "../support/check.h"
#include "../support/context.h"
#include "ops/ops.h"

#define N 301 /* whole vectors and a rest */

/* Ask for the gradients of y, summed, by n inputs. */
static void read_gradients(kiln_batch *batch, kiln_tensor y, size_t n, const kiln_tensor *inputs)
{
    kiln_tensor g[4];
    kiln_tensor loss = kiln_sum(batch, y, 0, NULL, 0);
    expect_ok(kiln_grad(batch, loss, inputs, n, g));
    for (size_t i = 0; i < n; i++)
        check_read(batch, g[i]);
}

/* Rows whose derivatives are of different kinds; test_grad_operations has them all, without a
 * device. */
Test(grad_device, rows)
{
    static const unsigned rows[] = {KILN__OP_div,     KILN__OP_maximum, KILN__OP_abs,
                                    KILN__OP_relu,    KILN__OP_gelu,    KILN__OP_clamp,
                                    KILN__OP_sigmoid, KILN__OP_swish};
    kiln_batch *batch = check_begin();
    kiln_tensor x[2] = {check_positive(batch, DIMS(N)), check_positive(batch, DIMS(N))};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        read_gradients(batch, check_elementwise(batch, rows[i], x),
                       kiln__elementwise_rows[rows[i]].tensors, x);
    check_run(batch);
    check_end(batch);
    check_close();
}

Test(grad_device, reductions)
{
    kiln_batch *batch = check_begin();
    kiln_tensor x = check_positive(batch, DIMS(7, 45));
    kiln_tensor small = kiln_scale(batch, x, 0.5);
    read_gradients(batch, kiln_max(batch, x, 1, (int[]){1}, 0), 1, &x);
    read_gradients(batch, kiln_product(batch, small, 1, (int[]){0}, 0), 1, &x);
    check_run(batch);
    check_end(batch);
    check_close();
}

Test(grad_device, movement_and_products)
{
    kiln_batch *batch = check_begin();
    kiln_tensor x = check_positive(batch, DIMS(2, 9, 11, 3)),
                w = check_positive(batch, DIMS(18, 5)), g[2];
    kiln_tensor windows = kiln_windows(batch, x, 1, 2, (size_t[]){3, 2}, (size_t[]){2, 1}, NULL);
    kiln_tensor patches = kiln_reshape(batch, windows, DIMS(2 * 4 * 10, 18));
    kiln_tensor y = kiln_relu(batch, kiln_matmul(batch, patches, w));
    kiln_tensor part =
        kiln_slice(batch, y, (int64_t[]){70, 1}, (int64_t[]){9, 5}, (int64_t[]){-7, 2});
    y = kiln_insert_slice(batch, kiln_square(batch, y), part, (int64_t[]){3, 0}, NULL);
    expect_ok(kiln_grad(batch, kiln_mean(batch, y, 0, NULL, 0), (kiln_tensor[]){x, w}, 2, g));
    check_read(batch, g[0]);
    check_read(batch, g[1]);
    check_run(batch);
    check_end(batch);
    check_close();
}

/* A network of two layers, softmax and cross-entropy; its step updates the weights in place. */
struct network {
    kiln_buffer *weights[4];
    kiln_tensor parameter[4], gradient[4], loss;
};

static const size_t network_dims[4][2] = {{4, 6}, {6, 0}, {6, 3}, {3, 0}};

static void make_weights(struct network *net)
{
    for (unsigned i = 0; i < 4; i++) {
        float values[24];
        size_t rank = network_dims[i][1] ? 2 : 1, count = 1;
        for (size_t d = 0; d < rank; d++)
            count *= network_dims[i][d];
        for (size_t e = 0; e < count; e++)
            values[e] = (float)((double)((e * 7 + i * 3) % 13) / 13 - 0.45);
        expect_ok(
            kiln_buffer_create(check_context(), KILN_F32, rank, network_dims[i], &net->weights[i]));
        expect_ok(kiln_buffer_write(net->weights[i], 0, values, count * sizeof *values));
    }
}

static void record_network(kiln_batch *batch, struct network *net)
{
    float x[8 * 4], target[8 * 3] = {0};
    for (size_t i = 0; i < 32; i++)
        x[i] = (float)((double)(i * 5 % 17) / 8 - 1);
    for (size_t i = 0; i < 8; i++)
        target[i * 3 + i % 3] = 1;
    kiln_tensor a = check_given(batch, KILN_F32, DIMS(8, 4), x), *p = net->parameter;
    kiln_tensor t = check_given(batch, KILN_F32, DIMS(8, 3), target);
    for (unsigned i = 0; i < 4; i++)
        p[i] = kiln_import(batch, net->weights[i]);
    kiln_tensor h = kiln_relu(batch, kiln_add(batch, kiln_matmul(batch, a, p[0]), p[1]));
    kiln_tensor z = kiln_add(batch, kiln_matmul(batch, h, p[2]), p[3]);
    kiln_tensor s = kiln_log_softmax(batch, z, 1, (int[]){1});
    net->loss = kiln_scale(batch, kiln_sum(batch, kiln_mul(batch, s, t), 0, NULL, 0), -0.125);
    expect_ok(kiln_grad(batch, net->loss, p, 4, net->gradient));
}

static void release_network(struct network *net)
{
    for (unsigned i = 0; i < 4; i++)
        kiln_buffer_release(net->weights[i]);
}

/* Forward, backward and update are one batch, run again and again; the losses are those of a
 * program in Python with derivatives written by hand, in double precision. */
Test(grad_device, training_step)
{
    static const double losses[] = {1.06970649272, 0.992978481851, 0.936325833807, 0.889867062232,
                                    0.853167903365};
    struct network net;
    float loss;
    make_weights(&net);
    kiln_batch *batch = check_begin();
    record_network(batch, &net);
    for (unsigned i = 0; i < 4; i++) {
        kiln_tensor step = kiln_scale(batch, net.gradient[i], 0.5);
        expect_ok(kiln_export(batch, kiln_sub(batch, net.parameter[i], step), net.weights[i]));
    }
    expect_ok(kiln_read(batch, net.loss, &loss, sizeof loss));
    for (size_t i = 0; i < 5; i++) {
        expect_ok(kiln_batch_execute(batch));
        cr_expect_float_eq((double)loss, losses[i], 2e-6, "step %zu: %.9g", i, (double)loss);
    }
    check_end(batch);
    release_network(&net);
    check_close();
}
