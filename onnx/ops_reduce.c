/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions, and what is made of them: softmax and normalisation of rows. */
#include <math.h>
#include <string.h>

#include "onnx/onnx.pb-c.h"
#include "onnx/values.h"

enum { INT64 = ONNX__TENSOR_PROTO__DATA_TYPE__INT64 };

/* ---- reductions over axes ---- */

/* What becomes of the elements before they are reduced, how, and what of the result. */
struct reduction {
    kiln_tensor (*before)(kiln_batch *batch, kiln_tensor x);
    kiln_tensor (*reduce)(kiln_batch *batch, kiln_tensor x, size_t n_axes, const int *axes,
                          int keep_dims);
    kiln_tensor (*after)(kiln_batch *batch, kiln_tensor x);
    double empty; /* the result of no elements, where `reduce` has none */
    bool has_empty;
    /* of integers instead, exactly */
    kiln_tensor (*integers)(kiln_batch *batch, kiln_tensor x, size_t n_axes, const int *axes,
                            int keep_dims);
    bool floats; /* integers are reduced as f32, and the result rounded towards zero */
    char host;   /* of known integers: + * < > or 0 */
};

struct axes {
    size_t n;
    int list[KILN_MAX_RANK];
    bool marked[KILN_MAX_RANK];
    bool nothing; /* no axes, and that means none */
};

static bool read_axes(struct kiln__onnx_call *call, const struct kiln__onnx_value *x,
                      struct axes *axes)
{
    size_t n;
    *axes = (struct axes){0};
    const int64_t *list = kiln__onnx_list(call, "axes", 1, &n);
    bool none = kiln__onnx_int(call, "noop_with_empty_axes", 0) != 0;
    for (size_t i = 0; i < n && !kiln__onnx_failed(call); i++) {
        size_t axis = kiln__onnx_axis(call, list[i], x->rank);
        if (kiln__onnx_failed(call))
            break;
        if (axes->marked[axis])
            kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT, "axis %zu is named twice", axis);
        axes->marked[axis] = true;
    }
    axes->nothing = n == 0 && none;
    for (size_t d = 0; d < x->rank; d++) {
        axes->marked[d] = axes->marked[d] || (n == 0 && !none);
        if (axes->marked[d])
            axes->list[axes->n++] = (int)d;
    }
    return !kiln__onnx_failed(call);
}

static size_t reduced_shape(const struct kiln__onnx_value *x, const struct axes *axes, bool keep,
                            size_t *dims)
{
    size_t rank = 0;
    for (size_t d = 0; d < x->rank; d++)
        if (!axes->marked[d])
            dims[rank++] = x->dims[d];
        else if (keep)
            dims[rank++] = 1;
    return rank;
}

/* Whether all elements are reduced to one, known integers that are few. */
static bool reduce_known(struct kiln__onnx_call *call, const struct reduction *how,
                         const struct kiln__onnx_value *x, size_t rank, const size_t *dims)
{
    if (!x->host || x->host->floats || !how->host || x->host->count == 0)
        return false;
    size_t count;
    if (!kiln__onnx_count(rank, dims, &count) || count != 1)
        return false;
    struct kiln__onnx_host *y = kiln__onnx_give_host(call, 0, x->type, rank, dims);
    if (!y)
        return true;
    int64_t result = x->host->cells[0].i;
    for (size_t i = 1; i < x->host->count; i++) {
        int64_t next = x->host->cells[i].i;
        switch (how->host) {
        case '+': result = (int64_t)((uint64_t)result + (uint64_t)next); break;
        case '*': result = (int64_t)((uint64_t)result * (uint64_t)next); break;
        case '<': result = next < result ? next : result; break;
        default: result = next > result ? next : result;
        }
    }
    y->cells[0] = kiln__onnx_host_round(x->type, (union kiln__onnx_cell){.i = result});
    return true;
}

static bool no_elements(const struct kiln__onnx_value *x)
{
    for (size_t d = 0; d < x->rank; d++)
        if (x->dims[d] == 0)
            return true;
    return false;
}

/* What a choice among no elements gives: of integers the end of their range. */
static kiln_tensor empty_choice(struct kiln__onnx_call *call, const struct reduction *how,
                                int number, size_t rank, const size_t *dims)
{
    const struct kiln__onnx_type *type = kiln__onnx_type(number);
    const bool is_signed = type->storage == KILN__ONNX_SIGNED;
    if (type->computed == KILN_F32)
        return kiln_fill(call->batch, KILN_F32, rank, dims, how->empty);
    if (type->type == KILN_BOOL)
        return kiln_fill(call->batch, KILN_U8, rank, dims, how->empty > 0);
    double lowest = is_signed ? -ldexp(1, (int)type->bits - 1) : 0;
    kiln_tensor low = kiln_fill(call->batch, type->computed, rank, dims, lowest);
    return how->empty < 0 ? low : kiln_bit_not(call->batch, low);
}

static void reduce(struct kiln__onnx_call *call)
{
    const struct reduction *how = call->row->data;
    struct kiln__onnx_value *x = kiln__onnx_operand(call, 0);
    struct axes axes;
    size_t dims[KILN_MAX_RANK];
    if (!kiln__onnx_need(call, 0) || !read_axes(call, x, &axes))
        return;
    bool keep = kiln__onnx_int(call, "keepdims", 1) != 0;
    size_t rank = reduced_shape(x, &axes, keep, dims);
    if (reduce_known(call, how, x, rank, dims))
        return;
    if (how->has_empty && no_elements(x)) {
        kiln__onnx_give(call, 0, empty_choice(call, how, x->type, rank, dims), x->type);
        return;
    }
    bool integers = !kiln__onnx_type_floats(x->type), rounds = how->floats && integers;
    kiln_tensor y = kiln__onnx_tensor(call, 0);
    if (rounds)
        y = kiln_cast(call->batch, y, KILN_F32);
    if (how->before)
        y = how->before(call->batch, y);
    if (axes.n)
        y = (integers && how->integers ? how->integers : how->reduce)(call->batch, y, axes.n,
                                                                      axes.list, keep);
    else if (how->reduce == kiln_norm) /* of one number */
        y = kiln_abs(call->batch, y);
    if (how->after)
        y = how->after(call->batch, y);
    if (rounds)
        y = kiln_cast(call->batch, y, kiln__onnx_type(x->type)->computed);
    kiln__onnx_give(call, 0, y, x->type);
}

