/* SPDX-License-Identifier: Apache-2.0 */
/* What running a recorded batch again costs on top of the OpenCL calls that it makes.
 *
 * This program's own clEnqueueNDRangeKernel stands before the loader's: it notes the launches of
 * one run, and the bare way makes just these again by hand. With the counting layer loaded
 * (OPENCL_LAYERS), the calls of one run are printed, too. */
#define _GNU_SOURCE
#include "bench.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <kiln/opencl.h>

#include "../tests/support/layer.h"

#define MOST_LAUNCHES 16

/* In a row, so that code and data are where they are in a busy program. */
#define SUBMISSIONS 50

static const struct size {
    const char *name;
    size_t first, step; /* elements of operation i: first + i * step */
    bool chained;       /* the operations form one chain */
} sizes[] = {
    {"8 operations in 8 launches, 1000 elements", 1000, 8, false},
    {"8 operations in 1 launch, 1000 elements", 1000, 0, true},
    {"8 operations in 8 launches, 16 elements", 16, 8, false},
    {"8 operations in 8 launches, 500000 elements", 500000, 8, false},
};
#define MOST_ELEMENTS 500100

typedef cl_int enqueue_kernel(cl_command_queue, cl_kernel, cl_uint, const size_t *, const size_t *,
                              const size_t *, cl_uint, const cl_event *, cl_event *);

static struct launch {
    cl_kernel kernel;
    cl_uint dimensions;
    size_t global[3], local[3];
    bool has_local;
} launches[MOST_LAUNCHES];
static size_t launch_count;
static bool noting;
static enqueue_kernel *loaders; /* the OpenCL loader's function */

static struct work {
    kiln_context *context;
    cl_command_queue queue;
    kiln_batch *batch;
    kiln_buffer *inputs[8], *outputs[8];
    const struct size *size;
    const float *x;
} work;

static void note(cl_kernel kernel, cl_uint dimensions, const size_t *global, const size_t *local)
{
    if (launch_count == MOST_LAUNCHES)
        bench_fail("more launches than expected");
    struct launch *launch = &launches[launch_count++];
    *launch = (struct launch){.kernel = kernel, .dimensions = dimensions, .has_local = local};
    memcpy(launch->global, global, dimensions * sizeof *global);
    if (local)
        memcpy(launch->local, local, dimensions * sizeof *local);
}

CL_API_ENTRY cl_int CL_API_CALL clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel,
                                                       cl_uint dimensions, const size_t *offset,
                                                       const size_t *global, const size_t *local,
                                                       cl_uint waits, const cl_event *wait_list,
                                                       cl_event *event)
{
    if (!loaders)
        loaders = (enqueue_kernel *)dlsym(RTLD_NEXT, "clEnqueueNDRangeKernel");
    if (noting)
        note(kernel, dimensions, global, local);
    return loaders(queue, kernel, dimensions, offset, global, local, waits, wait_list, event);
}

/* ---- ways ---- */

static void run_kiln(void *user)
{
    (void)user;
    bench_ok(kiln_batch_execute(work.batch), "the batch");
}

/* The same kernels with the arguments that they still have, one event for the last. */
static cl_event enqueue_bare(void)
{
    cl_event done = NULL;
    cl_int code = CL_SUCCESS;
    for (size_t i = 0; i < launch_count && !code; i++) {
        const struct launch *launch = &launches[i];
        code = loaders(work.queue, launch->kernel, launch->dimensions, NULL, launch->global,
                       launch->has_local ? launch->local : NULL, 0, NULL,
                       i + 1 == launch_count ? &done : NULL);
    }
    if (code || clFlush(work.queue))
        bench_fail("a bare OpenCL call failed");
    return done;
}

static void run_bare(void *user)
{
    cl_event done = enqueue_bare();
    (void)user;
    if (clWaitForEvents(1, &done) || clReleaseEvent(done))
        bench_fail("a bare OpenCL call failed");
}

/* The calling thread's own work in the same two, up to where the calls return: neither the device
 * nor another process counts. */
static double thread_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void submit_kiln(void *user)
{
    double spent = 0;
    for (int i = 0; i < SUBMISSIONS; i++) {
        kiln_event *event;
        double start = thread_seconds();
        bench_ok(kiln_batch_submit(work.batch, &event), "the batch");
        spent += thread_seconds() - start;
        bench_ok(kiln_event_wait(event), "waiting");
        kiln_event_release(event);
    }
    *(double *)user = spent / SUBMISSIONS;
}

static void submit_bare(void *user)
{
    double spent = 0;
    for (int i = 0; i < SUBMISSIONS; i++) {
        double start = thread_seconds();
        cl_event done = enqueue_bare();
        spent += thread_seconds() - start;
        if (clWaitForEvents(1, &done) || clReleaseEvent(done))
            bench_fail("a bare OpenCL call failed");
    }
    *(double *)user = spent / SUBMISSIONS;
}

