/* SPDX-License-Identifier: Apache-2.0 */
/* Train a network of two layers to read handwritten digits: 64 pixels, 128 hidden units, 10 logits.
 *
 * A training step is one batch: forward, the loss, its gradients, AdamW in place. It is recorded
 * once and executed again for each step, with other rows in the same host memory; nothing is
 * planned or compiled after the first. With --stop, --save and --resume it ends in between and goes
 * on, with the same losses to the bit. The program fails if that is not so, or if it does not read
 * 91% of the digits of writers that it has not seen. */
#include <stdio.h>

#include "digits_train.h"

int main(int argc, char **argv)
{
    struct training training = {
        .epochs = 60, .learning_rate = 0.01, .weight_decay = 0.01, .type = KILN_F32};
    struct digits digits;
    struct outcome outcome;
    kiln_context *context = digits_begin("train_digits", argc, argv, &digits, &training);
    digits_train(context, &digits, &digits_two_layers, &training, &outcome);
    digits_print_curve(outcome.losses, outcome.epochs);
    double percent = 100.0 * (double)outcome.right / TEST_ROWS;
    printf("\n%zu of %d right (%.1f%%) in %.1f s%s\n", outcome.right, TEST_ROWS, percent,
           outcome.seconds, outcome.planned_again ? ", but planned again" : "");
    kiln_context_release(context);
    digits_free(&digits);
    int ended = outcome.epochs == training.epochs; /* else it has not learned enough yet */
    return (percent >= 91 || !ended) && !outcome.planned_again ? 0 : 1;
}
