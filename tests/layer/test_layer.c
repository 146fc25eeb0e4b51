/* SPDX-License-Identifier: Apache-2.0 */
/* The layer itself: against a small OpenCL program whose calls are known. Run with
 * OPENCL_LAYERS=.../kiln-layer.so. */
#include <criterion/criterion.h>
#include <string.h>
#include <unistd.h>

#define CL_TARGET_OPENCL_VERSION 120
#define CL_USE_DEPRECATED_OPENCL_2_0_APIS
#include <CL/cl.h>

#include "../support/layer.h"

enum { N = 64, BYTES = N * sizeof(float) };

static cl_platform_id platform;
static cl_device_id device;
static cl_context context;
static cl_command_queue queue;
static cl_uint references_at_start;

/* What the driver itself says: objects of a context keep it alive, commands their queue. So this
 * shows what the layer made or took back without telling. */
static cl_uint driver_references(void)
{
    cl_uint of_context = 0, of_queue = 0;
    clGetContextInfo(context, CL_CONTEXT_REFERENCE_COUNT, sizeof of_context, &of_context, NULL);
    clGetCommandQueueInfo(queue, CL_QUEUE_REFERENCE_COUNT, sizeof of_queue, &of_queue, NULL);
    return of_context + of_queue;
}

static void start(void)
{
    if (!layer_available())
        cr_skip_test("OPENCL_LAYERS does not name the layer");
    cr_assert_eq(clGetPlatformIDs(1, &platform, NULL), CL_SUCCESS);
    cr_assert_eq(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL), CL_SUCCESS);
    context = clCreateContext(NULL, 1, &device, NULL, NULL, NULL);
    queue = clCreateCommandQueue(context, device, 0, NULL);
    cr_assert(context && queue);
    references_at_start = driver_references();
    layer_reset();
}

/* A driver lets go of finished commands when it comes to it. */
static bool driver_let_go(void)
{
    for (int tries = 0; tries < 300000 && driver_references() != references_at_start; tries++)
        usleep(1000);
    return driver_references() == references_at_start;
}

/* The last line of every test: Criterion 2.4 does not count failures in .fini. */
static void stop(void)
{
    layer_fail(0, NULL, 0, KILN_LAYER_ONCE, KILN_LAYER_CALL);
    clFinish(queue);
    cr_assert(driver_let_go(), "the driver still holds objects");
    clReleaseCommandQueue(queue);
    clReleaseContext(context);
    cr_assert_eq(layer_count("alive"), 0, "%s", layer_snapshot());
}

TestSuite(layer, .init = start, .timeout = 300);

/* y = x + 1 from a buffer back into the same array. Everything is released on every way out;
 * returns the first error. */
struct work {
    cl_mem memory;
    cl_program program;
    cl_kernel kernel;
    cl_event event;
    cl_int code;
};

static bool prepare(struct work *work)
{
    const char *text = "kernel void plus_one(global float *x) { x[get_global_id(0)] += 1; }";
    work->memory = clCreateBuffer(context, CL_MEM_READ_WRITE, BYTES, NULL, &work->code);
    if (!work->code)
        work->program = clCreateProgramWithSource(context, 1, &text, NULL, &work->code);
    if (!work->code)
        work->code = clBuildProgram(work->program, 1, &device, "", NULL, NULL);
    if (!work->code)
        work->kernel = clCreateKernel(work->program, "plus_one", &work->code);
    if (!work->code)
        work->code = clSetKernelArg(work->kernel, 0, sizeof work->memory, &work->memory);
    return !work->code;
}

static void launch(struct work *work, float *x)
{
    const size_t size = N;
    work->code = clEnqueueWriteBuffer(queue, work->memory, CL_FALSE, 0, BYTES, x, 0, NULL, NULL);
    if (!work->code)
        work->code =
            clEnqueueNDRangeKernel(queue, work->kernel, 1, NULL, &size, NULL, 0, NULL, NULL);
    if (!work->code)
        work->code =
            clEnqueueReadBuffer(queue, work->memory, CL_FALSE, 0, BYTES, x, 0, NULL, &work->event);
    if (!work->code)
        work->code = clWaitForEvents(1, &work->event);
}

static cl_int plus_one(float *x)
{
    struct work work = {0};
    if (prepare(&work))
        launch(&work, x);
    clFinish(queue);
    if (work.event)
        clReleaseEvent(work.event);
    if (work.kernel)
        clReleaseKernel(work.kernel);
    if (work.program)
        clReleaseProgram(work.program);
    if (work.memory)
        clReleaseMemObject(work.memory);
    return work.code;
}

