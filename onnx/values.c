/* SPDX-License-Identifier: Apache-2.0 */
/* Reshape, slice, transpose, concatenation and the like on values, folded on the host where they
 * are small and known. */
#include "onnx/values.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "onnx/error.h"
#include "onnx/model.h"

bool kiln__onnx_fits_host(int type, size_t rank, const size_t *dims)
{
    size_t count;
    return kiln__onnx_count(rank, dims, &count) && kiln__onnx_is_small(type, count);
}

/* A value on the host alone, its elements to be filled; NULL in host after a failure. */
static struct kiln__onnx_value on_host(struct kiln__onnx_call *call, int type, size_t rank,
                                       const size_t *dims, struct kiln__onnx_host **host)
{
    struct kiln__onnx_value value = {0};
    *host = kiln__onnx_new_host(call, type, rank, dims);
    if (!*host)
        return value;
    value = (struct kiln__onnx_value){.type = type, .rank = rank, .host = *host};
    memcpy(value.dims, (*host)->dims, sizeof value.dims);
    return value;
}

static struct kiln__onnx_value on_device(struct kiln__onnx_call *call, int type, kiln_tensor tensor)
{
    struct kiln__onnx_value value = {.type = type, .tensor = tensor};
    if (!tensor.id || kiln_tensor_shape(call->batch, tensor, NULL, &value.rank, value.dims))
        value.type = 0;
    return value;
}

/* Odometer over a shape: from one index to the next, false after the last. */
static bool advance(size_t rank, const size_t *dims, size_t *index)
{
    for (size_t d = rank; d-- > 0;) {
        if (++index[d] < dims[d])
            return true;
        index[d] = 0;
    }
    return false;
}

/* Copy elements: element `index` of the result is number base + sum of index[d] * stride[d]. */
static void copy_strided(struct kiln__onnx_host *to, const union kiln__onnx_cell *from,
                         int64_t base, const int64_t *stride)
{
    size_t index[KILN_MAX_RANK] = {0};
    for (size_t i = 0; i < to->count; i++) {
        int64_t at = base;
        for (size_t d = 0; d < to->rank; d++)
            at += (int64_t)index[d] * stride[d];
        to->cells[i] = from[at];
        advance(to->rank, to->dims, index);
    }
}

bool kiln__onnx_has_shape(const struct kiln__onnx_value *value, size_t rank, const size_t *dims)
{
    return rank == value->rank && (!rank || !memcmp(dims, value->dims, rank * sizeof *dims));
}

static void strides_of(size_t rank, const size_t *dims, int64_t *stride)
{
    int64_t step = 1;
    for (size_t d = rank; d-- > 0;) {
        stride[d] = step;
        step *= (int64_t)dims[d];
    }
}

struct kiln__onnx_value kiln__onnx_reshape(struct kiln__onnx_call *call,
                                           struct kiln__onnx_value *value, size_t rank,
                                           const size_t *dims)
{
    if (kiln__onnx_has_shape(value, rank, dims))
        return *value;
    if (!value->host)
        return on_device(call, value->type,
                         kiln_reshape(call->batch, kiln__onnx_tensor_of(call, value), rank, dims));
    struct kiln__onnx_host *host;
    struct kiln__onnx_value result = on_host(call, value->type, rank, dims, &host);
    if (host)
        memcpy(host->cells, value->host->cells, host->count * sizeof *host->cells);
    /* What lies on the device already is not to be brought there again. */
    if (host && value->tensor.id)
        result.tensor = kiln_reshape(call->batch, value->tensor, rank, dims);
    return result;
}

struct kiln__onnx_value kiln__onnx_transpose(struct kiln__onnx_call *call,
                                             struct kiln__onnx_value *value, const size_t *axes)
{
    if (!value->host)
        return on_device(call, value->type,
                         kiln_transpose(call->batch, kiln__onnx_tensor_of(call, value), axes));
    int64_t stride[KILN_MAX_RANK], turned[KILN_MAX_RANK];
    size_t dims[KILN_MAX_RANK];
    strides_of(value->rank, value->dims, stride);
    for (size_t d = 0; d < value->rank; d++) {
        dims[d] = value->dims[axes[d]];
        turned[d] = stride[axes[d]];
    }
    struct kiln__onnx_host *host;
    struct kiln__onnx_value result = on_host(call, value->type, value->rank, dims, &host);
    if (host)
        copy_strided(host, value->host->cells, 0, turned);
    return result;
}

