/* SPDX-License-Identifier: Apache-2.0 */
/* Recurrent layers as one kernel: what the host computes of it beside the steps, the device beside
 * the host, the same bits alone and in company, gradients, which are recorded step by step. */
#include <criterion/criterion.h>
#include <kiln/gradient.h>
#include <kiln/loop.h>
#include <kiln/recurrent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../support/gradient.h"
#include "nn/recurrent.h"
#include "record/batch.h"
#include "record/replayed.h"
#include "session/context.h"

/* A layer with as much of everything as it says. */
struct sample {
    size_t gates, steps, sequences, inputs, hidden;
    kiln_direction direction;
    bool bias, states, peephole, lengths, linear, coupled, clip, pytorch;
    kiln_tensor (*first)(kiln_batch *batch, kiln_tensor x);
};

static const struct sample samples[] = {
    {.gates = 4, .steps = 5, .sequences = 1, .inputs = 3, .hidden = 32},
    {.gates = 4,
     .steps = 3,
     .sequences = 2,
     .inputs = 1,
     .hidden = 5,
     .direction = KILN_REVERSE,
     .bias = true,
     .states = true,
     .peephole = true,
     .lengths = true,
     .clip = true},
    {.gates = 4,
     .steps = 4,
     .sequences = 9,
     .inputs = 2,
     .hidden = 17,
     .bias = true,
     .direction = KILN_BIDIRECTIONAL,
     .lengths = true,
     .coupled = true,
     .pytorch = true},
    {.gates = 4, .steps = 1, .sequences = 3, .inputs = 2, .hidden = 1, .states = true},
    {.gates = 3,
     .steps = 6,
     .sequences = 1,
     .inputs = 4,
     .hidden = 48,
     .bias = true,
     .linear = true,
     .states = true},
    {.gates = 3,
     .steps = 3,
     .sequences = 7,
     .inputs = 2,
     .hidden = 7,
     .bias = true,
     .linear = true,
     .pytorch = true,
     .lengths = true,
     .direction = KILN_BIDIRECTIONAL},
    {.gates = 3,
     .steps = 4,
     .sequences = 5,
     .inputs = 2,
     .hidden = 19,
     .bias = true,
     .states = true,
     .direction = KILN_REVERSE},
    {.gates = 3,
     .steps = 2,
     .sequences = 2,
     .inputs = 2,
     .hidden = 16,
     .linear = true,
     .clip = true,
     .first = kiln_relu},
    {.gates = 1,
     .steps = 5,
     .sequences = 33,
     .inputs = 3,
     .hidden = 3,
     .bias = true,
     .direction = KILN_BIDIRECTIONAL},
    {.gates = 1,
     .steps = 4,
     .sequences = 1,
     .inputs = 2,
     .hidden = 40,
     .states = true,
     .lengths = true,
     .first = kiln_relu},
    {.gates = 1, .steps = 3, .sequences = 2, .inputs = 2, .hidden = 5, .first = kiln_sigmoid},
};
#define COUNT (sizeof samples / sizeof *samples)

static float number(size_t i, unsigned seed)
{
    return (float)((i * 7919 + seed * 104729) % 257) / 257 - 0.5f;
}

static kiln_tensor filled(kiln_batch *b, size_t rank, const size_t *dims, unsigned seed)
{
    size_t count = 1;
    for (size_t d = 0; d < rank; d++)
        count *= dims[d];
    float *data = malloc((count + 1) * sizeof *data);
    for (size_t i = 0; i < count; i++)
        data[i] = number(i, seed);
    const kiln_tensor x = check_given(b, KILN_F32, rank, dims, data);
    free(data);
    return x;
}

