/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax, statistics and normalisations: answers from numpy 2.4 and scipy 1.17 in float64 (from
 * PyTorch's rules where these differ), then shapes of all kinds against the reference. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../support/check.h"

#define INF INFINITY
#define LAST 1, ((int[]){-1})
#define FIRST 1, ((int[]){0})

static const kiln_tensor none;

/* ---- known answers ---- */

enum which { SOFTMAX, LOG_SOFTMAX, LOGSUMEXP, VARIANCE, SAMPLE, NORM, LAYER_NORM, RMS_NORM };

static const char *const names[] = {"softmax", "log_softmax", "logsumexp",  "variance",
                                    "sample",  "norm",        "layer_norm", "rms_norm"};

static kiln_tensor record(kiln_batch *b, enum which which, kiln_tensor x, size_t n_axes,
                          const int *axes, int keep)
{
    switch (which) {
    case SOFTMAX: return kiln_softmax(b, x, n_axes, axes);
    case LOG_SOFTMAX: return kiln_log_softmax(b, x, n_axes, axes);
    case LOGSUMEXP: return kiln_logsumexp(b, x, n_axes, axes, keep);
    case VARIANCE: return kiln_variance(b, x, n_axes, axes, 0, keep);
    case SAMPLE: return kiln_variance(b, x, n_axes, axes, 1, keep);
    case NORM: return kiln_norm(b, x, n_axes, axes, keep);
    case LAYER_NORM: return kiln_layer_norm(b, x, none, none, n_axes, axes, 1e-5);
    case RMS_NORM: return kiln_rms_norm(b, x, none, n_axes, axes, 1e-5);
    }
    return none;
}

static const struct known {
    enum which which;
    float x[4];
    double y[4]; /* one, or four */
} knowns[] = {
    /* clang-format off */
    {SOFTMAX, {1, 2, 3, 4},
     {0.03205860328008499, 0.08714431874203257, 0.23688281808991013, 0.6439142598879724}},
    {SOFTMAX, {1000, 1001, 1002, 999.5f},
     {0.08536889350978889, 0.23205671194331448, 0.6307955432474668, 0.05177885129942981}},
    {SOFTMAX, {-INF, 1, 2, -INF}, {0, 0.2689414213699951, 0.7310585786300049, 0}},
    {SOFTMAX, {-3e38f, 3e38f, 0, -INF}, {0, 1, 0, 0}},
    {SOFTMAX, {7, 7, 7, 7}, {0.25, 0.25, 0.25, 0.25}},
    {SOFTMAX, {-INF, -INF, -INF, -INF}, {NAN, NAN, NAN, NAN}},
    {SOFTMAX, {INF, 1, 2, 3}, {NAN, NAN, NAN, NAN}},
    {SOFTMAX, {1, NAN, 2, 3}, {NAN, NAN, NAN, NAN}},
    {LOG_SOFTMAX, {1, 2, 3, 4},
     {-3.4401896985611953, -2.4401896985611953, -1.4401896985611953, -0.44018969856119533}},
    {LOG_SOFTMAX, {1000, 1001, 1002, 999.5f},
     {-2.460773489156851, -1.4607734891568511, -0.4607734891568512, -2.960773489156851}},
    {LOG_SOFTMAX, {-100, 0, 100, 50}, {-200, -100, 0, -50}},
    {LOG_SOFTMAX, {-INF, 1, 2, -INF}, {-INF, -1.3132616875182228, -0.31326168751822286, -INF}},
    {LOG_SOFTMAX, {-INF, -INF, -INF, -INF}, {NAN, NAN, NAN, NAN}},
    {LOG_SOFTMAX, {INF, 1, 2, 3}, {NAN, NAN, NAN, NAN}},
    {LOG_SOFTMAX, {1, NAN, 2, 3}, {NAN, NAN, NAN, NAN}},
    {LOGSUMEXP, {1, 2, 3, 4}, {4.440189698561196}},
    {LOGSUMEXP, {1000, 1001, 1002, 999.5f}, {1002.4607734891568}},
    {LOGSUMEXP, {-INF, 1, 2, -INF}, {2.313261687518223}},
    {LOGSUMEXP, {-INF, -INF, -INF, -INF}, {-INF}},
    {LOGSUMEXP, {INF, 1, -INF, 3}, {INF}},
    {LOGSUMEXP, {1, NAN, 2, INF}, {NAN}},
    {VARIANCE, {1, 2, 3, 4}, {1.25}},
    {VARIANCE, {10000.5f, 10001.5f, 9999.25f, 10000.75f}, {0.65625}},
    {VARIANCE, {7, 7, 7, 7}, {0}},
    {VARIANCE, {1, NAN, 2, 3}, {NAN}},
    {VARIANCE, {1, INF, 2, 3}, {NAN}},
    {VARIANCE, {10000001, 10000002, 10000003, 10000004}, {1.25}},
    {SAMPLE, {1, 2, 3, 4}, {1.6666666666666667}},
    {SAMPLE, {10000.5f, 10001.5f, 9999.25f, 10000.75f}, {0.875}},
    {NORM, {3, -4, 0, 0}, {5}},
    {NORM, {1, 2, 3, 4}, {5.477225575051661}},
    {NORM, {0, 0, -0.0f, 0}, {0}},
    {NORM, {1e20f, 0, 0, 0}, {1e20}},
    {NORM, {3e37f, -4e37f, 0, 0}, {5e37}},
    {NORM, {3e-30f, 4e-30f, 0, 0}, {5e-30}},
    {NORM, {3e38f, 3e38f, 0, 0}, {INF}},
    {NORM, {1, -INF, 0, 0}, {INF}},
    {NORM, {-INF, 1, 2, 3}, {INF}},
    {NORM, {1, NAN, 2, 3}, {NAN}},
    {LAYER_NORM, {1, 2, 3, 4},
     {-1.3416354199689269, -0.447211806656309, 0.447211806656309, 1.3416354199689269}},
    {LAYER_NORM, {-100, 0, 100, 50},
     {-1.5212776571204476, -0.16903085079116084, 1.1832159555381259, 0.5070925523734825}},
    {LAYER_NORM, {7, 7, 7, 7}, {0, 0, 0, 0}},
    {LAYER_NORM, {10000001, 10000002, 10000003, 10000004},
     {-1.3416354199689269, -0.447211806656309, 0.447211806656309, 1.3416354199689269}},
    {LAYER_NORM, {1, NAN, 2, 3}, {NAN, NAN, NAN, NAN}},
    {RMS_NORM, {1, 2, 3, 4},
     {0.3651481282381064, 0.7302962564762128, 1.0954443847143192, 1.4605925129524255}},
    {RMS_NORM, {-100, 0, 100, 50}, {-1.3333333321481482, 0, 1.3333333321481482, 0.6666666660740741}},
    {RMS_NORM, {-INF, 1, 2, -INF}, {NAN, 0, 0, NAN}},
    /* clang-format on */
};

static void expect_near(const struct known *known, size_t i, double found)
{
    double wanted = known->y[i];
    bool same = isnan(wanted)   ? isnan(found)
                : isinf(wanted) ? found == wanted
                                : fabs(found - wanted) <= 2e-6 * fabs(wanted) + 1e-30;
    cr_expect(same, "known %zu: %s of %g, %g, ... has %.9g at %zu, not %.9g",
              (size_t)(known - knowns), names[known->which], known->x[0], known->x[1], found, i,
              wanted);
}

Test(normalization, known_answers)
{
    for (size_t k = 0; k < sizeof knowns / sizeof *knowns; k++) {
        const struct known *known = &knowns[k];
        bool one = known->which >= LOGSUMEXP && known->which <= NORM;
        float y[4];
        kiln_batch *batch = check_begin();
        kiln_tensor x = check_given(batch, KILN_F32, DIMS(1, 4), known->x);
        kiln_tensor result = record(batch, known->which, x, LAST, 0);
        expect_ok(kiln_read(batch, result, y, one ? 4 : 16));
        run_batch(batch);
        for (size_t i = 0; i < (one ? 1 : 4); i++)
            expect_near(known, i, y[i]);
        check_end(batch);
    }
    check_close();
}

/* Numbers of which no sum is exact. */
static const float equal[] = {1000.1F, 10000.1F, 100000.1F, 1e15F, -3e-20F, 0.1F};

static void expect_nothing(kiln_batch *batch, kiln_tensor y, const char *what, float of)
{
    size_t rank, dims[KILN_MAX_RANK], count = 1, wrong = 0;
    expect_ok(kiln_tensor_shape(batch, y, NULL, &rank, dims));
    for (size_t d = 0; d < rank; d++)
        count *= dims[d];
    float *found = calloc(count + 1, sizeof *found);
    expect_ok(kiln_read(batch, y, found, count * sizeof *found));
    run_batch(batch);
    for (size_t i = 0; i < count; i++)
        wrong += found[i] != 0;
    cr_expect_eq(wrong, 0, "%s of %zu elements of %.9g: %zu are not 0, the first is %g", what,
                 count, (double)of, wrong, (double)found[0]);
    free(found);
    check_end(batch);
}

/* What is equal has no variance, and is 0 when it is normalised: along rows, columns and both. */
Test(normalization, slow_equal_elements)
{
    static const size_t lengths[] = {5, 7, 768, 4096};
    for (size_t i = 0; i < sizeof equal / sizeof *equal; i++)
        for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
            const size_t n = lengths[k], rows[] = {2, n}, columns[] = {n, 3}, image[] = {2, 6, n};
            float *all = malloc(12 * n * sizeof *all);
            for (size_t j = 0; j < 12 * n; j++)
                all[j] = equal[i];
            kiln_batch *b = check_begin();
            kiln_tensor x = kiln_upload(b, KILN_F32, 2, rows, all);
            expect_nothing(b, kiln_layer_norm(b, x, none, none, LAST, 1e-5), "layer norm", all[0]);
            b = check_begin();
            x = kiln_upload(b, KILN_F32, 2, rows, all);
            expect_nothing(b, kiln_variance(b, x, 0, NULL, 1, 0), "variance", all[0]);
            b = check_begin();
            x = kiln_upload(b, KILN_F32, 2, columns, all);
            expect_nothing(b, kiln_batch_norm_train(b, x, none, none, 1, 1e-5, NULL, NULL),
                           "batch norm", all[0]);
            b = check_begin();
            x = kiln_upload(b, KILN_F32, 3, image, all);
            expect_nothing(b, kiln_group_norm(b, x, none, none, 3, 1, 1e-5), "group norm", all[0]);
            b = check_begin();
            x = kiln_upload(b, KILN_F32, 3, image, all);
            expect_nothing(b, kiln_instance_norm(b, x, none, none, 1, 1e-5), "instance norm",
                           all[0]);
            free(all);
        }
    check_close();
}

