/* SPDX-License-Identifier: Apache-2.0 */
/* Attention: answers from PyTorch, then the device against the reference over sizes, masks and
 * layouts; no score matrix in memory. */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/attention.h>
#include <kiln/gradient.h>

#include "../support/check.h"
#include "../support/gradient.h"
#include "../support/graph.h"

static const kiln_tensor no_mask = {0};

/* ---- known answers: torch.nn.functional._scaled_dot_product_attention of PyTorch 1.13 in f64,
 * and softmax(q @ k.T * 2) @ v for the other scale ---- */

static const float q23[] = {1, 0, -1, 0.5f, 2, 1};
static const float k43[] = {0.25f, 1, 0, -1, 0.5f, 2, 3, -2, 1, 0, 1, -1};
static const float v42[] = {1, 2, 3, -4, 5, 6, -7, 8};
static const uint8_t seen24[] = {1, 0, 7, 255, 0, 1, 0, 1};
static const float added24[] = {0.5f, -1, 0, 2, -3, 0.25f, 1, -0.5f};

struct given {
    kiln_batch *batch;
    kiln_tensor q, k, v;
};

static struct given begin_known(void)
{
    struct given given = {.batch = check_begin()};
    given.q = check_given(given.batch, KILN_F32, DIMS(2, 3), q23);
    given.k = check_given(given.batch, KILN_F32, DIMS(4, 3), k43);
    given.v = check_given(given.batch, KILN_F32, DIMS(4, 2), v42);
    return given;
}

static void expect_known(struct given given, kiln_tensor y, const double wanted[4])
{
    float *found = check_read(given.batch, y);
    check_run(given.batch);
    for (int i = 0; i < 4; i++)
        cr_expect(fabs(found[i] - wanted[i]) <= 2e-6 * fabs(wanted[i]) + 1e-6,
                  "element %d is %.9g, not %.9g", i, found[i], wanted[i]);
    check_end(given.batch);
}
#define KNOWN(...) ((double[]){__VA_ARGS__})

Test(attention, known_answers)
{
    kiln_attention_options options = KILN_ATTENTION_OPTIONS_INIT;
    struct given g = begin_known();
    expect_known(g, kiln_attention(g.batch, g.q, g.k, g.v, no_mask, NULL),
                 KNOWN(0.8084232374, 5.550203194, 0.5838426957, 0.6758529565));

    options.scale = 2;
    g = begin_known();
    expect_known(g, kiln_attention(g.batch, g.q, g.k, g.v, no_mask, &options),
                 KNOWN(3.502971373, 6.128199936, 2.052910869, -1.743827));

    options = (kiln_attention_options)KILN_ATTENTION_OPTIONS_INIT;
    options.causal = 1;
    g = begin_known();
    expect_known(g, kiln_attention(g.batch, g.q, g.k, g.v, no_mask, &options),
                 KNOWN(1, 2, 2.107832284, -1.323496853));

    g = begin_known();
    kiln_tensor seen = check_given(g.batch, KILN_U8, DIMS(2, 4), seen24);
    expect_known(g, kiln_attention(g.batch, g.q, g.k, g.v, seen, NULL),
                 KNOWN(0.7449603849, 5.826754372, 0.03917994721, -0.4470159366));

    g = begin_known();
    kiln_tensor added = check_given(g.batch, KILN_F32, DIMS(2, 4), added24);
    expect_known(g, kiln_attention(g.batch, g.q, g.k, g.v, added, NULL),
                 KNOWN(-4.051885279, 6.98631943, 1.869028722, -0.7544096375));
    check_close();
}

/* A row whose keys are all pushed away by a finite number sees them all, evenly where the number is
 * so low that a score makes no difference to it. */
