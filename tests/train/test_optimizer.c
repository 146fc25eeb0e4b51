/* SPDX-License-Identifier: Apache-2.0 */
/* Optimisers against PyTorch 1.13: torch.optim's SGD, Adam and AdamW in float64, three steps with
 * three gradients, and torch.nn.utils.clip_grad_norm_. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/context.h"
#include "../support/layer.h"

#define N 5
#define STEPS 3

static const float start[N] = {1, -2, .5, 0, 3};
static const float gradients[STEPS][N] = {
    {.1F, -.2F, .3F, 0, -1}, {-.4F, .05F, 1e-3F, 2, .7F}, {.25F, 1.5F, -.6F, 1e-8F, -3}};

struct scene {
    kiln_context *context;
    kiln_buffer *parameter;
    kiln_optimizer *optimizer;
    kiln_batch *batch;
    kiln_tensor gradient;
};

static struct scene begin(const kiln_optimizer_options *options)
{
    struct scene s = {.context = open_context()};
    s.parameter = make_buffer(s.context, N, start);
    expect_ok(kiln_optimizer_create(s.context, options, 1, &s.parameter, &s.optimizer));
    s.batch = kiln_batch_create(s.context);
    s.gradient = kiln_upload(s.batch, KILN_F32, 1, (size_t[]){N}, gradients[0]);
    expect_ok(kiln_optimizer_step(s.batch, s.optimizer, &s.gradient));
    return s;
}

static void end(struct scene *s)
{
    kiln_optimizer_release(s->optimizer);
    kiln_buffer_release(s->parameter);
    kiln_batch_release(s->batch);
    close_context(s->context);
}

static void run_step(struct scene *s, int step)
{
    expect_ok(kiln_rebind_upload(s->batch, s->gradient, gradients[step]));
    run_batch(s->batch);
}

static void expect_parameter(struct scene *s, const double *wanted)
{
    float found[N];
    expect_ok(kiln_buffer_read(s->parameter, 0, found, sizeof found));
    for (int i = 0; i < N; i++)
        cr_expect_float_eq(found[i], wanted[i], 1e-6 * (1 + fabs(wanted[i])), "%d: %.9g, not %.9g",
                           i, found[i], wanted[i]);
}

/* ---- known answers ---- */

static void expect_path(const kiln_optimizer_options *options, const double *wanted)
{
    struct scene s = begin(options);
    kiln_context_stats planned = {0};
    for (int step = 0; step < STEPS; step++) {
        run_step(&s, step);
        if (step == 0)
            planned = stats_of(s.context);
    }
    expect_parameter(&s, wanted);
    cr_expect_eq(stats_of(s.context).plans_made, planned.plans_made, "planned once");
    end(&s);
}

/* The square of a gradient leaves f32, and its share of the mean of squares does not; beyond, the
 * mean is infinite for good, and the parameter stays. PyTorch 2.1's answers in float32, of steps by
 * 0.1 along 1, 2e19, 1 and 1. */
Test(optimizer, takes_gradients_whose_squares_leave_f32)
{
    static const float along[4] = {1, 2e19F, 1, 1};
    static const double wanted[4] = {0.9, 0.825636, 0.768055, 0.720905};
    const kiln_optimizer_options methods[] = {KILN_ADAM_INIT, KILN_ADAMW_INIT};
    for (int m = 0; m < 2; m++) {
        kiln_optimizer_options options = methods[m];
        options.learning_rate = 0.1;
        options.weight_decay = 0;
        struct scene s = begin(&options);
        for (int step = 0; step < 6; step++) {
            float all[N], found[N];
            for (int i = 0; i < N; i++)
                all[i] = step < 4 ? along[step] : step == 4 ? -3e38F : 3e38F;
            expect_ok(kiln_rebind_upload(s.batch, s.gradient, all));
            run_batch(s.batch);
            expect_ok(kiln_buffer_read(s.parameter, 0, found, sizeof found));
            double moved = found[0] - start[0] + 1, last = wanted[step < 4 ? step : 3];
            cr_expect_float_eq(moved, last, 1e-4, "step %d: %g, not %g", step, moved, last);
        }
        end(&s);
    }
}