/* numpy: x.var(ddof=2.5); a correction that leaves nothing divides by 0. */
Test(normalization, corrections)
{
    static const float x[] = {10000.5f, 10001.5f, 9999.25f, 10000.75f}, same[] = {2, 2, 2, 2};
    float some, all, nothing;
    kiln_batch *batch = check_begin();
    kiln_tensor a = check_given(batch, KILN_F32, DIMS(4), x);
    kiln_tensor b = check_given(batch, KILN_F32, DIMS(4), same);
    expect_ok(kiln_read(batch, kiln_variance(batch, a, 0, NULL, 2.5, 0), &some, 4));
    expect_ok(kiln_read(batch, kiln_variance(batch, a, 0, NULL, 4, 0), &all, 4));
    expect_ok(kiln_read(batch, kiln_variance(batch, b, 0, NULL, 5, 0), &nothing, 4));
    run_batch(batch);
    cr_expect_float_eq(some, 1.75, 1e-5);
    cr_expect(isinf(all), "%g", all);
    cr_expect(isnan(nothing), "%g", nothing);
    check_end(batch);
    check_close();
}

/* numpy: (x - mean) / sqrt(var + 0.25) * [1, 2, -1] + [0.5, 0, 10], x / sqrt(mean(x^2)) * 3. */
Test(normalization, scale_and_shift)
{
    static const float x[] = {1, 2, 6, -3, 0, 3}, scale[] = {1, 2, -1}, shift[] = {0.5f, 0, 10};
    static const double layer[] = {-0.40197523, -0.90197523, 8.64703715, -0.7, 0, 8.8};
    float y[6], z[6];
    kiln_batch *batch = check_begin();
    kiln_tensor a = check_given(batch, KILN_F32, DIMS(2, 3), x);
    kiln_tensor s = check_given(batch, KILN_F32, DIMS(3), scale);
    kiln_tensor t = check_given(batch, KILN_F32, DIMS(3), shift);
    kiln_tensor three = kiln_constant(batch, KILN_F32, 3);
    expect_ok(kiln_read(batch, kiln_layer_norm(batch, a, s, t, LAST, 0.25), y, sizeof y));
    expect_ok(kiln_read(batch, kiln_rms_norm(batch, a, three, LAST, 0), z, sizeof z));
    run_batch(batch);
    for (int i = 0; i < 6; i++)
        cr_expect_float_eq(y[i], layer[i], 1e-5, "layer norm %d: %.9g", i, y[i]);
    cr_expect_float_eq(z[2], 4.86901603, 1e-5);
    cr_expect_float_eq(z[3], -3.67423461, 1e-5);
    check_end(batch);
    check_close();
}

