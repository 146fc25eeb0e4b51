/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers that programs in other languages make, too: element i is ((3 i^2 + 7 i + salt) % 23 - 11)
 * / 8. What these gave for them is written into tests. */
#pragma once

#include "check.h"

/* f32 of up to 512 elements. */
kiln_tensor pattern(kiln_batch *batch, size_t rank, const size_t *dims, unsigned salt);

/* Run the batch: the elements are these, nearly. Ends the batch. */
void expect_pattern(kiln_batch *batch, kiln_tensor tensor, size_t count, const double *wanted);
#define EXPECT_PATTERN(batch, tensor, wanted)                                                      \
    expect_pattern(batch, tensor, sizeof(wanted) / sizeof *(wanted), wanted)
