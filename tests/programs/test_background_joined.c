/* SPDX-License-Identifier: Apache-2.0 */
/* Short launches that become one once a batch has run often: what joins them is compiled behind. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../support/cache.h"
#include "../support/check.h"
#include "../support/missing.h"
#include "record/batch.h"
#include "session/background.h"
#include "session/context.h"
#include "session/plan_table.h"

/* Each step sums what the one before has made, along one axis and the other in turn. */
enum { STEPS = 30, M = 3, N = 7 };

/* Far more runs than pay for what joins them. */
enum { OFTEN = 2000 };

struct work {
    kiln_context *context;
    kiln_batch *batch;
    float x[M * N], y[M * N], wanted[M * N];
    size_t launches;
};

static kiln_tensor record_steps(kiln_batch *batch, const float *values, size_t columns)
{
    kiln_tensor x = kiln_upload(batch, KILN_F32, 2, (size_t[]){M, columns}, values);
    for (int i = 0; i < STEPS; i++) {
        kiln_tensor sums = kiln_sum(batch, x, 1, (int[]){i % 2}, 1);
        x = kiln_add(batch, kiln_scale(batch, x, 0.5), kiln_abs(batch, sums));
    }
    return x;
}

static struct work *begin_columns(kiln_context *context, size_t columns)
{
    struct work *work = calloc(1, sizeof *work);
    cr_assert(work);
    fill(work->x, (size_t)M * N, 1);
    work->context = context;
    work->batch = kiln_batch_create(context);
    expect_ok(kiln_read(work->batch, record_steps(work->batch, work->x, columns), work->y,
                        M * columns * sizeof(float)));
    return work;
}

static struct work *begin_work(kiln_context *context)
{
    return begin_columns(context, N);
}

/* All runs have the bits of the first. */
static void run_work(struct work *work)
{
    const uint64_t before = stats_of(work->context).launches;
    memset(work->y, 0, sizeof work->y);
    run_batch(work->batch);
    if (!work->launches)
        memcpy(work->wanted, work->y, sizeof work->y);
    cr_assert_eq(memcmp(work->wanted, work->y, sizeof work->y), 0);
    work->launches = stats_of(work->context).launches - before;
}

static void end_work(struct work *work)
{
    kiln_batch_release(work->batch);
    free(work);
}

static bool is_joined(const struct work *work)
{
    return work->launches == 1;
}

/* Apart, as often as that can be asked for. */
static void run_often(struct work *work, int times)
{
    for (int i = 0; i < times; i++) {
        run_work(work);
        cr_assert(!is_joined(work), "run %d", i);
    }
}

static void run_until_joined(struct work *work)
{
    for (int i = 0; i < OFTEN && !is_joined(work); i++)
        run_work(work);
    expect_ok(kiln_context_sync_cache(work->context));
    run_work(work);
    cr_assert(is_joined(work));
}

static char folder[300];

static void choose_folder(void)
{
    const char *below = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/kiln-joined.XXXXXX", below ? below : "/tmp");
    cr_assert(mkdtemp(folder) != NULL);
}

static kiln_context *make_context(void)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    check_cheaply();
    if (!*folder)
        choose_folder();
    options.cache_dir = folder;
    options.compile = KILN_COMPILE_TOGETHER;
    kiln_context *context = open_context_with(&options);
    const struct kiln__traits *traits = context->runtime.device.traits;
    if (!traits->one_launch || !traits->chunked)
        cr_skip("launches stay apart on this device");
    return context;
}

