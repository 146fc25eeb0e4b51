/* SPDX-License-Identifier: Apache-2.0 */
/* kiln beside the libraries that one would use instead on a CPU: numpy, PyTorch, PyOpenCL,
 * ViennaCL. Each is a program of its own (bench/process.h) that does a row's work when asked; those
 * that are not installed are left out. Operands stay where each library has its own. */
#include "bench.h"
#include "process.h"
#include "reference.h"

#include <stdio.h>
#include <stdlib.h>

#define MOST_INPUTS 6
#define MOST_RESULTS 4

static const int axis_0[] = {0}, axis_1[] = {1};

/* ---- what is recorded ---- */

typedef void record(kiln_batch *batch, const kiln_tensor *in, kiln_tensor *out);

static void record_chain(kiln_batch *batch, const kiln_tensor *in, kiln_tensor *out)
{
    out[0] = kiln_relu(batch, kiln_add(batch, kiln_mul(batch, in[0], in[1]), in[2]));
}

static void record_sum(kiln_batch *batch, const kiln_tensor *in, kiln_tensor *out)
{
    out[0] = kiln_sum(batch, in[0], 0, NULL, 0);
}

static void record_row_sums(kiln_batch *batch, const kiln_tensor *in, kiln_tensor *out)
{
    out[0] = kiln_sum(batch, in[0], 1, axis_1, 0);
}

static void record_column_sums(kiln_batch *batch, const kiln_tensor *in, kiln_tensor *out)
{
    out[0] = kiln_sum(batch, in[0], 1, axis_0, 0);
}

static void record_transpose(kiln_batch *batch, const kiln_tensor *in, kiln_tensor *out)
{
    out[0] = kiln_transpose(batch, in[0], NULL);
}

static void record_softmax(kiln_batch *batch, const kiln_tensor *in, kiln_tensor *out)
{
    out[0] = kiln_softmax(batch, in[0], 1, axis_1);
}

static void record_layer_norm(kiln_batch *batch, const kiln_tensor *in, kiln_tensor *out)
{
    out[0] = kiln_layer_norm(batch, in[0], in[1], in[2], 1, axis_1, 1e-5);
}

static void record_linear_gelu(kiln_batch *batch, const kiln_tensor *in, kiln_tensor *out)
{
    out[0] = kiln_gelu_tanh(batch, kiln_add(batch, kiln_matmul(batch, in[0], in[1]), in[2]));
}

static void record_conv(kiln_batch *batch, const kiln_tensor *in, kiln_tensor *out)
{
    kiln_window_options options = {.size = sizeof options, .before = {1, 1}, .after = {1, 1}};
    out[0] = kiln_relu(batch, kiln_add(batch, kiln_conv2d(batch, in[0], in[1], &options), in[2]));
}

static void record_attention(kiln_batch *batch, const kiln_tensor *in, kiln_tensor *out)
{
    out[0] = kiln_attention(batch, in[0], in[1], in[2], (kiln_tensor){0}, NULL);
}

static void record_training_step(kiln_batch *batch, const kiln_tensor *in, kiln_tensor *out)
{
    kiln_tensor hidden = kiln_relu(batch, kiln_add(batch, kiln_matmul(batch, in[0], in[2]), in[3]));
    kiln_tensor logits = kiln_add(batch, kiln_matmul(batch, hidden, in[4]), in[5]);
    kiln_tensor labels = kiln_cast(batch, in[1], KILN_I32), gradients[4];
    kiln_grad(batch, kiln_cross_entropy(batch, logits, labels), in + 2, 4, gradients);
    for (int i = 0; i < 4; i++)
        out[i] = kiln_sub(batch, in[2 + i], kiln_scale(batch, gradients[i], 0.1));
}

/* ---- rows ---- */

