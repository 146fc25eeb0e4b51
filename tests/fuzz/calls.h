/* SPDX-License-Identifier: Apache-2.0 */
/* The fuzzer of public calls; libFuzzer and tests/test_fuzz_calls.c drive it. */
#ifndef KILN_TESTS_FUZZ_CALLS_H
#define KILN_TESTS_FUZZ_CALLS_H

#include <stddef.h>
#include <stdint.h>

/* What the process ends with where there is no device. */
#define FUZZ_NO_DEVICE 77

/* Make the calls that the bytes say. Aborts, after a sentence, if one of them is not in order. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* So far in this process. */
extern unsigned long long fuzz_calls, fuzz_failures;

#endif