static double read_seconds(void *user)
{
    return *(double *)user;
}

static bool check(void *user)
{
    size_t results = work.size->chained ? 1 : 8;
    (void)user;
    for (size_t r = 0; r < results; r++) {
        static float y[MOST_ELEMENTS];
        size_t count = work.size->first + r * work.size->step;
        double factor = work.size->chained ? 1.5 * 8 : 1.5;
        bench_ok(kiln_buffer_read(work.outputs[r], 0, y, count * sizeof *y), "reading");
        for (size_t i = 0; i < count; i++)
            if (y[i] != (float)(factor * work.x[i]))
                return false;
        memset(y, 0, count * sizeof *y);
        bench_ok(kiln_buffer_write(work.outputs[r], 0, y, count * sizeof *y), "writing");
    }
    return true;
}

/* ---- rows ---- */

static void make_buffers(size_t r)
{
    size_t count = work.size->first + r * work.size->step;
    bench_ok(kiln_buffer_create(work.context, KILN_F32, 1, &count, &work.inputs[r]), "a buffer");
    bench_ok(kiln_buffer_create(work.context, KILN_F32, 1, &count, &work.outputs[r]), "a buffer");
    bench_ok(kiln_buffer_write(work.inputs[r], 0, work.x, count * sizeof *work.x), "writing");
}

/* One chain: x * 1.5, doubled three times, and four times neither here nor there. */
static void record(void)
{
    kiln_tensor x = kiln_import(work.batch, work.inputs[0]);
    for (size_t r = 0; r < 8 && !work.size->chained; r++) {
        kiln_tensor y = kiln_scale(work.batch, kiln_import(work.batch, work.inputs[r]), 1.5);
        bench_ok(kiln_export(work.batch, y, work.outputs[r]), "recording");
    }
    if (!work.size->chained)
        return;
    x = kiln_scale(work.batch, x, 1.5);
    for (size_t i = 0; i < 3; i++)
        x = kiln_add(work.batch, x, x);
    for (size_t i = 0; i < 4; i++)
        x = kiln_neg(work.batch, x);
    bench_ok(kiln_export(work.batch, x, work.outputs[0]), "recording");
}

static void note_launches(void)
{
    bench_ok(kiln_batch_execute(work.batch), "the batch");
    bench_ok(kiln_context_sync_cache(work.context), "storing");
    launch_count = 0;
    noting = true;
    if (layer_available())
        layer_reset();
    bench_ok(kiln_batch_execute(work.batch), "the batch");
    noting = false;
    if (layer_available())
        printf("\ncalls of one run of \"%s\"\n%s", work.size->name, layer_snapshot());
}

static void measure(const struct size *size)
{
    static double submits[2];
    struct bench_row row = {.name = size->name, .unit = BENCH_US};
    work.size = size;
    work.batch = kiln_batch_create(work.context);
    for (size_t r = 0; r < 8; r++)
        make_buffers(r);
    record();
    note_launches();
    if (launch_count != (size->chained ? 1 : 8))
        bench_fail("%s: %zu launches", size->name, launch_count);
    bench_way(&row, "kiln", run_kiln, check, NULL);
    bench_peer(&row, "bare OpenCL calls", run_bare, check, NULL);
    bench_way(&row, "kiln, the thread's own work", submit_kiln, NULL, &submits[0])->seconds =
        read_seconds;
    bench_peer(&row, "bare, the thread's own work", submit_bare, NULL, &submits[1])->seconds =
        read_seconds;
    bench_limit(&row, "kiln", "bare OpenCL calls");
    bench_limit(&row, "kiln, the thread's own work", "bare, the thread's own work");
    bench_at_most(&row, "kiln", "bare OpenCL calls", 3e-6);
    bench_at_least(&row, "kiln", "bare OpenCL calls", 1 / 1.02);
    bench_at_most(&row, "kiln, the thread's own work", "bare, the thread's own work", 3e-6);
    bench_measure(&row);
    kiln_batch_release(work.batch);
    for (size_t r = 0; r < 8; r++) {
        kiln_buffer_release(work.inputs[r]);
        kiln_buffer_release(work.outputs[r]);
    }
}

int main(int argc, char **argv)
{
    static const struct bench_program program = {
        .name = "rerun", .purpose = "A recorded batch run again, beside the bare OpenCL calls"};
    setenv("KILN_ONE_LAUNCH", "off", 1); /* the same launches */
    work.context = bench_start(&program, argc, argv);
    bench_ok(kiln_context_cl(work.context, NULL, NULL, &work.queue), "asking for the queue");
    work.x = bench_floats(MOST_ELEMENTS, 1);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (bench_wants(sizes[i].name))
            measure(&sizes[i]);
    return bench_end(work.context);
}
