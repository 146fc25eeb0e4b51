/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions as loops in C, compiled with -O3 -march=native -ffast-math and OpenMP.
 * Each reads x of [rows][columns], or [outer][rows][columns], and writes y. */
#pragma once

#include <stddef.h>

void peer_sum(const size_t *dims, const float *x, void *y);
void peer_mean(const size_t *dims, const float *x, void *y);
void peer_max(const size_t *dims, const float *x, void *y);
void peer_argmax(const size_t *dims, const float *x, void *y);
void peer_sum_rows(const size_t *dims, const float *x, void *y);
void peer_sum_columns(const size_t *dims, const float *x, void *y);
void peer_max_rows(const size_t *dims, const float *x, void *y);
void peer_argmax_rows(const size_t *dims, const float *x, void *y);
void peer_mean_outer_inner(const size_t *dims, const float *x, void *y); /* keeps the middle */
