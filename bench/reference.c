/* SPDX-License-Identifier: Apache-2.0 */
/* Float64 results of the benchmark's operations, which every contestant is checked against before
 * it is timed. */
#include "reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

static double *room(size_t count)
{
    double *values = calloc(count ? count : 1, sizeof *values);
    if (!values)
        bench_fail("out of memory");
    return values;
}

void reference_chain(const struct process_shape *shapes, const float *const *in, double *out)
{
    for (size_t i = 0; i < shapes[0].dims[0]; i++)
        out[i] = fmax((double)in[0][i] * in[1][i] + in[2][i], 0);
}

void reference_sum(const struct process_shape *shapes, const float *const *in, double *out)
{
    *out = 0;
    for (size_t i = 0; i < shapes[0].dims[0]; i++)
        *out += in[0][i];
}

void reference_row_sums(const struct process_shape *shapes, const float *const *in, double *out)
{
    size_t rows = shapes[0].dims[0], columns = shapes[0].dims[1];
    for (size_t i = 0; i < rows; i++) {
        out[i] = 0;
        for (size_t j = 0; j < columns; j++)
            out[i] += in[0][i * columns + j];
    }
}

void reference_column_sums(const struct process_shape *shapes, const float *const *in, double *out)
{
    size_t rows = shapes[0].dims[0], columns = shapes[0].dims[1];
    memset(out, 0, columns * sizeof *out);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++)
            out[j] += in[0][i * columns + j];
}

void reference_transpose(const struct process_shape *shapes, const float *const *in, double *out)
{
    size_t rows = shapes[0].dims[0], columns = shapes[0].dims[1];
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++)
            out[j * rows + i] = in[0][i * columns + j];
}

/* In place. */
static void soften(size_t n, double *row)
{
    double most = -INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++)
        most = fmax(most, row[i]);
    for (size_t i = 0; i < n; i++)
        sum += row[i] = exp(row[i] - most);
    for (size_t i = 0; i < n; i++)
        row[i] /= sum;
}

void reference_softmax(const struct process_shape *shapes, const float *const *in, double *out)
{
    size_t rows = shapes[0].dims[0], columns = shapes[0].dims[1];
    for (size_t i = 0; i < rows * columns; i++)
        out[i] = in[0][i];
    for (size_t i = 0; i < rows; i++)
        soften(columns, out + i * columns);
}

void reference_layer_norm(const struct process_shape *shapes, const float *const *in, double *out)
{
    size_t rows = shapes[0].dims[0], columns = shapes[0].dims[1];
    for (size_t i = 0; i < rows; i++) {
        const float *x = in[0] + i * columns;
        double mean = 0, square = 0;
        for (size_t j = 0; j < columns; j++)
            mean += x[j] / (double)columns;
        for (size_t j = 0; j < columns; j++)
            square += (x[j] - mean) * (x[j] - mean) / (double)columns;
        for (size_t j = 0; j < columns; j++)
            out[i * columns + j] = (x[j] - mean) / sqrt(square + 1e-5) * in[1][j] + in[2][j];
    }
}

/* c[m,n] += a[m,k] b[k,n], with strides of a. */
static void multiply(size_t m, size_t k, size_t n, const double *a, size_t row, size_t column,
                     const double *b, double *c)
{
    for (size_t i = 0; i < m; i++)
        for (size_t l = 0; l < k; l++)
            for (size_t j = 0; j < n; j++)
                c[i * n + j] += a[i * row + l * column] * b[l * n + j];
}

static double *widen(size_t count, const float *values)
{
    double *wide = room(count);
    for (size_t i = 0; i < count; i++)
        wide[i] = values[i];
    return wide;
}

static double *transposed(size_t rows, size_t columns, const double *values)
{
    double *result = room(rows * columns);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++)
            result[j * rows + i] = values[i * columns + j];
    return result;
}

/* x w + b, widened. */
static void linear(size_t m, size_t k, size_t n, const double *x, const float *w, const float *b,
                   double *y)
{
    double *wide = widen(k * n, w);
    for (size_t i = 0; i < m * n; i++)
        y[i] = b[i % n];
    multiply(m, k, n, x, k, 1, wide, y);
    free(wide);
}

void reference_matmul(const struct process_shape *shapes, const float *const *in, double *out)
{
    size_t m = shapes[0].dims[0], k = shapes[0].dims[1], n = shapes[1].dims[1];
    double *a = widen(m * k, in[0]), *b = widen(k * n, in[1]);
    memset(out, 0, m * n * sizeof *out);
    multiply(m, k, n, a, k, 1, b, out);
    free(a), free(b);
}

/* The form with tanh (Hendrycks and Gimpel 2016), which differs from the exact one by 5e-4 at
 * most. */
void reference_linear_gelu(const struct process_shape *shapes, const float *const *in, double *out)
{
    size_t m = shapes[0].dims[0], k = shapes[0].dims[1], n = shapes[1].dims[1];
    double *x = widen(m * k, in[0]);
    linear(m, k, n, x, in[1], in[2], out);
    for (size_t i = 0; i < m * n; i++)
        out[i] *= 0.5 * (1 + tanh(sqrt(2 / acos(-1)) * (out[i] + 0.044715 * pow(out[i], 3))));
    free(x);
}

