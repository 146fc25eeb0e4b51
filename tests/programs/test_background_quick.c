/* SPDX-License-Identifier: Apache-2.0 */
/* Batches that run by kernels that are not optimised until their own are there. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../support/cache.h"
#include "../support/check.h"
#include "../support/samples.h"
#include "record/batch.h"
#include "session/background.h"
#include "session/context.h"
#include "session/plan_table.h"

/* ---- products and maps ---- */

/* Rows, depth and columns: what different kernels do, and of vectors with rests. */
static const size_t sizes[][3] = {
    {1, 257, 66}, {7, 64, 64}, {33, 40, 24}, {70, 130, 90}, {128, 64, 96}};
enum { PRODUCTS = sizeof sizes / sizeof *sizes, MOST = 128 * 257, RESULTS = 3 * PRODUCTS + 64 };

struct work {
    kiln_context *context;
    kiln_batch *batch;
    float data[MOST];
    float *found[RESULTS];
    size_t bytes[RESULTS], count;
};

static void take(struct work *work, kiln_tensor y, size_t elements)
{
    const size_t k = work->count++;
    cr_assert_lt(k, (size_t)RESULTS);
    work->bytes[k] = elements * sizeof(float);
    work->found[k] = malloc(work->bytes[k]);
    cr_assert(work->found[k]);
    expect_ok(kiln_read(work->batch, y, work->found[k], work->bytes[k]));
}

/* A layer, what is made of its rows, and what flows back to its weights. */
static void record_layer(struct work *work, const size_t size[3])
{
    kiln_batch *batch = work->batch;
    const size_t m = size[0], k = size[1], n = size[2];
    kiln_tensor x = kiln_upload(batch, KILN_F32, 2, (size_t[]){m, k}, work->data);
    kiln_tensor w = kiln_upload(batch, KILN_F32, 2, (size_t[]){k, n}, work->data + 1);
    kiln_tensor y = kiln_tanh(batch, kiln_matmul(batch, x, w)), gradient;
    kiln_tensor soft = kiln_softmax(batch, y, 1, (int[]){-1});
    take(work, soft, m * n);
    take(work, kiln_sum(batch, kiln_exp(batch, soft), 1, (int[]){0}, 0), n);
    expect_ok(
        kiln_grad(batch, kiln_mean(batch, kiln_mul(batch, soft, y), 0, NULL, 0), &w, 1, &gradient));
    take(work, gradient, k * n);
}

static struct work *begin_on(kiln_context *context)
{
    struct work *work = calloc(1, sizeof *work);
    cr_assert(work);
    work->context = context;
    work->batch = kiln_batch_create(context);
    uint64_t state = 1;
    for (size_t i = 0; i < MOST; i++)
        work->data[i] = (float)(fake_random(&state) % 2048) / 4096 - 0.25F;
    return work;
}

static struct work *begin_layers(kiln_context *context)
{
    struct work *work = begin_on(context);
    for (size_t i = 0; i < PRODUCTS; i++)
        record_layer(work, sizes[i]);
    return work;
}

/* One sample of each kind, or all. */
static struct work *begin_samples(kiln_context *context, bool all)
{
    struct work *work = begin_on(context);
    kiln_tensor x =
        kiln_upload(work->batch, KILN_F32, 2, (size_t[]){SAMPLE_SIZE, SAMPLE_SIZE}, work->data);
    for (size_t i = 0; i < sample_count && work->count < RESULTS; i++)
        if (all || &samples[i] == sample_of(samples[i].kind))
            take(work, sample_square(work->batch, samples[i].record(work->batch, x)),
                 (size_t)SAMPLE_SIZE * SAMPLE_SIZE);
    return work;
}

static void run_work(struct work *work)
{
    for (size_t i = 0; i < work->count; i++)
        memset(work->found[i], 0xff, work->bytes[i]);
    run_batch(work->batch);
}

static void expect_same(const struct work *one, const struct work *other)
{
    cr_assert_eq(one->count, other->count);
    for (size_t i = 0; i < one->count; i++)
        cr_expect_arr_eq(one->found[i], other->found[i], one->bytes[i], "result %zu differs", i);
}

