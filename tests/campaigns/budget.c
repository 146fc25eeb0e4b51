/* SPDX-License-Identifier: Apache-2.0 */
/* The time of a campaign, shared by its parts. */
#include "budget.h"

#include <time.h>

/* Seconds of the short form, of all cores together and on the wall. */
#define BUDGET_CPU 8
#define BUDGET_WALL 60

/* Of each part, however little time is left. */
enum { LEAST_CASES = 2 };

static double seconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

void budget_begin(struct budget *budget, bool is_long, int parts)
{
    *budget = (struct budget){.is_long = is_long, .parts = parts};
    budget_resume(budget);
}

void budget_resume(struct budget *budget)
{
    budget->cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
    budget->wall = seconds(CLOCK_MONOTONIC);
}

double budget_note(struct budget *budget)
{
    double cpu = (seconds(CLOCK_PROCESS_CPUTIME_ID) - budget->cpu) / BUDGET_CPU;
    double wall = (seconds(CLOCK_MONOTONIC) - budget->wall) / BUDGET_WALL;
    double used = cpu > wall ? cpu : wall;
    budget->used += used;
    budget_resume(budget);
    return used;
}

unsigned long budget_share(struct budget *budget, unsigned long failures, double each)
{
    double left = budget->used < 1 ? (1 - budget->used) / budget->parts : 0;
    double count = left / each > LEAST_CASES ? left / each : LEAST_CASES;
    budget->until = budget->used + left;
    budget->parts--;
    budget->possible += failures;
    return budget->is_long || count >= (double)failures ? failures : (unsigned long)count;
}

bool budget_is_spent(const struct budget *budget, unsigned long done)
{
    return !budget->is_long && done >= LEAST_CASES && budget->used > budget->until;
}

/* Steps of the golden ratio are spread evenly wherever they end. */
unsigned long budget_sample(unsigned long i, unsigned long count, unsigned long failures,
                            double phase)
{
    double share = phase + (double)i * 0.618033988749895;
    if (count == failures)
        return 1 + i;
    return 1 + (unsigned long)((share - (double)(unsigned long)share) * (double)failures);
}