static kiln_recurrent layer_of(kiln_batch *b, const struct sample *sample)
{
    kiln_recurrent layer = KILN_RECURRENT_INIT;
    const size_t d = sample->direction == KILN_BIDIRECTIONAL ? 2 : 1, g = sample->gates;
    const size_t h = sample->hidden, n = sample->sequences;
    int32_t lengths[64];
    layer.x = filled(b, DIMS(sample->steps, n, sample->inputs), 1);
    layer.w = filled(b, DIMS(d, g * h, sample->inputs), 2);
    layer.r = filled(b, DIMS(d, g * h, h), 3);
    layer.direction = sample->direction;
    layer.linear_before_reset = sample->linear;
    layer.input_forget = sample->coupled;
    layer.clip = sample->clip ? 0.25 : 0;
    layer.gates = sample->pytorch ? KILN_GATES_PYTORCH : KILN_GATES_ONNX;
    for (size_t i = 0; i < d; i++)
        layer.activation[i][0] = sample->first;
    if (sample->bias)
        layer.bias = filled(b, DIMS(d, 2 * g * h), 4);
    if (sample->states) {
        layer.h = filled(b, DIMS(d, n, h), 5);
        layer.c = filled(b, DIMS(d, n, h), 6);
    }
    if (sample->peephole)
        layer.peephole = filled(b, DIMS(d, 3 * h), 7);
    for (size_t i = 0; i < n && i < 64; i++)
        lengths[i] = (int32_t)((i + sample->steps - 1) % (sample->steps + 1));
    if (sample->lengths)
        layer.lengths = check_given(b, KILN_I32, DIMS(n), lengths);
    return layer;
}

/* What a layer gives, [0]: all states, [1]: the last ones, [2]: cells, or {0}. */
static void record(kiln_batch *b, const struct sample *sample, const kiln_recurrent *layer,
                   kiln_tensor results[3])
{
    results[2] = (kiln_tensor){0};
    results[0] = sample->gates == 1   ? kiln_rnn(b, layer, &results[1])
                 : sample->gates == 3 ? kiln_gru(b, layer, &results[1])
                                      : kiln_lstm(b, layer, &results[1], &results[2]);
    cr_assert(!kiln_batch_status(b), "%s", kiln_batch_error(b));
}

static kiln_batch *begin_steps(void)
{
    kiln_batch *b = check_begin();
    b->limits.vector = 0;
    return b;
}

static size_t count_of(const kiln_batch *b, kiln_tensor x)
{
    size_t rank, dims[KILN_MAX_RANK], count = 1;
    expect_ok(kiln_tensor_shape(b, x, NULL, &rank, dims));
    for (size_t d = 0; d < rank; d++)
        count *= dims[d];
    return count;
}

static bool has_kernel(const kiln_batch *b)
{
    return b->kernels.count > 0;
}

Test(recurrent_kernel, is_what_the_steps_are)
{
    for (size_t i = 0; i < COUNT; i++) {
        kiln_batch *kernel = check_begin(), *steps = begin_steps();
        const kiln_recurrent layer = layer_of(kernel, &samples[i]);
        const kiln_recurrent other = layer_of(steps, &samples[i]);
        kiln_tensor found[3], wanted[3];
        record(kernel, &samples[i], &layer, found);
        record(steps, &samples[i], &other, wanted);
        cr_assert(!has_kernel(steps));
        for (unsigned k = 0; k < 3 && found[k].id && has_kernel(kernel); k++) {
            double *a = check_values(kernel, found[k]), *b = check_values(steps, wanted[k]);
            const size_t count = count_of(kernel, found[k]);
            cr_assert_eq(count, count_of(steps, wanted[k]));
            for (size_t j = 0; j < count; j++)
                cr_assert_float_eq(a[j], b[j], 1e-6,
                                   "sample %zu, result %u, element %zu: %g, not %g", i, k, j, a[j],
                                   b[j]);
            free(a);
            free(b);
        }
        check_end(kernel);
        check_end(steps);
    }
    check_close();
}

static float *read_of(kiln_batch *b, kiln_tensor x)
{
    const size_t bytes = count_of(b, x) * sizeof(float);
    float *data = malloc(bytes + 1);
    memset(data, 0xff, bytes);
    cr_assert(!kiln_read(b, x, data, bytes), "%s", kiln_batch_error(b));
    return data;
}

