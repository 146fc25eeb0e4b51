/* SPDX-License-Identifier: Apache-2.0 */
/* The chains of chain.c as one loop each, compiled with -O3 -march=native -ffast-math and OpenMP,
 * and the STREAM triad, which moves the same bytes as a chain over two inputs. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

void peer_chain_1(size_t n, const float *x, const float *other, float *y);
void peer_chain_3(size_t n, const float *x, const float *other, float *y);
void peer_chain_8(size_t n, const float *x, const float *other, float *y);
void peer_triad(size_t n, const float *x, const float *other, float *y);

/* The same with stores that go past the caches. */
bool peer_can_stream(void);
void peer_triad_stream(size_t n, const float *x, const float *other, float *y);
