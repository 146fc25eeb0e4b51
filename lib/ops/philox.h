/* SPDX-License-Identifier: Apache-2.0 */
/* Philox4x32-10 on the host; kernels/math_random.cl has it for devices. */
#pragma once

#include <stdint.h>

/* Four words from a counter and a key (J. Salmon and others, SC 2011). */
void kiln__philox(const uint32_t counter[4], const uint32_t key[2], uint32_t words[4]);