static void end_work(struct work *work)
{
    kiln_batch_release(work->batch);
    for (size_t i = 0; i < work->count; i++)
        free(work->found[i]);
    free(work);
}

/* ---- contexts ---- */

static const char *make_folder(void)
{
    static char folder[300];
    const char *below = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/kiln-quick.XXXXXX", below ? below : "/tmp");
    cr_assert(mkdtemp(folder) != NULL);
    return folder;
}

/* With a cold cache of its own, or this one. */
static kiln_context *make_context(kiln_compile_mode mode, const char *folder)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    options.cache_dir = folder ? folder : make_folder();
    options.compile = mode;
    kiln_context *context = open_context_with(&options);
    if (!context->runtime.device.traits->quick_options)
        cr_skip("this device's kernels are compiled in one way");
    return context;
}

/* How many launches of the batch are by quick kernels. */
static size_t count_quick(const struct work *work)
{
    const struct kiln__background *background =
        work->batch->lease.entry->background[KILN__TIER_BASELINE];
    const char *quick = work->context->runtime.device.traits->quick_options;
    size_t count = 0;
    for (size_t i = 0; background && i < background->plan.launches.count; i++)
        count += strstr(background->plan.launches.items[i].options, quick) != NULL;
    return work->batch->lease.tier == KILN__TIER_BASELINE ? count : 0;
}

static void run_until_changed(struct work *work)
{
    const struct timespec nap = {.tv_nsec = 20000000};
    do {
        nanosleep(&nap, NULL);
        run_work(work);
    } while (work->batch->lease.tier == KILN__TIER_BASELINE);
}

static size_t count_entries(const char *folder)
{
    size_t count = 0;
    DIR *opened = opendir(folder);
    cr_assert(opened);
    for (const struct dirent *file; (file = readdir(opened));)
        count += strstr(file->d_name, ".bin") != NULL;
    closedir(opened);
    return count;
}

/* ---- what they compute ---- */

/* Against float64. */
Test(quick, kernels_compute_what_they_should, .timeout = 600)
{
    fake_store_held(NULL);
    setenv("KILN_COMPILE", "quick", 1);
    setenv("KILN_CACHE_DIR", make_folder(), 1);
    kiln_batch *batch = check_begin();
    if (!batch->context->runtime.device.traits->quick_options)
        cr_skip("this device's kernels are compiled in one way");
    for (size_t i = 0; i < PRODUCTS; i++) {
        const size_t *size = sizes[i];
        kiln_tensor x = check_plain(batch, DIMS(size[0], size[1]));
        kiln_tensor w = check_plain(batch, DIMS(size[1], size[2]));
        kiln_tensor y = kiln_matmul(batch, x, w);
        check_read(batch, kiln_softmax(batch, kiln_tanh(batch, y), 1, (int[]){-1}));
        check_read(batch, kiln_sum(batch, y, 1, (int[]){0}, 0));
    }
    cr_expect(check_run(batch));
    cr_expect_eq(batch->lease.tier, KILN__TIER_BASELINE);
    check_end(batch);
    check_close();
    fake_store_let_go();
    fake_end();
}

static void expect_same_bits(struct work *begin(kiln_context *context))
{
    fake_store_held(NULL);
    kiln_context *context = make_context(KILN_COMPILE_QUICK, NULL);
    kiln_context *other = make_context(KILN_COMPILE_ALONE, NULL);
    struct work *quick = begin(context), *own = begin(other);
    run_work(quick);
    cr_expect_geq(count_quick(quick), 10u);
    run_work(own);
    cr_expect_eq(count_quick(own), 0u);
    expect_same(quick, own);
    end_work(quick);
    end_work(own);
    fake_store_let_go();
    close_context(context);
    close_context(other);
    fake_end();
}

Test(quick, layers_have_the_bits_of_optimised_kernels, .timeout = 600)
{
    expect_same_bits(begin_layers);
}

static struct work *begin_some(kiln_context *context)
{
    return begin_samples(context, getenv("KILN_TEST_ALL_SAMPLES"));
}

