/* SPDX-License-Identifier: Apache-2.0 */
/* What a batch runs, how often it can, and what it says of itself. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../support/context.h"

enum { N = 1000 };

static float a[N], b[N], out[N], again[N];

static void fill_inputs(unsigned seed)
{
    fill(a, N, seed);
    fill(b, N, seed + 1);
}

static kiln_tensor upload(kiln_batch *batch, const float *data)
{
    return kiln_upload(batch, KILN_F32, 1, (size_t[]){N}, data);
}

/* relu(a) * 2 + b, read to `result`. */
static kiln_tensor record(kiln_batch *batch, const float *x, const float *y, float *result)
{
    kiln_tensor scaled = kiln_scale(batch, kiln_relu(batch, upload(batch, x)), 2);
    kiln_tensor sum = kiln_add(batch, scaled, upload(batch, y));
    kiln_read(batch, sum, result, sizeof out);
    return sum;
}

static void expect_result(const float *x, const float *y, const float *result)
{
    for (int i = 0; i < N; i++)
        cr_assert_eq(result[i], (x[i] > 0 ? x[i] : 0) * 2 + y[i], "element %d", i);
}

/* ---- running ---- */

Test(batch, reads_its_inputs_each_time_it_runs)
{
    kiln_context *context = open_context();
    kiln_batch *batch = kiln_batch_create(context);
    record(batch, a, b, out);
    for (unsigned seed = 1; seed <= 3; seed++) {
        fill_inputs(seed);
        run_batch(batch);
        expect_result(a, b, out);
    }
    cr_expect_eq(stats_of(context).plans_made, 1u);
    kiln_batch_release(batch);
    close_context(context);
}

Test(batch, takes_inputs_and_leaves_results_elsewhere_after_a_rebind)
{
    kiln_context *context = open_context();
    kiln_batch *batch = kiln_batch_create(context);
    static float c[N];
    kiln_tensor x = upload(batch, a), y = upload(batch, b);
    kiln_tensor sum = kiln_add(batch, kiln_scale(batch, kiln_relu(batch, x), 2), y);
    expect_ok(kiln_read(batch, sum, out, sizeof out));
    fill_inputs(7);
    fill(c, N, 99);
    run_batch(batch);
    expect_ok(kiln_rebind_upload(batch, y, c));
    expect_ok(kiln_rebind_read(batch, 0, again, sizeof again));
    memset(out, 0, sizeof out);
    run_batch(batch);
    expect_result(a, c, again);
    for (int i = 0; i < N; i++)
        cr_assert_eq(out[i], 0, "the old place is still written to");
    cr_expect_eq(stats_of(context).plans_made, 1u, "a rebind plans again");
    kiln_batch_release(batch);
    close_context(context);
}

Test(batch, can_be_recorded_further_after_a_run)
{
    kiln_context *context = open_context();
    kiln_batch *batch = kiln_batch_create(context);
    fill_inputs(3);
    kiln_tensor sum = record(batch, a, b, out);
    run_batch(batch);
    expect_ok(kiln_read(batch, kiln_neg(batch, sum), again, sizeof again));
    memset(out, 0, sizeof out);
    run_batch(batch);
    expect_result(a, b, out);
    for (int i = 0; i < N; i++)
        cr_assert_eq(again[i], -out[i]);
    kiln_batch_release(batch);
    close_context(context);
}

Test(batch, forgets_everything_at_a_reset)
{
    kiln_context *context = open_context();
    kiln_batch *batch = kiln_batch_create(context);
    fill_inputs(5);
    kiln_tensor old = record(batch, a, b, out);
    run_batch(batch);
    expect_ok(kiln_batch_reset(batch));
    cr_expect_eq(kiln_batch_operation_count(batch), 0u);
    cr_expect_eq(kiln_batch_buffer_count(batch), 0u);
    memset(out, 0, sizeof out);
    run_batch(batch);
    cr_expect_eq(out[0], 0, "a reset batch still runs what it forgot");
    kiln_tensor fresh = record(batch, b, a, again);
    cr_expect_neq(fresh.id, old.id);
    run_batch(batch);
    expect_result(b, a, again);
    kiln_batch_release(batch);
    close_context(context);
}

