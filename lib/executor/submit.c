/* SPDX-License-Identifier: Apache-2.0 */
/* What a caller's thread does: look at the request, find room, queue it. */
#include <stdio.h>

#include "executor/future.h"
#include "ops/ops.h"
#include "util/structure.h"

static const char call[] = "kiln_executor_submit";

#define HOUR_US ((uint64_t)3600 * 1000000)

/* ---- checks, without the lock: the model is set once ---- */

static kiln_status read_options(const kiln_request_options *options, kiln_request_options *own)
{
    return KILN__STRUCTURE_READ(NULL, call, options, "KILN_REQUEST_OPTIONS_INIT", own);
}

static kiln_status check_options(const kiln_request_options *given, kiln_request_options *options)
{
    if (!given)
        return KILN_OK;
    kiln_status status = read_options(given, options);
    if (status)
        return status;
    if ((unsigned)options->priority > KILN_PRIORITY_LOW)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: %d is no priority", call,
                          (int)options->priority);
    if ((unsigned)options->when_full > KILN_WHEN_FULL_FAIL)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: %d is no answer to a full queue", call,
                          (int)options->when_full);
    if (options->deadline_us > HOUR_US || options->room_us > HOUR_US)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: %s is more than an hour", call,
                          options->room_us > HOUR_US ? "room_us" : "deadline_us");
    return KILN_OK;
}

/* `length`: what they have, or 0 */
static kiln_status check_rows(const struct kiln__model *model, size_t rows, size_t length)
{
    const size_t most = kiln__model_most(model, length ? kiln__model_length(model, length) : 0);
    if (rows > most)
        return kiln__fail(NULL, KILN_TOO_LARGE, "%s: %zu rows, and a batch has at most %zu%s", call,
                          rows, most, length ? " of their length" : "");
    return KILN_OK;
}

static kiln_status check_length(const struct kiln__model *model, kiln_request_options *options)
{
    if (options->length && !model->longest)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT,
                          "%s: a length of %zu, and the model has no sequences", call,
                          options->length);
    if (options->length > model->longest)
        return kiln__fail(NULL, KILN_TOO_LARGE, "%s: a length of %zu, and the greatest is %zu",
                          call, options->length, model->longest);
    if (!options->length)
        options->length = model->longest;
    return KILN_OK;
}

/* "" or " of length 5" */
static void name_length(const struct kiln__model_part *part, size_t length, char text[40])
{
    text[0] = 0;
    if (part->row.sequence)
        snprintf(text, 40, " of length %zu", length);
}

static kiln_status check_part(const struct kiln__model_part *part, const char *name, size_t number,
                              size_t rows, size_t length, const kiln_input *given)
{
    size_t bytes;
    bool fits = !__builtin_mul_overflow(rows, kiln__part_bytes(part, length), &bytes);
    char of[40];
    if (!given->data)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: data of %s %zu is NULL", call, name,
                          number);
    if (given->type != part->row.type)
        return kiln__fail(NULL, KILN_TYPE_MISMATCH, "%s: %s %zu is %s, and the model's is %s", call,
                          name, number, kiln_type_name(given->type),
                          kiln_type_name(part->row.type));
    if (fits && given->bytes == bytes)
        return KILN_OK;
    name_length(part, length, of);
    return kiln__fail(NULL, KILN_INVALID_ARGUMENT,
                      "%s: %s %zu has %zu bytes, and %zu row%s%s of the model %s %zu", call, name,
                      number, given->bytes, rows, rows == 1 ? "" : "s", of,
                      rows == 1 ? "has" : "have", bytes);
}

static size_t count_elements(const kiln_input *input)
{
    return input->bytes / kiln_type_size(input->type);
}

static kiln_status check_bound(const kiln_row *row, size_t number, const kiln_input *input)
{
    size_t count = row->below ? count_elements(input) : 0, item = kiln_type_size(row->type);
    for (size_t i = 0; i < count; i++) {
        double value = kiln__type_load(row->type, (const char *)input->data + i * item);
        if (value < 0 || value >= row->below)
            return kiln__fail(NULL, KILN_INVALID_ARGUMENT,
                              "%s: element %zu of input %zu is %.0f, and has to be from 0 to %lu",
                              call, i, number, value, (unsigned long)row->below - 1);
    }
    return KILN_OK;
}

static kiln_status check_memory(const struct kiln__model *model, const kiln_input *inputs,
                                const kiln_output *outputs, size_t rows, size_t length)
{
    kiln_status status = KILN_OK;
    for (size_t i = 0; i < model->input_count && !status; i++) {
        status = check_part(&model->parts[i], "input", i, rows, length, &inputs[i]);
        if (!status)
            status = check_bound(&model->parts[i].row, i, &inputs[i]);
    }
    for (size_t i = 0; i < model->output_count && !status; i++) {
        const kiln_input same = {outputs[i].data, outputs[i].bytes, outputs[i].type};
        status =
            check_part(&model->parts[model->input_count + i], "output", i, rows, length, &same);
    }
    return status;
}

/* ---- room ---- */

static kiln_status find_room(kiln_executor *executor, const kiln_request_options *options,
                             size_t rows, int64_t start)
{
    int64_t until = KILN__NEVER;
    size_t most = executor->options.max_queue;
    kiln_status status = KILN_OK;
    if (options->room_us)
        until = start + (int64_t)options->room_us * 1000;
    if (options->deadline_us && start + (int64_t)options->deadline_us * 1000 < until)
        until = start + (int64_t)options->deadline_us * 1000;
    bool may_wait = options->when_full == KILN_WHEN_FULL_WAIT && !kiln__is_worker_thread();
    pthread_mutex_lock(&executor->lock);
    while (!status && (executor->stopping || !kiln__inbox_enter(&executor->inbox, rows, most))) {
        if (executor->stopping)
            status = kiln__fail(NULL, KILN_WRONG_STATE, "%s: the executor is shut down", call);
        else if (!may_wait)
            status = kiln__fail(NULL, KILN_BUSY, "%s: %zu requests wait already", call, most);
        else if (kiln__now() >= until)
            status = kiln__fail(NULL, KILN_TIMED_OUT, "%s: no room among %zu requests that wait",
                                call, most);
        else
            kiln__cond_wait_until(&executor->room, &executor->lock, until);
    }
    pthread_mutex_unlock(&executor->lock);
    return status;
}