Test(attention, finite_masks_hide_no_row)
{
    static const float numbers[] = {-1e9f, -2e38f, -3e38f, -FLT_MAX};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const float added[] = {numbers[i], numbers[i], numbers[i], numbers[i],
                               numbers[i], -INFINITY,  0,          numbers[i]};
        struct given g = begin_known();
        kiln_tensor mask = check_given(g.batch, KILN_F32, DIMS(2, 4), added);
        float found[4];
        kiln_read(g.batch, kiln_attention(g.batch, g.q, g.k, g.v, mask, NULL), found, sizeof found);
        run_batch(g.batch);
        check_end(g.batch);
        for (size_t k = 0; k < 4; k++) /* the mean; one key alone */
            cr_expect_float_eq(found[k], ((const float[]){0.5f, 3, 5, 6})[k], 1e-5, "%g: %g",
                               (double)numbers[i], (double)found[k]);
    }
    check_close();
}

/* Of PyTorch with torch.ones(2, 4).tril(diagonal) as the mask, but for rows without a key: 0. */
Test(attention, diagonals)
{
    static const struct {
        int64_t diagonal;
        double wanted[4];
    } rows[] = {
        {-2, {0, 0, 0, 0}},
        {-1, {0, 0, 1, 2}},
        {INT64_MIN, {0, 0, 0, 0}},
        {2, {3.895750888, 4.581592094, 0.5838426957, 0.6758529565}},
        {3, {0.8084232374, 5.550203194, 0.5838426957, 0.6758529565}},
        {INT64_MAX, {0.8084232374, 5.550203194, 0.5838426957, 0.6758529565}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        kiln_attention_options options = KILN_ATTENTION_OPTIONS_INIT;
        struct given g = begin_known();
        options.causal = 1;
        options.diagonal = rows[i].diagonal;
        expect_known(g, kiln_attention(g.batch, g.q, g.k, g.v, no_mask, &options), rows[i].wanted);
    }
    check_close();
}

/* ---- against the reference ---- */

enum masks { NO_MASK, SEEN, ADDED, SEEN_KEYS, ADDED_ROW, MASKS };

/* Masks of many shapes; some rows see no key. */
static kiln_tensor make_mask(kiln_batch *b, enum masks kind, size_t batch, size_t m, size_t n)
{
    kiln_tensor x;
    switch (kind) {
    case NO_MASK:
    case MASKS: break;
    case SEEN:
        x = check_input(b, KILN_I32, DIMS(batch, 1, m, n), CHECK_FEW);
        return kiln_cast(b, kiln_maximum(b, x, kiln_constant(b, KILN_I32, 0)), KILN_U8);
    case ADDED: return check_input(b, KILN_F32, DIMS(m, n), CHECK_PLAIN);
    case SEEN_KEYS:
        x = check_input(b, KILN_I32, DIMS(batch, 1, 1, n), CHECK_FEW);
        return kiln_cast(b, kiln_maximum(b, x, kiln_constant(b, KILN_I32, 0)), KILN_U8);
    case ADDED_ROW: return check_input(b, KILN_F32, DIMS(n), CHECK_PLAIN);
    }
    return no_mask;
}

/* [batch, heads, ..] throughout. */
static void attend(size_t batch, size_t heads, size_t m, size_t n, size_t d, size_t e,
                   enum masks kind, int causal)
{
    kiln_attention_options options = KILN_ATTENTION_OPTIONS_INIT;
    kiln_batch *b = check_begin();
    options.causal = causal;
    options.diagonal = causal > 1 ? (int64_t)n - (int64_t)m : 0;
    kiln_tensor q = check_input(b, KILN_F32, DIMS(batch, heads, m, d), CHECK_PLAIN);
    kiln_tensor k = check_input(b, KILN_F32, DIMS(batch, heads, n, d), CHECK_PLAIN);
    kiln_tensor v = check_input(b, KILN_F32, DIMS(batch, heads, n, e), CHECK_PLAIN);
    kiln_tensor mask = make_mask(b, kind, batch, m, n);
    check_tensor(b, kiln_attention(b, q, k, v, mask, &options));
}

Test(attention, slow_sizes)
{
    static const size_t sizes[][4] = {{1, 1, 1, 1},       {1, 7, 3, 5},      {7, 1, 3, 5},
                                      {2, 3, 1, 1},       {16, 16, 16, 16},  {17, 33, 5, 9},
                                      {31, 64, 64, 64},   {64, 65, 64, 64},  {65, 63, 32, 7},
                                      {129, 200, 24, 40}, {3, 500, 64, 64},  {70, 131, 61, 67},
                                      {20, 90, 127, 16},  {33, 40, 128, 128}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int causal = 0; causal < 3; causal++)
            attend(1 + i % 2, 1 + i % 3, sizes[i][0], sizes[i][1], sizes[i][2], sizes[i][3],
                   NO_MASK, causal);
    check_close();
}

Test(attention, empty)
{
    attend(1, 1, 3, 0, 4, 5, NO_MASK, 0); /* no keys: zeros */
    attend(2, 1, 3, 0, 4, 5, SEEN, 1);
    attend(1, 1, 0, 3, 4, 5, NO_MASK, 0);
    attend(0, 2, 3, 3, 4, 5, NO_MASK, 0);
    attend(1, 1, 3, 3, 4, 0, NO_MASK, 0);
    attend(1, 2, 3, 7, 0, 5, NO_MASK, 0); /* equal scores: means */
    check_close();
}

Test(attention, slow_masks)
{
    static const size_t sizes[][4] = {
        {1, 5, 4, 4}, {17, 33, 16, 16}, {65, 130, 16, 20}, {40, 70, 64, 64}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int kind = SEEN; kind < MASKS; kind++)
            for (int causal = 0; causal < 2; causal++)
                attend(2, 2, sizes[i][0], sizes[i][1], sizes[i][2], sizes[i][3], (enum masks)kind,
                       causal);
    check_close();
}

/* Scores of hundreds, and such that grow or fall from block to block. */
Test(attention, large_scores)
{
    enum { M = 5, N = 200 };
    float q[M], k[N], v[N];
    for (int order = 0; order < 3; order++) {
        kiln_attention_options options = KILN_ATTENTION_OPTIONS_INIT;
        kiln_batch *b = check_begin();
        for (int i = 0; i < M; i++)
            q[i] = (float)(i - 2);
        for (int j = 0; j < N; j++) {
            k[j] = (float)(order == 0 ? j : order == 1 ? N - j : j % 2 ? 300 : -300);
            v[j] = (float)(j % 7);
        }
        options.scale = 4;
        check_tensor(b, kiln_attention(b, check_given(b, KILN_F32, DIMS(M, 1), q),
                                       check_given(b, KILN_F32, DIMS(N, 1), k),
                                       check_given(b, KILN_F32, DIMS(N, 1), v), no_mask, &options));
    }
    check_close();
}

/* One column of v adds up to more than there is, the others do not. */
Test(attention, sums_that_may_overflow)
{
    enum { N = 3, E = 16 };
    float v[N * E];
    kiln_batch *b = check_begin();
    for (int i = 0; i < N * E; i++)
        v[i] = i % E ? (float)i : 3e38f;
    kiln_tensor x = check_plain(b, DIMS(N, 4));
    check_tensor(b,
                 kiln_attention(b, x, x, check_given(b, KILN_F32, DIMS(N, E), v), no_mask, NULL));
    check_close();
}

/* What rows see of NaN and infinities: a masked score does not count, whatever it is. */
Test(attention, special_values)
{
    static const float q[] = {1, 1, 1, NAN, 1}, k[] = {1, NAN, 2, INFINITY, -INFINITY, 0};
    static const float v[] = {1, 2, 3, 4, 5, 6};
    static const uint8_t seen[] = {1, 0, 1, 0, 0, 1, /* none of them */
                                   1, 1, 1, 0, 0, 1, /* NaN */
                                   1, 0, 1, 1, 0, 1, /* infinity */
                                   1, 0, 0, 0, 0, 0, /* of a NaN query */
                                   0, 0, 0, 0, 1, 1 /* minus infinity: weight 0 */};
    kiln_attention_options options = KILN_ATTENTION_OPTIONS_INIT;
    options.scale = 1;
    for (int added = 0; added < 2; added++) {
        kiln_batch *b = check_begin();
        kiln_tensor mask = check_given(b, KILN_U8, DIMS(5, 6), seen);
        if (added) /* 0 or -infinity */
            mask = kiln_log(b, kiln_cast(b, mask, KILN_F32));
        kiln_tensor y = kiln_attention(b, check_given(b, KILN_F32, DIMS(5, 1), q),
                                       check_given(b, KILN_F32, DIMS(6, 1), k),
                                       check_given(b, KILN_F32, DIMS(6, 1), v), mask, &options);
        float *found = check_read(b, y);
        check_run(b);
        double e1 = exp(1), e2 = exp(2);
        cr_expect_float_eq(found[0], (e1 + 3 * e2 + 6) / (e1 + e2 + 1), 1e-5);
        cr_expect(isnan(found[1]) && isnan(found[2]) && isnan(found[3]));
        cr_expect_eq(found[4], 6);
        check_end(b);
    }
    check_close();
}

/* ---- layouts ---- */

/* Heads as most programs have them: [batch, rows, heads, columns] seen as [batch, heads, ...]. */
static kiln_tensor heads_of(kiln_batch *b, size_t batch, size_t rows, size_t heads, size_t columns)
{
    kiln_tensor x = check_input(b, KILN_F32, DIMS(batch, rows, heads, columns), CHECK_PLAIN);
    return kiln_transpose(b, x, (size_t[]){0, 2, 1, 3});
}

Test(attention, transposed_heads)
{
    kiln_batch *b = check_begin();
    kiln_tensor y = kiln_attention(b, heads_of(b, 2, 21, 3, 16), heads_of(b, 2, 70, 3, 16),
                                   heads_of(b, 2, 70, 3, 24), no_mask, NULL);
    check_read(b, kiln_transpose(b, y, (size_t[]){0, 2, 1, 3}));
    check_run(b);
    kiln_batch_cost cost = cost_of(b);
    cr_expect_eq(cost.launches, 1, "attention, which stores them transposed, not %zu",
                 cost.launches);
    check_end(b);
    check_close();
}

/* What others read as it is, or with its columns apart, is not stored in another order. */
Test(attention, heads_in_two_orders)
{
    for (int columns = 0; columns < 2; columns++) {
        kiln_batch *b = check_begin();
        kiln_tensor y = kiln_attention(b, heads_of(b, 2, 21, 3, 16), heads_of(b, 2, 9, 3, 16),
                                       heads_of(b, 2, 9, 3, 24), no_mask, NULL);
        if (!columns)
            check_read(b, kiln_exp(b, y));
        check_read(b, kiln_transpose(b, y, columns ? NULL : (size_t[]){0, 2, 1, 3}));
        check_run(b);
        cr_expect_geq(cost_of(b).launches, 2);
        check_end(b);
    }
    check_close();
}

/* Eight heads of queries share two of keys. */
Test(attention, shared_heads)
{
    kiln_batch *b = check_begin();
    kiln_tensor q = check_input(b, KILN_F32, DIMS(2, 2, 4, 19, 16), CHECK_PLAIN);
    kiln_tensor k = check_input(b, KILN_F32, DIMS(2, 2, 1, 70, 16), CHECK_PLAIN);
    kiln_tensor v = check_input(b, KILN_F32, DIMS(1, 70, 8), CHECK_PLAIN);
    check_read(b, kiln_attention(b, q, k, v, no_mask, NULL));
    check_run(b);
    kiln_batch_cost cost = cost_of(b);
    cr_expect_eq(cost.launches, 1, "%zu", cost.launches);
    check_end(b);
    check_close();
}

/* All eight dimensions, laid out so that no two leading ones are a run. */
Test(attention, many_leading_dimensions)
{
    kiln_batch *b = check_begin();
    const size_t order[] = {5, 4, 3, 2, 1, 0, 6, 7};
    kiln_tensor q = check_input(b, KILN_F32, DIMS(2, 1, 3, 2, 2, 2, 3, 4), CHECK_PLAIN);
    kiln_tensor k = check_input(b, KILN_F32, DIMS(2, 1, 3, 2, 2, 2, 5, 4), CHECK_PLAIN);
    kiln_tensor v = check_input(b, KILN_F32, DIMS(2, 2, 2, 3, 2, 2, 5, 4), CHECK_PLAIN);
    kiln_tensor seen = check_input(b, KILN_U8, DIMS(3, 1, 1, 3, 5), CHECK_FEW);
    q = kiln_transpose(b, q, order);
    k = kiln_transpose(b, k, order);
    check_tensor(b, kiln_attention(b, q, k, v, seen, NULL));
    check_close();
}

/* Slices, reversed and transposed operands; what is computed before and after. */
Test(attention, views)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = check_input(b, KILN_F32, DIMS(40, 50), CHECK_PLAIN);
    kiln_tensor q = kiln_slice(b, x, (int64_t[]){3, 5}, (int64_t[]){36, 36}, NULL);
    kiln_tensor k = kiln_slice(b, x, (int64_t[]){39, 2}, (int64_t[]){-1, 33}, (int64_t[]){-2, 1});
    kiln_tensor v = kiln_slice(b, kiln_transpose(b, x, NULL), (int64_t[]){0, 0},
                               (int64_t[]){40, 40}, (int64_t[]){2, 1});
    check_read(b, kiln_attention(b, q, k, v, no_mask, NULL));
    kiln_tensor wide = kiln_scale(b, q, 0.5),
                mask = kiln_slice(b, x, (int64_t[]){2, 4}, (int64_t[]){35, 44}, (int64_t[]){1, 2});
    kiln_tensor y = kiln_attention(b, wide, k, kiln_square(b, v), kiln_relu(b, mask), NULL);
    check_read(b, kiln_sum(b, kiln_relu(b, y), 1, (int[]){0}, 0));
    check_read(b, kiln_attention(b, wide, wide, wide, kiln_constant(b, KILN_F32, 3), NULL));
    check_run(b);
    check_end(b);
    check_close();
}

