/* SPDX-License-Identifier: Apache-2.0 */
/* Timing of CLBlast parameter sets, one process for each. */
#define _GNU_SOURCE
#include "tune_library.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "util/format.h"

#define GAIN 0.97 /* of the time of what is best so far: processes differ more than turns do */
#define HOPELESS 1.25
enum { TURNS = 3 };

/* Each of CLBlast's kernels, and a product that it has this one for: where it goes over from the
 * one to the other depends on the device, on an H200 beyond 512 x 1024 x 512. */
static const struct kernel {
    const char *tunable, *work, *gpu_work;
} kernels[TUNE_LIBRARY_WORKS] = {
    {"gemm", "product 512x1024x512 nn", "product 2048x2048x2048 nn"},
    {"gemm_direct", "product 128x256x128 nn", "product 128x256x128 nn"},
};

static char *drivers; /* NULL: $OCL_ICD_FILENAMES is unset */

void tune_keep_drivers(void)
{
    const char *value = getenv("OCL_ICD_FILENAMES");
    if (value && !drivers)
        drivers = strdup(value);
}

bool tune_is_of_library(const kiln_tunable *tunable)
{
    for (size_t i = 0; i < TUNE_LIBRARY_WORKS; i++)
        if (!strcmp(kernels[i].tunable, tunable->name))
            return true;
    return false;
}

bool tune_uses_library(kiln_context *context)
{
    struct tune_work work;
    struct tune_bench bench = {0};
    struct tune_way way = {0};
    const char *why;
    bool uses = tune_work_read(kernels[0].work, &work, &why) &&
                !tune_bench_open(context, &work, &bench) && !tune_way_make(&bench, &way) &&
                strstr(way.plan, "CLBlast");
    tune_way_free(&way);
    tune_bench_close(&bench);
    return uses;
}

kiln_status tune_time_work(kiln_context *context, const struct tune_work *work)
{
    struct tune_bench bench = {0};
    struct tune_way way = {0};
    double share, seconds = 0;
    kiln_status status = tune_bench_open(context, work, &bench);
    if (!status)
        status = tune_way_make(&bench, &way);
    if (!status)
        status = tune_way_check(&bench, &way);
    if (!status)
        status = tune_compare(&bench, &way, &way, INFINITY, &share, &seconds);
    if (!status)
        printf("%.9g\n", seconds);
    tune_way_free(&way);
    tune_bench_close(&bench);
    return status;
}

/* ---- a process for each set ---- */

/* In the child: kiln tune --time, by one set of one kernel. */
static void become(const struct kernel *kernel, unsigned set, const char *device, int output)
{
    char values[64];
    const char *arguments[] = {"kiln", "tune", "--time", kernel->work, device ? "--device" : NULL,
                               device, NULL};
    snprintf(values, sizeof values, "%s=%u", kernel->tunable, set);
    setenv("KILN_TUNE", set ? values : "off", 1);
    setenv("KILN_MATMUL", "clblast", 1);
    if (drivers)
        setenv("OCL_ICD_FILENAMES", drivers, 1);
    dup2(output, STDOUT_FILENO);
    execv("/proc/self/exe", (char **)arguments);
    _exit(127);
}

/* Seconds of the work; INFINITY: it could not be run, or its result was wrong. */
static double time_set(const struct kernel *kernel, unsigned set, const char *device)
{
    int ends[2], ended;
    char text[64] = "";
    if (pipe(ends))
        return INFINITY;
    pid_t child = fork();
    if (child == 0)
        become(kernel, set, device, ends[1]);
    close(ends[1]);
    FILE *stream = fdopen(ends[0], "r");
    bool said = child > 0 && stream && fgets(text, sizeof text, stream);
    if (stream)
        fclose(stream);
    else
        close(ends[0]);
    bool right = child > 0 && waitpid(child, &ended, 0) == child && ended == 0;
    return said && right ? kiln__parse_double(text, NULL) : INFINITY;
}

