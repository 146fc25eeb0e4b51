/* SPDX-License-Identifier: Apache-2.0 */
/* Batches of ever new shapes, as a text that grows makes them: the thousandth asks no more of the
 * driver than the second, keeps no more memory, and is as right. */
#include <criterion/criterion.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "../support/context.h"
#include "../support/layer.h"
#include "programs/kernel_objects.h"
#include "record/batch.h"
#include "runtime/executable.h"
#include "runtime/stream.h"
#include "session/context.h"
#include "session/plan_table.h"

#define WIDTH 16
#define COLUMNS 8
#define MOST_ROWS 1000
#define MOST_LAYERS 100

static float ones[MOST_ROWS * COLUMNS];
static kiln_context *context;
static kiln_buffer *weights;

static void open_it(void)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    float unit[WIDTH * WIDTH] = {0};
    const size_t dims[] = {WIDTH, WIDTH};
    options.cache = KILN_CACHE_OFF; /* no thread stores */
    context = open_context_with(&options);
    for (size_t i = 0; i < WIDTH; i++)
        unit[i * WIDTH + i] = 1;
    for (size_t i = 0; i < sizeof ones / sizeof *ones; i++)
        ones[i] = 1;
    expect_ok(kiln_buffer_create(context, KILN_F32, 2, dims, &weights));
    expect_ok(kiln_buffer_write(weights, 0, unit, sizeof unit));
}

static void close_it(void)
{
    kiln_buffer_release(weights);
    close_context(context);
}

TestSuite(shapes, .init = open_it, .fini = close_it);

/* A row of ones through layers that change nothing, and to each the number of elements above it. */
static kiln_batch *record(size_t layers, size_t rows, float result[WIDTH])
{
    const size_t row[] = {1, WIDTH}, above[] = {rows, COLUMNS};
    kiln_batch *batch = kiln_batch_create(context);
    cr_assert(batch != NULL);
    kiln_tensor x = kiln_upload(batch, KILN_F32, 2, row, ones);
    for (size_t i = 0; i < layers; i++)
        x = kiln_relu(batch, kiln_matmul(batch, x, kiln_import(batch, weights)));
    kiln_tensor all =
        kiln_sum(batch, kiln_upload(batch, KILN_F32, 2, above, ones), 2, (const int[]){0, 1}, 0);
    expect_ok(kiln_read(batch, kiln_add(batch, x, all), result, WIDTH * sizeof *result));
    return batch;
}

static void run(kiln_batch *batch, size_t rows, float result[WIDTH])
{
    for (size_t i = 0; i < WIDTH; i++)
        result[i] = -1;
    expect_ok(kiln_batch_execute(batch));
    for (size_t i = 0; i < WIDTH; i++)
        cr_assert_eq(result[i], (float)(1 + rows * COLUMNS), "%zu rows: %g", rows,
                     (double)result[i]);
}

static void run_once(size_t layers, size_t rows)
{
    float result[WIDTH];
    kiln_batch *batch = record(layers, rows, result);
    run(batch, rows, result);
    kiln_batch_release(batch);
}

