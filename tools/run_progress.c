/* SPDX-License-Identifier: Apache-2.0 */
/* How far the compiler is, while `kiln run` waits for it at a terminal: a line of standard error
 * that is written over, and gone when the run is over. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "run_model.h"

#define INTERVAL 100000000 /* nanoseconds between two lines */

struct run_progress {
    kiln_context *context;
    unsigned long long most; /* launches: no more kernels than these */
    struct timespec start;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t ends;
    bool over; /* guarded by `lock` */
};

static void say(const struct run_progress *progress, const struct timespec *now)
{
    kiln_context_stats stats;
    const double seconds = (double)(now->tv_sec - progress->start.tv_sec) +
                           (double)(now->tv_nsec - progress->start.tv_nsec) * 1e-9;
    if (!kiln_context_get_stats(progress->context, &stats))
        fprintf(stderr, "\r\033[Kkiln run: %llu of at most %llu kernels are there, %.1f s",
                (unsigned long long)stats.kernels_compiled + stats.kernels_from_disk,
                progress->most, seconds);
}

static void *show(void *of)
{
    struct run_progress *progress = of;
    struct timespec now = progress->start;
    pthread_mutex_lock(&progress->lock);
    for (;;) { /* once at least, also if the run is over already */
        say(progress, &now);
        if (progress->over)
            break;
        now.tv_nsec += INTERVAL;
        now.tv_sec += now.tv_nsec / 1000000000;
        now.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&progress->ends, &progress->lock, &now);
        clock_gettime(CLOCK_MONOTONIC, &now);
    }
    pthread_mutex_unlock(&progress->lock);
    fputs("\r\033[K", stderr);
    return NULL;
}

struct run_progress *run_progress_begin(kiln_context *context, kiln_batch *batch)
{
    kiln_batch_cost cost;
    pthread_condattr_t monotonic;
    struct run_progress *progress = NULL;
    if (!isatty(STDERR_FILENO) || kiln_batch_get_cost(batch, &cost) ||
        !(progress = calloc(1, sizeof *progress)))
        return NULL;
    progress->context = context;
    progress->most = cost.launches;
    clock_gettime(CLOCK_MONOTONIC, &progress->start);
    pthread_mutex_init(&progress->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&progress->ends, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (!pthread_create(&progress->thread, NULL, show, progress))
        return progress;
    free(progress);
    return NULL;
}

void run_progress_end(struct run_progress *progress)
{
    if (!progress)
        return;
    pthread_mutex_lock(&progress->lock);
    progress->over = true;
    pthread_cond_signal(&progress->ends);
    pthread_mutex_unlock(&progress->lock);
    pthread_join(progress->thread, NULL);
    pthread_cond_destroy(&progress->ends);
    pthread_mutex_destroy(&progress->lock);
    free(progress);
}