Test(background_joined, a_batch_that_runs_often_is_joined, .timeout = 300)
{
    kiln_context *context = make_context();
    struct work *work = begin_work(context);
    run_work(work);
    const size_t apart = work->launches;
    const uint64_t compiled = stats_of(context).kernels_compiled;
    cr_assert_gt(apart, (size_t)STEPS / 2);
    run_often(work, 50);
    run_until_joined(work);
    run_work(work);
    cr_expect_eq(stats_of(context).kernels_compiled, compiled, "a run has compiled it");
    cr_expect_eq(stats_of(context).cache_failures, 0u);
    end_work(work);

    struct work *other = begin_work(context);
    run_work(other);
    cr_expect(is_joined(other), "it is in memory");
    cr_expect_eq(cost_of(other->batch).launches, 1u);
    end_work(other);

    other = begin_columns(context, N - 1); /* has the same kernels */
    run_work(other);
    cr_expect_eq(other->launches, apart);
    run_work(other);
    cr_expect(is_joined(other), "it is in memory");
    cr_expect_eq(stats_of(context).kernels_compiled, compiled);
    end_work(other);
    close_context(context);

    context = make_context();
    work = begin_work(context);
    run_work(work);
    cr_expect_eq(work->launches, apart);
    run_work(work);
    cr_expect(is_joined(work), "it is on disk");
    cr_expect_eq(stats_of(context).kernels_compiled, 0u);
    end_work(work);
    close_context(context);
}

/* Most of ever new shapes run once. */
Test(background_joined, nothing_is_joined_before_the_second_run, .timeout = 300)
{
    kiln_context *context = make_context();
    struct work *work = begin_work(context);
    run_work(work);
    const struct kiln__plan_entry *entry = work->batch->lease.entry;
    cr_assert(entry->background != NULL);
    const size_t bytes = entry->bytes;
    cr_expect_eq(entry->plan.joined.count, 0u);
    cr_expect_eq(entry->background[KILN__TIER_UNJOINED]->plan.launches.count, 0u);
    run_work(work);
    cr_expect_eq(work->batch->lease.entry, entry);
    cr_expect_eq(entry->plan.joined.count, 0u);
    cr_expect_eq(entry->background[KILN__TIER_UNJOINED]->plan.joined.count, 1u);
    cr_expect_gt(entry->bytes, bytes);
    end_work(work);
    close_context(context);
}

/* A batch that is recorded anew each time has run as often. */
Test(background_joined, a_batch_of_equal_structure_counts, .timeout = 300)
{
    kiln_context *context = make_context();
    bool joined = false;
    for (int i = 0; i <= OFTEN && !joined; i++) {
        if (i == OFTEN)
            expect_ok(kiln_context_sync_cache(context));
        struct work *work = begin_work(context);
        run_work(work);
        joined = is_joined(work);
        cr_assert(!joined || i > 50);
        end_work(work);
    }
    cr_expect(joined);
    close_context(context);
}

Test(background_joined, where_no_process_can_be_started_launches_stay_apart, .timeout = 300)
{
    setenv("KILN_STORE_PROGRAM", missing_path("kiln-store"), 1);
    kiln_context *context = make_context();
    struct work *work = begin_work(context);
    run_work(work);
    const uint64_t compiled = stats_of(context).kernels_compiled;
    run_often(work, OFTEN);
    cr_expect_eq(stats_of(context).kernels_compiled, compiled);
    end_work(work);
    close_context(context);
}

/* As if it had been killed. */
Test(background_joined, where_the_process_ends_early_launches_stay_apart, .timeout = 300)
{
    setenv("KILN_STORE_PROGRAM", "/bin/true", 1);
    kiln_context *context = make_context();
    struct work *work = begin_work(context);
    run_often(work, OFTEN);
    end_work(work);
    close_context(context);
}

/* What joins launches comes by way of the disk. */
Test(background_joined, without_a_cache_nothing_is_joined, .timeout = 300)
{
    setenv("KILN_CACHE", "off", 1);
    kiln_context *context = make_context();
    struct work *work = begin_work(context);
    run_often(work, 100);
    cr_expect_null(work->batch->lease.entry->background[KILN__TIER_UNJOINED]);
    end_work(work);
    close_context(context);
}

static size_t count_entries(void)
{
    kiln_cache_stats stats;
    expect_ok(kiln_cache_get_stats(folder, &stats));
    return stats.entries;
}

