/* SPDX-License-Identifier: Apache-2.0 */
/* Single-threaded C loops: the baseline of somebody without a library. */
#include "plain.h"

#include <math.h>
#include <string.h>

/* c[m,n] += a b, the element of a in row i and column l being a[i * row + l * column]. */
static void add_product(size_t m, size_t k, size_t n, const float *a, size_t row, size_t column,
                        const float *restrict b, float *restrict c)
{
    for (size_t i = 0; i < m; i++)
        for (size_t l = 0; l < k; l++) {
            float factor = a[i * row + l * column];
            for (size_t j = 0; j < n; j++)
                c[i * n + j] += factor * b[l * n + j];
        }
}

void plain_matmul(size_t m, size_t k, size_t n, const float *a, const float *b, float *c)
{
    memset(c, 0, m * n * sizeof *c);
    add_product(m, k, n, a, k, 1, b, c);
}

void plain_relu(size_t n, const float *x, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] > 0 ? x[i] : 0;
}

void plain_softmax(size_t n, const float *x, float *y)
{
    float most = x[0];
    double sum = 0;
    for (size_t i = 1; i < n; i++)
        most = x[i] > most ? x[i] : most;
    for (size_t i = 0; i < n; i++)
        sum += y[i] = expf(x[i] - most);
    float factor = (float)(1 / sum);
    for (size_t i = 0; i < n; i++)
        y[i] *= factor;
}

static void linear(size_t m, size_t k, size_t n, const float *x, const float *w, const float *b,
                   float *y)
{
    for (size_t i = 0; i < m; i++)
        memcpy(y + i * n, b, n * sizeof *y);
    add_product(m, k, n, x, k, 1, w, y);
}

static void add_rows(size_t rows, size_t columns, const float *x, float *sums)
{
    memset(sums, 0, columns * sizeof *sums);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++)
            sums[j] += x[i * columns + j];
}

static void go_forward(const struct plain_network *net)
{
    linear(net->n, net->p, net->h, net->x, net->w1, net->b1, net->hidden);
    plain_relu(net->n * net->h, net->hidden, net->hidden);
    linear(net->n, net->h, net->c, net->hidden, net->w2, net->b2, net->slope);
    for (size_t i = 0; i < net->n; i++) {
        float *row = net->slope + i * net->c;
        plain_softmax(net->c, row, row);
        row[(size_t)net->labels[i]] -= 1;
        for (size_t j = 0; j < net->c; j++)
            row[j] /= (float)net->n;
    }
}

/* back = slope w2' where the hidden unit is on */
static void go_back(const struct plain_network *net)
{
    for (size_t i = 0; i < net->n; i++)
        for (size_t j = 0; j < net->h; j++) {
            float sum = 0;
            for (size_t l = 0; l < net->c; l++)
                sum += net->slope[i * net->c + l] * net->w2[j * net->c + l];
            net->back[i * net->h + j] = net->hidden[i * net->h + j] > 0 ? sum : 0;
        }
}

void plain_network(const struct plain_network *net)
{
    go_forward(net);
    go_back(net);
    memset(net->g1, 0, net->p * net->h * sizeof *net->g1);
    memset(net->g2, 0, net->h * net->c * sizeof *net->g2);
    add_product(net->p, net->n, net->h, net->x, 1, net->p, net->back, net->g1);
    add_product(net->h, net->n, net->c, net->hidden, 1, net->h, net->slope, net->g2);
    add_rows(net->n, net->h, net->back, net->s1);
    add_rows(net->n, net->c, net->slope, net->s2);
}
