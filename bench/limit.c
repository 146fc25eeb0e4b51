/* SPDX-License-Identifier: Apache-2.0 */
/* Roofline measurements: peak bandwidth and arithmetic by small OpenCL kernels and C loops. */
#include "limit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/opencl.h>

#include "peer_limit.h"

#define CHAINS 8 /* of float16: enough to cover the latency */
#define ITEMS ((size_t)1 << 18)
#define FLOPS_OF_ITEM (2.0 * 16 * CHAINS * 256)
#define LEAST_BYTES ((size_t)1 << 18)
#define MOST_BYTES ((size_t)1 << 31)
#define SAMPLES 9
#define MOST_GROUP 1024 /* work-items, on a CPU */
#define MOST_OVER 1.05  /* of the limit */
#define TRIES 2         /* of measuring again: memory, and what may limit the row then */

static const char *const source =
    "#define LANES 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15\n"
    "kernel void adds(global float *y) {\n"
    "  float16 a[8], f = get_global_id(0) * 1e-9f + (float16)(LANES) * 1e-3f;\n"
    "  for (int i = 0; i < 8; i++) a[i] = f + i;\n"
    "  for (int k = 0; k < 256; k++)\n"
    "    for (int i = 0; i < 8; i++) a[i] = fma(a[i], f, f);\n"
    "  float16 s = 0;\n"
    "  for (int i = 0; i < 8; i++) s += a[i];\n"
    "  float8 t = s.lo + s.hi;\n"
    "  float4 u = t.lo + t.hi;\n"
    "  if (u.x + u.y + u.z + u.w == 12345.f) y[0] = u.x;\n"
    "}\n"
    "kernel void move(global const float4 *x, global float4 *y) {\n"
    "  y[get_global_id(0)] = x[get_global_id(0)];\n"
    "}\n"
    "kernel void look(global const float4 *x, global float4 *y, uint step) {\n"
    "  float4 s = 0;\n"
    "  for (uint i = 0; i < 16; i++) s += x[get_global_id(0) + i * step];\n"
    "  if (s.x + s.y + s.z + s.w == 12345.f) y[0] = s;\n"
    "}\n";

static struct device {
    cl_context context;
    cl_device_id id;
    cl_command_queue queue;
    cl_program program;
    cl_kernel adds, move, look;
    size_t units;
    bool is_cpu;
} device;

static void ok(cl_int code, const char *what)
{
    if (code)
        bench_fail("measuring the device's limits: %s: OpenCL error %d", what, code);
}

static cl_kernel make_kernel(const char *name)
{
    cl_int code;
    cl_kernel kernel = clCreateKernel(device.program, name, &code);
    ok(code, name);
    return kernel;
}

static void open_device(kiln_context *context)
{
    kiln_device_info info;
    cl_int code;
    if (device.program)
        return;
    bench_ok(kiln_context_cl(context, &device.context, &device.id, &device.queue), "the device");
    bench_ok(kiln_context_device(context, &info), "the device");
    device.is_cpu = info.type == KILN_DEVICE_CPU;
    device.units = info.compute_units;
    device.program =
        clCreateProgramWithSource(device.context, 1, (const char **)&source, NULL, &code);
    ok(code, "a program");
    ok(clBuildProgram(device.program, 1, &device.id, "", NULL, NULL), "compiling");
    device.adds = make_kernel("adds");
    device.move = make_kernel("move");
    device.look = make_kernel("look");
}

/* ---- how long something takes at best ---- */

struct
try {
    void (*run)(const struct try *try);
    cl_kernel kernel;
    size_t items, floats;
    float *x, *y;
};

/* So that each core has several groups. A driver that chooses may make as few as it can, and one
 * core does all (PoCL). */
static size_t group_on_cpu(size_t items)
{
    size_t group = MOST_GROUP;
    while (group > 1 && items / group < 4 * device.units)
        group /= 2;
    return group;
}

static void run_kernel(const struct try *try)
{
    size_t group = group_on_cpu(try->items);
    ok(clEnqueueNDRangeKernel(device.queue, try->kernel, 1, NULL, &try->items,
                              device.is_cpu ? &group : NULL, 0, NULL, NULL),
       "a launch");
}

static void run_read(const struct try *try)
{
    peer_limit_read(try->floats, try->x);
}

static void run_copy(const struct try *try)
{
    peer_limit_copy(try->floats, try->x, try->y);
}

static void run_adds(const struct try *try)
{
    peer_limit_adds(try->items);
}

/* As many as take a millisecond, after one that warms up; the quickest such sample. */
static double seconds_of(const struct try *try)
{
    double best = INFINITY;
    size_t runs = 1;
    for (int sample = 0; sample < SAMPLES; sample++) {
        double start = bench_now();
        for (size_t i = 0; i < runs; i++)
            try->run(try);
        ok(clFinish(device.queue), "waiting");
        double seconds = bench_now() - start;
        if (sample > 0)
            best = fmin(best, seconds / (double)runs);
        else if (seconds < 2e-3)
            runs = (size_t)(2e-3 / seconds) + 1;
    }
    return best;
}