/* The scores of these would be 16 MiB. */
Test(attention, scores_are_not_in_memory)
{
    kiln_batch *b = kiln_batch_create(check_context());
    size_t count = (size_t)2048 * 8;
    static float x[2048 * 8], y[2048 * 8];
    kiln_tensor q = kiln_upload(b, KILN_F32, DIMS(2048, 8), x);
    expect_ok(kiln_read(b, kiln_attention(b, q, q, q, no_mask, NULL), y, count * sizeof *y));
    kiln_batch_cost cost = cost_of(b);
    cr_expect_eq(cost.launches, 1);
    cr_expect_leq(cost.peak_bytes, 4 * count * sizeof *y);
    run_batch(b);
    kiln_batch_release(b);
    check_close();
}

/* ---- gradients ---- */

/* By q, k and v, of the loss sum(y * g), from PyTorch's autograd in f64. */
Test(attention, known_gradients)
{
    static const float weights[] = {1, -2, 0.5f, 3};
    static const double wanted[] = {
        3.476073787,  -3.339794785,  3.28802644,    9.221107608,  -3.68160561,  -7.252042958,
        0.9516107023, 0.1960018005,  -0.8046093519, -1.77875155,  -7.353335698, -3.736250223,
        2.023324455,  3.679959689,   0.7366453121,  -1.196183607, 3.477374208,  3.804214263,
        0.1148953539, -0.1430625292, 0.3507356991,  2.075969367,  0.2463424383, 0.09130527421,
        0.7880265087, -1.024212112};
    struct given g = begin_known();
    kiln_tensor added = check_given(g.batch, KILN_F32, DIMS(2, 4), added24), out[3];
    kiln_tensor y = kiln_attention(g.batch, g.q, g.k, g.v, added, NULL);
    y = kiln_mul(g.batch, y, check_given(g.batch, KILN_F32, DIMS(2, 2), weights));
    kiln_tensor inputs[] = {g.q, g.k, g.v}, loss = kiln_sum(g.batch, y, 0, NULL, 0);
    expect_ok(kiln_grad(g.batch, loss, inputs, 3, out));
    const float *found[] = {check_read(g.batch, out[0]), check_read(g.batch, out[1]),
                            check_read(g.batch, out[2])};
    check_run(g.batch);
    for (int i = 0; i < 26; i++) {
        double value = i < 6 ? found[0][i] : i < 18 ? found[1][i - 6] : found[2][i - 18];
        cr_expect(fabs(value - wanted[i]) <= 1e-5, "element %d is %g, not %g", i, value, wanted[i]);
    }
    check_end(g.batch);
    check_close();
}

