/* SPDX-License-Identifier: Apache-2.0 */
/* A batch that is prepared: its kernels are stored before they run, and nothing else is changed.
 * What is compiled in other processes before a batch runs that was not. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_setaffinity */
#endif
#include <criterion/criterion.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include <kiln/kiln.h>

#include "../support/fill.h"
#include "../support/missing.h"
#include "programs/program_state.h"

enum { LENGTH = 70000 };

static float x[LENGTH], y[LENGTH], sum;

/* Each test is a process and has a cold cache of its own: they run side by side. */
static kiln_context *make_context(void)
{
    char folder[300];
    const char *below = getenv("TMPDIR");
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    kiln_context *context;
    snprintf(folder, sizeof folder, "%s/kiln-prepare.XXXXXX", below ? below : "/tmp");
    cr_assert(mkdtemp(folder) != NULL);
    options.cache_dir = folder;
    if (kiln_context_create(&options, &context))
        cr_skip("no OpenCL device here");
    return context;
}

/* A map and a sum: two kernels or more. */
static kiln_batch *record(kiln_context *context)
{
    const size_t length = LENGTH;
    for (size_t i = 0; i < length; i++)
        x[i] = (float)(i % 100) / 100;
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor a = kiln_upload(batch, KILN_F32, 1, &length, x);
    kiln_tensor b = kiln_sqrt(batch, kiln_add(batch, a, kiln_constant(batch, KILN_F32, 1)));
    kiln_read(batch, b, y, sizeof y);
    kiln_read(batch, kiln_sum(batch, b, 0, NULL, 0), &sum, sizeof sum);
    return batch;
}

static void expect_right(void)
{
    double expected = 0;
    for (size_t i = 0; i < LENGTH; i++) {
        expected += sqrt((double)x[i] + 1);
        cr_assert_float_eq((double)y[i], sqrt((double)x[i] + 1), 1e-6);
    }
    cr_expect_float_eq((double)sum, expected, expected * 1e-5);
}

static void prepare_and_run(unsigned threads, bool stores_first)
{
    kiln_context *context = make_context();
    kiln_batch *batch = record(context);
    kiln_context_stats before, after;
    size_t operations = kiln_batch_operation_count(batch);
    cr_assert_eq(kiln_batch_prepare(batch, threads), KILN_OK, "%s", kiln_last_error());
    cr_assert_eq(kiln_context_get_stats(context, &before), KILN_OK);
    cr_expect_eq(before.launches, 0u);
    cr_expect(before.cache_stores > 0 || !stores_first);
    cr_expect_eq(before.cache_pending, 0u);
    cr_expect_eq(before.cache_failures, 0u);
    cr_expect_eq(kiln_batch_operation_count(batch), operations);
    cr_assert_eq(kiln_batch_execute(batch), KILN_OK);
    expect_right();
    cr_assert_eq(kiln_context_sync_cache(context), KILN_OK);
    cr_assert_eq(kiln_context_get_stats(context, &after), KILN_OK);
    cr_expect_eq(after.plans_made, 1u);
    cr_expect_eq(after.kernels_compiled, before.kernels_compiled);
    cr_expect_eq(after.cache_stores,
                 after.kernels_compiled ? after.kernels_compiled : after.kernels_from_disk);
    cr_expect_eq(kiln_batch_prepare(batch, threads), KILN_OK);
    kiln_batch_release(batch);
    kiln_context_release(context);
}

TestSuite(prepare, .timeout = 300);

Test(prepare, kernels_are_stored_before_the_first_run)
{
    prepare_and_run(2, true);
}

Test(prepare, without_another_process_kernels_are_stored_when_they_run)
{
    setenv("KILN_STORE_PROGRAM", missing_path("kiln-store"), 1);
    prepare_and_run(0, false);
}

Test(prepare, a_batch_that_failed_says_so)
{
    kiln_context *context = make_context();
    kiln_batch *batch = kiln_batch_create(context);
    kiln_exp(batch, (kiln_tensor){0});
    cr_expect_eq(kiln_batch_prepare(batch, 1), KILN_INVALID_HANDLE);
    cr_expect_eq(kiln_batch_prepare(NULL, 1), KILN_INVALID_ARGUMENT);
    kiln_batch_release(batch);
    kiln_context_release(context);
}

/* ---- what is missing ---- */

enum { MOST = 12 };

/* False: there are fewer. */
static bool keep_cores(int count)
{
    cpu_set_t all, kept;
    CPU_ZERO(&kept);
    if (sched_getaffinity(0, sizeof all, &all))
        return false;
    for (int i = 0; i < CPU_SETSIZE && count; i++)
        if (CPU_ISSET(i, &all)) {
            CPU_SET(i, &kept);
            count--;
        }
    return !count && !sched_setaffinity(0, sizeof kept, &kept);
}

/* So many kernels of one work-item. Answers how many this process has compiled. */
static uint64_t compile_missing(size_t count, uint64_t *stored)
{
    static char sources[MOST][100], names[MOST][8];
    static const size_t one = 1;
    struct kiln__program_spec specs[MOST];
    struct kiln__programs_stats stats;
    struct fill fill;
    fill_folder();
    if (!fill_start(&fill, KILN_CACHE_ON))
        cr_skip("no OpenCL device here");
    if (!fill.device.traits->serial_compiler)
        cr_skip("this device's kernels are compiled in this process");
    fill.programs->compile = KILN_COMPILE_TOGETHER;
    for (size_t i = 0; i < count; i++) {
        snprintf(names[i], sizeof names[i], "k%zu", i);
        snprintf(sources[i], sizeof sources[i], "__kernel void %s(__global int *x) { *x = %zu; }",
                 names[i], i);
        specs[i] =
            (struct kiln__program_spec){names[i], 3, sources[i], "", names[i], 1, &one, &one};
    }
    kiln__programs_compile_missing(fill.programs, specs, count);
    kiln__programs_get_stats(fill.programs, &stats);
    *stored = stats.stores;
    fill_stop(&fill);
    fill_end();
    return stats.compiled;
}

/* A batch compiles what is missing as it meets it. */
Test(missing, a_few_are_left_to_the_batch_on_two_cores, .timeout = 300)
{
    uint64_t stored;
    if (!keep_cores(2))
        cr_skip("two cores are needed");
    cr_expect_eq(compile_missing(MOST - 1, &stored), 0u);
    cr_expect_eq(stored, 0u);
}

/* The last is compiled here, to see whether that takes long. */
Test(missing, more_are_compiled_by_two_processes_on_two_cores, .timeout = 300)
{
    uint64_t stored;
    if (!keep_cores(2))
        cr_skip("two cores are needed");
    cr_expect_eq(compile_missing(MOST, &stored), 1u);
    cr_expect_eq(stored, (uint64_t)MOST - 1);
}
