/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes from seeds, the same in each run, for a program's LLVMFuzzerTestOneInput(). $KILN_FUZZ_SEED
 * is the first seed and $KILN_FUZZ_COUNT how many there are, 1 and 4,000 if unset. */
#pragma once

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* From `least` to below `most` bytes for each seed. Returns how many seeds there were; skips the
 * test where there is no device. Whatever ends the process, it says which seed did. */
unsigned long long run_seeds(size_t least, size_t most);
