/* SPDX-License-Identifier: Apache-2.0 */
/* Recurrent layers against PyTorch's, as weighted sums; what has no like there against itself said
 * otherwise; derivatives; cost; what is refused. Most of it is computed by the reference, without a
 * device. */
#include <criterion/criterion.h>
#include <kiln/recurrent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../support/gradient.h"
#include "record/batch.h"

#define T 4
#define B 2
#define I 3
#define H 2

/* PyTorch's results: all states, the last ones, the last cells; with lengths 4 and 2 all states and
 * the last ones. */
static const struct known {
    size_t gates, directions;
    double y, h, c, y_cut, h_cut;
} known[] = {
    /* clang-format off */
    {1, 1, 68.2307349, 0.566002589, 0, 50.5014445, 11.7748316},
    {1, 2, 89.3378445, 12.8386327, 0, 80.2506754, 24.1014514},
    {3, 1, -32.2613401, 2.0097943, 0, -20.3146942, -5.06494558},
    {3, 2, -34.4660515, 3.74332315, 0, -29.3585222, -3.20699221},
    {4, 1, -32.0203413, -4.64802534, -8.98029659, -21.0858103, -5.05632668},
    {4, 2, -7.98911413, 1.94507949, 10.8076238, -5.16109916, 1.34443495},
    /* clang-format on */
};
#define COUNT(array) (sizeof(array) / sizeof *(array))

static kiln_tensor generated(kiln_batch *b, size_t rank, const size_t *dims, unsigned factor,
                             unsigned first, unsigned period)
{
    float data[256];
    for (size_t i = 0; i < 256; i++)
        data[i] = ((float)((i * factor + first) % period) - (float)(period / 2)) / 8;
    return check_given(b, KILN_F32, rank, dims, data);
}

static kiln_recurrent layer_of(kiln_batch *b, size_t gates, size_t d)
{
    kiln_recurrent layer = KILN_RECURRENT_INIT;
    layer.x = generated(b, DIMS(T, B, I), 11, 5, 17);
    layer.w = generated(b, DIMS(d, gates * H, I), 7, 3, 11);
    layer.r = generated(b, DIMS(d, gates * H, H), 5, 1, 7);
    layer.bias = generated(b, DIMS(d, 2 * gates * H), 3, 2, 13);
    layer.h = generated(b, DIMS(d, B, H), 3, 1, 5);
    layer.c = generated(b, DIMS(d, B, H), 5, 2, 7);
    layer.direction = d == 2 ? KILN_BIDIRECTIONAL : KILN_FORWARD;
    layer.gates = KILN_GATES_PYTORCH;
    layer.linear_before_reset = 1;
    return layer;
}

/* Whose layers are recorded step by step everywhere (test_recurrent_kernel.c has the kernel). */
static kiln_batch *begin_steps(void)
{
    kiln_batch *b = check_begin();
    b->limits.vector = 0;
    return b;
}

static kiln_tensor record(kiln_batch *b, size_t gates, const kiln_recurrent *layer, kiln_tensor *h,
                          kiln_tensor *c)
{
    *c = (kiln_tensor){0};
    return gates == 1   ? kiln_rnn(b, layer, h)
           : gates == 3 ? kiln_gru(b, layer, h)
                        : kiln_lstm(b, layer, h, c);
}

static void expect_sum(kiln_batch *b, kiln_tensor x, double wanted, const struct known *k,
                       const char *what)
{
    cr_assert(!kiln_batch_status(b), "%s", kiln_batch_error(b));
    double sum = check_sum(b, x);
    cr_expect_float_eq(sum, wanted, 1e-5, "%zu gates, %zu directions, %s: %.9g, not %.9g", k->gates,
                       k->directions, what, sum, wanted);
}

Test(recurrent, as_pytorch_has_them)
{
    static const int32_t lengths[B] = {4, 2};
    for (const struct known *k = known; k < known + COUNT(known); k++) {
        kiln_tensor h, c;
        kiln_batch *b = check_begin();
        kiln_recurrent layer = layer_of(b, k->gates, k->directions);
        expect_sum(b, record(b, k->gates, &layer, &h, &c), k->y, k, "states");
        expect_sum(b, h, k->h, k, "last states");
        if (k->gates == 4)
            expect_sum(b, c, k->c, k, "last cells");
        layer.lengths = check_given(b, KILN_I32, DIMS(B), lengths);
        expect_sum(b, record(b, k->gates, &layer, &h, &c), k->y_cut, k, "states of lengths");
        expect_sum(b, h, k->h_cut, k, "last states of lengths");
        check_end(b);
    }
    check_close();
}

