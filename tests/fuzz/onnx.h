/* SPDX-License-Identifier: Apache-2.0 */
/* The fuzzer of model files; libFuzzer and tests/fuzz/test_fuzz_onnx.c drive it. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Load the file that the bytes are, if they begin like one, or that they are made into, and record
 * it where it can be loaded. Ends the process, after a sentence, if an answer is not in order. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* So far in this process: files, those that were loaded, those that were recorded as well. */
struct fuzz_files {
    unsigned long long files, loaded, recorded;
};
struct fuzz_files fuzz_file_count(void);