/* ---- against the reference ---- */

static void check_all(size_t rank, const size_t *dims, size_t n_axes, const int *axes,
                      enum check_values values)
{
    kiln_batch *batch = check_begin();
    kiln_tensor x = check_input(batch, KILN_F32, rank, dims, values);
    for (unsigned which = SOFTMAX; which <= RMS_NORM; which++)
        check_read(batch, record(batch, which, x, n_axes, axes, (int)which % 2));
    check_run(batch);
    check_end(batch);
}

Test(normalization, slow_every_subset_of_axes)
{
    for (int mask = 1; mask < 8; mask++) {
        int axes[3];
        size_t count = 0;
        for (int d = 0; d < 3; d++)
            if (mask >> d & 1)
                axes[count++] = d % 2 ? d - 3 : d;
        check_all(DIMS(5, 6, 19), count, axes, CHECK_PLAIN);
    }
    check_all(DIMS(7, 3), 0, NULL, CHECK_PLAIN);
    check_all(SCALAR, 0, NULL, CHECK_PLAIN);
    check_close();
}

Test(normalization, some_lengths_of_rows)
{
    static const size_t lengths[] = {1, 17, 1009};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        check_all(DIMS(17, lengths[i]), LAST, CHECK_PLAIN);
    check_all(DIMS(33, 130), FIRST, CHECK_PLAIN);
    check_close();
}