static kiln_tensor slice_tensor(struct kiln__onnx_call *call, struct kiln__onnx_value *value,
                                const int64_t *start, const int64_t *step, const size_t *count)
{
    int64_t stop[KILN_MAX_RANK], from[KILN_MAX_RANK], steps[KILN_MAX_RANK];
    for (size_t d = 0; d < value->rank; d++) {
        /* Of no elements kiln wants an empty range that is inside. */
        from[d] = count[d] ? start[d] : 0;
        steps[d] = count[d] > 1 ? step[d] : 1;
        stop[d] = count[d] > 1
                      ? start[d] + ((int64_t)count[d] - 1) * step[d] + (step[d] > 0 ? 1 : -1)
                      : from[d] + (int64_t)count[d];
    }
    return kiln_slice(call->batch, kiln__onnx_tensor_of(call, value), from, stop, steps);
}

struct kiln__onnx_value kiln__onnx_slice(struct kiln__onnx_call *call,
                                         struct kiln__onnx_value *value, const int64_t *start,
                                         const int64_t *step, const size_t *count)
{
    if (!value->host)
        return on_device(call, value->type, slice_tensor(call, value, start, step, count));
    int64_t stride[KILN_MAX_RANK], base = 0;
    strides_of(value->rank, value->dims, stride);
    for (size_t d = 0; d < value->rank; d++) {
        base += start[d] * stride[d];
        stride[d] *= step[d];
    }
    struct kiln__onnx_host *host;
    struct kiln__onnx_value result = on_host(call, value->type, value->rank, count, &host);
    if (host)
        copy_strided(host, value->host->cells, base, stride);
    return result;
}

bool kiln__onnx_join_shapes(struct kiln__onnx_call *call, size_t *rank, size_t *dims,
                            size_t other_rank, const size_t *other)
{
    size_t joined = *rank > other_rank ? *rank : other_rank;
    size_t result[KILN_MAX_RANK];
    char words[KILN__ONNX_SHAPE], others[KILN__ONNX_SHAPE];
    for (size_t d = 0; d < joined; d++) {
        size_t a = d + *rank >= joined ? dims[d + *rank - joined] : 1;
        size_t b = d + other_rank >= joined ? other[d + other_rank - joined] : 1;
        if (a != b && a != 1 && b != 1) {
            kiln__onnx_refuse(call, KILN_SHAPE_MISMATCH, "%s and %s do not broadcast",
                              kiln__onnx_shape(words, *rank, dims),
                              kiln__onnx_shape(others, other_rank, other));
            return false;
        }
        result[d] = a == 1 ? b : a;
    }
    memcpy(dims, result, joined * sizeof *dims);
    *rank = joined;
    return true;
}

struct kiln__onnx_value kiln__onnx_broadcast(struct kiln__onnx_call *call,
                                             struct kiln__onnx_value *value, size_t rank,
                                             const size_t *dims)
{
    if (kiln__onnx_has_shape(value, rank, dims))
        return *value;
    double number;
    bool here = value->host && kiln__onnx_fits_host(value->type, rank, dims);
    if (!here && value->host && kiln__onnx_host_uniform(value->host, &number))
        return on_device(
            call, value->type,
            kiln_fill(call->batch, kiln__onnx_type(value->type)->computed, rank, dims, number));
    if (!here)
        return on_device(
            call, value->type,
            kiln_broadcast(call->batch, kiln__onnx_tensor_of(call, value), rank, dims));
    int64_t stride[KILN_MAX_RANK], wide[KILN_MAX_RANK] = {0};
    strides_of(value->rank, value->dims, stride);
    for (size_t d = 0; d < value->rank; d++)
        wide[d + rank - value->rank] = value->dims[d] == 1 ? 0 : stride[d];
    struct kiln__onnx_host *host;
    struct kiln__onnx_value result = on_host(call, value->type, rank, dims, &host);
    if (host)
        copy_strided(host, value->host->cells, 0, wide);
    return result;
}

