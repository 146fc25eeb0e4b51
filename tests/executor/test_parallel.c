/* SPDX-License-Identifier: Apache-2.0 */
/* Training on several contexts: the same losses as on one, whatever the shares; and several devices
 * in one process. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/opencl.h>

#include "../support/context.h"
#include "../support/layer.h"
#include "../support/served.h"

enum { ROWS = 24, IN = 6, STEPS = 5, MOST = 3 };

/* y = relu(x @ a) @ b, towards a target; each context has some of the rows. */
static struct world {
    size_t count, hidden, rows[MOST], first[MOST];
    kiln_context *contexts[MOST];
    kiln_buffer *a[MOST], *b[MOST];
    float losses[MOST];
} world;
static float x[ROWS * IN], target[ROWS], a[IN * 16384], b[16384];

static kiln_buffer *make_matrix(kiln_context *context, size_t rows, size_t columns,
                                const float *content)
{
    kiln_buffer *buffer;
    expect_ok(kiln_buffer_create(context, KILN_F32, 2, (size_t[]){rows, columns}, &buffer));
    expect_ok(kiln_buffer_write(buffer, 0, content, rows * columns * sizeof *content));
    return buffer;
}

static kiln_status record(kiln_batch *batch, size_t context, kiln_tensor *gradients, void *user)
{
    size_t rows = world.rows[context], first = world.first[context];
    (void)user;
    kiln_tensor in = kiln_upload(batch, KILN_F32, 2, (size_t[]){rows, IN}, x + first * IN);
    kiln_tensor wanted = kiln_upload(batch, KILN_F32, 2, (size_t[]){rows, 1}, target + first);
    kiln_tensor weights[] = {kiln_import(batch, world.a[context]),
                             kiln_import(batch, world.b[context])};
    kiln_tensor hidden = kiln_relu(batch, kiln_matmul(batch, in, weights[0]));
    kiln_tensor loss =
        kiln_mean_squared_error(batch, kiln_matmul(batch, hidden, weights[1]), wanted);
    kiln_status status = kiln_grad(batch, loss, weights, 2, gradients);
    return status ? status : kiln_read(batch, loss, &world.losses[context], sizeof(float));
}

static kiln_status update(kiln_batch *batch, size_t context, const kiln_tensor *gradients,
                          void *user)
{
    kiln_buffer *weights[] = {world.a[context], world.b[context]};
    (void)user;
    for (int i = 0; i < 2; i++) {
        kiln_tensor step = kiln_mul(batch, gradients[i],
                                    kiln_constant(batch, KILN_F32, 0.16 / (double)world.hidden));
        kiln_export(batch, kiln_sub(batch, kiln_import(batch, weights[i]), step), weights[i]);
    }
    return KILN_OK;
}

static const kiln_training training = {
    sizeof training, record, update, NULL, 2, NULL, NULL, NULL, NULL};

static void open_world(size_t count, const size_t *rows, size_t hidden,
                       const kiln_context_options *options)
{
    fill(x, ROWS * IN, 1);
    fill(target, ROWS, 2);
    fill(a, IN * hidden, 3);
    fill(b, hidden, 4);
    for (size_t i = 0; i < IN * hidden; i++)
        a[i] *= 0.05f;
    for (size_t i = 0; i < hidden; i++)
        b[i] *= 0.05f / (float)hidden * 16;
    world = (struct world){.count = count, .hidden = hidden};
    for (size_t i = 0, first = 0; i < count; first += rows[i++]) {
        world.rows[i] = rows[i];
        world.first[i] = first;
        world.contexts[i] = open_context_with(&options[i]);
        world.a[i] = make_matrix(world.contexts[i], IN, hidden, a);
        world.b[i] = make_matrix(world.contexts[i], hidden, 1, b);
    }
}

static void close_world(void)
{
    for (size_t i = 0; i < world.count; i++) {
        kiln_buffer_release(world.a[i]);
        kiln_buffer_release(world.b[i]);
        close_context(world.contexts[i]);
    }
}

static kiln_parallel *create(const double *shares)
{
    kiln_training how = training;
    kiln_parallel *parallel;
    how.shares = shares;
    expect_ok(kiln_parallel_create(world.contexts, world.count, &how, &parallel));
    return parallel;
}

/* The loss over all rows, before each step. */
static void train(const size_t *rows, size_t count, size_t hidden,
                  const kiln_context_options *options, float *losses)
{
    double shares[MOST];
    open_world(count, rows, hidden, options);
    for (size_t i = 0; i < count; i++)
        shares[i] = (double)rows[i];
    kiln_parallel *parallel = create(shares);
    for (int step = 0; step < STEPS; step++) {
        double loss = 0;
        expect_ok(kiln_parallel_step(parallel));
        for (size_t i = 0; i < count; i++)
            loss += (double)world.losses[i] * shares[i] / ROWS;
        losses[step] = (float)loss;
    }
    kiln_parallel_release(parallel);
}