Test(batch, without_anything_runs_and_completes)
{
    kiln_context *context = open_context();
    kiln_batch *batch = kiln_batch_create(context);
    run_batch(batch);
    record(batch, a, b, out);
    expect_ok(kiln_batch_reset(batch));
    run_batch(batch);
    cr_expect_eq(stats_of(context).launches, 0u);
    cr_expect_eq(stats_of(context).batches, 2u);
    kiln_batch_release(batch);
    close_context(context);
}

/* Most likely a read was forgotten. */
Test(batch, that_records_something_and_asks_for_nothing_is_refused)
{
    kiln_context *context = open_context();
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor y = kiln_exp(batch, upload(batch, a));
    kiln_batch_cost cost = cost_of(batch);
    cr_expect_eq(cost.launches + cost.uploads + cost.downloads, 0u);
    expect_error(kiln_batch_execute(batch), KILN_INVALID_ARGUMENT,
                 "kiln_batch_execute: the batch asks for no result; kiln_read() or kiln_export() "
                 "one");
    expect_error_part(kiln_batch_submit(batch, NULL), KILN_INVALID_ARGUMENT,
                      "kiln_batch_submit: the batch asks for no result");
    expect_ok(kiln_read(batch, y, out, sizeof a));
    run_batch(batch);
    kiln_batch_release(batch);
    close_context(context);
}

Test(batch, that_is_too_large_fails_and_leaves_the_context_usable)
{
    kiln_context *context = open_context();
    kiln_batch *batch = kiln_batch_create(context);
    size_t many = (size_t)1 << 44;
    int64_t sum;
    kiln_tensor x = kiln_exp(batch, kiln_upload(batch, KILN_F32, 0, NULL, a));
    kiln_tensor wide = kiln_broadcast(batch, x, 1, &many);
    kiln_tensor shared = kiln_exp(batch, kiln_tanh(batch, wide));
    kiln_tensor both = kiln_mul(batch, kiln_reshape(batch, shared, 2, (size_t[]){many / 8, 8}),
                                kiln_constant(batch, KILN_F32, 2));
    kiln_tensor rows = kiln_argmax(batch, both, 1, (int[]){1}, 0);
    expect_ok(kiln_read(batch, kiln_sum(batch, kiln_add(batch, rows, rows), 0, NULL, 0), &sum, 8));
    expect_error_part(kiln_batch_execute(batch), KILN_OUT_OF_DEVICE_MEMORY,
                      "bytes of device memory");
    cr_expect(strstr(kiln_last_error(), "; the device has "), "%s", kiln_last_error());
    cr_expect_eq(kiln_batch_status(batch), KILN_OK, "an error of a run is sticky");
    cr_expect_str_eq(kiln_batch_error(batch), kiln_last_error());
    expect_ok(kiln_batch_reset(batch));
    cr_expect_str_eq(kiln_batch_error(batch), "");
    fill_inputs(1);
    record(batch, a, b, out);
    run_batch(batch);
    expect_result(a, b, out);
    kiln_batch_release(batch);
    close_context(context);
}

