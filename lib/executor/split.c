/* SPDX-License-Identifier: Apache-2.0 */
/* One large batch on all contexts: equal pieces, each a batch by itself, which go to whichever
 * context has them done first; so each context gets a share of the rows by its speed. */
#include <stdio.h>
#include <stdlib.h>

#include "executor/future.h"

static const char call[] = "kiln_executor_run";

/* Beyond this many pieces smaller ones gain nothing. */
#define MOST_PIECES 256

/* A smaller piece has to promise so much: one part in so many. */
#define WORTH 50

/* ---- how large a piece is, under the lock ---- */

/* When the last of so many pieces of a size would be done, if each goes to the context that has it
 * done first. */
static int64_t last_done(const kiln_executor *executor, unsigned size, size_t pieces, int64_t now)
{
    int64_t done[KILN__MOST_CONTEXTS], last = 0;
    for (size_t i = 0; i < executor->device_queue_count; i++)
        done[i] = kiln__device_queue_free(&executor->device_queues[i], now) - now;
    for (; pieces; pieces--) {
        size_t best = SIZE_MAX;
        int64_t soonest = KILN__NEVER;
        for (size_t i = 0; i < executor->device_queue_count; i++) {
            const struct kiln__device_queue *device_queue = &executor->device_queues[i];
            int64_t at = done[i] + kiln__device_queue_cost(executor, device_queue, size);
            if (!device_queue->out_until && at < soonest)
                soonest = at, best = i;
        }
        if (best == SIZE_MAX)
            return KILN__NEVER;
        done[best] = soonest;
        last = soonest > last ? soonest : last;
    }
    return last;
}

static size_t choose_piece(const kiln_executor *executor, size_t rows, unsigned length)
{
    const struct kiln__model *model = &executor->model;
    const struct kiln__batch_size *sizes = model->sizes + (size_t)length * model->size_count;
    size_t piece = sizes[model->size_count - 1].rows;
    int64_t now = kiln__now(), least = KILN__NEVER;
    for (unsigned i = model->size_count; i-- > 0;) {
        if (i && sizes[i].rows == sizes[i - 1].rows)
            continue; /* the most, again */
        size_t pieces = (rows + sizes[i].rows - 1) / sizes[i].rows;
        if (pieces > MOST_PIECES)
            break;
        int64_t last = last_done(executor, length * model->size_count + i, pieces, now);
        if (last >= least - least / WORTH)
            continue;
        least = last;
        piece = sizes[i].rows;
    }
    return piece;
}

/* ---- pieces ---- */

/* The sentence of what was called, on behalf of this call. */
static kiln_status pass_on(kiln_status status)
{
    struct kiln__error error;
    snprintf(error.text, sizeof error.text, "%s", kiln_last_error());
    return status ? kiln__fail(NULL, status, "%s: %s", call, error.text) : KILN_OK;
}

struct whole {
    kiln_executor *executor;
    const kiln_input *inputs;
    const kiln_output *outputs;
    kiln_request_options options;
    kiln_future **futures;
    size_t count;
};

static kiln_status submit_piece(struct whole *whole, size_t first, size_t rows)
{
    const struct kiln__model *model = &whole->executor->model;
    kiln_input inputs[KILN_MODEL_MOST];
    kiln_output outputs[KILN_MODEL_MOST];
    for (size_t i = 0; i < model->input_count; i++) {
        size_t bytes = kiln__part_bytes(&model->parts[i], whole->options.length);
        inputs[i] = whole->inputs[i];
        inputs[i].data = (const char *)inputs[i].data + first * bytes;
        inputs[i].bytes = rows * bytes;
    }
    for (size_t i = 0; i < model->output_count; i++) {
        size_t bytes =
            kiln__part_bytes(&model->parts[model->input_count + i], whole->options.length);
        outputs[i] = whole->outputs[i];
        outputs[i].data = (char *)outputs[i].data + first * bytes;
        outputs[i].bytes = rows * bytes;
    }
    kiln_status status = kiln__submit_alone(whole->executor, inputs, outputs, rows, &whole->options,
                                            &whole->futures[whole->count]);
    whole->count += !status;
    return status;
}

/* All of them, whatever becomes of the first. */
static kiln_status split_await(struct whole *whole, kiln_status status)
{
    for (size_t i = 0; i < whole->count; i++) {
        kiln_status ended = kiln_future_wait(whole->futures[i]);
        if (ended && !status)
            status = pass_on(ended);
        kiln_future_release(whole->futures[i]);
    }
    return status;
}

static kiln_status split_run(struct whole *whole, size_t rows)
{
    kiln_executor *executor = whole->executor;
    kiln_status status = KILN_OK;
    pthread_mutex_lock(&executor->lock);
    size_t piece =
        choose_piece(executor, rows, kiln__model_length(&executor->model, whole->options.length));
    pthread_mutex_unlock(&executor->lock);
    whole->futures = calloc((rows + piece - 1) / piece, sizeof(kiln_future *));
    if (!whole->futures)
        return kiln__fail(NULL, KILN_OUT_OF_HOST_MEMORY, "%s: no memory", call);
    for (size_t first = 0; first < rows && !status; first += piece)
        status = submit_piece(whole, first, rows - first < piece ? rows - first : piece);
    status = split_await(whole, pass_on(status));
    free(whole->futures);
    return status;
}

kiln_status kiln_executor_run(kiln_executor *executor, const kiln_input *inputs,
                              const kiln_output *outputs, size_t rows,
                              const kiln_request_options *options)
{
    struct whole whole = {.executor = executor,
                          .inputs = inputs,
                          .outputs = outputs,
                          .options = KILN_REQUEST_OPTIONS_INIT};
    kiln_status status = kiln__executor_check(executor, call);
    if (status)
        return status;
    if (kiln__is_worker_thread())
        return kiln__fail(NULL, KILN_WRONG_STATE, "%s: in a callback of an executor", call);
    KILN__RETURN_IF_NULL(NULL, call, inputs, outputs);
    status = kiln__submit_check(executor, inputs, outputs, rows, options, &whole.options);
    return status ? pass_on(status) : split_run(&whole, rows);
}