/* Differences of the reference; a mask's gradient too. */
static void differ(size_t m, size_t n, size_t d, enum masks kind, int causal, int64_t diagonal)
{
    kiln_attention_options options = KILN_ATTENTION_OPTIONS_INIT;
    kiln_batch *b = check_begin();
    options.causal = causal;
    options.diagonal = diagonal;
    options.scale = 0.25;
    kiln_tensor q = check_input(b, KILN_F32, DIMS(2, 2, m, d), CHECK_PLAIN);
    kiln_tensor k = check_input(b, KILN_F32, DIMS(2, 1, n, d), CHECK_PLAIN);
    kiln_tensor v = check_input(b, KILN_F32, DIMS(n, 3), CHECK_PLAIN);
    kiln_tensor mask = make_mask(b, kind, 2, m, n), inputs[] = {q, k, v, mask};
    kiln_tensor y = kiln_attention(b, q, k, v, mask, &options);
    check_gradient(b, y, kind == ADDED || kind == ADDED_ROW ? 4 : 3, inputs, 1e-6, NULL);
    check_end(b);
}

Test(attention, gradients)
{
    differ(3, 5, 4, NO_MASK, 0, 0);
    differ(5, 4, 1, NO_MASK, 1, 0);
    differ(4, 5, 2, NO_MASK, 1, -2);
    differ(4, 5, 2, SEEN, 0, 0);
    differ(3, 4, 2, ADDED, 1, 1);
    differ(3, 4, 2, SEEN_KEYS, 0, 0);
    differ(3, 4, 2, ADDED_ROW, 0, 0);
    differ(3, 0, 2, NO_MASK, 0, 0);
    check_close();
}

