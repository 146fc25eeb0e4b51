/* SPDX-License-Identifier: Apache-2.0 */
/* Transposes and copies in C, compiled with -O3 -march=native and OpenMP. */
#pragma once

#include <stddef.h>

/* y[batch][columns][rows] of x[batch][rows][columns], in blocks that fit the first cache. */
void peer_transpose(size_t batch, size_t rows, size_t columns, const float *x, float *y);

/* y[rows][batch][columns] of x[batch][rows][columns]: whole rows move. */
void peer_swap_outer(size_t batch, size_t rows, size_t columns, const float *x, float *y);

/* One memcpy per thread. */
void peer_copy(size_t count, const float *x, float *y);
