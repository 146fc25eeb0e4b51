/* SPDX-License-Identifier: Apache-2.0 */
/* Programs and libraries of two versions: structures that are shorter or longer than the library's.
 * What the library fills it fills as far as it is told; what it reads may have fewer fields, or
 * more that are 0. */
#include <criterion/criterion.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../support/context.h"
#include "../support/file.h"
#include "../support/served.h"

/* ---- those that never change ---- */

#if UINTPTR_MAX == UINT64_MAX
_Static_assert(sizeof(kiln_tensor) == 8, "kiln_tensor never grows");
_Static_assert(sizeof(kiln_array) == 88, "kiln_array never grows");
_Static_assert(sizeof(kiln_custom_tensor) == 88, "kiln_custom_tensor never grows");
_Static_assert(sizeof(kiln_custom_scalar) == 24, "kiln_custom_scalar never grows");
_Static_assert(sizeof(kiln_input) == 24, "kiln_input never grows");
_Static_assert(sizeof(kiln_output) == 24, "kiln_output never grows");
_Static_assert(sizeof(kiln_latency) == 56, "kiln_latency never grows");
#endif

/* ---- those that are filled ---- */

enum { MOST = 8192, LONGER = 64, GUARD = 0xA5 };

static kiln_context *context;
static kiln_batch *batch;
static kiln_executor *executor;

static kiln_status ask_cost(void *to, size_t size)
{
    return (kiln_batch_get_cost)(batch, to, size);
}

static kiln_status ask_cache(void *to, size_t size)
{
    return (kiln_cache_get_stats)(NULL, to, size);
}

static kiln_status ask_context_device(void *to, size_t size)
{
    return (kiln_context_device)(context, to, size);
}

static kiln_status ask_stats(void *to, size_t size)
{
    return (kiln_context_get_stats)(context, to, size);
}

static kiln_status ask_tunable(void *to, size_t size)
{
    return (kiln_context_get_tunable)(context, 0, to, size);
}

static kiln_status ask_device(void *to, size_t size)
{
    return (kiln_device_describe)(0, to, size);
}

static kiln_status ask_executor(void *to, size_t size)
{
    return (kiln_executor_get_stats)(executor, to, size);
}

static kiln_status ask_executor_context(void *to, size_t size)
{
    return (kiln_executor_get_context_stats)(executor, 0, to, size);
}

static kiln_status ask_model(void *to, size_t size)
{
    (kiln_model_init)(to, size, sizeof(kiln_row));
    return KILN_OK;
}

static kiln_status ask_optimizer(void *to, size_t size)
{
    (kiln_optimizer_options_init)(KILN_ADAMW, to, size);
    return KILN_OK;
}

#define INITIALISERS(X)                                                                            \
    X(kiln_attention_options, kiln_attention_options_init)                                         \
    X(kiln_context_options, kiln_context_options_init)                                             \
    X(kiln_conv_options, kiln_conv_options_init)                                                   \
    X(kiln_cross_entropy_options, kiln_cross_entropy_options_init)                                 \
    X(kiln_custom_kernel, kiln_custom_kernel_init)                                                 \
    X(kiln_executor_options, kiln_executor_options_init)                                           \
    X(kiln_executor_options, kiln_executor_options_init_latency)                                   \
    X(kiln_executor_options, kiln_executor_options_init_throughput)                                \
    X(kiln_loop_options, kiln_loop_options_init)                                                   \
    X(kiln_pool_options, kiln_pool_options_init)                                                   \
    X(kiln_recurrent, kiln_recurrent_init)                                                         \
    X(kiln_reducer, kiln_reducer_init)                                                             \
    X(kiln_request_options, kiln_request_options_init)                                             \
    X(kiln_resize_options, kiln_resize_options_init)                                               \
    X(kiln_training, kiln_training_init)                                                           \
    X(kiln_window_options, kiln_window_options_init)

#define ASK(type, function)                                                                        \
    static kiln_status ask_##function(void *to, size_t size)                                       \
    {                                                                                              \
        (function)(to, size);                                                                      \
        return KILN_OK;                                                                            \
    }
INITIALISERS(ASK)

