/* SPDX-License-Identifier: Apache-2.0 */
/* How large batches are best: by memory as plans say, by times as records say. */
#include <criterion/criterion.h>
#include <string.h>

#include "../support/context.h"
#include "../support/served.h"
#include "executor/tune_batches.h"

/* ---- times, as texts and as numbers ---- */

static const size_t rows[] = {2, 4, 8, 10};

Test(executor_tune, records_are_read_as_they_were_written)
{
    const double seconds[] = {1e-5, 1.25e-5, 2, 3e3};
    double found[4];
    struct kiln__text text = {0};
    kiln__tune_write(rows, seconds, 4, &text);
    cr_assert_str_eq(text.data, "2 rows 1e-05 s, 4 rows 1.25e-05 s, 8 rows 2 s, 10 rows 3e+03 s");
    cr_assert(kiln__tune_read(text.data, rows, 4, found));
    cr_expect_arr_eq(found, seconds, sizeof seconds);
    cr_expect_not(kiln__tune_read(text.data, rows, 3, found), "it says more");
    kiln__text_free(&text);
}

Test(executor_tune, records_of_no_sense_are_none)
{
    static const char *const texts[] = {
        "",
        "2",
        "2 rows 1 s",
        "2 rows 1 s, 5 rows 1 s",
        "2 rows 1 s; 4 rows 1 s",
        "2 rows 1 s, 4 rows 0 s",
        "2 rows 1 s, 4 rows -1 s",
        "2 rows 1 s, 4 rows nan s",
        "2 rows 1 s, 4 rows 1",
        "2 rows 1 s, 4 rows 1 s, 8",
        "f16: f32 1.00",
    };
    double seconds[2];
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        cr_expect_not(kiln__tune_read(texts[i], rows, 2, seconds), "%s", texts[i]);
}

Test(executor_tune, the_fastest_within_the_time_is_chosen)
{
    const double seconds[] = {1e-3, 1.5e-3, 2e-3,
                              2.45e-3}; /* 2000, 2667, 4000, 4082 rows a second */
    cr_expect_eq(kiln__tune_choose_batch(rows, seconds, 4, 1), 8u, "10 rows are not worth it");
    cr_expect_eq(kiln__tune_choose_batch(rows, seconds, 4, 1.9e-3), 4u);
    cr_expect_eq(kiln__tune_choose_batch(rows, seconds, 4, 1e-4), 2u, "none is short enough");
}

/* ---- by memory ---- */

enum { WIDTH = 3000 };

/* Two values of a row's size lie in memory. */
static kiln_status record_means(kiln_batch *b, size_t context, size_t count,
                                const kiln_tensor *inputs, kiln_tensor *outputs, void *user)
{
    (void)context, (void)count, (void)user;
    kiln_tensor y = kiln_exp(b, inputs[0]);
    kiln_tensor z = kiln_softmax(b, kiln_transpose(b, y, NULL), 1, (const int[]){0});
    outputs[0] = kiln_matmul(b, y, kiln_sum(b, z, 1, (const int[]){1}, 0));
    return KILN_OK;
}

static const kiln_row row = {.type = KILN_F32, .rank = 1, .dims = {WIDTH}};
static const kiln_model model = {.size = sizeof model,
                                 .record = record_means,
                                 .input_count = 1,
                                 .inputs = &row,
                                 .output_count = 1};

static uint64_t peak_of(kiln_context *context, size_t count)
{
    static float x[64 * WIDTH], y[64];
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor in, out;
    expect_ok(kiln_batch_set_batch_invariant(batch));
    in = kiln_upload(batch, KILN_F32, 2, (size_t[]){count, WIDTH}, x);
    expect_ok(record_means(batch, 0, count, &in, &out, NULL));
    expect_ok(kiln_read(batch, out, y, count * sizeof *y));
    uint64_t peak = cost_of(batch).peak_bytes;
    kiln_batch_release(batch);
    return peak;
}

Test(executor_tune, the_largest_batch_that_fits_is_found)
{
    kiln_context *context = open_context();
    size_t found;
    uint64_t limit = peak_of(context, 37);
    cr_assert_lt(limit, peak_of(context, 38));
    expect_ok(kiln_model_choose_batch(context, &model, 64, limit, 0, &found));
    cr_expect_eq(found, 37u);
    expect_ok(kiln_model_choose_batch(context, &model, 30, limit, 0, &found));
    cr_expect_eq(found, 30u);
    expect_ok(kiln_model_choose_batch(context, &model, 0, 0, 0, &found));
    cr_expect_eq(found, 1024u);
    expect_error_part(kiln_model_choose_batch(context, &model, 64, 100, 0, &found),
                      KILN_OUT_OF_DEVICE_MEMORY,
                      "kiln_model_choose_batch: a batch of 2 rows takes ");
    cr_expect_eq(found, 0u);
    cr_expect_eq(stats_of(context).launches, 0u, "plans have said it all");
    close_context(context);
}

/* ---- by the clock ---- */

Test(executor_tune, what_was_measured_is_remembered)
{
    kiln_context *context = open_context();
    size_t found;
    expect_ok(kiln_model_choose_batch(context, &served_model, 4, 0, 3600000000, &found));
    cr_expect(found == 2 || found == 4);
    cr_expect_gt(stats_of(context).batches, 0u);
    close_context(context);

    context = open_context();
    size_t again;
    expect_ok(kiln_model_choose_batch(context, &served_model, 4, 0, 3600000000, &again));
    cr_expect_eq(again, found);
    expect_ok(kiln_model_choose_batch(context, &served_model, 4, 0, 1, &again));
    cr_expect_eq(stats_of(context).batches, 0u, "it is in the cache, whatever the time");
    expect_ok(kiln_model_choose_batch(context, &served_model, 8, 0, 3600000000, &again));
    cr_expect_gt(stats_of(context).batches, 0u, "other sizes are not");
    close_context(context);
}

Test(executor_tune, notes_are_kept_for_other_contexts)
{
    kiln_context *context = open_context();
    char *text;
    static char long_text[70000];
    expect_ok(kiln_context_recall(context, "tests", &text));
    cr_expect_null(text);
    expect_ok(kiln_context_remember(context, "tests", "first"));
    expect_ok(kiln_context_remember(context, "tests", "second"));
    memset(long_text, 'x', sizeof long_text - 1);
    expect_error(kiln_context_remember(context, "tests", long_text), KILN_TOO_LARGE,
                 "kiln_context_remember: a text of 69999 bytes, and 65535 are the most");
    close_context(context);
    context = open_context();
    expect_ok(kiln_context_recall(context, "tests", &text));
    cr_assert_not_null(text);
    cr_expect_str_eq(text, "second");
    kiln_free(text);
    expect_error(kiln_context_recall(context, NULL, &text), KILN_INVALID_ARGUMENT,
                 "kiln_context_recall: subject is NULL");
    close_context(context);
}
