/* SPDX-License-Identifier: Apache-2.0 */
/* Batches that grow: four times as many operations take about four times as long to record and to
 * plan, whatever their structure. Without a device, and in the thread's own time, so that a busy
 * machine does not disturb. */
#define _GNU_SOURCE
#include <criterion/criterion.h>
#include <stdlib.h>
#include <time.h>

#include "../support/graph.h"
#include "../support/grown.h"
#include "session/compile.h"
#include "session/context.h"
#include "util/index.h"

#define FEW 2500
#define TIMES 4
#define SLACK 2 /* caches that no longer hold everything; what is quadratic takes TIMES as much */
#define ATTEMPTS 3

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Buffers without memory behind them, which nobody releases for good: nothing runs. */
static struct kiln_buffer *imagine_buffers(kiln_context *context, size_t n, kiln_buffer **pointers)
{
    struct kiln_buffer *buffers = calloc(n, sizeof *buffers);
    cr_assert(buffers);
    for (size_t i = 0; i < n; i++) {
        buffers[i].references = 1000000;
        buffers[i].context = context;
        buffers[i].type = KILN_F32;
        buffers[i].shape = (struct kiln__shape){.rank = 2, .dims = {GROWN_EDGE, GROWN_EDGE}};
        buffers[i].bytes = GROWN_ITEMS * sizeof(float);
        buffers[i].memory = (cl_mem)(void *)&buffers[i];
        pointers[i] = &buffers[i];
    }
    return buffers;
}

static double plan_seconds(kiln_batch *batch)
{
    struct kiln__plan_options options = {.device = &batch->context->runtime.device};
    struct kiln__plan plan;
    double start = seconds();
    cr_assert_eq(kiln__compile_plan(&batch->graph, &options, NULL, &plan, NULL), KILN_OK);
    double spent = seconds() - start;
    kiln__plan_free(&plan);
    return spent;
}

/* What recording and planning take; the shortest of a few times. */
static double measure(const struct grown *structure, size_t n, int times)
{
    static float input[GROWN_ITEMS];
    double best = 0;
    size_t buffers = GROWN_BUFFERS(n);
    struct grown_memory memory = {.input = input};
    memory.results = calloc(n, GROWN_ITEMS * sizeof(float));
    memory.buffers = calloc(buffers, sizeof *memory.buffers);
    cr_assert(memory.results && memory.buffers);
    struct kiln_buffer *imagined = imagine_buffers(imagined_cpu(), buffers, memory.buffers);
    for (int i = 0; i < times; i++) {
        kiln_batch *batch = imagined_batch();
        double start = seconds();
        memory.reads = 0;
        structure->record(batch, n, &memory);
        double spent = seconds() - start;
        cr_assert_eq(kiln_batch_status(batch), KILN_OK, "%s", kiln_batch_error(batch));
        cr_assert_geq(kiln_batch_operation_count(batch), n / 2);
        cr_assert_leq(memory.reads, n);
        spent += plan_seconds(batch);
        best = i == 0 || spent < best ? spent : best;
        kiln_batch_release(batch);
    }
    free(memory.results);
    free(memory.buffers);
    free(imagined);
    return best;
}

Test(growth, is_linear_in_recording_and_planning)
{
    for (const struct grown *structure = grown; structure->name; structure++) {
        double few = measure(structure, FEW, ATTEMPTS), many = 0;
        for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
            double spent = measure(structure, TIMES * FEW, 1);
            many = attempt == 0 || spent < many ? spent : many;
            if (many <= SLACK * TIMES * few)
                break;
        }
        cr_expect_leq(many, SLACK * TIMES * few, "%s: %d operations take %g ms, %d take %g ms",
                      structure->what, FEW, 1e3 * few, TIMES * FEW, 1e3 * many);
    }
}

/* ---- what makes it so ---- */

Test(growth, of_an_index_keeps_what_is_in_it)
{
    struct kiln__index index = {0};
    size_t at = 0;
    uint32_t number;
    cr_expect_not(kiln__index_find(&index, 7, &at, &number));
    for (uint32_t i = 0; i < 1000; i++)
        cr_assert(kiln__index_add(&index, i / 2, i));
    for (uint32_t i = 0; i < 500; i++) {
        uint32_t later = 0, earlier = 0;
        at = 0;
        cr_assert(kiln__index_find(&index, i, &at, &later));
        cr_assert(kiln__index_find(&index, i, &at, &earlier));
        cr_expect_eq(later, 2 * i + 1);
        cr_expect_eq(earlier, 2 * i);
        cr_expect_not(kiln__index_find(&index, i, &at, &number));
    }
    kiln__index_clear(&index);
    at = 0;
    cr_expect_not(kiln__index_find(&index, 7, &at, &number));
}

static bool overlaps_earlier(const struct kiln__bindings *bindings, size_t result)
{
    const struct kiln__binding *own = &bindings->results.items[result];
    for (size_t i = 0; i < bindings->inputs.count; i++)
        if (kiln__bindings_overlap(own, &bindings->inputs.items[i]))
            return true;
    for (size_t i = 0; i < result; i++)
        if (kiln__bindings_overlap(own, &bindings->results.items[i]))
            return true;
    return false;
}

/* Host memory and buffers at random, crowded enough for some to meet and some not to. */
Test(growth, of_bindings_finds_the_same_overlaps_as_comparing_each_with_each)
{
    static char host[400];
    unsigned seed = 1;
    for (int round = 0; round < 2000; round++) {
        struct kiln__bindings bindings = {0};
        for (int i = 0; i < 12; i++) {
            struct kiln__binding *binding =
                i % 3 ? kiln__vector_push(&bindings.results) : kiln__vector_push(&bindings.inputs);
            cr_assert(binding);
            seed = seed * 1664525u + 1013904223u;
            *binding = (struct kiln__binding){.bytes = (seed >> 8) % 24, .item = 1};
            if (seed >> 30)
                binding->host = host + (seed >> 16) % (sizeof host - 24);
            else
                binding->memory = (cl_mem)(void *)(host + (seed >> 16) % 8);
        }
        cr_assert(kiln__bindings_check(&bindings));
        for (size_t i = 0; i < bindings.results.count; i++)
            cr_assert_eq(bindings.results.items[i].overlaps, overlaps_earlier(&bindings, i));
        kiln__bindings_free(&bindings);
    }
}
