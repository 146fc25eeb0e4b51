/* SPDX-License-Identifier: Apache-2.0 */
/* What an executor refuses, in words. */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "../support/context.h"
#include "../support/served.h"

/* ---- models and options ---- */

static size_t recorded;

static kiln_status record_as_told(kiln_batch *batch, size_t context, size_t rows,
                                  const kiln_tensor *inputs, kiln_tensor *outputs, void *user)
{
    (void)context;
    recorded = rows;
    switch (*(const char *)user) {
    case 's': outputs[0] = kiln_sum(batch, inputs[0], 0, NULL, 0); return KILN_OK;
    case 'b': outputs[0] = kiln_exp(batch, (kiln_tensor){0}); return KILN_OK;
    case 'o': return KILN_UNSUPPORTED;
    case 'r': return KILN_NOT_READY;
    case 'f': outputs[0] = (kiln_tensor){12345}; return KILN_OK;
    case 't': outputs[0] = kiln_transpose(batch, inputs[0], NULL); return KILN_OK;
    case 'g':
        outputs[0] = rows < 4 ? inputs[0] : kiln_sum(batch, inputs[0], 1, (const int[]){1}, 0);
        return KILN_OK;
    default: return KILN_OK;
    }
}

static const kiln_row eight = {.type = KILN_F32, .rank = 1, .dims = {8}};

Test(executor_errors, of_models_are_told_in_words)
{
    static const struct {
        const char *how;
        kiln_status status;
        const char *sentence;
    } rows[] = {
        {"s", KILN_SHAPE_MISMATCH,
         "kiln_executor_create: output 0 of the model for 2 rows has 0 rows"},
        {"b", KILN_INVALID_HANDLE,
         "kiln_executor_create: the model for 2 rows: kiln_exp: operand a is the empty tensor"},
        {"o", KILN_UNSUPPORTED, "kiln_executor_create: the model for 2 rows answered UNSUPPORTED"},
        {"r", KILN_INVALID_ARGUMENT,
         "kiln_executor_create: the model for 2 rows answered NOT_READY"},
        {"f", KILN_INVALID_HANDLE,
         "kiln_executor_create: output 0 of the model is no tensor of its batch"},
        {"n", KILN_INVALID_ARGUMENT, "kiln_executor_create: the model left no output 0"},
        {"t", KILN_SHAPE_MISMATCH,
         "kiln_executor_create: output 0 of the model for 2 rows has 8 rows"},
        {"g", KILN_SHAPE_MISMATCH,
         "kiln_executor_create: output 0 of the model for 4 rows has 4 bytes of f32 a row, which "
         "is not what it had for fewer or shorter rows"},
    };
    kiln_context *context = open_context();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        kiln_executor *executor = (kiln_executor *)&rows;
        kiln_model model = {
            sizeof model,     record_as_told,        (void *)(uintptr_t)rows[i].how, 1, &eight, 1,
            sizeof(kiln_row), KILN_PRECISION_DEFAULT};
        expect_error(kiln_executor_create(&context, 1, &model, NULL, &executor), rows[i].status,
                     rows[i].sentence);
        cr_expect_null(executor);
    }
    close_context(context);
}

#define REFUSED(status, sentence)                                                                  \
    expect_error(kiln_executor_create(contexts, n, &model, &options, &executor), KILN_##status,    \
                 "kiln_executor_create: " sentence)