/* ---- into the inbox ---- */

/* The lists stand in the order of priorities. */
static const unsigned list_of[KILN__PRIORITIES] = {
    [KILN_PRIORITY_HIGH] = 0, [KILN_PRIORITY_NORMAL] = 1, [KILN_PRIORITY_LOW] = 2};

static void set(kiln_future *future, size_t rows, const kiln_request_options *options, bool alone,
                int64_t start)
{
    int64_t wait = alone ? 0 : (int64_t)future->executor->options.max_wait_us * 1000;
    int64_t deadline = (int64_t)options->deadline_us * 1000;
    future->rows = rows;
    future->alone = alone;
    future->length = options->length;
    future->length_number = kiln__model_length(&future->executor->model, options->length);
    future->priority = list_of[options->priority];
    future->submitted = start;
    future->deadline = deadline ? start + deadline : KILN__NEVER;
    future->due = start + (deadline && deadline / 2 < wait ? deadline / 2 : wait);
}

static void note_memory(kiln_future *future, const kiln_input *inputs, const kiln_output *outputs)
{
    const struct kiln__model *model = &future->executor->model;
    for (size_t i = 0; i < model->input_count; i++)
        future->memory[i] = (void *)(uintptr_t)inputs[i].data;
    for (size_t i = 0; i < model->output_count; i++)
        future->memory[model->input_count + i] = outputs[i].data;
}

/* Have a worker look. After a shutdown there may be none, and the request is taken back. */
static kiln_status wake_worker(kiln_executor *executor, kiln_future **future, int64_t now)
{
    kiln_status status = KILN_OK;
    pthread_mutex_lock(&executor->lock);
    kiln__executor_wake(executor, now);
    if (executor->stopping && kiln__future_is_queued(*future)) {
        kiln__future_withdraw(*future);
        *future = NULL;
        status = kiln__fail(NULL, KILN_WRONG_STATE, "%s: the executor is shut down", call);
    }
    pthread_mutex_unlock(&executor->lock);
    return status;
}

static kiln_status queue(kiln_executor *executor, const kiln_input *inputs,
                         const kiln_output *outputs, size_t rows,
                         const kiln_request_options *options, bool alone, kiln_future **result)
{
    const size_t most = executor->options.max_queue;
    int64_t start = kiln__now();
    kiln_status status = KILN_OK;
    kiln_future *future = kiln__future_create(executor);
    if (!future)
        return kiln__fail(NULL, KILN_OUT_OF_HOST_MEMORY, "%s: no memory", call);
    set(future, rows, options, alone, start);
    note_memory(future, inputs, outputs);
    if (executor->stopping || !kiln__inbox_enter(&executor->inbox, rows, most))
        status = find_room(executor, options, rows, start);
    if (status) {
        kiln__future_recycle(future);
        return status;
    }
    *result = future;
    bool enough = kiln__inbox_put(&executor->inbox, future, most);
    bool at_once = enough || alone || options->deadline_us || executor->stopping;
    return at_once ? wake_worker(executor, result, start) : KILN_OK;
}

static kiln_status submit_refuse(kiln_executor *executor, kiln_status status)
{
    pthread_mutex_lock(&executor->lock);
    executor->counts.refused++;
    pthread_mutex_unlock(&executor->lock);
    return status;
}

kiln_status kiln__submit_alone(kiln_executor *executor, const kiln_input *inputs,
                               const kiln_output *outputs, size_t rows,
                               const kiln_request_options *options, kiln_future **future)
{
    kiln_status status = queue(executor, inputs, outputs, rows, options, true, future);
    return status ? submit_refuse(executor, status) : KILN_OK;
}

kiln_status kiln__submit_check(const kiln_executor *executor, const kiln_input *inputs,
                               const kiln_output *outputs, size_t rows,
                               const kiln_request_options *given, kiln_request_options *options)
{
    kiln_status status = check_options(given, options);
    if (!status && !rows)
        status = kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: no rows", call);
    if (!status)
        status = check_length(&executor->model, options);
    return status ? status : check_memory(&executor->model, inputs, outputs, rows, options->length);
}

kiln_status kiln_executor_submit(kiln_executor *executor, const kiln_input *inputs,
                                 const kiln_output *outputs, size_t rows,
                                 const kiln_request_options *given, kiln_future **future)
{
    kiln_request_options options = KILN_REQUEST_OPTIONS_INIT;
    if (future)
        *future = NULL;
    kiln_status status = kiln__executor_check(executor, call);
    if (status)
        return status;
    if (!inputs || !outputs || !future)
        status = kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: %s is NULL", call,
                            !inputs   ? "inputs"
                            : outputs ? "future"
                                      : "outputs");
    if (!status)
        status = check_rows(&executor->model, rows, 0);
    if (!status)
        status = kiln__submit_check(executor, inputs, outputs, rows, given, &options);
    if (!status)
        status = check_rows(&executor->model, rows, options.length);
    if (!status)
        status = queue(executor, inputs, outputs, rows, &options, false, future);
    return status ? submit_refuse(executor, status) : KILN_OK;
}
