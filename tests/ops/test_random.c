/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers: known answers of Random123, the same bits as the host's, and statistics whose
 * bounds are wide: the seeds are fixed, so that they pass always or never. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../support/check.h"
#include "../support/context.h"
#include "ops/philox.h"

#define N ((size_t)1 << 17)

static float x[N], y[N];

/* ---- known answers ---- */

/* From kat_vectors of Random123 1.14 ("philox4x32 10"). */
Test(random, philox_is_that_of_its_authors)
{
    static const struct {
        uint32_t counter[4], key[2], words[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint32_t words[4];
        kiln__philox(known[i].counter, known[i].key, words);
        cr_expect_eq(memcmp(words, known[i].words, sizeof words), 0, "vector %zu", i);
    }
}

static void draw(kiln_tensor (*random)(kiln_batch *, size_t, const size_t *, kiln_tensor),
                 uint64_t seed, size_t n, float *values)
{
    kiln_context *context = open_context();
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor numbers = random(batch, 1, &n, kiln_random_key(batch, seed));
    expect_ok(kiln_read(batch, numbers, values, n * sizeof *values));
    run_batch(batch);
    kiln_batch_release(batch);
    close_context(context);
}

/* Element i is word 0 for counter i: exactly, on every device. */
Test(random, uniform_numbers_have_the_same_bits_everywhere)
{
    static const uint64_t seeds[] = {42, UINT64_C(0xdeadbeef80000001)};
    for (size_t s = 0; s < sizeof seeds / sizeof *seeds; s++) {
        const uint32_t key[] = {(uint32_t)seeds[s], (uint32_t)(seeds[s] >> 32)};
        draw(kiln_random_uniform, seeds[s], 70001, x);
        for (uint32_t i = 0; i < 70001; i++) {
            uint32_t words[4];
            kiln__philox((uint32_t[]){i, 0, 0, 0}, key, words);
            cr_assert_eq(x[i], (float)(words[0] >> 8) * 0x1p-24F, "%u", i);
        }
    }
}

/* From words 0 and 1 in float64 (Python). */
Test(random, normal_numbers_are_those_of_box_and_muller)
{
    static const double known[] = {-1.3510921453963993, -1.3808544267112643, -1.0185008467908323,
                                   -0.7734425515238091};
    draw(kiln_random_normal, 42, 4, x);
    for (int i = 0; i < 4; i++)
        cr_expect_float_eq(x[i], known[i], 2e-6, "%d: %.9g", i, x[i]);
}

/* ---- statistics ---- */

static double moment(const float *values, double around, int power)
{
    double sum = 0;
    for (size_t i = 0; i < N; i++)
        sum += pow(values[i] - around, power);
    return sum / (double)N;
}

static double correlation(const float *a, const float *b, size_t n, double mean, double variance)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (a[i] - mean) * (b[i] - mean);
    return sum / (double)n / variance;
}

#define BINS 256

/* Chi-square of values from [0, 1): 255 on average, with a standard deviation of 22.6. */
static void expect_even(const double *values)
{
    size_t bins[BINS] = {0};
    double chi = 0, each = (double)N / BINS;
    for (size_t i = 0; i < N; i++) {
        cr_assert(values[i] >= 0 && values[i] < 1, "%zu: %g", i, values[i]);
        bins[(size_t)(values[i] * BINS)]++;
    }
    for (int i = 0; i < BINS; i++)
        chi += ((double)bins[i] - each) * ((double)bins[i] - each) / each;
    cr_expect(chi > 165 && chi < 345, "chi-square %g", chi);
}

Test(random, uniform_numbers_are_spread_evenly)
{
    double *values = malloc(N * sizeof *values);
    draw(kiln_random_uniform, 1, N, x);
    for (size_t i = 0; i < N; i++)
        values[i] = x[i];
    expect_even(values);
    for (size_t i = 0; i < N; i++) /* of every number the lower 16 bits */
        values[i] = fmod(x[i] * 256, 1);
    expect_even(values);
    free(values);
    cr_expect_float_eq(moment(x, 0, 1), 0.5, 0.004);
    cr_expect_float_eq(moment(x, 0.5, 2), 1.0 / 12, 0.001);
    for (size_t lag = 1; lag <= 64; lag *= 2)
        cr_expect_float_eq(correlation(x, x + lag, N - lag, 0.5, 1.0 / 12), 0, 0.014, "%zu", lag);
}

Test(random, normal_numbers_are_normal)
{
    double *values = malloc(N * sizeof *values);
    draw(kiln_random_normal, 2, N, x);
    for (size_t i = 0; i < N; i++)
        values[i] = fmin(0.5 * erfc(-x[i] / sqrt(2)), 0x1.fffffp-1);
    expect_even(values);
    free(values);
    cr_expect_float_eq(moment(x, 0, 1), 0, 0.014);
    cr_expect_float_eq(moment(x, 0, 2), 1, 0.02);
    cr_expect_float_eq(moment(x, 0, 3), 0, 0.04);
    cr_expect_float_eq(moment(x, 0, 4), 3, 0.14);
    for (size_t lag = 1; lag <= 64; lag *= 2)
        cr_expect_float_eq(correlation(x, x + lag, N - lag, 0, 1), 0, 0.014, "%zu", lag);
}