Test(recurrent, runs)
{
    static const int32_t lengths[B] = {2, 4};
    kiln_tensor h, c;
    kiln_batch *b = begin_steps();
    for (size_t gates = 3; gates <= 4; gates++) {
        kiln_recurrent layer = layer_of(b, gates, 2);
        layer.lengths = check_given(b, KILN_I32, DIMS(B), lengths);
        check_read(b, record(b, gates, &layer, &h, &c));
        check_read(b, h);
    }
    check_run(b);
    check_end(b);
    check_close();
}

/* Gates in ONNX' order are the same ones in other places. */
Test(recurrent, gates_in_another_order)
{
    static const int order[] = {0, 2, 3, 1}; /* of PyTorch's gates: where ONNX has them */
    float w[4 * H * I], r[4 * H * H], w_onnx[4 * H * I], r_onnx[4 * H * H];
    for (int i = 0; i < 4 * H * I; i++)
        w[i] = (float)((i * 7 + 3) % 11 - 5) / 8;
    for (int i = 0; i < 4 * H * H; i++)
        r[i] = (float)((i * 5 + 1) % 7 - 3) / 8;
    for (int g = 0; g < 4; g++) {
        memcpy(w_onnx + order[g] * H * I, w + g * H * I, sizeof(float) * H * I);
        memcpy(r_onnx + order[g] * H * H, r + g * H * H, sizeof(float) * H * H);
    }
    kiln_batch *b = check_begin();
    kiln_recurrent layer = KILN_RECURRENT_INIT;
    layer.x = generated(b, DIMS(T, B, I), 11, 5, 17);
    layer.w = check_given(b, KILN_F32, DIMS(1, 4 * H, I), w_onnx);
    layer.r = check_given(b, KILN_F32, DIMS(1, 4 * H, H), r_onnx);
    kiln_tensor y = kiln_lstm(b, &layer, NULL, NULL);
    layer.w = check_given(b, KILN_F32, DIMS(1, 4 * H, I), w);
    layer.r = check_given(b, KILN_F32, DIMS(1, 4 * H, H), r);
    layer.gates = KILN_GATES_PYTORCH;
    double *found = check_values(b, kiln_sub(b, y, kiln_lstm(b, &layer, NULL, NULL)));
    for (int i = 0; i < T * B * H; i++)
        cr_expect_float_eq(found[i], 0, 1e-12);
    free(found);
    check_end(b);
    check_close();
}

/* One step written out: clipped sums, peepholes, coupled gates, other functions. */
Test(recurrent, with_every_option)
{
    static const float one[] = {0.5f}, w[] = {1, 2, 3, 4}, r[] = {0, 0, 0, 0},
                       p[] = {0.5f, 0.25f, 2};
    kiln_batch *b = begin_steps();
    kiln_recurrent layer = KILN_RECURRENT_INIT;
    layer.x = check_given(b, KILN_F32, DIMS(1, 1, 1), one);
    layer.w = check_given(b, KILN_F32, DIMS(1, 4, 1), w);
    layer.r = check_given(b, KILN_F32, DIMS(1, 4, 1), r);
    layer.c = check_given(b, KILN_F32, DIMS(1, 1, 1), one);
    layer.peephole = check_given(b, KILN_F32, DIMS(1, 3), p);
    layer.clip = 1.5;
    layer.input_forget = 1;
    layer.activation[0][1] = kiln_relu;
    kiln_tensor last, cells;
    kiln_lstm(b, &layer, &last, &cells);
    double i = 1 / (1 + exp(-(0.5 + 0.5 * 0.5))), c = (1 - i) * 0.5 + i * 1.5;
    double o = 1 / (1 + exp(-fmin(1 + 0.25 * c, 1.5)));
    double *found = check_values(b, cells);
    cr_expect_float_eq(found[0], c, 1e-9, "%.9g, not %.9g", found[0], c);
    free(found);
    found = check_values(b, last);
    cr_expect_float_eq(found[0], o * tanh(c), 1e-9, "%.9g", found[0]);
    free(found);
    check_end(b);
    check_close();
}

Test(recurrent, without_steps)
{
    kiln_batch *b = check_begin();
    kiln_recurrent layer = layer_of(b, 3, 1);
    kiln_tensor last;
    size_t rank, dims[KILN_MAX_RANK];
    layer.x = check_plain(b, DIMS(0, B, I));
    layer.h = (kiln_tensor){0};
    kiln_tensor y = kiln_gru(b, &layer, &last);
    expect_ok(kiln_tensor_shape(b, y, NULL, &rank, dims));
    cr_expect(rank == 4 && dims[0] == 0 && dims[1] == 1 && dims[2] == B && dims[3] == H);
    double *found = check_values(b, last);
    for (int i = 0; i < B * H; i++)
        cr_expect_eq(found[i], 0);
    free(found);
    check_end(b);
    check_close();
}