/* What is wrong with a run is told by the batch, too, until a later one is right. */
Test(batch, tells_the_error_of_its_last_run)
{
    kiln_context *context = open_context();
    kiln_batch *batch = kiln_batch_create(context);
    float result[4];
    char *text;
    kiln_tensor y = kiln_relu(batch, kiln_upload(batch, KILN_F32, 1, (size_t[]){4}, a));
    expect_error_part(kiln_batch_execute(batch), KILN_INVALID_ARGUMENT, "asks for no result");
    cr_expect_str_eq(kiln_batch_error(batch), kiln_last_error());
    expect_error_part(kiln_batch_submit(batch, NULL), KILN_INVALID_ARGUMENT, "kiln_batch_submit: ");
    cr_expect_str_eq(kiln_batch_error(batch), kiln_last_error());
    expect_ok(kiln_batch_explain(batch, &text));
    cr_expect_str_eq(kiln_batch_error(batch), "");
    kiln_free(text);
    expect_error_part(kiln_batch_explain(batch, NULL), KILN_INVALID_ARGUMENT, "text is NULL");
    cr_expect_str_eq(kiln_batch_error(batch), kiln_last_error());
    expect_ok(kiln_read(batch, y, result, sizeof result));
    expect_ok(kiln_batch_execute(batch));
    cr_expect_str_eq(kiln_batch_error(batch), "");
    kiln_add(batch, y, (kiln_tensor){0});
    cr_expect_eq(kiln_batch_execute(batch), KILN_INVALID_HANDLE);
    cr_expect(strstr(kiln_batch_error(batch), "operand b is the empty tensor"), "%s",
              kiln_batch_error(batch));
    kiln_batch_release(batch);
    close_context(context);
}

/* ---- what runs ---- */

Test(batch, runs_only_what_is_asked_for)
{
    kiln_context *context = open_context();
    kiln_batch *batch = kiln_batch_create(context);
    fill_inputs(11);
    kiln_tensor x = upload(batch, a);
    for (int i = 0; i < 5; i++)
        kiln_sum(batch, kiln_exp(batch, upload(batch, b)), 0, NULL, 0);
    expect_ok(kiln_read(batch, kiln_neg(batch, x), out, sizeof out));
    cr_expect_eq(cost_of(batch).launches, 1u);
    cr_expect_leq(cost_of(batch).uploads, 1u);
    run_batch(batch);
    cr_expect_eq(stats_of(context).launches, 1u);
    cr_expect_eq(out[N - 1], -a[N - 1]);
    kiln_batch_release(batch);
    close_context(context);
}

Test(batch, computes_equal_expressions_once)
{
    kiln_context *context = open_context();
    kiln_batch *batch = kiln_batch_create(context);
    float once[2];
    fill_inputs(13);
    kiln_tensor x = upload(batch, a);
    for (int i = 0; i < 2; i++)
        expect_ok(kiln_read(batch, kiln_sum(batch, kiln_neg(batch, x), 0, NULL, 0), &once[i], 4));
    cr_expect_eq(cost_of(batch).launches, 1u);
    run_batch(batch);
    cr_expect_eq(stats_of(context).launches, 1u);
    cr_expect_eq(once[0], once[1]);
    kiln_batch_release(batch);
    close_context(context);
}

Test(batch, reads_inputs_constants_and_views_as_they_are)
{
    kiln_context *context = open_context();
    kiln_batch *batch = kiln_batch_create(context);
    float constant, folded, turned[6];
    float matrix[6] = {1, 2, 3, 4, 5, 6};
    kiln_buffer *buffer = make_buffer(context, N, b);
    fill_inputs(17);
    expect_ok(kiln_buffer_write(buffer, 0, b, sizeof b));
    kiln_tensor two = kiln_constant(batch, KILN_F32, 2);
    kiln_tensor x = kiln_upload(batch, KILN_F32, 2, (size_t[]){2, 3}, matrix);
    expect_ok(kiln_read(batch, upload(batch, a), out, sizeof out));
    expect_ok(kiln_read(batch, kiln_import(batch, buffer), again, sizeof again));
    expect_ok(kiln_read(batch, two, &constant, 4));
    expect_ok(kiln_read(batch, kiln_exp(batch, kiln_sub(batch, two, two)), &folded, 4));
    expect_ok(kiln_read(batch, kiln_transpose(batch, x, NULL), turned, sizeof turned));
    run_batch(batch);
    cr_expect_arr_eq(out, a, sizeof a);
    cr_expect_arr_eq(again, b, sizeof b);
    cr_expect_eq(constant, 2);
    cr_expect_eq(folded, 1);
    cr_expect_arr_eq(turned, ((float[]){1, 4, 2, 5, 3, 6}), sizeof turned);
    kiln_buffer_release(buffer);
    kiln_batch_release(batch);
    close_context(context);
}