/* ---- several values ---- */

static bool all_known(size_t n, struct kiln__onnx_value **values)
{
    for (size_t i = 0; i < n; i++)
        if (!values[i]->host)
            return false;
    return true;
}

/* The shape of values behind each other; refuses those that differ elsewhere. */
static bool joined_shape(struct kiln__onnx_call *call, size_t n, struct kiln__onnx_value **values,
                         size_t axis, size_t *dims)
{
    memcpy(dims, values[0]->dims, sizeof values[0]->dims);
    char words[KILN__ONNX_SHAPE], others[KILN__ONNX_SHAPE];
    for (size_t i = 1; i < n; i++) {
        bool alike = values[i]->rank == values[0]->rank;
        for (size_t d = 0; alike && d < values[0]->rank; d++)
            alike = d == axis || values[i]->dims[d] == values[0]->dims[d];
        if (!alike || values[i]->type != values[0]->type) {
            kiln__onnx_refuse(call, KILN_SHAPE_MISMATCH,
                              "%s %s and %s %s do not fit behind each other along axis %zu",
                              kiln__onnx_type_name(values[0]->type),
                              kiln__onnx_shape(words, values[0]->rank, values[0]->dims),
                              kiln__onnx_type_name(values[i]->type),
                              kiln__onnx_shape(others, values[i]->rank, values[i]->dims), axis);
            return false;
        }
        dims[axis] += values[i]->dims[axis];
    }
    return true;
}

static void concat_host(struct kiln__onnx_host *to, size_t n, struct kiln__onnx_value **values,
                        size_t axis)
{
    size_t outer = 1, inner = 1;
    union kiln__onnx_cell *at = to->cells;
    if (!to->count) /* whatever its other dimensions are */
        return;
    for (size_t d = 0; d < axis; d++)
        outer *= to->dims[d];
    for (size_t d = axis + 1; d < to->rank; d++)
        inner *= to->dims[d];
    for (size_t o = 0; o < outer; o++)
        for (size_t i = 0; i < n; i++) {
            size_t run = values[i]->dims[axis] * inner;
            memcpy(at, values[i]->host->cells + o * run, run * sizeof *at);
            at += run;
        }
}

enum { FEW = 16 };

static kiln_tensor concat_tensors(struct kiln__onnx_call *call, size_t n,
                                  struct kiln__onnx_value **values, size_t axis)
{
    kiln_tensor parts[FEW], all = {0};
    size_t have = 0;
    for (size_t i = 0; i < n; i++) {
        kiln_tensor part = kiln__onnx_tensor_of(call, values[i]);
        if (values[i]->dims[axis] == 0 && !(i + 1 == n && !have && !all.id))
            continue; /* adds nothing */
        if (have == FEW) {
            parts[0] = kiln_concat(call->batch, have, parts, (int)axis);
            have = 1;
        }
        parts[have++] = part;
    }
    return have == 1 ? parts[0] : kiln_concat(call->batch, have, parts, (int)axis);
}

/* Parts of one type for kiln, too: what is stored narrowly may stand beside what was computed. */
static void align_types(struct kiln__onnx_call *call, size_t n, struct kiln__onnx_value **values)
{
    kiln_type computed = kiln__onnx_type(values[0]->type)->computed, type;
    bool mixed = false;
    for (size_t i = 0; i < n; i++) {
        kiln_tensor tensor = kiln__onnx_tensor_of(call, values[i]);
        mixed = mixed ||
                (!kiln_tensor_shape(call->batch, tensor, &type, NULL, NULL) && type != computed);
    }
    for (size_t i = 0; i < n && mixed; i++)
        values[i]->tensor = kiln_cast(call->batch, values[i]->tensor, computed);
}