Test(executor_errors, of_descriptions_and_options_are_told_in_words)
{
    kiln_context *context = open_context(), *contexts[2] = {context, context};
    size_t n = 1;
    kiln_executor *executor;
    const kiln_model good = served_model;
    const kiln_executor_options usual = KILN_EXECUTOR_OPTIONS_INIT;
    kiln_row row = eight;
    kiln_model model = KILN_MODEL_INIT;
    kiln_executor_options options = usual;
    REFUSED(INVALID_ARGUMENT, "model->record is NULL");
    model = good;
    model.size = 3;
    REFUSED(INVALID_ARGUMENT, "model->size is 3; start from KILN_MODEL_INIT");
    model = good;
    model.inputs = NULL;
    REFUSED(INVALID_ARGUMENT, "model->inputs is NULL");
    model.inputs = &row;
    model.precision = (kiln_precision)9;
    REFUSED(INVALID_ARGUMENT, "model->precision is 9, no kiln_precision");
    model.precision = KILN_PRECISION_BF16;
    model.output_count = 17;
    REFUSED(INVALID_ARGUMENT, "17 outputs, and a model has 1 to 16");
    model.output_count = 1;
    row.type = (kiln_type)99;
    REFUSED(INVALID_ARGUMENT, "input 0: 99 is no data type");
    row = eight;
    row.dims[0] = 0;
    REFUSED(INVALID_ARGUMENT, "input 0: dimension 0 of a row is 0");
    row.dims[0] = SIZE_MAX;
    REFUSED(TOO_LARGE, "input 0: a row has too many elements");
    row = eight;
    row.rank = 8;
    REFUSED(INVALID_ARGUMENT, "input 0: a row of 8 dimensions, and 7 are the most");
    row = eight;
    row.below = 3;
    REFUSED(INVALID_ARGUMENT, "input 0: only whole numbers have a bound, and it is f32");
    row = eight;
    options.max_batch = ((size_t)1 << 20) + 1;
    REFUSED(INVALID_ARGUMENT, "batches of 1 to 1048577 rows; at most is 1048576");
    options = usual;
    options.min_batch = 2000;
    REFUSED(INVALID_ARGUMENT, "batches of 2000 to 1024 rows; at most is 1048576");
    options = usual;
    options.max_wait_us = UINT64_MAX;
    REFUSED(INVALID_ARGUMENT, "options->max_wait_us is more than an hour");
    options = usual;
    options.size = 0;
    REFUSED(INVALID_ARGUMENT, "options->size is 0; start from KILN_EXECUTOR_OPTIONS_INIT");
    options = usual;
    n = 2;
    REFUSED(INVALID_ARGUMENT, "contexts 0 and 1 are the same");
    contexts[1] = NULL;
    REFUSED(INVALID_ARGUMENT, "context 1 is NULL");
    n = 65;
    REFUSED(INVALID_ARGUMENT, "65 contexts, and 1 to 64 are taken");
    expect_error(kiln_executor_create(NULL, 1, &model, NULL, &executor), KILN_INVALID_ARGUMENT,
                 "kiln_executor_create: contexts is NULL");
    expect_error(kiln_executor_create(contexts, 1, NULL, NULL, &executor), KILN_INVALID_ARGUMENT,
                 "kiln_executor_create: model is NULL");
    expect_error(kiln_executor_create(contexts, 1, &model, NULL, NULL), KILN_INVALID_ARGUMENT,
                 "kiln_executor_create: executor is NULL");
    close_context(context);
}

/* The model is recorded for each size, and none beyond what is asked for. */
Test(executor_errors, come_from_each_size_at_once)
{
    kiln_context *context = open_context();
    kiln_executor *executor;
    kiln_executor_options options = served_options(3, 1, 0);
    kiln_model model = {
        sizeof model,     record_as_told,        (void *)(uintptr_t) "g", 1, &eight, 1,
        sizeof(kiln_row), KILN_PRECISION_DEFAULT};
    expect_ok(kiln_executor_create(&context, 1, &model, &options, &executor));
    cr_expect_eq(recorded, 3u);
    served_end(executor, context);
}

/* ---- threads: the linker sends the library's calls here ---- */

static int failing_thread; /* 0: none */

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*work)(void *), void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*work)(void *), void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*work)(void *), void *argument)
{
    if (failing_thread && --failing_thread == 0)
        return EAGAIN;
    return __real_pthread_create(thread, attributes, work, argument);
}

Test(executor_errors, of_threads_leave_nothing)
{
    kiln_context *contexts[2] = {open_context(), open_context()};
    kiln_executor *executor;
    for (int n = 1; n <= 4; n++) {
        failing_thread = n;
        expect_error_part(kiln_executor_create(contexts, 2, &served_model, NULL, &executor),
                          KILN_OUT_OF_HOST_MEMORY, "kiln_executor_create: no thread: ");
        cr_expect_null(executor);
        cr_expect_eq(failing_thread, 0);
    }
    close_context(contexts[0]);
    close_context(contexts[1]);
}

/* ---- requests ---- */