/* ---- keys ---- */

Test(random, split_keys_give_independent_numbers)
{
    kiln_context *context = open_context();
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor key = kiln_random_key(batch, 7);
    int32_t keys[3][2];
    const size_t n = N;
    expect_ok(kiln_read(batch, key, keys[0], sizeof keys[0]));
    for (uint32_t i = 0; i < 2; i++) {
        kiln_tensor other = kiln_random_split(batch, key, i);
        expect_ok(kiln_read(batch, other, keys[i + 1], sizeof keys[0]));
        expect_ok(kiln_read(batch, kiln_random_uniform(batch, 1, &n, other), i ? y : x, sizeof x));
    }
    run_batch(batch);
    cr_expect_eq(keys[0][0], 7);
    cr_expect_eq(keys[0][1], 0);
    for (uint32_t i = 0; i < 4; i++) { /* counters -1 and -2, -3 and -4 */
        uint32_t words[4];
        kiln__philox((uint32_t[]){~i, 0, 0, 0}, (uint32_t[]){7, 0}, words);
        cr_expect_eq((uint32_t)keys[1 + i / 2][i % 2], words[0], "%u", i);
    }
    cr_expect_float_eq(correlation(x, y, N, 0.5, 1.0 / 12), 0, 0.014);
    kiln_batch_release(batch);
    close_context(context);
}

/* Each run draws what a batch of its own with that key would draw. */
Test(random, the_next_run_draws_other_numbers)
{
    enum { COUNT = 1000, RUNS = 3 };
    kiln_context *context = open_context();
    kiln_buffer *state;
    int32_t words[] = {5, 0};
    expect_ok(kiln_buffer_create(context, KILN_I32, 1, (size_t[]){2}, &state));
    expect_ok(kiln_buffer_write(state, 0, words, sizeof words));
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor numbers =
        kiln_random_uniform(batch, 1, (size_t[]){COUNT}, kiln_random_next(batch, state));
    expect_ok(kiln_read(batch, numbers, x, COUNT * sizeof *x));
    char *text;
    expect_ok(kiln_batch_explain(batch, &text));
    cr_expect(strstr(text, " in place"));
    kiln_free(text);
    for (uint64_t run = 0; run < RUNS; run++) {
        run_batch(batch);
        draw(kiln_random_uniform, 5 | run << 32, COUNT, y);
        cr_expect_eq(memcmp(x, y, COUNT * sizeof *x), 0, "%d", (int)run);
    }
    expect_ok(kiln_buffer_read(state, 0, words, sizeof words));
    cr_expect(words[0] == 5 && words[1] == RUNS);
    kiln_buffer_release(state);
    kiln_batch_release(batch);
    close_context(context);
}

Test(random, of_any_shape_as_the_reference)
{
    kiln_batch *batch = check_begin();
    kiln_tensor key = kiln_random_key(batch, 99);
    check_read(batch, kiln_random_uniform(batch, DIMS(3, 1, 67), key));
    check_read(batch, kiln_random_uniform(batch, SCALAR, key));
    check_read(batch, kiln_random_uniform(batch, DIMS(4, 0), key));
    check_read(batch, kiln_random_normal(batch, DIMS(2, 501), key));
    check_read(batch, kiln_sum(batch, kiln_random_uniform(batch, DIMS(5, 33), key), 1,
                               (const int[]){0}, 0));
    check_run(batch);
    check_end(batch);
    check_close();
}

/* ---- dropout ---- */

static void drop(double probability, float *gradient)
{
    kiln_context *context = open_context();
    kiln_batch *batch = kiln_batch_create(context);
    for (size_t i = 0; i < N; i++)
        x[i] = (float)(i % 7) + 1;
    x[0] = NAN;
    const size_t n = N;
    kiln_tensor in = kiln_upload(batch, KILN_F32, 1, &n, x), g;
    kiln_tensor out = kiln_dropout(batch, in, probability, kiln_random_key(batch, 3));
    expect_ok(kiln_grad(batch, kiln_sum(batch, out, 0, NULL, 0), &in, 1, &g));
    expect_ok(kiln_read(batch, out, y, sizeof y));
    expect_ok(kiln_read(batch, g, gradient, sizeof y));
    run_batch(batch);
    kiln_batch_release(batch);
    close_context(context);
}