struct kiln__onnx_value kiln__onnx_concat(struct kiln__onnx_call *call, size_t n,
                                          struct kiln__onnx_value **values, size_t axis)
{
    size_t dims[KILN_MAX_RANK];
    if (!joined_shape(call, n, values, axis, dims))
        return (struct kiln__onnx_value){0};
    int type = values[0]->type;
    if (!all_known(n, values) || !kiln__onnx_fits_host(type, values[0]->rank, dims)) {
        align_types(call, n, values);
        return on_device(call, type, concat_tensors(call, n, values, axis));
    }
    struct kiln__onnx_host *host;
    struct kiln__onnx_value result = on_host(call, type, values[0]->rank, dims, &host);
    if (host)
        concat_host(host, n, values, axis);
    return result;
}

/* Whether indices that are known lie in an axis; refuses the node where one does not. */
static bool are_inside(struct kiln__onnx_call *call, const struct kiln__onnx_host *indices,
                       size_t axis, size_t extent)
{
    for (size_t i = 0; i < indices->count; i++) {
        int64_t index = indices->cells[i].i;
        if (index < -(int64_t)extent || index >= (int64_t)extent) {
            kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT,
                              "index %" PRId64 " of %zu elements along axis %zu", index, extent,
                              axis);
            return false;
        }
    }
    return true;
}

static void gather_host(struct kiln__onnx_host *to, const struct kiln__onnx_host *from,
                        const struct kiln__onnx_host *indices, size_t axis)
{
    size_t outer = 1, inner = 1, extent = from->dims[axis];
    union kiln__onnx_cell *at = to->cells;
    for (size_t d = 0; d < axis; d++)
        outer *= from->dims[d];
    for (size_t d = axis + 1; d < from->rank; d++)
        inner *= from->dims[d];
    for (size_t o = 0; to->count && o < outer; o++)
        for (size_t i = 0; i < indices->count; i++) {
            int64_t index = indices->cells[i].i;
            size_t row = (size_t)(index < 0 ? index + (int64_t)extent : index);
            memcpy(at, from->cells + (o * extent + row) * inner, inner * sizeof *at);
            at += inner;
        }
}

/* Indices on the device, with negative ones counted from the end: in files they are rare, but
 * allowed. Where they are known they are put right here. */
static kiln_tensor positive(struct kiln__onnx_call *call, struct kiln__onnx_value *indices,
                            size_t extent)
{
    kiln_tensor tensor;
    if (indices->host) {
        bool negative = false;
        for (size_t i = 0; i < indices->host->count; i++)
            negative = negative || indices->host->cells[i].i < 0;
        if (!negative)
            return kiln__onnx_tensor_of(call, indices);
        struct kiln__onnx_host *host;
        struct kiln__onnx_value right =
            on_host(call, indices->type, indices->rank, indices->dims, &host);
        for (size_t i = 0; host && i < host->count; i++) {
            host->cells[i].i = indices->host->cells[i].i;
            host->cells[i].i += host->cells[i].i < 0 ? (int64_t)extent : 0;
        }
        return kiln__onnx_tensor_of(call, &right);
    }
    tensor = kiln__onnx_positions(call, kiln__onnx_tensor_of(call, indices));
    kiln_tensor zero = kiln_constant(call->batch, KILN_I32, 0);
    kiln_tensor more = kiln_constant(call->batch, KILN_I32, (double)extent);
    return kiln_where(call->batch, kiln_less(call->batch, tensor, zero),
                      kiln_add(call->batch, tensor, more), tensor);
}

struct kiln__onnx_value kiln__onnx_gather(struct kiln__onnx_call *call,
                                          struct kiln__onnx_value *value,
                                          struct kiln__onnx_value *indices, size_t axis)
{
    size_t dims[KILN_MAX_RANK], rank = 0;
    if (value->rank + indices->rank > KILN_MAX_RANK + 1) {
        kiln__onnx_refuse(call, KILN_UNSUPPORTED, "a result of more than %d dimensions",
                          KILN_MAX_RANK);
        return (struct kiln__onnx_value){0};
    }
    for (size_t d = 0; d < axis; d++)
        dims[rank++] = value->dims[d];
    for (size_t d = 0; d < indices->rank; d++)
        dims[rank++] = indices->dims[d];
    for (size_t d = axis + 1; d < value->rank; d++)
        dims[rank++] = value->dims[d];
    if (indices->host && !are_inside(call, indices->host, axis, value->dims[axis]))
        return (struct kiln__onnx_value){0};
    if (!value->host || !indices->host || !kiln__onnx_fits_host(value->type, rank, dims)) {
        kiln_tensor rows = positive(call, indices, value->dims[axis]);
        return on_device(
            call, value->type,
            kiln_gather(call->batch, kiln__onnx_tensor_of(call, value), rows, (int)axis));
    }
    struct kiln__onnx_host *host;
    struct kiln__onnx_value result = on_host(call, value->type, rank, dims, &host);
    if (host)
        gather_host(host, value->host, indices->host, axis);
    return result;
}