/* Rows that see a NaN have NaN, and so have the keys that these see. Others have the gradients that
 * are there without it. Key 3 is NaN; without a causal mask row 4 alone sees it, and key 4. */
static void expect_hidden(enum masks kind, int causal)
{
    enum { M = 5, N = 5, D = 3 };
    static const uint8_t seen[M * N] = {1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 1,
                                        0, 0, 1, 0, 1, 0, 1, 0, 0, 0, 1, 1};
    float q[M * D], k[N * D], v[N * D], added[M * N], *found[2][3];
    kiln_attention_options options = KILN_ATTENTION_OPTIONS_INIT;
    kiln_batch *b = check_begin();
    options.causal = causal;
    options.diagonal = causal ? 0 : options.diagonal;
    for (int i = 0; i < M * N; i++)
        added[i] = seen[i] ? 0 : -INFINITY;
    for (int hidden = 0; hidden < 2; hidden++) {
        for (int i = 0; i < N * D; i++) {
            q[i] = (float)((i * 5 % 7) - 3) / 2;
            k[i] = (float)((i * 3 % 8) - 4) / 2;
            v[i] = (float)((i * 4 % 9) - 4) / 2;
        }
        for (int i = 0; hidden && i < D; i++)
            k[3 * D + i] = NAN;
        kiln_tensor x[] = {check_given(b, KILN_F32, DIMS(M, D), q),
                           check_given(b, KILN_F32, DIMS(N, D), k),
                           check_given(b, KILN_F32, DIMS(N, D), v)};
        kiln_tensor mask = kind == SEEN    ? check_given(b, KILN_U8, DIMS(M, N), seen)
                           : kind == ADDED ? check_given(b, KILN_F32, DIMS(M, N), added)
                                           : no_mask;
        kiln_tensor y = kiln_attention(b, x[0], x[1], x[2], mask, &options), g[3];
        /* The rows that see no NaN: the loss is of these. */
        y = kiln_slice(b, y, (int64_t[]){0, 0}, (int64_t[]){causal ? 3 : 4, D}, NULL);
        expect_ok(kiln_grad(b, kiln_sum(b, kiln_square(b, y), 0, NULL, 0), x, 3, g));
        for (int i = 0; i < 3; i++)
            found[hidden][i] = check_read(b, g[i]);
    }
    run_batch(b);
    for (int i = 0; i < (causal ? 1 : 3); i++)
        for (int j = 0; j < 3 * D; j++)
            cr_expect(found[0][i][j] == found[1][i][j],
                      "mask %d, causal %d: operand %d, element %d is %g, not %g", kind, causal, i,
                      j, found[1][i][j], found[0][i][j]);
    check_end(b);
}

