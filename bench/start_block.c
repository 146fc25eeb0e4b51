/* SPDX-License-Identifier: Apache-2.0 */
/* A training step of a transformer's block: attention and two layers, each behind a layer norm and
 * added to what it read; mean squared error; Adam. Forward, backward and update are one batch, of
 * many kernels. */
#include "start.h"

#include <stdlib.h>

enum { SEQUENCES = 2, LENGTH = 64, WIDTH = 128, HEADS = 4, INNER = 4 * WIDTH };

enum parameter { QUERY, KEY, VALUE, OUT, UP, UP_BIAS, DOWN, DOWN_BIAS, SCALE, SHIFT, PARAMETERS };

static const struct {
    size_t rank, dims[2];
} shapes[PARAMETERS] = {
    [QUERY] = {2, {WIDTH, WIDTH}}, [KEY] = {2, {WIDTH, WIDTH}}, [VALUE] = {2, {WIDTH, WIDTH}},
    [OUT] = {2, {WIDTH, WIDTH}},   [UP] = {2, {WIDTH, INNER}},  [UP_BIAS] = {1, {INNER}},
    [DOWN] = {2, {INNER, WIDTH}},  [DOWN_BIAS] = {1, {WIDTH}},  [SCALE] = {1, {WIDTH}},
    [SHIFT] = {1, {WIDTH}},
};

static kiln_tensor normalize(kiln_batch *b, kiln_tensor x, const kiln_tensor *p)
{
    const int last = 1;
    return kiln_layer_norm(b, x, p[SCALE], p[SHIFT], 1, &last, 1e-5);
}

/* [rows, width] to [sequences, heads, length, width of a head] */
static kiln_tensor apart(kiln_batch *b, kiln_tensor x)
{
    const size_t dims[] = {SEQUENCES, LENGTH, HEADS, WIDTH / HEADS}, axes[] = {0, 2, 1, 3};
    return kiln_transpose(b, kiln_reshape(b, x, 4, dims), axes);
}

static kiln_tensor together(kiln_batch *b, kiln_tensor x)
{
    const size_t dims[] = {SEQUENCES * LENGTH, WIDTH}, axes[] = {0, 2, 1, 3};
    return kiln_reshape(b, kiln_transpose(b, x, axes), 2, dims);
}

static kiln_tensor forward(kiln_batch *b, kiln_tensor x, const kiln_tensor *p)
{
    kiln_tensor y = normalize(b, x, p), parts[3];
    for (int i = 0; i < 3; i++)
        parts[i] = apart(b, kiln_matmul(b, y, p[QUERY + i]));
    y = together(b, kiln_attention(b, parts[0], parts[1], parts[2], (kiln_tensor){0}, NULL));
    x = kiln_add(b, x, kiln_matmul(b, y, p[OUT]));
    y = kiln_add(b, kiln_matmul(b, normalize(b, x, p), p[UP]), p[UP_BIAS]);
    y = kiln_add(b, kiln_matmul(b, kiln_gelu(b, y), p[DOWN]), p[DOWN_BIAS]);
    return kiln_add(b, x, y);
}

static kiln_buffer *make_parameter(kiln_context *context, size_t i)
{
    kiln_buffer *buffer;
    bench_ok(kiln_buffer_create(context, KILN_F32, shapes[i].rank, shapes[i].dims, &buffer),
             "a parameter");
    size_t count = kiln_buffer_bytes(buffer) / sizeof(float);
    float *values = bench_floats(count, (unsigned)i + 3);
    for (size_t k = 0; k < count; k++)
        values[k] = i == SCALE ? 1 : values[k] * 0.1F;
    bench_ok(kiln_buffer_write(buffer, 0, values, count * sizeof *values), "a parameter");
    free(values);
    return buffer;
}

kiln_batch *start_block(kiln_context *context, float *loss)
{
    static float *x, *target;
    const size_t dims[] = {SEQUENCES * LENGTH, WIDTH};
    const kiln_optimizer_options adam = KILN_ADAM_INIT;
    kiln_buffer *buffers[PARAMETERS];
    kiln_tensor p[PARAMETERS], gradients[PARAMETERS];
    kiln_optimizer *optimizer;
    x = bench_floats(dims[0] * dims[1], 1);
    target = bench_floats(dims[0] * dims[1], 2);
    for (size_t i = 0; i < PARAMETERS; i++)
        buffers[i] = make_parameter(context, i);
    bench_ok(kiln_optimizer_create(context, &adam, PARAMETERS, buffers, &optimizer), "Adam");
    kiln_batch *b = kiln_batch_create(context);
    for (size_t i = 0; i < PARAMETERS; i++)
        p[i] = kiln_import(b, buffers[i]);
    kiln_tensor y = forward(b, kiln_upload(b, KILN_F32, 2, dims, x), p);
    kiln_tensor mean = kiln_mean_squared_error(b, y, kiln_upload(b, KILN_F32, 2, dims, target));
    bench_ok(kiln_grad(b, mean, p, PARAMETERS, gradients), "gradients");
    bench_ok(kiln_optimizer_step(b, optimizer, gradients), "a step");
    bench_ok(kiln_read(b, mean, loss, sizeof *loss), "recording");
    kiln_optimizer_release(optimizer);
    for (size_t i = 0; i < PARAMETERS; i++)
        kiln_buffer_release(buffers[i]);
    return b;
}
