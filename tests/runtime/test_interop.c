/* SPDX-License-Identifier: Apache-2.0 */
/* Programs that use OpenCL themselves: objects handed in, objects taken out. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <kiln/opencl.h>

#include "../support/context.h"

enum { N = 1000 };

static float values[N], result[N];

/* Objects of our own, on the device that kiln would take. */
struct own {
    cl_platform_id platform;
    cl_device_id device;
    cl_context context;
    cl_command_queue queue;
};

static cl_context make_cl_context(const struct own *own)
{
    cl_context_properties properties[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)own->platform,
                                          0};
    cl_int code;
    cl_context context = clCreateContext(properties, 1, &own->device, NULL, NULL, &code);
    cr_assert_eq(code, CL_SUCCESS);
    return context;
}

static cl_command_queue make_queue(const struct own *own, cl_command_queue_properties properties)
{
    cl_int code;
    cl_command_queue queue = clCreateCommandQueue(own->context, own->device, properties, &code);
    if (code == CL_INVALID_QUEUE_PROPERTIES)
        cr_skip("the device has no such queue");
    cr_assert_eq(code, CL_SUCCESS);
    return queue;
}

static struct own open_own(void)
{
    struct own own;
    kiln_context *context = open_context();
    expect_ok(kiln_context_cl(context, NULL, &own.device, NULL));
    close_context(context);
    cr_assert_eq(
        clGetDeviceInfo(own.device, CL_DEVICE_PLATFORM, sizeof own.platform, &own.platform, NULL),
        CL_SUCCESS);
    own.context = make_cl_context(&own);
    own.queue = make_queue(&own, 0);
    return own;
}

static cl_uint references(cl_context context)
{
    cl_uint count = 0;
    clGetContextInfo(context, CL_CONTEXT_REFERENCE_COUNT, sizeof count, &count, NULL);
    return count;
}

static void close_own(struct own own)
{
    clReleaseCommandQueue(own.queue);
    for (int i = 0; i < 30000 && references(own.context) > 1; i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL); /* drivers let go by and by */
    cr_expect_eq(references(own.context), 1u, "kiln still holds the cl_context");
    clReleaseContext(own.context);
}

static kiln_context *adopt(const struct own *own, cl_command_queue queue)
{
    kiln_context *context;
    expect_ok(kiln_context_create_cl(own->context, own->device, queue, NULL, &context));
    return context;
}

static void check_work(kiln_context *context)
{
    fill(values, N, 1);
    expect_ok(kiln_now_relu(context, N, values, result));
    for (int i = 0; i < N; i++)
        cr_assert_eq(result[i], values[i] > 0 ? values[i] : 0);
}

/* ---- objects in ---- */

Test(interop, works_in_the_callers_queue)
{
    struct own own = open_own();
    kiln_context *context = adopt(&own, own.queue);
    cl_context cl;
    cl_device_id device;
    cl_command_queue queue;
    expect_ok(kiln_context_cl(context, &cl, &device, &queue));
    cr_expect(cl == own.context && device == own.device && queue == own.queue);
    check_work(context);
    close_context(context);
    close_own(own);
}

Test(interop, makes_a_queue_where_none_is_given)
{
    struct own own = open_own();
    kiln_context *context = adopt(&own, NULL);
    cl_command_queue queue = NULL;
    expect_ok(kiln_context_cl(context, NULL, NULL, &queue));
    cr_expect(queue && queue != own.queue);
    check_work(context);
    close_context(context);
    close_own(own);
}

/* The caller's objects may go first. */
Test(interop, keeps_what_it_was_given)
{
    struct own own = open_own();
    kiln_context *context = adopt(&own, own.queue);
    clReleaseCommandQueue(own.queue);
    clReleaseContext(own.context);
    check_work(context);
    close_context(context);
}

Test(interop, describes_the_device_as_if_it_was_chosen)
{
    struct own own = open_own();
    kiln_device_info adopted, chosen;
    kiln_context *context = adopt(&own, NULL), *other = open_context();
    expect_ok(kiln_context_device(context, &adopted));
    expect_ok(kiln_context_device(other, &chosen));
    cr_expect_str_eq(adopted.name, chosen.name);
    cr_expect_eq(adopted.index, chosen.index);
    close_context(other);
    close_context(context);
    close_own(own);
}