/* Rounded towards zero, of a sum in 64 bits. */
static kiln_tensor mean_of_integers(kiln_batch *batch, kiln_tensor x, size_t n_axes,
                                    const int *axes, int keep_dims)
{
    size_t rank, dims[KILN_MAX_RANK], count = 1;
    if (kiln_tensor_shape(batch, x, NULL, &rank, dims))
        return x;
    for (size_t i = 0; i < n_axes; i++)
        count *= dims[axes[i]];
    return kiln_div(batch, kiln_sum(batch, x, n_axes, axes, keep_dims),
                    kiln_constant(batch, KILN_I64, (double)count));
}

static kiln_tensor logarithm(kiln_batch *batch, kiln_tensor x)
{
    return kiln_log(batch, x);
}

/* ---- positions ---- */

static void position(struct kiln__onnx_call *call)
{
    struct kiln__onnx_value *x = kiln__onnx_operand(call, 0);
    if (!kiln__onnx_need(call, 0))
        return;
    size_t axis = kiln__onnx_axis(call, kiln__onnx_int(call, "axis", 0), x->rank);
    int list = (int)axis, keep = kiln__onnx_int(call, "keepdims", 1) != 0;
    bool largest = call->row->data != NULL,
         last = kiln__onnx_int(call, "select_last_index", 0) != 0;
    kiln_tensor values = kiln__onnx_tensor(call, 0), y;
    if (kiln__onnx_failed(call))
        return;
    if (last) {
        int64_t start[KILN_MAX_RANK] = {0}, stop[KILN_MAX_RANK], step[KILN_MAX_RANK];
        for (size_t d = 0; d < x->rank; d++) {
            start[d] = d == axis ? (int64_t)x->dims[d] - 1 : 0;
            stop[d] = d == axis ? -1 : (int64_t)x->dims[d];
            step[d] = d == axis ? -1 : 1;
        }
        values = kiln_slice(call->batch, values, start, stop, step);
    }
    y = largest ? kiln_argmax(call->batch, values, 1, &list, keep)
                : kiln_argmin(call->batch, values, 1, &list, keep);
    if (last)
        y = kiln_sub(call->batch, kiln_constant(call->batch, KILN_I32, (double)x->dims[axis] - 1),
                     y);
    kiln__onnx_give(call, 0, y, INT64);
}

/* ---- softmax ---- */

/* Up to version 12 the operand is a matrix: what is before the axis are its rows. */
static void softmax(struct kiln__onnx_call *call)
{
    kiln_tensor (*function)(kiln_batch *, kiln_tensor, size_t, const int *) =
        call->row->data ? kiln_log_softmax : kiln_softmax;
    struct kiln__onnx_value *x = kiln__onnx_operand(call, 0);
    int axes[KILN_MAX_RANK];
    size_t n = 0;
    if (!kiln__onnx_need(call, 0))
        return;
    bool matrix = call->version < 13;
    size_t axis = kiln__onnx_axis(call, kiln__onnx_int(call, "axis", matrix ? 1 : -1), x->rank);
    for (size_t d = axis; d < (matrix ? x->rank : axis + 1); d++)
        axes[n++] = (int)d;
    kiln_tensor tensor = kiln__onnx_tensor(call, 0);
    if (!kiln__onnx_failed(call))
        kiln__onnx_give(call, 0, function(call->batch, tensor, n, axes), x->type);
}

#define HOW(...) (&(const struct reduction){__VA_ARGS__})
#define ROW(name, since, ...)                                                                      \
    KILN__ONNX_ROW(name, since, reduce, .known = KILN__ONNX_BIT(1), .data = HOW(__VA_ARGS__))

static const bool yes = true;

const struct kiln__onnx_row kiln__onnx_reduce_rows[] = {
    ROW("ReduceSum", 1, .reduce = kiln_sum, .host = '+'),
    ROW("ReduceMean", 1, .reduce = kiln_mean, .integers = mean_of_integers),
    ROW("ReduceProd", 1, .reduce = kiln_product, .host = '*'),
    ROW("ReduceMax", 1, .reduce = kiln_max, .empty = -INFINITY, .has_empty = true, .host = '>'),
    ROW("ReduceMin", 1, .reduce = kiln_min, .empty = INFINITY, .has_empty = true, .host = '<'),
    ROW("ReduceL1", 1, .before = kiln_abs, .reduce = kiln_sum),
    ROW("ReduceL2", 1, .reduce = kiln_norm, .floats = true),
    ROW("ReduceSumSquare", 1, .before = kiln_square, .reduce = kiln_sum),
    ROW("ReduceLogSum", 1, .reduce = kiln_sum, .after = logarithm, .floats = true),
    ROW("ReduceLogSumExp", 1, .reduce = kiln_logsumexp, .floats = true),
    KILN__ONNX_ROW("ArgMax", 1, position, .data = &yes),
    KILN__ONNX_ROW("ArgMin", 1, position),
    KILN__ONNX_ROW("Softmax", 1, softmax),
    KILN__ONNX_ROW("LogSoftmax", 1, softmax, .data = &yes),
    {0},
};
