/* SPDX-License-Identifier: Apache-2.0 */
/* Sums, means, largest elements and where they are, beside loops in C. The input stays on the
 * device; the result is read back. */
#include "bench.h"
#include "peer_reduce.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

enum result { FLOATS, POSITIONS };

static const int axis_0[] = {0}, axis_1[] = {1}, axes_0_2[] = {0, 2};

/* ---- what is recorded ---- */

#define RECORD(name, call)                                                                         \
    static kiln_tensor record_##name(kiln_batch *batch, kiln_tensor x)                             \
    {                                                                                              \
        return call;                                                                               \
    }

RECORD(sum, kiln_sum(batch, x, 0, NULL, 0))
RECORD(mean, kiln_mean(batch, x, 0, NULL, 0))
RECORD(max, kiln_max(batch, x, 0, NULL, 0))
RECORD(argmax, kiln_argmax(batch, x, 0, NULL, 0))
RECORD(sum_rows, kiln_sum(batch, x, 1, axis_1, 0))
RECORD(sum_columns, kiln_sum(batch, x, 1, axis_0, 0))
RECORD(max_rows, kiln_max(batch, x, 1, axis_1, 0))
RECORD(argmax_rows, kiln_argmax(batch, x, 1, axis_1, 0))
RECORD(mean_outer_inner, kiln_mean(batch, x, 2, axes_0_2, 0))

/* ---- cases ---- */

static const struct reduction {
    const char *name;
    size_t rank, dims[3];
    size_t result_count;
    enum result result;
    bool quick;
    double of_peer; /* target; 0 for none */
    kiln_tensor (*record)(kiln_batch *batch, kiln_tensor x);
    void (*peer)(const size_t *dims, const float *x, void *y);
} cases[] = {
    /* clang-format off */
    {"sum of 16000000", 1, {16000000}, 1, FLOATS, true, 0.95, record_sum, peer_sum},
    {"mean of 16000000", 1, {16000000}, 1, FLOATS, false, 0.95, record_mean, peer_mean},
    {"largest of 16000000", 1, {16000000}, 1, FLOATS, false, 0.95, record_max, peer_max},
    {"argmax of 16000000", 1, {16000000}, 1, POSITIONS, true, 0.95, record_argmax, peer_argmax},
    {"sum of 100000", 1, {100000}, 1, FLOATS, false, 0, record_sum, peer_sum},
    {"rows' sums, 4096 x 4096", 2, {4096, 4096}, 4096, FLOATS, false, 0.95, record_sum_rows,
     peer_sum_rows},
    {"columns' sums, 4096 x 4096", 2, {4096, 4096}, 4096, FLOATS, true, 0.95, record_sum_columns,
     peer_sum_columns},
    {"columns' sums, 262144 x 64", 2, {262144, 64}, 64, FLOATS, false, 0.95, record_sum_columns,
     peer_sum_columns},
    {"rows' largest, 4096 x 1024", 2, {4096, 1024}, 4096, FLOATS, false, 0.95, record_max_rows,
     peer_max_rows},
    {"rows' argmax, 4096 x 1024", 2, {4096, 1024}, 4096, POSITIONS, false, 0.95,
     record_argmax_rows, peer_argmax_rows},
    {"mean over axes 0 and 2, 64 x 256 x 1024", 3, {64, 256, 1024}, 256, FLOATS, true, 0.95,
     record_mean_outer_inner, peer_mean_outer_inner},
    /* clang-format on */
};

#define MOST_ELEMENTS ((size_t)4096 * 4096)
#define MOST_RESULTS ((size_t)4096)

static struct work {
    const struct reduction *reduction;
    kiln_context *context;
    kiln_batch *batch;
    const float *x;
    void *y, *of_peer; /* results; the peer has its own */
    double *want;
} work;

/* ---- reference, in double ---- */

static size_t element_count(const struct reduction *reduction)
{
    size_t count = 1;
    for (size_t d = 0; d < reduction->rank; d++)
        count *= reduction->dims[d];
    return count;
}

/* Which result element `i` of the input belongs to. */
static size_t result_of(const struct reduction *reduction, size_t i)
{
    const size_t *dims = reduction->dims;
    if (reduction->result_count == 1)
        return 0;
    if (reduction->rank == 3)
        return i / dims[2] % dims[1];
    return reduction->record == record_sum_columns ? i % dims[1] : i / dims[1];
}