Test(batch, leaves_one_result_in_several_places)
{
    kiln_context *context = open_context();
    kiln_batch *batch = kiln_batch_create(context);
    kiln_buffer *first = make_buffer(context, N, NULL), *second = make_buffer(context, N, NULL);
    fill_inputs(19);
    kiln_tensor sum = record(batch, a, b, out);
    expect_ok(kiln_export(batch, sum, first));
    expect_ok(kiln_read(batch, sum, again, sizeof again));
    expect_ok(kiln_export(batch, sum, second));
    run_batch(batch);
    expect_result(a, b, out);
    expect_result(a, b, again);
    expect_buffer(first, N, out);
    expect_buffer(second, N, out);
    cr_expect_eq(stats_of(context).launches, 1u);
    kiln_buffer_release(first);
    kiln_buffer_release(second);
    kiln_batch_release(batch);
    close_context(context);
}

/* ---- what it says of itself ---- */

Test(batch, counts_operations_and_buffers)
{
    kiln_context *context = open_context();
    kiln_batch *batch = kiln_batch_create(context);
    kiln_buffer *buffer = make_buffer(context, N, NULL);
    kiln_tensor x = upload(batch, a), y = kiln_import(batch, buffer);
    kiln_tensor sum = kiln_add(batch, kiln_mul(batch, x, y), kiln_constant(batch, KILN_F32, 1));
    cr_expect_eq(kiln_batch_operation_count(batch), 2u);
    cr_expect_eq(kiln_batch_buffer_count(batch), 2u);
    kiln_read(batch, sum, out, sizeof out);
    kiln_export(batch, sum, buffer);
    cr_expect_eq(kiln_batch_buffer_count(batch), 4u);
    kiln_buffer_release(buffer);
    kiln_batch_release(batch);
    close_context(context);
}

Test(batch, tells_a_tensors_shape)
{
    kiln_context *context = open_context();
    kiln_batch *batch = kiln_batch_create(context);
    size_t rank = 99, dims[KILN_MAX_RANK];
    kiln_type type;
    kiln_tensor x = kiln_broadcast(batch, kiln_constant(batch, KILN_U8, 3), 3, (size_t[]){2, 0, 5});
    expect_ok(kiln_tensor_shape(batch, x, &type, &rank, dims));
    cr_expect_eq(type, KILN_U8);
    cr_expect_eq(rank, 3u);
    cr_expect_arr_eq(dims, ((size_t[KILN_MAX_RANK]){2, 0, 5}), sizeof dims);
    expect_ok(kiln_tensor_shape(batch, kiln_sum(batch, x, 0, NULL, 0), &type, &rank, NULL));
    cr_expect_eq(type, KILN_I64);
    cr_expect_eq(rank, 0u);
    expect_ok(kiln_tensor_shape(batch, x, NULL, NULL, NULL));
    kiln_batch_release(batch);
    close_context(context);
}

/* A chain of reductions and what they are subtracted from: values that live one after another. */
static void record_layers(kiln_batch *batch, int layers)
{
    enum { ROWS = 64, COLUMNS = 512 };
    static float matrix[ROWS * COLUMNS], result[ROWS * COLUMNS];
    kiln_tensor x = kiln_upload(batch, KILN_F32, 2, (size_t[]){ROWS, COLUMNS}, matrix);
    for (int i = 0; i < layers; i++) {
        x = kiln_tanh(batch, kiln_sub(batch, x, kiln_mean(batch, x, 1, (int[]){1}, 1)));
        x = kiln_add(batch, x, kiln_max(batch, x, 1, (int[]){0}, 1));
    }
    expect_ok(kiln_read(batch, x, result, sizeof result));
}

