/* SPDX-License-Identifier: Apache-2.0 */
/* Operators that move elements. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "onnx/values.h"

static void give(struct kiln__onnx_call *call, size_t k, struct kiln__onnx_value value)
{
    kiln__onnx_give_value(call, k, &value);
}

/* ---- the same elements under another shape ---- */

/* A shape with 0 for "as it was" and one -1 for "what is left". */
static bool read_shape(struct kiln__onnx_call *call, const struct kiln__onnx_value *x,
                       const int64_t *list, size_t n, bool zeros, size_t *dims)
{
    size_t count = 1, known = 1, open = n;
    char words[KILN__ONNX_SHAPE];
    int64_t sizes[KILN_MAX_RANK];
    for (size_t d = 0; d < x->rank; d++)
        count *= x->dims[d];
    for (size_t i = 0; i < n && n <= KILN_MAX_RANK; i++) {
        sizes[i] = list[i];
        if (list[i] == 0 && !zeros && i < x->rank)
            sizes[i] = (int64_t)x->dims[i];
        if (list[i] == -1 && open == n) {
            open = i;
            sizes[i] = 1;
        }
    }
    if (!kiln__onnx_shape_of(call, n <= KILN_MAX_RANK ? sizes : list, n, dims))
        return false;
    kiln__onnx_count(n, dims, &known);
    if (open < n) {
        dims[open] = known ? count / known : 0;
        known *= dims[open];
    }
    if (known == count)
        return true;
    kiln__onnx_refuse(call, KILN_SHAPE_MISMATCH,
                      "%s has %zu elements, and the shape that is wanted has %zu",
                      kiln__onnx_shape(words, x->rank, x->dims), count, known);
    return false;
}

static void reshape(struct kiln__onnx_call *call)
{
    size_t n, dims[KILN_MAX_RANK];
    if (!kiln__onnx_need(call, 0) || !kiln__onnx_need(call, 1))
        return;
    const int64_t *list = kiln__onnx_integers(call, 1, &n);
    struct kiln__onnx_value *x = kiln__onnx_operand(call, 0);
    bool zeros = kiln__onnx_int(call, "allowzero", 0) != 0;
    if (!kiln__onnx_failed(call) && read_shape(call, x, list, n, zeros, dims))
        give(call, 0, kiln__onnx_reshape(call, x, n, dims));
}

static void flatten(struct kiln__onnx_call *call)
{
    struct kiln__onnx_value *x = kiln__onnx_operand(call, 0);
    if (!kiln__onnx_need(call, 0))
        return;
    int64_t axis = kiln__onnx_int(call, "axis", 1);
    size_t at = axis == (int64_t)x->rank ? x->rank : kiln__onnx_axis(call, axis, x->rank);
    size_t dims[2] = {1, 1};
    for (size_t d = 0; d < x->rank; d++)
        dims[d >= at] *= x->dims[d];
    if (!kiln__onnx_failed(call))
        give(call, 0, kiln__onnx_reshape(call, x, 2, dims));
}

/* Axes as marks. */
static bool mark_axes(struct kiln__onnx_call *call, const int64_t *axes, size_t n, size_t rank,
                      bool *marked)
{
    memset(marked, 0, KILN_MAX_RANK * sizeof *marked);
    for (size_t i = 0; i < n; i++) {
        size_t axis = kiln__onnx_axis(call, axes[i], rank);
        if (!kiln__onnx_failed(call) && marked[axis])
            kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT, "axis %zu is named twice", axis);
        if (kiln__onnx_failed(call))
            return false;
        marked[axis] = true;
    }
    return true;
}

static void squeeze(struct kiln__onnx_call *call)
{
    struct kiln__onnx_value *x = kiln__onnx_operand(call, 0);
    size_t n, rank = 0, dims[KILN_MAX_RANK];
    bool marked[KILN_MAX_RANK];
    if (!kiln__onnx_need(call, 0))
        return;
    const int64_t *axes = kiln__onnx_list(call, "axes", 1, &n);
    bool all = !axes && !kiln__onnx_operand(call, 1);
    if (kiln__onnx_failed(call) || !mark_axes(call, axes, n, x->rank, marked))
        return;
    for (size_t d = 0; d < x->rank; d++) {
        if (marked[d] && x->dims[d] != 1) {
            kiln__onnx_refuse(call, KILN_SHAPE_MISMATCH, "dimension %zu is %zu, and not 1", d,
                              x->dims[d]);
            return;
        }
        if (!(marked[d] || (all && x->dims[d] == 1)))
            dims[rank++] = x->dims[d];
    }
    give(call, 0, kiln__onnx_reshape(call, x, rank, dims));
}