static void expect_same(const float *losses, const float *wanted)
{
    for (int i = 0; i < STEPS; i++)
        cr_expect_float_eq(losses[i], wanted[i], 1e-5f * wanted[i], "step %d: %g, not %g", i,
                           (double)losses[i], (double)wanted[i]);
    cr_expect_lt(losses[STEPS - 1], losses[0]);
}

static const kiln_context_options plain[MOST] = {
    KILN_CONTEXT_OPTIONS_INIT, KILN_CONTEXT_OPTIONS_INIT, KILN_CONTEXT_OPTIONS_INIT};

/* The same bits, if the devices are alike. */
static void expect_equal_weights(void)
{
    static float first[sizeof a / sizeof *a], other[sizeof a / sizeof *a];
    size_t bytes = IN * world.hidden * sizeof *a;
    expect_ok(kiln_buffer_read(world.a[0], 0, first, bytes));
    for (size_t i = 1; i < world.count; i++) {
        expect_ok(kiln_buffer_read(world.a[i], 0, other, bytes));
        cr_expect(!memcmp(first, other, bytes));
    }
}

Test(parallel, has_the_losses_of_one_context)
{
    float alone[STEPS], together[STEPS];
    train((size_t[]){ROWS}, 1, 16, plain, alone);
    close_world();
    train((size_t[]){15, 3, 6}, 3, 16, plain, together);
    expect_same(together, alone);
    expect_equal_weights();
    close_world();
}

/* Gradients travel while others are derived: they are large enough to be told of early. */
Test(parallel, has_the_same_losses_where_memory_is_separate)
{
    kiln_context_options separate[2] = {KILN_CONTEXT_OPTIONS_INIT, KILN_CONTEXT_OPTIONS_INIT};
    float alone[STEPS], together[STEPS];
    for (int i = 0; i < 2; i++)
        separate[i].host_memory = KILN_HOST_MEMORY_SEPARATE;
    train((size_t[]){ROWS}, 1, 16384, plain, alone);
    close_world();
    train((size_t[]){12, 12}, 2, 16384, separate, together);
    expect_same(together, alone);
    expect_equal_weights();
    close_world();
}

/* A step that fails changes no weights, and may be made again. */
Test(parallel, leaves_the_weights_where_deriving_fails)
{
    static float before[IN * 16], after[IN * 16];
    if (!layer_available())
        cr_skip("run with OPENCL_LAYERS=.../kiln-layer.so");
    open_world(2, (size_t[]){12, 12}, 16, plain);
    kiln_parallel *parallel = create(NULL);
    expect_ok(kiln_parallel_step(parallel));
    expect_ok(kiln_buffer_read(world.a[1], 0, before, sizeof before));
    layer_fail_next("clEnqueueNDRangeKernel", -36, KILN_LAYER_CALL);
    expect_error_part(kiln_parallel_step(parallel), KILN_DEVICE_ERROR, "deriving");
    expect_ok(kiln_buffer_read(world.a[1], 0, after, sizeof after));
    cr_expect(!memcmp(before, after, sizeof before));
    layer_fail_next("clEnqueueReadBuffer", -36, KILN_LAYER_CALL);
    /* a gradient's; where memory is separate the loss's may come first */
    expect_error_part(kiln_parallel_step(parallel), KILN_DEVICE_ERROR, "clEnqueueReadBuffer");
    expect_ok(kiln_buffer_read(world.a[1], 0, after, sizeof after));
    cr_expect(!memcmp(before, after, sizeof before));
    expect_ok(kiln_parallel_step(parallel));
    expect_equal_weights();
    kiln_parallel_release(parallel);
    close_world();
}

static kiln_status leave_none(kiln_batch *batch, size_t context, kiln_tensor *gradients, void *user)
{
    (void)batch, (void)context, (void)gradients, (void)user;
    return KILN_OK;
}

Test(parallel, says_what_is_wrong)
{
    static const char call[] = "kiln_parallel_create";
    kiln_parallel *parallel;
    kiln_training wrong = training;
    open_world(2, (size_t[]){12, 12}, 16, plain);
    expect_error_part(kiln_parallel_create(NULL, 2, &training, &parallel), KILN_INVALID_ARGUMENT,
                      call);
    kiln_context *twice[] = {world.contexts[0], world.contexts[0]};
    expect_error(kiln_parallel_create(twice, 2, &training, &parallel), KILN_INVALID_ARGUMENT,
                 "kiln_parallel_create: contexts 0 and 1 are the same");
    wrong.shares = (const double[]){1, 0};
    expect_error(kiln_parallel_create(world.contexts, 2, &wrong, &parallel), KILN_INVALID_ARGUMENT,
                 "kiln_parallel_create: share 1 is 0");
    wrong = training;
    wrong.record = leave_none;
    expect_error_part(kiln_parallel_create(world.contexts, 2, &wrong, &parallel),
                      KILN_INVALID_HANDLE,
                      "kiln_parallel_create: context 0: gradient 0 is no tensor of its batch");
    wrong = training;
    wrong.update = NULL;
    expect_error(kiln_parallel_create(world.contexts, 2, &wrong, &parallel), KILN_INVALID_ARGUMENT,
                 "kiln_parallel_create: training->update is NULL");
    expect_error(kiln_parallel_step(NULL), KILN_INVALID_ARGUMENT,
                 "kiln_parallel_step: parallel is NULL");
    kiln_parallel_release(NULL);
    close_world();
}