/* The quickest of a few processes each, by turns. What is hopeless at once is not run again. */
static void compare(const struct kernel *kernel, unsigned best, unsigned candidate,
                    const char *device, double seconds[2])
{
    seconds[0] = seconds[1] = INFINITY;
    for (int turn = 0; turn < TURNS && !tune_interrupted; turn++) {
        seconds[1] = fmin(seconds[1], time_set(kernel, candidate, device));
        if (!isfinite(seconds[1]))
            return;
        seconds[0] = fmin(seconds[0], time_set(kernel, best, device));
        if (seconds[1] > HOPELESS * seconds[0])
            return;
    }
}

/* ---- the search ---- */

static size_t find_tunable(const struct tune_record *record, const char *name)
{
    size_t i = 0;
    while (i < record->count && strcmp(record->tunables[i].name, name) != 0)
        i++;
    return i;
}

static kiln_status try_set(struct tune_search *search, const struct kernel *kernel, unsigned set,
                           const char *device, kiln_tunable *tunable)
{
    char line[200];
    double seconds[2];
    compare(kernel, tunable->value, set, device, seconds);
    if (tune_interrupted)
        return KILN_OK;
    double share = seconds[1] / seconds[0];
    bool right = isfinite(seconds[1]), taken = right && share < GAIN;
    if (right)
        kiln__format(line, sizeof line, "# %s %u: %.3f of the time of %u%s", kernel->tunable, set,
                     share, tunable->value, taken ? ", taken" : "");
    else
        snprintf(line, sizeof line, "# %s %u: %s", kernel->tunable, set,
                 kiln_status_name(KILN_WRONG_RESULT));
    if (taken)
        tunable->value = set;
    tune_record_note(search->record, line, strlen(line));
    search->measured++;
    fprintf(search->progress, "%s\n", line + 2);
    fflush(search->progress);
    return search->keeps ? tune_record_remember(search->context, search->record) : KILN_OK;
}

static kiln_status search_kernel(struct tune_search *search, const struct kernel *kernel,
                                 const char *device, struct tune_gain *gain)
{
    double seconds[2] = {INFINITY, INFINITY};
    kiln_tunable *tunable =
        &search->record->tunables[find_tunable(search->record, kernel->tunable)];
    kiln_status status = KILN_OK;
    for (size_t i = 0; i < tunable->count && !status; i++) {
        char start[64];
        snprintf(start, sizeof start, "# %s %u: ", kernel->tunable, tunable->candidates[i]);
        if (tunable->candidates[i] == tunable->value ||
            (!search->again && tune_record_has_note(search->record, start)))
            continue;
        if (tune_interrupted || tune_now() > search->until)
            search->left++;
        else
            status = try_set(search, kernel, tunable->candidates[i], device, tunable);
    }
    if (!status && tunable->value) /* what was gained over its own */
        compare(kernel, 0, tunable->value, device, seconds);
    *gain = (struct tune_gain){.share = 1};
    snprintf(gain->name, sizeof gain->name, "%s by CLBlast", kernel->work);
    if (isfinite(seconds[0]) && isfinite(seconds[1])) {
        gain->share = seconds[1] / seconds[0];
        gain->seconds = seconds[1];
        snprintf(gain->values, sizeof gain->values, "%s %u", kernel->tunable, tunable->value);
    } else {
        gain->seconds = time_set(kernel, 0, device);
    }
    return status;
}

kiln_status tune_search_library(struct tune_search *search, const char *device,
                                struct tune_gain gains[TUNE_LIBRARY_WORKS])
{
    kiln_device_info info;
    kiln_status status = kiln_context_device(search->context, &info);
    for (size_t i = 0; i < TUNE_LIBRARY_WORKS && !status; i++) {
        struct kernel kernel = kernels[i];
        if (info.type == KILN_DEVICE_GPU)
            kernel.work = kernel.gpu_work;
        status = search_kernel(search, &kernel, device, &gains[i]);
    }
    return status;
}