Test(attention, slow_gradients_beside_hidden_keys)
{
    expect_hidden(SEEN, 0);
    expect_hidden(ADDED, 0);
    expect_hidden(NO_MASK, 1);
    check_close();
}

/* Gradients that a GPU makes of rounded products, beside those of the same operands as floats, by
 * the reference: what rounding moves is a share of the largest, whatever the slopes' size is. */
static void expect_near(bool slopes, kiln_type type, int causal, int masked, double slope,
                        double value)
{
    enum { M = 17, N = 40, D = 24, MOST = 2 * N * D };
    static float data[5][MOST];
    const double share = type == KILN_F16 ? 0x1p-9 : 0x1p-6;
    kiln_attention_options options = KILN_ATTENTION_OPTIONS_INIT;
    kiln_batch *b = kiln_batch_create(imagined_gpu());
    kiln_tensor x[4], narrow[4], wide[4], of_narrow[3], of_wide[3];
    b->takes_attention_backward = slopes ? take_attention_backward : NULL;
    options.causal = causal;
    options.scale = 0.25;
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < MOST; j++)
            data[i][j] = (float)check_random(512) / 128 - 2;
    for (int i = 0; i < 4; i++) {
        x[i] = kiln_upload(b, KILN_F32, DIMS(2, i % 3 ? N : M, D), data[i]);
        x[i] = i == 2 ? kiln_scale(b, x[i], value) : x[i];
        narrow[i] = kiln_cast(b, x[i], type);
        wide[i] = kiln_cast(b, narrow[i], KILN_F32);
    }
    kiln_tensor mask = masked ? kiln_upload(b, KILN_F32, DIMS(M, N), data[4]) : no_mask;
    kiln_tensor g = kiln_scale(b, x[3], slope);
    kiln_tensor y = kiln_attention(b, narrow[0], narrow[1], narrow[2], mask, &options);
    expect_ok(kiln_grad(b, kiln_sum(b, kiln_mul(b, y, g), 0, NULL, 0), x, 3, of_narrow));
    y = kiln_attention(b, wide[0], wide[1], wide[2], mask, &options);
    expect_ok(kiln_grad(b, kiln_sum(b, kiln_mul(b, y, g), 0, NULL, 0), x, 3, of_wide));
    for (int i = 0; i < 3; i++) {
        double *found = check_values(b, of_narrow[i]), *wanted = check_values(b, of_wide[i]);
        double most = 0, worst = 0;
        for (size_t j = 0; j < (size_t)2 * (i ? N : M) * D; j++) {
            most = fmax(most, fabs(wanted[j]));
            worst = fmax(worst, fabs(found[j] - wanted[j]));
        }
        cr_expect(
            most > 0 && worst > 0 && worst <= share * most,
            "%s, causal %d, mask %d, slopes of %g, values of %g: of operand %d off by %g of %g",
            kiln_type_name(type), causal, masked, slope, value, i, worst, most);
        free(found);
        free(wanted);
    }
    kiln_batch_release(b);
}

