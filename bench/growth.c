/* SPDX-License-Identifier: Apache-2.0 */
/* How long recording, planning and running take as batches grow: in all, and for each launch, which
 * has to stay the same from a few launches on. Planning includes the kernels, which are compiled
 * for the smallest batch of each structure and found again for the others. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../tests/support/grown.h"

#define FEWEST 10
#define MOST 100000
#define MOST_QUICK 10000

enum phase { RECORD, PLAN, FIRST_RUN, RERUN, PHASES };

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
static size_t measure(kiln_context *context, const struct grown *structure, size_t n,
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

static void grow(kiln_context *context, const struct grown *structure, size_t most)
{
    double seconds[PHASES];
    size_t buffers = GROWN_BUFFERS(most);
    struct grown_memory memory = {.input = bench_floats(GROWN_ITEMS, 1)};
    memory.results = bench_memory(most * GROWN_ITEMS * sizeof *memory.results);
    memory.buffers = bench_memory(buffers * sizeof *memory.buffers);
    printf("\n%s: %s; ms, and us for each launch\n", structure->name, structure->what);
    printf("%10s %9s %18s %18s %18s %18s\n", "operations", "launches", "record", "plan",
           "first run", "run again");
    make_buffers(context, buffers, memory.buffers);
    measure(context, structure, FEWEST, &memory, seconds); /* compiles */
    for (size_t n = FEWEST; n <= most; n *= 10)
        show(n, measure(context, structure, n, &memory, seconds), seconds);
    for (size_t i = 0; i < buffers; i++)
        kiln_buffer_release(memory.buffers[i]);
}

int main(int argc, char **argv)
{
    static const struct bench_program program = {
        .name = "growth", .purpose = "Recording, planning and running as batches grow"};
    kiln_context *context = bench_start(&program, argc, argv);
    for (const struct grown *structure = grown; structure->name; structure++)
        if (bench_wants(structure->name))
            grow(context, structure, bench_is_quick() ? MOST_QUICK : MOST);
    return bench_end(context);
}
