/* SPDX-License-Identifier: Apache-2.0 */
/* How large a model's batches are best: what fits, by plans, and what is fast, by the clock. */
#include "executor/tune_batches.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/batch.h>
#include <kiln/context.h>

#include "executor/executor.h"
#include "util/error.h"
#include "util/format.h"
#include "util/hash.h"
#include "util/log.h"

static const char call[] = "kiln_model_choose_batch";

/* Runs of a size, of which the shortest counts, after one that compiles. */
#define RUNS 5

/* A larger batch has to give so much more rows a second. */
#define GAIN 1.05

#define MOST_COUNT 21

struct tuning {
    kiln_context *context;
    struct kiln__model model;
    struct kiln__slots slots;
};

/* ---- what fits ---- */

/* A size of the greatest length. */
static kiln_status peak_of(struct tuning *tuning, size_t rows, uint64_t *bytes)
{
    struct kiln__batch_slot slot = {0};
    const struct kiln__batch_size size = {rows, tuning->model.longest};
    kiln_batch_cost cost = {0};
    kiln_status status = kiln__slot_record(&slot, &tuning->model, tuning->context, 0, &size);
    if (!status)
        status = kiln_batch_get_cost(slot.batch, &cost);
    if (!status)
        *bytes = cost.peak_bytes;
    kiln__slot_free(&slot);
    return status;
}

/* Halves of what is between a size that fits and one that does not. */
static kiln_status find_largest(struct tuning *tuning, size_t most, uint64_t limit, size_t *rows)
{
    uint64_t bytes = 0;
    size_t fits = most < 2 ? most : 2, beyond = most + 1, next = most;
    kiln_status status = peak_of(tuning, fits, &bytes);
    if (!status && bytes > limit)
        return kiln__fail(NULL, KILN_OUT_OF_DEVICE_MEMORY,
                          "%s: a batch of %zu rows takes %" PRIu64 " bytes, and %" PRIu64
                          " are the most",
                          call, fits, bytes, limit);
    for (; !status && fits + 1 < beyond; next = fits + (beyond - fits) / 2) {
        status = peak_of(tuning, next, &bytes);
        if (bytes <= limit)
            fits = next;
        else
            beyond = next;
    }
    *rows = fits;
    return status;
}

/* ---- what is fast ---- */

void kiln__tune_write(const size_t *rows, const double *seconds, size_t count,
                      struct kiln__text *text)
{
    for (size_t i = 0; i < count; i++)
        kiln__text_add(text, "%s%zu rows %.3g s", i ? ", " : "", rows[i], seconds[i]);
}

bool kiln__tune_read(const char *text, const size_t *rows, size_t count, double *seconds)
{
    for (size_t i = 0; i < count; i++) {
        char *end;
        if (strtoul(text, &end, 10) != rows[i] || strncmp(end, " rows ", 6) != 0)
            return false;
        text = end + 6;
        seconds[i] = kiln__parse_double(text, &end);
        const char *behind = i + 1 < count ? " s, " : " s";
        size_t length = strlen(behind);
        if (end == text || !(seconds[i] > 0) || strncmp(end, behind, length) != 0)
            return false;
        text = end + length;
    }
    return !*text;
}

size_t kiln__tune_choose_batch(const size_t *rows, const double *seconds, size_t count, double most)
{
    size_t best = 0;
    for (size_t i = 1; i < count; i++)
        if (seconds[i] <= most &&
            (double)rows[i] / seconds[i] > GAIN * (double)rows[best] / seconds[best])
            best = i;
    return rows[best];
}

static kiln_status time_batch(struct kiln__batch_slot *slot, double *seconds)
{
    kiln_batch *batch = slot->batch;
    kiln__slot_meet(slot);
    kiln_status status = kiln_batch_execute(batch);
    for (int i = 0; i < RUNS && !status; i++) {
        int64_t start = kiln__now();
        status = kiln_batch_execute(batch);
        double took = 1e-9 * (double)(kiln__now() - start + 1);
        *seconds = !i || took < *seconds ? took : *seconds;
    }
    return status;
}

