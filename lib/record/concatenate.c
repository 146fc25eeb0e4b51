/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors put together from parts: chains of insertions, which run in one memory. */
#include <kiln/movement.h>

#include <stdio.h>
#include <stdlib.h>

#include "record/batch.h"
#include "record/call.h"

/* The node of the one of several operands that a sentence calls "parts[i]". */
static const struct kiln__node *part_node(kiln_batch *batch, const char *call,
                                          const kiln_tensor *parts, size_t i)
{
    char name[32];
    snprintf(name, sizeof name, "parts[%zu]", i);
    return kiln__batch_node(batch, parts[i], call, name);
}

/* Record `part` put over `base` by a view; without a base the rest is undefined. */
static kiln_tensor record_insertion(kiln_batch *batch, const char *call, kiln_tensor part,
                                    const kiln_tensor *base, const struct kiln__shape *shape,
                                    const struct kiln__view *view)
{
    const struct kiln__node *node = kiln__batch_node(batch, part, call, "part");
    if (!node)
        return kiln__none;
    struct kiln__node insertion = {.kind = KILN__INSERT_SLICE, .type = node->type, .n_inputs = 1};
    insertion.shape = *shape;
    insertion.view = *view;
    insertion.input[0] = kiln__tensor_index(part);
    if (base)
        insertion.input[insertion.n_inputs++] = kiln__tensor_index(*base);
    return kiln__batch_record(batch, &insertion, call);
}

/* ---- insertions ---- */

static bool check_part(kiln_batch *batch, const char *call, const struct kiln__node *x,
                       const struct kiln__node *part)
{
    if (part->type != x->type)
        kiln__fail(&batch->error, KILN_TYPE_MISMATCH,
                   "%s: x is %s and part is %s; cast one of them", call, kiln_type_name(x->type),
                   kiln_type_name(part->type));
    else if (part->shape.rank != x->shape.rank)
        kiln__fail(&batch->error, KILN_SHAPE_MISMATCH,
                   "%s: x of shape %s and part of shape %s differ in rank", call,
                   kiln__shape_text(&x->shape).text, kiln__shape_text(&part->shape).text);
    return !batch->error.status;
}

/* Whether elements from, from + by, ... of which there are `count` are within `extent`. Compared by
 * division: products may overflow. */
static bool indices_fit(int64_t from, int64_t by, size_t count, size_t extent)
{
    if (count == 0)
        return true;
    if (from < 0 || from >= (int64_t)extent || (by == 0 && count > 1))
        return false;
    uint64_t size = by < 0 ? -(uint64_t)by : (uint64_t)by;
    uint64_t room = by < 0 ? (uint64_t)from : extent - 1 - (uint64_t)from;
    return count == 1 || count - 1 <= room / size;
}

kiln_tensor kiln_insert_slice(kiln_batch *batch, kiln_tensor x, kiln_tensor part,
                              const int64_t *start, const int64_t *step)
{
    KILN__CALL(batch);
    const struct kiln__node *base = kiln__batch_node(batch, x, __func__, "x");
    const struct kiln__node *top = base ? kiln__batch_node(batch, part, __func__, "part") : NULL;
    if (!top || !check_part(batch, __func__, base, top))
        return kiln__none;
    const struct kiln__shape shape = base->shape;
    struct kiln__view view = kiln__view_straight(shape.rank);
    if (shape.rank && !start) {
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT, "%s: start is NULL", __func__);
        return kiln__none;
    }
    for (uint32_t d = 0; d < shape.rank; d++) {
        size_t count = top->shape.dims[d];
        int64_t by = step ? step[d] : 1;
        if (!indices_fit(start[d], by, count, shape.dims[d])) {
            kiln__fail(&batch->error, KILN_INVALID_ARGUMENT,
                       "%s: %zu elements from %lld by %lld are not within dimension %u, which "
                       "has %zu",
                       __func__, count, (long long)start[d], (long long)by, d, shape.dims[d]);
            return kiln__none;
        }
        view.start[d] = count ? start[d] : 0;
        view.step[d] = count > 1 ? by : 1; /* as kiln_slice() has it, so that they compare equal */
    }
    return record_insertion(batch, __func__, part, &x, &shape, &view);
}

/* ---- pad ---- */

/* False, with the error recorded, where a dimension would grow too large. */
static bool padded_shape(kiln_batch *batch, const struct kiln__shape *from, const size_t *low,
                         const size_t *high, struct kiln__shape *to)
{
    struct kiln__shape shape = *from;
    bool fits = true;
    for (uint32_t d = 0; d < from->rank; d++) {
        fits =
            fits && low[d] <= SIZE_MAX - high[d] && from->dims[d] <= SIZE_MAX - (low[d] + high[d]);
        shape.dims[d] += low[d] + high[d];
    }
    if (!fits || !kiln__shape_make(shape.rank, shape.dims, to))
        kiln__fail(&batch->error, KILN_TOO_LARGE,
                   "kiln_pad: shape %s is padded to too many elements",
                   kiln__shape_text(from).text);
    return !batch->error.status;
}

