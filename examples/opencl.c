/* SPDX-License-Identifier: Apache-2.0 */
/* A program with OpenCL code of its own lends its queue and its memory to kiln: its kernel writes,
 * kiln computes with that and its kernel goes on, all in one queue and without a copy.
 * doc/opencl.md tells it step by step. */
#include <kiln/opencl.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 1 << 20 };

static const char text[] =
    "kernel void fill(global float *x) { x[get_global_id(0)] = get_global_id(0) % 100 * 0.01f; }\n"
    "kernel void add(global float *y, global const float *x) {\n"
    "    y[get_global_id(0)] += x[get_global_id(0)];\n"
    "}\n";

static _Noreturn void stop(const char *what)
{
    fprintf(stderr, "opencl: %s: %s\n", what, kiln_last_error());
    exit(1);
}

static void told(cl_int code, const char *what)
{
    if (code)
        fprintf(stderr, "opencl: %s: error %d\n", what, (int)code), exit(1);
}

/* The program's own objects, on the device that kiln would take. */
struct own {
    cl_device_id device;
    cl_context context;
    cl_command_queue queue;
    cl_program program;
    cl_mem x, y;
};

static void open_own(struct own *own)
{
    cl_int code;
    kiln_context *context;
    if (kiln_context_create(NULL, &context) || kiln_context_cl(context, NULL, &own->device, NULL))
        stop("no device");
    own->context = clCreateContext(NULL, 1, &own->device, NULL, NULL, &code);
    told(code, "clCreateContext");
    kiln_context_release(context);
    own->queue = clCreateCommandQueue(own->context, own->device, 0, &code);
    told(code, "clCreateCommandQueue");
    own->x = clCreateBuffer(own->context, CL_MEM_READ_WRITE, N * sizeof(float), NULL, &code);
    told(code, "clCreateBuffer");
    own->y = clCreateBuffer(own->context, CL_MEM_READ_WRITE, N * sizeof(float), NULL, &code);
    told(code, "clCreateBuffer");
    own->program = clCreateProgramWithSource(own->context, 1, (const char *[]){text}, NULL, &code);
    told(code, "clCreateProgramWithSource");
    told(clBuildProgram(own->program, 1, &own->device, "", NULL, NULL), "clBuildProgram");
}

/* Enqueue a kernel of its own; nothing is waited for. */
static void enqueue(const struct own *own, const char *name, cl_mem first, const cl_mem *second)
{
    const size_t items = N;
    cl_int code;
    cl_kernel kernel = clCreateKernel(own->program, name, &code);
    told(code, "clCreateKernel");
    told(clSetKernelArg(kernel, 0, sizeof first, &first), "clSetKernelArg");
    if (second)
        told(clSetKernelArg(kernel, 1, sizeof *second, second), "clSetKernelArg");
    told(clEnqueueNDRangeKernel(own->queue, kernel, 1, NULL, &items, NULL, 0, NULL, NULL), name);
    clReleaseKernel(kernel);
}

static void close_own(struct own *own)
{
    clReleaseMemObject(own->x);
    clReleaseMemObject(own->y);
    clReleaseProgram(own->program);
    clReleaseCommandQueue(own->queue);
    clReleaseContext(own->context);
}

int main(void)
{
    struct own own;
    kiln_context *context;
    kiln_buffer *x, *y;
    const size_t n = N;
    static float result[N];
    open_own(&own);

    /* kiln works in this queue, on this memory. */
    if (kiln_context_create_cl(own.context, own.device, own.queue, NULL, &context) ||
        kiln_buffer_create_cl(context, own.x, KILN_F32, 1, &n, &x) ||
        kiln_buffer_create_cl(context, own.y, KILN_F32, 1, &n, &y))
        stop("objects are not taken");

    /* y = tanh(x) * 2, recorded once. */
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor made = kiln_scale(batch, kiln_tanh(batch, kiln_import(batch, x)), 2);
    if (kiln_export(batch, made, y))
        stop("recording");

    /* Own kernel, kiln, own kernel: the queue keeps the order. */
    enqueue(&own, "fill", own.x, NULL);
    if (kiln_batch_submit(batch, NULL))
        stop("submitting");
    enqueue(&own, "add", own.y, &own.x);
    told(clEnqueueReadBuffer(own.queue, own.y, CL_TRUE, 0, sizeof result, result, 0, NULL, NULL),
         "clEnqueueReadBuffer");

    for (int i = 0; i < N; i++) {
        const double value = (double)(float)(i % 100 * 0.01f);
        if (!(fabs((double)result[i] - (2 * tanh(value) + value)) < 1e-5))
            return fprintf(stderr, "opencl: element %d is %g\n", i, (double)result[i]), 1;
    }
    kiln_batch_release(batch);
    kiln_buffer_release(x);
    kiln_buffer_release(y);
    kiln_context_release(context);
    close_own(&own);
    printf("ok: %d elements through two kernels of this program and one of kiln's\n", N);
    return 0;
}
