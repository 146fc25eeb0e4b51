/* SPDX-License-Identifier: Apache-2.0 */
/* Batches that add up over their rows and need more memory than there may be: parts add to the
 * sums, and what is made from these comes later. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../support/context.h"
#include "session/context.h"

enum { ROWS = 501, IN = 24, WIDE = 256, OUT = 10, MOST = 40000 };

static float x[ROWS * IN], first[IN * WIDE], second[WIDE * OUT], scale[WIDE];
static int32_t labels[ROWS];

/* What a model leaves: buffers that it updates, then what is read. */
struct results {
    float at[8][MOST];
    size_t bytes[8];
    unsigned count;
};
static struct results whole, parts;

struct model {
    kiln_context *context;
    kiln_batch *batch;
    kiln_buffer *buffers[3];
    struct results *results;
};

static void make_data(void)
{
    fill(x, ROWS * IN, 1);
    fill(first, IN * WIDE, 2);
    fill(second, WIDE * OUT, 3);
    fill(scale, WIDE, 4);
    for (size_t i = 0; i < WIDE * OUT; i++)
        second[i] /= 16;
    for (size_t i = 0; i < ROWS; i++)
        labels[i] = (int32_t)(i * 7 % OUT);
}

static kiln_tensor upload(struct model *model, size_t rows, size_t columns, const float *data)
{
    return kiln_upload(model->batch, KILN_F32, 2, (size_t[]){rows, columns}, data);
}

static void read_back(struct model *model, kiln_tensor tensor)
{
    struct results *results = model->results;
    size_t rank = 0, dims[KILN_MAX_RANK], count = 1;
    expect_ok(kiln_tensor_shape(model->batch, tensor, NULL, &rank, dims));
    for (size_t d = 0; d < rank; d++)
        count *= dims[d];
    cr_assert_leq(count, (size_t)MOST);
    results->bytes[results->count] = count * sizeof(float);
    expect_ok(kiln_read(model->batch, tensor, results->at[results->count], count * sizeof(float)));
    results->count++;
}

typedef void recorder(struct model *model);

static uint64_t run(recorder *record, uint64_t limit, struct results *results, unsigned *batches)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    options.memory_limit = limit;
    options.validate = 0;
    make_data();
    memset(results, 0, sizeof *results);
    struct model model = {.context = open_context_with(&options), .results = results};
    model.batch = kiln_batch_create(model.context);
    record(&model);
    uint64_t peak = cost_of(model.batch).peak_bytes;
    run_batch(model.batch);
    kiln_context_stats stats = stats_of(model.context);
    *batches = (unsigned)stats.batches;
    if (limit)
        cr_expect_leq(stats.pool_bytes, limit);
    for (unsigned i = 0; i < 3; i++)
        if (model.buffers[i]) {
            size_t bytes = i ? sizeof second : sizeof first;
            results->bytes[results->count] = bytes;
            expect_ok(kiln_buffer_read(model.buffers[i], 0, results->at[results->count++], bytes));
        }
    kiln_batch_release(model.batch);
    for (unsigned i = 0; i < 3; i++)
        kiln_buffer_release(model.buffers[i]);
    close_context(model.context);
    return peak;
}

/* Sums in another order: a few last bits of the largest element. */
static void expect_close(const char *name)
{
    cr_assert_eq(whole.count, parts.count);
    for (unsigned i = 0; i < whole.count; i++) {
        double largest = 0, error = 0;
        for (size_t k = 0; k < whole.bytes[i] / sizeof(float); k++) {
            largest = fmax(largest, fabs((double)whole.at[i][k]));
            error = fmax(error, fabs((double)whole.at[i][k] - (double)parts.at[i][k]));
        }
        cr_expect_gt(largest, 0.0, "%s: result %u is empty", name, i);
        cr_expect_leq(error, 2e-5 * largest, "%s: result %u is off by %g of %g", name, i, error,
                      largest);
    }
}

/* Under less memory than the whole takes, at least `least` runs; twice the same bits. */
static void compare(const char *name, recorder *record, double share, unsigned least)
{
    unsigned batches;
    static struct results again;
    uint64_t peak = run(record, 0, &whole, &batches);
    cr_expect_eq(batches, 1u);
    uint64_t limit = (uint64_t)((double)peak * share);
    run(record, limit, &parts, &batches);
    cr_expect_geq(batches, least, "%s: %u runs", name, batches);
    expect_close(name);
    run(record, limit, &again, &batches);
    cr_expect(!memcmp(&parts, &again, sizeof again), "%s: other bits", name);
}

/* ---- training ---- */

static kiln_tensor loss_of(struct model *model, kiln_tensor w1, kiln_tensor w2)
{
    kiln_batch *batch = model->batch;
    kiln_tensor hidden = kiln_tanh(batch, kiln_matmul(batch, upload(model, ROWS, IN, x), w1));
    kiln_tensor t = kiln_upload(batch, KILN_I32, 1, (size_t[]){ROWS}, labels);
    return kiln_cross_entropy(batch, kiln_matmul(batch, hidden, w2), t);
}