Test(layer, counts_calls_and_bytes)
{
    float x[N] = {0};
    cr_assert_eq(plus_one(x), CL_SUCCESS);
    cr_assert_eq(x[N - 1], 1);
    cr_assert_eq(layer_count("clBuildProgram"), 1);
    cr_assert_eq(layer_count("clCreateBuffer"), 1);
    cr_assert_eq(layer_count("upload.count"), 1);
    cr_assert_eq(layer_count("upload.bytes"), BYTES);
    cr_assert_eq(layer_count("download.bytes"), BYTES);
    cr_assert_eq(layer_count("allocated.bytes"), BYTES);
    cr_assert_eq(layer_count("launches"), 1);
    cr_assert_eq(layer_count("source_programs"), 1);
    cr_assert_eq(layer_count("binary_programs"), 0);
    cr_assert_eq(layer_count("eligible.event"), 1);
    cr_assert_eq(layer_count("no such key"), UINT64_MAX);
    cr_assert(strstr(layer_snapshot(), "\nlaunches=1\n"));
    layer_reset();
    cr_assert_eq(layer_count("launches"), 0);
    stop();
}

Test(layer, keeps_the_balance)
{
    cl_mem memory = clCreateBuffer(context, 0, 4096, NULL, NULL);
    cl_buffer_region half = {0, 2048};
    cl_mem sub = clCreateSubBuffer(memory, 0, CL_BUFFER_CREATE_TYPE_REGION, &half, NULL);
    cl_event user = clCreateUserEvent(context, NULL), marker;
    cr_assert_eq(clEnqueueMarkerWithWaitList(queue, 0, NULL, &marker), CL_SUCCESS);
    cr_assert_eq(clRetainMemObject(memory), CL_SUCCESS);
    cr_assert_eq(layer_count("alive.mem"), 3);
    cr_assert_eq(layer_count("created.mem"), 2);
    cr_assert_eq(layer_count("alive.event"), 2);
    cr_assert_eq(layer_count("alive"), 3 + 2 + 2); /* and the context and the queue */
    clSetUserEventStatus(user, CL_COMPLETE);
    clFinish(queue);
    clReleaseEvent(user);
    clReleaseEvent(marker);
    clReleaseMemObject(sub);
    clReleaseMemObject(memory);
    cr_assert_eq(layer_count("alive.mem"), 1);
    clReleaseMemObject(memory);
    cr_assert_eq(layer_count("alive"), 2);
    stop();
}

Test(layer, counts_kernels_of_a_program)
{
    const char *text = "kernel void a(global int *x) { *x = 1; } kernel void b(int y) { }";
    cl_program program = clCreateProgramWithSource(context, 1, &text, NULL, NULL);
    cl_kernel kernels[2];
    cr_assert_eq(clBuildProgram(program, 1, &device, "", NULL, NULL), CL_SUCCESS);
    layer_fail_next("clCreateKernelsInProgram", CL_OUT_OF_HOST_MEMORY, KILN_LAYER_AFTER);
    cr_assert_eq(clCreateKernelsInProgram(program, 2, kernels, NULL), CL_OUT_OF_HOST_MEMORY);
    cr_assert_eq(layer_count("alive.kernel"), 0);
    cr_assert_eq(clCreateKernelsInProgram(program, 2, kernels, NULL), CL_SUCCESS);
    cr_assert_eq(layer_count("alive.kernel"), 2);
    clReleaseKernel(kernels[0]);
    clReleaseKernel(kernels[1]);
    clReleaseProgram(program);
    stop();
}

/* Fail call 1, 2, ... until the work gets through unharmed. Returns the number of failures. */
static unsigned long sweep(enum kiln_layer_mode mode, enum kiln_layer_where where, cl_int code)
{
    for (unsigned long n = 1;; n++) {
        float x[N] = {0};
        layer_fail(n, NULL, code, mode, where);
        cl_int answer = plus_one(x);
        bool hit = layer_failures() > 0;
        cr_assert_eq(layer_count("alive"), 2, "failure %lu:\n%s", n, layer_snapshot());
        layer_reset();
        if (!hit) {
            cr_assert_eq(answer, CL_SUCCESS);
            cr_assert_eq(x[0], 1);
            return n - 1;
        }
        bool in_finish = mode == KILN_LAYER_ONCE && where != KILN_LAYER_EVENT && n == 10;
        cr_assert(in_finish || answer < 0, "failure %lu went unseen", n);
    }
}

/* create buffer, program, build, kernel, argument, write, launch, read, wait, finish */
Test(layer, fails_every_call_in_turn)
{
    cr_assert_eq(sweep(KILN_LAYER_ONCE, KILN_LAYER_CALL, -5), 10);
    cr_assert_eq(sweep(KILN_LAYER_ONCE, KILN_LAYER_AFTER, -4), 10);
    stop();
}

Test(layer, fails_every_call_from_one_on)
{
    float x[N] = {0};
    layer_fail(3, NULL, -6, KILN_LAYER_FOREVER, KILN_LAYER_CALL);
    cr_assert_eq(plus_one(x), -6);
    cr_assert_eq(layer_failures(), 2); /* the build, then clFinish on the way out */
    cr_assert(strstr(layer_snapshot(), "failed=clFinish\n"));
    layer_reset();
    cr_assert_eq(plus_one(x), CL_SUCCESS);
    stop();
}

