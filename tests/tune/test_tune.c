/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of kernels that are tuned: records are found, damaged ones do not count, and results
 * are right with each value that may be chosen. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/kiln.h>

#include "../support/missing.h"

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

static kiln_tunable tunable_named(const kiln_context *context, const char *name)
{
    kiln_tunable tunable;
    size_t i = 0;
    while ((tunable = tunable_at(context, i)).name && strcmp(tunable.name, name) != 0)
        i++;
    cr_assert_not_null(tunable.name);
    return tunable;
}

TestSuite(tune, .timeout = 600);

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

static unsigned kept_value(void)
{
    kiln_context *context = open_context();
    unsigned value = tunable_named(context, "vector").value;
    kiln_context_release(context);
    return value;
}

Test(tune, what_is_kept_is_found_and_what_is_damaged_does_not_count)
{
    kiln_context *context = open_context();
    const kiln_tunable tunable = tunable_named(context, "vector");
    kiln_context_release(context);
    cr_expect_eq(tunable.value, tunable.usual);
    keep("# measured\nabacus 7\n", &tunable, "");
    cr_expect_eq(kept_value(), other_value(&tunable));
    setenv("KILN_TUNE", "off", 1);
    cr_expect_eq(kept_value(), tunable.usual);
    unsetenv("KILN_TUNE");
    keep("", &tunable, "3");
    cr_expect_eq(kept_value(), tunable.usual);
    keep("# ", &tunable, "");
    cr_expect_eq(kept_value(), tunable.usual);
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

/* ---- works ---- */

static kiln_batch *record_rows(kiln_context *context, size_t rows, size_t columns,
                               int batch_invariant)
{
    const size_t dims[] = {rows, columns};
    const int last = 1;
    kiln_batch *b = kiln_batch_create(context);
    if (batch_invariant)
        cr_assert_eq(kiln_batch_set_batch_invariant(b), KILN_OK);
    kiln_tensor y = kiln_softmax(b, kiln_upload(b, KILN_F32, 2, dims, x), 1, &last);
    cr_assert_eq(kiln_read(b, y, w, rows * columns * sizeof *w), KILN_OK);
    return b;
}

static char *explain_rows(kiln_context *context, size_t rows, size_t columns, int batch_invariant)
{
    char *text;
    kiln_batch *b = record_rows(context, rows, columns, batch_invariant);
    cr_assert_eq(kiln_batch_explain(b, &text), KILN_OK);
    kiln_batch_release(b);
    return text;
}

/* What changes how rows are planned: items do not share them on every device. */
static kiln_tunable tunable_of_rows(const kiln_context *context)
{
    kiln_tunable tunable;
    for (size_t i = 0; (tunable = tunable_at(context, i)).name; i++)
        if (!strcmp(tunable.name, "lanes"))
            return tunable;
    return tunable_named(context, "vector");
}

static char *explain_with(kiln_context *context, const char *record, size_t columns)
{
    cr_assert_eq(kiln_context_tune(context, record), KILN_OK, "%s", kiln_last_error());
    return explain_rows(context, 30, columns, 0);
}

/* Whether a record changes how rows are planned. */
static bool changes(kiln_context *context, const char *record, size_t rows, size_t columns,
                    int batch_invariant)
{
    cr_assert_eq(kiln_context_tune(context, ""), KILN_OK);
    char *usual = explain_rows(context, rows, columns, batch_invariant);
    cr_assert_eq(kiln_context_tune(context, record), KILN_OK, "%s", kiln_last_error());
    char *tuned = explain_rows(context, rows, columns, batch_invariant);
    bool other = strcmp(usual, tuned) != 0;
    kiln_free(usual);
    kiln_free(tuned);
    return other;
}

Test(tune, a_work_s_values_are_for_that_work_alone)
{
    kiln_context *context = open_context();
    char record[100];
    const kiln_tunable of_rows = tunable_of_rows(context);
    snprintf(record, sizeof record, "rows 30x304: %s %u\n", of_rows.name, other_value(&of_rows));
    cr_expect(changes(context, record, 30, 304, 0));
    cr_expect_not(changes(context, record, 30, 305, 0));
    cr_expect_not(changes(context, "product 30x304x1 nn: splits 2\n", 30, 304, 0));
    cr_assert_eq(kiln_context_remember(context, KILN_TUNED, record), KILN_OK);
    kiln_context_release(context);
    context = open_context();
    char *kept = explain_rows(context, 30, 304, 0);
    cr_assert_eq(kiln_context_tune(context, ""), KILN_OK);
    char *usual = explain_rows(context, 30, 304, 0);
    cr_expect_str_neq(kept, usual, "a context finds it by itself");
    kiln_free(kept);
    kiln_free(usual);
    kiln_context_release(context);
}

Test(tune, a_work_s_values_go_before_the_device_s)
{
    kiln_context *context = open_context();
    char record[200], both[200];
    const kiln_tunable of_rows = tunable_of_rows(context);
    const unsigned *values = of_rows.candidates;
    snprintf(both, sizeof both, "%s %u\nrows 30x304: %s %u\n", of_rows.name, values[0],
             of_rows.name, values[1]);
    for (size_t i = 0; i < 2; i++) {
        size_t columns = i ? 304 : 320;
        snprintf(record, sizeof record, "%s %u\n", of_rows.name, values[i]);
        char *alone = explain_with(context, record, columns);
        char *other = explain_with(context, both, columns);
        cr_expect_str_eq(other, alone);
        kiln_free(other);
        kiln_free(alone);
    }
    kiln_context_release(context);
}

/* Rows of batches of other sizes are to have the same bits. */
Test(tune, a_work_s_values_that_reorder_sums_do_not_count_where_sums_are_alike)
{
    kiln_context *context = open_context();
    char record[200];
    const kiln_tunable of_rows = tunable_of_rows(context);
    snprintf(record, sizeof record, "rows 30x304: %s %u\n", of_rows.name, other_value(&of_rows));
    cr_expect_not(changes(context, record, 30, 304, 1));
    snprintf(record, sizeof record, "%s %u\n", of_rows.name, other_value(&of_rows));
    cr_expect(changes(context, record, 30, 304, 1), "the device's are those of all batches");
    kiln_context_release(context);
}

Test(tune, a_record_that_is_not_understood_is_named)
{
    kiln_context *context = open_context();
    cr_expect_eq(kiln_context_tune(context, "# fine\nrows 30x304: abacus 7\nbeads\n"),
                 KILN_INVALID_ARGUMENT);
    cr_expect_str_eq(kiln_last_error(), "kiln_context_tune: \"rows 30x304: abacus 7\" is not "
                                        "understood and does not count");
    cr_expect_eq(kiln_context_tune(context, NULL), KILN_INVALID_ARGUMENT);
    cr_expect_eq(kiln_context_tune(NULL, ""), KILN_INVALID_ARGUMENT);
    kiln_context_release(context);
}

/* What ran before goes on as it was planned. */
Test(tune, a_batch_that_has_run_keeps_its_plan)
{
    kiln_context *context = open_context();
    kiln_context_stats before, after;
    kiln_batch *b = record_rows(context, 30, 304, 0);
    cr_assert_eq(kiln_batch_execute(b), KILN_OK);
    cr_assert_eq(kiln_context_get_stats(context, &before), KILN_OK);
    cr_assert_eq(kiln_context_tune(context, ""), KILN_OK);
    cr_assert_eq(kiln_batch_execute(b), KILN_OK);
    cr_assert_eq(kiln_context_get_stats(context, &after), KILN_OK);
    cr_expect_eq(after.plans_made, before.plans_made);
    kiln_batch_release(b);
    b = record_rows(context, 30, 304, 0);
    cr_assert_eq(kiln_batch_execute(b), KILN_OK);
    cr_assert_eq(kiln_context_get_stats(context, &after), KILN_OK);
    cr_expect_eq(after.plans_made, before.plans_made + 1);
    kiln_batch_release(b);
    kiln_context_release(context);
}

/* ---- shapes ---- */

static void expect_file(const char *path, const char *wanted)
{
    char text[1000] = "";
    FILE *file = fopen(path, "r");
    if (file) {
        text[fread(text, 1, sizeof text - 1, file)] = 0;
        fclose(file);
    }
    cr_expect_str_eq(text, wanted);
}

/* As for a run, without its kernels. */
static void plan_rows(kiln_context *context, size_t rows, size_t columns, int batch_invariant)
{
    kiln_batch_cost cost;
    kiln_batch *b = record_rows(context, rows, columns, batch_invariant);
    cr_assert_eq(kiln_batch_get_cost(b, &cost), KILN_OK);
    kiln_batch_release(b);
}

Test(tune, shapes_are_recorded_once_each)
{
    char path[300];
    snprintf(path, sizeof path, "%s/shapes", getenv("KILN_CACHE_DIR"));
    setenv("KILN_RECORD_SHAPES", path, 1);
    kiln_context *context = open_context();
    for (int i = 0; i < 2; i++)
        plan_rows(context, 30, 304, i);
    expect_file(path, "rows 30x304 # 1\n");
    plan_rows(context, 7, 9, 0);
    expect_file(path, "rows 30x304 # 1\nrows 7x9 # 1\n");
    kiln_context_release(context);
    setenv("KILN_RECORD_SHAPES", missing_path("shapes"), 1);
    cr_expect_eq(kiln_context_create(NULL, &context), KILN_IO_ERROR);
}

/* ---- values ---- */

struct results {
    float map[ROWS * COLUMNS], turned[ROWS * COLUMNS], rows[ROWS * COLUMNS], columns[COLUMNS],
        running[ROWS * COLUMNS], all, product[ROWS * DEPTH], few[DEPTH];
};

static bool is_seen(const char *plan)
{
    static char *seen[200];
    static size_t count;
    for (size_t i = 0; i < count; i++)
        if (!strcmp(seen[i], plan))
            return true;
    if (count < sizeof seen / sizeof *seen)
        seen[count++] = strdup(plan);
    return false;
}

/* False: an earlier value has given the same plan. */
static bool run(kiln_context *context, struct results *results)
{
    char *plan;
    const size_t dims[] = {ROWS, COLUMNS}, of_w[] = {COLUMNS, DEPTH}, one[] = {1, COLUMNS};
    const int first = 0, last = 1;
    kiln_batch *b = kiln_batch_create(context);
    kiln_tensor a = kiln_upload(b, KILN_F32, 2, dims, x);
    kiln_tensor weights = kiln_upload(b, KILN_F32, 2, of_w, w);
    kiln_read(b, kiln_relu(b, kiln_scale(b, a, 2)), results->map, sizeof results->map);
    kiln_read(b, kiln_scale(b, kiln_transpose(b, a, NULL), 2), results->turned,
              sizeof results->turned);
    kiln_read(b, kiln_softmax(b, a, 1, &last), results->rows, sizeof results->rows);
    kiln_read(b, kiln_cumsum(b, a, 1, 0), results->running, sizeof results->running);
    kiln_read(b, kiln_sum(b, a, 1, &first, 0), results->columns, sizeof results->columns);
    kiln_read(b, kiln_sum(b, a, 0, NULL, 0), &results->all, sizeof results->all);
    kiln_read(b, kiln_matmul(b, a, weights), results->product, sizeof results->product);
    kiln_tensor row = kiln_upload(b, KILN_F32, 2, one, x);
    kiln_read(b, kiln_matmul(b, row, weights), results->few, sizeof results->few);
    cr_assert_eq(kiln_batch_explain(b, &plan), KILN_OK);
    bool is_new = !is_seen(plan);
    kiln_free(plan);
    if (is_new)
        cr_assert_eq(kiln_batch_execute(b), KILN_OK, "%s", kiln_last_error());
    kiln_batch_release(b);
    return is_new;
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
    static double map[ROWS * COLUMNS], turned[ROWS * COLUMNS], rows[ROWS * COLUMNS],
        columns[COLUMNS], running[ROWS * COLUMNS], product[ROWS * DEPTH];
    double all = 0;
    memset(columns, 0, sizeof columns);
    memset(product, 0, sizeof product);
    for (size_t i = 0; i < ROWS; i++) {
        double sum = 0, so_far = 0;
        for (size_t k = 0; k < COLUMNS; k++)
            sum += exp((double)x[i * COLUMNS + k]);
        for (size_t k = 0; k < COLUMNS; k++) {
            double value = (double)x[i * COLUMNS + k];
            map[i * COLUMNS + k] = fmax(2 * value, 0);
            turned[k * ROWS + i] = 2 * value;
            rows[i * COLUMNS + k] = exp(value) / sum;
            running[i * COLUMNS + k] = so_far += value;
            columns[k] += value;
            all += value;
            for (size_t n = 0; n < DEPTH; n++)
                product[i * DEPTH + n] += value * (double)w[k * DEPTH + n];
        }
    }
    expect_near(words, "a map", ROWS * COLUMNS, results->map, map);
    expect_near(words, "a transpose", ROWS * COLUMNS, results->turned, turned);
    expect_near(words, "rows", ROWS * COLUMNS, results->rows, rows);
    expect_near(words, "running sums", ROWS * COLUMNS, results->running, running);
    expect_near(words, "column sums", COLUMNS, results->columns, columns);
    expect_near(words, "a sum", 1, &results->all, &all);
    expect_near(words, "a product", ROWS * DEPTH, results->product, product);
    expect_near(words, "a product of one row", DEPTH, results->few, product);
}

Test(tune, slow_every_value_gives_right_results)
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
            snprintf(words, sizeof words, "%s %u", tunable.name, tunable.candidates[k]);
            cr_assert_eq(kiln_context_tune(context, words), KILN_OK, "%s", kiln_last_error());
            if (run(context, &results))
                expect_right(words, &results);
        }
    kiln_context_release(context);
}