static const struct filled {
    const char *name;
    size_t own;
    kiln_status (*ask)(void *to, size_t size);
    bool sized; /* begins with a size, which is the one that is told */
} filled[] = {
    {"kiln_batch_cost", sizeof(kiln_batch_cost), ask_cost, false},
    {"kiln_cache_stats", sizeof(kiln_cache_stats), ask_cache, false},
    {"kiln_device_info of a context", sizeof(kiln_device_info), ask_context_device, false},
    {"kiln_context_stats", sizeof(kiln_context_stats), ask_stats, false},
    {"kiln_tunable", sizeof(kiln_tunable), ask_tunable, false},
    {"kiln_device_info", sizeof(kiln_device_info), ask_device, false},
    {"kiln_executor_stats", sizeof(kiln_executor_stats), ask_executor, false},
    {"kiln_executor_context_stats", sizeof(kiln_executor_context_stats), ask_executor_context,
     false},
    {"kiln_model", sizeof(kiln_model), ask_model, true},
    {"kiln_optimizer_options", sizeof(kiln_optimizer_options), ask_optimizer, true},
#define ROW(type, function) {#function, sizeof(type), ask_##function, true},
    INITIALISERS(ROW)
#undef ROW
};
enum { FILLED = sizeof filled / sizeof *filled };

static void open_all(void)
{
    static float out;
    const kiln_executor_options options = served_options(8, 1, 1000);
    context = open_context();
    batch = kiln_batch_create(context);
    kiln_read(batch, kiln_neg(batch, kiln_fill(batch, KILN_F32, 0, NULL, 2)), &out, sizeof out);
    run_batch(batch);
    expect_ok(kiln_context_sync_cache(context));
    executor = served_create(context, &options);
}

static void close_all(void)
{
    kiln_executor_release(executor);
    kiln_batch_release(batch);
    close_context(context);
}

static void expect_filled(const struct filled *row, const unsigned char *whole, size_t size)
{
    static unsigned char room[MOST];
    const size_t common = size < row->own ? size : row->own, first = row->sized ? sizeof size : 0;
    memset(room, GUARD, sizeof room);
    expect_ok(row->ask(room, size));
    cr_expect(size < first || !memcmp(room + first, whole + first, common - first),
              "%s: other content in %zu bytes", row->name, size);
    if (row->sized)
        cr_expect(!memcmp(room, &size, sizeof size), "%s: another size than told", row->name);
    for (size_t i = common; i < sizeof room; i++)
        cr_assert_eq(room[i], i < size ? 0 : GUARD, "%s: byte %zu of %zu", row->name, i, size);
}

Test(structures, are_filled_as_far_as_the_caller_has_them)
{
    static unsigned char whole[MOST];
    open_all();
    for (size_t i = 0; i < FILLED; i++) {
        const struct filled *row = &filled[i];
        memset(whole, GUARD, sizeof whole);
        expect_ok(row->ask(whole, row->own));
        for (size_t size = 8; size < row->own; size += size < 512 ? 8 : 512)
            expect_filled(row, whole, size);
        expect_filled(row, whole, row->own);
        expect_filled(row, whole, row->own + 8);
        expect_filled(row, whole, row->own + LONGER);
    }
    close_all();
}

/* An element of a list is as large as the caller has it. */
Test(structures, are_listed_in_the_callers_form)
{
    char path[512];
    const char *names[] = {"a", "b"};
    const size_t dims[] = {3};
    kiln_buffer *buffers[2];
    temporary_path(path, "structures");
    context = open_context();
    for (size_t i = 0; i < 2; i++)
        expect_ok(kiln_buffer_create(context, KILN_I32, 1, dims, &buffers[i]));
    expect_ok(kiln_save(path, 2, names, buffers));
    for (size_t size = offsetof(kiln_saved, rank); size <= sizeof(kiln_saved) + LONGER; size += 8) {
        kiln_saved *list, own;
        size_t count;
        expect_ok((kiln_saved_list)(path, &list, &count, size));
        cr_assert_eq(count, 2u);
        for (size_t i = 0; i < count; i++) {
            const char *at = (const char *)list + i * size;
            memset(&own, 0, sizeof own);
            memcpy(&own, at, size < sizeof own ? size : sizeof own);
            cr_expect_str_eq(own.name, names[i]);
            cr_expect_str_eq(own.stored, "I32");
            cr_expect_eq(own.type, KILN_I32);
            cr_expect(size < offsetof(kiln_saved, dims) + 8 || own.dims[0] == 3);
            for (size_t k = sizeof own; k < size; k++)
                cr_expect_eq(at[k], 0);
        }
        kiln_free(list);
    }
    for (size_t i = 0; i < 2; i++)
        kiln_buffer_release(buffers[i]);
    close_context(context);
    unlink(path);
}

