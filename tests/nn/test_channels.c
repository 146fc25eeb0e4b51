/* SPDX-License-Identifier: Apache-2.0 */
/* Batch, group, instance and local response norm, rotary embeddings: PyTorch 2.15's answers in
 * float64, gradients, errors. */
#include <criterion/criterion.h>
#include <math.h>

#include "../support/gradient.h"
#include "../support/graph.h"
#include "../support/movement.h"
#include "../support/pattern.h"

static const kiln_tensor nothing = {0};

struct operands {
    kiln_tensor x, scale, shift, mean, variance;
};

static struct operands operands_of(kiln_batch *b)
{
    const size_t channels = 4;
    return (struct operands){
        pattern(b, DIMS(2, 4, 3), 1), pattern(b, 1, &channels, 2), pattern(b, 1, &channels, 5),
        pattern(b, 1, &channels, 7),
        kiln_add(b, kiln_abs(b, pattern(b, 1, &channels, 9)), kiln_constant(b, KILN_F32, 0.25))};
}

/* ---- known answers ---- */

Test(channels, batch_norm)
{
    static const double batch[] = {
        0.442051237,  -1.54470082,  -0.153974381, 0.304422267,  0.374271458, 0.527939676,
        -0.833668176, -0.833668176, -1.75100453,  -0.281686192, 0.809882849, 0.591569041,
        -1.54470082,  0.442051237,  -3.33277768,  0.56984919,   0.36030162,  0.555879352,
        -1.59811514,  -2.05678331,  0.0836681764, -3.33807951,  -2.90145189, 1.24651047};
    static const double train[] = {
        0.410298521,   -1.24727079,   -0.0869722737, 0.328843825,  0.411661329, 0.593859838,
        -0.0301353954, -0.0301353954, -0.98514507,   -0.324377332, 0.20249067,  0.0971170698,
        -1.24727079,   0.410298521,   -2.73908318,   0.643550341,  0.395097828, 0.62698684,
        -0.825976791,  -1.30348163,   0.924874279,   -1.79960774,  -1.58886054, 0.413237871};
    static const double means[] = {-0.375, 0.291666667, 0.520833333, -0.166666667};
    static const double variances[] = {0.71875, 0.888888889, 0.345920139, 1.07638889};
    kiln_batch *b = check_begin();
    struct operands o = operands_of(b);
    EXPECT_PATTERN(b, kiln_batch_norm(b, o.x, o.scale, o.shift, o.mean, o.variance, 1, 1e-3),
                   batch);
    b = check_begin();
    o = operands_of(b);
    EXPECT_PATTERN(b, kiln_batch_norm_train(b, o.x, o.scale, o.shift, 1, 1e-3, NULL, NULL), train);
    b = check_begin();
    o = operands_of(b);
    kiln_batch_norm_train(b, o.x, nothing, nothing, 1, 0, &o.mean, NULL);
    EXPECT_PATTERN(b, o.mean, means);
    b = check_begin();
    o = operands_of(b);
    kiln_batch_norm_train(b, o.x, nothing, nothing, -2, 0, NULL, &o.variance);
    EXPECT_PATTERN(b, o.variance, variances);
    check_close();
}

Test(channels, group_and_instance_norm)
{
    static const double group[] = {
        0.4893807,    -1.36969035,  -0.0683406151, 0.403603723,  0.506885448, 0.734105243,
        -0.776546769, -0.776546769, -1.57964031,   -0.187685846, 0.593099539, 0.436942462,
        -0.370889106, 1.05077675,   -1.65038837,   0.631635727,  0.394691418, 0.61583944,
        -0.673741219, -0.956759216, 0.363991437,   -1.28878164,  -1.06865653, 1.022532};
    static const double instance[] = {
        0.411387494,  -2.26873749, -0.392650002, 0.369170595, 0.46262017,  0.668209235,
        0.153221409,  0.153221409, -1.43144282,  -1.70689124, 0.304594158, -0.0977029211,
        -0.798297231, 0.6506197,   -2.10232247,  0.597292101, 0.323658067, 0.579049832,
        -0.70701608,  -1.08053417, 0.66255025,   -1.20861973, -1.02376241, 0.732382143};
    kiln_batch *b = check_begin();
    struct operands o = operands_of(b);
    EXPECT_PATTERN(b, kiln_group_norm(b, o.x, o.scale, o.shift, 2, 1, 1e-3), group);
    b = check_begin();
    o = operands_of(b);
    EXPECT_PATTERN(b, kiln_instance_norm(b, o.x, o.scale, o.shift, 1, 1e-3), instance);
    b = check_begin(); /* channels last */
    o = operands_of(b);
    const size_t turn[] = {0, 2, 1};
    kiln_tensor y = kiln_transpose(b, o.x, turn);
    y = kiln_group_norm(b, y, o.scale, o.shift, 2, -1, 1e-3);
    EXPECT_PATTERN(b, kiln_transpose(b, y, turn), group);
    check_close();
}

