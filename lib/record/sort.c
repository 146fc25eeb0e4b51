/* SPDX-License-Identifier: Apache-2.0 */
/* Orders, along the last dimension; and what is in them, picked by position. */
#include <kiln/movement.h>

#include "record/call.h"
#include "record/operations.h"

/* x with the axis and the last dimension exchanged; itself if that is the last one. */
static kiln_tensor sort_exchange(kiln_batch *batch, kiln_tensor x, uint32_t axis, uint32_t rank)
{
    size_t order[KILN_MAX_RANK];
    for (uint32_t d = 0; d < rank; d++)
        order[d] = d == axis ? rank - 1 : d == rank - 1 ? axis : d;
    return axis + 1 == rank ? x : kiln_transpose(batch, x, order);
}

/* Positions of the first `kept` elements along the axis; NULL: of all. */
static kiln_tensor record_order(kiln_batch *batch, const char *call, kiln_tensor x,
                                const size_t *kept, int axis, bool descending, uint32_t *at)
{
    const struct kiln__node *input = kiln__batch_node(batch, x, call, "x");
    struct kiln__node node = {.kind = KILN__SORT, .type = KILN_I32, .n_inputs = 1};
    if (!input || !kiln__find_axis(batch, call, axis, input->shape.rank, at))
        return kiln__none;
    const uint32_t rank = input->shape.rank;
    const size_t extent = input->shape.dims[*at];
    if (extent > INT32_MAX) {
        kiln__fail(&batch->error, KILN_TOO_LARGE, "%s: %zu elements cannot be numbered by an i32",
                   call, extent);
        return kiln__none;
    }
    if (kept && *kept > extent) {
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT,
                   "%s: %zu elements are not along axis %u of shape %s", call, *kept, *at,
                   kiln__shape_text(&input->shape).text);
        return kiln__none;
    }
    kiln_tensor lines = sort_exchange(batch, x, *at, rank);
    input = kiln__batch_node(batch, lines, call, "x");
    if (!input)
        return kiln__none;
    node.op = descending ? KILN__SORT_DESCENDING : KILN__SORT_ASCENDING;
    node.shape = input->shape;
    node.shape.dims[rank - 1] = kept ? *kept : extent;
    node.input[0] = kiln__tensor_index(lines);
    return sort_exchange(batch, kiln__batch_record(batch, &node, call), *at, rank);
}

kiln_tensor kiln_argsort(kiln_batch *batch, kiln_tensor x, int axis, int descending)
{
    KILN__CALL(batch);
    uint32_t at;
    return record_order(batch, __func__, x, NULL, axis, descending != 0, &at);
}

kiln_tensor kiln_sort(kiln_batch *batch, kiln_tensor x, int axis, int descending)
{
    KILN__CALL(batch);
    uint32_t at;
    kiln_tensor order = record_order(batch, __func__, x, NULL, axis, descending != 0, &at);
    return order.id ? kiln_gather_elements(batch, x, order, (int)at) : kiln__none;
}

kiln_tensor kiln_topk(kiln_batch *batch, kiln_tensor x, size_t k, int axis, int smallest,
                      kiln_tensor *positions)
{
    KILN__CALL(batch);
    uint32_t at;
    if (positions)
        *positions = kiln__none;
    kiln_tensor first = record_order(batch, __func__, x, &k, axis, !smallest, &at);
    if (!first.id)
        return kiln__none;
    kiln_tensor values = kiln_gather_elements(batch, x, first, (int)at);
    if (positions && values.id)
        *positions = first;
    return values;
}