kiln_tensor kiln_pad(kiln_batch *batch, kiln_tensor x, const size_t *low, const size_t *high,
                     double value)
{
    KILN__CALL(batch);
    const struct kiln__node *node = kiln__batch_node(batch, x, __func__, "x");
    if (!node)
        return kiln__none;
    struct kiln__shape shape;
    struct kiln__view view = kiln__view_straight(node->shape.rank);
    if (node->shape.rank && (!low || !high)) {
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT, "%s: %s is NULL", __func__,
                   low ? "high" : "low");
        return kiln__none;
    }
    if (!padded_shape(batch, &node->shape, low, high, &shape))
        return kiln__none;
    for (uint32_t d = 0; d < shape.rank; d++)
        view.start[d] = node->shape.dims[d] ? (int64_t)low[d] : 0;
    kiln_tensor base = kiln__record_fill(batch, __func__, node->type, &shape, value);
    return batch->error.status ? kiln__none
                               : record_insertion(batch, __func__, x, &base, &shape, &view);
}

/* ---- concat, stack ---- */

static bool check_parts(kiln_batch *batch, const char *call, size_t n, const kiln_tensor *parts)
{
    if (!kiln__batch_is_open(batch, call))
        return false;
    if (n == 0 || !parts)
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT, "%s: %s", call,
                   n ? "parts is NULL" : "there are no parts");
    return !batch->error.status;
}

bool kiln__find_axis(kiln_batch *batch, const char *call, int axis, uint32_t rank, uint32_t *found)
{
    int64_t at = axis < 0 ? (int64_t)axis + rank : axis;
    if (at < 0 || at >= rank)
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT, "%s: there is no axis %d in %u dimensions",
                   call, axis, rank);
    *found = (uint32_t)at;
    return !batch->error.status;
}

static bool differs_elsewhere(const struct kiln__shape *a, const struct kiln__shape *b,
                              uint32_t axis)
{
    bool differs = a->rank != b->rank;
    for (uint32_t d = 0; !differs && d < a->rank; d++)
        differs = d != axis && a->dims[d] != b->dims[d];
    return differs;
}

/* Add the extent of part `i` to `shape`, which begins as that of the first. */
static bool add_extent(kiln_batch *batch, const char *call, const kiln_tensor *parts, size_t i,
                       uint32_t axis, struct kiln__shape *shape)
{
    const struct kiln__node *first = part_node(batch, call, parts, 0);
    const struct kiln__node *part = part_node(batch, call, parts, i);
    struct kiln__shape grown = *shape;
    if (!part)
        return false;
    grown.dims[axis] += part->shape.dims[axis]; /* both are below 2^60 */
    if (part->type != first->type)
        kiln__fail(&batch->error, KILN_TYPE_MISMATCH,
                   "%s: parts[0] is %s and parts[%zu] is %s; cast one of them", call,
                   kiln_type_name(first->type), i, kiln_type_name(part->type));
    else if (differs_elsewhere(&first->shape, &part->shape, axis))
        kiln__fail(&batch->error, KILN_SHAPE_MISMATCH,
                   "%s: parts[0] of shape %s and parts[%zu] of shape %s differ beside axis %u",
                   call, kiln__shape_text(&first->shape).text, i,
                   kiln__shape_text(&part->shape).text, axis);
    else if (!kiln__shape_make(grown.rank, grown.dims, shape))
        kiln__fail(&batch->error, KILN_TOO_LARGE, "%s: the parts together have too many elements",
                   call);
    return !batch->error.status;
}

/* The first part needs nothing below it: all together cover everything. */
static kiln_tensor concatenate_join(kiln_batch *batch, const char *call, size_t n,
                                    const kiln_tensor *parts, uint32_t axis)
{
    struct kiln__shape shape = part_node(batch, call, parts, 0)->shape;
    kiln_tensor whole = kiln__none;
    size_t from = 0;
    for (size_t i = 1; i < n; i++)
        if (!add_extent(batch, call, parts, i, axis, &shape))
            return kiln__none;
    for (size_t i = 0; i < n && !batch->error.status; i++) {
        struct kiln__view view = kiln__view_straight(shape.rank);
        size_t length = part_node(batch, call, parts, i)->shape.dims[axis];
        if (length == 0 && i + 1 < n)
            continue;
        view.start[axis] = length ? (int64_t)from : 0;
        whole = record_insertion(batch, call, parts[i], from ? &whole : NULL, &shape, &view);
        from += length;
    }
    return whole;
}