/* In a cleared cache it is missing once more: no run compiles it, another process does. */
Test(background_joined, what_is_gone_from_the_cache_is_compiled_behind_again, .timeout = 300)
{
    kiln_context *context = make_context();
    struct work *work = begin_work(context);
    run_work(work);
    const size_t apart = work->launches;
    const uint64_t compiled = stats_of(context).kernels_compiled;
    const struct kiln__background *background =
        work->batch->lease.entry->background[KILN__TIER_UNJOINED];
    expect_ok(kiln_context_sync_cache(context));
    const size_t entries = count_entries();
    while (background->state == KILN__BACKGROUND_WAITS)
        run_work(work);
    cr_assert_eq(background->state, KILN__BACKGROUND_COMPILES);
    while (count_entries() == entries)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    expect_ok(kiln_cache_prune(folder, 0, NULL));
    while (background->state == KILN__BACKGROUND_COMPILES) {
        run_work(work);
        cr_assert_eq(work->launches, apart);
    }
    run_until_joined(work);
    cr_expect_eq(stats_of(context).kernels_compiled, compiled, "a run has compiled it");
    end_work(work);
    close_context(context);
}

/* The end of the context, and of the process, waits for nobody. */
Test(background_joined, a_context_may_be_released_before, .timeout = 300)
{
    fake_store_program("sleep 3 &");
    kiln_context *context = make_context();
    struct work *work = begin_work(context);
    run_often(work, OFTEN);
    end_work(work);
    close_context(context);
    fake_end();
}

enum { THREADS = 3 };

static void *run_in_thread(void *user)
{
    struct work *work = begin_work(user);
    for (int i = 0; i < OFTEN; i++)
        run_work(work);
    end_work(work);
    return NULL;
}

/* Together they have run as often; one of them has it compiled, and each changes by itself. */
Test(background_joined, threads_with_one_structure_change, .timeout = 300)
{
    pthread_t threads[THREADS];
    kiln_context *context = make_context();
    struct work *work = begin_work(context);
    run_work(work);
    const uint64_t compiled = stats_of(context).kernels_compiled;
    for (size_t i = 0; i < THREADS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, run_in_thread, context), 0);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    expect_ok(kiln_context_sync_cache(context));
    run_work(work);
    cr_expect(is_joined(work));
    cr_expect_eq(stats_of(context).kernels_compiled, compiled);
    end_work(work);
    close_context(context);
}

/* What joins them is looked for, and not waited for. */
Test(background_joined, a_batch_that_is_prepared_is_not_joined, .timeout = 300)
{
    kiln_context *context = make_context();
    struct work *work = begin_work(context);
    expect_ok(kiln_batch_prepare(work->batch, 1));
    const uint64_t compiled = stats_of(context).kernels_compiled;
    run_often(work, 3);
    cr_expect_eq(stats_of(context).kernels_compiled, compiled);
    run_until_joined(work);
    end_work(work);
    close_context(context);

    context = make_context();
    work = begin_work(context);
    expect_ok(kiln_batch_prepare(work->batch, 1));
    run_work(work);
    cr_expect(is_joined(work), "it is on disk");
    end_work(work);
    close_context(context);
}

Test(background_joined, says_what_will_be_joined_and_why_others_are_not, .timeout = 300)
{
    enum { LARGE = 600000 };
    static float large[LARGE];
    kiln_context *context = make_context();
    struct work *work = begin_work(context);
    kiln_tensor x = kiln_upload(work->batch, KILN_F32, 1, (size_t[]){LARGE}, large);
    expect_ok(kiln_read(work->batch, kiln_exp(work->batch, x), large, sizeof large));
    cr_expect(explains(work->batch, "once the batch has run often"));
    cr_expect(explains(work->batch, "kiln_one_launch("));
    cr_expect(!explains(work->batch, "counters, steps")); /* no launch leaves anything there */
    cr_expect(explains(work->batch, "by itself: it moves so much that a launch's time is little"));
    end_work(work);
    close_context(context);
}
