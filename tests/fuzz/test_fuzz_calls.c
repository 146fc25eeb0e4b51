/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences of hostile calls from seeded bytes (fuzz/seeded.h). make check-fuzz has libFuzzer look
 * for bytes. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "../fuzz/calls.h"
#include "../fuzz/seeded.h"

Test(fuzz_calls, hostile_calls_get_an_answer_and_leave_nothing)
{
    unsigned long long count = run_seeds(16, 512);
    struct fuzz_counts done = fuzz_count();
    printf("# %llu sequences, %llu calls, %llu failed; %llu runs, %llu plans\n", count, done.calls,
           done.failures, done.runs, done.plans);
}
