/* SPDX-License-Identifier: Apache-2.0 */
/* Elementwise operators: recorded as one kiln call, or computed on the host where all operands are
 * known. */
#include "onnx/elementwise.h"

#include <string.h>

#include "onnx/onnx.pb-c.h"
#include "onnx/values.h"

enum { BOOLEAN = ONNX__TENSOR_PROTO__DATA_TYPE__BOOL };

static bool tests(const struct kiln__onnx_elementwise *how)
{
    return how->test || how->test_integers;
}

static bool has_host(const struct kiln__onnx_elementwise *how, bool floats)
{
    return floats ? how->floats || how->test : how->integers || how->test_integers;
}

static union kiln__onnx_cell compute(const struct kiln__onnx_elementwise *how, bool floats,
                                     union kiln__onnx_cell a, union kiln__onnx_cell b, int type)
{
    union kiln__onnx_cell y;
    if (tests(how))
        y.i = floats ? how->test(a.f, b.f) : how->test_integers(a.i, b.i);
    else if (floats)
        y.f = how->floats(a.f, b.f);
    else
        y.i = how->integers(a.i, b.i);
    return kiln__onnx_host_round(type, y);
}

void kiln__onnx_unary(struct kiln__onnx_call *call)
{
    const struct kiln__onnx_elementwise *how = call->row->data;
    struct kiln__onnx_value *x = kiln__onnx_operand(call, 0);
    if (!kiln__onnx_need(call, 0))
        return;
    int type = tests(how) ? BOOLEAN : x->type;
    if (!x->host || !has_host(how, x->host->floats)) {
        kiln__onnx_give(call, 0, how->one(call->batch, kiln__onnx_tensor(call, 0)), type);
        return;
    }
    struct kiln__onnx_host *y = kiln__onnx_give_host(call, 0, type, x->rank, x->dims);
    for (size_t i = 0; y && i < y->count; i++)
        y->cells[i] =
            compute(how, x->host->floats, x->host->cells[i], (union kiln__onnx_cell){0}, type);
}

static struct kiln__onnx_value combine_host(struct kiln__onnx_call *call,
                                            const struct kiln__onnx_elementwise *how,
                                            struct kiln__onnx_value *a, struct kiln__onnx_value *b,
                                            size_t rank, const size_t *dims)
{
    int type = tests(how) ? BOOLEAN : a->type;
    struct kiln__onnx_value result = {0};
    struct kiln__onnx_value left = kiln__onnx_broadcast(call, a, rank, dims);
    struct kiln__onnx_value right = kiln__onnx_broadcast(call, b, rank, dims);
    struct kiln__onnx_host *y = kiln__onnx_new_host(call, type, rank, dims);
    if (!y || !left.host || !right.host)
        return result;
    for (size_t i = 0; i < y->count; i++)
        y->cells[i] =
            compute(how, left.host->floats, left.host->cells[i], right.host->cells[i], type);
    result = (struct kiln__onnx_value){.type = type, .rank = rank, .host = y};
    memcpy(result.dims, y->dims, sizeof result.dims);
    return result;
}

struct kiln__onnx_value kiln__onnx_combine(struct kiln__onnx_call *call,
                                           const struct kiln__onnx_elementwise *how,
                                           struct kiln__onnx_value *a, struct kiln__onnx_value *b)
{
    struct kiln__onnx_value result = {0};
    size_t rank = a->rank, dims[KILN_MAX_RANK];
    memcpy(dims, a->dims, sizeof dims);
    if (a->type != b->type) {
        kiln__onnx_refuse(call, KILN_TYPE_MISMATCH, "operands of %s and %s",
                          kiln__onnx_type_name(a->type), kiln__onnx_type_name(b->type));
        return result;
    }
    if (!kiln__onnx_join_shapes(call, &rank, dims, b->rank, b->dims))
        return result;
    if (a->host && b->host && has_host(how, a->host->floats) &&
        kiln__onnx_fits_host(a->type, rank, dims))
        return combine_host(call, how, a, b, rank, dims);
    result.type = tests(how) ? BOOLEAN : a->type;
    kiln_tensor y =
        how->two(call->batch, kiln__onnx_tensor_of(call, a), kiln__onnx_tensor_of(call, b));
    result.tensor = kiln__onnx_settle(call, y, result.type);
    result.rank = rank;
    memcpy(result.dims, dims, sizeof result.dims);
    if (!result.tensor.id)
        result.type = 0;
    return result;
}

void kiln__onnx_binary(struct kiln__onnx_call *call)
{
    if (!kiln__onnx_need(call, 0))
        return;
    struct kiln__onnx_value sum = *kiln__onnx_operand(call, 0);
    for (size_t i = 1; i < call->n_inputs && !kiln__onnx_failed(call); i++) {
        if (!kiln__onnx_need(call, i))
            return;
        sum = kiln__onnx_combine(call, call->row->data, &sum, kiln__onnx_operand(call, i));
    }
    kiln__onnx_give_value(call, 0, &sum);
}