kiln_tensor kiln_concat(kiln_batch *batch, size_t n, const kiln_tensor *parts, int axis)
{
    KILN__CALL(batch);
    uint32_t at;
    if (!check_parts(batch, __func__, n, parts))
        return kiln__none;
    const struct kiln__node *first = part_node(batch, __func__, parts, 0);
    if (!first || !kiln__find_axis(batch, __func__, axis, first->shape.rank, &at))
        return kiln__none;
    return concatenate_join(batch, __func__, n, parts, at);
}

/* `part` with a dimension of 1 at `axis`. */
static kiln_tensor add_axis(kiln_batch *batch, kiln_tensor part, const struct kiln__shape *from,
                            uint32_t axis)
{
    size_t dims[KILN_MAX_RANK];
    for (uint32_t d = 0; d <= from->rank; d++)
        dims[d] = d == axis ? 1 : from->dims[d - (d > axis)];
    return kiln_reshape(batch, part, from->rank + 1, dims);
}

kiln_tensor kiln_stack(kiln_batch *batch, size_t n, const kiln_tensor *parts, int axis)
{
    KILN__CALL(batch);
    uint32_t at;
    if (!check_parts(batch, __func__, n, parts))
        return kiln__none;
    const struct kiln__node *first = part_node(batch, __func__, parts, 0);
    if (!first || !kiln__find_axis(batch, __func__, axis, first->shape.rank + 1, &at))
        return kiln__none;
    const struct kiln__shape shape = first->shape;
    if (shape.rank == KILN_MAX_RANK) {
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT,
                   "%s: parts of shape %s leave no room for one more dimension", __func__,
                   kiln__shape_text(&shape).text);
        return kiln__none;
    }
    kiln_tensor *deep = malloc(n * sizeof *deep);
    if (!deep) {
        kiln__fail(&batch->error, KILN_OUT_OF_HOST_MEMORY, "%s: no memory to record", __func__);
        return kiln__none;
    }
    for (size_t i = 0; i < n && !batch->error.status; i++) {
        const struct kiln__node *part = part_node(batch, __func__, parts, i);
        if (part && !kiln__shape_equal(&part->shape, &shape))
            kiln__fail(&batch->error, KILN_SHAPE_MISMATCH,
                       "%s: parts[0] of shape %s and parts[%zu] of shape %s differ", __func__,
                       kiln__shape_text(&shape).text, i, kiln__shape_text(&part->shape).text);
        else
            deep[i] = add_axis(batch, parts[i], &shape, at);
    }
    kiln_tensor whole =
        batch->error.status ? kiln__none : concatenate_join(batch, __func__, n, deep, at);
    free(deep);
    return whole;
}

/* ---- split ---- */

/* The sizes add up to what there is to cut. */
static bool check_sizes(kiln_batch *batch, size_t n, const size_t *sizes, size_t extent)
{
    size_t left = extent;
    bool fits = n > 0 && (sizes || extent % n == 0);
    for (size_t i = 0; fits && sizes && i < n; i++) {
        fits = sizes[i] <= left;
        left -= fits ? sizes[i] : 0;
    }
    if (!fits || (sizes && left))
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT,
                   sizes ? "kiln_split: the sizes of %zu parts do not add up to the %zu elements"
                         : "kiln_split: there are no %zu equal parts of %zu elements",
                   n, extent);
    return !batch->error.status;
}

kiln_status kiln_split(kiln_batch *batch, kiln_tensor x, int axis, size_t n, const size_t *sizes,
                       kiln_tensor *parts)
{
    KILN__CALL(batch);
    uint32_t at;
    for (size_t i = 0; parts && i < n; i++)
        parts[i] = kiln__none;
    const struct kiln__node *node = kiln__batch_node(batch, x, __func__, "x");
    if (!node)
        return batch ? batch->error.status : KILN_INVALID_ARGUMENT;
    KILN__RETURN_IF_NULL(&batch->error, __func__, parts);
    const struct kiln__shape shape = node->shape;
    if (!kiln__find_axis(batch, __func__, axis, shape.rank, &at) ||
        !check_sizes(batch, n, sizes, shape.dims[at]))
        return batch->error.status;
    int64_t from[KILN_MAX_RANK] = {0}, stop[KILN_MAX_RANK] = {0};
    for (uint32_t d = 0; d < shape.rank; d++)
        stop[d] = (int64_t)shape.dims[d];
    stop[at] = 0;
    for (size_t i = 0; i < n; i++) {
        from[at] = stop[at];
        stop[at] += (int64_t)(sizes ? sizes[i] : shape.dims[at] / n);
        parts[i] = kiln_slice(batch, x, from, stop, NULL);
    }
    for (size_t i = 0; batch->error.status && i < n; i++)
        parts[i] = kiln__none;
    return batch->error.status;
}