/* ---- types ---- */

/* The ends of an integer type at which what is floating saturates: those of 8 to 32 bits, and
 * without a sign. ONNX's own tests have 4 bits wrap. */
static bool range_of(int type, double range[2])
{
    const struct kiln__onnx_type *known = kiln__onnx_type(type);
    const bool is_signed = known->storage == KILN__ONNX_SIGNED;
    const double count = ldexp(1, (int)known->bits);
    range[0] = is_signed ? -count / 2 : 0;
    range[1] = is_signed ? count / 2 - 1 : count - 1;
    return known->bits >= 8 && (known->bits < 64 || !is_signed);
}

static union kiln__onnx_cell cast_cell(union kiln__onnx_cell cell, bool from_floats, int type)
{
    bool floats = kiln__onnx_type_floats(type);
    double range[2];
    if (from_floats && !floats && kiln__onnx_type(type)->type == KILN_BOOL)
        cell.i = cell.f != 0;
    else if (from_floats && !floats)
        cell.i = kiln__onnx_integer(range_of(type, range) ? fmin(fmax(cell.f, range[0]), range[1])
                                                          : cell.f);
    else if (!from_floats && floats)
        cell.f = (double)cell.i;
    return kiln__onnx_host_round(type, cell);
}

/* The type to convert to on the device: one that rounds where ONNX's does, else what is computed.
 */
static kiln_type cast_type(int type)
{
    kiln_type stored = kiln__onnx_type(type)->type;
    bool rounds =
        stored == KILN_F16 || stored == KILN_BF16 || stored == KILN_I8 || stored == KILN_BOOL;
    return rounds ? stored : kiln__onnx_type(type)->computed;
}

/* What is floating saturates, as range_of() has it; types that kiln has not saturate here. */
static kiln_tensor cast_tensor(struct kiln__onnx_call *call, kiln_tensor x, int from, int type)
{
    const struct kiln__onnx_type *to = kiln__onnx_type(type);
    double range[2];
    bool integer = to->type == to->computed && !kiln__onnx_type_floats(type);
    if (kiln__onnx_type_floats(from) && integer && range_of(type, range) &&
        (to->bits != 8 * kiln_type_size(to->type) || range[0] == 0))
        x = kiln_clamp(call->batch, x, range[0], range[1]);
    if (to->bits < 8)
        x = kiln_cast(call->batch, x, KILN_I32);
    return kiln__onnx_settle(call, kiln_cast(call->batch, x, cast_type(type)), type);
}

struct kiln__onnx_value kiln__onnx_cast(struct kiln__onnx_call *call,
                                        struct kiln__onnx_value *value, int type)
{
    if (!kiln__onnx_type(type)) {
        kiln__onnx_refuse(call, KILN_UNSUPPORTED, "a cast to type %s", kiln__onnx_type_name(type));
        return (struct kiln__onnx_value){0};
    }
    if (type == value->type)
        return *value;
    if (!value->host || !kiln__onnx_fits_host(type, value->rank, value->dims))
        return on_device(call, type,
                         cast_tensor(call, kiln__onnx_tensor_of(call, value), value->type, type));
    struct kiln__onnx_host *host;
    struct kiln__onnx_value result = on_host(call, type, value->rank, value->dims, &host);
    for (size_t i = 0; host && i < host->count; i++)
        host->cells[i] = cast_cell(value->host->cells[i], value->host->floats, type);
    return result;
}