Test(channels, local_response_norm)
{
    static const double response[] = {-0.764248582,
                                      0,
                                      -0.564406563,
                                      -0.608931887,
                                      -0.272077867,
                                      0.603465138,
                                      0.167881771,
                                      0.167881771,
                                      0.603465138,
                                      -0.272077867,
                                      -0.678553379,
                                      -0.564406563,
                                      0,
                                      -0.803672042,
                                      0.676206017,
                                      0.835597238,
                                      -0.290518997,
                                      0.739645826,
                                      0.475053091,
                                      0.739645826,
                                      -0.290518997,
                                      0.835597238,
                                      0.676206017,
                                      -0.803672042};
    static const double even[] = {-0.706324984,
                                  0,
                                  -0.532011151,
                                  -0.652869151,
                                  -0.269847477,
                                  0.594603558,
                                  0.179898318,
                                  0.163217288,
                                  0.608012744,
                                  -0.271904772,
                                  -0.657236181,
                                  -0.589959372,
                                  0,
                                  -0.756593287,
                                  0.621292571,
                                  0.770637873,
                                  -0.302637315,
                                  0.756593287,
                                  0.490405919,
                                  0.690325079,
                                  -0.302637315,
                                  0.826064842,
                                  0.719022998,
                                  -0.775275332};
    kiln_batch *b = check_begin();
    kiln_tensor x = pattern(b, DIMS(2, 4, 3), 1);
    EXPECT_PATTERN(b, kiln_local_response_norm(b, x, 1, 3, 0.5, 0.75, 1.5), response);
    b = check_begin(); /* more behind than before: ONNX's reference implementation */
    x = pattern(b, DIMS(2, 4, 3), 1);
    EXPECT_PATTERN(b, kiln_local_response_norm(b, x, 1, 2, 0.5, 0.75, 1.5), even);
    check_close();
}

Test(channels, rotary)
{
    static const double halves[] = {
        -1.12071155,  0.507331302,  0.366920466,  -0.606312584, -0.125, 1.25,
        1.0380732,    0.332344401,  0.857265433,  -0.393919026, -0.75,  -0.625,
        0.25,         1.03156861,   1.375,        -1.22407769,  -0.25,  -1.375,
        0.52923559,   -0.821607319, -1.02373565,  -1.66675925,  1.375,  -1,
        -0.140173513, -0.579989109, -0.778043306, 0.264315406,  1.25,   0.5,
        0.5,          0.978854428,  -0.125,       1.08020554,   -0.625, 0.25};
    static const double pairs[] = {
        -0.449110983,  0.927792717,  -0.306862867, -0.926801047, -0.125, 1.25,
        0.67850405,    0.199078512,  0.94056674,   -0.832741981, -0.75,  -0.625,
        0.25,          -1,           1.49361942,   1.10554332,   -0.25,  -1.375,
        -0.33425085,   -1.74485712,  0.225213756,  -1.25470266,  1.375,  -1,
        -0.0802453212, -0.668345486, -0.681359499, 0.337452565,  1.25,   0.5,
        0.5,           1.25,         0.711351329,  -0.268522413, -0.625, 0.25};
    for (int interleaved = 0; interleaved < 2; interleaved++) {
        kiln_batch *b = check_begin();
        kiln_tensor x = pattern(b, DIMS(2, 3, 6), 3), angle = pattern(b, DIMS(3, 2), 4);
        kiln_tensor cosine = kiln_cos(b, angle), sine = kiln_sin(b, angle);
        kiln_tensor y = kiln_rotary(b, x, cosine, sine, interleaved);
        if (interleaved)
            EXPECT_PATTERN(b, y, pairs);
        else
            EXPECT_PATTERN(b, y, halves);
    }
    check_close();
}

/* One map of what lies in memory, which goes on with what follows, also in another shape; signs are
 * put before the sines first, for all that is turned. Of eight dimensions, too. */
Test(channels, rotary_is_one_map)
{
    for (int interleaved = 0; interleaved < 2; interleaved++) {
        kiln_batch *b = check_begin();
        kiln_tensor x = check_plain(b, DIMS(2, 3, 1, 8)), angle = check_plain(b, DIMS(1, 4));
        kiln_tensor sine = check_plain(b, DIMS(1, 4));
        kiln_tensor y = kiln_rotary(b, x, angle, sine, interleaved);
        check_read(b, kiln_reshape(b, kiln_cast(b, y, KILN_BF16), 2, (size_t[]){6, 8}));
        check_run(b);
        cr_expect_eq(cost_of(b).launches, 2, "%zu", cost_of(b).launches);
        check_end(b);
        b = check_begin();
        x = check_plain(b, DIMS(1, 2, 1, 1, 1, 1, 3, 6));
        check_tensor(b, kiln_rotary(b, x, check_plain(b, DIMS(3, 2)), check_plain(b, DIMS(3, 2)),
                                    interleaved));
    }
    check_close();
}

