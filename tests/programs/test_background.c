/* SPDX-License-Identifier: Apache-2.0 */
/* Batches that run by the generic kernel before their own are compiled. */
#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../support/cache.h"
#include "../support/check.h"
#include "../support/layer.h"
#include "../support/missing.h"
#include "../support/samples.h"
#include "record/batch.h"
#include "session/context.h"

/* ---- the generic kernel ---- */

static void skip_without_generic(const kiln_context *context)
{
    if (context->runtime.device.traits->no_generic_kernel)
        cr_skip("this device's compiler gets the generic kernel wrong");
}

/* All samples in few batches: the kernel is compiled once. */
Test(background, the_generic_kernel_computes_what_others_do, .timeout = 300)
{
    const int together = 6;
    setenv("POCL_EXTRA_BUILD_FLAGS", "-cl-opt-disable", 0);
    setenv("KILN_TEST_GENERIC", "1", 1);
    for (size_t i = 0; i < sample_count;) {
        kiln_batch *batch = check_begin();
        skip_without_generic(batch->context);
        kiln_tensor x = check_plain(batch, DIMS(SAMPLE_SIZE, SAMPLE_SIZE));
        for (int k = 0; k < together && i < sample_count; k++, i++)
            check_read(batch, samples[i].record(batch, x));
        cr_expect(check_run(batch), "up to %s", samples[i - 1].name);
        check_end(batch);
    }
    check_close();
}

/* ---- behind a batch ---- */

/* As many kernels, of which none is like another. */
enum { KERNELS = 10, LENGTH = 500 };

typedef kiln_tensor operation(kiln_batch *batch, kiln_tensor x);

static const struct {
    operation *record;
    double (*host)(double x);
} operations[KERNELS] = {{kiln_exp, exp},    {kiln_log, log},   {kiln_sqrt, sqrt},
                         {kiln_abs, fabs},   {kiln_tanh, tanh}, {kiln_floor, floor},
                         {kiln_exp2, exp2},  {kiln_sin, sin},   {kiln_cos, cos},
                         {kiln_log1p, log1p}};

struct work {
    kiln_context *context;
    kiln_batch *batch;
    float x[LENGTH], y[KERNELS][LENGTH];
};

/* Each of its own length, so that they stay apart. */
static struct work *begin_work(kiln_context *context)
{
    struct work *work = calloc(1, sizeof *work);
    cr_assert(work);
    work->context = context;
    work->batch = kiln_batch_create(context);
    for (size_t i = 0; i < LENGTH; i++)
        work->x[i] = 0.5F + (float)i / LENGTH;
    for (size_t i = 0; i < KERNELS; i++) {
        const size_t length = LENGTH - i;
        kiln_tensor x = kiln_upload(work->batch, KILN_F32, 1, &length, work->x);
        kiln_read(work->batch, operations[i].record(work->batch, x), work->y[i],
                  length * sizeof(float));
    }
    return work;
}

static void run_work(struct work *work)
{
    memset(work->y, 0, sizeof work->y);
    cr_assert_eq(kiln_batch_execute(work->batch), KILN_OK, "%s", kiln_last_error());
    for (size_t i = 0; i < KERNELS; i++)
        for (size_t k = 0; k < LENGTH - i; k++) {
            double wanted = operations[i].host((double)work->x[k]);
            cr_assert_float_eq((double)work->y[i][k], wanted, 1e-6 + 1e-6 * fabs(wanted),
                               "kernel %zu, element %zu: %g is not %g", i, k, (double)work->y[i][k],
                               wanted);
        }
}

static void end_work(struct work *work)
{
    kiln_batch_release(work->batch);
    free(work);
}

