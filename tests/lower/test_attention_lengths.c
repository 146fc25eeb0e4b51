/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over as many keys as a tensor says: answers from PyTorch, the device against the
 * reference over lengths, masks, types and layouts; keys beyond a length are not read. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/attention.h>
#include <kiln/gradient.h>

#include "../support/check.h"
#include "../support/gradient.h"
#include "../support/graph.h"

static const kiln_tensor no_mask = {0};

/* ---- known answers: those of test_attention.c, with keys of NaN behind the four ---- */

static const float q23[] = {1, 0, -1, 0.5f, 2, 1};
static const float k63[] = {0.25f, 1, 0,  -1,  0.5f, 2,   3,   -2,  1,
                            0,     1, -1, NAN, NAN,  NAN, NAN, NAN, NAN};
static const float v62[] = {1, 2, 3, -4, 5, 6, -7, 8, NAN, INFINITY, NAN, NAN};

static void expect_known(int32_t length, int causal, int64_t diagonal, const double wanted[4])
{
    kiln_attention_options options = KILN_ATTENTION_OPTIONS_INIT;
    kiln_batch *b = check_begin();
    options.causal = causal;
    options.diagonal = diagonal;
    kiln_tensor y = kiln_attention_with_lengths(
        b, check_given(b, KILN_F32, DIMS(2, 3), q23), check_given(b, KILN_F32, DIMS(6, 3), k63),
        check_given(b, KILN_F32, DIMS(6, 2), v62), no_mask,
        check_given(b, KILN_I32, SCALAR, &length), &options);
    float *found = check_read(b, y);
    check_run(b);
    for (int i = 0; i < 4; i++)
        cr_expect(fabs(found[i] - wanted[i]) <= 2e-6 * fabs(wanted[i]) + 1e-6,
                  "length %d, causal %d, diagonal %d: element %d is %.9g, not %.9g", (int)length,
                  causal, (int)diagonal, i, found[i], wanted[i]);
    check_end(b);
}
#define KNOWN(...) ((double[]){__VA_ARGS__})

Test(attention_lengths, known_answers)
{
    expect_known(4, 0, 0, KNOWN(0.8084232374, 5.550203194, 0.5838426957, 0.6758529565));
    /* The two queries are at places 2 and 3. */
    expect_known(4, 1, 0, KNOWN(3.895750888, 4.581592094, 0.5838426957, 0.6758529565));
    expect_known(4, 1, 1, KNOWN(0.8084232374, 5.550203194, 0.5838426957, 0.6758529565));
    expect_known(4, 1, INT64_MAX, KNOWN(0.8084232374, 5.550203194, 0.5838426957, 0.6758529565));
    expect_known(4, 1, -3, KNOWN(0, 0, 1, 2));
    expect_known(4, 1, INT64_MIN, KNOWN(0, 0, 0, 0));
    expect_known(2, 1, 0, KNOWN(1, 2, 2.107832284, -1.323496853));
    expect_known(1, 1, 0, KNOWN(0, 0, 1, 2)); /* the first query is before the first key */
    expect_known(1, 0, 0, KNOWN(1, 2, 1, 2));
    expect_known(0, 0, 0, KNOWN(0, 0, 0, 0));
    expect_known(-7, 1, 0, KNOWN(0, 0, 0, 0));
    check_close();
}

/* ---- against the reference ---- */

enum { MOST_ROWS = 8 };

/* Lengths of all kinds; some are not within 0 and n. */
static kiln_tensor lengths_of(kiln_batch *b, size_t rows, size_t n)
{
    const int32_t end = (int32_t)n,
                  given[MOST_ROWS] = {end / 2, 0, end, 1, end - 1, end + 9, -3, 2 * end / 3};
    return check_given(b, KILN_I32, DIMS(rows, 1), given);
}

/* 0: no mask; of truths, of numbers, one for all rows. */
static kiln_tensor any_mask(kiln_batch *b, int kind, size_t m, size_t n)
{
    switch (kind) {
    case 1: return check_input(b, KILN_BOOL, DIMS(1, m, n), CHECK_FEW);
    case 2: return check_input(b, KILN_F32, DIMS(m, n), CHECK_PLAIN);
    case 3: return check_input(b, KILN_F32, DIMS(n), CHECK_PLAIN);
    default: return no_mask;
    }
}

