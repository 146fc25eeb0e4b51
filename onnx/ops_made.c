/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors that are made of positions: unit matrices, classes, windows, scales of a spectrum; and
 * what is cut and turned around by position. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "onnx/call.h"

#define TYPE(name) ONNX__TENSOR_PROTO__DATA_TYPE__##name

static kiln_tensor number(struct kiln__onnx_call *call, kiln_type type, double value)
{
    return kiln_constant(call->batch, type, value);
}

/* The type of kiln that ONNX's is computed in; refuses the node and answers i32 without one. */
static kiln_type computed_type(struct kiln__onnx_call *call, int type)
{
    const struct kiln__onnx_type *known = kiln__onnx_type(type);
    if (!known)
        kiln__onnx_refuse(call, KILN_UNSUPPORTED, "there are no tensors of %s",
                          kiln__onnx_type_name(type));
    return known ? known->computed : KILN_I32;
}

/* ---- of positions ---- */

static void record_eye(struct kiln__onnx_call *call)
{
    const struct kiln__onnx_value *x = kiln__onnx_operand(call, 0);
    if (!kiln__onnx_need(call, 0))
        return;
    int type = (int)kiln__onnx_int(call, "dtype", x->type);
    double k = (double)kiln__onnx_int(call, "k", 0);
    if (x->rank != 2 || fabs(k) > INT32_MAX) {
        kiln__onnx_refuse(call, KILN_SHAPE_MISMATCH, "it makes matrices alone");
        return;
    }
    kiln_type computed = computed_type(call, type);
    kiln_tensor row = kiln_iota(call->batch, 2, (size_t[]){x->dims[0], 1}, 0);
    kiln_tensor column = kiln_iota(call->batch, 2, (size_t[]){1, x->dims[1]}, 1);
    kiln_tensor mask =
        kiln_equal(call->batch, kiln_add(call->batch, row, number(call, KILN_I32, k)), column);
    kiln__onnx_give(call, 0, kiln_cast(call->batch, mask, computed), type);
}

/* x in a shape with a new dimension of `extent` at `axis`. */
static kiln_tensor insert(struct kiln__onnx_call *call, kiln_tensor tensor, size_t rank,
                          const size_t *dims, size_t axis, size_t extent)
{
    size_t wider[KILN_MAX_RANK];
    for (size_t i = 0; i <= rank; i++)
        wider[i] = i == axis ? extent : dims[i > axis ? i - 1 : i];
    return kiln_reshape(call->batch, tensor, rank + 1, wider);
}

/* The element of operand i, of two, as a scalar. */
static kiln_tensor element(struct kiln__onnx_call *call, size_t i, int64_t which)
{
    kiln_tensor one = kiln_slice(call->batch, kiln__onnx_tensor(call, i), (int64_t[]){which},
                                 (int64_t[]){which + 1}, NULL);
    return kiln_reshape(call->batch, one, 0, NULL);
}

/* Operands: positions, which count from the end if they are negative; how many there are; the
 * values of all others and of the position. */
static void record_one_hot(struct kiln__onnx_call *call)
{
    const struct kiln__onnx_value *x = kiln__onnx_operand(call, 0);
    size_t positions[KILN_MAX_RANK];
    double depth = -1;
    if (!kiln__onnx_need(call, 0) || !kiln__onnx_need(call, 2))
        return;
    if (kiln__onnx_operand(call, 2)->rank != 1) {
        kiln__onnx_refuse(call, KILN_SHAPE_MISMATCH, "its two values are no vector");
        return;
    }
    bool known = kiln__onnx_scalar(call, 1, &depth);
    if (!known || !(depth >= 0 && depth <= INT32_MAX) || x->rank == KILN_MAX_RANK) {
        kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT, "there are no such positions");
        return;
    }
    size_t axis = kiln__onnx_axis(call, kiln__onnx_int(call, "axis", -1), x->rank + 1);
    if (kiln__onnx_failed(call))
        return;
    kiln_tensor index = kiln__onnx_positions(call, kiln__onnx_tensor(call, 0));
    kiln_tensor behind = kiln_add(call->batch, index, number(call, KILN_I32, depth));
    index = kiln_where(call->batch, kiln_less(call->batch, index, number(call, KILN_I32, 0)),
                       behind, index);
    for (size_t i = 0; i <= x->rank; i++)
        positions[i] = i == axis ? (size_t)depth : 1;
    kiln_tensor is = kiln_equal(call->batch, insert(call, index, x->rank, x->dims, axis, 1),
                                kiln_iota(call->batch, x->rank + 1, positions, (int)axis));
    kiln__onnx_give(call, 0, kiln_where(call->batch, is, element(call, 2, 1), element(call, 2, 0)),
                    kiln__onnx_operand(call, 2)->type);
}

/* ---- windows of signals: a - b cos(t) + c cos(2 t) over one period ---- */

struct window {
    double a, b, c;
};

static const struct window hann = {0.5, 0.5, 0}, hamming = {25.0 / 46, 21.0 / 46, 0},
                           blackman = {0.42, 0.5, 0.08};

enum { LONGEST_WINDOW = 1 << 22 };