static const struct row {
    const char *name, *operation; /* the latter as peers know it */
    size_t input_count;
    struct process_shape inputs[MOST_INPUTS];
    size_t result_count;
    struct process_shape results[MOST_RESULTS];
    record *record;
    reference *reference;
    double slack; /* absolute and relative error allowed */
    bool quick;
} rows[] = {
    /* clang-format off */
    {"relu(a * b + c), 1000000", "chain", 3, {{1, {1000000}}, {1, {1000000}}, {1, {1000000}}},
     1, {{1, {1000000}}}, record_chain, reference_chain, 1e-6, true},
    {"relu(a * b + c), 16000000", "chain", 3, {{1, {16000000}}, {1, {16000000}}, {1, {16000000}}},
     1, {{1, {16000000}}}, record_chain, reference_chain, 1e-6, false},
    {"sum of 16000000", "sum", 1, {{1, {16000000}}}, 1, {{0, {0}}}, record_sum, reference_sum, 0.5,
     true},
    {"rows' sums, 4096 x 4096", "row_sums", 1, {{2, {4096, 4096}}}, 1, {{1, {4096}}},
     record_row_sums, reference_row_sums, 1e-2, false},
    {"columns' sums, 4096 x 4096", "column_sums", 1, {{2, {4096, 4096}}}, 1, {{1, {4096}}},
     record_column_sums, reference_column_sums, 1e-2, false},
    {"transpose, 4096 x 4096", "transpose", 1, {{2, {4096, 4096}}}, 1, {{2, {4096, 4096}}},
     record_transpose, reference_transpose, 0, true},
    {"softmax, 4096 x 1024", "softmax", 1, {{2, {4096, 1024}}}, 1, {{2, {4096, 1024}}},
     record_softmax, reference_softmax, 1e-5, true},
    {"layer norm, 4096 x 1024", "layer_norm", 3, {{2, {4096, 1024}}, {1, {1024}}, {1, {1024}}},
     1, {{2, {4096, 1024}}}, record_layer_norm, reference_layer_norm, 1e-4, true},
    {"gelu(x w + b), 384 x 384 x 1536", "linear_gelu", 3,
     {{2, {384, 384}}, {2, {384, 1536}}, {1, {1536}}}, 1, {{2, {384, 1536}}}, record_linear_gelu,
     reference_linear_gelu, 2e-4, true},
    {"relu(conv 3x3 + b), 8 x 56 x 56 x 32 to 64", "conv", 3,
     {{4, {8, 56, 56, 32}}, {4, {3, 3, 32, 64}}, {1, {64}}}, 1, {{4, {8, 56, 56, 64}}},
     record_conv, reference_conv, 1e-4, true},
    {"attention, 8 heads, 512 x 64", "attention", 3,
     {{3, {8, 512, 64}}, {3, {8, 512, 64}}, {3, {8, 512, 64}}}, 1, {{3, {8, 512, 64}}},
     record_attention, reference_attention, 1e-4, true},
    {"attention, 2 heads, 2048 x 64", "attention", 3,
     {{3, {2, 2048, 64}}, {3, {2, 2048, 64}}, {3, {2, 2048, 64}}}, 1, {{3, {2, 2048, 64}}},
     record_attention, reference_attention, 1e-4, false},
    {"training step, 64-128-10, 128 rows", "training_step", 6,
     {{2, {128, 64}}, {1, {128}}, {2, {64, 128}}, {1, {128}}, {2, {128, 10}}, {1, {10}}},
     4, {{2, {64, 128}}, {1, {128}}, {2, {128, 10}}, {1, {10}}}, record_training_step,
     reference_training_step, 1e-4, true},
    {"training step, 784-512-10, 256 rows", "training_step", 6,
     {{2, {256, 784}}, {1, {256}}, {2, {784, 512}}, {1, {512}}, {2, {512, 10}}, {1, {10}}},
     4, {{2, {784, 512}}, {1, {512}}, {2, {512, 10}}, {1, {10}}}, record_training_step,
     reference_training_step, 1e-3, false},
    /* clang-format on */
};

#define MOST_ELEMENTS ((size_t)4096 * 4096)

/* ---- peers ---- */

/* The first word is put in at the start. */
#define PYTHON NULL, BENCH_FOLDER "/peers.py"

static const char *python = "python3";

static const struct argp_option options[] = {
    {"python", 'p', "PROGRAM", 0, "Python that has numpy, torch, pyopencl (python3)", 0}, {0}};

static int take_option(int key, const char *value)
{
    if (key != 'p')
        return ARGP_ERR_UNKNOWN;
    python = value;
    return 0;
}

static struct peer {
    const char *name;
    const char *arguments[4];
    struct process *process; /* NULL: not to be had */
} peers[] = {
    {"numpy", {PYTHON, "numpy"}, NULL},
    {"PyTorch", {PYTHON, "pytorch"}, NULL},
    {"PyOpenCL", {PYTHON, "pyopencl"}, NULL},
    {"ViennaCL", {"bench/peer_viennacl"}, NULL},
};
enum { PEERS = sizeof peers / sizeof *peers };

static struct work {
    const struct row *row;
    kiln_batch *batch;
    kiln_buffer *inputs[MOST_INPUTS], *results[MOST_RESULTS];
    size_t count; /* elements of all results */
    float *got;
    double *want;
} work;

static size_t count_of(const struct process_shape *shape)
{
    size_t count = 1;
    for (size_t d = 0; d < shape->rank; d++)
        count *= shape->dims[d];
    return count;
}

static void run_kiln(void *user)
{
    (void)user;
    bench_ok(kiln_batch_execute(work.batch), work.row->name);
}

static bool check(const float *got)
{
    return bench_close(work.row->name, work.count, got, work.want, work.row->slack,
                       work.row->slack);
}

