/* SPDX-License-Identifier: Apache-2.0 */
/* Attention beside C with OpenMP in blocks, beside OpenBLAS with whole score matrices, and beside
 * kiln's own products and softmax. Operands stay on the device. */
#include "bench.h"
#include "peer_attention.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct shape {
    struct peer_attention attention;
    bool quick;
    double of_blocked; /* target on a CPU */
} shapes[] = {
    /* clang-format off */
    {{8, 512, 512, 64, false}, true, 1.0},
    {{8, 1024, 1024, 64, false}, false, 1.0},
    {{8, 1024, 1024, 64, true}, true, 1.0},
    {{2, 4096, 4096, 64, false}, false, 1.0},
    {{8, 1024, 1024, 128, false}, false, 1.0},
    {{32, 64, 2048, 64, false}, false, 1.0},
    /* clang-format on */
};

static struct work {
    struct peer_attention attention;
    const float *q, *k, *v;
    float *scores, *out;
    double *want; /* of the samples */
    kiln_context *context;
} work;

/* One of kiln's two ways. */
static struct side {
    kiln_batch *batch;
    kiln_buffer *out;
} node, composite;

/* ---- checking: some rows of every head ---- */

enum { SAMPLE_ROWS = 4, MOST_KEYS = 4096 };

static size_t sample_row(size_t sample)
{
    return sample * (work.attention.m - 1) / (SAMPLE_ROWS - 1);
}

static void compute_row(const float *q, const float *k, const float *v, size_t seen, double *want)
{
    static double weight[MOST_KEYS];
    size_t d = work.attention.d;
    double peak = -INFINITY, total = 0;
    for (size_t j = 0; j < seen; j++) {
        weight[j] = 0;
        for (size_t c = 0; c < d; c++)
            weight[j] += (double)q[c] * k[j * d + c];
        weight[j] /= sqrt((double)d);
        peak = fmax(peak, weight[j]);
    }
    memset(want, 0, d * sizeof *want);
    for (size_t j = 0; j < seen; j++) {
        weight[j] = exp(weight[j] - peak);
        total += weight[j];
        for (size_t c = 0; c < d; c++)
            want[c] += weight[j] * v[j * d + c];
    }
    for (size_t c = 0; c < d; c++)
        want[c] /= total;
}

static void compute_reference(void)
{
    const struct peer_attention *a = &work.attention;
    for (size_t head = 0; head < a->heads; head++)
        for (size_t s = 0; s < SAMPLE_ROWS; s++) {
            size_t row = sample_row(s);
            compute_row(work.q + (head * a->m + row) * a->d, work.k + head * a->n * a->d,
                        work.v + head * a->n * a->d, a->causal ? row + 1 : a->n,
                        work.want + (head * SAMPLE_ROWS + s) * a->d);
        }
}

/* Values lie in [-2, 2), and so do means of them. */
static bool is_right(const char *name)
{
    const struct peer_attention *a = &work.attention;
    for (size_t i = 0; i < a->heads * SAMPLE_ROWS; i++) {
        size_t line = (i / SAMPLE_ROWS * a->m + sample_row(i % SAMPLE_ROWS)) * a->d;
        if (!bench_close(name, a->d, work.out + line, work.want + i * a->d, 1e-5, 1e-4))
            return false;
    }
    memset(work.out, 0xff, a->heads * a->m * a->d * sizeof *work.out);
    return true;
}

static bool check_side(void *user)
{
    const struct side *side = user;
    const struct peer_attention *a = &work.attention;
    bench_ok(kiln_buffer_read(side->out, 0, work.out, a->heads * a->m * a->d * sizeof *work.out),
             "reading");
    return is_right(side == &node ? "kiln" : "kiln, by products");
}

static bool check_blocked(void *user)
{
    (void)user;
    return is_right("C, blocked");
}

static bool check_products(void *user)
{
    (void)user;
    return is_right("OpenBLAS");
}

/* ---- ways ---- */

static void run_side(void *user)
{
    const struct side *side = user;
    bench_ok(kiln_batch_execute(side->batch), "running");
}

static void run_blocked(void *user)
{
    (void)user;
    peer_attention_blocked(&work.attention, work.q, work.k, work.v, work.out);
}

