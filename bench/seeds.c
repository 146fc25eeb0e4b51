/* SPDX-License-Identifier: Apache-2.0 */
/* The device beside a plain program in C on one thread: products, relu, softmax, a network forward
 * and backward. Operands stay on the device. The plain program runs once, up front, and takes most
 * of the time: 11 of 20 s beside an H200. Nothing else runs in a row, so that none is timed alone.
 */
#include "bench.h"
#include "plain.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define MOST_BUFFERS 6

static struct work {
    kiln_context *context;
    kiln_batch *batch;
    kiln_buffer *inputs[MOST_BUFFERS], *results[MOST_BUFFERS];
    const float *in[MOST_BUFFERS];
    float *want[MOST_BUFFERS], *room[3];
    size_t input_count, result_count, sizes[MOST_BUFFERS];
    bool queued; /* runs follow each other on the device */
    double plain_seconds;
    void (*plain)(void);
    const char *name;
    size_t n; /* of the row: rows of the product, elements */
} work;

/* ---- operands ---- */

static kiln_tensor add_input(kiln_type type, size_t rank, const size_t *dims, float *values)
{
    kiln_buffer **buffer = &work.inputs[work.input_count];
    size_t count = rank > 1 ? dims[0] * dims[1] : dims[0];
    int *whole = type == KILN_I32 ? bench_memory(count * sizeof *whole) : NULL;
    for (size_t i = 0; i < count && whole; i++)
        whole[i] = (int)values[i];
    bench_ok(kiln_buffer_create(work.context, type, rank, dims, buffer), "a buffer");
    bench_ok(kiln_buffer_write(*buffer, 0, whole ? (void *)whole : values, count * 4), "writing");
    free(whole);
    work.in[work.input_count++] = values;
    return kiln_import(work.batch, *buffer);
}

static kiln_tensor add_floats(size_t rank, const size_t *dims, float scale)
{
    size_t count = rank > 1 ? dims[0] * dims[1] : dims[0];
    float *values = bench_floats(count, (unsigned)work.input_count + 1);
    for (size_t i = 0; i < count; i++)
        values[i] *= scale;
    return add_input(KILN_F32, rank, dims, values);
}

static void add_result(kiln_tensor y, size_t rank, const size_t *dims)
{
    size_t r = work.result_count++;
    work.sizes[r] = rank > 1 ? dims[0] * dims[1] : dims[0];
    work.want[r] = bench_memory(work.sizes[r] * sizeof(float));
    bench_ok(kiln_buffer_create(work.context, KILN_F32, rank, dims, &work.results[r]), "a buffer");
    bench_ok(kiln_export(work.batch, y, work.results[r]), "recording");
}

/* ---- rows ---- */

static void plain_product(void)
{
    plain_matmul(work.n, work.n, work.n, work.in[0], work.in[1], work.want[0]);
}

static double record_product(size_t n)
{
    const size_t dims[2] = {n, n};
    kiln_tensor a = add_floats(2, dims, 1), b = add_floats(2, dims, 1);
    add_result(kiln_matmul(work.batch, a, b), 2, dims);
    work.plain = plain_product;
    return 2.0 * (double)n * (double)n * (double)n;
}

static void plain_one_relu(void)
{
    plain_relu(work.n, work.in[0], work.want[0]);
}

static double record_relu(size_t n)
{
    add_result(kiln_relu(work.batch, add_floats(1, &n, 1)), 1, &n);
    work.plain = plain_one_relu;
    return 0;
}

static void plain_one_softmax(void)
{
    plain_softmax(work.n, work.in[0], work.want[0]);
}

static double record_softmax(size_t n)
{
    add_result(kiln_softmax(work.batch, add_floats(1, &n, 1), 0, NULL), 1, &n);
    work.plain = plain_one_softmax;
    return 0;
}

enum { ROWS = 256, FEATURES = 784, HIDDEN = 512, KINDS = 10 };

static void plain_one_network(void)
{
    plain_network(&(struct plain_network){.n = ROWS,
                                          .p = FEATURES,
                                          .h = HIDDEN,
                                          .c = KINDS,
                                          .x = work.in[0],
                                          .labels = work.in[1],
                                          .w1 = work.in[2],
                                          .b1 = work.in[3],
                                          .w2 = work.in[4],
                                          .b2 = work.in[5],
                                          .g1 = work.want[0],
                                          .s1 = work.want[1],
                                          .g2 = work.want[2],
                                          .s2 = work.want[3],
                                          .hidden = work.room[0],
                                          .slope = work.room[1],
                                          .back = work.room[2]});
}

