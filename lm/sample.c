/* SPDX-License-Identifier: Apache-2.0 */
/* Greedy choice, and temperature, top-k, top-p and min-p. */
#include "lm/sample.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

/* splitmix64 (G. Steele and others, "Fast splittable pseudorandom number generators", OOPSLA
 * 2014), of a counter. */
static uint64_t mix(uint64_t value)
{
    value += 0x9e3779b97f4a7c15;
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
    value = (value ^ value >> 27) * 0x94d049bb133111eb;
    return value ^ value >> 31;
}

double kiln__draw(uint64_t seed, uint64_t place)
{
    return (double)(mix(mix(seed) + place) >> 11) * 0x1p-53;
}

/* The first of the largest; -1: one is NaN. */
static int32_t largest(const float *logits, size_t count)
{
    size_t best = 0;
    for (size_t i = 0; i < count; i++) {
        if (isnan(logits[i]))
            return -1;
        if (logits[i] > logits[best])
            best = i;
    }
    return (int32_t)best;
}

/* The most probable first; of equal ones the first. */
static int compare(const void *a, const void *b)
{
    const struct kiln__candidate *x = a, *y = b;
    if (x->probability != y->probability)
        return x->probability < y->probability ? 1 : -1;
    return (x->token > y->token) - (x->token < y->token);
}

static double sum_of(const struct kiln__candidate *choices, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += choices[i].probability;
    return sum;
}

/* The `most` best ones come first, sorted. Few of the others are ever moved. */
static void put_best_first(struct kiln__candidate *choices, size_t count, size_t most)
{
    for (size_t i = 1; i < count; i++) {
        const struct kiln__candidate choice = choices[i];
        size_t at = i < most ? i : most;
        if (at == most && compare(&choice, &choices[most - 1]) >= 0)
            continue;
        if (at == most)
            choices[i] = choices[--at];
        for (; at && compare(&choice, &choices[at - 1]) < 0; at--)
            choices[at] = choices[at - 1];
        choices[at] = choice;
    }
}

/* The choices that none of the three takes away, sorted; answers how many. `sum` is of all. */
static size_t choose(const struct kiln__sampling *sampling, double sum,
                     struct kiln__candidate *choices, size_t count)
{
    enum { FEW = 256 };
    const size_t most = sampling->top_k && sampling->top_k < count ? sampling->top_k : count;
    if (most < count && most <= FEW)
        put_best_first(choices, count, most);
    else
        qsort(choices, count, sizeof *choices, compare);
    count = most;
    if (sampling->top_p > 0 && sampling->top_p < 1) {
        const double wanted = sampling->top_p * (sampling->top_k ? sum_of(choices, count) : sum);
        double found = 0;
        for (count = 0; count < most && found < wanted; count++)
            found += choices[count].probability;
    }
    while (count > 1 && choices[count - 1].probability < sampling->min_p)
        count--;
    return count;
}

/* Below this a probability, as that of the best one is 1, need not be sorted: all such together are
 * less than what top_p leaves out, or each is less than min_p. */
static double least_of(const struct kiln__sampling *sampling, double sum, size_t count)
{
    const bool is_share = !sampling->top_k && sampling->top_p > 0 && sampling->top_p < 1;
    const double share = is_share ? (1 - sampling->top_p) * sum / (double)count : 0;
    return share > sampling->min_p || sampling->top_k ? share : sampling->min_p;
}

static size_t drop_below(double least, struct kiln__candidate *choices, size_t count)
{
    size_t left = 0;
    for (size_t i = 0; i < count; i++)
        if (choices[i].probability >= least)
            choices[left++] = choices[i];
    return left;
}

int32_t kiln__sample(const struct kiln__sampling *sampling, const float *logits, size_t count,
                     double drawn, struct kiln__candidate *room)
{
    const int32_t best = largest(logits, count);
    if (best < 0 || !(sampling->temperature > 0) || isinf(logits[best]))
        return best;
    for (size_t i = 0; i < count; i++)
        room[i] = (struct kiln__candidate){
            exp(((double)logits[i] - (double)logits[best]) / sampling->temperature), (int32_t)i};
    const bool has_share = sampling->top_p > 0 && sampling->top_p < 1;
    if (sampling->top_k || has_share || sampling->min_p > 0) {
        const double sum = sum_of(room, count), least = least_of(sampling, sum, count);
        count = choose(sampling, sum, room, drop_below(least, room, count));
    }
    double rest = drawn * sum_of(room, count);
    for (size_t i = 0; i + 1 < count; i++) {
        rest -= room[i].probability;
        if (rest < 0)
            return room[i].token;
    }
    return room[count - 1].token;
}
