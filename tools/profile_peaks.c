/* SPDX-License-Identifier: Apache-2.0 */
/* What kiln reaches on a device: a large product's operations a second, a large map's bytes.
 * Other kernels are compared with these, as what can be had here. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <kiln/kiln.h>

#include "profile.h"
#include "util/format.h"

/* A run is long enough when its own time hides what surrounds it. */
#define ENOUGH 5e-3
#define ROUNDS 5
#define LEAST_SIDE 512
#define MOST_SIDE 8192

static const char subject[] = "peaks of kiln profile";

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* Record x x, or relu(x); answers what one run does. */
typedef double (*recorder)(kiln_batch *batch, size_t side, kiln_buffer *from, kiln_buffer *to);

static double record_product(kiln_batch *batch, size_t side, kiln_buffer *from, kiln_buffer *to)
{
    kiln_tensor x = kiln_import(batch, from);
    kiln_export(batch, kiln_matmul(batch, x, x), to);
    return 2.0 * (double)side * (double)side * (double)side;
}

static double record_map(kiln_batch *batch, size_t side, kiln_buffer *from, kiln_buffer *to)
{
    kiln_tensor x = kiln_import(batch, from);
    kiln_export(batch, kiln_relu(batch, x), to);
    return 2.0 * (double)side * (double)side * sizeof(float);
}

/* Seconds of the fastest run; 0 after an error. */
static double fastest(kiln_batch *batch)
{
    double best = 0;
    for (int i = 0; i <= ROUNDS; i++) {
        double begin = now();
        if (kiln_batch_execute(batch))
            return 0;
        double took = now() - begin;
        best = i && (best == 0 || took < best) ? took : best; /* the first one compiles */
    }
    return best;
}

static double rate_of(kiln_context *context, recorder record, size_t side, double *seconds)
{
    kiln_buffer *from = NULL, *to = NULL;
    size_t dims[2] = {side, side};
    kiln_batch *batch = kiln_batch_create(context);
    double amount = 0;
    *seconds = 0;
    if (batch && !kiln_buffer_create(context, KILN_F32, 2, dims, &from) &&
        !kiln_buffer_create(context, KILN_F32, 2, dims, &to)) {
        kiln_export(batch, kiln_fill(batch, KILN_F32, 2, dims, 1.0 / (double)side), from);
        if (!kiln_batch_execute(batch) && !kiln_batch_reset(batch)) {
            amount = record(batch, side, from, to);
            *seconds = fastest(batch);
        }
    }
    kiln_batch_release(batch);
    kiln_buffer_release(from);
    kiln_buffer_release(to);
    return *seconds > 0 ? amount / *seconds : 0;
}

/* Of the first side whose run is long enough, else of the largest that there is memory for. */
static double measure(kiln_context *context, recorder record)
{
    double rate = 0, seconds = 0;
    for (size_t side = LEAST_SIDE; side <= MOST_SIDE && seconds < ENOUGH; side *= 2) {
        double found = rate_of(context, record, side, &seconds);
        rate = found > 0 ? found : rate;
    }
    return rate;
}

/* "1.5e+11 operations 2.4e+10 bytes". */
static bool read_peaks(const char *text, struct kiln__peaks *peaks)
{
    static const char between[] = " operations ";
    char *end;
    peaks->operations = kiln__parse_double(text, &end);
    if (end == text || strncmp(end, between, strlen(between)) != 0)
        return false;
    text = end + strlen(between);
    peaks->bytes = kiln__parse_double(text, &end);
    return end != text && !strcmp(end, " bytes");
}

static void find(kiln_context *context, struct kiln__peaks *peaks)
{
    char *kept = NULL, text[128];
    if (!kiln_context_recall(context, subject, &kept) && kept && read_peaks(kept, peaks)) {
        kiln_free(kept);
        return;
    }
    kiln_free(kept);
    peaks->operations = measure(context, record_product);
    peaks->bytes = measure(context, record_map);
    kiln__format(text, sizeof text, "%.6e operations %.6e bytes", peaks->operations, peaks->bytes);
    /* What cannot be kept is measured again next time. */
    if (peaks->operations > 0 && peaks->bytes > 0 && kiln_context_remember(context, subject, text))
        return;
}

void kiln__profile_find_peaks(struct kiln__profile *profile)
{
    kiln_context *context;
    kiln_device_info device;
    if (kiln_context_create(NULL, &context))
        return;
    if (!kiln_context_device(context, &device) && !strcmp(device.name, profile->device))
        find(context, &profile->peaks);
    if (profile->peaks.operations <= 0 || profile->peaks.bytes <= 0)
        profile->peaks = (struct kiln__peaks){0};
    kiln_context_release(context);
}
