/* SPDX-License-Identifier: Apache-2.0 */
#include "tune_work.h"

#include <math.h>

/* ---- maps ---- */

static kiln_tensor import(kiln_batch *b, kiln_buffer *buffer, size_t rows, size_t columns)
{
    const size_t count = kiln_buffer_bytes(buffer) / sizeof(float);
    const size_t dims[] = {rows, columns};
    const int64_t start = 0;
    const int64_t wanted = (int64_t)(rows * columns);
    kiln_tensor flat = kiln_import(b, buffer);
    if ((size_t)wanted < count)
        flat = kiln_slice(b, flat, &start, &wanted, NULL);
    return columns == 1 ? flat : kiln_reshape(b, flat, 2, dims);
}

static double gelu(double x)
{
    return 0.5 * x * (1 + erf(x * 0.70710678118654752));
}

static kiln_tensor record_gelu(kiln_batch *b, const struct tune_work *work, kiln_buffer *const *in)
{
    kiln_tensor x = import(b, in[0], work->rows, 1);
    return kiln_gelu(b, kiln_add(b, kiln_scale(b, x, 1.5), import(b, in[1], work->rows, 1)));
}

static double gelu_element(const struct tune_work *work, const float *a, const float *b, size_t i)
{
    (void)work;
    return gelu(1.5 * (double)a[i] + (double)b[i]);
}

static kiln_tensor record_relu(kiln_batch *b, const struct tune_work *work, kiln_buffer *const *in)
{
    kiln_tensor x = import(b, in[0], work->rows, 1);
    return kiln_add(b, kiln_relu(b, x), import(b, in[1], work->rows, 1));
}

static double relu_element(const struct tune_work *work, const float *a, const float *b, size_t i)
{
    (void)work;
    return fmax((double)a[i], 0) + (double)b[i];
}

static kiln_tensor record_transpose(kiln_batch *b, const struct tune_work *work,
                                    kiln_buffer *const *in)
{
    const size_t axes[] = {1, 0};
    kiln_tensor x = kiln_transpose(b, import(b, in[0], work->rows, work->columns), axes);
    return kiln_scale(b, x, 2);
}

static double transpose_element(const struct tune_work *work, const float *a, const float *b,
                                size_t i)
{
    (void)b;
    return 2 * (double)a[i % work->rows * work->columns + i / work->rows];
}

/* ---- rows and sums ---- */

static kiln_tensor record_softmax(kiln_batch *b, const struct tune_work *work,
                                  kiln_buffer *const *in)
{
    const int last = 1;
    return kiln_softmax(b, import(b, in[0], work->rows, work->columns), 1, &last);
}

/* Each element looks at its row again: only the first of a row, and then some, are asked for. */
static double softmax_element(const struct tune_work *work, const float *a, const float *b,
                              size_t i)
{
    const float *row = a + i / work->columns * work->columns;
    double sum = 0;
    (void)b;
    for (size_t k = 0; k < work->columns; k++)
        sum += exp((double)row[k]);
    return exp((double)row[i % work->columns]) / sum;
}

static kiln_tensor record_sum(kiln_batch *b, const struct tune_work *work, kiln_buffer *const *in)
{
    return kiln_mean(b, import(b, in[0], work->rows, 1), 0, NULL, 0);
}

static double sum_element(const struct tune_work *work, const float *a, const float *b, size_t i)
{
    double sum = 0;
    (void)b, (void)i;
    for (size_t k = 0; k < work->rows; k++)
        sum += (double)a[k];
    return sum / (double)work->rows;
}

static kiln_tensor record_columns(kiln_batch *b, const struct tune_work *work,
                                  kiln_buffer *const *in)
{
    const int first = 0;
    return kiln_mean(b, import(b, in[0], work->rows, work->columns), 1, &first, 0);
}

static double columns_element(const struct tune_work *work, const float *a, const float *b,
                              size_t i)
{
    double sum = 0;
    (void)b;
    for (size_t k = 0; k < work->rows; k++)
        sum += (double)a[k * work->columns + i];
    return sum / (double)work->rows;
}

/* ---- products ---- */

static kiln_tensor record_product(kiln_batch *b, const struct tune_work *work,
                                  kiln_buffer *const *in)
{
    kiln_tensor x = import(b, in[0], work->rows, work->depth);
    return kiln_matmul(b, x, import(b, in[1], work->depth, work->columns));
}

static double product_element(const struct tune_work *work, const float *a, const float *b,
                              size_t i)
{
    const float *row = a + i / work->columns * work->depth;
    double sum = 0;
    for (size_t k = 0; k < work->depth; k++)
        sum += (double)row[k] * (double)b[k * work->columns + i % work->columns];
    return sum;
}

const struct tune_work tune_works[] = {
    /* clang-format off */
    {"gelu(1.5 x + y), 1048576",  1048576, 1,    0,   record_gelu,      gelu_element,      1048576,      1e-5},
    {"relu(x) + y, 65536",        65536,   1,    0,   record_relu,      relu_element,      65536,        1e-5},
    {"transpose, 1024 x 1024",    1024,    1024, 0,   record_transpose, transpose_element, 1048576,      1e-6},
    {"softmax, 1024 x 1024",      1024,    1024, 0,   record_softmax,   softmax_element,   1048576,      1e-5},
    {"mean of 4194304",           4194304, 1,    0,   record_sum,       sum_element,       1,            1e-5},
    {"column means, 2048 x 1024", 2048,    1024, 0,   record_columns,   columns_element,   1024,         1e-5},
    {"product, 512 x 512 x 512",  512,     512,  512, record_product,   product_element,   262144,       1e-3},
    {"product, 8 x 1024 x 1024",  8,       1024, 1024, record_product,  product_element,   8192,         1e-3},
    {0},
    /* clang-format on */
};