/* By products, and where the device has kernels for it, by slopes (graph/attention_backward.h). */
Test(attention, gradients_of_narrow_operands_on_gpus)
{
    for (int slopes = 0; slopes < 2; slopes++) {
        expect_near(slopes, KILN_F16, 0, 0, 1, 1);
        expect_near(slopes, KILN_F16, 1, 0, 1e-7, 1); /* no number of f16 */
        expect_near(slopes, KILN_F16, 0, 1, 1e5, 1);  /* infinite there */
        expect_near(slopes, KILN_F16, 0, 0, 1e5, 1);
        expect_near(slopes, KILN_F16, 0, 0, 1, 0x1p-12); /* what flows to the scores is no normal */
        expect_near(slopes, KILN_F16, 0, 0, 1, 0x1p13);  /* number, or infinite */
        expect_near(slopes, KILN_BF16, 1, 1, 1e-7, 1);
        expect_near(slopes, KILN_BF16, 1, 0, 1e-7, 1);
    }
}

/* ---- errors ---- */

static void expect_refusal(kiln_status wanted, const char *part, const kiln_type types[4],
                           const size_t ranks[4], size_t dims[4][3],
                           const kiln_attention_options *options)
{
    kiln_batch *b = check_begin();
    kiln_tensor x[4] = {{0}};
    for (int i = 0; i < 4; i++)
        if (ranks[i])
            x[i] = check_input(b, types[i], ranks[i], dims[i], CHECK_FEW);
    kiln_tensor y = kiln_attention(b, x[0], x[1], x[2], x[3], options);
    cr_expect_eq(y.id, 0);
    expect_error_part(kiln_batch_status(b), wanted, part);
    check_end(b);
}

