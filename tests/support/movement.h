/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of movements share: i32 tensors and answers, written down. */
#pragma once

#include "check.h"

#define NUMBERS(...) ((int32_t[]){__VA_ARGS__})

/* These values; 0, 1, 2, ...; first, first + 1, ... Up to 256 elements are counted. */
kiln_tensor numbers(kiln_batch *batch, size_t rank, const size_t *dims, const int32_t *values);
kiln_tensor counted(kiln_batch *batch, size_t rank, const size_t *dims);
kiln_tensor counted_from(kiln_batch *batch, int32_t first, size_t rank, const size_t *dims);

/* Indices of i32 or u8 below `extent`; some are beyond. */
kiln_tensor random_indices(kiln_batch *batch, kiln_type type, size_t rank, const size_t *dims,
                           uint32_t extent);

void expect_shape(kiln_batch *batch, kiln_tensor tensor, size_t rank, const size_t *dims);

/* The elements of the tensor as it is, and as a kernel reads them. Ends the batch. */
void expect_elements(kiln_batch *batch, kiln_tensor tensor, size_t count, const int32_t *wanted);

#define EXPECT_ELEMENTS(batch, tensor, ...)                                                        \
    expect_elements(batch, tensor, sizeof(NUMBERS(__VA_ARGS__)) / sizeof(int32_t),                 \
                    NUMBERS(__VA_ARGS__))
