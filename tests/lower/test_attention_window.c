/* SPDX-License-Identifier: Apache-2.0 */
/* Attention whose rows see a window of keys: against a float64 evaluation of this file and against
 * the reference, over lengths, grouped heads and parts of keys; gradients; errors. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include <kiln/attention.h>
#include <kiln/gradient.h>

#include "../support/check.h"
#include "../support/gradient.h"
#include "../support/graph.h"
#include "session/context.h"

static const kiln_tensor no_mask = {0};

static const size_t LANES = 3, PAIRS = 2, HEADS = 2;

/* q [LANES, PAIRS, HEADS, m, d], k and v [LANES, PAIRS, 1, n, d]: heads of a pair share keys. */
struct sizes {
    size_t m, n, d;
    int64_t window, diagonal;
    bool causal, lengths;
};

/* Whether row i sees key j of `there`. */
static bool sees(const struct sizes *s, int64_t there, int64_t i, int64_t j)
{
    const int64_t own = s->lengths ? there - (int64_t)s->m + i : i;
    const int64_t place = s->causal ? own + s->diagonal : there - 1;
    return j < there && j <= place && (s->window == 0 || j > place - s->window);
}

static void window_row(const struct sizes *s, int64_t there, size_t i, const float *q,
                       const float *k, const float *v, double *result)
{
    double total = 0;
    for (size_t c = 0; c < s->d; c++)
        result[c] = 0;
    for (size_t j = 0; j < s->n; j++) {
        double score = 0;
        for (size_t c = 0; c < s->d; c++)
            score += (double)q[c] * k[j * s->d + c];
        const double weight =
            sees(s, there, (int64_t)i, (int64_t)j) ? exp(score / sqrt((double)s->d)) : 0;
        total += weight;
        for (size_t c = 0; c < s->d; c++)
            result[c] += weight * v[j * s->d + c];
    }
    for (size_t c = 0; c < s->d && total != 0; c++)
        result[c] /= total;
}

static float *numbers(size_t count)
{
    float *made = malloc((count + 1) * sizeof *made);
    for (size_t i = 0; i < count; i++)
        made[i] = (float)((int)check_random(2001) - 1000) / 500;
    return made;
}

static void compare(const struct sizes *s, const int32_t *lengths, const float *const x[3],
                    const float *found)
{
    double row[64];
    for (size_t b = 0; b < LANES * PAIRS * HEADS; b++)
        for (size_t i = 0; i < s->m; i++) {
            const size_t shared = b / HEADS * s->n * s->d, own = (b * s->m + i) * s->d;
            const int64_t there = s->lengths ? lengths[b / HEADS / PAIRS] : (int64_t)s->n;
            window_row(s, there, i, x[0] + own, x[1] + shared, x[2] + shared, row);
            for (size_t c = 0; c < s->d; c++)
                cr_assert(fabs(found[own + c] - row[c]) <= 1e-5,
                          "m %zu, n %zu, window %lld, causal %d, diagonal %lld, lengths %d, matrix "
                          "%zu, row %zu: %.9g is not %.9g",
                          s->m, s->n, (long long)s->window, s->causal, (long long)s->diagonal,
                          s->lengths, b, i, found[own + c], row[c]);
        }
}

static void attend(const struct sizes *s)
{
    const int32_t n = (int32_t)s->n, lengths[] = {n, n / 2, n > 3 ? n - 3 : 0};
    kiln_attention_options options = KILN_ATTENTION_OPTIONS_INIT;
    options.causal = s->causal;
    options.diagonal = s->diagonal;
    options.window = s->window;
    float *q = numbers(LANES * PAIRS * HEADS * s->m * s->d),
          *k = numbers(LANES * PAIRS * s->n * s->d), *v = numbers(LANES * PAIRS * s->n * s->d);
    kiln_batch *b = check_begin();
    kiln_tensor x = check_given(b, KILN_F32, DIMS(LANES, PAIRS, HEADS, s->m, s->d), q),
                y = check_given(b, KILN_F32, DIMS(LANES, PAIRS, 1, s->n, s->d), k),
                z = check_given(b, KILN_F32, DIMS(LANES, PAIRS, 1, s->n, s->d), v);
    kiln_tensor given = check_given(b, KILN_I32, DIMS(LANES, 1, 1), lengths);
    const float *found =
        check_read(b, s->lengths ? kiln_attention_with_lengths(b, x, y, z, no_mask, given, &options)
                                 : kiln_attention(b, x, y, z, no_mask, &options));
    check_run(b);
    compare(s, lengths, (const float *[]){q, k, v}, found);
    check_end(b);
    free(q);
    free(k);
    free(v);
}

