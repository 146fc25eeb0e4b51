/* SPDX-License-Identifier: Apache-2.0 */
/* Optimisers record their step as ordinary operations over buffers that they import and export:
 * fusion makes one kernel per parameter of it, and planning has it update in place. */
#include <kiln/training.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/buffer.h>
#include <kiln/elementwise.h>
#include <kiln/operations.h>

#include "record/batch.h"
#include "record/call.h"
#include "train/gradients.h"
#include "util/structure.h"
#include "util/text.h"

/* The state buffers: scalars first, then `moments` for each parameter, of its shape. One that is
 * stored in a narrower type than f32 has one more: what rounding took from it. Both together are
 * the parameter in f32, exactly, and zeros say that nothing was taken yet. */
enum { RATE, CORRECTION_1, CORRECTION_2, MOST_SCALARS };

struct kiln_optimizer {
    kiln_context *context; /* held by the rate's buffer */
    kiln_optimizer_options options;
    size_t n;
    kiln_buffer **parameters; /* retained */
    kiln_buffer **state;
    size_t scalars, moments; /* of the method */
};

/* ---- making ---- */

static bool is_fraction(double value)
{
    return value >= 0 && value < 1;
}

static bool is_amount(double value)
{
    return value >= 0 && value < INFINITY;
}

static const char initialisers[] = "KILN_SGD_INIT, KILN_ADAM_INIT or KILN_ADAMW_INIT";

static kiln_status check_options(const kiln_optimizer_options *options)
{
    const char *call = "kiln_optimizer_create", *amount = "finite and 0 or more",
               *fraction = "from 0 to below 1";
    const struct {
        const char *name;
        double value;
        bool good;
        const char *range;
    } checks[] = {
#define CHECK(member, good, range) {#member, (double)options->member, good(options->member), range}
        CHECK(learning_rate, is_amount, amount),
        CHECK(weight_decay, is_amount, amount),
        CHECK(momentum, is_fraction, fraction),
        {"nesterov", options->nesterov, !options->nesterov || options->momentum > 0,
         "0 without a momentum"},
        CHECK(beta1, is_fraction, fraction),
        CHECK(beta2, is_fraction, fraction),
        CHECK(epsilon, is_amount, amount),
#undef CHECK
    };
    if (options->method < KILN_SGD || options->method > KILN_ADAMW)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: options have method %d; start from %s",
                          call, (int)options->method, initialisers);
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
        if (!checks[i].good)
            return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: option %s is %g, and must be %s",
                              call, checks[i].name, checks[i].value, checks[i].range);
    return KILN_OK;
}

static kiln_status check_parameters(const kiln_context *context, size_t n,
                                    kiln_buffer *const *parameters)
{
    const char *call = "kiln_optimizer_create";
    for (size_t i = 0; i < n; i++) {
        const kiln_buffer *buffer = parameters[i];
        if (!buffer)
            return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: parameter %zu is NULL", call, i);
        if (buffer->context != context)
            return kiln__fail(NULL, KILN_INVALID_ARGUMENT,
                              "%s: parameter %zu is of another context", call, i);
        if (!kiln__type_row(buffer->type)->floating || kiln__type_is_block(buffer->type))
            return kiln__fail(
                NULL, KILN_TYPE_MISMATCH,
                "%s: parameter %zu is %s, and only floating types whose elements lie apart "
                "are taken",
                call, i, kiln_type_name(buffer->type));
        for (size_t k = 0; k < i; k++)
            if (parameters[k] == buffer)
                return kiln__fail(NULL, KILN_INVALID_ARGUMENT,
                                  "%s: parameters %zu and %zu are the same buffer", call, k, i);
    }
    return KILN_OK;
}

static kiln_status read_options(const kiln_optimizer_options *options, kiln_optimizer_options *own)
{
    return KILN__STRUCTURE_READ(NULL, "kiln_optimizer_create", options, initialisers, own);
}