static bool check_kiln(void *user)
{
    float *place = work.got;
    (void)user;
    for (size_t i = 0; i < work.row->result_count; i++) {
        size_t count = count_of(&work.row->results[i]);
        bench_ok(kiln_buffer_read(work.results[i], 0, place, count * sizeof *place), "reading");
        place += count;
    }
    return check(work.got);
}

static void run_peer(void *user)
{
    process_run(((struct peer *)user)->process);
}

static bool check_peer(void *user)
{
    return check(process_result(((struct peer *)user)->process));
}

static double seconds_of(void *user)
{
    return process_seconds(((struct peer *)user)->process);
}

/* ---- a row ---- */

static kiln_buffer *make_buffer(kiln_context *context, const struct process_shape *shape)
{
    kiln_buffer *buffer;
    bench_ok(kiln_buffer_create(context, KILN_F32, shape->rank, shape->dims, &buffer),
             "making a buffer");
    return buffer;
}

/* Labels are classes; the other values of a training step are small, as in a network. */
static void fill_input(const struct row *row, size_t number, float *values)
{
    bool training = row->record == record_training_step;
    for (size_t i = 0; training && i < count_of(&row->inputs[number]); i++)
        values[i] = number == 1 ? (float)(i * 7 % 10) : values[i] * (number == 0 ? 1 : 0.1f);
}

static void prepare(kiln_context *context, const struct row *row, float *const *inputs)
{
    kiln_tensor in[MOST_INPUTS], out[MOST_RESULTS];
    work.row = row;
    work.count = 0;
    work.batch = kiln_batch_create(context);
    for (size_t i = 0; i < row->input_count; i++) {
        fill_input(row, i, inputs[i]);
        work.inputs[i] = make_buffer(context, &row->inputs[i]);
        bench_ok(kiln_buffer_write(work.inputs[i], 0, inputs[i],
                                   count_of(&row->inputs[i]) * sizeof(float)),
                 "writing");
        in[i] = kiln_import(work.batch, work.inputs[i]);
    }
    row->record(work.batch, in, out);
    for (size_t i = 0; i < row->result_count; i++) {
        work.results[i] = make_buffer(context, &row->results[i]);
        work.count += count_of(&row->results[i]);
        bench_ok(kiln_export(work.batch, out[i], work.results[i]), row->name);
    }
}

static void release(void)
{
    kiln_batch_release(work.batch);
    for (size_t i = 0; i < work.row->input_count; i++)
        kiln_buffer_release(work.inputs[i]);
    for (size_t i = 0; i < work.row->result_count; i++)
        kiln_buffer_release(work.results[i]);
}

static void measure(kiln_context *context, const struct row *row)
{
    struct bench_row figures = {.name = row->name, .unit = BENCH_MS};
    float *inputs[MOST_INPUTS];
    for (size_t i = 0; i < row->input_count; i++)
        inputs[i] = bench_floats(count_of(&row->inputs[i]), (unsigned)i + 1);
    prepare(context, row, inputs);
    row->reference(row->inputs, (const float *const *)inputs, work.want);
    bench_way(&figures, "kiln", run_kiln, check_kiln, NULL);
    for (size_t p = 0; p < PEERS; p++) {
        struct peer *peer = &peers[p];
        if (!peer->process || !process_take(peer->process, row->operation, row->input_count,
                                            row->inputs, (const float *const *)inputs, work.count))
            continue;
        bench_peer(&figures, peer->name, run_peer, check_peer, peer)->seconds = seconds_of;
        bench_compare(&figures, "kiln", peer->name);
    }
    bench_measure(&figures);
    release();
    for (size_t i = 0; i < row->input_count; i++)
        free(inputs[i]);
}

static void start_peers(void)
{
    for (size_t p = 0; p < PEERS && !bench_is_alone(); p++) {
        if (peers[p].arguments[1])
            peers[p].arguments[0] = python;
        peers[p].process = process_start(peers[p].arguments);
        if (!peers[p].process)
            printf("  %s is not here\n", peers[p].name);
    }
}

int main(int argc, char **argv)
{
    static const struct bench_program program = {
        .name = "libraries",
        .purpose = "kiln beside numpy, PyTorch, PyOpenCL and ViennaCL",
        .options = options,
        .option = take_option};
    kiln_context *context = bench_start(&program, argc, argv);
    start_peers();
    work.got = bench_memory(MOST_ELEMENTS * sizeof *work.got);
    work.want = bench_memory(MOST_ELEMENTS * sizeof *work.want);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (bench_wants(rows[i].name) && (rows[i].quick || !bench_is_quick()))
            measure(context, &rows[i]);
    for (size_t p = 0; p < PEERS; p++)
        process_end(peers[p].process);
    return bench_end(context);
}