static void unsqueeze(struct kiln__onnx_call *call)
{
    struct kiln__onnx_value *x = kiln__onnx_operand(call, 0);
    size_t n, dims[KILN_MAX_RANK];
    bool marked[KILN_MAX_RANK];
    if (!kiln__onnx_need(call, 0))
        return;
    const int64_t *axes = kiln__onnx_list(call, "axes", 1, &n);
    if (kiln__onnx_failed(call))
        return;
    if (n > KILN_MAX_RANK - x->rank) {
        kiln__onnx_refuse(call, KILN_UNSUPPORTED, "a result of %zu dimensions, and %d are the most",
                          x->rank + n, KILN_MAX_RANK);
        return;
    }
    size_t rank = x->rank + n;
    if (!mark_axes(call, axes, n, rank, marked))
        return;
    for (size_t d = 0, from = 0; d < rank; d++)
        dims[d] = marked[d] ? 1 : x->dims[from++];
    give(call, 0, kiln__onnx_reshape(call, x, rank, dims));
}

/* ---- elements in other places ---- */

static void transpose(struct kiln__onnx_call *call)
{
    struct kiln__onnx_value *x = kiln__onnx_operand(call, 0);
    size_t n, axes[KILN_MAX_RANK];
    bool marked[KILN_MAX_RANK];
    if (!kiln__onnx_need(call, 0))
        return;
    const int64_t *list = kiln__onnx_ints(call, "perm", &n);
    if (list && n != x->rank)
        kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT, "perm has %zu axes, and the operand has %zu",
                          n, x->rank);
    if (kiln__onnx_failed(call) || !mark_axes(call, list, n, x->rank, marked))
        return;
    for (size_t d = 0; d < x->rank; d++)
        axes[d] = list ? kiln__onnx_axis(call, list[d], x->rank) : x->rank - 1 - d;
    if (x->rank)
        give(call, 0, kiln__onnx_transpose(call, x, axes));
    else
        give(call, 0, *x);
}

static void expand(struct kiln__onnx_call *call)
{
    struct kiln__onnx_value *x = kiln__onnx_operand(call, 0);
    size_t n, wanted[KILN_MAX_RANK], rank, dims[KILN_MAX_RANK];
    if (!kiln__onnx_need(call, 0) || !kiln__onnx_need(call, 1))
        return;
    const int64_t *list = kiln__onnx_integers(call, 1, &n);
    if (kiln__onnx_failed(call) || !kiln__onnx_shape_of(call, list, n, wanted))
        return;
    rank = x->rank;
    memcpy(dims, x->dims, sizeof dims);
    if (kiln__onnx_join_shapes(call, &rank, dims, n, wanted))
        give(call, 0, kiln__onnx_broadcast(call, x, rank, dims));
}

/* Repeats along every axis: copies behind each other, where there is more than one. */
static void tile(struct kiln__onnx_call *call)
{
    size_t n;
    if (!kiln__onnx_need(call, 0) || !kiln__onnx_need(call, 1))
        return;
    const int64_t *repeats = kiln__onnx_integers(call, 1, &n);
    struct kiln__onnx_value y = *kiln__onnx_operand(call, 0);
    if (!kiln__onnx_failed(call) && n != y.rank)
        kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT, "%zu repeats of %zu dimensions", n, y.rank);
    for (size_t d = 0; d < n && !kiln__onnx_failed(call); d++) {
        size_t dims[KILN_MAX_RANK + 1];
        if (repeats[d] == 1)
            continue;
        /* [.., d, ..] as [.., 1, d, ..], repeated to [.., r, d, ..], is [.., r * d, ..]. */
        if (repeats[d] < 0 || repeats[d] > INT32_MAX || y.rank == KILN_MAX_RANK) {
            kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT, "%" PRId64 " repeats of %zu dimensions",
                              repeats[d], y.rank);
            return;
        }
        memcpy(dims, y.dims, d * sizeof *dims);
        dims[d] = 1;
        memcpy(dims + d + 1, y.dims + d, (y.rank - d) * sizeof *dims);
        size_t rank = y.rank;
        y = kiln__onnx_reshape(call, &y, rank + 1, dims);
        dims[d] = (size_t)repeats[d];
        size_t count;
        if (y.type && !kiln__onnx_count(rank + 1, dims, &count))
            kiln__onnx_refuse(call, KILN_TOO_LARGE, "more elements than can be counted");
        if (kiln__onnx_failed(call))
            return;
        y = kiln__onnx_broadcast(call, &y, rank + 1, dims);
        dims[d + 1] *= dims[d];
        memmove(dims + d, dims + d + 1, (rank - d) * sizeof *dims);
        if (y.type)
            y = kiln__onnx_reshape(call, &y, rank, dims);
    }
    give(call, 0, y);
}