static void attend(size_t rows, size_t m, size_t n, size_t d, size_t e, int mask, int causal)
{
    kiln_attention_options options = KILN_ATTENTION_OPTIONS_INIT;
    kiln_batch *b = check_begin();
    options.causal = causal != 0;
    options.diagonal = causal > 1 ? -2 : 0;
    kiln_tensor q = check_plain(b, DIMS(rows, 2, m, d)), k = check_plain(b, DIMS(rows, 2, n, d));
    kiln_tensor v = check_plain(b, DIMS(rows, 1, n, e));
    check_tensor(b, kiln_attention_with_lengths(b, q, k, v, any_mask(b, mask, m, n),
                                                lengths_of(b, rows, n), &options));
}

Test(attention_lengths, sizes)
{
    static const size_t sizes[][4] = {{1, 1, 1, 1},     {1, 7, 3, 5},    {5, 4, 8, 8},
                                      {1, 200, 32, 32}, {3, 65, 16, 24}, {17, 130, 16, 16},
                                      {70, 90, 8, 7},   {4, 0, 4, 4},    {8, 130, 48, 16}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int causal = 0; causal < 3; causal++)
            attend(1 + i * 5 % MOST_ROWS, sizes[i][0], sizes[i][1], sizes[i][2], sizes[i][3], 0,
                   causal);
    check_close();
}

/* More keys than one part has: of lengths that end within each of them. */
Test(attention_lengths, keys_in_parts)
{
    for (int causal = 0; causal < 2; causal++) {
        attend(MOST_ROWS, 1, 1100, 16, 16, 0, causal);
        attend(3, 3, 1030, 32, 16, 2, causal);
    }
    check_close();
}

Test(attention_lengths, slow_masks)
{
    for (int mask = 1; mask < 4; mask++)
        for (int causal = 0; causal < 2; causal++) {
            attend(MOST_ROWS, 1, 70, 16, 16, mask, causal);
            attend(4, 9, 40, 16, 16, mask, causal);
        }
    check_close();
}

/* ---- types and layouts ---- */

/* Heads in groups that share keys, caches of narrow types. */
Test(attention_lengths, narrow_caches_of_shared_heads)
{
    static const kiln_type types[] = {KILN_BF16, KILN_F16};
    for (size_t i = 0; i < 2; i++) {
        kiln_batch *b = check_begin();
        kiln_tensor q = check_input(b, KILN_F32, DIMS(3, 2, 4, 5, 32), CHECK_PLAIN);
        kiln_tensor k = check_input(b, types[i], DIMS(3, 2, 1, 70, 32), CHECK_PLAIN);
        kiln_tensor v = check_input(b, types[i], DIMS(3, 2, 1, 70, 32), CHECK_PLAIN);
        kiln_tensor lengths = kiln_reshape(b, lengths_of(b, 3, 70), 3, (size_t[]){3, 1, 1});
        kiln_attention_options options = KILN_ATTENTION_OPTIONS_INIT;
        options.causal = 1;
        check_read(b, kiln_attention_with_lengths(b, q, k, v, no_mask, lengths, &options));
        check_run(b);
        cr_expect_eq(cost_of(b).launches, 1, "%zu", cost_of(b).launches);
        check_end(b);
    }
    check_close();
}

/* Integers of every type; what is computed; one number. */
Test(attention_lengths, types_of_lengths)
{
    static const kiln_type types[] = {KILN_I32, KILN_I64, KILN_I8, KILN_U8};
    for (size_t i = 0; i < 6; i++) {
        kiln_batch *b = check_begin();
        kiln_tensor q = check_plain(b, DIMS(3, 2, 8)), k = check_plain(b, DIMS(3, 9, 8));
        kiln_tensor lengths = i < 4    ? check_input(b, types[i], DIMS(3), CHECK_FEW)
                              : i == 4 ? kiln_iota(b, 1, (size_t[]){3}, 0)
                                       : kiln_constant(b, KILN_I32, 5);
        if (i == 4)
            lengths = kiln_add(b, lengths, kiln_constant(b, KILN_I32, 4));
        check_tensor(b, kiln_attention_with_lengths(b, q, k, k, no_mask, lengths, NULL));
    }
    check_close();
}