/* ---- those that are read ---- */

/* A structure of the caller's, which may be longer than the library's. */
struct given {
    union {
        size_t size;
        unsigned char bytes[512];
    };
};

static kiln_tensor record(size_t rank, const size_t *dims)
{
    return kiln_fill(batch, KILN_F32, rank, dims, 1);
}

/* What the recorded call says of them. */
static kiln_status say(kiln_tensor tensor)
{
    (void)tensor;
    kiln_status status = kiln_batch_status(batch);
    expect_ok(kiln_batch_reset(batch));
    return status;
}

static kiln_status give_attention(const void *given)
{
    const size_t dims[] = {2, 4};
    kiln_tensor x = record(2, dims);
    return say(kiln_attention(batch, x, x, x, (kiln_tensor){0}, given));
}

static kiln_status give_conv(const void *given)
{
    return say(kiln_conv(batch, record(kiln_shape(1, 5, 2)), record(kiln_shape(3, 2, 2)), given));
}

static kiln_status give_conv_transposed(const void *given)
{
    return say(kiln_conv_transposed(batch, record(kiln_shape(1, 5, 2)), record(kiln_shape(3, 2, 2)),
                                    given));
}

static kiln_status give_pool(const void *given)
{
    return say(kiln_max_pool(batch, record(kiln_shape(1, 5, 2)), kiln_dims(2), given, NULL));
}

static kiln_status give_window(const void *given)
{
    return say(
        kiln_conv2d(batch, record(kiln_shape(1, 5, 5, 2)), record(kiln_shape(3, 3, 2, 2)), given));
}

static kiln_status give_window_of_pool(const void *given)
{
    return say(kiln_avg_pool2d(batch, record(kiln_shape(1, 5, 5, 2)), kiln_dims(2, 2), given));
}

static kiln_status give_cross_entropy(const void *given)
{
    kiln_tensor labels = kiln_fill(batch, KILN_I32, kiln_shape(3), 1);
    return say(kiln_cross_entropy_with(batch, record(kiln_shape(3, 4)), labels, given));
}

static kiln_status give_resize(const void *given)
{
    return say(kiln_resize(batch, record(kiln_shape(3)), kiln_dims(6), given));
}

static kiln_status give_recurrent(const void *given)
{
    kiln_recurrent *layer = (kiln_recurrent *)(uintptr_t)given;
    layer->x = record(kiln_shape(2, 1, 3));
    layer->w = record(kiln_shape(1, 4, 3));
    layer->r = record(kiln_shape(1, 4, 4));
    return say(kiln_rnn(batch, layer, NULL));
}

static kiln_status give_own_kernel(const void *given)
{
    static const kiln_custom_tensor y = {.name = "y", .type = KILN_F32};
    kiln_custom_kernel *kernel = (kiln_custom_kernel *)(uintptr_t)given;
    kiln_tensor result;
    kernel->name = "own";
    kernel->source = "";
    kernel->outputs = &y;
    kernel->output_count = 1;
    kiln_custom(batch, kernel, NULL, &result);
    return say(result);
}

static kiln_status give_loop(const void *given)
{
    kiln_loop_options *options = (kiln_loop_options *)(uintptr_t)given;
    const kiln_tensor state = kiln_loop_state(batch, record(kiln_shape(1, 2)));
    kiln_tensor last;
    options->steps = options->state_count = 1;
    options->states = options->next = &state;
    kiln_loop(batch, options, &last, NULL);
    return say(last);
}

static kiln_status give_context(const void *given)
{
    kiln_context *made;
    kiln_status status = kiln_context_create(given, &made);
    kiln_context_release(made);
    return status;
}

static kiln_status give_optimizer(const void *given)
{
    kiln_optimizer *made;
    kiln_status status = kiln_optimizer_create(context, given, 0, NULL, &made);
    kiln_optimizer_release(made);
    return status;
}

static kiln_status give_executor(const void *given)
{
    kiln_executor *made;
    kiln_status status = kiln_executor_create(&context, 1, &served_model, given, &made);
    kiln_executor_release(made);
    return status;
}

