/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of kernels that are tuned: records are found, damaged ones do not count, and results
 * are right with each value that may be chosen. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/kiln.h>

enum { ROWS = 40, COLUMNS = 300, DEPTH = 70 };

static float x[ROWS * COLUMNS], w[COLUMNS * DEPTH];

static kiln_context *open_context(void)
{
    kiln_context *context;
    if (kiln_context_create(NULL, &context))
        cr_skip("no OpenCL device here");
    return context;
}

static kiln_tunable tunable_at(const kiln_context *context, size_t number)
{
    kiln_tunable tunable;
    cr_assert_eq(kiln_context_get_tunable(context, number, &tunable), KILN_OK);
    return tunable;
}

TestSuite(tune, .timeout = 240);

/* ---- records ---- */

/* A value other than the usual one. */
static unsigned other_value(const kiln_tunable *tunable)
{
    cr_assert_gt(tunable->count, 1u);
    return tunable->candidates[tunable->candidates[0] == tunable->usual];
}

static void keep(const char *before, const kiln_tunable *tunable, const char *after)
{
    char text[200];
    kiln_context *context = open_context();
    snprintf(text, sizeof text, "%s%s %u%s\n", before, tunable->name, other_value(tunable), after);
    cr_assert_eq(kiln_context_remember(context, KILN_TUNED, text), KILN_OK);
    kiln_context_release(context);
}

static unsigned first_value(void)
{
    kiln_context *context = open_context();
    unsigned value = tunable_at(context, 0).value;
    kiln_context_release(context);
    return value;
}

Test(tune, what_is_kept_is_found_and_what_is_damaged_does_not_count)
{
    kiln_context *context = open_context();
    const kiln_tunable tunable = tunable_at(context, 0);
    kiln_context_release(context);
    cr_expect_eq(tunable.value, tunable.usual);
    keep("# measured\nabacus 7\n", &tunable, "");
    cr_expect_eq(first_value(), other_value(&tunable));
    setenv("KILN_TUNE", "off", 1);
    cr_expect_eq(first_value(), tunable.usual);
    unsetenv("KILN_TUNE");
    keep("", &tunable, "3");
    cr_expect_eq(first_value(), tunable.usual);
    keep("# ", &tunable, "");
    cr_expect_eq(first_value(), tunable.usual);
}

Test(tune, a_variable_that_is_not_understood_is_named)
{
    kiln_context *context = open_context();
    const kiln_tunable tunable = tunable_at(context, 0);
    kiln_context_release(context);
    setenv("KILN_TUNE", "abacus=7", 1);
    cr_expect_eq(kiln_context_create(NULL, &context), KILN_INVALID_ARGUMENT);
    cr_expect(strstr(kiln_last_error(), "KILN_TUNE has \"abacus=7\", none of off, ") &&
                  strstr(kiln_last_error(), tunable.name),
              "%s", kiln_last_error());
    cr_expect_null(context);
}

Test(tune, beyond_the_last_there_is_none)
{
    kiln_context *context = open_context();
    kiln_tunable tunable;
    cr_expect_null(tunable_at(context, 1000).name);
    cr_expect_eq(kiln_context_get_tunable(NULL, 0, &tunable), KILN_INVALID_ARGUMENT);
    cr_expect_eq(kiln_context_get_tunable(context, 0, NULL), KILN_INVALID_ARGUMENT);
    kiln_context_release(context);
}

/* ---- values ---- */

struct results {
    float map[ROWS * COLUMNS], rows[ROWS * COLUMNS], columns[COLUMNS], all, product[ROWS * DEPTH];
};

static void run(struct results *results)
{
    const size_t dims[] = {ROWS, COLUMNS}, of_w[] = {COLUMNS, DEPTH};
    const int first = 0, last = 1;
    kiln_context *context = open_context();
    kiln_batch *b = kiln_batch_create(context);
    kiln_tensor a = kiln_upload(b, KILN_F32, 2, dims, x);
    kiln_read(b, kiln_relu(b, kiln_scale(b, a, 2)), results->map, sizeof results->map);
    kiln_read(b, kiln_softmax(b, a, 1, &last), results->rows, sizeof results->rows);
    kiln_read(b, kiln_sum(b, a, 1, &first, 0), results->columns, sizeof results->columns);
    kiln_read(b, kiln_sum(b, a, 0, NULL, 0), &results->all, sizeof results->all);
    kiln_tensor product = kiln_matmul(b, a, kiln_upload(b, KILN_F32, 2, of_w, w));
    kiln_read(b, product, results->product, sizeof results->product);
    cr_assert_eq(kiln_batch_execute(b), KILN_OK, "%s", kiln_last_error());
    kiln_batch_release(b);
    kiln_context_release(context);
}

static void expect_near(const char *words, const char *what, size_t count, const float *got,
                        const double *want)
{
    for (size_t i = 0; i < count; i++)
        cr_assert_float_eq((double)got[i], want[i], 1e-4 * (1 + fabs(want[i])),
                           "%s: element %zu of %s is %g, not %g", words, i, what, (double)got[i],
                           want[i]);
}

static void expect_right(const char *words, const struct results *results)
{
    static double map[ROWS * COLUMNS], rows[ROWS * COLUMNS], columns[COLUMNS],
        product[ROWS * DEPTH];
    double all = 0;
    memset(columns, 0, sizeof columns);
    memset(product, 0, sizeof product);
    for (size_t i = 0; i < ROWS; i++) {
        double sum = 0;
        for (size_t k = 0; k < COLUMNS; k++)
            sum += exp((double)x[i * COLUMNS + k]);
        for (size_t k = 0; k < COLUMNS; k++) {
            double value = (double)x[i * COLUMNS + k];
            map[i * COLUMNS + k] = fmax(2 * value, 0);
            rows[i * COLUMNS + k] = exp(value) / sum;
            columns[k] += value;
            all += value;
            for (size_t n = 0; n < DEPTH; n++)
                product[i * DEPTH + n] += value * (double)w[k * DEPTH + n];
        }
    }
    expect_near(words, "a map", ROWS * COLUMNS, results->map, map);
    expect_near(words, "rows", ROWS * COLUMNS, results->rows, rows);
    expect_near(words, "column sums", COLUMNS, results->columns, columns);
    expect_near(words, "a sum", 1, &results->all, &all);
    expect_near(words, "a product", ROWS * DEPTH, results->product, product);
}

Test(tune, every_value_gives_right_results)
{
    static struct results results;
    kiln_context *context = open_context();
    kiln_tunable tunable;
    for (size_t i = 0; i < ROWS * COLUMNS; i++)
        x[i] = (float)(i % 23) / 8 - 1;
    for (size_t i = 0; i < COLUMNS * DEPTH; i++)
        w[i] = (float)(i % 17) / 8 - 1;
    for (size_t i = 0; (tunable = tunable_at(context, i)).name; i++)
        for (size_t k = 0; k < tunable.count; k++) {
            char words[100];
            snprintf(words, sizeof words, "%s=%u", tunable.name, tunable.candidates[k]);
            setenv("KILN_TUNE", words, 1);
            run(&results);
            expect_right(words, &results);
        }
    kiln_context_release(context);
}