/* ---- what lies beyond a length ---- */

enum { B = 3, M = 4, N = 150, D = 16 };

/* Results of B matrices of keys with these lengths, with `beyond` behind them. */
static void attend_beside(const int32_t lengths[B], float beyond, int causal, float y[B * M * D])
{
    static float q[B * M * D], k[B * N * D], v[B * N * D];
    kiln_attention_options options = KILN_ATTENTION_OPTIONS_INIT;
    kiln_batch *b = kiln_batch_create(check_context());
    options.causal = causal;
    for (int i = 0; i < B * M * D; i++)
        q[i] = (float)(i * 5 % 17 - 8) / 8;
    for (int i = 0; i < B * N * D; i++) {
        const bool there = i / D % N < lengths[i / D / N];
        k[i] = there ? (float)(i * 7 % 23 - 11) / 16 : beyond;
        v[i] = there ? (float)(i * 3 % 19 - 9) / 8 : beyond;
    }
    kiln_tensor of = kiln_attention_with_lengths(
        b, kiln_upload(b, KILN_F32, DIMS(B, M, D), q), kiln_upload(b, KILN_F32, DIMS(B, N, D), k),
        kiln_upload(b, KILN_F32, DIMS(B, N, D), v), no_mask,
        kiln_upload(b, KILN_I32, DIMS(B), lengths), &options);
    expect_ok(kiln_read(b, of, y, B * M * D * sizeof *y));
    run_batch(b);
    kiln_batch_release(b);
}

/* Bits do not depend on what is beyond, nor on how long the others are. */
Test(attention_lengths, same_bits_whatever_lies_beyond_and_beside)
{
    static const int32_t alone[B] = {100, 1, N}, beside[B] = {100, N, 3};
    static float y[3][B * M * D];
    for (int causal = 0; causal < 2; causal++) {
        attend_beside(alone, 0, causal, y[0]);
        attend_beside(alone, NAN, causal, y[1]);
        attend_beside(beside, INFINITY, causal, y[2]);
        cr_expect_eq(memcmp(y[0], y[1], sizeof y[0]), 0);
        cr_expect_eq(memcmp(y[0], y[2], sizeof y[0] / B), 0, "the first matrix");
        cr_expect(y[0][0] != 0 && isfinite(y[0][0]));
    }
    check_close();
}

/* ---- parts ---- */

/* Launches, and the options and the parts of the first one, where a sequence has m queries and room
 * for n keys. */
static size_t launches_of(kiln_context *context, size_t rows, size_t m, size_t n, char options[400],
                          size_t *parts)
{
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor q = imagine(batch, 3, (size_t[]){rows, m, 64});
    kiln_tensor k = imagine(batch, 3, (size_t[]){rows, n, 64});
    ask(batch, kiln_attention_with_lengths(batch, q, k, k, no_mask,
                                           kiln_constant(batch, KILN_I32, 9), NULL));
    struct kiln__plan plan = plan_of(batch, false);
    const struct kiln__launch *launches = plan.launches.items;
    size_t count = plan.launches.count, first = 0;
    while (launches[first].source != KILN__SOURCE_TEMPLATE)
        first++;
    snprintf(options, 400, "%s %s %s", launches[first].choice.taken->name, launches[first].kernel,
             launches[first].options);
    *parts = launches[first].global[launches[first].global[2] > 1 ? 2 : 0];
    kiln__plan_free(&plan);
    kiln_batch_release(batch);
    return count - first;
}

/* How keys are divided depends on how many there is room for, not on how many sequences there are.
 */