/* ---- memory ---- */

static double device_bandwidth(size_t bytes)
{
    cl_int code, other;
    cl_mem x = clCreateBuffer(device.context, CL_MEM_READ_WRITE, bytes, NULL, &code);
    cl_mem y = clCreateBuffer(device.context, CL_MEM_READ_WRITE, bytes / 2, NULL, &other);
    cl_float zero = 0;
    cl_uint step = (cl_uint)(bytes / 16 / 16);
    ok(code ? code : other, "memory");
    ok(clEnqueueFillBuffer(device.queue, x, &zero, sizeof zero, 0, bytes, 0, NULL, NULL),
       "filling");
    ok(clEnqueueFillBuffer(device.queue, y, &zero, sizeof zero, 0, bytes / 2, 0, NULL, NULL),
       "filling");
    ok(clFinish(device.queue), "filling");
    ok(clSetKernelArg(device.move, 0, sizeof x, &x) | clSetKernelArg(device.move, 1, sizeof y, &y) |
           clSetKernelArg(device.look, 0, sizeof x, &x) |
           clSetKernelArg(device.look, 1, sizeof y, &y) |
           clSetKernelArg(device.look, 2, sizeof step, &step),
       "arguments");
    double copy =
        seconds_of(&(struct try){.run = run_kernel, .kernel = device.move, .items = bytes / 32});
    double read =
        seconds_of(&(struct try){.run = run_kernel, .kernel = device.look, .items = step});
    clReleaseMemObject(x);
    clReleaseMemObject(y);
    return (double)bytes / fmin(copy, read);
}

static double host_bandwidth(size_t bytes)
{
    size_t floats = bytes / sizeof(float);
    float *x = bench_memory(bytes), *y = bench_memory(bytes / 2);
    double read = seconds_of(&(struct try){.run = run_read, .floats = floats, .x = x});
    double copy = seconds_of(&(struct try){.run = run_copy, .floats = floats / 2, .x = x, .y = y});
    free(x);
    free(y);
    return (double)bytes / fmin(copy, read);
}

/* Of rows of up to that many bytes, by powers of two. */
static double bandwidth(double wanted, bool again)
{
    static double known[64];
    size_t bytes = LEAST_BYTES, place = 0;
    for (; (double)bytes < wanted && bytes < MOST_BYTES; bytes *= 2)
        place++;
    if (known[place] == 0 || again) {
        double found = fmax(device_bandwidth(bytes), device.is_cpu ? host_bandwidth(bytes) : 0);
        known[place] = fmax(known[place], found);
    }
    return known[place];
}

/* ---- arithmetic ---- */

static double measure_arithmetic(void)
{
    cl_int code;
    cl_mem y = clCreateBuffer(device.context, CL_MEM_READ_WRITE, 64, NULL, &code);
    ok(code, "memory");
    ok(clSetKernelArg(device.adds, 0, sizeof y, &y), "arguments");
    size_t items = device.is_cpu ? ITEMS / 16 : ITEMS;
    double seconds =
        seconds_of(&(struct try){.run = run_kernel, .kernel = device.adds, .items = items});
    double found = FLOPS_OF_ITEM * (double)items / seconds;
    if (device.is_cpu) {
        seconds = seconds_of(&(struct try){.run = run_adds, .items = items});
        found = fmax(found, (double)items * PEER_LIMIT_FLOPS / seconds);
    }
    clReleaseMemObject(y);
    return found;
}

static double arithmetic(bool again)
{
    static double known;
    if (known == 0 || again)
        known = fmax(known, measure_arithmetic());
    return known;
}

/* ---- a row's ---- */

static struct limit find(double flops, double bytes)
{
    double memory = bytes / bandwidth(bytes, false);
    double work = flops > 0 ? flops / arithmetic(false) : 0;
    return work > memory ? (struct limit){work, "arithmetic"} : (struct limit){memory, "memory"};
}

static void measure_again(const struct limit *limit, double bytes)
{
    if (!strcmp(limit->of, "arithmetic"))
        printf("  again    %.4g GFLOP/s\n", 1e-9 * arithmetic(true));
    else
        printf("  again    %.4g GB/s, of %.3g MB\n", 1e-9 * bandwidth(bytes, true), 1e-6 * bytes);
}

struct limit limit_of(kiln_context *context, double flops, double bytes, double quickest)
{
    if (flops + bytes <= 0)
        return (struct limit){0, ""};
    open_device(context);
    struct limit limit = find(flops, bytes);
    for (int try = 0; try < TRIES && limit.seconds > MOST_OVER * quickest; try++) {
        measure_again(&limit, bytes);
        limit = find(flops, bytes);
    }
    return limit;
}

void limit_print(kiln_context *context)
{
    open_device(context);
    printf("  limits   %.4g GB/s, %.4g GFLOP/s of multiply-adds in f32\n",
           1e-9 * bandwidth(1e9, false), 1e-9 * arithmetic(false));
}