Test(optimizer, descends_along_the_gradient)
{
    kiln_optimizer_options options = KILN_SGD_INIT;
    options.learning_rate = 0.1;
    expect_path(&options, (double[]){1.005, -2.135, 0.5299, -0.200000001, 3.33});
}

Test(optimizer, gathers_momentum)
{
    kiln_optimizer_options options = KILN_SGD_INIT;
    options.learning_rate = 0.1;
    options.momentum = 0.9;
    expect_path(&options, (double[]){1.0239, -2.1053, 0.47851, -0.380000001, 3.438});
}

Test(optimizer, looks_ahead_as_nesterov_does_and_decays)
{
    kiln_optimizer_options options = KILN_SGD_INIT;
    options.learning_rate = 0.1;
    options.momentum = 0.9;
    options.nesterov = 1;
    options.weight_decay = 0.01;
    expect_path(&options,
                (double[]){1.01843341, -2.21388758, 0.506850546, -0.541278002, 3.69931829});
}

Test(optimizer, does_as_adam)
{
    kiln_optimizer_options options = KILN_ADAM_INIT;
    options.learning_rate = 0.01;
    expect_path(&options,
                (double[]){0.995979387, -1.99114043, 0.486666407, -0.0131935674, 3.0174925});
}

Test(optimizer, does_as_adam_with_every_option)
{
    kiln_optimizer_options options = KILN_ADAM_INIT;
    options.learning_rate = 0.01;
    options.beta1 = 0.8;
    options.beta2 = 0.95;
    options.epsilon = 1e-3;
    options.weight_decay = 0.1;
    expect_path(&options,
                (double[]){0.98978645, -1.98603337, 0.485708013, -0.0134261746, 3.01267447});
}

Test(optimizer, does_as_adamw)
{
    kiln_optimizer_options options = KILN_ADAMW_INIT;
    options.learning_rate = 0.01;
    expect_path(&options,
                (double[]){0.995680858, -1.99054296, 0.486519095, -0.0131928232, 3.01659047});
    options.learning_rate = 0.05;
    options.weight_decay = 0.3;
    expect_path(&options,
                (double[]){0.936637685, -1.86888627, 0.413161, -0.0654097343, 2.95289716});
}

/* ---- on the device ---- */

/* Parameter, mean and mean square in one kernel, the corrections in another; nothing is copied. */
Test(optimizer, takes_one_kernel_a_parameter)
{
    kiln_optimizer_options options = KILN_ADAMW_INIT;
    struct scene s = begin(&options);
    cr_expect_eq(cost_of(s.batch).launches, 2u);
    run_step(&s, 0);
    uint64_t copies = layer_available() ? layer_count("copy.count") : 0;
    run_step(&s, 1);
    if (layer_available())
        cr_expect_eq(layer_count("copy.count"), copies, "%s", layer_snapshot());
    end(&s);
}

/* Two optimisers over two parameters, one by one and both in one: the same bits. */
Test(optimizer, treats_each_parameter_alike)
{
    kiln_context *context = open_context();
    kiln_optimizer_options options = KILN_ADAM_INIT;
    kiln_buffer *together[] = {make_buffer(context, N, start), make_buffer(context, 2, start)};
    kiln_buffer *alone[] = {make_buffer(context, N, start), make_buffer(context, 2, start)};
    kiln_optimizer *optimizer[3];
    expect_ok(kiln_optimizer_create(context, &options, 2, together, &optimizer[0]));
    expect_ok(kiln_optimizer_create(context, &options, 1, &alone[0], &optimizer[1]));
    expect_ok(kiln_optimizer_create(context, &options, 1, &alone[1], &optimizer[2]));
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor g[] = {kiln_upload(batch, KILN_F32, 1, (size_t[]){N}, gradients[0]),
                       kiln_upload(batch, KILN_F32, 1, (size_t[]){2}, gradients[1])};
    expect_ok(kiln_optimizer_step(batch, optimizer[0], g));
    expect_ok(kiln_optimizer_step(batch, optimizer[1], &g[0]));
    expect_ok(kiln_optimizer_step(batch, optimizer[2], &g[1]));
    for (int i = 0; i < 3; i++)
        kiln_optimizer_release(optimizer[i]); /* the batch keeps their buffers */
    for (int run = 0; run < 7; run++)
        run_batch(batch);
    for (int i = 0; i < 2; i++) {
        float found[N];
        size_t n = kiln_buffer_bytes(alone[i]) / sizeof *found;
        expect_ok(kiln_buffer_read(alone[i], 0, found, n * sizeof *found));
        expect_buffer(together[i], n, found);
        kiln_buffer_release(together[i]);
        kiln_buffer_release(alone[i]);
    }
    kiln_batch_release(batch);
    close_context(context);
}