Test(normalization, slow_lengths_of_rows)
{
    static const size_t lengths[] = {1, 2, 15, 16, 17, 64, 127, 257, 1009, 1024, 5003};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (size_t rows = 1; rows <= 33; rows += 16)
            check_all(DIMS(rows, lengths[i]), LAST, CHECK_PLAIN);
    check_all(DIMS(1, 100003), LAST, CHECK_PLAIN);
    check_all(DIMS(3, 40009), LAST, CHECK_PLAIN);
    check_all(DIMS(1031, 3), FIRST, CHECK_PLAIN);
    check_all(DIMS(33, 130), FIRST, CHECK_PLAIN);
    check_close();
}

/* Whatever the axes are: one kernel. The first reads halves, the last integers. */
static kiln_tensor compose(kiln_batch *b, unsigned which, size_t rank, const size_t *dims,
                           size_t n_axes, const int *axes)
{
    kiln_type type = which == 0 ? KILN_F16 : which == 4 ? KILN_I32 : KILN_F32;
    kiln_tensor x = check_input(b, type, rank, dims, CHECK_PLAIN);
    switch (which) {
    case 0: return kiln_softmax(b, kiln_cast(b, x, KILN_F32), n_axes, axes);
    case 1: return kiln_logsumexp(b, x, n_axes, axes, 0);
    case 2: return kiln_variance(b, x, n_axes, axes, 1, 1);
    case 3: return kiln_layer_norm(b, x, none, none, n_axes, axes, 1e-5);
    default: return kiln_sub(b, x, kiln_max(b, x, n_axes, axes, 1));
    }
}

