/* SPDX-License-Identifier: Apache-2.0 */
/* Batches with distinct kernels on an empty cache, which the cache campaigns compile and store. */
#include "cold_work.h"

#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

extern char **environ;

typedef kiln_tensor unary(kiln_batch *batch, kiln_tensor x);

static unary *const unaries[] = {kiln_exp,  kiln_sin,  kiln_cos,    kiln_tanh,
                                 kiln_sqrt, kiln_relu, kiln_square, kiln_abs};

kiln_batch *cold_batch(kiln_context *context, unsigned number, const float *x, float *y)
{
    const size_t length = COLD_ELEMENTS;
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor value = kiln_upload(batch, KILN_F32, 1, &length, x);
    value = unaries[number % 8](batch, kiln_neg(batch, unaries[number / 8 % 8](batch, value)));
    kiln_read(batch, value, y, length * sizeof *y);
    return batch;
}

void cold_folders(void)
{
    static const char *const variables[] = {"KILN_CACHE_DIR", "POCL_CACHE_DIR"};
    const char *below = getenv("TMPDIR");
    for (int i = 0; i < 2; i++) {
        char path[300];
        snprintf(path, sizeof path, "%s/kiln-cold.XXXXXX", below && *below ? below : "/tmp");
        if (!mkdtemp(path)) {
            perror(path);
            exit(99);
        }
        setenv(variables[i], path, 1);
    }
}

unsigned cold_entries(void)
{
    kiln_cache_stats stats;
    return kiln_cache_get_stats(NULL, &stats) ? 0 : (unsigned)stats.entries;
}

bool cold_await(unsigned count)
{
    double start = cold_seconds();
    while (cold_entries() < count && cold_seconds() - start < 800)
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    return cold_entries() >= count;
}

double cold_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

pid_t cold_spawn(const char *program, const char *argument, int output)
{
    char *const arguments[] = {(char *)program, (char *)argument, NULL};
    posix_spawn_file_actions_t files;
    pid_t child;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, output, 1);
    errno = posix_spawn(&child, "/proc/self/exe", &files, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&files);
    return errno ? -1 : child;
}
