/* SPDX-License-Identifier: Apache-2.0 */
/* How long recording, planning and running take as batches grow: in all, and for each launch, which
 * has to stay the same from a few launches on. Planning includes the kernels, which are compiled
 * for the smallest batch of each structure and found again for the others. */
#include "report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../tests/support/grown.h"

#define FEWEST 10
#define MOST 100000
#define MOST_QUICK 10000

enum phase { RECORD, PLAN, FIRST_RUN, RERUN, PHASES };
static const char *const phase_names[PHASES] = {"record", "plan", "first run", "run again"};

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

/* Launches of one run. */
static size_t time_phases(kiln_context *context, const struct grown *structure, size_t n,
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
    return cost.launches;
}

static void show(size_t n, size_t launches, const double seconds[PHASES])
{
    printf("%10zu %9zu", n, launches);
    for (int phase = 0; phase < PHASES; phase++)
        printf(" %9.2f (%6.2f)", 1e3 * seconds[phase],
               1e6 * seconds[phase] / (double)(launches ? launches : 1));
    printf("\n");
    fflush(stdout);
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

/* ---- in turns with another process ---- */

static struct work {
    const struct grown *structure;
    struct grown_memory memory;
    size_t n;
    double seconds[PHASES];
} work;

/* In a context of its own: what was planned once is not planned again. */
static void run_phases(void *user)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    kiln_context *context;
    (void)user;
    options.device = bench_device();
    bench_ok(kiln_context_create(&options, &context), "making a context");
    make_buffers(context, GROWN_BUFFERS(work.n), work.memory.buffers);
    time_phases(context, work.structure, FEWEST, &work.memory, work.seconds); /* compiles */
    time_phases(context, work.structure, work.n, &work.memory, work.seconds);
    release_buffers(work.n, &work.memory);
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

static void take_turns(const struct grown *structure, size_t n)
{
    char name[96];
    struct bench_row row = {.name = name, .unit = BENCH_MS};
    snprintf(name, sizeof name, "%s, %zu operations", structure->name, n);
    work.structure = structure;
    work.n = n;
    for (int phase = 0; phase < PHASES; phase++)
        bench_way(&row, phase_names[phase], phase ? run_nothing : run_phases, NULL,
                  &work.seconds[phase])
            ->seconds = read_seconds;
    bench_measure(&row);
}

/* ---- a table ---- */

static void grow(kiln_context *context, const struct grown *structure, size_t most)
{
    double seconds[PHASES];
    struct grown_memory memory;
    make_memory(most, &memory);
    printf("\n%s: %s; ms, and us for each launch\n", structure->name, structure->what);
    printf("%10s %9s %18s %18s %18s %18s\n", "operations", "launches", phase_names[RECORD],
           phase_names[PLAN], phase_names[FIRST_RUN], phase_names[RERUN]);
    make_buffers(context, GROWN_BUFFERS(most), memory.buffers);
    time_phases(context, structure, FEWEST, &memory, seconds); /* compiles */
    for (size_t n = FEWEST; n <= most; n *= 10)
        show(n, time_phases(context, structure, n, &memory, seconds), seconds);
    release_buffers(most, &memory);
}

int main(int argc, char **argv)
{
    static const struct bench_program program = {
        .name = "growth", .purpose = "Recording, planning and running as batches grow"};
    kiln_context *context = bench_start(&program, argc, argv);
    if (bench_takes_turns())
        make_memory(MOST_QUICK, &work.memory);
    for (const struct grown *structure = grown; structure->name; structure++) {
        if (!bench_wants(structure->name))
            continue;
        if (!bench_takes_turns())
            grow(context, structure, bench_is_quick() ? MOST_QUICK : MOST);
        for (size_t n = 10 * FEWEST; n <= MOST_QUICK && bench_takes_turns(); n *= 10)
            take_turns(structure, n);
    }
    return bench_end(context);
}