/* With a cold cache of its own. PoCL has quick kernels instead, but for this. */
static kiln_context *make_context(void)
{
    static struct kiln__traits traits;
    static char folder[300];
    const char *below = getenv("TMPDIR");
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    kiln_context *context;
    snprintf(folder, sizeof folder, "%s/kiln-behind.XXXXXX", below ? below : "/tmp");
    cr_assert(mkdtemp(folder) != NULL);
    setenv("POCL_EXTRA_BUILD_FLAGS", "-cl-opt-disable", 0);
    options.cache_dir = folder;
    options.compile = KILN_COMPILE_BACKGROUND;
    options.host_memory = KILN_HOST_MEMORY_SEPARATE;
    if (kiln_context_create(&options, &context))
        cr_skip("no OpenCL device here");
    skip_without_generic(context);
    traits = *context->runtime.device.traits;
    traits.quick_options = NULL;
    context->runtime.device.traits = &traits;
    return context;
}

static bool has_own_kernels(const kiln_context_stats *stats)
{
    return stats->kernels_compiled + stats->kernels_from_disk >= KERNELS;
}

/* Until a run has its own kernels, however long other processes take. */
static void run_until_changed(struct work *work)
{
    const struct timespec nap = {.tv_nsec = 20000000};
    kiln_context_stats stats;
    do {
        nanosleep(&nap, NULL);
        run_work(work);
        stats = stats_of(work->context);
    } while (!has_own_kernels(&stats));
}

/* The jobs that workers are given. */
static int open_queues(void)
{
    int count = 0;
    char path[64], target[64];
    for (int file = 0; file < 1024; file++) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", file);
        ssize_t length = readlink(path, target, sizeof target - 1);
        target[length < 0 ? 0 : length] = 0;
        count += strstr(target, "memfd:kiln-store") != NULL;
    }
    return count;
}

/* What stores the generic kernel has one for a while, too. */
static void await_queues(void)
{
    const struct timespec nap = {.tv_nsec = 20000000};
    while (open_queues())
        nanosleep(&nap, NULL);
}

Test(background, a_batch_runs_before_its_kernels_are_there_and_changes_to_them, .timeout = 300)
{
    fake_store_held(NULL);
    kiln_context *context = make_context();
    struct work *work = begin_work(context);
    run_work(work);
    kiln_context_stats first = stats_of(context);
    cr_expect_eq(first.kernels_compiled, 1u, "other kernels than the generic one were waited for");
    cr_expect_geq(open_queues(), 1);
    fake_store_let_go();
    run_until_changed(work);
    await_queues();
    kiln_context_stats last = stats_of(context);
    cr_expect_eq(last.kernels_compiled, 1u);
    cr_expect_eq(last.kernels_from_disk, (uint64_t)KERNELS);
    cr_expect_eq(last.cache_failures, 0u);
    end_work(work);
    kiln_context_release(context);
    fake_end();
}

/* A product that reads an image's windows where they lie has no launch for them; the generic kernel
 * computes both. */
Test(background, windows_are_computed_where_no_product_reads_them, .timeout = 300)
{
    static float image[3 * 14 * 14], weights[4 * 27], found[4 * 12 * 12];
    fake_store_held(NULL);
    kiln_context *context = make_context();
    struct work *work = begin_work(context);
    for (size_t i = 0; i < sizeof image / sizeof *image; i++)
        image[i] = (float)(i % 7);
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++)
        weights[i] = (float)(i % 5) - 2;
    kiln_tensor x = kiln_upload(work->batch, KILN_F32, 4, (size_t[]){1, 14, 14, 3}, image);
    kiln_tensor w = kiln_upload(work->batch, KILN_F32, 4, (size_t[]){3, 3, 3, 4}, weights);
    cr_assert_eq(kiln_read(work->batch, kiln_conv2d(work->batch, x, w, NULL), found, sizeof found),
                 KILN_OK, "%s", kiln_batch_error(work->batch));
    run_work(work);
    cr_expect_eq(stats_of(context).kernels_compiled, 1u);
    for (size_t i = 0; i < 12; i++) { /* the first channel's diagonal; all sums are exact */
        float wanted = 0;
        for (size_t k = 0; k < 27; k++)
            wanted += weights[4 * k] * image[((i + k / 9) * 14 + i + k / 3 % 3) * 3 + k % 3];
        cr_expect_eq(found[i * 13 * 4], wanted);
    }
    end_work(work);
    fake_store_let_go();
    kiln_context_release(context);
    fake_end();
}