Test(optimizer, takes_another_learning_rate_between_runs)
{
    kiln_optimizer_options options = KILN_SGD_INIT;
    options.learning_rate = 0;
    struct scene s = begin(&options);
    run_step(&s, 2);
    expect_buffer(s.parameter, N, start);
    expect_ok(kiln_optimizer_set_learning_rate(s.optimizer, 1));
    run_step(&s, 0);
    float wanted[N];
    for (int i = 0; i < N; i++)
        wanted[i] = start[i] - gradients[0][i];
    expect_buffer(s.parameter, N, wanted);
    end(&s);
}

/* Saved after one step and put into an optimiser that has seen none, the path goes on. */
Test(optimizer, goes_on_from_a_saved_state)
{
    kiln_optimizer_options options = KILN_ADAM_INIT;
    options.learning_rate = 0.01;
    struct scene s = begin(&options), other = begin(&options);
    size_t count, other_count;
    float content[N];
    run_step(&s, 0);
    kiln_buffer *const *from = kiln_optimizer_state(s.optimizer, &count);
    kiln_buffer *const *to = kiln_optimizer_state(other.optimizer, &other_count);
    cr_assert_eq(count, 5u);
    cr_assert_eq(other_count, count);
    for (size_t i = 0; i < count; i++) {
        size_t bytes = kiln_buffer_bytes(from[i]);
        expect_ok(kiln_buffer_read(from[i], 0, content, bytes));
        expect_ok(kiln_buffer_write(to[i], 0, content, bytes));
    }
    expect_ok(kiln_buffer_read(s.parameter, 0, content, sizeof content));
    expect_ok(kiln_buffer_write(other.parameter, 0, content, sizeof content));
    run_step(&other, 1);
    run_step(&other, 2);
    expect_parameter(&other,
                     (double[]){0.995979387, -1.99114043, 0.486666407, -0.0131935674, 3.0174925});
    end(&s);
    end(&other);
}

static void expect_names(kiln_optimizer_options options, kiln_type type, const char *const *wanted)
{
    kiln_context *context = open_context();
    kiln_buffer *parameters[2];
    kiln_optimizer *optimizer;
    const char **names;
    size_t count;
    for (int i = 0; i < 2; i++)
        expect_ok(kiln_buffer_create(context, type, 0, NULL, &parameters[i]));
    expect_ok(kiln_optimizer_create(context, &options, 2, parameters, &optimizer));
    expect_ok(kiln_optimizer_state_names(optimizer, (const char *[]){"a", "b"}, &names));
    kiln_optimizer_state(optimizer, &count);
    for (size_t i = 0; i < count; i++)
        cr_expect_str_eq(names[i], wanted[i]);
    cr_expect_null(wanted[count]);
    kiln_free(names);
    expect_error(kiln_optimizer_state_names(optimizer, (const char *[]){"a", NULL}, &names),
                 KILN_INVALID_ARGUMENT, "kiln_optimizer_state_names: parameters[1] is NULL");
    cr_expect_null(names);
    kiln_optimizer_release(optimizer);
    kiln_buffer_release(parameters[0]);
    kiln_buffer_release(parameters[1]);
    close_context(context);
}

Test(optimizer, names_its_state)
{
    kiln_optimizer_options momentum = KILN_SGD_INIT;
    momentum.momentum = 0.5;
    expect_names((kiln_optimizer_options)KILN_ADAM_INIT, KILN_F16,
                 (const char *[]){
                     "optimizer.learning_rate", "optimizer.correction_1", "optimizer.correction_2",
                     "a.optimizer.mean", "a.optimizer.mean_square", "a.optimizer.remainder",
                     "b.optimizer.mean", "b.optimizer.mean_square", "b.optimizer.remainder", NULL});
    expect_names(momentum, KILN_F32,
                 (const char *[]){"optimizer.learning_rate", "a.optimizer.momentum",
                                  "b.optimizer.momentum", NULL});
    expect_names((kiln_optimizer_options)KILN_SGD_INIT, KILN_BF16,
                 (const char *[]){"optimizer.learning_rate", "a.optimizer.remainder",
                                  "b.optimizer.remainder", NULL});
}