static size_t count_kernels(kiln_batch *batch)
{
    char *text;
    size_t count = 0;
    expect_ok(kiln_batch_explain(batch, &text));
    for (const char *at = text; (at = strstr(at, "\n/* launch ")); at++)
        count++;
    kiln_free(text);
    return count;
}

Test(normalization, slow_over_any_axes_is_one_kernel)
{
    static const size_t dims[] = {4, 5, 3, 37};
    for (size_t rank = 2; rank <= 4; rank++)
        for (int mask = 1; mask < 1 << rank; mask++) {
            int axes[4];
            size_t count = 0;
            for (int d = 0; d < (int)rank; d++)
                if (mask >> d & 1)
                    axes[count++] = d;
            for (unsigned which = 0; which < 5; which++) {
                kiln_batch *batch = check_begin();
                check_read(batch, compose(batch, which, rank, dims + 4 - rank, count, axes));
                cr_expect_eq(count_kernels(batch), 1u, "%u over axes %x of %zu", which, mask, rank);
                if (rank == 4 && (unsigned)mask % 5 == which)
                    check_run(batch);
                check_end(batch);
            }
        }
    check_close();
}

/* One value among others that takes its whole row along. */
Test(normalization, special_values)
{
    static const float special[] = {NAN, INFINITY, -INFINITY, 1e18f};
    enum { ROWS = 61, N = 37 };
    float x[ROWS * N];
    for (int i = 0; i < ROWS * N; i++)
        x[i] = (float)(check_random(1000) % 1000) * 0.01f - 5;
    for (int i = 0; i < N; i++)
        x[i * N + i] = special[i % 4];
    for (unsigned which = SOFTMAX; which <= RMS_NORM; which++) {
        kiln_batch *batch = check_begin();
        kiln_tensor a = check_given(batch, KILN_F32, DIMS(ROWS, N), x);
        check_read(batch, record(batch, which, a, LAST, 0));
        check_read(batch, record(batch, which, a, FIRST, 1));
        check_run(batch);
        check_end(batch);
    }
    check_close();
}

/* Rows whose largest element is found in one visit with the sum of powers: it grows at every
 * element or at none, is an infinity for a while or to the end, or comes with the last one. */
Test(normalization, maxima_that_grow_along_long_rows)
{
    enum { ROWS = 11, N = 9004 };
    static float x[ROWS][N];
    for (int i = 0; i < N; i++) {
        float near = (float)(check_random(1000) % 1000) * 0.01f - 5;
        const float row[ROWS] = {-INF,
                                 i < 6000 ? -INF : near,
                                 i < 6000 ? near : -INF,
                                 i == N - 1 ? 80 : near,
                                 i == 2500 ? INF : near,
                                 i == N - 1 ? NAN : near,
                                 i == 0 ? NAN : near,
                                 (float)i * 0.05f,
                                 (float)-i * 0.05f,
                                 i < 100    ? -3e38f
                                 : i < 7000 ? near
                                            : 3e38f,
                                 i == 8100 ? INF : -INF};
        for (int k = 0; k < ROWS; k++)
            x[k][i] = row[k];
    }
    for (unsigned which = SOFTMAX; which <= LOGSUMEXP; which++) {
        kiln_batch *batch = check_begin();
        check_read(batch,
                   record(batch, which, check_given(batch, KILN_F32, DIMS(ROWS, N), *x), LAST, 0));
        check_run(batch);
        check_end(batch);
    }
    check_close();
}

