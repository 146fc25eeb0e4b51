/* SPDX-License-Identifier: Apache-2.0 */
/* Batches that need more memory than there may be: they run in parts of their rows, and nobody can
 * tell from the results. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "../support/context.h"
#include "graph/micro_batch_graph.h"
#include "session/context.h"

enum { ROWS = 501, IN = 24, WIDE = 320, OUT = 16 };

static float x[ROWS * IN], first[IN * WIDE], second[WIDE * OUT];
static float results[2][ROWS * OUT], sums[2][ROWS];

static kiln_context *open_limited(uint64_t limit)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    options.memory_limit = limit;
    options.validate = 0;
    fill(x, ROWS * IN, 1);
    fill(first, IN * WIDE, 2);
    fill(second, WIDE * OUT, 3);
    for (size_t i = 0; i < WIDE * OUT; i++)
        second[i] /= 300; /* so that sums round */
    return open_context_with(&options);
}

static bool shares(const kiln_context *context)
{
    return context->runtime.host_mode != KILN__HOST_SEPARATE;
}

static kiln_tensor upload(kiln_batch *batch, size_t rows, size_t columns, const float *data)
{
    return kiln_upload(batch, KILN_F32, 2, (size_t[]){rows, columns}, data);
}

/* A network of two layers with the softmax of its hidden values, and that one's sums. */
static kiln_tensor record_network(kiln_batch *batch, kiln_tensor input, kiln_tensor *sum)
{
    kiln_tensor hidden = kiln_matmul(batch, input, upload(batch, IN, WIDE, first));
    kiln_tensor shares = kiln_softmax(batch, kiln_tanh(batch, hidden), 1, (int[]){1});
    *sum = kiln_sum(batch, kiln_mul(batch, shares, hidden), 1, (int[]){1}, 0);
    return kiln_matmul(batch, kiln_add(batch, shares, hidden), upload(batch, WIDE, OUT, second));
}

static kiln_batch *record(kiln_context *context, float *to, float *sums_to)
{
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor sum, result = record_network(batch, upload(batch, ROWS, IN, x), &sum);
    expect_ok(kiln_read(batch, result, to, sizeof *results));
    expect_ok(kiln_read(batch, sum, sums_to, sizeof *sums));
    return batch;
}

/* As a whole, and how much memory that takes. */
static uint64_t run_whole(void)
{
    kiln_context *context = open_limited(0);
    kiln_batch *batch = record(context, results[0], sums[0]);
    expect_ok(kiln_batch_set_batch_invariant(batch));
    uint64_t peak = cost_of(batch).peak_bytes;
    run_batch(batch);
    cr_expect_eq(stats_of(context).batches, 1u);
    kiln_batch_release(batch);
    close_context(context);
    return peak;
}

static void expect_same(void)
{
    cr_expect(!memcmp(results[0], results[1], sizeof *results));
    cr_expect(!memcmp(sums[0], sums[1], sizeof *sums));
    memset(results[1], 0, sizeof *results);
    memset(sums[1], 0, sizeof *sums);
}

Test(parts, give_the_bits_of_the_whole)
{
    uint64_t peak = run_whole();
    for (unsigned parts = 2; parts <= 32; parts *= 4) {
        kiln_context *context = open_limited(peak / parts);
        kiln_batch *batch = record(context, results[1], sums[1]);
        run_batch(batch);
        expect_same();
        kiln_context_stats stats = stats_of(context);
        cr_expect_geq(stats.batches, parts);
        if (shares(context)) /* else every part has memory for what is uploaded, too */
            cr_expect_leq(stats.batches, parts + parts / 4 + 1);
        cr_expect_leq(stats.pool_bytes, peak / parts);
        run_batch(batch); /* with the parts that are known */
        expect_same();
        cr_expect_eq(stats_of(context).plans_made, stats.plans_made);
        kiln_event *event;
        expect_ok(kiln_batch_submit(batch, &event));
        expect_ok(kiln_event_wait(event));
        expect_same();
        kiln_event_release(event);
        kiln_batch_release(batch);
        close_context(context);
    }
}