/* The gradients of a step: too small for f16 to follow, but all together large. */
static void make_gradients(float *values, int step)
{
    for (int i = 0; i < N; i++)
        values[i] = 1e-3F * (float)(1 + (i * 7 + step * 3) % 5) - 1e-3F;
}

static kiln_buffer *narrow_buffer(kiln_context *context)
{
    kiln_buffer *buffer;
    kiln_batch *batch = kiln_batch_create(context);
    expect_ok(kiln_buffer_create(context, KILN_F16, 1, (size_t[]){N}, &buffer));
    kiln_tensor values = kiln_upload(batch, KILN_F32, 1, (size_t[]){N}, start);
    kiln_export(batch, kiln_cast(batch, values, KILN_F16), buffer);
    run_batch(batch);
    kiln_batch_release(batch);
    return buffer;
}

/* A parameter in f16 is at each step the one in f32, rounded. */
Test(optimizer, keeps_what_rounding_takes_from_a_parameter)
{
    kiln_optimizer_options options = KILN_ADAMW_INIT;
    kiln_context *context = open_context();
    kiln_buffer *parameters[] = {make_buffer(context, N, start), narrow_buffer(context)};
    kiln_optimizer *optimizer;
    float values[N], wide[N], rounded[N];
    uint16_t narrow[N];
    options.learning_rate = 1e-5;
    expect_ok(kiln_optimizer_create(context, &options, 2, parameters, &optimizer));
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor gradient = kiln_upload(batch, KILN_F32, 1, (size_t[]){N}, values);
    expect_ok(kiln_optimizer_step(batch, optimizer, (kiln_tensor[]){gradient, gradient}));
    kiln_batch *rounding = kiln_batch_create(context);
    kiln_tensor exact = kiln_cast(rounding, kiln_import(rounding, parameters[0]), KILN_F16);
    expect_ok(kiln_read(rounding, kiln_cast(rounding, exact, KILN_F32), rounded, sizeof rounded));
    kiln_read(rounding, kiln_import(rounding, parameters[1]), narrow, sizeof narrow);
    kiln_tensor found = kiln_cast(rounding, kiln_import(rounding, parameters[1]), KILN_F32);
    expect_ok(kiln_read(rounding, found, wide, sizeof wide));
    for (int step = 0; step < 100; step++) {
        make_gradients(values, step);
        run_batch(batch);
    }
    run_batch(rounding);
    for (int i = 0; i < N; i++)
        cr_expect_eq(wide[i], rounded[i], "%d: %.9g, not %.9g", i, wide[i], rounded[i]);
    cr_expect_neq(wide[0], start[0], "many small steps are a large one");
    kiln_batch_release(rounding);
    kiln_batch_release(batch);
    kiln_optimizer_release(optimizer);
    kiln_buffer_release(parameters[0]);
    kiln_buffer_release(parameters[1]);
    close_context(context);
}

/* Beyond f16's range a parameter is the largest number, and goes on from where it would be. */
Test(optimizer, saturates_a_parameter_beyond_its_type)
{
    kiln_optimizer_options options = KILN_SGD_INIT;
    kiln_context *context = open_context();
    kiln_buffer *parameter;
    kiln_optimizer *optimizer;
    float gradient = 0;
    uint16_t found;
    options.learning_rate = 1;
    expect_ok(kiln_buffer_create(context, KILN_F16, 0, NULL, &parameter));
    expect_ok(kiln_buffer_write(parameter, 0, &(uint16_t){0}, sizeof found));
    expect_ok(kiln_optimizer_create(context, &options, 1, &parameter, &optimizer));
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor g = kiln_upload(batch, KILN_F32, 0, NULL, &gradient);
    expect_ok(kiln_optimizer_step(batch, optimizer, &g));
    static const struct {
        float gradient;
        uint16_t wanted;
    } steps[] = {{-65000, 0x7bef},  {-5000, 0x7bff}, {-1e6F, 0x7bff},
                 {1037232, 0x7800}, {1e6F, 0xfbff},  {-1e6F, 0x7800}};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        gradient = steps[i].gradient;
        run_batch(batch);
        expect_ok(kiln_buffer_read(parameter, 0, &found, sizeof found));
        cr_expect_eq(found, steps[i].wanted, "step %zu: %04x", i, found);
    }
    kiln_batch_release(batch);
    kiln_optimizer_release(optimizer);
    kiln_buffer_release(parameter);
    close_context(context);
}

