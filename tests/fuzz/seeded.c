/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target on bytes from a seeded generator, where libFuzzer does not make them. */
#include "fuzz/seeded.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/context.h"

static unsigned long long seed;

void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

static void say_seed(void)
{
    fprintf(stderr, "KILN_FUZZ_SEED=%llu KILN_FUZZ_COUNT=1\n", seed);
}

static uint64_t next(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static unsigned long long number(const char *variable, unsigned long long usual)
{
    const char *word = getenv(variable);
    return word && *word ? strtoull(word, NULL, 10) : usual;
}

unsigned long long run_seeds(size_t least, size_t most)
{
    unsigned long long first = number("KILN_FUZZ_SEED", 1);
    unsigned long long count = number("KILN_FUZZ_COUNT", 1500);
    uint8_t *bytes = malloc(most);
    size_t devices;
    cr_assert(bytes);
    if (kiln_device_count(&devices) || !devices)
        cr_skip("no OpenCL device here");
    if (__sanitizer_set_death_callback)
        __sanitizer_set_death_callback(say_seed);
    for (seed = first; seed < first + count; seed++) {
        uint64_t state = seed;
        size_t size = least + next(&state) % (most - least);
        for (size_t i = 0; i < size; i++)
            bytes[i] = (uint8_t)next(&state);
        LLVMFuzzerTestOneInput(bytes, size);
    }
    free(bytes);
    return count;
}
