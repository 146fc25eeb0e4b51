/* SPDX-License-Identifier: Apache-2.0 */
/* Two convolutions read handwritten digits better than two plain layers: the program trains both in
 * the same way and says by how much, and fails if that is nothing.
 *
 *     8x8x1 -> 3x3, 16 channels -> 3x3 at every other pixel, 32 channels -> 4x4x32 = 512 -> 10 */
#include <stdio.h>

#include "digits_train.h"

#define CHANNELS_1 16
#define CHANNELS_2 32
#define SIDE_2 (DIGIT_SIDE / 2)
#define FEATURES (SIDE_2 * SIDE_2 * CHANNELS_2)

static kiln_tensor convolve(kiln_batch *b, kiln_tensor x, kiln_tensor w, kiln_tensor bias,
                            size_t stride)
{
    kiln_window_options options = KILN_WINDOW_OPTIONS_INIT;
    for (int d = 0; d < 2; d++) {
        options.stride[d] = stride;
        options.before[d] = options.after[d] = 1;
    }
    return kiln_relu(b, kiln_add(b, kiln_conv2d(b, x, w, &options), bias));
}

static kiln_tensor forward(kiln_batch *b, kiln_tensor x, const kiln_tensor *p, size_t rows,
                           kiln_type type)
{
    x = kiln_reshape(b, x, 4, (size_t[]){rows, DIGIT_SIDE, DIGIT_SIDE, 1});
    x = kiln_cast(b, convolve(b, x, p[0], p[1], 1), type);
    x = kiln_cast(b, convolve(b, x, p[2], p[3], 2), type);
    x = kiln_reshape(b, x, 2, (size_t[]){rows, FEATURES});
    return kiln_add(b, kiln_matmul(b, x, p[4]), p[5]);
}

static const struct network convolutions = {
    "convolutions",
    6,
    {{4, {3, 3, 1, CHANNELS_1}, 9},
     {1, {CHANNELS_1}, 0},
     {4, {3, 3, CHANNELS_1, CHANNELS_2}, 9 * CHANNELS_1},
     {1, {CHANNELS_2}, 0},
     {2, {FEATURES, DIGIT_CLASSES}, FEATURES},
     {1, {DIGIT_CLASSES}, 0}},
    forward,
};

int main(int argc, char **argv)
{
    struct training training = {
        .epochs = 60, .learning_rate = 0.01, .weight_decay = 0.01, .type = KILN_F32};
    struct digits digits;
    struct outcome plain, better;
    kiln_context *context = digits_begin("train_digits_conv", argc, argv, &digits, &training);
    struct training whole = training; /* files are the convolutions' */
    whole.save = whole.resume = NULL;
    whole.stop = 0;
    digits_train(context, &digits, &digits_two_layers, &whole, &plain);
    digits_train(context, &digits, &convolutions, &training, &better);
    digits_print_curve(better.losses, better.epochs);
    double gain = 100.0 * ((double)better.right - (double)plain.right) / TEST_ROWS;
    printf("\n%zu of %d right with convolutions (%.1f s), %zu without (%.1f s): %+.1f points\n",
           better.right, TEST_ROWS, better.seconds, plain.right, plain.seconds, gain);
    kiln_context_release(context);
    digits_free(&digits);
    int ended = better.epochs == training.epochs; /* else they have not learned enough yet */
    return (better.right > plain.right || !ended) && !better.planned_again ? 0 : 1;
}
