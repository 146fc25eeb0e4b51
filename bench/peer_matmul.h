/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products of the libraries that one would pick instead; c[m][n] = a[m][k] * b[k][n], b
 * given as [n][k] where `transpose_b` is set. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include <kiln/opencl.h>

struct peer_product {
    size_t m, n, k;
    bool transpose_b;
};

/* Whether this build has the library. */
bool peer_has_openblas(void);
bool peer_has_clblast(void);

void peer_openblas(const struct peer_product *product, const float *a, const float *b, float *c);
void peer_openblas_row(const struct peer_product *product, const float *a, const float *b,
                       float *c); /* m is 1: a matrix times a vector */

/* Enqueues and waits; false if CLBlast reports an error. */
bool peer_clblast(const struct peer_product *product, cl_command_queue queue, cl_mem a, cl_mem b,
                  cl_mem c);
