/* SPDX-License-Identifier: Apache-2.0 */
/* The benchmarks' limits: measured by all cores, and again where a row is quicker. What measures
 * the host in plain C is a stand-in here, and so is the clock, so that nothing depends on what
 * else the machine does. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>

#include <kiln/opencl.h>

#include "../../bench/limit.h"
#include "../../bench/peer_limit.h"
#include "../support/context.h"

#define SLOW 0.02
#define QUICK 0.0001

static struct {
    double now;  /* seconds */
    double host; /* that a stand-in takes; a launch is slow */
    unsigned adds, reads;
    size_t fewest_groups; /* of all launches */
} seen = {.host = SLOW, .fewest_groups = SIZE_MAX};

void peer_limit_adds(size_t items)
{
    (void)items;
    seen.adds++;
    seen.now += seen.host;
}

void peer_limit_read(size_t n, const float *x)
{
    (void)n;
    (void)x;
    seen.reads++;
    seen.now += seen.host;
}

void peer_limit_copy(size_t n, const float *x, float *y)
{
    (void)y;
    peer_limit_read(n, x);
}

double bench_now(void)
{
    return seen.now;
}

void *bench_memory(size_t bytes)
{
    return calloc(1, bytes);
}

void bench_ok(kiln_status status, const char *what)
{
    cr_assert_eq(status, KILN_OK, "%s: %s", what, kiln_last_error());
}

void bench_fail(const char *format, ...)
{
    (void)format;
    cr_assert_fail("measuring failed");
    abort();
}

__typeof__(clEnqueueNDRangeKernel) __real_clEnqueueNDRangeKernel, __wrap_clEnqueueNDRangeKernel;

cl_int __wrap_clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions,
                                     const size_t *offset, const size_t *global,
                                     const size_t *local, cl_uint count, const cl_event *events,
                                     cl_event *event)
{
    size_t groups = local ? *global / *local : 1;
    if (groups < seen.fewest_groups)
        seen.fewest_groups = groups;
    seen.now += SLOW;
    return __real_clEnqueueNDRangeKernel(queue, kernel, dimensions, offset, global, local, count,
                                         events, event);
}

static kiln_context *open_cpu(kiln_device_info *info)
{
    kiln_context *context = open_context();
    expect_ok(kiln_context_device(context, info));
    if (info->type != KILN_DEVICE_CPU)
        cr_skip("only CPUs' limits are measured on the host, too");
    return context;
}

Test(limit, is_measured_with_all_cores)
{
    kiln_device_info info;
    kiln_context *context = open_cpu(&info);
    cr_expect_gt(limit_of(context, 1e9, 1e5, INFINITY).seconds, 0);
    cr_expect_geq(seen.fewest_groups, info.compute_units);
    close_context(context);
}

/* `*count` of the stand-in's calls goes up only where the row was more than a twentieth quicker. */
static void expect_again(double flops, double bytes, const unsigned *count)
{
    kiln_device_info info;
    kiln_context *context = open_cpu(&info);
    struct limit first = limit_of(context, flops, bytes, INFINITY);
    unsigned before = *count;
    struct limit close = limit_of(context, flops, bytes, 0.97 * first.seconds);
    cr_expect_eq(*count, before);
    cr_expect_eq(close.seconds, first.seconds);
    seen.host = QUICK;
    struct limit quicker = limit_of(context, flops, bytes, 0.9 * first.seconds);
    cr_expect_gt(*count, before);
    cr_expect_lt(quicker.seconds, first.seconds);
    seen.host = SLOW;
    before = *count;
    struct limit kept = limit_of(context, flops, bytes, 0.01 * quicker.seconds);
    cr_expect_gt(*count, before);
    cr_expect_eq(kept.seconds, quicker.seconds, "the better one counts");
    close_context(context);
}

Test(limit, of_arithmetic_is_measured_again_where_a_row_is_quicker)
{
    expect_again(1e12, 0, &seen.adds);
}

Test(limit, of_memory_is_measured_again_where_a_row_is_quicker)
{
    expect_again(0, 1e5, &seen.reads);
}