/* Rows of buffers, too; and other rows the next time. */
Test(parts, take_rows_of_buffers_and_leave_rows_there)
{
    static const float zeros[ROWS * IN];
    uint64_t peak = run_whole();
    kiln_context *context = open_limited(peak / 3);
    kiln_buffer *from, *to;
    expect_ok(kiln_buffer_create(context, KILN_F32, 2, (size_t[]){ROWS, IN}, &from));
    expect_ok(kiln_buffer_create(context, KILN_F32, 2, (size_t[]){ROWS, OUT}, &to));
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor sum, result = record_network(batch, kiln_import(batch, from), &sum);
    expect_ok(kiln_export(batch, result, to));
    expect_ok(kiln_read(batch, sum, sums[1], sizeof *sums));
    for (int run = 0; run < 4; run++) {
        memset(results[1], 0, sizeof *results);
        expect_ok(kiln_buffer_write(from, 0, run == 1 ? zeros : x, sizeof x));
        run_batch(batch);
        expect_ok(kiln_buffer_read(to, 0, results[1], sizeof *results));
        if (run != 1)
            expect_same();
    }
    cr_expect_geq(stats_of(context).batches, 12u);
    kiln_batch_release(batch);
    kiln_buffer_release(from);
    kiln_buffer_release(to);
    close_context(context);
}

/* ---- what has no parts ---- */

static void expect_refusal(kiln_batch *batch, const char *part)
{
    expect_error_part(kiln_batch_execute(batch), KILN_OUT_OF_DEVICE_MEMORY,
                      "; the pool's limit has 8192, and the batch cannot run in parts: ");
    cr_expect(strstr(kiln_last_error(), part), "%s", kiln_last_error());
    kiln_batch_release(batch);
}

Test(parts, are_refused_with_the_value_that_has_none)
{
    kiln_context *context = open_limited(8192);
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor running = kiln_cumsum(batch, upload(batch, ROWS, IN, x), 0, 0);
    expect_ok(
        kiln_read(batch, kiln_cumsum(batch, kiln_exp(batch, running), 1, 0), results[1], sizeof x));
    expect_refusal(batch, "each of its rows would need all of an operand's in %");
    cr_expect(strstr(kiln_last_error(), "cumsum"), "%s", kiln_last_error());

    batch = kiln_batch_create(context);
    kiln_tensor rows = kiln_cumsum(batch, upload(batch, ROWS, IN, x), 1, 0);
    expect_ok(kiln_read(batch, kiln_sum(batch, kiln_cumsum(batch, rows, 0, 0), 0, NULL, 0),
                        results[1], 4));
    expect_refusal(batch, "each of its rows would need all of an operand's in %");
    cr_expect(strstr(kiln_last_error(), "cumsum"), "%s", kiln_last_error());

    close_context(context);
}

/* What is uploaded has memory of the device's where that is its own: nothing is left in it. */
Test(parts, are_refused_where_a_result_lies_in_other_rows_of_an_operand)
{
    kiln_context *context = open_limited(8192);
    if (!shares(context))
        cr_skip("the device has memory of its own");
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor wide =
        kiln_matmul(batch, upload(batch, ROWS, IN, x), upload(batch, IN, WIDE, first));
    kiln_tensor scaled =
        kiln_matmul(batch, kiln_tanh(batch, wide), upload(batch, WIDE, OUT, second));
    expect_ok(kiln_read(batch, scaled, x, sizeof *results));
    expect_refusal(batch, "a result is left where an operand is, or another result");
    close_context(context);
}

/* ---- results in the memory of their operands ---- */

static float back[WIDE * IN];

static kiln_tensor record_update(kiln_batch *batch, kiln_tensor state)
{
    kiln_tensor hidden = kiln_matmul(batch, state, upload(batch, IN, WIDE, first));
    kiln_tensor change =
        kiln_matmul(batch, kiln_tanh(batch, hidden), upload(batch, WIDE, IN, back));
    return kiln_add(batch, state, kiln_scale(batch, change, 0.01));
}

/* Three steps, each in the buffer that it reads. 501 rows go into 3 parts, or 167. */
static uint64_t update_buffer(uint64_t limit, float *to)
{
    kiln_context *context = open_limited(limit);
    kiln_buffer *state;
    fill(back, WIDE * IN, 4);
    expect_ok(kiln_buffer_create(context, KILN_F32, 2, (size_t[]){ROWS, IN}, &state));
    expect_ok(kiln_buffer_write(state, 0, x, sizeof x));
    kiln_batch *batch = kiln_batch_create(context);
    expect_ok(kiln_batch_set_batch_invariant(batch));
    expect_ok(kiln_export(batch, record_update(batch, kiln_import(batch, state)), state));
    uint64_t peak = cost_of(batch).peak_bytes;
    for (int step = 0; step < 3; step++)
        run_batch(batch);
    cr_expect(limit ? stats_of(context).batches > 3 : stats_of(context).batches == 3);
    expect_ok(kiln_buffer_read(state, 0, to, sizeof x));
    kiln_batch_release(batch);
    kiln_buffer_release(state);
    close_context(context);
    return peak;
}

Test(parts, update_the_buffer_that_they_read)
{
    static float states[2][ROWS * IN];
    uint64_t peak = update_buffer(0, states[0]);
    update_buffer(peak / 2, states[1]);
    cr_expect(!memcmp(states[0], states[1], sizeof *states));
}