static kiln_status record_labels(kiln_batch *batch, size_t context, size_t rows,
                                 const kiln_tensor *inputs, kiln_tensor *outputs, void *user)
{
    (void)context, (void)rows, (void)user;
    outputs[0] = kiln_cast(batch, inputs[0], KILN_F32);
    outputs[1] = kiln_cast(batch, inputs[1], KILN_F32);
    return KILN_OK;
}

#undef REFUSED
#define REFUSED(n, status, sentence)                                                               \
    do {                                                                                           \
        expect_error(kiln_executor_submit(executor, in, out, n, &options, &future), KILN_##status, \
                     "kiln_executor_submit: " sentence);                                           \
        cr_expect_null(future);                                                                    \
    } while (0)

Test(executor_errors, of_requests_concern_nobody_else)
{
    kiln_context *context = open_context();
    kiln_executor *executor;
    kiln_future *future, *good;
    static int32_t labels[4] = {0, 1, 9, 2};
    static uint8_t bytes[8] = {4, 3, 2, 1, 0, 1, 2, 3};
    static float a[4], b[8];
    const kiln_row rows[] = {{.type = KILN_I32, .below = 10},
                             {.type = KILN_U8, .rank = 1, .dims = {2}, .below = 5}};
    kiln_model model = {sizeof model,     record_labels,         NULL, 2, rows, 2,
                        sizeof(kiln_row), KILN_PRECISION_DEFAULT};
    kiln_executor_options usual = served_options(4, 4, 0);
    kiln_request_options options = KILN_REQUEST_OPTIONS_INIT;
    kiln_input in[] = {{labels, 8, KILN_I32}, {bytes, 4, KILN_U8}};
    kiln_output out[] = {{a, 8, KILN_F32}, {b, 16, KILN_F32}};
    expect_ok(kiln_executor_create(&context, 1, &model, &usual, &executor));
    expect_ok(kiln_executor_submit(executor, in, out, 2, &options, &good));
    REFUSED(0, INVALID_ARGUMENT, "no rows");
    REFUSED(5, TOO_LARGE, "5 rows, and a batch has at most 4");
    REFUSED(1, INVALID_ARGUMENT, "input 0 has 8 bytes, and 1 row of the model has 4");
    in[0].type = KILN_F32;
    REFUSED(2, TYPE_MISMATCH, "input 0 is f32, and the model's is i32");
    in[0].type = KILN_I32;
    in[0].data = labels + 2;
    labels[3] = 10;
    REFUSED(2, INVALID_ARGUMENT, "element 1 of input 0 is 10, and has to be from 0 to 9");
    labels[3] = -1;
    REFUSED(2, INVALID_ARGUMENT, "element 1 of input 0 is -1, and has to be from 0 to 9");
    labels[3] = 2;
    in[1].data = bytes + 4;
    bytes[7] = 5;
    REFUSED(2, INVALID_ARGUMENT, "element 3 of input 1 is 5, and has to be from 0 to 4");
    bytes[7] = 3;
    out[1].bytes = 12;
    REFUSED(2, INVALID_ARGUMENT, "output 1 has 12 bytes, and 2 rows of the model have 16");
    out[1].bytes = 16;
    out[1].data = NULL;
    REFUSED(2, INVALID_ARGUMENT, "data of output 1 is NULL");
    out[1].data = b + 4;
    out[0].data = a + 2;
    options.priority = (kiln_priority)3;
    REFUSED(2, INVALID_ARGUMENT, "3 is no priority");
    options.priority = KILN_PRIORITY_NORMAL;
    options.when_full = (kiln_when_full)-1;
    REFUSED(2, INVALID_ARGUMENT, "-1 is no answer to a full queue");
    options.when_full = KILN_WHEN_FULL_WAIT;
    options.deadline_us = UINT64_MAX;
    REFUSED(2, INVALID_ARGUMENT, "deadline_us is more than an hour");
    options.deadline_us = 0;
    options.size = 1;
    REFUSED(2, INVALID_ARGUMENT, "options->size is 1; start from KILN_REQUEST_OPTIONS_INIT");
    options.size = sizeof options;
    cr_expect_eq(kiln_future_poll(good), KILN_NOT_READY);
    expect_ok(kiln_executor_submit(executor, in, out, 2, &options, &future));
    expect_ok(kiln_future_wait(good));
    expect_ok(kiln_future_wait(future));
    for (int i = 0; i < 4; i++)
        cr_expect_eq(a[i], (float)labels[i]);
    for (int i = 0; i < 8; i++)
        cr_expect_eq(b[i], (float)bytes[i]);
    cr_expect_eq(served_stats(executor).refused, 13u);
    cr_expect_eq(served_stats(executor).batches, 1u);
    kiln_future_release(future);
    kiln_future_release(good);
    served_end(executor, context);
}