static void reference_plain(const struct reduction *reduction, bool sums, bool averages)
{
    size_t count = element_count(reduction);
    for (size_t r = 0; r < reduction->result_count; r++)
        work.want[r] = sums ? 0 : -INFINITY;
    for (size_t i = 0; i < count; i++) {
        double *want = &work.want[result_of(reduction, i)];
        *want = sums ? *want + work.x[i] : fmax(*want, work.x[i]);
    }
    for (size_t r = 0; averages && r < reduction->result_count; r++)
        work.want[r] /= (double)(count / reduction->result_count);
}

static void reference_positions(const struct reduction *reduction)
{
    size_t count = element_count(reduction), each = count / reduction->result_count;
    for (size_t r = 0; r < reduction->result_count; r++) {
        const float *x = work.x + r * each;
        size_t most = 0;
        for (size_t i = 1; i < each; i++)
            most = x[i] > x[most] ? i : most;
        work.want[r] = (double)most;
    }
}

static void compute_reference(const struct reduction *reduction)
{
    bool averages =
        reduction->record == record_mean || reduction->record == record_mean_outer_inner;
    bool largest = reduction->record == record_max || reduction->record == record_max_rows;
    if (reduction->result == POSITIONS)
        reference_positions(reduction);
    else
        reference_plain(reduction, !largest, averages);
}

/* ---- ways ---- */

static void run_kiln(void *user)
{
    (void)user;
    bench_ok(kiln_batch_execute(work.batch), "the batch");
}

static void run_peer(void *user)
{
    (void)user;
    work.reduction->peer(work.reduction->dims, work.x, work.of_peer);
}

/* The error of a sum of n values around 0 grows with the root of n, where it is added up in parts;
 * the peers add up some of theirs one after the other. */
static bool check(void *user)
{
    const struct reduction *reduction = work.reduction;
    void *y = user ? work.of_peer : work.y;
    size_t count = reduction->result_count;
    for (size_t i = 0; reduction->result == POSITIONS && i < count; i++)
        ((float *)y)[i] = (float)((int32_t *)y)[i];
    double terms = (double)(element_count(reduction) / count);
    double slack = (user ? 1e-4 : 8e-6) * sqrt(terms);
    bool right = bench_close(reduction->name, count, y, work.want, slack, 1e-5);
    memset(y, 0xff, count * 4);
    return right;
}

static void record(const struct reduction *reduction, kiln_buffer *input)
{
    work.batch = kiln_batch_create(work.context);
    kiln_tensor y = reduction->record(work.batch, kiln_import(work.batch, input));
    bench_ok(kiln_read(work.batch, y, work.y, reduction->result_count * 4), "recording");
}

static void measure(const struct reduction *reduction)
{
    size_t count = element_count(reduction);
    struct bench_row row = {.name = reduction->name, .unit = BENCH_MS};
    kiln_buffer *input;
    work.reduction = reduction;
    bench_ok(kiln_buffer_create(work.context, KILN_F32, reduction->rank, reduction->dims, &input),
             "making a buffer");
    bench_ok(kiln_buffer_write(input, 0, work.x, count * 4), "writing");
    record(reduction, input);
    compute_reference(reduction);
    bench_way(&row, "kiln", run_kiln, check, NULL);
    bench_peer(&row, "C loop", run_peer, check, &work);
    bench_at_least(&row, "kiln", "C loop", reduction->of_peer);
    bench_measure(&row);
    kiln_batch_release(work.batch);
    kiln_buffer_release(input);
}

int main(int argc, char **argv)
{
    static const struct bench_program program = {.name = "reduce",
                                                 .purpose = "Sums, means and largest elements"};
    work.context = bench_start(&program, argc, argv);
    work.x = bench_floats(MOST_ELEMENTS, 1);
    work.y = bench_memory(MOST_RESULTS * 4);
    work.of_peer = bench_memory(MOST_RESULTS * 4);
    work.want = bench_memory(MOST_RESULTS * sizeof *work.want);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (bench_wants(cases[i].name) && (cases[i].quick || !bench_is_quick()))
            measure(&cases[i]);
    return bench_end(work.context);
}