Test(optimizer, of_nothing_does_nothing)
{
    kiln_context *context = open_context();
    kiln_optimizer_options options = KILN_ADAM_INIT;
    kiln_buffer *empty = make_buffer(context, 0, NULL);
    kiln_optimizer *none, *hollow;
    expect_ok(kiln_optimizer_create(context, &options, 0, NULL, &none));
    expect_ok(kiln_optimizer_create(context, &options, 1, &empty, &hollow));
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor g = kiln_upload(batch, KILN_F32, 1, (size_t[]){0}, NULL);
    expect_ok(kiln_optimizer_step(batch, none, NULL));
    expect_ok(kiln_optimizer_step(batch, hollow, &g));
    run_batch(batch);
    kiln_optimizer_release(none);
    kiln_optimizer_release(hollow);
    kiln_optimizer_release(NULL);
    kiln_buffer_release(empty);
    kiln_batch_release(batch);
    close_context(context);
}

/* ---- clipping ---- */

static void clip(float left[2], float *right, double max_norm, float *norm)
{
    kiln_context *context = open_context();
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor g[] = {kiln_upload(batch, KILN_F32, 1, (size_t[]){2}, left),
                       kiln_upload(batch, KILN_F32, 2, (size_t[]){1, 1}, right)};
    kiln_tensor total = kiln_clip_by_norm(batch, 2, g, max_norm, g);
    expect_ok(kiln_read(batch, total, norm, sizeof *norm));
    expect_ok(kiln_read(batch, g[0], left, 2 * sizeof *left));
    expect_ok(kiln_read(batch, g[1], right, sizeof *right));
    run_batch(batch);
    kiln_batch_release(batch);
    close_context(context);
}

Test(optimizer, clips_by_the_common_norm)
{
    float left[] = {3, 4}, right = 12, norm;
    clip(left, &right, 6.5, &norm);
    cr_expect_eq(norm, 13);
    cr_expect_float_eq(left[0], 1.5, 1e-6);
    cr_expect_float_eq(left[1], 2, 1e-6);
    cr_expect_float_eq(right, 6, 2e-6);
}

/* Squares of either are not in f32. */
Test(optimizer, clips_gradients_of_every_size)
{
    float left[] = {3e30F, 4e30F}, right = 12e30F, norm;
    clip(left, &right, 6.5, &norm);
    cr_expect_float_eq(norm / 1e30F, 13, 1e-5);
    cr_expect_float_eq(left[0], 1.5, 1e-6);
    cr_expect_float_eq(left[1], 2, 1e-6);
    cr_expect_float_eq(right, 6, 2e-6);
    float small[] = {3e-30F, 4e-30F}, rest = 12e-30F;
    clip(small, &rest, 1, &norm);
    cr_expect_float_eq(norm * 1e30F, 13, 1e-5);
    cr_expect(small[0] == 3e-30F && small[1] == 4e-30F && rest == 12e-30F);
}

Test(optimizer, leaves_short_gradients_as_they_are)
{
    float left[] = {3, 4}, right = 12, norm;
    clip(left, &right, 13.1, &norm);
    cr_expect(left[0] == 3 && left[1] == 4 && right == 12 && norm == 13);
}

Test(optimizer, a_gradient_that_is_nan_makes_all_nan)
{
    float left[] = {3, NAN}, right = 12, norm;
    clip(left, &right, 1, &norm);
    cr_expect(isnan(left[0]) && isnan(left[1]) && isnan(right) && isnan(norm));
}

/* ---- misuse ---- */

static void refuse_options(kiln_optimizer_options options, const char *rest)
{
    kiln_context *context = open_context();
    kiln_optimizer *optimizer = (kiln_optimizer *)&options;
    char sentence[128];
    snprintf(sentence, sizeof sentence, "kiln_optimizer_create: option%s", rest);
    expect_error(kiln_optimizer_create(context, &options, 0, NULL, &optimizer),
                 KILN_INVALID_ARGUMENT, sentence);
    cr_expect_null(optimizer);
    close_context(context);
}

