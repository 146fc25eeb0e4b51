/* SPDX-License-Identifier: Apache-2.0 */
/* A product with weights in a buffer, recorded and computed by plain loops. */
#include "support/product.h"

#include <string.h>

#include "support/context.h"

void multiply_plainly(const struct product_size *size, const float *a, const float *b, float *y)
{
    memset(y, 0, size->m * size->n * sizeof *y);
    for (size_t i = 0; i < size->m; i++)
        for (size_t k = 0; k < size->k; k++)
            for (size_t j = 0; j < size->n; j++)
                y[i * size->n + j] += a[i * size->k + k] * b[k * size->n + j];
}

kiln_batch *record_product(kiln_context *context, const struct product_size *size, const float *a,
                           kiln_buffer *b, float *y)
{
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor x = kiln_upload(batch, KILN_F32, 2, (size_t[]){size->m, size->k}, a);
    kiln_tensor product = kiln_matmul(batch, x, kiln_import(batch, b));
    expect_ok(kiln_read(batch, product, y, size->m * size->n * sizeof *y));
    return batch;
}