static void concat(struct kiln__onnx_call *call)
{
    if (!kiln__onnx_need(call, 0))
        return;
    for (size_t i = 0; i < call->n_inputs; i++)
        if (!kiln__onnx_need(call, i))
            return;
    size_t axis = kiln__onnx_axis(call, kiln__onnx_int(call, "axis", 0), call->in[0]->rank);
    if (!kiln__onnx_failed(call))
        give(call, 0, kiln__onnx_concat(call, call->n_inputs, call->in, axis));
}

static void gather(struct kiln__onnx_call *call)
{
    if (!kiln__onnx_need(call, 0) || !kiln__onnx_need(call, 1))
        return;
    struct kiln__onnx_value *x = kiln__onnx_operand(call, 0), *at = kiln__onnx_operand(call, 1);
    size_t axis = kiln__onnx_axis(call, kiln__onnx_int(call, "axis", 0), x->rank);
    if (kiln__onnx_type_floats(at->type))
        kiln__onnx_refuse(call, KILN_TYPE_MISMATCH, "indices of type %s",
                          kiln__onnx_type_name(at->type));
    if (!kiln__onnx_failed(call))
        give(call, 0, kiln__onnx_gather(call, x, at, axis));
}

/* ---- parts ---- */

/* A range as numpy has it, clipped to the extent; of a negative step it ends above -1. */
static void clip_range(int64_t *start, int64_t stop, int64_t step, int64_t extent, size_t *count)
{
    int64_t low = step > 0 ? 0 : -1, high = step > 0 ? extent : extent - 1;
    *start += *start < 0 ? extent : 0;
    stop += stop < 0 ? extent : 0;
    *start = *start < low ? low : *start > high ? high : *start;
    stop = stop < low ? low : stop > high ? high : stop;
    int64_t distance = step > 0 ? stop - *start : *start - stop;
    uint64_t stride = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    *count = distance > 0 ? (size_t)(((uint64_t)distance - 1) / stride + 1) : 0;
    *start = *count ? *start : 0;
}

static void slice(struct kiln__onnx_call *call)
{
    struct kiln__onnx_value *x = kiln__onnx_operand(call, 0);
    size_t n, n_stops, n_axes, n_steps, count[KILN_MAX_RANK];
    int64_t start[KILN_MAX_RANK] = {0}, step[KILN_MAX_RANK];
    bool marked[KILN_MAX_RANK];
    if (!kiln__onnx_need(call, 0))
        return;
    bool old = call->version < 10;
    const int64_t *starts =
        old ? kiln__onnx_ints(call, "starts", &n) : kiln__onnx_integers(call, 1, &n);
    const int64_t *stops =
        old ? kiln__onnx_ints(call, "ends", &n_stops) : kiln__onnx_integers(call, 2, &n_stops);
    const int64_t *axes = kiln__onnx_list(call, "axes", 3, &n_axes);
    const int64_t *steps = kiln__onnx_integers(call, 4, &n_steps);
    if (kiln__onnx_failed(call))
        return;
    if (!starts || !stops || n_stops != n || (axes && n_axes != n) || (steps && n_steps != n) ||
        (!axes && n > x->rank)) {
        kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT,
                          "%zu starts, %zu ends, %zu axes and %zu steps for %zu dimensions", n,
                          n_stops, n_axes, n_steps, x->rank);
        return;
    }
    if (axes && !mark_axes(call, axes, n, x->rank, marked))
        return;
    for (size_t d = 0; d < x->rank; d++) {
        count[d] = x->dims[d];
        step[d] = 1;
    }
    for (size_t i = 0; i < n; i++) {
        size_t d = axes ? kiln__onnx_axis(call, axes[i], x->rank) : i;
        start[d] = starts[i];
        step[d] = steps ? steps[i] : 1;
        if (step[d] == 0) {
            kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT, "a step of 0");
            return;
        }
        clip_range(&start[d], stops[i], step[d], (int64_t)x->dims[d], &count[d]);
        step[d] = count[d] > 1 ? step[d] : 1;
    }
    give(call, 0, kiln__onnx_slice(call, x, start, step, count));
}

