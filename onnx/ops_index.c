/* SPDX-License-Identifier: Apache-2.0 */
/* Operators that put elements by positions, in order, or in triangles, and running sums. */
#include <inttypes.h>
#include <string.h>

#include "onnx/onnx.pb-c.h"
#include "onnx/values.h"

enum { INT64 = ONNX__TENSOR_PROTO__DATA_TYPE__INT64 };

/* Operands 0 to n - 1 are there, and that of number 1 has integers. */
static bool need(struct kiln__onnx_call *call, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!kiln__onnx_need(call, i))
            return false;
    const int type = kiln__onnx_operand(call, 1)->type;
    if (kiln__onnx_type_floats(type))
        kiln__onnx_refuse(call, KILN_TYPE_MISMATCH, "indices of type %s",
                          kiln__onnx_type_name(type));
    return !kiln__onnx_failed(call);
}

/* Indices of which negative ones count from the end, counted from the front. `extent`: of all, or
 * one for each element of their last dimension. */
static kiln_tensor from_front(struct kiln__onnx_call *call, kiln_tensor extent)
{
    kiln_batch *batch = call->batch;
    kiln_tensor at = kiln__onnx_positions(call, kiln__onnx_tensor(call, 1));
    kiln_tensor negative = kiln_less(batch, at, kiln_constant(batch, KILN_I32, 0));
    return kiln_where(batch, negative, kiln_add(batch, at, extent), at);
}

/* ---- single elements ---- */

static kiln_tensor elements_at(struct kiln__onnx_call *call, size_t *axis)
{
    struct kiln__onnx_value *x = kiln__onnx_operand(call, 0);
    *axis = kiln__onnx_axis(call, kiln__onnx_int(call, "axis", 0), x->rank);
    if (kiln__onnx_failed(call))
        return (kiln_tensor){0};
    return from_front(call, kiln_constant(call->batch, KILN_I32, (double)x->dims[*axis]));
}

static void gather_elements(struct kiln__onnx_call *call)
{
    size_t axis;
    if (!need(call, 2))
        return;
    kiln_tensor at = elements_at(call, &axis);
    if (!kiln__onnx_failed(call))
        kiln__onnx_give_like(
            call, kiln_gather_elements(call->batch, kiln__onnx_tensor(call, 0), at, (int)axis));
}

static bool read_mode(struct kiln__onnx_call *call, kiln_scatter_mode *mode)
{
    static const char *const names[] = {[KILN_SCATTER_SET] = "none",
                                        [KILN_SCATTER_ADD] = "add",
                                        [KILN_SCATTER_MUL] = "mul",
                                        [KILN_SCATTER_MIN] = "min",
                                        [KILN_SCATTER_MAX] = "max"};
    const char *name = kiln__onnx_string(call, "reduction", "none");
    for (int m = 0; m <= KILN_SCATTER_MAX; m++)
        if (!strcmp(names[m], name)) {
            *mode = (kiln_scatter_mode)m;
            return true;
        }
    kiln__onnx_refuse(call, KILN_UNSUPPORTED, "a reduction by '%s'", name);
    return false;
}

static void scatter_elements(struct kiln__onnx_call *call)
{
    kiln_scatter_mode mode;
    size_t axis;
    if (!need(call, 3) || !read_mode(call, &mode))
        return;
    kiln_tensor at = elements_at(call, &axis);
    if (!kiln__onnx_failed(call))
        kiln__onnx_give_like(call,
                             kiln_scatter_elements(call->batch, kiln__onnx_tensor(call, 0), at,
                                                   kiln__onnx_tensor(call, 2), (int)axis, mode));
}

/* ---- parts ---- */

/* Positions in the dimensions from number `first` on, each as long as it is. */
static bool parts_at(struct kiln__onnx_call *call, size_t first, kiln_tensor *at)
{
    struct kiln__onnx_value *x = kiln__onnx_operand(call, 0), *list = kiln__onnx_operand(call, 1);
    const size_t depth = list->rank ? list->dims[list->rank - 1] : 0;
    if (depth == 0 || first > x->rank || depth > x->rank - first) {
        kiln__onnx_refuse(call, KILN_SHAPE_MISMATCH, "indices for %zu dimensions of %zu", depth,
                          first < x->rank ? x->rank - first : 0);
        return false;
    }
    struct kiln__onnx_host *extents = kiln__onnx_new_host(call, INT64, 1, &depth);
    if (!extents)
        return false;
    for (size_t d = 0; d < depth; d++)
        extents->cells[d].i = (int64_t)x->dims[first + d];
    struct kiln__onnx_value value = {.type = INT64, .rank = 1, .dims = {depth}, .host = extents};
    kiln_tensor extent = kiln_cast(call->batch, kiln__onnx_tensor_of(call, &value), KILN_I32);
    *at = from_front(call, extent);
    return !kiln__onnx_failed(call);
}