static void run_products(void *user)
{
    (void)user;
    peer_attention_products(&work.attention, work.q, work.k, work.v, work.scores, work.out);
}

/* ---- rows ---- */

static kiln_tensor import(struct side *side, size_t rows, const float *values)
{
    kiln_buffer *buffer;
    size_t dims[3] = {work.attention.heads, rows, work.attention.d};
    bench_ok(kiln_buffer_create(work.context, KILN_F32, 3, dims, &buffer), "making a buffer");
    if (values)
        bench_ok(kiln_buffer_write(buffer, 0, values, dims[0] * rows * dims[2] * sizeof *values),
                 "writing");
    else
        side->out = buffer;
    kiln_tensor tensor = values ? kiln_import(side->batch, buffer) : (kiln_tensor){0};
    if (values)
        kiln_buffer_release(buffer); /* the batch holds it */
    return tensor;
}

static kiln_tensor by_products(kiln_batch *batch, kiln_tensor q, kiln_tensor k, kiln_tensor v)
{
    kiln_tensor scaled = kiln_scale(batch, q, 1 / sqrt((double)work.attention.d));
    kiln_tensor scores = kiln_matmul_transposed(batch, scaled, 0, k, 1);
    return kiln_matmul(batch, kiln_softmax(batch, scores, 1, (int[]){-1}), v);
}

static void open_side(struct side *side)
{
    kiln_attention_options options = KILN_ATTENTION_OPTIONS_INIT;
    options.causal = work.attention.causal;
    side->batch = kiln_batch_create(work.context);
    kiln_tensor q = import(side, work.attention.m, work.q);
    kiln_tensor k = import(side, work.attention.n, work.k);
    kiln_tensor v = import(side, work.attention.n, work.v);
    import(side, work.attention.m, NULL);
    kiln_tensor y = side == &node ? kiln_attention(side->batch, q, k, v, (kiln_tensor){0}, &options)
                                  : by_products(side->batch, q, k, v);
    bench_ok(kiln_export(side->batch, y, side->out), "recording");
}

static void close_side(struct side *side)
{
    kiln_batch_release(side->batch);
    kiln_buffer_release(side->out);
    *side = (struct side){0};
}

static void measure(const struct shape *shape)
{
    const struct peer_attention *a = &shape->attention;
    char name[64];
    snprintf(name, sizeof name, "%zu heads, %zu x %zu x %zu%s", a->heads, a->m, a->n, a->d,
             a->causal ? ", causal" : "");
    if (!bench_wants(name) || (bench_is_quick() && !shape->quick))
        return;
    struct bench_row row = {.name = name, .unit = BENCH_GFLOPS};
    row.amount = 4.0 * (double)(a->heads * a->m) * (double)(a->n * a->d) / (a->causal ? 2 : 1);
    work.attention = *a;
    compute_reference();
    open_side(&node);
    bench_way(&row, "kiln", run_side, check_side, &node);
    if (!a->causal) {
        open_side(&composite);
        bench_way(&row, "kiln, by products", run_side, check_side, &composite);
        bench_compare(&row, "kiln", "kiln, by products");
    }
    bench_peer(&row, "C, blocked", run_blocked, check_blocked, NULL);
    bench_at_least(&row, "kiln", "C, blocked", shape->of_blocked);
    if (peer_has_attention_products()) {
        bench_peer(&row, "OpenBLAS", run_products, check_products, NULL);
        bench_compare(&row, "kiln", "OpenBLAS");
    }
    bench_measure(&row);
    close_side(&node);
    if (composite.batch)
        close_side(&composite);
}

int main(int argc, char **argv)
{
    static const struct bench_program program = {.name = "attention",
                                                 .purpose = "Scaled dot-product attention"};
    const size_t most = (size_t)32 * 2048 * 64, rows = (size_t)32 * SAMPLE_ROWS * 128;
    work.context = bench_start(&program, argc, argv);
    work.q = bench_floats(most, 1);
    work.k = bench_floats(most, 2);
    work.v = bench_floats(most, 3);
    work.out = bench_memory(most * sizeof *work.out);
    work.scores = bench_memory((size_t)MOST_KEYS * MOST_KEYS * sizeof *work.scores);
    work.want = bench_memory(rows * sizeof *work.want);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        measure(&shapes[i]);
    return bench_end(work.context);
}
