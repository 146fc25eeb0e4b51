/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of transposed views, beside blocked loops in C and plain copies. Both sides stay on the
 * device. */
#include "bench.h"
#include "peer_transpose.h"

#include <string.h>

static const struct transpose {
    const char *name;
    size_t rank, dims[3], axes[3]; /* of the input; of the result */
    bool quick;
    double of_peer; /* target; 0 for none */
} cases[] = {
    /* clang-format off */
    {"4096 x 4096", 2, {4096, 4096}, {1, 0}, true, 2.0},
    {"1000 x 3000", 2, {1000, 3000}, {1, 0}, true, 1.0},
    {"512 x 512", 2, {512, 512}, {1, 0}, false, 1.0},
    {"1000000 x 3", 2, {1000000, 3}, {1, 0}, false, 0},
    {"64 times 512 x 256", 3, {64, 512, 256}, {0, 2, 1}, false, 1.0},
    {"outer two of 64 x 512 x 256", 3, {64, 512, 256}, {1, 0, 2}, false, 0.9},
    /* clang-format on */
};

#define MOST ((size_t)4096 * 4096)

static struct work {
    const struct transpose *transpose;
    kiln_context *context;
    kiln_batch *batch;
    kiln_buffer *output;
    size_t count;
    const float *x;
    float *y, *want;
} work;

static void run_kiln(void *user)
{
    (void)user;
    bench_ok(kiln_batch_execute(work.batch), "the batch");
}

/* As rank 3, a batch in front. */
static void run_peer(void *user)
{
    const struct transpose *transpose = work.transpose;
    const size_t *dims = transpose->dims;
    (void)user;
    if (transpose->rank == 2)
        peer_transpose(1, dims[0], dims[1], work.x, work.y);
    else if (transpose->axes[0] == 0)
        peer_transpose(dims[0], dims[1], dims[2], work.x, work.y);
    else
        peer_swap_outer(dims[0], dims[1], dims[2], work.x, work.y);
}

static void run_copy(void *user)
{
    (void)user;
    peer_copy(work.count, work.x, work.y);
}

static bool check_kiln(void *user)
{
    (void)user;
    bench_ok(kiln_buffer_read(work.output, 0, work.y, work.count * 4), "reading");
    return !memcmp(work.y, work.want, work.count * 4);
}

static bool check_peer(void *user)
{
    (void)user;
    bool right = !memcmp(work.y, work.want, work.count * 4);
    memset(work.y, 0, work.count * 4);
    return right;
}

/* Element by element, from the definition alone. */
static void compute_reference(const struct transpose *transpose)
{
    size_t rank = transpose->rank, stride[3] = {1, 1, 1}, at[3] = {0};
    for (size_t i = 0; i < rank; i++)
        for (size_t d = transpose->axes[i] + 1; d < rank; d++)
            stride[i] *= transpose->dims[d];
    for (size_t i = 0; i < work.count; i++) {
        size_t from = 0;
        for (size_t d = 0; d < rank; d++)
            from += at[d] * stride[d];
        work.want[i] = work.x[from];
        for (size_t d = rank; d-- > 0;) {
            if (++at[d] < transpose->dims[transpose->axes[d]])
                break;
            at[d] = 0;
        }
    }
}

static kiln_buffer *make_buffer(size_t rank, const size_t *dims)
{
    kiln_buffer *buffer;
    bench_ok(kiln_buffer_create(work.context, KILN_F32, rank, dims, &buffer), "making a buffer");
    return buffer;
}

static void measure(const struct transpose *transpose)
{
    size_t dims[3];
    work.transpose = transpose;
    work.count = 1;
    for (size_t d = 0; d < transpose->rank; d++) {
        dims[d] = transpose->dims[transpose->axes[d]];
        work.count *= dims[d];
    }
    struct bench_row row = {
        .name = transpose->name, .unit = BENCH_GB_PER_SECOND, .amount = 8.0 * (double)work.count};
    kiln_buffer *input = make_buffer(transpose->rank, transpose->dims);
    work.output = make_buffer(transpose->rank, dims);
    bench_ok(kiln_buffer_write(input, 0, work.x, work.count * 4), "writing");
    work.batch = kiln_batch_create(work.context);
    kiln_tensor view = kiln_transpose(work.batch, kiln_import(work.batch, input), transpose->axes);
    bench_ok(kiln_export(work.batch, view, work.output), "recording");
    compute_reference(transpose);
    bench_way(&row, "kiln", run_kiln, check_kiln, NULL);
    bench_peer(&row, "C loop", run_peer, check_peer, NULL);
    bench_peer(&row, "memcpy", run_copy, NULL, NULL);
    bench_at_least(&row, "kiln", "C loop", transpose->of_peer);
    bench_compare(&row, "kiln", "memcpy");
    bench_measure(&row);
    kiln_batch_release(work.batch);
    kiln_buffer_release(input);
    kiln_buffer_release(work.output);
}

int main(int argc, char **argv)
{
    static const struct bench_program program = {.name = "transpose",
                                                 .purpose = "Copies of transposed views"};
    work.context = bench_start(&program, argc, argv);
    work.x = bench_floats(MOST, 1);
    work.y = bench_memory(MOST * 4);
    work.want = bench_memory(MOST * 4);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (bench_wants(cases[i].name) && (cases[i].quick || !bench_is_quick()))
            measure(&cases[i]);
    return bench_end(work.context);
}