static uint64_t heap(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

/* But for events, of which a device that runs beside the host has some on their way. */
static uint64_t count_objects(void)
{
    return layer_count("alive") - layer_count("alive.event");
}

Test(shapes, of_which_the_thousandth_makes_no_kernel)
{
    enum { LAYERS = 8, THIRDS = MOST_ROWS / 3 };
    if (!layer_available())
        cr_skip("run with OPENCL_LAYERS=.../kiln-layer.so");
    /* Two of three: of small and large ones, and of multiples of a vector's elements, too. */
    for (size_t rows = 1; rows <= MOST_ROWS; rows++)
        if (rows % 3)
            run_once(LAYERS, rows);
    kiln_context_stats before = stats_of(context);
    uint64_t kernels = layer_count("alive.kernel"), objects = count_objects();
    layer_reset();
    for (size_t third = 1; third <= THIRDS; third++)
        run_once(LAYERS, 3 * third);
    cr_expect_eq(stats_of(context).plans_made - before.plans_made, THIRDS);
    cr_expect_eq(stats_of(context).kernels_compiled, before.kernels_compiled);
    /* A GPU has kernels of their own for some sizes, of which there are less than the 64 to keep.
     */
    const uint64_t more = context->runtime.device.info.shares_host_memory ? 0 : 64;
    cr_expect_leq(layer_count("clCreateKernel"), more);
    cr_expect_eq(layer_count("clReleaseKernel"), 0u);
    cr_expect_leq(layer_count("alive.kernel"), kernels + more);
    if (context->runtime.device.info.shares_host_memory) /* else pinned memory grows with sizes */
        cr_expect_leq(count_objects(), objects, "%s", layer_snapshot());
    cr_expect_leq(kernels, 1000u); /* 64 of each; a GPU has more kinds of them */
}

/* The driver's compiler is watched, by events that launches have, where it may have work to do: not
 * for kernels that other shapes have launched. */
Test(shapes, of_known_kernels_watch_no_launch)
{
    enum { LAYERS = 8, KNOWN = 90, SHAPES = 20 };
    if (!layer_available())
        cr_skip("run with OPENCL_LAYERS=.../kiln-layer.so");
    for (size_t rows = 1; rows <= KNOWN; rows++)
        run_once(LAYERS, rows);
    layer_reset();
    for (size_t i = 0; i < SHAPES; i++)
        run_once(LAYERS, KNOWN);
    const uint64_t again = layer_count("clGetEventInfo");
    layer_reset();
    for (size_t rows = KNOWN + 1; rows <= KNOWN + SHAPES; rows++)
        run_once(LAYERS, rows);
    cr_expect_leq(layer_count("clGetEventInfo"), again + SHAPES, "%s", layer_snapshot());
}

/* Another queue's launch may begin, and be compiled for, before the one that is watched. */
Test(shapes, of_known_kernels_are_watched_in_each_queue)
{
    float result[WIDTH];
    kiln_batch *batch = record(1, 3, result);
    run(batch, 3, result);
    const struct kiln__executable *executable = batch->lease.executable;
    const struct kiln__launch *launch = kiln__plan_launch_at(executable->plan, 0);
    const struct kiln__stream *stream = context->runtime.compute;
    const struct kiln__launch_shape form =
        kiln__launch_shape(launch->dimensions, launch->global, launch->local);
    cr_assert(executable->kernels[0] != NULL);
    cr_expect_eq(kiln__kernel_was_launched(executable->lent[0], stream->queue, &form),
                 stream->gated);
    cr_expect_not(kiln__kernel_was_launched(executable->lent[0], NULL, &form));
    kiln_batch_release(batch);
}

/* What is kept is bounded, however much a shape takes. The first shapes fill the programs' kernel
 * objects, 64 of each. */
Test(shapes, keep_so_much_memory_at_most)
{
    enum { KNOWN = 72, SHAPES = 250, SLACK = 24 << 20 };
    if (!strcmp(context->runtime.device.info.platform, "rusticl"))
        cr_skip("25,000 launches take it a minute, and what is kept is the same on each device");
    for (size_t rows = 1; rows <= KNOWN; rows++)
        run_once(MOST_LAYERS, rows);
    uint64_t before = heap();
    for (size_t rows = KNOWN + 1; rows <= SHAPES; rows++)
        run_once(MOST_LAYERS, rows);
    uint64_t after = heap();
    cr_expect_leq(after, before + KILN__MOST_PLAN_BYTES + SLACK, "%.1f MiB more",
                  (double)(after - before) / (1 << 20));
}

/* Shapes that take turns find the arguments that they have set. */
Test(shapes, that_take_turns_set_no_arguments_again)
{
    uint64_t alone, in_turns;
    if (!layer_available())
        cr_skip("run with OPENCL_LAYERS=.../kiln-layer.so");
    for (int i = 0; i < 4; i++)
        run_once(4, 7);
    layer_reset();
    for (int i = 0; i < 4; i++)
        run_once(4, 7);
    alone = layer_count("clSetKernelArg");
    for (int i = 0; i < 2; i++)
        for (size_t rows = 7; rows < 11; rows++)
            run_once(4, rows);
    layer_reset();
    for (size_t rows = 7; rows < 11; rows++)
        run_once(4, rows);
    in_turns = layer_count("clSetKernelArg");
    cr_expect_eq(in_turns, alone, "%llu calls, not %llu", (unsigned long long)in_turns,
                 (unsigned long long)alone);
}

/* Recordings that are there at once each have kernels of their own, which go from one to the next
 * when they are released. */
Test(shapes, are_right_with_kernels_that_others_have_had)
{
    enum { LAYERS = 6, BATCHES = 60, ROUNDS = 5 };
    static float results[BATCHES][WIDTH];
    kiln_batch *batches[BATCHES];
    for (size_t round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < BATCHES; i++)
            if (!round || i % ROUNDS != round) {
                if (round)
                    kiln_batch_release(batches[i]);
                batches[i] = record(LAYERS, i + 1 + round, results[i]);
            }
        for (size_t i = BATCHES; i-- > 0;) {
            bool old = round && i % ROUNDS == round;
            run(batches[i], i + 1 + round - old, results[i]);
            run(batches[i], i + 1 + round - old, results[i]);
            if (old) {
                kiln_batch_release(batches[i]);
                batches[i] = record(LAYERS, i + 1 + round, results[i]);
            }
        }
    }
    for (size_t i = 0; i < BATCHES; i++)
        kiln_batch_release(batches[i]);
}