static kiln_status check_creation(const kiln_context *context,
                                  const kiln_optimizer_options *options, size_t n,
                                  kiln_buffer *const *parameters, kiln_optimizer_options *own)
{
    const char *call = "kiln_optimizer_create";
    if (!context || !options || (n && !parameters))
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: %s is NULL", call,
                          !context   ? "context"
                          : !options ? "options"
                                     : "parameters");
    kiln_status status = read_options(options, own);
    if (!status)
        status = check_options(own);
    return status ? status : check_parameters(context, n, parameters);
}

static bool is_rounded(const kiln_buffer *parameter)
{
    return parameter->type != KILN_F32;
}

static size_t count_own(const kiln_optimizer *optimizer, size_t i)
{
    return optimizer->moments + is_rounded(optimizer->parameters[i]);
}

static size_t count_state(const kiln_optimizer *optimizer)
{
    size_t count = optimizer->scalars;
    for (size_t i = 0; i < optimizer->n; i++)
        count += count_own(optimizer, i);
    return count;
}

static kiln_status add_buffer(kiln_optimizer *optimizer, size_t place,
                              const struct kiln__shape *shape)
{
    kiln_status status = kiln_buffer_create(optimizer->context, KILN_F32, shape->rank, shape->dims,
                                            &optimizer->state[place]);
    return status ? status : kiln__buffer_clear(optimizer->state[place], "kiln_optimizer_create");
}

static void optimizer_hold(kiln_optimizer *optimizer, kiln_buffer *const *parameters)
{
    for (size_t i = 0; optimizer->parameters && i < optimizer->n; i++) {
        kiln_buffer_retain(parameters[i]);
        optimizer->parameters[i] = parameters[i];
    }
}

static kiln_status optimizer_fill(kiln_optimizer *optimizer)
{
    const struct kiln__shape scalar = {0};
    kiln_status status = KILN_OK;
    size_t place = 0;
    for (; place < optimizer->scalars && !status; place++)
        status = add_buffer(optimizer, place, &scalar);
    for (size_t i = 0; i < optimizer->n; i++)
        for (size_t k = 0; k < count_own(optimizer, i) && !status; k++)
            status = add_buffer(optimizer, place++, &optimizer->parameters[i]->shape);
    return status ? status
                  : kiln_optimizer_set_learning_rate(optimizer, optimizer->options.learning_rate);
}

kiln_status kiln_optimizer_create(kiln_context *context, const kiln_optimizer_options *options,
                                  size_t n, kiln_buffer *const *parameters, kiln_optimizer **result)
{
    if (!result)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: optimizer is NULL", __func__);
    *result = NULL;
    kiln_optimizer_options own;
    kiln_status status = check_creation(context, options, n, parameters, &own);
    if (status)
        return status;
    bool adam = own.method != KILN_SGD;
    kiln_optimizer *optimizer = calloc(1, sizeof *optimizer);
    if (optimizer) {
        *optimizer = (kiln_optimizer){.context = context, .options = own, .n = n};
        optimizer->scalars = adam ? MOST_SCALARS : RATE + 1;
        optimizer->moments = adam ? 2 : own.momentum > 0 ? 1 : 0;
        optimizer->parameters = calloc(n + 1, sizeof *optimizer->parameters);
        optimizer_hold(optimizer, parameters);
        if (optimizer->parameters)
            optimizer->state = calloc(count_state(optimizer), sizeof *optimizer->state);
    }
    if (!optimizer || !optimizer->parameters || !optimizer->state)
        status = kiln__fail(NULL, KILN_OUT_OF_HOST_MEMORY, "%s: no memory", __func__);
    else
        status = optimizer_fill(optimizer);
    if (status)
        kiln_optimizer_release(optimizer);
    else
        *result = optimizer;
    return status;
}