/* All windows of these sizes: one key, a prime, all but one, more than all. */
static void windows(size_t m, size_t n, size_t d)
{
    const int64_t all[] = {1, 7, 67, (int64_t)n, (int64_t)n + 5, INT64_MAX};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int way = 0; way < 6; way++)
            attend(&(struct sizes){m, n, d, all[i], way > 3 ? -2 : 0, way % 2 || way > 3,
                                   way / 2 % 2});
}

/* A single row, a few and many; columns that the kernel for few rows takes, and others. */
Test(attention_window, against_float64)
{
    windows(1, 200, 16);
    windows(3, 150, 16);
    windows(40, 140, 16);
    windows(2, 90, 5);
    check_close();
}

Test(attention_window, keys_in_parts)
{
    windows(1, 1100, 16);
    check_close();
}

/* Kernels of work-groups on every device. */
Test(attention_window, of_work_groups, .init = check_cheaply)
{
    static struct kiln__traits traits;
    kiln_context *context = check_context();
    if (!context->runtime.device.traits->chunked) {
        check_close();
        cr_skip_test("the device's kernels are made for work-groups anyway");
    }
    traits = *context->runtime.device.traits;
    traits.name = "grouped";
    traits.chunked = false;
    traits.vector = 4;
    traits.chunks = traits.min_chunk = 1;
    traits.work_group = 64;
    context->runtime.device.traits = &traits;
    windows(1, 300, 16);
    windows(3, 150, 16);
    windows(70, 140, 16);
    check_close();
}

/* Tensor cores take operands of 16 bits: more rows than a work-group, keys of several blocks. */
static void attend_narrow(kiln_type type, size_t d, int way, int64_t window)
{
    const int32_t lengths[] = {300, 301, 40};
    kiln_attention_options options = KILN_ATTENTION_OPTIONS_INIT;
    options.causal = way % 2;
    options.diagonal = way % 2 && way / 2 == 0 ? 160 : 0;
    options.window = window;
    kiln_batch *b = check_begin();
    kiln_tensor q = check_input(b, type, DIMS(LANES, HEADS, 140, d), CHECK_PLAIN),
                k = check_input(b, type, DIMS(LANES, 1, 300, d), CHECK_PLAIN),
                v = check_input(b, type, DIMS(LANES, 1, 300, d), CHECK_PLAIN);
    kiln_tensor mask = way / 4 ? check_input(b, KILN_U8, DIMS(140, 300), CHECK_FEW) : no_mask;
    kiln_tensor given = check_given(b, KILN_I32, DIMS(LANES, 1), lengths);
    check_read(b, way / 2 % 2 ? kiln_attention_with_lengths(b, q, k, v, mask, given, &options)
                              : kiln_attention(b, q, k, v, mask, &options));
    cr_assert(check_run(b), "columns %zu, way %d, window %d", d, way, (int)window);
    check_end(b);
}

Test(attention_window, of_narrow_operands)
{
    static const int64_t sizes[] = {1, 128, 250};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int way = 0; way < 8; way++) {
            const bool wide = (i + (size_t)way / 2) % 2;
            attend_narrow(wide ? KILN_BF16 : KILN_F16, wide ? 128 : 64, way, sizes[i]);
        }
    check_close();
}

/* Rows whose places are behind the last key. */
Test(attention_window, places_behind_all_keys)
{
    for (int64_t diagonal = 18; diagonal < 24; diagonal++)
        attend(&(struct sizes){2, 20, 16, 3, diagonal, true, false});
    check_close();
}

Test(attention_window, gradients)
{
    for (int way = 0; way < 4; way++) {
        const int32_t lengths[2] = {6, 4};
        kiln_attention_options options = KILN_ATTENTION_OPTIONS_INIT;
        options.causal = way % 2;
        options.window = 2;
        kiln_batch *b = check_begin();
        kiln_tensor x[] = {check_plain(b, DIMS(2, 2, 3, 2)), check_plain(b, DIMS(2, 1, 6, 2)),
                           check_plain(b, DIMS(6, 3))};
        kiln_tensor given = check_given(b, KILN_I32, DIMS(2, 1), lengths);
        kiln_tensor y =
            way / 2 ? kiln_attention_with_lengths(b, x[0], x[1], x[2], no_mask, given, &options)
                    : kiln_attention(b, x[0], x[1], x[2], no_mask, &options);
        check_gradient(b, y, 3, x, 1e-6, NULL);
        check_end(b);
    }
    check_close();
}

Test(attention_window, errors)
{
    kiln_attention_options options = KILN_ATTENTION_OPTIONS_INIT;
    options.window = -1;
    CHECK_REFUSED(kiln_attention(b, check_plain(b, DIMS(3, 4)), check_plain(b, DIMS(5, 4)),
                                 check_plain(b, DIMS(5, 4)), no_mask, &options),
                  KILN_INVALID_ARGUMENT, "the window of -1 keys is negative; 0 sees all keys");
    check_close();
}