/* What the model is, on this device, is in its explanation. */
static kiln_status name_model(kiln_batch *batch, char subject[64])
{
    char *text = NULL;
    kiln_status status = kiln_batch_explain(batch, &text);
    if (!status)
        snprintf(subject, 64, "batches of model %016" PRIx64, kiln__hash64(text, strlen(text)));
    kiln_free(text);
    return status;
}

static bool tune_batches_recall(kiln_context *context, const char *subject, const size_t *rows,
                                size_t count, double *seconds)
{
    char *text = NULL;
    if (kiln_context_recall(context, subject, &text) || !text)
        return false;
    bool done = kiln__tune_read(text, rows, count, seconds);
    if (!done)
        KILN__LOG(KILN__LOG_ERROR, "%s: what is kept is not understood: %s", subject, text);
    kiln_free(text);
    return done;
}

static kiln_status tune_batches_remember(kiln_context *context, const char *subject,
                                         const size_t *rows, const double *seconds, size_t count)
{
    struct kiln__text text = {0};
    kiln__tune_write(rows, seconds, count, &text);
    kiln_status status =
        text.failed ? KILN_OUT_OF_HOST_MEMORY : kiln_context_remember(context, subject, text.data);
    kiln__text_free(&text);
    return status;
}

static kiln_status find_fastest(struct tuning *tuning, uint64_t max_run_us, size_t *best)
{
    const struct kiln__model *model = &tuning->model;
    size_t rows[MOST_COUNT], count = model->size_count;
    size_t first = (model->length_count - 1) * count;
    double seconds[MOST_COUNT] = {0};
    char subject[64];
    kiln_status status =
        kiln__slots_record(&tuning->slots, &tuning->model, tuning->context, 0, false);
    for (size_t i = 0; i < count; i++)
        rows[i] = model->sizes[first + i].rows;
    if (!status)
        status = name_model(tuning->slots.of[first + count - 1].batch, subject);
    if (!status && !tune_batches_recall(tuning->context, subject, rows, count, seconds)) {
        for (size_t i = 0; i < count && !status; i++)
            status = time_batch(&tuning->slots.of[first + i], &seconds[i]);
        if (!status)
            status = tune_batches_remember(tuning->context, subject, rows, seconds, count);
    }
    if (!status)
        *best = kiln__tune_choose_batch(rows, seconds, count, 1e-6 * (double)max_run_us);
    return status;
}

/* ---- both ---- */

static kiln_status tune_batches_choose(struct tuning *tuning, const kiln_model *model, size_t most,
                                       uint64_t max_bytes, uint64_t max_run_us, size_t *rows)
{
    kiln_executor_options options = {.max_batch = most};
    kiln_status status = kiln__model_check(model, &options, &tuning->model);
    *rows = most;
    if (!status && max_bytes)
        status = find_largest(tuning, most, max_bytes, rows);
    options.max_batch = *rows;
    if (!status)
        status = kiln__model_check(model, &options, &tuning->model);
    if (!status && max_run_us)
        status = find_fastest(tuning, max_run_us, rows);
    return status;
}

kiln_status kiln_model_choose_batch(kiln_context *context, const kiln_model *model,
                                    size_t max_batch, uint64_t max_bytes, uint64_t max_run_us,
                                    size_t *rows)
{
    if (rows)
        *rows = 0;
    KILN__RETURN_IF_NULL(NULL, call, context, rows);
    if (max_batch > KILN__MOST_ROWS)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: batches of %zu rows; at most is %zu",
                          call, max_batch, KILN__MOST_ROWS);
    struct tuning *tuning = calloc(1, sizeof *tuning);
    if (!tuning)
        return kiln__fail(NULL, KILN_OUT_OF_HOST_MEMORY, "%s: no memory", call);
    tuning->context = context;
    kiln_status status = tune_batches_choose(tuning, model, max_batch ? max_batch : 1024, max_bytes,
                                             max_run_us, rows);
    kiln__slots_free(&tuning->slots);
    free(tuning);
    if (status) {
        struct kiln__error error = {.status = status};
        snprintf(error.text, sizeof error.text, "%s", kiln_last_error());
        kiln__error_within(&error, call);
        *rows = 0;
    }
    return status;
}