/* Of parts of all sizes, some of zeros alone: no square but of the largest matters. */
Test(normalization, norms_of_parts_of_any_size)
{
    enum { N = 300000 };
    static const float sizes[] = {1e-38F, 3e-30F, 1e-15F, 1, 1e15F, 1e30F, 1e35F};
    static float x[N];
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (unsigned mixed = 0; mixed < 3; mixed++) {
            double sum = 0;
            for (size_t i = 0; i < N; i++) {
                float size = mixed == 0 ? 1 : i / 10000 % 5 == 0 ? 1 : mixed == 1 ? 0 : 1e-7F;
                x[i] = (float)(i % 7) * sizes[k] * size;
                sum += (double)x[i] * (double)x[i];
            }
            float all, rows[2];
            kiln_batch *batch = check_begin();
            kiln_tensor in = kiln_upload(batch, KILN_F32, DIMS(2, N / 2), x), norms;
            norms = kiln_norm(batch, in, LAST, 0);
            expect_ok(kiln_read(batch, kiln_norm(batch, in, 0, NULL, 0), &all, sizeof all));
            expect_ok(kiln_read(batch, norms, rows, sizeof rows));
            run_batch(batch);
            cr_expect_float_eq((double)all / sqrt(sum), 1, 2e-6, "%g, %u: %.9g, not %.9g",
                               (double)sizes[k], mixed, (double)all, sqrt(sum));
            cr_expect_float_eq(hypot((double)rows[0], (double)rows[1]) / sqrt(sum), 1, 2e-6);
            check_end(batch);
        }
    check_close();
}

/* What is cut into parts is so along any dimensions. */
Test(normalization, slow_norms_of_parts_of_any_shape)
{
    static const struct {
        size_t rank, dims[4], n_axes;
        int axes[2];
    } cases[] = {{1, {135168}, 0, {0}},         {2, {3, 140000}, 1, {1}},
                 {3, {2, 140000, 1}, 1, {1}},   {3, {2, 512, 300}, 2, {1, 2}},
                 {2, {4100, 5}, 1, {0}},        {3, {3, 4100, 5}, 1, {1}},
                 {3, {16, 3, 4096}, 2, {0, 2}}, {4, {3, 160, 2, 300}, 2, {1, 3}},
                 {1, {131101}, 0, {0}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kiln_batch *batch = check_begin();
        kiln_tensor x = check_input(batch, i % 2 ? KILN_F16 : KILN_F32, cases[i].rank,
                                    cases[i].dims, CHECK_PLAIN);
        check_read(batch, kiln_norm(batch, x, cases[i].n_axes, cases[i].axes, i % 3 == 0));
        check_run(batch);
        check_end(batch);
    }
    check_close();
}

/* Of rows that lie in pieces, each no whole vectors. */
Test(normalization, maxima_of_long_rows_in_pieces)
{
    kiln_batch *batch = check_begin();
    kiln_tensor x = check_input(batch, KILN_F16, DIMS(3, 2, 8195), CHECK_PLAIN);
    check_read(batch, kiln_log_softmax(batch, kiln_cast(batch, x, KILN_F32), 2, (int[]){0, 2}));
    check_run(batch);
    check_end(batch);
    check_close();
}

Test(normalization, no_elements)
{
    check_all(DIMS(0, 5), LAST, CHECK_PLAIN);
    check_all(DIMS(5, 0), LAST, CHECK_PLAIN);
    check_all(DIMS(0), 0, NULL, CHECK_PLAIN);
    check_close();
}

/* A row has the same bits whatever stands beside it, and in whatever batch. */
Test(normalization, rows_do_not_depend_on_each_other)
{
    static const size_t lengths[] = {5, 64, 300, 1009, 20000};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        size_t n = lengths[i];
        float *x = malloc(n * 37 * sizeof *x);
        cr_assert(x);
        for (size_t k = 0; k < n * 37; k++)
            x[k] = (float)(check_random(1000) % 1000) * 0.01f - 5;
        for (unsigned which = SOFTMAX; which <= RMS_NORM; which++) {
            kiln_batch *many = check_begin();
            float *all = check_read(
                many, record(many, which, check_given(many, KILN_F32, DIMS(37, n), x), LAST, 0));
            float one[20000];
            kiln_tensor row = check_given(many, KILN_F32, DIMS(1, n), x + 36 * n);
            kiln_tensor y = record(many, which, row, LAST, 0);
            size_t rank, dims[KILN_MAX_RANK];
            expect_ok(kiln_tensor_shape(many, y, NULL, &rank, dims));
            size_t per_row = rank == 2 ? n : 1;
            expect_ok(kiln_read(many, y, one, per_row * sizeof *one));
            run_batch(many);
            cr_expect_arr_eq(all + 36 * per_row, one, per_row * sizeof *one,
                             "%s of %zu elements depends on its neighbours", names[which], n);
            check_end(many);
        }
        free(x);
    }
    check_close();
}