static kiln_status give_request(const void *given)
{
    static float x[SERVED_WIDTH], y;
    const kiln_input in = {x, sizeof x, KILN_F32};
    const kiln_output out = {&y, sizeof y, KILN_F32};
    return kiln_executor_run(executor, &in, &out, 1, given);
}

static kiln_status give_model(const void *given)
{
    kiln_model *model = (kiln_model *)(uintptr_t)given;
    kiln_executor *made;
    model->record = served_model.record;
    model->inputs = served_model.inputs;
    model->input_count = model->output_count = 1;
    kiln_status status = kiln_executor_create(&context, 1, model, NULL, &made);
    kiln_executor_release(made);
    return status;
}

static kiln_status give_gradient(const void *given)
{
    kiln_model *model = (kiln_model *)(uintptr_t)given, *made;
    const size_t by = 0;
    model->record = served_model.record;
    model->inputs = served_model.inputs;
    model->input_count = model->output_count = 1;
    kiln_status status = kiln_model_create_gradient(model, 1, &by, &made);
    kiln_free(made);
    return status;
}

static kiln_status derive(kiln_batch *own, size_t number, kiln_tensor *gradients, void *user)
{
    (void)number;
    (void)user;
    gradients[0] = kiln_fill(own, KILN_F32, 0, NULL, 1);
    return KILN_OK;
}

static kiln_status update(kiln_batch *own, size_t number, const kiln_tensor *gradients, void *user)
{
    static float out;
    (void)number;
    (void)user;
    return kiln_read(own, gradients[0], &out, sizeof out);
}

static kiln_status give_training(const void *given)
{
    kiln_training *training = (kiln_training *)(uintptr_t)given;
    kiln_parallel *made;
    training->record = derive;
    training->update = update;
    training->gradient_count = 1;
    kiln_status status = kiln_parallel_create(&context, 1, training, &made);
    kiln_parallel_release(made);
    return status;
}

static const kiln_attention_options attention = KILN_ATTENTION_OPTIONS_INIT;
static const kiln_conv_options conv = KILN_CONV_OPTIONS_INIT;
static const kiln_pool_options pool = KILN_POOL_OPTIONS_INIT;
static const kiln_window_options window = KILN_WINDOW_OPTIONS_INIT;
static const kiln_cross_entropy_options cross_entropy = KILN_CROSS_ENTROPY_INIT;
static const kiln_resize_options resize = KILN_RESIZE_OPTIONS_INIT;
static const kiln_recurrent recurrent = KILN_RECURRENT_INIT;
static const kiln_custom_kernel own_kernel = KILN_CUSTOM_KERNEL_INIT;
static const kiln_loop_options loop = KILN_LOOP_INIT;
static const kiln_context_options usual = KILN_CONTEXT_OPTIONS_INIT;
static const kiln_optimizer_options sgd = KILN_SGD_INIT;
static const kiln_executor_options gathering = KILN_EXECUTOR_LATENCY_INIT;
static const kiln_request_options request = KILN_REQUEST_OPTIONS_INIT;
static const kiln_model model = KILN_MODEL_INIT;
static const kiln_training training = KILN_TRAINING_INIT;

/* `cut`: a size at which nothing is lacking. */
static const struct read {
    const char *name, *argument;
    const void *made;
    size_t own, cut;
    kiln_status (*give)(const void *given);
} reads[] = {
#define ROW(made, first_left, give, argument)                                                      \
    {                                                                                              \
#give, argument, &(made), sizeof(made), offsetof(__typeof__(made), first_left), give       \
    }
    ROW(attention, causal, give_attention, "options"),
    ROW(conv, stride, give_conv, "options"),
    ROW(conv, groups, give_conv_transposed, "options"),
    ROW(pool, stride, give_pool, "options"),
    ROW(window, groups, give_window, "options"),
    ROW(window, dilation, give_window_of_pool, "options"),
    ROW(cross_entropy, class_weights, give_cross_entropy, "options"),
    ROW(resize, scales, give_resize, "options"),
    ROW(recurrent, bias, give_recurrent, "layer"),
    ROW(own_kernel, host, give_own_kernel, "kernel"),
    ROW(loop, step, give_loop, "options"),
    ROW(usual, cache_dir, give_context, "options"),
    ROW(sgd, weight_decay, give_optimizer, "options"),
    ROW(gathering, max_wait_us, give_executor, "options"),
    ROW(request, deadline_us, give_request, "options"),
    ROW(model, row_size, give_model, "model"),
    ROW(model, row_size, give_gradient, "of"),
    ROW(training, shares, give_training, "training"),
#undef ROW
};
enum { READS = sizeof reads / sizeof *reads };