/* Only what was compiled decides: a second batch of the same structure begins with that. */
Test(background, what_was_compiled_is_not_run_without, .timeout = 300)
{
    kiln_context *context = make_context();
    struct work *work = begin_work(context);
    cr_assert_eq(kiln_batch_prepare(work->batch, 1), KILN_OK);
    uint64_t before = stats_of(context).kernels_compiled;
    run_work(work);
    cr_expect_eq(stats_of(context).kernels_compiled, before);
    end_work(work);
    work = begin_work(context);
    run_work(work);
    cr_expect_eq(stats_of(context).kernels_compiled, before);
    end_work(work);
    kiln_context_release(context);
}

Test(background, a_batch_that_is_prepared_waits_for_its_kernels, .timeout = 300)
{
    kiln_context *context = make_context();
    struct work *work = begin_work(context);
    run_work(work);
    cr_assert_eq(kiln_batch_prepare(work->batch, 1), KILN_OK);
    kiln_context_stats stats = stats_of(context);
    cr_expect(has_own_kernels(&stats));
    run_work(work);
    end_work(work);
    kiln_context_release(context);
}

Test(background, where_no_process_can_be_started_a_batch_waits, .timeout = 300)
{
    setenv("KILN_STORE_PROGRAM", missing_path("kiln-store"), 1);
    kiln_context *context = make_context();
    struct work *work = begin_work(context);
    run_work(work);
    cr_expect_eq(stats_of(context).kernels_compiled, (uint64_t)KERNELS);
    end_work(work);
    kiln_context_release(context);
}

/* As if it had been killed. */
Test(background, what_a_process_did_not_come_to_the_next_run_compiles, .timeout = 300)
{
    setenv("KILN_STORE_PROGRAM", "/bin/true", 1);
    kiln_context *context = make_context();
    struct work *work = begin_work(context);
    run_until_changed(work);
    cr_expect_geq(stats_of(context).kernels_compiled, (uint64_t)KERNELS);
    end_work(work);
    kiln_context_release(context);
}

Test(background, a_context_may_be_released_before, .timeout = 300)
{
    kiln_context *context = make_context();
    struct work *work = begin_work(context);
    run_work(work);
    end_work(work);
    kiln_context_release(context);
}

Test(background, a_batch_whose_kernels_cannot_be_built_goes_on_without, .timeout = 300)
{
    const struct timespec nap = {.tv_nsec = 20000000};
    if (!layer_available())
        cr_skip("run with OPENCL_LAYERS=.../kiln-layer.so");
    fake_store_held("true"); /* it ends without having done anything */
    kiln_context *context = make_context();
    struct work *work = begin_work(context);
    run_work(work);
    cr_expect_eq(stats_of(context).kernels_compiled, 1u);
    layer_fail(1, "clBuildProgram", -11, KILN_LAYER_FOREVER, KILN_LAYER_CALL);
    fake_store_let_go();
    while (!layer_failures()) {
        run_work(work);
        nanosleep(&nap, NULL);
    }
    run_work(work);
    cr_expect_eq(stats_of(context).kernels_compiled, 1u);
    layer_reset();
    end_work(work);
    kiln_context_release(context);
    fake_end();
}

/* ---- threads ---- */

enum { THREADS = 3 };

/* All have run once. */
static pthread_barrier_t begun;

static void *run_in_thread(void *user)
{
    struct work *work = begin_work(user);
    run_work(work);
    pthread_barrier_wait(&begun);
    run_until_changed(work);
    run_work(work);
    end_work(work);
    return NULL;
}

Test(background, threads_with_one_batch_each_change_when_they_can, .timeout = 300)
{
    pthread_t threads[THREADS];
    fake_store_held(NULL);
    kiln_context *context = make_context();
    cr_assert_eq(pthread_barrier_init(&begun, NULL, THREADS + 1), 0);
    for (size_t i = 0; i < THREADS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, run_in_thread, context), 0);
    pthread_barrier_wait(&begun);
    fake_store_let_go();
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&begun);
    kiln_context_stats stats = stats_of(context);
    cr_expect_eq(stats.kernels_compiled, 1u);
    kiln_context_release(context);
    fake_end();
}