Test(recurrent_kernel, computes_on_the_device)
{
    check_cheaply();
    for (size_t i = 0; i < COUNT; i++) {
        kiln_batch *b = check_begin();
        const kiln_recurrent layer = layer_of(b, &samples[i]);
        kiln_tensor results[3];
        float *found[3] = {NULL};
        record(b, &samples[i], &layer, results);
        for (unsigned k = 0; k < 3 && results[k].id; k++)
            found[k] = read_of(b, results[k]);
        cr_assert(!kiln_batch_execute(b), "%s", kiln_batch_error(b));
        for (unsigned k = 0; k < 3 && results[k].id; k++) {
            double *wanted = check_values(b, results[k]);
            for (size_t j = 0; j < count_of(b, results[k]); j++)
                cr_assert_float_eq(found[k][j], wanted[j], 2e-6,
                                   "sample %zu, result %u, element %zu: %g, not %g", i, k, j,
                                   (double)found[k][j], wanted[j]);
            free(wanted);
            free(found[k]);
        }
        check_end(b);
    }
    check_close();
}

/* Where runs are compared with the host the kernel is: right ones pass, one whose host cuts sums
 * that the kernel does not is told. */
Test(recurrent_kernel, is_validated)
{
    check_cheaply();
    setenv("KILN_VALIDATE", "1", 1);
    bool any = false;
    for (size_t i = 0; i < COUNT; i++) {
        kiln_batch *b = check_begin();
        const kiln_recurrent layer = layer_of(b, &samples[i]);
        kiln_tensor results[3];
        record(b, &samples[i], &layer, results);
        any = any || has_kernel(b);
        float *y = read_of(b, results[0]);
        expect_ok(kiln_batch_execute(b));
        free(y);
        check_end(b);
    }
    /* Each step doubles what roundings make: nothing is known of the last ones. */
    const struct sample wild = {
        .gates = 1, .steps = 150, .sequences = 1, .inputs = 3, .hidden = 64, .bias = true};
    kiln_batch *b = check_begin();
    kiln_recurrent layer = layer_of(b, &wild);
    kiln_tensor results[3];
    record(b, &wild, &layer, results);
    check_read(b, results[0]);
    expect_ok(kiln_batch_execute(b));
    check_end(b);
    b = check_begin();
    layer = layer_of(b, &samples[0]);
    record(b, &samples[0], &layer, results);
    float *y = read_of(b, results[0]);
    if (has_kernel(b)) {
        const uint32_t first = b->kernels.items[0]->first;
        ((struct kiln__custom *)(uintptr_t)b->graph.nodes.items[first].custom.call)
            ->call.scalars[KILN__LAYER_CLIP] = 0.01;
        expect_error_part(kiln_batch_execute(b), KILN_WRONG_RESULT, "recurrent (kiln_lstm");
    }
    cr_expect_eq(any, check_context()->runtime.device.traits->chunked);
    free(y);
    check_end(b);
    check_close();
    unsetenv("KILN_VALIDATE");
}

/* All steps are a launch, what is before and behind them few more. */
Test(recurrent_kernel, takes_few_launches)
{
    kiln_batch *b = check_begin();
    const struct sample sample = {
        .gates = 4, .steps = 50, .sequences = 2, .inputs = 8, .hidden = 16, .bias = true};
    const kiln_recurrent layer = layer_of(b, &sample);
    kiln_tensor results[3];
    record(b, &sample, &layer, results);
    if (has_kernel(b)) {
        check_read(b, layer.x);
        float *y = read_of(b, results[0]);
        cr_expect_leq(cost_of(b).launches, 5, "%zu", (size_t)cost_of(b).launches);
        free(y);
    }
    check_end(b);
    check_close();
}

static kiln_tensor weights(kiln_batch *b, size_t rank, const size_t *dims, unsigned seed,
                           kiln_buffer **buffer)
{
    static float data[320 * 80];
    size_t count = 1;
    for (size_t d = 0; d < rank; d++)
        count *= dims[d];
    for (size_t i = 0; i < count; i++)
        data[i] = number(i, seed);
    expect_ok(kiln_buffer_create(check_context(), KILN_F32, rank, dims, buffer));
    expect_ok(kiln_buffer_write(*buffer, 0, data, count * sizeof *data));
    return kiln_import(b, *buffer);
}