static void record_window(struct kiln__onnx_call *call)
{
    const struct window *window = call->row->data;
    size_t n;
    const int64_t *size = kiln__onnx_integers(call, 0, &n);
    if (!kiln__onnx_need(call, 0) || kiln__onnx_failed(call))
        return;
    if (n != 1 || *size < 0 || *size > LONGEST_WINDOW) {
        kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT, "its size is no number of elements");
        return;
    }
    bool periodic = kiln__onnx_int(call, "periodic", 1) != 0;
    int type = (int)kiln__onnx_int(call, "output_datatype", TYPE(FLOAT));
    if (!kiln__onnx_type_floats(type)) {
        kiln__onnx_refuse(call, KILN_UNSUPPORTED, "it makes a window of %s",
                          kiln__onnx_type_name(type));
        return;
    }
    size_t count = (size_t)*size;
    struct kiln__onnx_host *host = kiln__onnx_give_host(call, 0, type, 1, &count);
    double period = periodic ? (double)count : (double)count - 1;
    for (size_t i = 0; host && i < count; i++) {
        double t = period > 0 ? 2 * M_PI * (double)i / period : 0;
        double y = window->a - window->b * cos(t) + window->c * cos(2 * t);
        host->cells[i] = kiln__onnx_host_round(type, (union kiln__onnx_cell){.f = y});
    }
}

/* ---- by position ---- */

/* Along each axis the middle of what is longer, zeros around what is shorter. */
static void record_centre(struct kiln__onnx_call *call)
{
    const struct kiln__onnx_value *x = kiln__onnx_operand(call, 0);
    size_t n, n_axes, low[KILN_MAX_RANK] = {0}, high[KILN_MAX_RANK] = {0};
    int64_t start[KILN_MAX_RANK] = {0}, stop[KILN_MAX_RANK];
    const int64_t *wanted = kiln__onnx_integers(call, 1, &n);
    const int64_t *axes = kiln__onnx_ints(call, "axes", &n_axes);
    if (!kiln__onnx_need(call, 0) || kiln__onnx_failed(call))
        return;
    for (size_t i = 0; i < x->rank; i++)
        stop[i] = (int64_t)x->dims[i];
    for (size_t i = 0; i < n; i++) {
        size_t axis = kiln__onnx_axis(call, axes && i < n_axes ? axes[i] : (int64_t)i, x->rank);
        if (kiln__onnx_failed(call))
            return;
        int64_t more = wanted[i] - (int64_t)x->dims[axis];
        if (wanted[i] < 0 || wanted[i] > INT32_MAX) {
            kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT, "there is no such shape");
            return;
        }
        low[axis] = more > 0 ? (size_t)(more / 2) : 0;
        high[axis] = more > 0 ? (size_t)(more - more / 2) : 0;
        start[axis] = more < 0 ? -more / 2 : 0;
        stop[axis] = start[axis] + (more < 0 ? wanted[i] : (int64_t)x->dims[axis]);
    }
    kiln_tensor y = kiln_slice(call->batch, kiln__onnx_tensor(call, 0), start, stop, NULL);
    kiln__onnx_give(call, 0, kiln_pad(call->batch, y, low, high, 0), x->type);
}

/* The first elements of each sequence in reverse, the others as they are: positions t of batch b as
 * rows t * B + b, or b * T + t. */
static void record_reverse(struct kiln__onnx_call *call)
{
    const struct kiln__onnx_value *x = kiln__onnx_operand(call, 0);
    if (!kiln__onnx_need(call, 0) || !kiln__onnx_need(call, 1))
        return;
    int64_t time = kiln__onnx_int(call, "time_axis", 0),
            rows = kiln__onnx_int(call, "batch_axis", 1);
    if (x->rank < 2 || !((!time && rows == 1) || (time == 1 && !rows))) {
        kiln__onnx_refuse(call, KILN_SHAPE_MISMATCH, "its axes are not the first two");
        return;
    }
    size_t shape[2] = {x->dims[0], x->dims[1]}, of_lengths[2] = {1, 1}, inner = 1;
    for (size_t i = 2; i < x->rank; i++)
        inner *= x->dims[i];
    of_lengths[rows] = x->dims[rows];
    kiln_batch *batch = call->batch;
    kiln_tensor lengths =
        kiln_reshape(batch, kiln__onnx_positions(call, kiln__onnx_tensor(call, 1)), 2, of_lengths);
    kiln_tensor t = kiln_iota(batch, 2, shape, (int)time),
                b = kiln_iota(batch, 2, shape, (int)rows);
    kiln_tensor last = kiln_sub(batch, lengths, number(call, KILN_I32, 1));
    kiln_tensor from = kiln_where(batch, kiln_less(batch, t, lengths), kiln_sub(batch, last, t), t);
    kiln_tensor row =
        time ? kiln_add(batch, kiln_mul(batch, b, number(call, KILN_I32, (double)shape[1])), from)
             : kiln_add(batch, kiln_mul(batch, from, number(call, KILN_I32, (double)shape[1])), b);
    kiln_tensor y =
        kiln_reshape(batch, kiln__onnx_tensor(call, 0), 2, (size_t[]){shape[0] * shape[1], inner});
    y = kiln_gather(batch, y, row, 0);
    kiln__onnx_give(call, 0, kiln_reshape(batch, y, x->rank, x->dims), x->type);
}

const struct kiln__onnx_row kiln__onnx_made_rows[] = {
    KILN__ONNX_ROW("EyeLike", 9, record_eye),
    KILN__ONNX_ROW("OneHot", 9, record_one_hot, .known = KILN__ONNX_BIT(1)),
    KILN__ONNX_ROW("HannWindow", 17, record_window, .known = KILN__ONNX_BIT(0), .data = &hann),
    KILN__ONNX_ROW("HammingWindow", 17, record_window, .known = KILN__ONNX_BIT(0),
                   .data = &hamming),
    KILN__ONNX_ROW("BlackmanWindow", 17, record_window, .known = KILN__ONNX_BIT(0),
                   .data = &blackman),
    KILN__ONNX_ROW("CenterCropPad", 18, record_centre, .known = KILN__ONNX_BIT(1)),
    KILN__ONNX_ROW("ReverseSequence", 10, record_reverse),
    {0},
};
