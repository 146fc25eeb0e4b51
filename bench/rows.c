/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax and normalisations, each one kernel, beside loops in C. Everything stays on the device:
 * the peer's arrays are in its own memory. */
#include "bench.h"
#include "peer_rows.h"

#include <math.h>
#include <string.h>

static const int last[] = {-1};
static const kiln_tensor none;

#define MOST_ELEMENTS ((size_t)4096 * 4096)
#define MOST_COLUMNS ((size_t)50257)

/* ---- cases ---- */

typedef kiln_tensor record_rows(kiln_batch *batch, kiln_tensor x, kiln_tensor scale,
                                kiln_tensor shift);

static kiln_tensor record_softmax(kiln_batch *batch, kiln_tensor x, kiln_tensor scale,
                                  kiln_tensor shift)
{
    (void)scale, (void)shift;
    return kiln_softmax(batch, x, 1, last);
}

static kiln_tensor record_log_softmax(kiln_batch *batch, kiln_tensor x, kiln_tensor scale,
                                      kiln_tensor shift)
{
    (void)scale, (void)shift;
    return kiln_log_softmax(batch, x, 1, last);
}

static kiln_tensor record_layer_norm(kiln_batch *batch, kiln_tensor x, kiln_tensor scale,
                                     kiln_tensor shift)
{
    return kiln_layer_norm(batch, x, scale, shift, 1, last, 1e-5);
}

static kiln_tensor record_rms_norm(kiln_batch *batch, kiln_tensor x, kiln_tensor scale,
                                   kiln_tensor shift)
{
    (void)scale, (void)shift;
    return kiln_rms_norm(batch, x, none, 1, last, 1e-5);
}

static const struct function {
    const char *name;
    record_rows *record;
    peer_of_rows *peer;
    double of_peer; /* target */
} softmax = {"softmax", record_softmax, peer_softmax, 1.3},
  log_softmax = {"log-softmax", record_log_softmax, peer_log_softmax, 1.3},
  layer_norm = {"layer norm", record_layer_norm, peer_layer_norm, 1.0},
  rms_norm = {"RMS norm", record_rms_norm, peer_rms_norm, 1.0};

static const struct rows {
    const char *name;
    const struct function *function;
    size_t rows, columns;
    bool quick;
} cases[] = {
    {"softmax, 4096 x 1024", &softmax, 4096, 1024, true},
    {"softmax, 262144 x 64", &softmax, 262144, 64, false},
    {"softmax, 256 x 50257", &softmax, 256, 50257, false},
    {"log-softmax, 4096 x 1000", &log_softmax, 4096, 1000, false},
    {"layer norm, 4096 x 1024", &layer_norm, 4096, 1024, true},
    {"layer norm, 16384 x 768", &layer_norm, 16384, 768, false},
    {"RMS norm, 4096 x 4096", &rms_norm, 4096, 4096, false},
};

static struct work {
    const struct rows *rows;
    kiln_context *context;
    kiln_batch *batch;
    kiln_buffer *output;
    const float *x, *scale, *shift;
    float *y;
    double *want; /* of a row */
} work;

/* ---- reference, in double ---- */

static void reference(const struct rows *rows, const float *x)
{
    size_t n = rows->columns;
    double mean = 0, square = 0, variance = 0, sum = 0;
    for (size_t i = 0; i < n; i++) {
        mean += x[i] / (double)n;
        square += x[i] * (double)x[i] / (double)n;
        sum += exp(x[i]);
    }
    for (size_t i = 0; i < n; i++)
        variance += (x[i] - mean) * (x[i] - mean) / (double)n;
    for (size_t i = 0; i < n; i++) {
        if (rows->function == &softmax)
            work.want[i] = exp(x[i]) / sum;
        else if (rows->function == &log_softmax)
            work.want[i] = x[i] - log(sum);
        else if (rows->function == &rms_norm)
            work.want[i] = x[i] / sqrt(square + 1e-5);
        else
            work.want[i] = (x[i] - mean) / sqrt(variance + 1e-5) * work.scale[i] + work.shift[i];
    }
}

/* ---- ways ---- */

static void run_kiln(void *user)
{
    (void)user;
    bench_ok(kiln_batch_execute(work.batch), "the batch");
}

static void run_peer(void *user)
{
    const struct rows *rows = work.rows;
    (void)user;
    rows->function->peer(rows->rows, rows->columns, work.x, work.scale, work.shift, work.y);
}

/* Both ways' results come to the same place, one after the other. */
static bool check(void *user)
{
    const struct rows *rows = work.rows;
    size_t n = rows->columns;
    bool right = true;
    if (!user)
        bench_ok(kiln_buffer_read(work.output, 0, work.y, rows->rows * n * sizeof *work.y),
                 "reading");
    for (size_t row = 0; row < rows->rows && right; row++) {
        reference(rows, work.x + row * n);
        right = bench_close(rows->name, n, work.y + row * n, work.want, 1e-5, 1e-5);
    }
    memset(work.y, 0xff, rows->rows * n * sizeof *work.y);
    return right;
}

static kiln_tensor import(size_t rank, const size_t *dims, const float *data, kiln_buffer **buffer)
{
    size_t count = 1;
    for (size_t d = 0; d < rank; d++)
        count *= dims[d];
    bench_ok(kiln_buffer_create(work.context, KILN_F32, rank, dims, buffer), "making a buffer");
    bench_ok(kiln_buffer_write(*buffer, 0, data, count * sizeof *data), "writing");
    return kiln_import(work.batch, *buffer);
}

static void measure(const struct rows *rows)
{
    const struct function *function = rows->function;
    const size_t dims[] = {rows->rows, rows->columns};
    struct bench_row row = {.name = rows->name, .unit = BENCH_MS};
    kiln_buffer *input[3];
    work.rows = rows;
    work.batch = kiln_batch_create(work.context);
    kiln_tensor x = import(2, dims, work.x, &input[0]);
    kiln_tensor scale = import(1, dims + 1, work.scale, &input[1]);
    kiln_tensor shift = import(1, dims + 1, work.shift, &input[2]);
    bench_ok(kiln_buffer_create(work.context, KILN_F32, 2, dims, &work.output), "making a buffer");
    bench_ok(kiln_export(work.batch, function->record(work.batch, x, scale, shift), work.output),
             "recording");
    bench_way(&row, "kiln", run_kiln, check, NULL);
    bench_peer(&row, "C loop", run_peer, check, &work);
    bench_at_least(&row, "kiln", "C loop", function->of_peer);
    bench_measure(&row);
    kiln_batch_release(work.batch);
    kiln_buffer_release(work.output);
    for (size_t i = 0; i < 3; i++)
        kiln_buffer_release(input[i]);
}

int main(int argc, char **argv)
{
    static const struct bench_program program = {.name = "rows",
                                                 .purpose = "Softmax and normalisations of rows"};
    work.context = bench_start(&program, argc, argv);
    work.x = bench_floats(MOST_ELEMENTS, 1);
    work.scale = bench_floats(MOST_COLUMNS, 2);
    work.shift = bench_floats(MOST_COLUMNS, 3);
    work.y = bench_memory(MOST_ELEMENTS * sizeof *work.y);
    work.want = bench_memory(MOST_COLUMNS * sizeof *work.want);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (bench_wants(cases[i].name) && (cases[i].quick || !bench_is_quick()))
            measure(&cases[i]);
    return bench_end(work.context);
}