/* The sizes of the parts: as they are told, else equal ones, the last one perhaps smaller. */
static bool split_sizes(struct kiln__onnx_call *call, size_t extent, const int64_t *list, size_t n,
                        size_t *sizes)
{
    size_t parts = call->n_outputs, sum = 0;
    int64_t asked = kiln__onnx_int(call, "num_outputs", (int64_t)parts);
    size_t equal = (extent + parts - 1) / parts;
    for (size_t i = 0; i < parts; i++) {
        if (list && i < n)
            sizes[i] = list[i] < 0 || (uint64_t)list[i] > extent ? extent + 1 : (size_t)list[i];
        else
            sizes[i] = extent - sum < equal ? extent - sum : equal;
        sum += sizes[i];
        if (sum > extent)
            break;
    }
    if (sum == extent && (!list || n == parts) && asked == (int64_t)parts)
        return true;
    kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT,
                      "%zu elements are not cut into %zu parts as it is asked", extent, parts);
    return false;
}

static void split(struct kiln__onnx_call *call)
{
    struct kiln__onnx_value *x = kiln__onnx_operand(call, 0);
    size_t n;
    if (!kiln__onnx_need(call, 0))
        return;
    size_t axis = kiln__onnx_axis(call, kiln__onnx_int(call, "axis", 0), x->rank);
    const int64_t *list = kiln__onnx_list(call, "split", 1, &n);
    size_t *sizes = calloc(call->n_outputs + 1, sizeof *sizes);
    if (!sizes)
        kiln__onnx_refuse(call, KILN_OUT_OF_HOST_MEMORY, "no memory");
    int64_t start[KILN_MAX_RANK] = {0}, step[KILN_MAX_RANK];
    size_t count[KILN_MAX_RANK];
    for (size_t d = 0; d < x->rank; d++) {
        step[d] = 1;
        count[d] = x->dims[d];
    }
    if (!kiln__onnx_failed(call) && call->n_outputs &&
        split_sizes(call, x->dims[axis], list, n, sizes))
        for (size_t k = 0; k < call->n_outputs; k++) {
            count[axis] = sizes[k];
            give(call, k, kiln__onnx_slice(call, x, start, step, count));
            start[axis] += (int64_t)sizes[k];
        }
    free(sizes);
}

#define BIT KILN__ONNX_BIT

const struct kiln__onnx_row kiln__onnx_movement_rows[] = {
    KILN__ONNX_ROW("Reshape", 5, reshape, .known = BIT(1)),
    KILN__ONNX_ROW("Flatten", 1, flatten),
    KILN__ONNX_ROW("Squeeze", 1, squeeze, .known = BIT(1)),
    KILN__ONNX_ROW("Unsqueeze", 1, unsqueeze, .known = BIT(1)),
    KILN__ONNX_ROW("Transpose", 1, transpose),
    KILN__ONNX_ROW("Expand", 8, expand, .known = BIT(1)),
    KILN__ONNX_ROW("Tile", 6, tile, .known = BIT(1)),
    KILN__ONNX_ROW("Concat", 4, concat),
    KILN__ONNX_ROW("Gather", 1, gather),
    KILN__ONNX_ROW("Slice", 1, slice, .known = BIT(1) | BIT(2) | BIT(3) | BIT(4)),
    KILN__ONNX_ROW("Split", 2, split, .known = BIT(1)),
    {0},
};