static void *run_many(void *user)
{
    size_t first = *(size_t *)user;
    for (size_t i = 0; i < 150; i++)
        run_once(1 + i % 5, first + i % 70);
    return NULL;
}

Test(shapes, are_right_in_threads_that_share_kernels)
{
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    size_t firsts[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        firsts[i] = 1 + 40 * i;
        cr_assert_eq(pthread_create(&threads[i], NULL, run_many, &firsts[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

/* ---- the table of plans ---- */

static struct kiln__plan_entry *enter(struct kiln__plan_table *table, uint32_t number, size_t bytes)
{
    struct kiln__plan_entry *entry = calloc(1, sizeof *entry);
    cr_assert(entry);
    entry->hash = number / 2; /* each is another one's, too */
    entry->bytes = bytes;
    kiln__text_add_bytes(&entry->key, &number, sizeof number);
    cr_assert(kiln__plan_table_add(table, entry));
    return entry;
}

static struct kiln__plan_entry *look(struct kiln__plan_table *table, uint32_t number)
{
    struct kiln__text key = {0};
    kiln__text_add_bytes(&key, &number, sizeof number);
    struct kiln__plan_entry *found = kiln__plan_table_find(table, number / 2, &key);
    kiln__text_free(&key);
    return found;
}

static size_t free_list(struct kiln__plan_entry *list)
{
    size_t count = 0;
    for (; list; count++) {
        struct kiln__plan_entry *next = list->next;
        kiln__text_free(&list->key);
        free(list);
        list = next;
    }
    return count;
}

Test(plan_table, keeps_those_that_were_used_last)
{
    struct kiln__plan_table table = {0};
    for (uint32_t i = 0; i < 1000; i++) {
        struct kiln__plan_entry *entry = enter(&table, i, 1), *first = look(&table, 0);
        cr_assert(first); /* and borrowed */
        cr_assert_eq(free_list(kiln__plan_table_return(&table, entry)), 0u);
        size_t freed = free_list(kiln__plan_table_return(&table, first));
        cr_assert_eq(freed, i >= KILN__MOST_PLANS, "%u", i);
    }
    cr_expect_eq(table.kept, KILN__MOST_PLANS);
    cr_expect_eq(table.count, KILN__MOST_PLANS);
    cr_expect_null(look(&table, 1000 - KILN__MOST_PLANS));
    struct kiln__plan_entry *borrowed = look(&table, 1001 - KILN__MOST_PLANS);
    cr_assert(borrowed);
    cr_expect_eq(free_list(kiln__plan_table_forget_all(&table)), KILN__MOST_PLANS - 1);
    cr_expect_null(look(&table, 1001 - KILN__MOST_PLANS));
    cr_expect_eq(free_list(kiln__plan_table_return(&table, borrowed)), 1u);
    cr_expect_eq(table.count + table.kept + table.kept_bytes, 0u);
    kiln__plan_table_free(&table);
}

Test(plan_table, keeps_so_many_bytes)
{
    struct kiln__plan_table table = {0};
    for (uint32_t i = 0; i < 20; i++) {
        free_list(kiln__plan_table_return(&table, enter(&table, i, KILN__MOST_PLAN_BYTES / 4)));
        cr_assert_leq(table.kept_bytes, KILN__MOST_PLAN_BYTES);
    }
    cr_expect_eq(table.kept, 4u);
    struct kiln__plan_entry *large = enter(&table, 20, 2 * KILN__MOST_PLAN_BYTES);
    cr_expect_eq(free_list(kiln__plan_table_return(&table, large)), 4u);
    cr_expect_eq(look(&table, 20), large);
    kiln__plan_table_forget(&table, large);
    cr_expect_eq(free_list(kiln__plan_table_return(&table, large)), 1u);
    cr_expect_eq(table.count + table.kept + table.kept_bytes, 0u);
    kiln__plan_table_free(&table);
}