Test(attention, errors)
{
#define TYPES(q, k, v, mask) ((kiln_type[4]){KILN_##q, KILN_##k, KILN_##v, KILN_##mask})
    const kiln_type *floats = TYPES(F32, F32, F32, F32);
    const size_t *plain = (size_t[4]){2, 2, 2, 0}, *masked = (size_t[4]){2, 2, 2, 2};
    kiln_attention_options options = {0};
    size_t good[4][3] = {{2, 3}, {4, 3}, {4, 5}, {2, 4}}, depth[4][3] = {{2, 3}, {4, 2}, {4, 5}};
    size_t keys[4][3] = {{2, 3}, {4, 3}, {5, 5}}, mask[4][3] = {{2, 3}, {4, 3}, {4, 5}, {2, 3}};
    size_t lead[4][3] = {{2, 2, 3}, {3, 4, 3}, {4, 5}}, vector[4][3] = {{3}, {4, 3}, {4, 5}};
    expect_refusal(KILN_SHAPE_MISMATCH, "kiln_attention: shapes q [2,3], k [4,2] and v [4,5]",
                   floats, plain, depth, NULL);
    expect_refusal(KILN_SHAPE_MISMATCH, "k [4,3] and v [5,5] do not fit", floats, plain, keys,
                   NULL);
    expect_refusal(KILN_SHAPE_MISMATCH, "shape [2,3] of mask does not broadcast to [2,4]", floats,
                   masked, mask, NULL);
    expect_refusal(KILN_SHAPE_MISMATCH, "the leading dimensions of k, shape [3,4,3], do not",
                   floats, (size_t[4]){3, 3, 2, 0}, lead, NULL);
    expect_refusal(KILN_SHAPE_MISMATCH, "operand q of shape [3] has too few dimensions", floats,
                   (size_t[4]){1, 2, 2, 0}, vector, NULL);
    expect_refusal(KILN_TYPE_MISMATCH, "operand v is i32, and only floating types are taken",
                   TYPES(F32, F32, I32, F32), plain, good, NULL);
    expect_refusal(KILN_TYPE_MISMATCH,
                   "operand mask is i32, and only floating types, bool and u8 are taken",
                   TYPES(F32, F32, F32, I32), masked, good, NULL);
    expect_refusal(KILN_INVALID_ARGUMENT, "KILN_ATTENTION_OPTIONS_INIT", floats, plain, good,
                   &options);
    options = (kiln_attention_options)KILN_ATTENTION_OPTIONS_INIT;
    options.scale = NAN;
    expect_refusal(KILN_INVALID_ARGUMENT, "the scale nan is not finite", floats, plain, good,
                   &options);
    expect_refusal(KILN_INVALID_HANDLE, "operand k is the empty tensor", floats,
                   (size_t[4]){2, 0, 2, 0}, good, NULL);
    check_close();
}