static struct given given_of(const struct read *row, size_t size, int rest)
{
    struct given given;
    memset(&given, rest, sizeof given);
    memcpy(&given, row->made, size < row->own ? size : row->own);
    given.size = size;
    return given;
}

Test(structures, may_be_shorter_than_the_librarys)
{
    open_all();
    for (size_t i = 0; i < READS; i++) {
        struct given given = given_of(&reads[i], reads[i].cut, GUARD);
        kiln_status status = reads[i].give(&given);
        cr_expect_eq(status, KILN_OK, "%s: %s", reads[i].name, kiln_last_error());
    }
    close_all();
}

Test(structures, may_be_longer_where_the_rest_is_zero)
{
    char sentence[160];
    open_all();
    for (size_t i = 0; i < READS; i++) {
        struct given given = given_of(&reads[i], reads[i].own + LONGER, 0);
        cr_expect_eq(reads[i].give(&given), KILN_OK, "%s: %s", reads[i].name, kiln_last_error());
        given = given_of(&reads[i], reads[i].own + LONGER, 0);
        given.bytes[reads[i].own + LONGER - 1] = 1;
        snprintf(sentence, sizeof sentence, "%s has fields that this version of kiln has not",
                 reads[i].argument);
        cr_expect_eq(reads[i].give(&given), KILN_UNSUPPORTED, "%s", reads[i].name);
        cr_expect(strstr(kiln_last_error(), sentence), "%s: %s", reads[i].name, kiln_last_error());
    }
    close_all();
}

Test(structures, have_no_size_that_none_has)
{
    static const size_t wrong[] = {0, 1, 7, 12, 4104, SIZE_MAX, SIZE_MAX - 7};
    char sentence[80];
    open_all();
    for (size_t i = 0; i < READS; i++)
        for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
            struct given given = given_of(&reads[i], reads[i].own, 0);
            given.size = wrong[k];
            snprintf(sentence, sizeof sentence, "%s->size is %zu; start from KILN_",
                     reads[i].argument, wrong[k]);
            cr_expect_eq(reads[i].give(&given), KILN_INVALID_ARGUMENT, "%s", reads[i].name);
            cr_expect(strstr(kiln_last_error(), sentence), "%s: %s", reads[i].name,
                      kiln_last_error());
        }
    close_all();
}

static kiln_status add(kiln_batch *own, size_t number, size_t rows, const kiln_tensor *inputs,
                       kiln_tensor *outputs, void *user)
{
    (void)number;
    (void)rows;
    (void)user;
    outputs[0] = kiln_add(own, inputs[0], inputs[1]);
    return KILN_OK;
}

/* Rows of a model stand in an array: the model says how far apart they are. */
Test(structures, rows_of_a_model_may_be_longer)
{
    struct {
        kiln_row row;
        size_t more;
    } rows[2] = {{.row = {.type = KILN_F32, .rank = 1, .dims = {3}}},
                 {.row = {.type = KILN_F32, .rank = 1, .dims = {3}}}};
    float x[3] = {1, 2, 3}, y[3] = {10, 20, 30}, sums[3];
    const kiln_input in[] = {{x, sizeof x, KILN_F32}, {y, sizeof y, KILN_F32}};
    const kiln_output out = {sums, sizeof sums, KILN_F32};
    kiln_model longer = KILN_MODEL_INIT;
    longer.record = add;
    longer.inputs = (const kiln_row *)rows;
    longer.input_count = 2;
    longer.output_count = 1;
    longer.row_size = sizeof *rows;
    context = open_context();
    expect_ok(kiln_executor_create(&context, 1, &longer, NULL, &executor));
    expect_ok(kiln_executor_run(executor, in, &out, 1, NULL));
    for (size_t i = 0; i < 3; i++)
        cr_expect_eq(sums[i], 11.0f * (float)(i + 1));
    kiln_executor_release(executor);
    rows[1].more = 1;
    expect_error(kiln_executor_create(&context, 1, &longer, NULL, &executor), KILN_UNSUPPORTED,
                 "kiln_executor_create: row of the model has fields that this version of kiln has "
                 "not, and they are not 0");
    close_context(context);
}
