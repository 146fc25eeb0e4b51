/* SPDX-License-Identifier: Apache-2.0 */
/* How long planning, recording and running take for each operation as batches grow, which has to
 * stay the same from a hundred on. Planning includes the kernels, which were compiled before and
 * are found again. Then the same of shapes, by how many came before (growth_shapes.c). */
#include "growth.h"
#include "report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../tests/support/grown.h"

#define NAME 48

static const size_t sizes[] = {10, 100, 1000, 10000, 100000};
enum { MIDDLE = 2, LARGE, SIZES = sizeof sizes / sizeof *sizes };
#define FIRST_SIZE 30 /* of a batch that compiles what the others find */

/* What is linear takes as long for each operation of LARGE batches as of MIDDLE, but for caches
 * that are too small for the former. What grows with the square would take ten times as long. */
#define LEAST_LINEAR 0.5

/* Those from LINEAR on are the device's, and its driver's. */
enum phase { PLAN, RECORD, LINEAR, FIRST_RUN = LINEAR, RERUN, PHASES };
static const char *const phase_names[PHASES] = {"plan", "record", "first run", "run again"};

/* Seconds since `*last`, which becomes now. */
static double lap(double *last)
{
    double before = *last;
    *last = bench_now();
    return *last - before;
}

static void make_buffers(kiln_context *context, size_t count, kiln_buffer **buffers)
{
    const size_t dims[2] = {GROWN_EDGE, GROWN_EDGE};
    for (size_t i = 0; i < count; i++)
        bench_ok(kiln_buffer_create(context, KILN_F32, 2, dims, &buffers[i]), "a buffer");
}

static void time_phases(kiln_context *context, const struct grown *structure, size_t n,
                        struct grown_memory *memory, double seconds[PHASES])
{
    kiln_batch_cost cost;
    kiln_batch *batch = kiln_batch_create(context);
    double last = bench_now();
    memory->reads = 0;
    structure->record(batch, n, memory);
    bench_ok(kiln_batch_status(batch), structure->what);
    seconds[RECORD] = lap(&last);
    bench_ok(kiln_batch_get_cost(batch, &cost), "planning");
    seconds[PLAN] = lap(&last);
    bench_ok(kiln_batch_execute(batch), "the first run");
    seconds[FIRST_RUN] = lap(&last);
    bench_ok(kiln_batch_execute(batch), "the second run");
    seconds[RERUN] = lap(&last);
    kiln_batch_release(batch);
}

static void make_memory(size_t most, struct grown_memory *memory)
{
    *memory = (struct grown_memory){.input = bench_floats(GROWN_ITEMS, 1)};
    memory->results = bench_memory(most * GROWN_ITEMS * sizeof *memory->results);
    memory->buffers = bench_memory(GROWN_BUFFERS(most) * sizeof *memory->buffers);
}

static void release_buffers(size_t most, struct grown_memory *memory)
{
    for (size_t i = 0; i < GROWN_BUFFERS(most); i++)
        kiln_buffer_release(memory->buffers[i]);
}

/* ---- a row: a structure, each phase at each size ---- */

static struct work {
    const struct grown *structure;
    struct grown_memory memory;
    size_t most;
    double seconds[PHASES][SIZES]; /* for each operation */
} work;

static void run_size(kiln_context *context, size_t place)
{
    double seconds[PHASES];
    size_t n = sizes[place];
    time_phases(context, work.structure, n, &work.memory, seconds);
    for (int phase = 0; phase < PHASES; phase++)
        work.seconds[phase][place] = seconds[phase] / (double)n;
}

/* All sizes, in a context of their own: what was planned once is not planned again. */
static void run_sizes(void *user)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    kiln_context *context;
    double seconds[PHASES];
    (void)user;
    options.device = bench_device();
    bench_ok(kiln_context_create(&options, &context), "making a context");
    make_buffers(context, GROWN_BUFFERS(work.most), work.memory.buffers);
    time_phases(context, work.structure, FIRST_SIZE, &work.memory, seconds);
    for (size_t place = 0; place < SIZES && sizes[place] <= work.most; place++)
        run_size(context, place);
    release_buffers(work.most, &work.memory);
    bench_ok(kiln_context_sync_cache(context), "storing kernels");
    kiln_context_release(context);
}

static void run_nothing(void *user)
{
    (void)user;
}

static double read_seconds(void *user)
{
    return *(double *)user;
}

/* The largest size first: it is what stands in the table. */
static void add_phase(struct bench_row *row, int phase, char names[SIZES][NAME])
{
    for (size_t place = SIZES; place--;) {
        if (sizes[place] > work.most)
            continue;
        snprintf(names[place], NAME, "%s, %zu operations", phase_names[phase], sizes[place]);
        bench_way(row, names[place], row->way_count ? run_nothing : run_sizes, NULL,
                  &work.seconds[phase][place])
            ->seconds = read_seconds;
    }
    bench_limit(row, names[LARGE], names[MIDDLE]);
    if (phase < LINEAR)
        bench_at_least(row, names[LARGE], names[MIDDLE], LEAST_LINEAR);
    else
        bench_compare(row, names[LARGE], names[MIDDLE]);
}

static void measure(const struct grown *structure)
{
    char names[PHASES][SIZES][NAME], name[120];
    struct bench_row row = {.name = name, .unit = BENCH_US};
    snprintf(name, sizeof name, "%s: %s, an operation of", structure->name, structure->what);
    work.structure = structure;
    for (int phase = 0; phase < PHASES; phase++)
        add_phase(&row, phase, names[phase]);
    run_sizes(NULL); /* compiles */
    bench_measure(&row);
}

int main(int argc, char **argv)
{
    static const struct bench_program program = {
        .name = "growth",
        .purpose = "Recording, planning and running as batches grow, and shape after shape"};
    kiln_context *context = bench_start(&program, argc, argv);
    work.most = sizes[bench_is_quick() || bench_takes_turns() ? LARGE : SIZES - 1];
    make_memory(work.most, &work.memory);
    for (const struct grown *structure = grown; structure->name; structure++)
        if (bench_wants(structure->name))
            measure(structure);
    growth_measure_shapes(bench_is_quick() || bench_takes_turns());
    return bench_end(context);
}