static void record_gradients(struct model *model)
{
    kiln_tensor w[2] = {upload(model, IN, WIDE, first), upload(model, WIDE, OUT, second)}, g[2];
    kiln_tensor loss = loss_of(model, w[0], w[1]);
    expect_ok(kiln_grad(model->batch, loss, w, 2, g));
    read_back(model, loss);
    read_back(model, g[0]);
    read_back(model, g[1]);
}

Test(parts_sums, derive_by_weights)
{
    compare("gradients", record_gradients, 0.3, 5);
}

/* Weights in buffers, which the step reads and leaves anew; by how much they change is bounded by
 * the length of their gradient, which only all of it tells. */
static void record_step(struct model *model)
{
    kiln_batch *batch = model->batch;
    const size_t dims[2][2] = {{IN, WIDE}, {WIDE, OUT}};
    const float *const data[2] = {first, second};
    kiln_tensor w[2], g[2], length[2];
    for (unsigned i = 0; i < 2; i++) {
        expect_ok(kiln_buffer_create(model->context, KILN_F32, 2, dims[i], &model->buffers[i]));
        expect_ok(kiln_buffer_write(model->buffers[i], 0, data[i],
                                    dims[i][0] * dims[i][1] * sizeof(float)));
        w[i] = kiln_import(batch, model->buffers[i]);
    }
    expect_ok(kiln_grad(batch, loss_of(model, w[0], w[1]), w, 2, g));
    for (unsigned i = 0; i < 2; i++)
        length[i] = kiln_sum(batch, kiln_mul(batch, g[i], g[i]), 0, NULL, 0);
    kiln_tensor by = kiln_sqrt(batch, kiln_add(batch, length[0], length[1]));
    for (unsigned i = 0; i < 2; i++)
        expect_ok(kiln_export(batch, kiln_sub(batch, w[i], kiln_div(batch, g[i], by)),
                              model->buffers[i]));
}

Test(parts_sums, update_weights)
{
    compare("a step", record_step, 0.4, 4);
}

/* Hidden values are made alike over all rows by sums that are complete before the next begin; the
 * gradient goes back through them. Rows are a result, too. */
static void record_alike(struct model *model)
{
    kiln_batch *batch = model->batch;
    kiln_tensor w = upload(model, IN, WIDE, first), g;
    kiln_tensor by = kiln_upload(batch, KILN_F32, 1, (size_t[]){WIDE}, scale);
    kiln_tensor hidden = kiln_matmul(batch, upload(model, ROWS, IN, x), w);
    kiln_tensor mean = kiln_mean(batch, hidden, 1, (int[]){0}, 1);
    kiln_tensor apart = kiln_sub(batch, hidden, mean);
    kiln_tensor spread = kiln_mean(batch, kiln_mul(batch, apart, apart), 1, (int[]){0}, 1);
    kiln_tensor batch_invariant = kiln_div(batch, apart, kiln_sqrt(batch, spread));
    kiln_tensor y = kiln_tanh(batch, kiln_mul(batch, batch_invariant, by));
    kiln_tensor out = kiln_matmul(batch, y, upload(model, WIDE, OUT, second));
    kiln_tensor t = kiln_upload(batch, KILN_I32, 1, (size_t[]){ROWS}, labels);
    kiln_tensor loss = kiln_cross_entropy(batch, out, t);
    expect_ok(kiln_grad(batch, loss, &w, 1, &g));
    read_back(model, out);
    read_back(model, loss);
    read_back(model, g);
    read_back(model, kiln_reshape(batch, spread, 1, (size_t[]){WIDE}));
}

Test(parts_sums, come_in_phases)
{
    compare("phases", record_alike, 0.5, 10);
}

/* ---- each kind of sum ---- */

static void record_reductions(struct model *model)
{
    kiln_batch *batch = model->batch;
    kiln_tensor hidden =
        kiln_matmul(batch, upload(model, ROWS, IN, x), upload(model, IN, WIDE, first));
    kiln_tensor sorted = kiln_tanh(batch, kiln_cumsum(batch, hidden, 1, 0));
    kiln_tensor near = kiln_exp(batch, kiln_scale(batch, sorted, 0.001));
    read_back(model, kiln_sum(batch, sorted, 1, (int[]){0}, 0));
    read_back(model, kiln_mean(batch, sorted, 2, (int[]){0, 1}, 0));
    read_back(model, kiln_max(batch, sorted, 1, (int[]){0}, 1));
    read_back(model, kiln_min(batch, sorted, 0, NULL, 0));
    read_back(model, kiln_product(batch, near, 1, (int[]){0}, 0));
}

Test(parts_sums, are_of_every_kind)
{
    compare("reductions", record_reductions, 0.3, 5);
}

/* An embedding's gradient is a scatter to the rows that the labels name; rows of buffers, and
 * random numbers by element, are each part's own. */