/* ---- several devices in one process ---- */

static void train_on(const char *first, const char *second)
{
    kiln_context_options options[2] = {KILN_CONTEXT_OPTIONS_INIT, KILN_CONTEXT_OPTIONS_INIT};
    float alone[STEPS], together[STEPS];
    options[0].device = first;
    options[1].device = second;
    train((size_t[]){ROWS}, 1, 16, options, alone);
    close_world();
    train((size_t[]){16, 8}, 2, 16, options, together);
    expect_same(together, alone);
    close_world();
}

static void serve_on(kiln_context *first, kiln_context *second)
{
    enum { SERVED = 64, REQUESTS = 20 };
    static float in[SERVED * SERVED_WIDTH], out[REQUESTS][SERVED];
    const kiln_executor_options how = served_options(SERVED, 1, 0);
    kiln_context *contexts[] = {first, second};
    kiln_executor *executor;
    kiln_future *futures[REQUESTS];
    served_fill(in, SERVED, 1);
    expect_ok(kiln_executor_create(contexts, 2, &served_model, &how, &executor));
    for (int i = 0; i < REQUESTS; i++)
        futures[i] = served_submit(executor, in, out[i], SERVED, NULL);
    for (int i = 0; i < REQUESTS; i++) {
        expect_ok(kiln_future_wait(futures[i]));
        kiln_future_release(futures[i]);
        cr_expect(served_right(in, out[i], SERVED));
    }
    kiln_executor_release(executor);
    close_context(first);
    close_context(second);
}

static kiln_context *open_device(const char *name)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    options.device = name;
    return open_context_with(&options);
}

struct number {
    char text[24];
};

static bool is_named(const kiln_device_info *info, const char *part)
{
    return strstr(info->platform, part) || strstr(info->name, part);
}

/* From PoCL 4 on `basic` and `pthread` have other names. */
static bool is_driver(const kiln_device_info *info, const char *part)
{
    bool minimal = strstr(info->name, "cpu-minimal-");
    if (strcmp(part, "basic-") == 0)
        return minimal || is_named(info, part);
    if (strcmp(part, "pthread-") == 0)
        return is_named(info, part) || (strstr(info->name, "cpu-") == info->name && !minimal);
    return is_named(info, part);
}

/* The number of the n-th device that has this part in its name, or on whose platform it is. */
static struct number find(const char *part, int n)
{
    struct number number = {0};
    size_t count;
    expect_ok(kiln_device_count(&count));
    for (size_t i = 0; i < count; i++) {
        kiln_device_info info;
        expect_ok(kiln_device_describe(i, &info));
        if (is_driver(&info, part) && n-- == 0)
            snprintf(number.text, sizeof number.text, "%zu", i);
    }
    if (!*number.text)
        cr_skip("there is no %s here", part);
    return number;
}

/* PoCL's basic device is for one thread at a time: its locks fail two. An executor has two. */
Test(parallel, and_executors_use_several_devices_of_one_driver)
{
    setenv("POCL_DEVICES", "pthread basic pthread", 1);
    struct number first = find("pthread-", 0), second = find("pthread-", 1);
    struct number basic = find("basic-", 0);
    train_on(first.text, basic.text);
    serve_on(open_device(first.text), open_device(second.text));
}

Test(parallel, slow_and_executors_use_two_drivers)
{
    setenv("RUSTICL_ENABLE", "llvmpipe", 1);
    struct number pocl = find("Portable Computing Language", 0), mesa = find("llvmpipe", 0);
    train_on(pocl.text, mesa.text);
    serve_on(open_device(pocl.text), open_device(mesa.text));
}

static kiln_context *open_part(cl_device_id part)
{
    kiln_context *context;
    cl_int code;
    cl_context cl = clCreateContext(NULL, 1, &part, NULL, NULL, &code);
    cr_assert_eq(code, CL_SUCCESS);
    expect_ok(kiln_context_create_cl(cl, part, NULL, NULL, &context));
    clReleaseContext(cl);
    return context;
}

Test(parallel, and_executors_use_parts_of_a_device)
{
    static const cl_device_partition_property one_each[] = {CL_DEVICE_PARTITION_EQUALLY, 1, 0};
    cl_device_id device, parts[2];
    cl_uint most = 0, made = 0;
    kiln_context *context = open_context();
    expect_ok(kiln_context_cl(context, NULL, &device, NULL));
    clGetDeviceInfo(device, CL_DEVICE_PARTITION_MAX_SUB_DEVICES, sizeof most, &most, NULL);
    /* Mesa 22.3 divides none, and has no function for it that could be called. */
    if (most > 1)
        clCreateSubDevices(device, one_each, 2, parts, &made);
    close_context(context);
    if (made != 2)
        cr_skip("the device is not divided into two");
    serve_on(open_part(parts[0]), open_part(parts[1]));
    for (int i = 0; i < 2; i++)
        clReleaseDevice(parts[i]);
}