/* ---- numbers of elements ---- */

/* Noise on the hidden values, and positions. */
static kiln_batch *record_noise(kiln_context *context, float *to)
{
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor key = kiln_random_key(batch, 7);
    kiln_tensor hidden =
        kiln_matmul(batch, upload(batch, ROWS, IN, x), upload(batch, IN, WIDE, first));
    kiln_tensor noise = kiln_random_normal(batch, 2, (size_t[]){ROWS, WIDE}, key);
    kiln_tensor row = kiln_cast(batch, kiln_iota(batch, 2, (size_t[]){ROWS, 1}, 0), KILN_F32);
    hidden = kiln_add(batch, kiln_mul(batch, hidden, noise), row);
    expect_ok(kiln_batch_set_batch_invariant(batch));
    expect_ok(kiln_read(batch, kiln_matmul(batch, hidden, upload(batch, WIDE, OUT, second)), to,
                        sizeof *results));
    return batch;
}

Test(parts, draw_what_the_whole_draws)
{
    kiln_context *context = open_limited(0);
    kiln_batch *batch = record_noise(context, results[0]);
    uint64_t peak = cost_of(batch).peak_bytes;
    run_batch(batch);
    kiln_batch_release(batch);
    close_context(context);
    context = open_limited(peak / 3);
    batch = record_noise(context, results[1]);
    run_batch(batch);
    cr_expect_geq(stats_of(context).batches, 3u);
    cr_expect(!memcmp(results[0], results[1], sizeof *results));
    kiln_batch_release(batch);
    close_context(context);
}

/* ---- what is kept of weights ---- */

/* A run may have to make it again, so that it counts. */
Test(parts, leave_room_for_what_is_kept)
{
    static float sums_of_rows[2][ROWS];
    uint64_t limit = 0, kept = 0;
    setenv("KILN_MATMUL", "packed", 1); /* where the device has that */
    for (int limited = 0; limited < 2; limited++) {
        kiln_context *context = open_limited(limit);
        kiln_buffer *weights;
        expect_ok(kiln_buffer_create(context, KILN_F32, 2, (size_t[]){IN, WIDE}, &weights));
        expect_ok(kiln_buffer_write(weights, 0, first, sizeof first));
        kiln_batch *batch = kiln_batch_create(context);
        kiln_tensor hidden =
            kiln_matmul(batch, upload(batch, ROWS, IN, x), kiln_import(batch, weights));
        kiln_tensor sum = kiln_sum(batch, kiln_sort(batch, hidden, -1, 0), 1, (int[]){1}, 0);
        expect_ok(kiln_batch_set_batch_invariant(batch));
        expect_ok(kiln_read(batch, sum, sums_of_rows[limited], sizeof *sums_of_rows));
        run_batch(batch);
        limit = kiln__plan_peak(batch->lease.plan) - 1;
        kept += limited ? 0 : batch->lease.plan->prepacked_bytes;
        if (limited && kept)
            cr_expect_gt(stats_of(context).batches, 1u);
        kiln_batch_release(batch);
        kiln_buffer_release(weights);
        close_context(context);
        if (!kept)
            cr_skip("nothing is kept of weights here");
    }
    cr_expect(!memcmp(sums_of_rows[0], sums_of_rows[1], sizeof *sums_of_rows));
}

/* ---- cutting, without a device ---- */

static struct kiln__node node_of(enum kiln__kind kind, size_t rows, size_t columns)
{
    struct kiln__node node = {.kind = kind, .type = KILN_F32};
    node.shape = (struct kiln__shape){columns ? 2 : 1, {rows, columns}};
    return node;
}

/* Node 1, an 8 x 8 matrix times itself, which is node 0. */
static void request_square(struct kiln__graph *graph)
{
    struct kiln__node input = node_of(KILN__UPLOAD, 8, 8), matmul = node_of(KILN__MATMUL, 8, 8);
    uint32_t square;
    cr_assert(kiln__graph_add(graph, &input, &matmul.input[0]));
    matmul.n_inputs = 2;
    matmul.input[1] = matmul.input[0];
    cr_assert(kiln__graph_add(graph, &matmul, &square));
    struct kiln__request *request = kiln__vector_push(&graph->requests);
    request->node = square;
}

/* Two rows of the eight. */
static void cut_square(const struct kiln__graph *graph, struct kiln__micro_batch_graph *cut)
{
    struct kiln__partition division;
    cr_assert(kiln__partition_make(graph, 8, false, &division));
    cr_expect_eq(division.phases, 1u);
    cr_assert(kiln__micro_batch_graph_make(
        &division, &(struct kiln__micro_batch_what){KILN__MICRO_BATCH_ROWS, 0, 2}, cut));
    kiln__partition_free(&division);
}

