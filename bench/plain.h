/* SPDX-License-Identifier: Apache-2.0 */
/* What somebody writes who has only C: one thread, no library, loops in the order that the caches
 * like. */
#pragma once

#include <stddef.h>

/* c[m,n] = a[m,k] b[k,n] */
void plain_matmul(size_t m, size_t k, size_t n, const float *a, const float *b, float *c);
void plain_relu(size_t n, const float *x, float *y);
void plain_softmax(size_t n, const float *x, float *y);

/* Rows x[n,p], labels[n]; p-h-c with relu; the four gradients of the mean cross-entropy. */
struct plain_network {
    size_t n, p, h, c;
    const float *x, *labels, *w1, *b1, *w2, *b2;
    float *g1, *s1, *g2, *s2;     /* dL/dw1, dL/db1, dL/dw2, dL/db2 */
    float *hidden, *slope, *back; /* room for n*h, n*c, n*h */
};
void plain_network(const struct plain_network *net);