/* What is nothing, or one, and what is not a number. */
Test(channels, edges)
{
    const size_t channels = 3;
    kiln_batch *b = check_begin();
    kiln_tensor none = kiln_fill(b, KILN_F32, DIMS(0, 3, 2), 1);
    kiln_tensor ones = kiln_fill(b, KILN_F32, 1, &channels, 1);
    check_read(b, kiln_batch_norm(b, none, ones, ones, ones, ones, 1, 0));
    check_read(b, kiln_instance_norm(b, none, ones, nothing, 1, 0));
    check_read(b, kiln_group_norm(b, none, nothing, ones, 3, 1, 0));
    check_read(b, kiln_local_response_norm(b, none, 1, 5, 1, 1, 1));
    kiln_tensor row = check_input(b, KILN_F32, 1, &channels, CHECK_SPECIAL);
    check_read(b, kiln_batch_norm(b, row, nothing, nothing, ones, ones, 0, 0));
    check_read(b, kiln_batch_norm_train(b, ones, ones, nothing, 0, 1e-5, NULL, NULL));
    kiln_tensor x = check_input(b, KILN_F32, DIMS(2, 3, 7), CHECK_SPECIAL);
    check_read(b, kiln_batch_norm(b, x, ones, ones, ones, ones, 1, 1e-5));
    check_run(b);
    check_end(b);
    check_close();
}

/* ---- gradients ---- */

Test(channels, gradients)
{
    kiln_batch *b = imagined_batch();
    struct operands o = operands_of(b);
    kiln_tensor inputs[] = {o.x, o.scale, o.shift};
    kiln_tensor y = kiln_batch_norm_train(b, o.x, o.scale, o.shift, 1, 1e-3, NULL, NULL);
    check_gradient(b, kiln_square(b, y), 3, inputs, 1e-6, NULL);
    y = kiln_group_norm(b, o.x, o.scale, o.shift, 2, 1, 1e-3);
    check_gradient(b, kiln_square(b, y), 3, inputs, 1e-6, NULL);
    y = kiln_local_response_norm(b, o.x, 1, 3, 0.5, 0.75, 1.5);
    check_gradient(b, kiln_square(b, y), 1, inputs, 1e-6, NULL);
    kiln_tensor turned[] = {pattern(b, DIMS(2, 6), 3), pattern(b, DIMS(2, 2), 4)};
    for (int interleaved = 0; interleaved < 2; interleaved++) {
        y = kiln_rotary(b, turned[0], kiln_cos(b, turned[1]), kiln_sin(b, turned[1]), interleaved);
        kiln_tensor weighted = kiln_mul(b, y, pattern(b, DIMS(2, 6), 8));
        check_gradient(b, weighted, 2, turned, 1e-6, NULL);
    }
    check_end(b);
}

/* ---- errors ---- */

Test(channels, errors)
{
    kiln_batch *b = check_begin();
    struct operands o = operands_of(b);
    kiln_batch_norm(b, o.x, o.scale, o.shift, o.mean, o.variance, 2, 0);
    check_refusal(b, KILN_SHAPE_MISMATCH,
                  "kiln_batch_norm: operand scale has shape [4], not an element for each of 3 "
                  "channels");
    b = check_begin();
    o = operands_of(b);
    kiln_batch_norm(b, o.x, nothing, nothing, nothing, o.variance, 1, 0);
    cr_expect_eq(kiln_batch_status(b), KILN_INVALID_HANDLE);
    check_end(b);
    b = check_begin();
    o = operands_of(b);
    kiln_tensor mean = {1};
    kiln_batch_norm_train(b, o.x, nothing, nothing, 1, -1, &mean, NULL);
    cr_expect_eq(mean.id, 0u);
    check_refusal(b, KILN_INVALID_ARGUMENT,
                  "kiln_batch_norm_train: epsilon is -1, and must be finite and not negative");
    b = check_begin();
    kiln_group_norm(b, operands_of(b).x, nothing, nothing, 3, 1, 0);
    check_refusal(b, KILN_INVALID_ARGUMENT,
                  "kiln_group_norm: 4 channels are not cut into 3 equal groups");
    b = check_begin();
    kiln_group_norm(b, operands_of(b).x, nothing, nothing, 2, 0, 0);
    check_refusal(b, KILN_INVALID_ARGUMENT,
                  "kiln_group_norm: channels in dimension 0 of shape [2,4,3]: the first one is the "
                  "batch's, and 7 are the most");
    b = check_begin();
    kiln_instance_norm(b, pattern(b, DIMS(2, 3), 1), nothing, nothing, 1, 0);
    check_refusal(b, KILN_INVALID_ARGUMENT,
                  "kiln_instance_norm: channels in dimension 1 of shape [2,3]: the first one is "
                  "the batch's, and another is normalised");
    b = check_begin();
    kiln_local_response_norm(b, operands_of(b).x, 1, 0, 1, 1, 1);
    cr_expect_eq(kiln_batch_status(b), KILN_INVALID_ARGUMENT);
    check_end(b);
    b = check_begin();
    kiln_tensor angle = pattern(b, DIMS(3, 4), 4);
    kiln_rotary(b, pattern(b, DIMS(2, 3, 6), 3), angle, angle, 0);
    check_refusal(b, KILN_SHAPE_MISMATCH,
                  "kiln_rotary: cosines of shape [3,4] and sines of shape [3,4] do not turn pairs "
                  "of x's last dimension, of shape [2,3,6]");
    check_close();
}
