/* SPDX-License-Identifier: Apache-2.0 */
/* Latency histogram with sixteen bins per power of two, and its quantiles. */
#include "executor/histogram.h"

#include <stddef.h>
#include <string.h>

/* Below 32 a step for each number; from there on the four bits after the leading one, so that steps
 * go on without a gap: 32 = 16 * 2 is step 32. */
static unsigned step_of(uint64_t value)
{
    unsigned shift = value < 32 ? 0 : 59 - (unsigned)__builtin_clzll(value);
    uint64_t step = 16 * (uint64_t)shift + (value >> shift);
    return step < KILN__STEPS ? (unsigned)step : KILN__STEPS - 1;
}

/* The largest number of a step. */
static uint64_t end_of(unsigned step)
{
    if (step < 32)
        return step;
    unsigned shift = step / 16 - 1;
    return ((uint64_t)(step % 16 + 17) << shift) - 1;
}

void kiln__histogram_add(struct kiln__histogram *histogram, int64_t nanoseconds)
{
    uint64_t value = nanoseconds > 0 ? (uint64_t)nanoseconds : 0;
    histogram->count++;
    histogram->sum += (double)value;
    histogram->most = value > histogram->most ? value : histogram->most;
    unsigned step = step_of(value);
    histogram->steps[step]++;
    histogram->last = step > histogram->last ? step : histogram->last;
}

void kiln__histogram_move(struct kiln__histogram *from, struct kiln__histogram *to)
{
    if (!from->count)
        return;
    to->count += from->count;
    to->sum += from->sum;
    to->most = from->most > to->most ? from->most : to->most;
    to->last = from->last > to->last ? from->last : to->last;
    for (unsigned i = 0; i <= from->last; i++)
        to->steps[i] += from->steps[i];
    memset(from, 0, offsetof(struct kiln__histogram, steps));
    memset(from->steps, 0, (to->last + 1) * sizeof *from->steps);
}

/* Seconds below which `share` of all are. */
static double quantile(const struct kiln__histogram *histogram, double share)
{
    double wanted = share * (double)histogram->count;
    uint64_t seen = 0;
    for (unsigned i = 0; i < KILN__STEPS; i++) {
        seen += histogram->steps[i];
        if (!seen || (double)seen < wanted)
            continue;
        uint64_t end = end_of(i);
        return 1e-9 * (double)(end < histogram->most ? end : histogram->most);
    }
    return 0;
}

kiln_latency kiln__histogram_read(const struct kiln__histogram *histogram)
{
    kiln_latency latency = {.count = histogram->count};
    if (!histogram->count)
        return latency;
    latency.mean = 1e-9 * histogram->sum / (double)histogram->count;
    latency.p50 = quantile(histogram, 0.5);
    latency.p90 = quantile(histogram, 0.9);
    latency.p99 = quantile(histogram, 0.99);
    latency.p999 = quantile(histogram, 0.999);
    latency.most = 1e-9 * (double)histogram->most;
    return latency;
}
