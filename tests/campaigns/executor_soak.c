/* SPDX-License-Identifier: Apache-2.0 */
/* Whether an executor can be left alone: one serves all the time, others come and go beside it. In
 * shifts, after each of which all is quiet, the process's memory, descriptors, threads and OpenCL
 * objects are counted: none may grow. Memory is only shown in less than a minute, in which kernels
 * may still be compiled for the first time.
 *
 *     executor_soak            a second
 *     executor_soak SECONDS    make check-soak: an hour
 *     executor_soak long       10 minutes */
#include <dirent.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../support/cache.h"
#include "../support/layer.h"
#include "executor_requests.h"

enum { SHIFTS = 40, KEPT_THREADS = 4, NOT_RUN = 77 };

static kiln_context *contexts[2];
static kiln_executor *kept;
static atomic_bool stop;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- what is counted ---- */

enum count { RESIDENT, HEAP, DESCRIPTORS, THREADS, OBJECTS, COUNTS };

/* A sanitizer keeps freed memory for a while. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define MEMORY_COUNTS false
#else
#define MEMORY_COUNTS true
#endif

/* What may be more at the end than at the beginning: allocators and drivers keep some. */
static const struct {
    const char *name;
    unsigned long slack;
    bool is_memory;
} counts[COUNTS] = {
    [RESIDENT] = {"KiB resident", 4096, true}, [HEAP] = {"KiB allocated", 256, true},
    [DESCRIPTORS] = {"descriptors", 4, false}, [THREADS] = {"threads", 4, false},
    [OBJECTS] = {"OpenCL objects", 16, false},
};

static unsigned long entries(const char *folder)
{
    unsigned long found = 0;
    DIR *all = opendir(folder);
    while (all && readdir(all))
        found++;
    if (all)
        closedir(all);
    return found;
}

static unsigned long resident(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%*u %lu", &pages) != 1)
        pages = 0;
    if (file)
        fclose(file);
    return pages * (unsigned long)sysconf(_SC_PAGESIZE) / 1024;
}

static unsigned long allocated(void)
{
    struct mallinfo2 info = mallinfo2();
    return (unsigned long)(info.uordblks + info.hblkhd) / 1024;
}

/* A thread that has been joined, and a driver's callback, may need a moment to be gone. */
static void count(unsigned long found[COUNTS])
{
    for (int i = 0; i < 5; i++) {
        unsigned long next[COUNTS] = {resident(), allocated(), entries("/proc/self/fd"),
                                      entries("/proc/self/task"),
                                      layer_available() ? layer_count("alive") : 0};
        for (int k = 0; k < COUNTS; k++)
            found[k] = !i || next[k] < found[k] ? next[k] : found[k];
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
}

/* Growth: the least of the last quarter is more than the most of the quarter after the warm-up. */
static bool grows(unsigned long found[SHIFTS][COUNTS], enum count which, bool memory_counts)
{
    unsigned long most = 0, least = (unsigned long)-1;
    for (int i = SHIFTS / 4; i < SHIFTS / 2; i++)
        most = found[i][which] > most ? found[i][which] : most;
    for (int i = SHIFTS * 3 / 4; i < SHIFTS; i++)
        least = found[i][which] < least ? found[i][which] : least;
    bool more = least > most + counts[which].slack;
    printf("%s: at most %lu in the second quarter, at least %lu in the last%s\n",
           counts[which].name, most, least, more ? ": it grows" : "");
    return more && (memory_counts || !counts[which].is_memory);
}

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
    double until = now() + seconds;
    atomic_store(&stop, false);
    for (int i = 0; i < KEPT_THREADS; i++)
        if (pthread_create(&all[i], NULL, serve, NULL))
            exit(1);
    do {
        requests_live(contexts, life, threads[life % 3], 100, false);
        life++;
    } while (now() < until);
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
    static unsigned long found[SHIFTS][COUNTS];
    unsigned lives = 0;
    bool fine = true;
    for (int i = 0; i < 2; i++)
        if (kiln_context_create(NULL, &contexts[i])) {
            printf("%s\n", kiln_last_error());
            return NOT_RUN;
        }
    kept = requests_executor(contexts, 1);
    const double start = now(), seconds = seconds_of(argc, argv), shift = seconds / SHIFTS;
    for (int i = 0; i < SHIFTS; i++) {
        lives = work(lives, start + shift * (i + 1) - now());
        count(found[i]);
        printf("%7.1f s", now() - start);
        for (int k = 0; k < COUNTS; k++)
            printf(", %lu %s", found[i][k], counts[k].name);
        printf("; %lu requests\n", atomic_load(&requests_seen.submitted));
        fflush(stdout);
    }
    for (int k = 0; k < COUNTS; k++)
        fine = !grows(found, (enum count)k, MEMORY_COUNTS && seconds >= 60) && fine;
    kiln_executor_release(kept);
    for (int i = 0; i < 2; i++)
        kiln_context_release(contexts[i]);
    printf("%u executors beside one in %.0f s, ", lives, now() - start);
    return requests_fine() && fine ? 0 : 1;
}
