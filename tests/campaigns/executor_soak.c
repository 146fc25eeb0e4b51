/* SPDX-License-Identifier: Apache-2.0 */
/* Whether an executor can be left alone: one serves all the time, others come and go beside it. In
 * shifts, after each of which all is quiet, the process's memory, descriptors, threads and OpenCL
 * objects are counted: none may grow. Memory is only shown in less than a minute, in which kernels
 * may still be compiled for the first time.
 *
 *     executor_soak            a second
 *     executor_soak SECONDS    make check-soak: an hour
 *     executor_soak long       10 minutes */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "../support/cache.h"
#include "executor_requests.h"
#include "soak.h"

enum { KEPT_THREADS = 4, NOT_RUN = 77 };

static kiln_context *contexts[2];
static kiln_executor *kept;
static atomic_bool stop;

/* ---- shifts ---- */

static void *serve(void *unused)
{
    requests_make(kept, (unsigned long)-1, &stop);
    return unused;
}

/* Answers the number of the next life. */
static unsigned work(unsigned life, double seconds)
{
    static const unsigned threads[] = {8, 3, 16};
    pthread_t all[KEPT_THREADS];
    double until = soak_now() + seconds;
    atomic_store(&stop, false);
    for (int i = 0; i < KEPT_THREADS; i++)
        if (pthread_create(&all[i], NULL, serve, NULL))
            exit(1);
    do {
        requests_live(contexts, life, threads[life % 3], 100, false);
        life++;
    } while (soak_now() < until);
    atomic_store(&stop, true);
    for (int i = 0; i < KEPT_THREADS; i++)
        pthread_join(all[i], NULL);
    return life;
}

static double seconds_of(int argc, char **argv)
{
    return campaign_is_long(argc, argv) ? 600 : argc > 1 ? atof(argv[1]) : 1;
}

int main(int argc, char **argv)
{
    static unsigned long found[SOAK_SHIFTS][SOAK_COUNTS];
    unsigned lives = 0;
    for (int i = 0; i < 2; i++)
        if (kiln_context_create(NULL, &contexts[i])) {
            printf("%s\n", kiln_last_error());
            return NOT_RUN;
        }
    kept = requests_executor(contexts, 1);
    const double start = soak_now(), seconds = seconds_of(argc, argv),
                 shift = seconds / SOAK_SHIFTS;
    for (int i = 0; i < SOAK_SHIFTS; i++) {
        lives = work(lives, start + shift * (i + 1) - soak_now());
        soak_count(found[i]);
        printf("%7.1f s", soak_now() - start);
        soak_print(found[i]);
        printf("; %lu requests\n", atomic_load(&requests_seen.submitted));
        fflush(stdout);
    }
    const bool fine = soak_is_flat(found, seconds);
    kiln_executor_release(kept);
    for (int i = 0; i < 2; i++)
        kiln_context_release(contexts[i]);
    printf("%u executors beside one in %.0f s, ", lives, soak_now() - start);
    return requests_fine() && fine ? 0 : 1;
}