void kiln_optimizer_release(kiln_optimizer *optimizer)
{
    if (!optimizer)
        return;
    for (size_t i = 0; optimizer->state && i < count_state(optimizer); i++)
        kiln_buffer_release(optimizer->state[i]);
    for (size_t i = 0; optimizer->parameters && i < optimizer->n; i++)
        kiln_buffer_release(optimizer->parameters[i]);
    free(optimizer->parameters);
    free(optimizer->state);
    free(optimizer);
}

kiln_status kiln_optimizer_set_learning_rate(kiln_optimizer *optimizer, double rate)
{
    KILN__RETURN_IF_NULL(NULL, __func__, optimizer);
    if (!is_amount(rate))
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: %g is no learning rate", __func__,
                          rate);
    float value = (float)rate;
    return kiln_buffer_write(optimizer->state[RATE], 0, &value, sizeof value);
}

kiln_buffer *const *kiln_optimizer_state(const kiln_optimizer *optimizer, size_t *count)
{
    if (count)
        *count = optimizer ? count_state(optimizer) : 0;
    return optimizer ? optimizer->state : NULL;
}

/* ---- names ---- */

static const char *const scalar_names[MOST_SCALARS] = {"learning_rate", "correction_1",
                                                       "correction_2"};

/* Of a parameter's buffer k. */
static const char *own_name(const kiln_optimizer *optimizer, size_t k)
{
    if (k == optimizer->moments)
        return "remainder";
    return optimizer->moments == 1 ? "momentum" : k ? "mean_square" : "mean";
}

/* All names, one after another, each with its end. */
static void print_names(const kiln_optimizer *optimizer, const char *const *parameters,
                        struct kiln__text *words)
{
    for (size_t i = 0; i < optimizer->scalars; i++) {
        kiln__text_add(words, "optimizer.%s", scalar_names[i]);
        kiln__text_add_bytes(words, "", 1);
    }
    for (size_t i = 0; i < optimizer->n; i++)
        for (size_t k = 0; k < count_own(optimizer, i); k++) {
            kiln__text_add(words, "%s.optimizer.%s", parameters[i], own_name(optimizer, k));
            kiln__text_add_bytes(words, "", 1);
        }
}

kiln_status kiln_optimizer_state_names(const kiln_optimizer *optimizer,
                                       const char *const *parameters, const char ***names)
{
    struct kiln__text words = {0};
    if (names)
        *names = NULL;
    if (!optimizer || !names || (optimizer->n && !parameters))
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: %s is NULL", __func__,
                          !optimizer ? "optimizer"
                          : !names   ? "names"
                                     : "parameters");
    for (size_t i = 0; i < optimizer->n; i++)
        if (!parameters[i])
            return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: parameters[%zu] is NULL", __func__,
                              i);
    print_names(optimizer, parameters, &words);
    size_t count = count_state(optimizer);
    const char **list =
        words.failed || !words.data ? NULL : malloc(count * sizeof *list + words.length);
    if (list) {
        char *at = memcpy(list + count, words.data, words.length);
        for (size_t i = 0; i < count; i++, at += strlen(at) + 1)
            list[i] = at;
    }
    kiln__text_free(&words);
    *names = list;
    return list ? KILN_OK : kiln__fail(NULL, KILN_OUT_OF_HOST_MEMORY, "%s: no memory", __func__);
}

/* ---- one step ---- */

struct step {
    kiln_batch *batch;
    const kiln_optimizer *optimizer;
    kiln_tensor rate;   /* Adam: over the mean's correction */
    kiln_tensor spread; /* Adam: 1 over the root of the mean square's correction */
};

static kiln_tensor constant(const struct step *step, double value)
{
    return kiln_constant(step->batch, KILN_F32, value);
}

/* a + factor * b */
static kiln_tensor add_scaled(const struct step *step, kiln_tensor a, double factor, kiln_tensor b)
{
    return kiln_add(step->batch, a, kiln_scale(step->batch, b, factor));
}

/* A running mean takes up `value`. As 1 - beta is rounded and not beta, what it converges to is
 * exact; as both are scaled before they are subtracted, no gradient is too large. */