Test(random, dropout_drops_and_scales_and_so_does_its_gradient)
{
    float *g = malloc(sizeof y);
    size_t kept = 0;
    drop(0.25, g);
    for (size_t i = 1; i < N; i++) {
        cr_assert(y[i] == 0 || fabsf(y[i] - x[i] / 0.75F) < 1e-5F, "%zu: %g", i, y[i]);
        cr_assert_float_eq(g[i], y[i] == 0 ? 0 : 4.0 / 3, 1e-6, "%zu", i);
        kept += y[i] != 0;
    }
    cr_expect_float_eq((double)kept / (double)N, 0.75, 0.006);
    free(g);
}

Test(random, dropout_of_nothing_and_of_all)
{
    float *g = malloc(sizeof y);
    drop(0, g);
    for (size_t i = 1; i < N; i++)
        cr_assert(y[i] == x[i] && g[i] == 1);
    drop(1, g);
    for (size_t i = 0; i < N; i++)
        cr_assert(y[i] == 0 && g[i] == 0, "%zu: a NaN is dropped, too", i);
    free(g);
}

/* ---- misuse ---- */

#define MISUSE(status, sentence, call)                                                             \
    do {                                                                                           \
        kiln_batch *batch = kiln_batch_create(context);                                            \
        kiln_tensor key = kiln_random_key(batch, 1), one = kiln_constant(batch, KILN_I32, 1);      \
        kiln_tensor real = kiln_constant(batch, KILN_F32, 1);                                      \
        (void)key, (void)one, (void)real;                                                          \
        cr_expect_eq((call).id, 0u);                                                               \
        cr_expect_eq(kiln_batch_status(batch), status);                                            \
        cr_expect_str_eq(without_call(kiln_batch_error(batch)), sentence);                         \
        kiln_batch_release(batch);                                                                 \
    } while (0)

Test(random, misuse_is_named)
{
    kiln_context *context = open_context(), *elsewhere = open_context();
    const kiln_tensor none = {0};
    kiln_buffer *state, *far, *wide;
    cr_assert_eq(kiln_buffer_create(context, KILN_I64, 1, (size_t[]){2}, &wide), KILN_OK);
    cr_assert_eq(kiln_buffer_create(context, KILN_I32, 1, (size_t[]){2}, &state), KILN_OK);
    cr_assert_eq(kiln_buffer_create(elsewhere, KILN_I32, 1, (size_t[]){2}, &far), KILN_OK);
    MISUSE(KILN_SHAPE_MISMATCH, "kiln_random_uniform: the key is [], and keys are [2]",
           kiln_random_uniform(batch, 0, NULL, one));
    MISUSE(KILN_TYPE_MISMATCH, "kiln_random_normal: the key is f32, and keys are i32",
           kiln_random_normal(batch, 0, NULL, real));
    MISUSE(KILN_INVALID_HANDLE, "kiln_random_split: operand key is the empty tensor",
           kiln_random_split(batch, none, 0));
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_random_split: number 4294967295 is beyond 1073741822",
           kiln_random_split(batch, key, UINT32_MAX));
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_random_uniform: dims is NULL",
           kiln_random_uniform(batch, 1, NULL, key));
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_random_normal: 9 dimensions, and 8 are the most",
           kiln_random_normal(batch, 9, (size_t[9]){0}, key));
    MISUSE(KILN_TOO_LARGE,
           "kiln_random_normal: the elements of shape [65536,32768] cannot be numbered by an i32",
           kiln_random_normal(batch, 2, (size_t[]){65536, 32768}, key));
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_random_next: state is NULL", kiln_random_next(batch, NULL));
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_random_next: the buffer is of another context",
           kiln_random_next(batch, far));
    MISUSE(KILN_INVALID_ARGUMENT,
           "kiln_random_next: the batch leaves something in this state already; split the key that "
           "it has, by kiln_random_split()",
           (kiln_random_next(batch, state), kiln_random_next(batch, state)));
    MISUSE(KILN_TYPE_MISMATCH, "kiln_random_next: the key is i64, and keys are i32",
           kiln_random_next(batch, wide));
    MISUSE(KILN_INVALID_HANDLE, "kiln_dropout: operand x is the empty tensor",
           kiln_dropout(batch, none, 0.5, key));
    MISUSE(KILN_TYPE_MISMATCH,
           "kiln_dropout: operand x is i32, and only floating types are taken; cast it",
           kiln_dropout(batch, one, 0.5, key));
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_dropout: 1.5 is no probability",
           kiln_dropout(batch, real, 1.5, key));
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_dropout: nan is no probability",
           kiln_dropout(batch, real, NAN, key));
    MISUSE(KILN_SHAPE_MISMATCH, "kiln_dropout: the key is [], and keys are [2]",
           kiln_dropout(batch, real, 0.5, one));
    cr_expect_eq(kiln_random_key(NULL, 1).id, 0u);
    cr_expect_eq(kiln_random_next(NULL, state).id, 0u);
    kiln_buffer_release(state);
    kiln_buffer_release(far);
    kiln_buffer_release(wide);
    close_context(elsewhere);
    close_context(context);
}
