/* SPDX-License-Identifier: Apache-2.0 */
/* The eager way, on top of the batch. */
#include <stdbool.h>

#include <kiln/kiln.h>

#include "util/error.h"

/* Ask for `y`, run, and release the batch; its sentence becomes the thread's last error. */
static kiln_status eager_finish(const char *call, kiln_batch *batch, kiln_tensor y, float *out,
                                size_t count)
{
    kiln_read(batch, y, out, count * sizeof *out);
    kiln_status status = kiln_batch_execute(batch);
    if (kiln_batch_status(batch))
        kiln__fail(NULL, status, "%s: %s", call, kiln_batch_error(batch));
    kiln_batch_release(batch);
    return status;
}

static kiln_status eager_begin(const char *call, kiln_context *context, bool complete,
                               kiln_batch **batch)
{
    *batch = NULL;
    KILN__RETURN_IF_NULL(NULL, call, context);
    if (!complete)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: an array is NULL", call);
    *batch = kiln_batch_create(context);
    return *batch ? KILN_OK : KILN_OUT_OF_HOST_MEMORY;
}

typedef kiln_tensor unary(kiln_batch *batch, kiln_tensor a);
typedef kiln_tensor binary(kiln_batch *batch, kiln_tensor a, kiln_tensor b);

static kiln_status run_unary(const char *call, kiln_context *context, unary *operation, size_t n,
                             const float *x, float *y)
{
    kiln_batch *batch;
    kiln_status status = eager_begin(call, context, n == 0 || (x && y), &batch);
    if (status)
        return status;
    return eager_finish(call, batch, operation(batch, kiln_upload(batch, KILN_F32, 1, &n, x)), y,
                        n);
}

static kiln_status run_binary(const char *call, kiln_context *context, binary *operation, size_t n,
                              const float *a, const float *b, float *y, size_t count)
{
    kiln_batch *batch;
    kiln_status status =
        eager_begin(call, context, (n == 0 || (a && b)) && (count == 0 || y), &batch);
    if (status)
        return status;
    kiln_tensor x = kiln_upload(batch, KILN_F32, 1, &n, a);
    return eager_finish(call, batch, operation(batch, x, kiln_upload(batch, KILN_F32, 1, &n, b)), y,
                        count);
}

#define NOW_UNARY(name)                                                                            \
    kiln_status kiln_now_##name(kiln_context *context, size_t n, const float *x, float *y)         \
    {                                                                                              \
        return run_unary(__func__, context, kiln_##name, n, x, y);                                 \
    }
#define NOW_BINARY(name)                                                                           \
    kiln_status kiln_now_##name(kiln_context *context, size_t n, const float *a, const float *b,   \
                                float *y)                                                          \
    {                                                                                              \
        return run_binary(__func__, context, kiln_##name, n, a, b, y, n);                          \
    }
NOW_UNARY(relu)
NOW_UNARY(sigmoid)
NOW_UNARY(tanh)
NOW_UNARY(swish)
NOW_UNARY(gelu)
NOW_BINARY(add)
NOW_BINARY(sub)
NOW_BINARY(mul)
NOW_BINARY(div)

kiln_status kiln_now_dot(kiln_context *context, size_t n, const float *a, const float *b, float *y)
{
    return run_binary(__func__, context, kiln_dot, n, a, b, y, 1);
}

kiln_status kiln_now_scale(kiln_context *context, size_t n, const float *x, double factor, float *y)
{
    kiln_batch *batch;
    kiln_status status = eager_begin(__func__, context, n == 0 || (x && y), &batch);
    if (status)
        return status;
    kiln_tensor scaled = kiln_scale(batch, kiln_upload(batch, KILN_F32, 1, &n, x), factor);
    return eager_finish(__func__, batch, scaled, y, n);
}

kiln_status kiln_now_matmul(kiln_context *context, size_t m, size_t n, size_t k, const float *a,
                            const float *b, float *c)
{
    kiln_batch *batch;
    bool complete = (m * k == 0 || a) && (k * n == 0 || b) && (m * n == 0 || c);
    kiln_status status = eager_begin(__func__, context, complete, &batch);
    if (status)
        return status;
    kiln_tensor x = kiln_upload(batch, KILN_F32, 2, (size_t[]){m, k}, a);
    kiln_tensor y = kiln_upload(batch, KILN_F32, 2, (size_t[]){k, n}, b);
    return eager_finish(__func__, batch, kiln_matmul(batch, x, y), c, m * n);
}