static void gather_nd(struct kiln__onnx_call *call)
{
    kiln_tensor at;
    if (!need(call, 2))
        return;
    const int64_t first = kiln__onnx_int(call, "batch_dims", 0);
    if (first < 0 || first > KILN_MAX_RANK)
        kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT, "batch_dims is %" PRId64, first);
    if (!kiln__onnx_failed(call) && parts_at(call, (size_t)first, &at))
        kiln__onnx_give_like(
            call, kiln_gather_nd(call->batch, kiln__onnx_tensor(call, 0), at, (size_t)first));
}

static void scatter_nd(struct kiln__onnx_call *call)
{
    kiln_scatter_mode mode;
    kiln_tensor at;
    if (need(call, 3) && read_mode(call, &mode) && parts_at(call, 0, &at))
        kiln__onnx_give_like(call, kiln_scatter_nd(call->batch, kiln__onnx_tensor(call, 0), at,
                                                   kiln__onnx_tensor(call, 2), mode));
}

/* ---- order, triangles, running sums ---- */

static bool read_count(struct kiln__onnx_call *call, int64_t *k)
{
    size_t n = 1;
    *k = -1;
    if (call->version < 10) {
        *k = kiln__onnx_int(call, "k", -1);
    } else if (kiln__onnx_need(call, 1)) {
        const int64_t *list = kiln__onnx_integers(call, 1, &n);
        *k = list && n == 1 ? *list : -1;
    }
    if (*k < 0)
        kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT, "it is not said how many elements");
    return !kiln__onnx_failed(call);
}

static void top_k(struct kiln__onnx_call *call)
{
    int64_t k;
    kiln_tensor at;
    if (!kiln__onnx_need(call, 0) || !read_count(call, &k))
        return;
    const size_t axis =
        kiln__onnx_axis(call, kiln__onnx_int(call, "axis", -1), kiln__onnx_operand(call, 0)->rank);
    const int smallest = kiln__onnx_int(call, "largest", 1) == 0;
    if (kiln__onnx_failed(call))
        return;
    kiln_tensor first =
        kiln_topk(call->batch, kiln__onnx_tensor(call, 0), (size_t)k, (int)axis, smallest, &at);
    kiln__onnx_give_like(call, first);
    if (call->n_outputs > 1)
        kiln__onnx_give(call, 1, at, INT64);
}

static void trilu(struct kiln__onnx_call *call)
{
    size_t n;
    if (!kiln__onnx_need(call, 0))
        return;
    const int64_t *list = kiln__onnx_integers(call, 1, &n);
    const int upper = kiln__onnx_int(call, "upper", 1) != 0;
    if (!kiln__onnx_failed(call))
        kiln__onnx_give_like(call, kiln_triangle(call->batch, kiln__onnx_tensor(call, 0), upper,
                                                 list && n ? *list : 0));
}

static void cumulative_sum(struct kiln__onnx_call *call)
{
    size_t n;
    if (!kiln__onnx_need(call, 0) || !kiln__onnx_need(call, 1))
        return;
    const int64_t *list = kiln__onnx_integers(call, 1, &n);
    if (!kiln__onnx_failed(call) && n != 1)
        kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT, "%zu axes", n);
    if (kiln__onnx_failed(call))
        return;
    const int axis = (int)kiln__onnx_axis(call, *list, kiln__onnx_operand(call, 0)->rank);
    const int reverse = kiln__onnx_int(call, "reverse", 0) != 0;
    kiln_tensor x = kiln__onnx_tensor(call, 0);
    if (!kiln__onnx_failed(call))
        kiln__onnx_give_like(call, kiln__onnx_int(call, "exclusive", 0)
                                       ? kiln_cumsum_exclusive(call->batch, x, axis, reverse)
                                       : kiln_cumsum(call->batch, x, axis, reverse));
}

#define BIT KILN__ONNX_BIT

const struct kiln__onnx_row kiln__onnx_index_rows[] = {
    KILN__ONNX_ROW("GatherElements", 11, gather_elements),
    KILN__ONNX_ROW("GatherND", 11, gather_nd),
    KILN__ONNX_ROW("Scatter", 9, scatter_elements),
    KILN__ONNX_ROW("ScatterElements", 11, scatter_elements),
    KILN__ONNX_ROW("ScatterND", 11, scatter_nd),
    KILN__ONNX_ROW_UNTIL("TopK", 1, 9, top_k),
    KILN__ONNX_ROW("TopK", 10, top_k, .known = BIT(1)),
    KILN__ONNX_ROW("Trilu", 14, trilu, .known = BIT(1)),
    KILN__ONNX_ROW("CumSum", 11, cumulative_sum, .known = BIT(1)),
    {0},
};