Test(interop, refuses_a_queue_that_is_out_of_order)
{
    struct own own = open_own();
    kiln_context *context;
    cl_command_queue queue = make_queue(&own, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    expect_error(kiln_context_create_cl(own.context, own.device, queue, NULL, &context),
                 KILN_INVALID_ARGUMENT, "kiln_context_create_cl: the queue is out of order");
    cr_expect_null(context);
    clReleaseCommandQueue(queue);
    close_own(own);
}

Test(interop, refuses_a_queue_of_another_context)
{
    struct own own = open_own();
    struct own other = own;
    kiln_context *context;
    other.context = make_cl_context(&own);
    expect_error(kiln_context_create_cl(other.context, own.device, own.queue, NULL, &context),
                 KILN_INVALID_ARGUMENT,
                 "kiln_context_create_cl: the queue is of another cl_context");
    cr_expect_null(context);
    clReleaseContext(other.context);
    close_own(own);
}

Test(interop, refuses_a_device_of_another_context)
{
    struct own own = open_own();
    kiln_context *context = (kiln_context *)&own, *other;
    kiln_device_info info;
    size_t devices = 0;
    expect_ok(kiln_device_count(&devices));
    cl_device_id stranger = NULL;
    for (size_t i = 0; i < devices && !stranger; i++) {
        char index[24];
        kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
        snprintf(index, sizeof index, "%zu", i);
        options.device = index;
        other = open_context_with(&options);
        expect_ok(kiln_context_cl(other, NULL, &stranger, NULL));
        expect_ok(kiln_context_device(other, &info));
        stranger = stranger == own.device ? NULL : stranger;
        close_context(other);
    }
    if (!stranger)
        cr_skip("there is only one device");
    expect_error(kiln_context_create_cl(own.context, stranger, NULL, NULL, &context),
                 KILN_INVALID_ARGUMENT,
                 "kiln_context_create_cl: the device is not of the cl_context");
    cr_expect_null(context);
    close_own(own);
}

Test(interop, refuses_spans_of_a_queue_without_profiling)
{
    struct own own = open_own();
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    kiln_context *context;
    options.profile = 1;
    expect_error(kiln_context_create_cl(own.context, own.device, own.queue, &options, &context),
                 KILN_INVALID_ARGUMENT,
                 "kiln_context_create_cl: spans need a queue with profiling enabled");
    cr_expect_null(context);
    close_own(own);
}

Test(interop, refuses_null)
{
    struct own own = open_own();
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    kiln_context *context;
    expect_error(kiln_context_create_cl(NULL, own.device, NULL, NULL, &context),
                 KILN_INVALID_ARGUMENT, "kiln_context_create_cl: cl is NULL");
    cr_expect_null(context);
    expect_error(kiln_context_create_cl(own.context, NULL, NULL, NULL, &context),
                 KILN_INVALID_ARGUMENT, "kiln_context_create_cl: device is NULL");
    expect_error(kiln_context_create_cl(own.context, own.device, NULL, NULL, NULL),
                 KILN_INVALID_ARGUMENT, "kiln_context_create_cl: context is NULL");
    options.validate = 2;
    expect_error(kiln_context_create_cl(own.context, own.device, NULL, &options, &context),
                 KILN_INVALID_ARGUMENT,
                 "kiln_context_create_cl: validate is 2, not a number from 0 to 1");
    options.size = 1;
    expect_error(
        kiln_context_create_cl(own.context, own.device, NULL, &options, &context),
        KILN_INVALID_ARGUMENT,
        "kiln_context_create_cl: options->size is 1; start from KILN_CONTEXT_OPTIONS_INIT");
    expect_error(kiln_context_cl(NULL, NULL, NULL, NULL), KILN_INVALID_ARGUMENT,
                 "kiln_context_cl: context is NULL");
    cr_expect_null(kiln_buffer_cl(NULL));
    close_own(own);
}

/* ---- memory ---- */

static cl_mem make_memory(cl_context context, size_t bytes)
{
    cl_int code;
    cl_mem memory = clCreateBuffer(context, CL_MEM_READ_WRITE, bytes, NULL, &code);
    cr_assert_eq(code, CL_SUCCESS);
    return memory;
}

Test(interop, works_on_the_callers_memory_without_a_copy)
{
    const size_t n = N;
    struct own own = open_own();
    kiln_context *context = adopt(&own, own.queue);
    cl_mem memory = make_memory(own.context, sizeof values);
    kiln_buffer *buffer;
    expect_ok(kiln_buffer_create_cl(context, memory, KILN_F32, 1, &n, &buffer));
    cr_expect(kiln_buffer_cl(buffer) == memory);
    fill(values, N, 3);
    cr_assert_eq(
        clEnqueueWriteBuffer(own.queue, memory, CL_TRUE, 0, sizeof values, values, 0, NULL, NULL),
        CL_SUCCESS);
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor x = kiln_import(batch, buffer);
    expect_ok(kiln_export(batch, kiln_add(batch, x, x), buffer));
    run_batch(batch);
    cr_expect_eq(stats_of(context).uploads + stats_of(context).downloads, 0u);
    cr_assert_eq(
        clEnqueueReadBuffer(own.queue, memory, CL_TRUE, 0, sizeof result, result, 0, NULL, NULL),
        CL_SUCCESS);
    for (int i = 0; i < N; i++)
        cr_assert_eq(result[i], 2 * values[i]);
    kiln_batch_release(batch);
    kiln_buffer_release(buffer);
    clReleaseMemObject(memory);
    close_context(context);
    close_own(own);
}

Test(interop, shows_the_memory_of_its_own_buffers)
{
    kiln_context *context = open_context();
    cl_command_queue queue;
    fill(values, N, 4);
    kiln_buffer *buffer = make_buffer(context, N, values);
    cl_mem memory = kiln_buffer_cl(buffer);
    expect_ok(kiln_context_cl(context, NULL, NULL, &queue));
    cr_assert_eq(
        clEnqueueReadBuffer(queue, memory, CL_TRUE, 0, sizeof result, result, 0, NULL, NULL),
        CL_SUCCESS);
    cr_expect_arr_eq(result, values, sizeof values);
    clRetainMemObject(memory); /* to keep it longer */
    kiln_buffer_release(buffer);
    cr_assert_eq(
        clEnqueueReadBuffer(queue, memory, CL_TRUE, 0, sizeof result, result, 0, NULL, NULL),
        CL_SUCCESS);
    clReleaseMemObject(memory);
    close_context(context);
}

Test(interop, refuses_memory_that_does_not_fit)
{
    struct own own = open_own();
    kiln_context *context = adopt(&own, own.queue), *other = open_context();
    cl_mem memory = make_memory(own.context, 100);
    kiln_buffer *buffer = (kiln_buffer *)&own;
    const size_t fits = 25, too_many = 26;
    expect_error(kiln_buffer_create_cl(context, memory, KILN_F32, 1, &too_many, &buffer),
                 KILN_TOO_LARGE,
                 "kiln_buffer_create_cl: a tensor of 104 bytes does not fit a cl_mem of 100");
    cr_expect_null(buffer);
    expect_error(kiln_buffer_create_cl(other, memory, KILN_F32, 1, &fits, &buffer),
                 KILN_INVALID_ARGUMENT,
                 "kiln_buffer_create_cl: the cl_mem is of another cl_context");
    expect_error(kiln_buffer_create_cl(context, NULL, KILN_F32, 1, &fits, &buffer),
                 KILN_INVALID_ARGUMENT, "kiln_buffer_create_cl: memory is NULL");
    expect_error(kiln_buffer_create_cl(context, memory, KILN_F32, 1, &fits, NULL),
                 KILN_INVALID_ARGUMENT, "kiln_buffer_create_cl: buffer is NULL");
    expect_ok(kiln_buffer_create_cl(context, memory, KILN_F32, 1, &fits, &buffer));
    kiln_buffer_release(buffer);
    clReleaseMemObject(memory);
    close_context(other);
    close_context(context);
    close_own(own);
}

/* The caller's commands and kiln's are one sequence. */
Test(interop, takes_turns_with_the_callers_commands)
{
    struct own own = open_own();
    kiln_context *context = adopt(&own, own.queue);
    const float zero = 0;
    kiln_buffer *buffer = make_buffer(context, 1, &zero);
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor one = kiln_constant(batch, KILN_F32, 1);
    expect_ok(kiln_export(batch, kiln_add(batch, kiln_import(batch, buffer), one), buffer));
    float seen[20];
    for (int i = 0; i < 20; i++) {
        expect_ok(kiln_batch_submit(batch, NULL));
        cr_assert_eq(clEnqueueReadBuffer(own.queue, kiln_buffer_cl(buffer), CL_FALSE, 0, 4,
                                         &seen[i], 0, NULL, NULL),
                     CL_SUCCESS);
    }
    cr_assert_eq(clFinish(own.queue), CL_SUCCESS);
    for (int i = 0; i < 20; i++)
        cr_expect_eq(seen[i], (float)(i + 1));
    kiln_batch_release(batch);
    kiln_buffer_release(buffer);
    close_context(context);
    close_own(own);
}
