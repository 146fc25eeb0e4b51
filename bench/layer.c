/* SPDX-License-Identifier: Apache-2.0 */
/* Layers of networks: a product with bias and gelu, in its kernel and as a kernel of its own; a
 * convolution. Beside OpenBLAS and loops in C. Operands stay on the device. */
#include "bench.h"
#include "peer_layer.h"
#include "peer_matmul.h"

#include <math.h>
#include <stdio.h>

/* Images of edge by edge pixels, or rows where edge is 0. */
static const struct layer {
    size_t rows, in, out;               /* a product */
    size_t count, edge, channels, size; /* a convolution, of odd size and with zeros around */
    bool quick;
} layers[] = {
    /* clang-format off */
    {.rows = 128, .in = 256, .out = 256, .quick = true},
    {.rows = 512, .in = 512, .out = 512},
    {.rows = 1024, .in = 1024, .out = 1024},
    {.rows = 8, .in = 1024, .out = 4096, .quick = true},
    {.count = 8, .edge = 32, .channels = 32, .size = 3, .out = 64, .quick = true},
    {.count = 8, .edge = 56, .channels = 64, .size = 3, .out = 64},
    {.count = 32, .edge = 28, .channels = 64, .size = 1, .out = 128},
    /* clang-format on */
};

static struct work {
    const struct layer *layer;
    size_t rows, depth; /* of the product */
    const float *x, *w, *bias;
    float *windows, *y; /* of the peer */
    double *want;
    kiln_context *context;
    kiln_buffer *buffer[4];       /* x, w, bias, y */
    kiln_batch *fused, *apart[2]; /* apart: the product, then what follows */
    kiln_buffer *between;
} work;

/* ---- checking ---- */

static double gelu(double x)
{
    return 0.5 * x * (1 + erf(x * 0.70710678118654752));
}

/* Rows of the result at even distances; the peer's windows are right if theirs is. */
enum { SAMPLES = 16 };

static size_t sample_row(size_t sample)
{
    return sample * (work.rows - 1) / (SAMPLES - 1);
}

static double x_at(size_t row, size_t k)
{
    const struct layer *l = work.layer;
    if (!l->edge)
        return work.x[row * work.depth + k];
    size_t c = k % l->channels, v = k / l->channels % l->size, u = k / l->channels / l->size;
    int64_t i = (int64_t)(row / l->edge % l->edge + u) - (int64_t)l->size / 2;
    int64_t j = (int64_t)(row % l->edge + v) - (int64_t)l->size / 2;
    if (i < 0 || j < 0 || i >= (int64_t)l->edge || j >= (int64_t)l->edge)
        return 0;
    size_t image = row / (l->edge * l->edge);
    return work.x[((image * l->edge + (size_t)i) * l->edge + (size_t)j) * l->channels + c];
}

static void compute_reference(void)
{
    size_t out = work.layer->out;
    for (size_t s = 0; s < SAMPLES; s++) {
        for (size_t o = 0; o < out; o++) {
            double sum = 0;
            for (size_t k = 0; k < work.depth; k++)
                sum += x_at(sample_row(s), k) * (double)work.w[k * out + o];
            work.want[s * out + o] = gelu(sum + (double)work.bias[o]);
        }
    }
}

static bool is_right(const char *name)
{
    size_t out = work.layer->out;
    for (size_t s = 0; s < SAMPLES; s++)
        if (!bench_close(name, out, work.y + sample_row(s) * out, work.want + s * out,
                         1e-5 * (double)work.depth, 1e-5))
            return false;
    return true;
}

static bool check_kiln(void *user)
{
    (void)user;
    bench_ok(
        kiln_buffer_read(work.buffer[3], 0, work.y, work.rows * work.layer->out * sizeof *work.y),
        "reading");
    return is_right("kiln");
}

static bool check_peer(void *user)
{
    (void)user;
    return is_right("OpenBLAS");
}

/* ---- ways ---- */

static void run_fused(void *user)
{
    (void)user;
    bench_ok(kiln_batch_execute(work.fused), "running");
}

static void run_independent(void *user)
{
    (void)user;
    for (int i = 0; i < 2; i++)
        bench_ok(kiln_batch_execute(work.apart[i]), "running");
}

static void run_peer(void *user)
{
    (void)user;
    const struct layer *l = work.layer;
    struct peer_product product = {work.rows, l->out, work.depth, false};
    if (l->size > 1)
        peer_windows(l->count, l->edge, l->channels, l->size, work.x, work.windows);
    peer_openblas(&product, l->size > 1 ? work.windows : work.x, work.w, work.y);
    peer_bias_gelu(work.rows, l->out, work.bias, work.y);
}

/* ---- rows ---- */

