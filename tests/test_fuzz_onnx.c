/* SPDX-License-Identifier: Apache-2.0 */
/* Model files made from seeded bytes, the same in each run. $KILN_FUZZ_SEED is the first and
 * $KILN_FUZZ_COUNT how many there are. make check-fuzz has libFuzzer look for bytes. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "fuzz/onnx.h"
#include "support/context.h"

static unsigned long long file;

/* Whatever ends the process, it says which file did. */
void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

static void say_file(void)
{
    fprintf(stderr, "KILN_FUZZ_SEED=%llu KILN_FUZZ_COUNT=1\n", file);
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

static void run_file(unsigned long long seed)
{
    uint8_t bytes[1024];
    uint64_t state = seed;
    size_t size = 64 + next(&state) % (sizeof bytes - 64);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)next(&state);
    LLVMFuzzerTestOneInput(bytes, size);
}

Test(fuzz_onnx, hostile_model_files_get_an_answer_and_leave_nothing)
{
    unsigned long long first = number("KILN_FUZZ_SEED", 1);
    unsigned long long count = number("KILN_FUZZ_COUNT", 4000);
    size_t devices;
    if (kiln_device_count(&devices) || !devices)
        cr_skip("no OpenCL device here");
    if (__sanitizer_set_death_callback)
        __sanitizer_set_death_callback(say_file);
    for (file = first; file < first + count; file++)
        run_file(file);
    struct fuzz_files done = fuzz_file_count();
    printf("# %llu files, %llu loaded, %llu recorded\n", done.files, done.loaded, done.recorded);
}