/* They would fail a batch, and all requests in it. */
Test(executor_errors, of_large_integers_concern_nobody_else)
{
    kiln_context *context = open_context();
    kiln_executor *executor;
    kiln_future *future, *good;
    static int64_t numbers[2] = {INT32_MAX, -5}, labels[2] = {9, 0};
    static float a[2], b[2];
    const kiln_row rows[] = {{.type = KILN_I64}, {.type = KILN_I64, .below = 10}};
    kiln_model model = {sizeof model,     record_labels,         NULL, 2, rows, 2,
                        sizeof(kiln_row), KILN_PRECISION_DEFAULT};
    kiln_executor_options usual = served_options(2, 2, 0);
    kiln_request_options options = KILN_REQUEST_OPTIONS_INIT;
    kiln_input in[] = {{numbers, 8, KILN_I64}, {labels, 8, KILN_I64}};
    kiln_output out[] = {{a, 4, KILN_F32}, {b, 4, KILN_F32}};
    expect_ok(kiln_executor_create(&context, 1, &model, &usual, &executor));
    expect_ok(kiln_executor_submit(executor, in, out, 1, &options, &good));
    in[0].data = numbers + 1;
    in[1].data = labels + 1;
    out[0].data = a + 1;
    out[1].data = b + 1;
    numbers[1] = -5;
    labels[1] = 10;
    REFUSED(1, INVALID_ARGUMENT, "element 0 of input 1 is 10, and has to be from 0 to 9");
    labels[1] = 0;
    expect_ok(kiln_executor_submit(executor, in, out, 1, &options, &future));
    expect_ok(kiln_future_wait(good));
    expect_ok(kiln_future_wait(future));
    cr_expect(a[0] == (float)INT32_MAX && a[1] == -5 && b[0] == 9 && b[1] == 0);
    kiln_future_release(future);
    kiln_future_release(good);
    served_end(executor, context);
}

Test(executor_errors, of_null_are_told)
{
    kiln_context *context = open_context();
    kiln_executor *executor = served_create(context, NULL);
    kiln_input in = {0};
    kiln_output out = {0};
    kiln_future *future;
    kiln_executor_stats stats;
    expect_error(kiln_executor_submit(NULL, &in, &out, 1, NULL, &future), KILN_INVALID_ARGUMENT,
                 "kiln_executor_submit: executor is NULL");
    expect_error(kiln_executor_submit(executor, NULL, &out, 1, NULL, &future),
                 KILN_INVALID_ARGUMENT, "kiln_executor_submit: inputs is NULL");
    expect_error(kiln_executor_submit(executor, &in, NULL, 1, NULL, &future), KILN_INVALID_ARGUMENT,
                 "kiln_executor_submit: outputs is NULL");
    expect_error(kiln_executor_submit(executor, &in, &out, 1, NULL, NULL), KILN_INVALID_ARGUMENT,
                 "kiln_executor_submit: future is NULL");
    expect_error(kiln_executor_get_stats(executor, NULL), KILN_INVALID_ARGUMENT,
                 "kiln_executor_get_stats: stats is NULL");
    expect_error(kiln_executor_get_stats(NULL, &stats), KILN_INVALID_ARGUMENT,
                 "kiln_executor_get_stats: executor is NULL");
    expect_error(kiln_executor_metrics(executor, KILN_METRICS_JSON, NULL), KILN_INVALID_ARGUMENT,
                 "kiln_executor_metrics: text is NULL");
    expect_error(kiln_future_wait(NULL), KILN_INVALID_ARGUMENT, "kiln_future_wait: future is NULL");
    expect_error(kiln_future_cancel(NULL), KILN_INVALID_ARGUMENT,
                 "kiln_future_cancel: future is NULL");
    kiln_executor_retain(NULL);
    kiln_executor_release(NULL);
    kiln_future_release(NULL);
    served_end(executor, context);
}