static kiln_tensor take_up(const struct step *step, kiln_tensor mean, double beta,
                           kiln_tensor value)
{
    kiln_tensor difference = kiln_sub(step->batch, kiln_scale(step->batch, value, 1 - beta),
                                      kiln_scale(step->batch, mean, 1 - beta));
    return kiln_add(step->batch, mean, difference);
}

/* A running mean of squares takes up that of `value`, which may leave f32 where its share of the
 * mean does not. The mean of ones that corrects it is kept in the same way, and so is off by the
 * same factor. */
static kiln_tensor take_up_square(const struct step *step, kiln_tensor mean, double beta,
                                  kiln_tensor value)
{
    kiln_tensor share = kiln_mul(step->batch, kiln_scale(step->batch, value, 1 - beta), value);
    return add_scaled(step, share, beta, mean);
}

/* The next content of a state buffer. */
static void optimizer_remember(const struct step *step, size_t place, kiln_tensor value)
{
    kiln_export(step->batch, value, step->optimizer->state[place]);
}

static kiln_tensor optimizer_recall(const struct step *step, size_t place)
{
    return kiln_import(step->batch, step->optimizer->state[place]);
}

/* Means that start from 0 are too small by a factor of 1 - beta^t after t steps. That is the mean
 * of t ones, kept in the same way. */
static kiln_tensor correct(const struct step *step, size_t place, double beta,
                           kiln_tensor (*take)(const struct step *, kiln_tensor, double,
                                               kiln_tensor))
{
    kiln_tensor mean = take(step, optimizer_recall(step, place), beta, constant(step, 1));
    optimizer_remember(step, place, mean);
    return mean;
}

static void begin_step(struct step *step)
{
    const kiln_optimizer_options *options = &step->optimizer->options;
    step->rate = optimizer_recall(step, RATE);
    if (options->method == KILN_SGD)
        return;
    kiln_tensor first = correct(step, CORRECTION_1, options->beta1, take_up);
    kiln_tensor second = correct(step, CORRECTION_2, options->beta2, take_up_square);
    step->rate = kiln_div(step->batch, step->rate, first);
    step->spread = kiln_rsqrt(step->batch, second);
}

/* Each returns what the parameter is to be lessened by. `state` is the parameter's first buffer. */
typedef kiln_tensor move(const struct step *step, kiln_tensor gradient, size_t state);

static kiln_tensor move_sgd(const struct step *step, kiln_tensor gradient, size_t state)
{
    const kiln_optimizer_options *options = &step->optimizer->options;
    kiln_tensor direction = gradient;
    if (options->momentum > 0) {
        direction = add_scaled(step, gradient, options->momentum, optimizer_recall(step, state));
        optimizer_remember(step, state, direction);
    }
    if (options->nesterov)
        direction = add_scaled(step, gradient, options->momentum, direction);
    return kiln_mul(step->batch, step->rate, direction);
}

static kiln_tensor move_adam(const struct step *step, kiln_tensor gradient, size_t state)
{
    const kiln_optimizer_options *options = &step->optimizer->options;
    kiln_batch *batch = step->batch;
    kiln_tensor mean = take_up(step, optimizer_recall(step, state), options->beta1, gradient);
    kiln_tensor square =
        take_up_square(step, optimizer_recall(step, state + 1), options->beta2, gradient);
    optimizer_remember(step, state, mean);
    optimizer_remember(step, state + 1, square);
    kiln_tensor root = kiln_mul(batch, kiln_sqrt(batch, square), step->spread);
    return kiln_mul(batch, step->rate,
                    kiln_div(batch, mean, kiln_add(batch, root, constant(step, options->epsilon))));
}