Test(recurrent, has_derivatives)
{
    for (const struct known *k = known + 1; k < known + COUNT(known); k += 2) {
        kiln_tensor h, c;
        kiln_batch *b = begin_steps();
        kiln_recurrent layer = layer_of(b, k->gates, k->directions);
        kiln_tensor inputs[] = {layer.x, layer.w, layer.r, layer.bias, layer.h};
        kiln_tensor y = record(b, k->gates, &layer, &h, &c);
        expect_gradient(b, y, 5, inputs);
    }
    check_close();
}

/* ---- cost ---- */

static kiln_tensor weights(kiln_batch *b, size_t rank, const size_t *dims, kiln_buffer **buffer)
{
    expect_ok(kiln_buffer_create(check_context(), KILN_F32, rank, dims, buffer));
    return kiln_import(b, *buffer);
}

/* A step of an LSTM is a product, its gates, and a copy to where the result is. */
Test(recurrent, steps_are_three_launches)
{
    kiln_buffer *buffer[2];
    kiln_batch *b = begin_steps();
    kiln_recurrent layer = KILN_RECURRENT_INIT;
    layer.x = check_plain(b, DIMS(50, 2, 8));
    layer.w = weights(b, DIMS(1, 64, 8), &buffer[0]);
    layer.r = weights(b, DIMS(1, 64, 16), &buffer[1]);
    check_read(b, kiln_lstm(b, &layer, NULL, NULL));
    cr_expect_leq(cost_of(b).launches, 3 * 50 + 5, "%zu", (size_t)cost_of(b).launches);
    check_end(b);
    kiln_buffer_release(buffer[0]);
    kiln_buffer_release(buffer[1]);
    check_close();
}

/* ---- errors ---- */

#define EXPECT(field, value, status, part)                                                         \
    do {                                                                                           \
        kiln_batch *b = check_begin();                                                             \
        kiln_recurrent layer = layer_of(b, 4, 1);                                                  \
        layer.field = value;                                                                       \
        kiln_tensor last, cells;                                                                   \
        cr_expect_eq(kiln_lstm(b, &layer, &last, &cells).id, 0u);                                  \
        cr_expect(last.id == 0 && cells.id == 0);                                                  \
        cr_expect_eq(kiln_batch_status(b), status);                                                \
        cr_expect(strstr(without_call(kiln_batch_error(b)), part), "%s", kiln_batch_error(b));     \
        check_end(b);                                                                              \
    } while (0)

Test(recurrent, operands_are_checked)
{
    EXPECT(size, 3, KILN_INVALID_ARGUMENT,
           "kiln_lstm: layer->size is 3; start from KILN_RECURRENT");
    EXPECT(direction, (kiln_direction)3, KILN_INVALID_ARGUMENT, "no direction 3");
    EXPECT(clip, NAN, KILN_INVALID_ARGUMENT, "clip is nan");
    EXPECT(direction, KILN_BIDIRECTIONAL, KILN_SHAPE_MISMATCH,
           "kiln_lstm: w of shape [1,8,3] must be [2,8,3]");
    EXPECT(x, check_plain(b, DIMS(4, 2)), KILN_SHAPE_MISMATCH, "must have 3 dimensions");
    EXPECT(x, check_plain(b, DIMS(16385, 0, 3)), KILN_TOO_LARGE, "16384 are the most");
    EXPECT(bias, check_plain(b, DIMS(1, 8)), KILN_SHAPE_MISMATCH, "bias of shape [1,8]");
    EXPECT(peephole, check_plain(b, DIMS(6)), KILN_SHAPE_MISMATCH, "peephole of shape [6]");
    EXPECT(lengths, check_plain(b, DIMS(2)), KILN_TYPE_MISMATCH, "lengths are f32");
    EXPECT(lengths, check_input(b, KILN_I32, DIMS(3), CHECK_FEW), KILN_SHAPE_MISMATCH,
           "are not one of each of 2 sequences");
    kiln_batch *b = check_begin();
    cr_expect_eq(kiln_gru(b, NULL, NULL).id, 0u);
    cr_expect(strstr(without_call(kiln_batch_error(b)), "kiln_gru: layer is NULL"));
    check_end(b);
    check_close();
}