Test(batch, shares_memory_between_values_that_live_at_different_times)
{
    kiln_context *context = open_context();
    kiln_batch *batch = kiln_batch_create(context);
    record_layers(batch, 6);
    kiln_batch_cost cost = cost_of(batch);
    cr_expect_gt(cost.launches, 6u);
    cr_expect_gt(cost.peak_bytes, 64u * 512 * 4);
    cr_expect_lt(cost.peak_bytes, cost.unshared_bytes / 2);
    cr_expect_gt(cost.saved_bytes, 0u);
    run_batch(batch);
    run_batch(batch);
    kiln_context_stats stats = stats_of(context);
    cr_expect_geq(stats.pool_bytes, cost.peak_bytes);
    cr_expect_leq(stats.pool_bytes, cost.peak_bytes + cost.peak_bytes / 4 + 4096);
    cr_expect_eq(stats.launches, 2 * cost.launches);
    expect_ok(kiln_context_trim(context));
    cr_expect_eq(stats_of(context).pool_bytes, 0u);
    run_batch(batch);
    kiln_batch_release(batch);
    close_context(context);
}

/* Runs of two sizes for which there is room one after the other only, and one without room. */
Test(batch, keeps_to_the_limit_of_the_pool_and_trims_before_it_refuses)
{
    enum { SMALL = 1 << 18, LARGE = 3 << 18 };
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    options.memory_limit = (uint64_t)LARGE * 9;
    kiln_context *context = open_context_with(&options);
    static float ones[2 * LARGE], sums[2];
    kiln_status status[3];
    static const size_t counts[] = {SMALL, LARGE, 2 * LARGE};
    for (int i = 0; i < 3; i++) {
        kiln_batch *batch = kiln_batch_create(context);
        kiln_tensor x = kiln_upload(batch, KILN_F32, 1, &counts[i], ones);
        kiln_tensor y = kiln_cumsum(batch, kiln_exp(batch, x), 0, 0); /* both are in memory */
        expect_ok(kiln_read(batch, kiln_sum(batch, y, 0, NULL, 0), sums, sizeof *sums));
        cr_expect(i == 2 || cost_of(batch).peak_bytes <= options.memory_limit);
        status[i] = kiln_batch_execute(batch);
        cr_expect_leq(stats_of(context).pool_bytes, options.memory_limit);
        kiln_batch_release(batch);
    }
    expect_ok(status[0]);
    expect_ok(status[1]);
    expect_error_part(status[2], KILN_OUT_OF_DEVICE_MEMORY, "; the pool's limit has 7077888");
    close_context(context);
}

/* There is room for one run at a time: threads take turns, and none is refused. */
static pthread_barrier_t together;
static atomic_int refused; /* Criterion's assertions are for the test's own thread */

static void *run_again_and_again(void *batch)
{
    for (int i = 0; i < 40; i++) {
        pthread_barrier_wait(&together);
        atomic_fetch_add(&refused, kiln_batch_execute(batch) != KILN_OK);
    }
    return NULL;
}

static kiln_batch *record_sum(kiln_context *context, const float *ones, size_t count, float *sum)
{
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor x = kiln_upload(batch, KILN_F32, 1, &count, ones);
    kiln_tensor y = kiln_cumsum(batch, kiln_exp(batch, x), 0, 0);
    expect_ok(kiln_read(batch, kiln_sum(batch, y, 0, NULL, 0), sum, sizeof *sum));
    return batch;
}

