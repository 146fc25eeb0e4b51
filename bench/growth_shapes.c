/* SPDX-License-Identifier: Apache-2.0 */
/* Batches that differ in a length only, as a text that grows makes them: what each takes, from
 * recording to its result, by how many there were before it, and what the process keeps. */
#include <malloc.h>
#include <stdio.h>

#include "bench.h"
#include "growth.h"

#define LAYERS 20
#define WIDTH 64
#define COLUMNS 8
#define AROUND 10 /* shapes of whose times the middle one counts */
#define MIB (1 << 20)

static const size_t numbers[] = {2, 100, 1000, 3000};
static const char *const known_name = "the last shape again";
enum { THOUSANDTH = 2, NUMBERS = sizeof numbers / sizeof *numbers };
static const char *const names[] = {"shape 2", "shape 100", "shape 1,000", "shape 3,000"};

static struct work {
    kiln_buffer *weights[LAYERS];
    float *row, *rows, *result;
    size_t count; /* of `numbers` */
    double seconds[NUMBERS], known;
    size_t heap[NUMBERS]; /* bytes, behind that shape */
} work;

static size_t heap_bytes(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static double run_shape(kiln_context *context, size_t length)
{
    const size_t row[] = {1, WIDTH}, rows[] = {length, COLUMNS};
    double start = bench_now();
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor x = kiln_upload(batch, KILN_F32, 2, row, work.row);
    for (size_t i = 0; i < LAYERS; i++)
        x = kiln_relu(batch, kiln_matmul(batch, x, kiln_import(batch, work.weights[i])));
    kiln_tensor past = kiln_upload(batch, KILN_F32, 2, rows, work.rows);
    x = kiln_add(batch, x, kiln_sum(batch, past, 2, (const int[]){0, 1}, 0));
    bench_ok(kiln_read(batch, x, work.result, WIDTH * sizeof *work.result), "a shape");
    bench_ok(kiln_batch_execute(batch), "a shape");
    kiln_batch_release(batch);
    return bench_now() - start;
}

static kiln_context *open_context(void)
{
    const size_t dims[] = {WIDTH, WIDTH};
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    kiln_context *context;
    options.device = bench_device();
    bench_ok(kiln_context_create(&options, &context), "making a context");
    for (size_t i = 0; i < LAYERS; i++)
        bench_ok(kiln_buffer_create(context, KILN_F32, 2, dims, &work.weights[i]), "a buffer");
    return context;
}

static void close_context(kiln_context *context)
{
    for (size_t i = 0; i < LAYERS; i++)
        kiln_buffer_release(work.weights[i]);
    bench_ok(kiln_context_sync_cache(context), "storing kernels");
    kiln_context_release(context);
}

/* All shapes, in a context of their own. The first one, which may compile, counts nowhere. */
static void run_shapes(void *user)
{
    kiln_context *context = open_context();
    double last[AROUND];
    size_t length = 1;
    (void)user;
    run_shape(context, length);
    for (size_t place = 0; place < work.count; place++) {
        size_t end = place ? numbers[place] : numbers[place] + AROUND - 1;
        while (++length <= end)
            last[length % AROUND] = run_shape(context, length);
        length = end;
        work.seconds[place] = bench_median(last, AROUND);
        work.heap[place] = heap_bytes();
    }
    for (size_t i = 0; i < AROUND; i++)
        last[i] = run_shape(context, length);
    work.known = bench_median(last, AROUND);
    close_context(context);
}

static void run_nothing(void *user)
{
    (void)user;
}

static double read_seconds(void *user)
{
    return *(double *)user;
}

static void say_memory(void)
{
    const size_t first = work.heap[0], last = work.heap[work.count - 1];
    bench_note("the host's memory grows by %.1f MiB from %s to %s, %.1f of them by %s",
               (double)(last - first) / MIB, names[0], names[work.count - 1],
               (double)(work.heap[1] - first) / MIB, names[1]);
}

void growth_measure_shapes(bool brief)
{
    struct bench_row row = {.name = "shapes: a length that grows behind 20 products",
                            .unit = BENCH_US};
    if (!bench_wants(row.name))
        return;
    work.count = brief ? THOUSANDTH + 1 : NUMBERS;
    work.row = bench_floats(WIDTH, 1);
    work.rows = bench_floats(numbers[NUMBERS - 1] * COLUMNS, 2);
    work.result = bench_memory(WIDTH * sizeof *work.result);
    for (size_t place = work.count; place--;)
        bench_way(&row, names[place], row.way_count ? run_nothing : run_shapes, NULL,
                  &work.seconds[place])
            ->seconds = read_seconds;
    bench_way(&row, known_name, run_nothing, NULL, &work.known)->seconds = read_seconds;
    bench_limit(&row, names[THOUSANDTH], names[1]);
    bench_at_least(&row, names[THOUSANDTH], names[0], 0.8);
    run_shapes(NULL); /* compiles */
    run_shapes(NULL);
    say_memory();
    bench_measure(&row);
}
