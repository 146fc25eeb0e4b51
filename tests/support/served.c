/* SPDX-License-Identifier: Apache-2.0 */
/* A row-sum executor for tests, with a gate that holds its device up. */
#include "support/served.h"

#include <criterion/criterion.h>
#include <time.h>

#include "support/context.h"

static kiln_status record_sums(kiln_batch *batch, size_t context, size_t rows,
                               const kiln_tensor *inputs, kiln_tensor *outputs, void *user)
{
    (void)context, (void)rows, (void)user;
    outputs[0] = kiln_sum(batch, inputs[0], 1, (const int[]){1}, 0);
    return KILN_OK;
}

static const kiln_row row = {.type = KILN_F32, .rank = 1, .dims = {SERVED_WIDTH}};
const kiln_model served_model = {.size = sizeof served_model,
                                 .record = record_sums,
                                 .input_count = 1,
                                 .inputs = &row,
                                 .output_count = 1};

kiln_executor_options served_options(size_t max_batch, size_t min_batch, uint64_t max_wait_us)
{
    kiln_executor_options options = KILN_EXECUTOR_OPTIONS_INIT;
    options.max_batch = max_batch;
    options.min_batch = min_batch;
    options.max_wait_us = max_wait_us ? max_wait_us : (uint64_t)3600 * 1000000;
    return options;
}

kiln_executor *served_create(kiln_context *context, const kiln_executor_options *options)
{
    kiln_executor *executor;
    expect_ok(kiln_executor_create(&context, 1, &served_model, options, &executor));
    return executor;
}

void served_end(kiln_executor *executor, kiln_context *context)
{
    kiln_executor_release(executor);
    close_context(context);
}

kiln_executor_stats served_stats(kiln_executor *executor)
{
    kiln_executor_stats stats;
    expect_ok(kiln_executor_get_stats(executor, &stats));
    return stats;
}

kiln_status served_try(kiln_executor *executor, const float *x, float *y, size_t rows,
                       const kiln_request_options *options, kiln_future **future)
{
    kiln_input input = {x, rows * SERVED_WIDTH * sizeof *x, KILN_F32};
    kiln_output output = {y, rows * sizeof *y, KILN_F32};
    return kiln_executor_submit(executor, &input, &output, rows, options, future);
}

kiln_future *served_submit(kiln_executor *executor, const float *x, float *y, size_t rows,
                           const kiln_request_options *options)
{
    kiln_future *future;
    expect_ok(served_try(executor, x, y, rows, options, &future));
    return future;
}

void served_fill(float *x, size_t rows, unsigned seed)
{
    fill(x, rows * SERVED_WIDTH, seed);
}

bool served_right(const float *x, const float *y, size_t rows)
{
    for (size_t i = 0; i < rows; i++) {
        float sum = 0;
        for (size_t k = 0; k < SERVED_WIDTH; k++)
            sum += x[i * SERVED_WIDTH + k];
        if (y[i] != sum)
            return false;
    }
    return true;
}

bool served_running(kiln_executor *executor, uint64_t requests)
{
    for (int i = 0; i < 300000; i++) {
        if (served_stats(executor).running == requests)
            return true;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return false;
}

cl_event gate_close(kiln_context *context)
{
    cl_context cl;
    cl_command_queue queue;
    cl_int code;
    expect_ok(kiln_context_cl(context, &cl, NULL, &queue));
    cl_event gate = clCreateUserEvent(cl, &code);
    cr_assert_eq(code, CL_SUCCESS);
    cr_assert_eq(clEnqueueBarrierWithWaitList(queue, 1, &gate, NULL), CL_SUCCESS);
    return gate;
}

void gate_open(cl_event gate)
{
    cr_assert_eq(clSetUserEventStatus(gate, CL_COMPLETE), CL_SUCCESS);
    clReleaseEvent(gate);
}