static void record_embedding(struct model *model)
{
    kiln_batch *batch = model->batch;
    kiln_tensor table = upload(model, 64, WIDE, first), g;
    kiln_tensor ids = kiln_upload(batch, KILN_I32, 1, (size_t[]){ROWS}, labels);
    kiln_tensor key = kiln_random_key(batch, 7);
    kiln_tensor noise = kiln_random_normal(batch, 2, (size_t[]){ROWS, WIDE}, key);
    expect_ok(
        kiln_buffer_create(model->context, KILN_F32, 2, (size_t[]){ROWS, IN}, &model->buffers[2]));
    expect_ok(kiln_buffer_write(model->buffers[2], 0, x, sizeof x));
    kiln_tensor hidden = kiln_add(
        batch, kiln_gather(batch, table, ids, 0),
        kiln_matmul(batch, kiln_import(batch, model->buffers[2]), upload(model, IN, WIDE, first)));
    hidden = kiln_cumsum(batch, kiln_tanh(batch, kiln_mul(batch, hidden, noise)), 1, 0);
    kiln_tensor out = kiln_matmul(batch, hidden, upload(model, WIDE, OUT, second));
    kiln_tensor loss = kiln_cross_entropy(batch, out, ids);
    expect_ok(kiln_grad(batch, loss, &table, 1, &g));
    read_back(model, loss);
    read_back(model, g);
}

Test(parts_sums, scatter)
{
    compare("an embedding", record_embedding, 0.4, 4);
}

/* Sequences: rows are the first dimension of three, and all but the last of products' operands. */
static void record_attention(struct model *model)
{
    enum { BATCH = 20, LENGTH = 25, HEADS = 2, SIZE = 12 };
    kiln_batch *batch = model->batch;
    kiln_tensor w[4], g[4], heads[3];
    kiln_tensor input = kiln_upload(batch, KILN_F32, 3, (size_t[]){BATCH, LENGTH, IN}, x);
    kiln_tensor flat = kiln_reshape(batch, input, 2, (size_t[]){BATCH * LENGTH, IN});
    for (unsigned i = 0; i < 4; i++)
        w[i] = upload(model, IN, IN, first + i * IN * IN);
    for (unsigned i = 0; i < 3; i++) {
        kiln_tensor y = kiln_reshape(batch, kiln_matmul(batch, flat, w[i]), 4,
                                     (size_t[]){BATCH, LENGTH, HEADS, SIZE});
        heads[i] = kiln_transpose(batch, y, (size_t[]){0, 2, 1, 3});
    }
    kiln_tensor scores = kiln_softmax(
        batch, kiln_matmul_transposed(batch, heads[0], 0, heads[1], 1), 1, (int[]){-1});
    kiln_tensor mixed =
        kiln_transpose(batch, kiln_matmul(batch, scores, heads[2]), (size_t[]){0, 2, 1, 3});
    kiln_tensor out =
        kiln_matmul(batch, kiln_reshape(batch, mixed, 2, (size_t[]){BATCH * LENGTH, IN}), w[3]);
    kiln_tensor loss = kiln_mean(batch, kiln_mul(batch, out, out), 0, NULL, 0);
    expect_ok(kiln_grad(batch, loss, w, 4, g));
    read_back(model, loss);
    for (unsigned i = 0; i < 4; i++)
        read_back(model, g[i]);
}

Test(parts_sums, go_through_attention)
{
    compare("attention", record_attention, 0.4, 4);
}

/* ---- what has no parts ---- */

static void expect_refusal(recorder *record, uint64_t limit, const char *why, const char *what)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    options.memory_limit = limit;
    make_data();
    struct model model = {.context = open_context_with(&options), .results = &whole};
    whole.count = 0;
    model.batch = kiln_batch_create(model.context);
    record(&model);
    expect_error_part(kiln_batch_execute(model.batch), KILN_OUT_OF_DEVICE_MEMORY, why);
    cr_expect(strstr(kiln_last_error(), what), "%s", kiln_last_error());
    kiln_batch_release(model.batch);
    close_context(model.context);
}

/* Running sums over the rows, of what does not fit. */
static void record_running(struct model *model)
{
    kiln_batch *batch = model->batch;
    kiln_tensor wide =
        kiln_matmul(batch, upload(model, ROWS, IN, x), upload(model, IN, WIDE, first));
    kiln_tensor running = kiln_cumsum(batch, kiln_sort(batch, wide, -1, 0), 0, 0);
    read_back(model, kiln_sum(batch, running, 0, NULL, 0));
}

Test(parts_sums, are_refused_with_the_value_that_has_none)
{
    expect_refusal(record_running, 100000, "each of its rows would need all of an operand's in %",
                   "cumsum");
}

Test(parts_sums, are_refused_where_they_do_not_fit)
{
    expect_refusal(record_gradients, 20000, "the sums over its rows do not fit, as of %", "matmul");
}