/* A value that is used by rows and as a whole is there twice. */
Test(parts, have_twice_what_is_needed_both_ways)
{
    struct kiln__graph graph = {0};
    struct kiln__micro_batch_graph cut;
    char wrong[160];
    request_square(&graph);
    cr_expect_eq(kiln__micro_batch_rows(&graph), 8u);
    cut_square(&graph, &cut);
    cr_expect_null(kiln__graph_verify(&cut.graph, wrong));
    cr_assert_eq(cut.inputs.count, 2u);
    cr_expect_neq(cut.inputs.items[0].rows, cut.inputs.items[1].rows);
    cr_expect_eq(cut.graph.nodes.items[cut.graph.requests.items[0].node].shape.dims[0], 2u);
    kiln__micro_batch_graph_free(&cut);
    kiln__graph_free(&graph);
}

/* An own kernel writes all of its output, also one that reads nothing. */
Test(parts, have_own_kernels_whole)
{
    const uint64_t peak = run_whole();
    kiln_custom_tensor out = {.name = "y", .type = KILN_F32, .rank = 2, .dims = {ROWS, WIDE}};
    kiln_custom_kernel kernel = KILN_CUSTOM_KERNEL_INIT;
    kernel.name = "numbers";
    kernel.source = "y[get_global_id(0)] = get_global_id(0);";
    kernel.outputs = &out;
    kernel.output_count = 1;
    for (int limited = 0; limited < 2; limited++) {
        kiln_context *context = open_limited(limited ? peak / 4 : 0);
        kiln_batch *batch = kiln_batch_create(context);
        kiln_tensor sum, numbers;
        (void)record_network(batch, upload(batch, ROWS, IN, x), &sum);
        expect_ok(kiln_custom(batch, &kernel, NULL, &numbers));
        sum = kiln_add(batch, sum, kiln_max(batch, numbers, 1, (int[]){1}, 0));
        expect_ok(kiln_read(batch, sum, sums[limited], sizeof *sums));
        if (limited)
            expect_error_part(kiln_batch_execute(batch), KILN_OUT_OF_DEVICE_MEMORY,
                              "cannot run in parts");
        else
            run_batch(batch);
        kiln_batch_release(batch);
        close_context(context);
    }
    cr_expect_eq(sums[1][ROWS - 1], 0);
}

/* ---- what is told of parts ---- */

static float bad[ROWS * IN];

/* One row has a number whose exponential has no end: where it is, and what it is called. */
Test(parts, name_who_made_the_first_infinity)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    options.memory_limit = run_whole() / 4;
    options.check_values = 1;
    kiln_context *context = open_context_with(&options);
    kiln_buffer *to;
    fill(bad, ROWS * IN, 1);
    bad[400 * IN + 3] = 200;
    expect_ok(kiln_buffer_create(context, KILN_F32, 2, (size_t[]){ROWS, OUT}, &to));
    expect_ok(kiln_buffer_write(to, 0, results[0], sizeof *results));
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor y = kiln_exp(batch, upload(batch, ROWS, IN, bad)), sum;
    kiln_tensor result = record_network(batch, kiln_name(batch, y, "layer3.q"), &sum);
    expect_ok(kiln_export(batch, result, to));
    expect_error_part(kiln_batch_execute(batch), KILN_BAD_VALUE, "kiln_batch_execute, rows ");
    cr_expect(strstr(kiln_last_error(), " of 501: %1 exp \"layer3.q\" (kiln_exp, call 2), f32["),
              "%s", kiln_last_error());
    cr_expect(strstr(kiln_last_error(), ",3] is infinite"), "%s", kiln_last_error());
    expect_ok(kiln_buffer_read(to, 0, results[1], sizeof *results));
    cr_expect(!memcmp(results[0], results[1], sizeof *results), "some rows have run");
    bad[400 * IN + 3] = 1;
    run_batch(batch);
    kiln_batch_release(batch);
    kiln_buffer_release(to);
    close_context(context);
}

/* Each part's nodes have the names of what they stand for. */
Test(parts, know_what_their_nodes_stand_for)
{
    struct kiln__graph graph = {0};
    struct kiln__micro_batch_graph cut;
    request_square(&graph);
    cut_square(&graph, &cut);
    cr_assert_eq(cut.of.count, 3u);
    cr_expect_eq(cut.of.items[0], 0u);
    cr_expect_eq(cut.of.items[1], 0u);
    cr_expect_eq(cut.of.items[2], 1u);
    kiln__micro_batch_graph_free(&cut);
    kiln__graph_free(&graph);
}