Test(quick, slow_operations_have_the_bits_of_optimised_kernels, .timeout = 600)
{
    expect_same_bits(begin_some);
}

/* ---- when ---- */

Test(quick, slow_a_batch_changes_to_its_own_kernels_and_no_other_is_stored, .timeout = 600)
{
    fake_store_held(NULL);
    const char *folder = make_folder();
    kiln_context *context = make_context(KILN_COMPILE_QUICK, folder);
    struct work *work = begin_layers(context);
    run_work(work);
    struct work *first = begin_on(context);
    for (size_t i = 0; i < work->count; i++, first->count++) {
        first->bytes[i] = work->bytes[i];
        first->found[i] = malloc(work->bytes[i]);
        memcpy(first->found[i], work->found[i], work->bytes[i]);
    }
    const kiln_context_stats before = stats_of(context);
    cr_expect_eq(before.kernels_from_disk, 0u);
    cr_expect_eq(count_entries(folder), 0u);
    fake_store_let_go();
    run_until_changed(work);
    const kiln_context_stats after = stats_of(context);
    cr_expect_eq(after.kernels_compiled, before.kernels_compiled);
    cr_expect_eq(after.kernels_from_disk, before.kernels_compiled);
    cr_expect_eq(after.cache_failures, 0u);
    expect_same(work, first);
    expect_ok(kiln_context_sync_cache(context));
    cr_expect_eq(count_entries(folder), (size_t)after.kernels_from_disk);
    end_work(first);
    end_work(work);
    close_context(context);
    /* What another process finds are none that are quick. */
    context = make_context(KILN_COMPILE_NEVER, folder);
    work = begin_layers(context);
    run_work(work);
    cr_expect_eq(stats_of(context).kernels_compiled, 0u);
    end_work(work);
    close_context(context);
    fake_end();
}

/* What the workers of a batch have been asked for, from the first job on. */
static size_t count_quick_jobs(const struct work *work)
{
    const struct kiln__background *background =
        work->batch->lease.entry->background[KILN__TIER_BASELINE];
    const struct kiln__compile_jobs *jobs = &background->workers.jobs;
    const char *quick = work->context->runtime.device.traits->quick_options;
    size_t count = 0;
    while (count < jobs->texts.count &&
           strstr(jobs->texts.items[count].program.data + sizeof(size_t), quick))
        count++;
    for (size_t i = count; i < jobs->texts.count; i++)
        cr_expect_null(strstr(jobs->texts.items[i].program.data + sizeof(size_t), quick));
    return count;
}

/* The options, behind their length. */
static bool has_source_of(const struct kiln__compile_text *job, const struct kiln__compile_text *of)
{
    const char *one = job->program.data + sizeof(size_t),
               *other = of->program.data + sizeof(size_t);
    one += strlen(one) + 1 + sizeof(size_t);
    other += strlen(other) + 1 + sizeof(size_t);
    return !strcmp(one, other);
}

/* Of a test whose workers were held. */
static void end_held(struct work *work, kiln_context *context)
{
    end_work(work);
    fake_store_let_go();
    close_context(context);
    fake_end();
}

/* Each worker has three of them to two of this process, the last first, and then all that is to be
 * stored. */
Test(quick, workers_begin_with_their_share, .timeout = 600)
{
    fake_store_held(NULL);
    kiln_context *context = make_context(KILN_COMPILE_QUICK, NULL);
    struct work *work = begin_layers(context);
    run_work(work);
    const struct kiln__compile_workers *workers =
        &work->batch->lease.entry->background[KILN__TIER_BASELINE]->workers;
    const struct kiln__compile_text *jobs = workers->jobs.texts.items;
    const size_t count = workers->jobs.texts.count, quick = count_quick_jobs(work);
    const size_t compiled = (size_t)stats_of(context).kernels_compiled;
    cr_expect_eq(quick, compiled * 3 * workers->count / (3 * workers->count + 2));
    cr_expect_eq(count, quick + compiled);
    for (size_t i = 0; i < quick; i++)
        cr_expect(has_source_of(&jobs[i], &jobs[count - 1 - i]), "job %zu", i);
    end_held(work, context);
}