static kiln_tensor record_product(kiln_batch *batch)
{
    const struct layer *l = work.layer;
    kiln_tensor x = kiln_import(batch, work.buffer[0]), w = kiln_import(batch, work.buffer[1]);
    if (!l->edge)
        return kiln_matmul(batch, x, w);
    kiln_window_options options = KILN_WINDOW_OPTIONS_INIT;
    for (int i = 0; i < 2; i++)
        options.before[i] = options.after[i] = l->size / 2;
    return kiln_conv2d(batch, x, w, &options);
}

static void record_rest(kiln_batch *batch, kiln_tensor product)
{
    kiln_tensor bias = kiln_import(batch, work.buffer[2]);
    kiln_tensor y = kiln_gelu(batch, kiln_add(batch, product, bias));
    bench_ok(kiln_export(batch, y, work.buffer[3]), "recording");
}

static void record(void)
{
    work.fused = kiln_batch_create(work.context);
    record_rest(work.fused, record_product(work.fused));
    for (int i = 0; i < 2; i++)
        work.apart[i] = kiln_batch_create(work.context);
    bench_ok(kiln_export(work.apart[0], record_product(work.apart[0]), work.between), "recording");
    record_rest(work.apart[1], kiln_import(work.apart[1], work.between));
}

static kiln_buffer *make_buffer(size_t rank, const size_t *dims, const float *values)
{
    kiln_buffer *buffer;
    bench_ok(kiln_buffer_create(work.context, KILN_F32, rank, dims, &buffer), "making a buffer");
    if (values)
        bench_ok(kiln_buffer_write(buffer, 0, values, kiln_buffer_bytes(buffer)), "writing");
    return buffer;
}

static void open_layer(const struct layer *l)
{
    work.layer = l;
    work.rows = l->edge ? l->count * l->edge * l->edge : l->rows;
    work.depth = l->edge ? l->size * l->size * l->channels : l->in;
    size_t matrix[] = {l->rows, l->in}, image[] = {l->count, l->edge, l->edge, l->channels};
    size_t weights[] = {l->in, l->out}, kernel[] = {l->size, l->size, l->channels, l->out};
    size_t flat[] = {l->rows, l->out}, deep[] = {l->count, l->edge, l->edge, l->out};
    size_t rank = l->edge ? 4 : 2;
    work.buffer[0] = make_buffer(rank, l->edge ? image : matrix, work.x);
    work.buffer[1] = make_buffer(rank, l->edge ? kernel : weights, work.w);
    work.buffer[2] = make_buffer(1, &l->out, work.bias);
    work.buffer[3] = make_buffer(rank, l->edge ? deep : flat, NULL);
    work.between = make_buffer(rank, l->edge ? deep : flat, NULL);
    record();
    compute_reference();
}

static void close_layer(void)
{
    kiln_batch_release(work.fused);
    for (int i = 0; i < 2; i++)
        kiln_batch_release(work.apart[i]);
    for (int i = 0; i < 4; i++)
        kiln_buffer_release(work.buffer[i]);
    kiln_buffer_release(work.between);
}

static void measure(const struct layer *l)
{
    char name[80];
    if (l->edge)
        snprintf(name, sizeof name, "conv %zux%zu, %zu of %zux%zux%zu to %zu, bias, gelu", l->size,
                 l->size, l->count, l->edge, l->edge, l->channels, l->out);
    else
        snprintf(name, sizeof name, "%zu x %zu x %zu, bias, gelu", l->rows, l->out, l->in);
    if (!bench_wants(name) || (bench_is_quick() && !l->quick))
        return;
    open_layer(l);
    struct bench_row row = {.name = name, .unit = BENCH_GFLOPS};
    row.amount = 2.0 * (double)work.rows * (double)l->out * (double)work.depth;
    bench_way(&row, "kiln", run_fused, check_kiln, NULL);
    bench_way(&row, "kiln, two batches", run_independent, check_kiln, NULL);
    bench_compare(&row, "kiln", "kiln, two batches");
    if (peer_has_openblas()) {
        bench_peer(&row, "OpenBLAS and a loop", run_peer, check_peer, NULL);
        bench_compare(&row, "kiln", "OpenBLAS and a loop");
    }
    bench_measure(&row);
    close_layer();
}

int main(int argc, char **argv)
{
    static const struct bench_program program = {
        .name = "layer", .purpose = "Products and convolutions with bias and gelu"};
    const size_t most = (size_t)4096 * 1024, windows = (size_t)8 * 56 * 56 * 64 * 9;
    work.context = bench_start(&program, argc, argv);
    work.x = bench_floats(most, 1);
    work.w = bench_floats(most, 2);
    work.bias = bench_floats(4096, 3);
    work.y = bench_memory(most * sizeof *work.y);
    work.windows = bench_memory(windows * sizeof *work.windows);
    work.want = bench_memory(SAMPLES * 4096 * sizeof *work.want);
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        measure(&layers[i]);
    return bench_end(work.context);
}