Test(attention_lengths, parts)
{
    static const struct {
        bool gpu;
        size_t m, n, launches, parts;
        const char *kernel;
    } rows[] = {{false, 1, 512, 1, 1, "few attention_cpu_few"},
                {false, 8, 513, 2, 2, "few attention_cpu_few"},
                {false, 1, 8192, 2, 16, "few attention_cpu_few"},
                {false, 9, 8192, 1, 1, "items attention_cpu"},
                {true, 1, 512, 2, 8, "few_groups attention_gpu"},
                {true, 4, 65536, 2, 64, "few_groups attention_gpu"},
                {true, 1, 64, 1, 0, "groups attention_gpu"},
                {true, 9, 512, 1, 0, "groups attention_gpu"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char options[2][400];
        for (size_t many = 0; many < 2; many++) {
            size_t parts,
                launches = launches_of(rows[i].gpu ? imagined_gpu() : imagined_cpu(), many ? 40 : 1,
                                       rows[i].m, rows[i].n, options[many], &parts);
            cr_expect_eq(launches, rows[i].launches, "%zu: %zu launches", i, launches);
            cr_expect(!rows[i].parts || parts == rows[i].parts, "%zu: %zu parts", i, parts);
            cr_expect(strstr(options[many], rows[i].kernel) == options[many], "%zu: %s", i,
                      options[many]);
        }
        if (rows[i].m <= 8 && rows[i].n > 64)
            cr_expect_str_eq(options[0], options[1]);
    }
}

/* ---- heads that share keys ---- */

/* Queries of one token and two groups of heads beside their keys: what a launch on a CPU takes. */
static void expect_shared(size_t heads, size_t lanes, int causal, size_t rows, size_t matrices)
{
    kiln_attention_options options = KILN_ATTENTION_OPTIONS_INIT;
    kiln_batch *batch = kiln_batch_create(imagined_cpu());
    kiln_tensor q = imagine(batch, 5, (size_t[]){2, heads, lanes, 1, 64});
    kiln_tensor k = imagine(batch, 5, (size_t[]){2, 1, lanes, 512, 64});
    options.causal = causal;
    cr_expect_eq(kiln_batch_set_batch_invariant(batch), KILN_OK);
    kiln_tensor lengths = kiln_cast(batch, imagine(batch, 1, &lanes), KILN_I32);
    ask(batch, kiln_attention_with_lengths(batch, q, k, k, no_mask, lengths, &options));
    struct kiln__plan plan = plan_of(batch, false);
    size_t i = 0;
    while (plan.launches.items[i].source != KILN__SOURCE_TEMPLATE)
        i++;
    const struct kiln__launch *launch = &plan.launches.items[i];
    char wanted[20];
    snprintf(wanted, sizeof wanted, "-DROWS=%zu ", rows);
    cr_expect(strstr(launch->options, wanted), "%s of %s", launch->options, wanted);
    cr_expect_eq(launch->global[1], matrices, "%zu matrices", launch->global[1]);
    kiln__plan_free(&plan);
    kiln_batch_release(batch);
}

/* They are rows of one matrix, whatever is beside them; but not where a row sees more than the one
 * before, nor more than there is room for. */
Test(attention_lengths, heads_that_share_keys)
{
    expect_shared(3, 1, 0, 3, 2);
    expect_shared(3, 8, 0, 3, 16);
    expect_shared(3, 8, 1, 1, 48);
    expect_shared(9, 8, 0, 1, 144);
    expect_shared(1, 8, 0, 1, 16);
}

/* Their numbers, with a mask and without one. */
Test(attention_lengths, numbers_of_shared_keys)
{
    for (int masked = 0; masked < 2; masked++) {
        kiln_batch *b = check_begin();
        cr_expect_eq(kiln_batch_set_batch_invariant(b), KILN_OK);
        kiln_tensor q = check_input(b, KILN_F32, DIMS(2, 3, 4, 1, 32), CHECK_PLAIN);
        kiln_tensor k = check_input(b, KILN_F32, DIMS(2, 1, 4, 530, 32), CHECK_PLAIN);
        kiln_tensor v = check_input(b, KILN_F32, DIMS(2, 1, 4, 530, 32), CHECK_PLAIN);
        kiln_tensor mask =
            masked ? check_input(b, KILN_F32, DIMS(3, 1, 1, 530), CHECK_PLAIN) : no_mask;
        kiln_tensor lengths = kiln_reshape(b, lengths_of(b, 4, 530), 1, (size_t[]){4});
        check_read(b, kiln_attention_with_lengths(b, q, k, v, mask, lengths, NULL));
        check_run(b);
        cr_expect_eq(cost_of(b).launches, 2, "%zu", cost_of(b).launches);
        check_end(b);
    }
    check_close();
}

/* ---- gradients ---- */

static void differ(int mask, int causal, int64_t diagonal)
{
    kiln_attention_options options = KILN_ATTENTION_OPTIONS_INIT;
    kiln_batch *b = check_begin();
    options.causal = causal;
    options.diagonal = diagonal;
    options.scale = 0.25;
    kiln_tensor q = check_plain(b, DIMS(4, 2, 3, 2)), k = check_plain(b, DIMS(4, 1, 6, 2));
    kiln_tensor v = check_plain(b, DIMS(6, 3)), added = any_mask(b, mask, 3, 6);
    kiln_tensor inputs[] = {q, k, v, added};
    kiln_tensor y = kiln_attention_with_lengths(b, q, k, v, added, lengths_of(b, 4, 6), &options);
    check_gradient(b, y, mask > 1 ? 4 : 3, inputs, 1e-6, NULL);
    check_end(b);
}

Test(attention_lengths, gradients)
{
    differ(0, 0, 0);
    differ(0, 1, 0);
    differ(0, 1, 2);
    differ(1, 0, 0);
    differ(2, 1, -1);
    check_close();
}

/* By keys beyond the length they are 0, whatever lies there. */
Test(attention_lengths, slow_gradients_beside_keys_beyond)
{
    const int32_t length = 4;
    kiln_batch *b = check_begin();
    kiln_tensor x[] = {check_given(b, KILN_F32, DIMS(2, 3), q23),
                       check_given(b, KILN_F32, DIMS(6, 3), k63),
                       check_given(b, KILN_F32, DIMS(6, 2), v62)},
                g[3];
    kiln_tensor y = kiln_attention_with_lengths(b, x[0], x[1], x[2], no_mask,
                                                check_given(b, KILN_I32, SCALAR, &length), NULL);
    expect_ok(kiln_grad(b, kiln_sum(b, kiln_square(b, y), 0, NULL, 0), x, 3, g));
    const float *found[] = {check_read(b, g[0]), check_read(b, g[1]), check_read(b, g[2])};
    run_batch(b);
    for (int i = 0; i < 6; i++)
        cr_expect(isfinite(found[0][i]) && found[0][i] != 0, "%g", found[0][i]);
    for (int i = 0; i < 18; i++)
        cr_expect(i < 12 ? isfinite(found[1][i]) : found[1][i] == 0, "%d: %g", i, found[1][i]);
    for (int i = 0; i < 12; i++)
        cr_expect(i < 8 ? isfinite(found[2][i]) : found[2][i] == 0, "%d: %g", i, found[2][i]);
    check_end(b);
    check_close();
}

/* ---- errors ---- */

Test(attention_lengths, errors)
{
    const float number = 2;
    static const int32_t numbers[3];
#define ATTEND(lengths)                                                                            \
    kiln_attention_with_lengths(b, check_plain(b, DIMS(2, 3, 4)), check_plain(b, DIMS(2, 5, 4)),   \
                                check_plain(b, DIMS(2, 5, 4)), no_mask, lengths, NULL)
    CHECK_REFUSED(ATTEND(no_mask), KILN_INVALID_HANDLE, "operand lengths is the empty tensor");
    CHECK_REFUSED(ATTEND(check_given(b, KILN_F32, SCALAR, &number)), KILN_TYPE_MISMATCH,
                  "lengths are f32, and only integers are taken");
    CHECK_REFUSED(ATTEND(check_input(b, KILN_BOOL, DIMS(2), CHECK_FEW)), KILN_TYPE_MISMATCH,
                  "lengths are bool, and only integers are taken");
    CHECK_REFUSED(ATTEND(check_given(b, KILN_I32, DIMS(3), numbers)), KILN_SHAPE_MISMATCH,
                  "the leading dimensions of lengths, shape [3], do not broadcast with those "
                  "before, [2]");
    CHECK_REFUSED(kiln_attention_with_lengths(
                      b, check_plain(b, DIMS(3, 4)), check_plain(b, DIMS(5, 4)),
                      check_plain(b, DIMS(5, 4)), no_mask,
                      check_input(b, KILN_I32, DIMS(1, 1, 1, 1, 1, 1, 1), CHECK_FEW), NULL),
                  KILN_INVALID_ARGUMENT, "two of a matrix make 9 dimensions, and 8 are the most");
    check_close();
}