/* This process is as soon done with them. */
Test(quick, few_are_not_shared, .timeout = 600)
{
    fake_store_held(NULL);
    kiln_context *context = make_context(KILN_COMPILE_QUICK, NULL);
    struct work *work = begin_on(context);
    record_layer(work, sizes[1]);
    run_work(work);
    cr_expect_geq(count_quick(work), 3u);
    cr_expect_eq(count_quick_jobs(work), 0u);
    end_held(work, context);
}

/* Bits do not change: there is nothing to wait for. */
Test(quick, a_batch_invariant_batch_runs_so, .timeout = 600)
{
    fake_store_held(NULL);
    kiln_context *context = make_context(KILN_COMPILE_BACKGROUND, NULL);
    struct work *work = begin_layers(context);
    expect_ok(kiln_batch_set_batch_invariant(work->batch));
    run_work(work);
    cr_expect_geq(count_quick(work), 10u);
    end_held(work, context);
}

/* An optimised one is compiled sooner than a quick one is done. */
Test(quick, much_work_waits_for_its_kernel, .timeout = 600)
{
    static float zeros[1400 * 1400], found[1400 * 1400];
    const size_t rows = sizeof zeros / sizeof *zeros / 1400;
    setenv("POCL_EXTRA_BUILD_FLAGS", "-cl-opt-disable", 0);
    fake_store_held(NULL);
    kiln_context *context = make_context(KILN_COMPILE_QUICK, NULL);
    struct work *work = begin_layers(context);
    kiln_tensor x = kiln_upload(work->batch, KILN_F32, 2, (size_t[]){rows, 1400}, zeros);
    expect_ok(kiln_read(work->batch, kiln_tanh(work->batch, kiln_matmul(work->batch, x, x)), found,
                        sizeof found));
    run_work(work);
    const size_t launches = work->batch->lease.plan->launches.count;
    cr_expect_lt(count_quick(work), launches);
    cr_expect_geq(count_quick(work), launches - 3); /* with what packs operands */
    end_held(work, context);
}

/* Its text is the user's, who may not have switched off what changes bits. */
Test(quick, a_kernel_of_the_users_own_waits, .timeout = 600)
{
    static float found[64];
    fake_store_held(NULL);
    kiln_context *context = make_context(KILN_COMPILE_QUICK, NULL);
    struct work *work = begin_layers(context);
    kiln_tensor x = kiln_upload(work->batch, KILN_F32, 1, (size_t[]){64}, work->data), y;
    kiln_custom_kernel kernel = KILN_CUSTOM_KERNEL_INIT;
    kernel.name = "twice";
    kernel.source = "y[get_global_id(0)] = 2 * x[get_global_id(0)];";
    kernel.input_count = kernel.output_count = 1;
    kernel.inputs = (kiln_custom_tensor[]){{.name = "x", .type = KILN_F32}};
    kernel.outputs =
        (kiln_custom_tensor[]){{.name = "y", .type = KILN_F32, .rank = 1, .dims = {64}}};
    expect_ok(kiln_custom(work->batch, &kernel, &x, &y));
    expect_ok(kiln_read(work->batch, y, found, sizeof found));
    run_work(work);
    cr_expect_eq(count_quick(work), work->batch->lease.plan->launches.count - 1);
    end_held(work, context);
}

/* Launches are joined afterwards, as without quick kernels: after the change runs begin to count.
 */
Test(quick, slow_launches_are_looked_at_after_the_change, .timeout = 600)
{
    kiln_context *context = make_context(KILN_COMPILE_QUICK, NULL);
    struct work *work = begin_layers(context);
    run_work(work);
    run_until_changed(work);
    cr_expect_eq(work->batch->lease.tier, KILN__TIER_UNJOINED);
    run_work(work);
    const struct kiln__background *apart =
        work->batch->lease.entry->background[KILN__TIER_UNJOINED];
    cr_expect(apart && apart->runs >= 1);
    end_work(work);
    close_context(context);
}