static uint64_t launches(void)
{
    kiln_context_stats stats;
    expect_ok(kiln_context_get_stats(check_context(), &stats));
    return stats.launches;
}

/* Weights in buffers are brought into the kernel's form no more once that is kept: later runs take
 * a product and it. */
Test(recurrent_kernel, keeps_its_weights)
{
    kiln_buffer *buffers[2];
    kiln_batch *b = check_begin();
    kiln_recurrent layer = KILN_RECURRENT_INIT;
    kiln_tensor last;
    layer.x = filled(b, DIMS(5, 2, 8), 1);
    layer.w = weights(b, DIMS(1, 320, 8), 2, &buffers[0]);
    layer.r = weights(b, DIMS(1, 320, 80), 3, &buffers[1]);
    float *y = read_of(b, kiln_lstm(b, &layer, &last, NULL));
    for (unsigned run = 0; run < 2; run++) /* the second one keeps them */
        cr_assert(!kiln_batch_execute(b), "%s", kiln_batch_error(b));
    const uint64_t first = launches();
    cr_assert(!kiln_batch_execute(b), "%s", kiln_batch_error(b));
    if (has_kernel(b))
        cr_expect_leq(launches() - first, 2u, "%zu", (size_t)(launches() - first));
    check_end(b);
    free(y);
    kiln_buffer_release(buffers[0]);
    kiln_buffer_release(buffers[1]);
    check_close();
}

/* ---- alone and in company ---- */

#define MANY 11
#define HIDDEN_OF 21
#define STEPS_OF 6

/* Sequence `first` and `count` - 1 behind it, of MANY; their states of all steps. */
static float *states_of(size_t gates, const float *x, size_t first, size_t count)
{
    kiln_batch *b = check_begin();
    const struct sample sample = {.gates = gates,
                                  .steps = STEPS_OF,
                                  .sequences = count,
                                  .inputs = 2,
                                  .hidden = HIDDEN_OF,
                                  .bias = true,
                                  .linear = true};
    kiln_recurrent layer = layer_of(b, &sample);
    float given[STEPS_OF * MANY * 2];
    kiln_tensor results[3];
    for (size_t t = 0; t < STEPS_OF; t++)
        memcpy(given + t * count * 2, x + (t * MANY + first) * 2, count * 2 * sizeof *given);
    layer.x = check_given(b, KILN_F32, DIMS(STEPS_OF, count, 2), given);
    expect_ok(kiln_batch_set_batch_invariant(b));
    record(b, &sample, &layer, results);
    float *y = read_of(b, results[0]);
    cr_assert(!kiln_batch_execute(b), "%s", kiln_batch_error(b));
    check_end(b);
    return y;
}

Test(recurrent_kernel, has_the_same_bits_in_company)
{
    float x[STEPS_OF * MANY * 2];
    for (size_t i = 0; i < STEPS_OF * MANY * 2; i++)
        x[i] = number(i, 9);
    x[2 * MANY + 7] = NAN; /* of sequence 3, from step 1 on */
    for (size_t gates = 1; gates <= 4; gates += gates == 1 ? 2 : 1) {
        float *all = states_of(gates, x, 0, MANY);
        for (size_t first = 0; first < MANY; first += 5) {
            float *one = states_of(gates, x, first, 1);
            for (size_t t = 0; t < STEPS_OF; t++)
                cr_expect(!memcmp(all + (t * MANY + first) * HIDDEN_OF, one + t * HIDDEN_OF,
                                  HIDDEN_OF * sizeof *one),
                          "%zu gates, sequence %zu, step %zu", gates, first, t);
            free(one);
        }
        for (size_t t = 0; t < STEPS_OF; t++)
            for (size_t j = 0; j < HIDDEN_OF; j++) {
                const float *at = all + t * MANY * HIDDEN_OF + j;
                cr_expect_eq(!!isnan(at[3 * HIDDEN_OF]), t > 0, "%zu gates", gates);
                cr_expect(isfinite(at[2 * HIDDEN_OF]) && isfinite(at[4 * HIDDEN_OF]));
            }
        free(all);
    }
    check_close();
}