void reference_attention(const struct process_shape *shapes, const float *const *in, double *out)
{
    size_t heads = shapes[0].dims[0], n = shapes[0].dims[1], d = shapes[0].dims[2];
    double *scores = room(n * n), scale = 1 / sqrt((double)d);
    memset(out, 0, heads * n * d * sizeof *out);
    for (size_t h = 0; h < heads; h++) {
        double *q = widen(n * d, in[0] + h * n * d), *k = widen(n * d, in[1] + h * n * d);
        double *v = widen(n * d, in[2] + h * n * d), *keys = transposed(n, d, k);
        memset(scores, 0, n * n * sizeof *scores);
        multiply(n, d, n, q, d, 1, keys, scores);
        for (size_t i = 0; i < n * n; i++)
            scores[i] *= scale;
        for (size_t i = 0; i < n; i++)
            soften(n, scores + i * n);
        multiply(n, n, d, scores, n, 1, v, out + h * n * d);
        free(q), free(k), free(v), free(keys);
    }
    free(scores);
}

/* The row of `x` that element `kh`, `kw` of the window at `place` meets; NULL outside. */
static const float *window_row(const struct process_shape *x, const float *values, size_t place,
                               size_t kh, size_t kw)
{
    size_t h = x->dims[1], w = x->dims[2], image = place / (h * w);
    size_t row = place / w % h + kh - 1, column = place % w + kw - 1; /* 1 of padding */
    return row < h && column < w ? values + ((image * h + row) * w + column) * x->dims[3] : NULL;
}

/* Inputs: x[n,h,w,c], kernel[3,3,c,o], b[o]; a zero around each image. */
void reference_conv(const struct process_shape *shapes, const float *const *in, double *out)
{
    const struct process_shape *x = &shapes[0];
    size_t places = x->dims[0] * x->dims[1] * x->dims[2], c = x->dims[3], o = shapes[1].dims[3];
    for (size_t i = 0; i < places * o; i++)
        out[i] = in[2][i % o];
    for (size_t i = 0; i < places * 9 * c; i++) {
        const float *row = window_row(x, in[0], i / (9 * c), i / (3 * c) % 3, i / c % 3);
        const float *kernel = in[1] + i % (9 * c) * o;
        for (size_t j = 0; row && j < o; j++)
            out[i / (9 * c) * o + j] += (double)row[i % c] * kernel[j];
    }
    for (size_t i = 0; i < places * o; i++)
        out[i] = fmax(out[i], 0);
}

/* after = before - 0.1 gradient */
static void descend(size_t count, const float *before, const double *gradient, double *after)
{
    for (size_t i = 0; i < count; i++)
        after[i] = before[i] - 0.1 * gradient[i];
}

static void add_rows(size_t rows, size_t columns, const double *values, double *sums)
{
    for (size_t i = 0; i < rows * columns; i++)
        sums[i % columns] += values[i];
}

/* Inputs: x[n,p], labels[n], w1[p,h], b1[h], w2[h,c], b2[c]; results: the four after a step. */
void reference_training_step(const struct process_shape *shapes, const float *const *in,
                             double *out)
{
    size_t n = shapes[0].dims[0], p = shapes[0].dims[1];
    size_t h = shapes[2].dims[1], c = shapes[4].dims[1];
    double *x = widen(n * p, in[0]), *hidden = room(n * h), *slope = room(n * c);
    double *back = room(n * h), *w2 = widen(h * c, in[4]), *turned = transposed(h, c, w2);
    double *g1 = room(p * h), *g1b = room(h), *g2 = room(h * c), *g2b = room(c);
    linear(n, p, h, x, in[2], in[3], hidden);
    for (size_t i = 0; i < n * h; i++)
        hidden[i] = fmax(hidden[i], 0);
    linear(n, h, c, hidden, in[4], in[5], slope);
    for (size_t i = 0; i < n; i++) {
        soften(c, slope + i * c);
        slope[i * c + (size_t)in[1][i]] -= 1;
    }
    for (size_t i = 0; i < n * c; i++)
        slope[i] /= (double)n;
    multiply(n, c, h, slope, c, 1, turned, back);
    for (size_t i = 0; i < n * h; i++)
        back[i] = hidden[i] > 0 ? back[i] : 0;
    multiply(p, n, h, x, 1, p, back, g1);
    multiply(h, n, c, hidden, 1, h, slope, g2);
    add_rows(n, h, back, g1b);
    add_rows(n, c, slope, g2b);
    descend(p * h, in[2], g1, out);
    descend(h, in[3], g1b, out + p * h);
    descend(h * c, in[4], g2, out + p * h + h);
    descend(c, in[5], g2b, out + p * h + h + h * c);
    double *const all[] = {x, hidden, slope, back, w2, turned, g1, g1b, g2, g2b};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}