Test(optimizer, refuses_options_that_make_no_sense)
{
    static const kiln_optimizer_options sgd = KILN_SGD_INIT, adam = KILN_ADAM_INIT;
#define REFUSE(base, member, value, rest)                                                          \
    do {                                                                                           \
        kiln_optimizer_options options = base;                                                     \
        options.member = value;                                                                    \
        refuse_options(options, rest);                                                             \
    } while (0)
    REFUSE(sgd, size, 7,
           "s->size is 7; start from KILN_SGD_INIT, KILN_ADAM_INIT or KILN_ADAMW_INIT");
    REFUSE(sgd, method, (kiln_optimizer_method)0,
           "s have method 0; start from KILN_SGD_INIT, KILN_ADAM_INIT or KILN_ADAMW_INIT");
    REFUSE(sgd, method, (kiln_optimizer_method)4,
           "s have method 4; start from KILN_SGD_INIT, KILN_ADAM_INIT or KILN_ADAMW_INIT");
    REFUSE(sgd, learning_rate, -1, " learning_rate is -1, and must be finite and 0 or more");
    REFUSE(sgd, learning_rate, NAN, " learning_rate is nan, and must be finite and 0 or more");
    REFUSE(sgd, weight_decay, INFINITY, " weight_decay is inf, and must be finite and 0 or more");
    REFUSE(sgd, momentum, 1, " momentum is 1, and must be from 0 to below 1");
    REFUSE(sgd, nesterov, 1, " nesterov is 1, and must be 0 without a momentum");
    REFUSE(adam, beta1, 1, " beta1 is 1, and must be from 0 to below 1");
    REFUSE(adam, beta2, -0.1, " beta2 is -0.1, and must be from 0 to below 1");
    REFUSE(adam, epsilon, -1e-8, " epsilon is -1e-08, and must be finite and 0 or more");
#undef REFUSE
}

Test(optimizer, refuses_parameters_that_it_cannot_train)
{
    kiln_context *context = open_context(), *elsewhere = open_context();
    kiln_optimizer_options options = KILN_SGD_INIT;
    kiln_optimizer *optimizer;
    kiln_buffer *x = make_buffer(context, N, start), *far = make_buffer(elsewhere, N, start),
                *whole;
    expect_ok(kiln_buffer_create(context, KILN_I32, 0, NULL, &whole));
#define CREATE(...)                                                                                \
    kiln_optimizer_create(context, &options, sizeof((kiln_buffer *[]){__VA_ARGS__}) / sizeof x,    \
                          (kiln_buffer *[]){__VA_ARGS__}, &optimizer)
    expect_error(CREATE(x, NULL), KILN_INVALID_ARGUMENT,
                 "kiln_optimizer_create: parameter 1 is NULL");
    expect_error(CREATE(far), KILN_INVALID_ARGUMENT,
                 "kiln_optimizer_create: parameter 0 is of another context");
    expect_error(
        CREATE(whole), KILN_TYPE_MISMATCH,
        "kiln_optimizer_create: parameter 0 is i32, and only floating types whose elements "
        "lie apart are taken");
    expect_error(CREATE(x, x), KILN_INVALID_ARGUMENT,
                 "kiln_optimizer_create: parameters 0 and 1 are the same buffer");
#undef CREATE
    expect_error(kiln_optimizer_create(NULL, &options, 1, &x, &optimizer), KILN_INVALID_ARGUMENT,
                 "kiln_optimizer_create: context is NULL");
    expect_error(kiln_optimizer_create(context, NULL, 1, &x, &optimizer), KILN_INVALID_ARGUMENT,
                 "kiln_optimizer_create: options is NULL");
    expect_error(kiln_optimizer_create(context, &options, 1, NULL, &optimizer),
                 KILN_INVALID_ARGUMENT, "kiln_optimizer_create: parameters is NULL");
    expect_error(kiln_optimizer_create(context, &options, 1, &x, NULL), KILN_INVALID_ARGUMENT,
                 "kiln_optimizer_create: optimizer is NULL");
    kiln_buffer_release(x);
    kiln_buffer_release(far);
    kiln_buffer_release(whole);
    close_context(context);
    close_context(elsewhere);
}

