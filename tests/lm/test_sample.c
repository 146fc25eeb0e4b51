/* SPDX-License-Identifier: Apache-2.0 */
/* Choosing tokens: who is left by top-k, top-p and min-p, how often each is drawn. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "lm/sample.h"

enum { COUNT = 8, MANY = 2000 };

/* Probabilities 0.1, 0.3, 0.05, 0.25, 0.1, 0.15, 0.03, 0.02. */
static const double shares[COUNT] = {0.1, 0.3, 0.05, 0.25, 0.1, 0.15, 0.03, 0.02};

static void make_logits(float logits[COUNT])
{
    for (int i = 0; i < COUNT; i++)
        logits[i] = (float)(log(shares[i]) + 3);
}

/* Which tokens drawing evenly from [0, 1) meets, as bits, and how often each. */
static unsigned draw_all(const struct kiln__sampling *sampling, int times[COUNT])
{
    float logits[COUNT];
    struct kiln__candidate room[COUNT];
    unsigned met = 0;
    make_logits(logits);
    for (int i = 0; i < COUNT; i++)
        times[i] = 0;
    for (int i = 0; i < MANY; i++) {
        const int32_t token = kiln__sample(sampling, logits, COUNT, (i + 0.5) / MANY, room);
        cr_assert(token >= 0 && token < COUNT);
        met |= 1u << token;
        times[token]++;
    }
    return met;
}

Test(sample, who_is_left)
{
    static const struct {
        struct kiln__sampling sampling;
        unsigned left;
    } cases[] = {
        {{1, 0, 0, 0}, 0xff},    {{0, 0, 0, 0}, 0x02},        {{1, 1, 0, 0}, 0x02},
        {{1, 3, 0, 0}, 0x2a},    {{1, 4, 0, 0}, 0x2b},        {{1, 100, 0, 0}, 0xff},
        {{1, 0, 0.5, 0}, 0x0a},  {{1, 0, 0.56, 0}, 0x2a},     {{1, 0, 1, 0}, 0xff},
        {{1, 0, 1e-9, 0}, 0x02}, {{1, 0, 0, 0.4}, 0x2a},      {{1, 0, 0, 1}, 0x02},
        {{1, 3, 0.7, 0}, 0x0a},  {{1, 0, 0.999, 0.09}, 0x7f}, {{100, 3, 0, 0}, 0x2a},
    };
    int times[COUNT];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const unsigned met = draw_all(&cases[i].sampling, times);
        cr_expect_eq(met, cases[i].left, "case %zu: %x, not %x", i, met, cases[i].left);
    }
}

Test(sample, how_often)
{
    int times[COUNT];
    draw_all(&(struct kiln__sampling){1, 0, 0, 0}, times);
    for (int i = 0; i < COUNT; i++)
        cr_expect_float_eq(times[i], shares[i] * MANY, 2, "token %d: %d times", i, times[i]);
    draw_all(&(struct kiln__sampling){1, 2, 0, 0}, times);
    cr_expect_float_eq(times[1], MANY * 0.3 / 0.55, 2);
    draw_all(&(struct kiln__sampling){0.5, 0, 0, 0}, times); /* squares */
    double sum = 0;
    for (int i = 0; i < COUNT; i++)
        sum += shares[i] * shares[i];
    for (int i = 0; i < COUNT; i++)
        cr_expect_float_eq(times[i], shares[i] * shares[i] / sum * MANY, 2);
}

/* Top-k by insertion is top-k by sorting. */
Test(sample, top_k)
{
    enum { WORDS = 600 };
    static float logits[WORDS];
    static struct kiln__candidate room[WORDS];
    for (int i = 0; i < WORDS; i++)
        logits[i] = (float)(i * 7919 % 200) / 100.0f; /* each value three times */
    for (size_t k = 246; k < 270; k += 4) {
        bool seen[WORDS] = {false};
        size_t count = 0;
        const struct kiln__sampling sampling = {1e3, k, 0, 0};
        for (size_t i = 0; i < 3 * k; i++) {
            const int32_t token =
                kiln__sample(&sampling, logits, WORDS, ((double)i + 0.5) / (3.0 * (double)k), room);
            count += !seen[token];
            seen[token] = true;
            /* k / 3 values are above it, or it is among the first of its value */
            cr_assert_geq(logits[token], (float)(199 - (int)k / 3) / 100.0f);
        }
        cr_assert_eq(count, k);
    }
}

/* A share of all is none at all: nothing is sorted for it, and what is drawn shows that. */
Test(sample, a_share_of_all)
{
    const struct kiln__sampling none = {1, 0, 0, 0}, all = {1, 0, 1, 0};
    float logits[COUNT];
    struct kiln__candidate room[COUNT];
    make_logits(logits);
    for (int i = 0; i < MANY; i++)
        cr_expect_eq(kiln__sample(&all, logits, COUNT, (i + 0.5) / MANY, room),
                     kiln__sample(&none, logits, COUNT, (i + 0.5) / MANY, room));
}

Test(sample, odd_numbers)
{
    struct kiln__candidate room[4];
    const struct kiln__sampling drawn = {1, 2, 0.9, 0.1}, greedy = {0, 0, 0, 0};
    const float inf = INFINITY;
    cr_expect_eq(kiln__sample(&drawn, (const float[]){1, NAN, 2, 3}, 4, 0.5, room), -1);
    cr_expect_eq(kiln__sample(&drawn, (const float[]){1, inf, 2, inf}, 4, 0.5, room), 1);
    cr_expect_eq(kiln__sample(&drawn, (const float[]){-inf, -inf, 2, -inf}, 4, 0.99, room), 2);
    cr_expect_eq(kiln__sample(&greedy, (const float[]){1, 3, 3, 2}, 4, 0.99, room), 1);
}

/* Numbers from 0 to 1 that depend on seed and place. */
Test(sample, draws)
{
    double sum = 0, least = 1, largest = 0;
    for (uint64_t place = 0; place < 10000; place++) {
        const double number = kiln__draw(5, place);
        sum += number;
        least = fmin(least, number);
        largest = fmax(largest, number);
    }
    cr_expect(least >= 0 && least < 0.001 && largest < 1 && largest > 0.999);
    cr_expect_float_eq(sum / 10000, 0.5, 0.02);
    cr_expect_eq(kiln__draw(5, 3), kiln__draw(5, 3));
    cr_expect_neq(kiln__draw(5, 3), kiln__draw(6, 3));
    cr_expect_neq(kiln__draw(5, 3), kiln__draw(5, 4));
}
