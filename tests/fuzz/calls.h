/* SPDX-License-Identifier: Apache-2.0 */
/* The fuzzer of public calls; libFuzzer and tests/fuzz/test_fuzz_calls.c drive it. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* What the process ends with where there is no device. */
#define FUZZ_NO_DEVICE 77

/* Make the calls that the bytes say. Ends the process, after a sentence, if one of them is not in
 * order. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* So far in this process: calls, those that failed, batches that ran, plans made. */
struct fuzz_counts {
    unsigned long long calls, failures, runs, plans;
};
struct fuzz_counts fuzz_count(void);