/* What a call on a batch of its own answers, and what the batch says. */
#define MISUSE(status, sentence, call)                                                             \
    do {                                                                                           \
        kiln_batch *batch = kiln_batch_create(s.context);                                          \
        call;                                                                                      \
        cr_expect_eq(kiln_batch_status(batch), status);                                            \
        cr_expect_str_eq(without_call(kiln_batch_error(batch)), sentence);                         \
        kiln_batch_release(batch);                                                                 \
    } while (0)

Test(optimizer, refuses_steps_that_do_not_fit)
{
    kiln_optimizer_options options = KILN_SGD_INIT;
    struct scene s = begin(&options);
    kiln_context *elsewhere = open_context();
    kiln_optimizer *far;
    kiln_tensor g[1] = {{0}};
    expect_ok(kiln_optimizer_create(elsewhere, &options, 0, NULL, &far));
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_optimizer_step: optimizer is NULL",
           kiln_optimizer_step(batch, NULL, g));
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_optimizer_step: gradients is NULL",
           kiln_optimizer_step(batch, s.optimizer, NULL));
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_optimizer_step: the optimizer is of another context",
           kiln_optimizer_step(batch, far, g));
    MISUSE(KILN_INVALID_HANDLE, "kiln_optimizer_step: operand gradients[0] is the empty tensor",
           kiln_optimizer_step(batch, s.optimizer, g));
    MISUSE(KILN_SHAPE_MISMATCH, "kiln_optimizer_step: gradients[0] is [] and its parameter is [5]",
           g[0] = kiln_constant(batch, KILN_F32, 1);
           kiln_optimizer_step(batch, s.optimizer, g));
    MISUSE(KILN_TYPE_MISMATCH,
           "kiln_optimizer_step: operand gradients[0] is i32, and only floating types are taken; "
           "cast it",
           g[0] = kiln_constant(batch, KILN_I32, 1);
           kiln_optimizer_step(batch, s.optimizer, g));
    MISUSE(KILN_INVALID_ARGUMENT,
           "kiln_optimizer_step: the batch leaves something in parameter 0 already",
           g[0] = kiln_fill(batch, KILN_F32, 1, (size_t[]){5}, 1);
           kiln_optimizer_step(batch, s.optimizer, g); kiln_optimizer_step(batch, s.optimizer, g));
    expect_error(kiln_optimizer_set_learning_rate(NULL, 1), KILN_INVALID_ARGUMENT,
                 "kiln_optimizer_set_learning_rate: optimizer is NULL");
    expect_error(kiln_optimizer_set_learning_rate(s.optimizer, -1), KILN_INVALID_ARGUMENT,
                 "kiln_optimizer_set_learning_rate: -1 is no learning rate");
    cr_expect_eq(kiln_optimizer_step(NULL, s.optimizer, g), KILN_INVALID_ARGUMENT);
    cr_expect_null(kiln_optimizer_state(NULL, NULL));
    kiln_optimizer_release(far);
    close_context(elsewhere);
    end(&s);
}

Test(optimizer, refuses_to_clip_what_it_cannot)
{
    kiln_optimizer_options options = KILN_SGD_INIT;
    struct scene s = begin(&options);
    kiln_tensor g[1] = {{0}}, out[1] = {{1}};
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_clip_by_norm: gradients is NULL",
           kiln_clip_by_norm(batch, 1, NULL, 1, out));
    cr_expect_eq(out[0].id, 0u);
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_clip_by_norm: clipped is NULL",
           kiln_clip_by_norm(batch, 1, g, 1, NULL));
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_clip_by_norm: max_norm is 0, not above 0",
           kiln_clip_by_norm(batch, 1, g, 0, out));
    MISUSE(KILN_INVALID_HANDLE, "kiln_clip_by_norm: operand gradients[0] is the empty tensor",
           kiln_clip_by_norm(batch, 1, g, 1, out));
    MISUSE(
        KILN_TYPE_MISMATCH,
        "kiln_clip_by_norm: operand gradients[0] is u8, and only floating types are taken; cast it",
        g[0] = kiln_constant(batch, KILN_U8, 1);
        kiln_clip_by_norm(batch, 1, g, 1, out));
    end(&s);
}