Test(layer, fails_by_name)
{
    float x[N] = {0};
    cr_assert_not(layer_fail_next("clEnqueueNothing", -5, KILN_LAYER_CALL));
    cr_assert_eq(clFlush(queue), CL_SUCCESS); /* an unknown name arms nothing */
    cr_assert(layer_fail_next("clEnqueueNDRangeKernel", -5, KILN_LAYER_CALL));
    cr_assert_eq(plus_one(x), -5);
    cr_assert_eq(layer_count("launches"), 0);
    cr_assert_eq(layer_count("upload.count"), 1);
    cr_assert(layer_fail_next("clEnqueueNDRangeKernel", -5, KILN_LAYER_AFTER));
    cr_assert_eq(plus_one(x), -5);
    cr_assert_eq(layer_count("launches"), 1);
    stop();
}

Test(layer, a_transfer_has_ended_when_it_is_said_to_have_failed)
{
    for (int i = 0; i < 100; i++) {
        float x[N] = {0}, one = 1;
        cl_mem memory = clCreateBuffer(context, 0, BYTES, NULL, NULL);
        cr_assert_eq(clEnqueueFillBuffer(queue, memory, &one, sizeof one, 0, BYTES, 0, NULL, NULL),
                     CL_SUCCESS);
        layer_fail_next("clEnqueueReadBuffer", -5, KILN_LAYER_AFTER);
        cr_assert_eq(clEnqueueReadBuffer(queue, memory, CL_FALSE, 0, BYTES, x, 0, NULL, NULL), -5);
        cr_assert_eq(x[N - 1], 1);
        clReleaseMemObject(memory);
    }
    stop();
}

Test(layer, fails_in_an_event)
{
    cr_assert_eq(sweep(KILN_LAYER_ONCE, KILN_LAYER_EVENT, -5), 1);
    float x[N] = {0};
    layer_fail_next(NULL, -6, KILN_LAYER_EVENT);
    cr_assert_eq(plus_one(x), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    cr_assert_eq(x[0], 0); /* nothing was read back */
    stop();
}

Test(layer, an_event_has_failed_when_its_queue_is_finished)
{
    for (int i = 0; i < 200; i++) {
        cl_event event;
        cl_int status;
        layer_fail_next("clEnqueueMarkerWithWaitList", -6, KILN_LAYER_EVENT);
        cr_assert_eq(clEnqueueMarkerWithWaitList(queue, 0, NULL, &event), CL_SUCCESS);
        cr_assert_eq(clFinish(queue), CL_SUCCESS);
        clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL);
        cr_assert_eq(status, -6);
        cr_assert_eq(layer_count("alive.event"), 1);
        clReleaseEvent(event);
    }
    stop();
}

static cl_int write_after(const cl_event *before, cl_mem memory, const float *x, cl_bool blocking,
                          cl_event *event)
{
    return clEnqueueWriteBuffer(queue, memory, blocking, 0, BYTES, x, 1, before, event);
}

Test(layer, a_command_fails_with_the_event_it_waits_for)
{
    float x[N] = {0};
    cl_mem memory = clCreateBuffer(context, 0, BYTES, NULL, NULL);
    cl_event first, second, other = NULL;
    layer_fail_next(NULL, -5, KILN_LAYER_EVENT);
    cr_assert_eq(clEnqueueMarkerWithWaitList(queue, 0, NULL, &first), CL_SUCCESS);
    cr_assert_eq(clWaitForEvents(1, &first), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    cr_assert_eq(write_after(&first, memory, x, CL_FALSE, &second), CL_SUCCESS);
    cr_assert_eq(clWaitForEvents(1, &second), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    cr_assert_eq(write_after(&second, memory, x, CL_TRUE, &other),
                 CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    cr_assert_null(other);
    cr_assert_eq(layer_failures(), 1);
    clRetainEvent(first);
    clReleaseEvent(first);
    clReleaseEvent(first);
    clReleaseEvent(second);
    cr_assert_eq(layer_count("alive.event"), 0);
    clReleaseMemObject(memory);
    stop();
}

Test(layer, takes_back_a_map)
{
    cl_mem memory = clCreateBuffer(context, 0, BYTES, NULL, NULL);
    cl_event event = NULL;
    cl_int code;
    layer_fail_next("clEnqueueMapBuffer", -12, KILN_LAYER_AFTER);
    cr_assert_null(
        clEnqueueMapBuffer(queue, memory, CL_TRUE, CL_MAP_WRITE, 0, BYTES, 0, NULL, &event, &code));
    cr_assert_eq(code, -12);
    cr_assert_null(event);
    cl_uint maps = 9;
    cr_assert_eq(clFinish(queue), CL_SUCCESS);
    clGetMemObjectInfo(memory, CL_MEM_MAP_COUNT, sizeof maps, &maps, NULL);
    cr_assert_eq(maps, 0);
    void *address =
        clEnqueueMapBuffer(queue, memory, CL_TRUE, CL_MAP_WRITE, 0, BYTES, 0, NULL, NULL, &code);
    cr_assert(address && !code);
    cr_assert_eq(layer_count("map.bytes"), 2 * BYTES);
    cr_assert_eq(clEnqueueUnmapMemObject(queue, memory, address, 0, NULL, NULL), CL_SUCCESS);
    cr_assert_eq(clFinish(queue), CL_SUCCESS);
    clReleaseMemObject(memory);
    cr_assert_eq(layer_count("alive.mem"), 0);
    stop();
}