/* The same of columns, of which there are two at least. */
Test(normalization, slow_columns_do_not_depend_on_each_other)
{
    enum { MANY = 37, FEW = 2 };
    static const size_t lengths[] = {5, 300, 4096, 4099};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        size_t n = lengths[i];
        float *x = malloc(n * MANY * sizeof *x), *some = malloc(n * FEW * sizeof *some);
        cr_assert(x && some);
        for (size_t k = 0; k < n * MANY; k++)
            x[k] = (float)(check_random(1000) % 1000) * 0.01f - 5;
        for (size_t k = 0; k < n * FEW; k++)
            some[k] = x[k / FEW * MANY + MANY - FEW + k % FEW];
        for (unsigned which = SOFTMAX; which <= RMS_NORM; which += 3) {
            kiln_batch *b = check_begin();
            float *all = check_read(
                b, record(b, which, check_given(b, KILN_F32, DIMS(n, MANY), x), FIRST, 1));
            float *few = check_read(
                b, record(b, which, check_given(b, KILN_F32, DIMS(n, FEW), some), FIRST, 1));
            run_batch(b);
            size_t per_column = which == VARIANCE ? 1 : n;
            for (size_t k = 0; k < per_column * FEW; k++)
                cr_assert_eq(few[k], all[k / FEW * MANY + MANY - FEW + k % FEW],
                             "%s of %zu elements depends on its neighbours", names[which], n);
            check_end(b);
        }
        free(x);
        free(some);
    }
    check_close();
}

/* Read as a transpose, a slice and a broadcast say. */
Test(normalization, slow_of_views)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = check_input(b, KILN_F32, DIMS(40, 70), CHECK_PLAIN);
    kiln_tensor v = check_input(b, KILN_F32, DIMS(40), CHECK_PLAIN);
    kiln_tensor turned = kiln_transpose(b, x, NULL);
    check_read(b, kiln_softmax(b, turned, LAST));
    check_read(b, kiln_layer_norm(b, turned, v, v, LAST, 1e-5));
    int64_t from[] = {3, 69}, to[] = {33, -1}, step[] = {2, -3};
    kiln_tensor part = kiln_slice(b, x, from, to, step);
    check_read(b, kiln_log_softmax(b, part, LAST));
    check_read(b, kiln_softmax(b, kiln_broadcast(b, v, DIMS(6, 40)), LAST));
    check_read(b, kiln_variance(b, kiln_mul(b, turned, v), FIRST, 1, 1));
    check_run(b);
    check_end(b);
    check_close();
}