static double record_network(size_t n)
{
    static const size_t shapes[4][2] = {{FEATURES, HIDDEN}, {HIDDEN}, {HIDDEN, KINDS}, {KINDS}};
    static const size_t ranks[4] = {2, 1, 2, 1};
    const size_t x_dims[2] = {n, FEATURES};
    kiln_tensor weights[4], gradients[4];
    kiln_batch *batch = work.batch;
    float *labels = bench_memory(n * sizeof *labels);
    for (size_t i = 0; i < n; i++)
        labels[i] = (float)(i * 7 % KINDS);
    kiln_tensor x = add_floats(2, x_dims, 1), classes = add_input(KILN_I32, 1, &n, labels);
    for (size_t i = 0; i < 4; i++)
        weights[i] = add_floats(ranks[i], shapes[i], 0.05f);
    kiln_tensor y =
        kiln_relu(batch, kiln_add(batch, kiln_matmul(batch, x, weights[0]), weights[1]));
    y = kiln_add(batch, kiln_matmul(batch, y, weights[2]), weights[3]);
    kiln_grad(batch, kiln_cross_entropy(batch, y, classes), weights, 4, gradients);
    for (size_t i = 0; i < 4; i++)
        add_result(gradients[i], ranks[i], shapes[i]);
    work.room[0] = bench_memory(n * HIDDEN * sizeof(float));
    work.room[1] = bench_memory(n * KINDS * sizeof(float));
    work.room[2] = bench_memory(n * HIDDEN * sizeof(float));
    work.plain = plain_one_network;
    return 2.0 * (double)n * FEATURES * 2 * HIDDEN + 2.0 * (double)n * HIDDEN * 3 * KINDS;
}

static const struct row {
    const char *name;
    double (*record)(size_t n); /* gives its multiply-adds, times two */
    size_t n;
    double bytes;
    bool long_in_c;
} rows[] = {
    {"product, 1024 x 1024", record_product, 1024, 12.0 * 1024 * 1024, false},
    {"product, 4096 x 4096", record_product, 4096, 12.0 * 4096 * 4096, true},
    {"relu of a million", record_relu, 1000000, 8e6, false},
    {"softmax of a million", record_softmax, 1000000, 8e6, false},
    {"network 784-512-10, 256 rows, forward and backward", record_network, ROWS, 5e6, false},
};

/* ---- ways ---- */

static void run_kiln(void *user)
{
    (void)user;
    bench_ok(work.queued ? kiln_batch_submit(work.batch, NULL) : kiln_batch_execute(work.batch),
             "the batch");
}

static void finish_kiln(void *user)
{
    (void)user;
    bench_ok(kiln_context_finish(work.context), "waiting");
}

/* Once for all: it has worked out what kiln's results are compared with, and takes long. */
static void run_plain(void *user)
{
    (void)user;
    if (work.plain_seconds > 0)
        return;
    size_t runs = 0;
    printf("  plain C  %s: ", work.name);
    fflush(stdout);
    double start = bench_now();
    do {
        work.plain();
        runs++;
    } while (bench_now() - start < 0.3);
    work.plain_seconds = (bench_now() - start) / (double)runs;
    printf("%.3g s\n", work.plain_seconds);
    fflush(stdout);
}

static double plain_seconds(void *user)
{
    (void)user;
    return work.plain_seconds;
}

/* Both add up in f32: the error is one of the largest result. */
static bool check_kiln(void *user)
{
    (void)user;
    run_plain(NULL);
    for (size_t r = 0; r < work.result_count; r++) {
        float *got = bench_memory(work.sizes[r] * sizeof *got), most = 0, off = 0;
        bench_ok(kiln_buffer_read(work.results[r], 0, got, work.sizes[r] * sizeof *got), "reading");
        for (size_t i = 0; i < work.sizes[r]; i++) {
            most = fmaxf(most, fabsf(work.want[r][i]));
            off = fmaxf(off, fabsf(got[i] - work.want[r][i]));
        }
        free(got);
        if (!(off <= 1e-4f * most))
            return false;
    }
    return true;
}

static void release(void)
{
    kiln_batch_release(work.batch);
    for (size_t i = 0; i < work.input_count; i++) {
        kiln_buffer_release(work.inputs[i]);
        free((void *)work.in[i]);
    }
    for (size_t r = 0; r < work.result_count; r++) {
        kiln_buffer_release(work.results[r]);
        free(work.want[r]);
    }
    for (size_t i = 0; i < 3; i++)
        free(work.room[i]);
}

static void measure(kiln_context *context, const struct row *row)
{
    struct bench_row figures = {
        .name = row->name, .unit = BENCH_MS, .bytes = row->bytes, .trusted = true};
    kiln_device_info info;
    bench_ok(kiln_context_device(context, &info), "the device");
    work = (struct work){
        .context = context, .n = row->n, .name = row->name, .queued = info.type == KILN_DEVICE_GPU};
    work.batch = kiln_batch_create(context);
    figures.flops = row->record(row->n);
    bench_way(&figures, "kiln", run_kiln, check_kiln, NULL)->finish =
        work.queued ? finish_kiln : NULL;
    bench_peer(&figures, "plain C, one thread", run_plain, NULL, NULL)->seconds = plain_seconds;
    bench_compare(&figures, "kiln", "plain C, one thread");
    bench_measure(&figures);
    release();
}

int main(int argc, char **argv)
{
    static const struct bench_program program = {
        .name = "seeds",
        .purpose = "The device beside a plain program in C on one thread",
        .seconds = 0.4}; /* where one is a hundred times the other */
    kiln_context *context = bench_start(&program, argc, argv);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (bench_wants(rows[i].name) && !(bench_is_quick() && rows[i].long_in_c))
            measure(context, &rows[i]);
    return bench_end(context);
}