Test(batch, waits_for_the_memory_of_those_that_are_being_submitted)
{
    enum { COUNT = 1 << 16, THREADS = 4 };
    static float ones[COUNT], sums[THREADS];
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    kiln_batch *batches[THREADS];
    pthread_t threads[THREADS];
    kiln_context *context = open_context();
    batches[0] = record_sum(context, ones, COUNT, sums);
    options.memory_limit = cost_of(batches[0]).peak_bytes * 5 / 4 + 4096; /* of one, rounded up */
    kiln_batch_release(batches[0]);
    close_context(context);
    context = open_context_with(&options);
    for (int i = 0; i < THREADS; i++) {
        batches[i] = record_sum(context, ones, COUNT, &sums[i]);
        run_batch(batches[i]);
    }
    pthread_barrier_init(&together, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, run_again_and_again, batches[i]), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    cr_expect_eq(atomic_load(&refused), 0);
    pthread_barrier_destroy(&together);
    for (int i = 0; i < THREADS; i++)
        kiln_batch_release(batches[i]);
    close_context(context);
}

Test(batch, finds_the_plan_of_an_equal_one)
{
    kiln_context *context = open_context();
    for (unsigned i = 0; i < 5; i++) {
        kiln_batch *batch = kiln_batch_create(context);
        fill_inputs(i);
        record(batch, a, i % 2 ? b : a, out);
        run_batch(batch);
        expect_result(a, i % 2 ? b : a, out);
        kiln_batch_release(batch);
    }
    kiln_context_stats stats = stats_of(context);
    cr_expect_eq(stats.plans_made, 1u);
    cr_expect_eq(stats.plans_reused, 4u);
    cr_expect_eq(stats.kernels_compiled + stats.kernels_from_disk, 1u);
    close_context(context);
}

/* Another length, another constant: another plan, the same kernel. */
Test(batch, finds_the_kernel_of_another_size)
{
    kiln_context *context = open_context();
    fill_inputs(2);
    for (size_t n = 10; n <= 1000; n *= 10) {
        kiln_batch *batch = kiln_batch_create(context);
        kiln_tensor x = kiln_upload(batch, KILN_F32, 1, &n, a);
        expect_ok(kiln_read(batch, kiln_scale(batch, x, (double)n), out, n * sizeof *out));
        run_batch(batch);
        cr_expect_eq(out[n - 1], (float)n * a[n - 1]);
        kiln_batch_release(batch);
    }
    kiln_context_stats stats = stats_of(context);
    cr_expect_eq(stats.plans_made, 3u);
    cr_expect_eq(stats.kernels_compiled + stats.kernels_from_disk, 1u);
    cr_expect_geq(stats.kernels_from_memory, 2u);
    close_context(context);
}

Test(batch, counts_transfers_of_separate_memory)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    options.host_memory = KILN_HOST_MEMORY_SEPARATE;
    kiln_context *context = open_context_with(&options);
    kiln_batch *batch = kiln_batch_create(context);
    record(batch, a, b, out);
    kiln_batch_cost cost = cost_of(batch);
    cr_expect_eq(cost.uploads, 2u);
    cr_expect_eq(cost.downloads, 1u);
    cr_expect_eq(cost.saved_bytes, 2u * 2 * sizeof a); /* relu and scale, one write, one read */
    run_batch(batch);
    run_batch(batch);
    kiln_context_stats stats = stats_of(context);
    cr_expect_eq(stats.uploads, 4u);
    cr_expect_eq(stats.upload_bytes, 4 * sizeof a);
    cr_expect_eq(stats.downloads, 2u);
    cr_expect_eq(stats.download_bytes, 2 * sizeof a);
    cr_expect_eq(stats.batches, 2u);
    kiln_batch_release(batch);
    close_context(context);
}

Test(batch, transfers_nothing_in_shared_memory)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    options.host_memory = KILN_HOST_MEMORY_SHARED;
    kiln_context *context = open_context_with(&options);
    kiln_batch *batch = kiln_batch_create(context);
    fill_inputs(23);
    record(batch, a, b, out);
    kiln_batch_cost cost = cost_of(batch);
    cr_expect_eq(cost.uploads + cost.downloads, 0u);
    cr_expect_eq(cost.peak_bytes, 0u);
    run_batch(batch);
    expect_result(a, b, out);
    cr_expect_eq(stats_of(context).uploads + stats_of(context).downloads, 0u);
    kiln_batch_release(batch);
    close_context(context);
}