/* Leave the next value of parameter i, whose remainder is in buffer `place` if it is rounded. */
static void optimizer_leave(const struct step *step, size_t i, kiln_tensor value, size_t place)
{
    kiln_buffer *parameter = step->optimizer->parameters[i];
    kiln_tensor stored = value;
    if (is_rounded(parameter)) {
        const struct kiln__type_row *row = kiln__type_row(parameter->type);
        kiln_tensor within = kiln_clamp(step->batch, value, row->lowest, row->highest);
        stored = kiln_cast(step->batch, within, parameter->type);
        optimizer_remember(step, place, kiln_sub(step->batch, value, stored));
    }
    kiln_export(step->batch, stored, parameter);
}

/* `state` is the parameter's first buffer. */
static void update(const struct step *step, size_t i, kiln_tensor gradient, size_t state)
{
    static move *const moves[] = {
        [KILN_SGD] = move_sgd, [KILN_ADAM] = move_adam, [KILN_ADAMW] = move_adam};
    const kiln_optimizer *optimizer = step->optimizer;
    const kiln_optimizer_options *options = &optimizer->options;
    const size_t remainder = state + optimizer->moments;
    kiln_batch *batch = step->batch;
    kiln_tensor old = kiln_import(batch, optimizer->parameters[i]);
    if (is_rounded(optimizer->parameters[i]))
        old = kiln_add(batch, old, optimizer_recall(step, remainder));
    kiln_tensor kept = old;
    if (options->weight_decay > 0 && options->method != KILN_ADAMW)
        gradient = add_scaled(step, gradient, options->weight_decay, old);
    kiln_tensor amount = moves[options->method](step, gradient, state);
    if (options->weight_decay > 0 && options->method == KILN_ADAMW) {
        kiln_tensor decay = kiln_scale(batch, optimizer_recall(step, RATE), options->weight_decay);
        kept = kiln_sub(batch, old, kiln_mul(batch, decay, old));
    }
    optimizer_leave(step, i, kiln_sub(batch, kept, amount), remainder);
}

/* A second step would start from the old parameters, too, and undo the first. */
static bool check_step(kiln_batch *batch, const kiln_optimizer *optimizer,
                       const kiln_tensor *gradients, const char *call)
{
    for (size_t i = 0; i < optimizer->n; i++) {
        const struct kiln__shape *shape = &optimizer->parameters[i]->shape;
        const struct kiln__node *node = kiln__training_gradient(batch, gradients, i, call);
        if (node && !kiln__shape_equal(&node->shape, shape))
            kiln__fail(&batch->error, KILN_SHAPE_MISMATCH,
                       "%s: gradients[%zu] is %s and its parameter is %s", call, i,
                       kiln__shape_text(&node->shape).text, kiln__shape_text(shape).text);
        else if (node && kiln__batch_exports_to(batch, optimizer->parameters[i]))
            kiln__fail(&batch->error, KILN_INVALID_ARGUMENT,
                       "%s: the batch leaves something in parameter %zu already", call, i);
        if (batch->error.status)
            return false;
    }
    return true;
}

kiln_status kiln_optimizer_step(kiln_batch *batch, kiln_optimizer *optimizer,
                                const kiln_tensor *gradients)
{
    KILN__CALL(batch);
    struct step step = {.batch = batch, .optimizer = optimizer};
    if (!kiln__batch_is_open(batch, __func__))
        return batch ? batch->error.status : KILN_INVALID_ARGUMENT;
    if (!optimizer || (optimizer->n && !gradients))
        return kiln__fail(&batch->error, KILN_INVALID_ARGUMENT, "%s: %s is NULL", __func__,
                          optimizer ? "gradients" : "optimizer");
    if (optimizer->context != batch->context)
        return kiln__fail(&batch->error, KILN_INVALID_ARGUMENT,
                          "%s: the optimizer is of another context", __func__);
    if (!check_step(batch, optimizer, gradients, __func__))
        return batch->error.status;
    begin_step(&step);
    size_t state = optimizer->scalars;
    for (size_t i = 0; i < optimizer->n; i++) {
        update(&step, i, gradients[i], state);
        state += count_own(optimizer, i);
    }
    return batch->error.status;
}