/* ---- gradients ---- */

#define INPUTS 5

static void gradients(kiln_batch *b, const struct sample *sample, bool last_alone,
                      double *values[INPUTS], size_t counts[INPUTS])
{
    const kiln_recurrent layer = layer_of(b, sample);
    const kiln_tensor inputs[INPUTS] = {layer.x, layer.w, layer.r, layer.bias, layer.h};
    kiln_tensor results[3], out[INPUTS];
    record(b, sample, &layer, results);
    kiln_tensor loss = kiln_sum(b, kiln_mul(b, results[1], results[1]), 0, NULL, 0);
    if (!last_alone)
        loss = kiln_add(b, loss, kiln_sum(b, results[0], 0, NULL, 0));
    cr_assert(!kiln_grad(b, loss, inputs, INPUTS, out), "%s", kiln_batch_error(b));
    for (unsigned k = 0; k < INPUTS; k++) {
        values[k] = check_values(b, out[k]);
        counts[k] = count_of(b, out[k]);
    }
}

/* Those of steps, to the last digit: the kernel is not there any more. */
Test(recurrent_kernel, gradients_are_those_of_steps)
{
    for (unsigned last_alone = 0; last_alone < 2; last_alone++)
        for (size_t gates = 1; gates <= 4; gates += gates == 1 ? 2 : 1) {
            const struct sample sample = {.gates = gates,
                                          .steps = 3,
                                          .sequences = 2,
                                          .inputs = 2,
                                          .hidden = 5,
                                          .bias = true,
                                          .states = true,
                                          .direction = KILN_BIDIRECTIONAL,
                                          .linear = true};
            kiln_batch *kernel = check_begin(), *steps = begin_steps();
            double *found[INPUTS], *wanted[INPUTS];
            size_t counts[INPUTS];
            gradients(kernel, &sample, last_alone, found, counts);
            gradients(steps, &sample, last_alone, wanted, counts);
            for (unsigned k = 0; k < INPUTS; k++) {
                for (size_t j = 0; j < counts[k]; j++)
                    cr_expect_float_eq(found[k][j], wanted[k][j], 1e-12, "%zu gates, input %u",
                                       gates, k);
                free(found[k]);
                free(wanted[k]);
            }
            check_end(kernel);
            check_end(steps);
        }
    check_close();
}

/* A layer in the step of a loop that is recorded one by one. */
static double *loop_gradient(kiln_batch *b, const struct sample *sample, size_t *count)
{
    kiln_recurrent layer = layer_of(b, sample);
    kiln_loop_options loop = KILN_LOOP_INIT;
    kiln_tensor results[3], last, out, h = layer.h;
    const kiln_tensor state = kiln_loop_state(b, layer.h);
    layer.h = state;
    record(b, sample, &layer, results);
    loop.steps = 3;
    loop.state_count = 1;
    loop.states = &state;
    loop.next = &results[1];
    expect_ok(kiln_loop(b, &loop, &last, NULL));
    const kiln_tensor loss = kiln_sum(b, kiln_mul(b, last, last), 0, NULL, 0);
    cr_assert(!kiln_grad(b, loss, &h, 1, &out), "%s", kiln_batch_error(b));
    *count = count_of(b, out);
    return check_values(b, out);
}

Test(recurrent_kernel, has_gradients_within_loops)
{
    const struct sample sample = {
        .gates = 3, .steps = 2, .sequences = 1, .inputs = 2, .hidden = 4, .states = true};
    for (unsigned replayed = 0; replayed < 2; replayed++) {
        kiln_batch *kernel = check_begin(), *steps = begin_steps();
        size_t count;
        if (replayed)
            kernel->limits.unrolled = 0;
        double *found = loop_gradient(kernel, &sample, &count);
        double *wanted = loop_gradient(steps, &sample, &count);
        for (size_t j = 0; j < count; j++)
            cr_expect_float_eq(found[j], wanted[j], 1e-12, "replayed %u: %g, not %g", replayed,
                               found[j], wanted[j]);
        free(found);
        free(wanted);
        check_end(kernel);
        check_end(steps);
    }
    check_close();
}
