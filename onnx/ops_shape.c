/* SPDX-License-Identifier: Apache-2.0 */
/* Operators that tell shapes, and make arrays of what is known on the host: constants, ranges. */
#include <math.h>
#include <string.h>

#include "onnx/error.h"
#include "onnx/onnx.pb-c.h"
#include "onnx/tensor.h"
#include "onnx/values.h"

enum { FLOAT = ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, INT64 = ONNX__TENSOR_PROTO__DATA_TYPE__INT64 };

static void give(struct kiln__onnx_call *call, size_t k, struct kiln__onnx_value value)
{
    kiln__onnx_give_value(call, k, &value);
}

static void shape(struct kiln__onnx_call *call)
{
    struct kiln__onnx_value *x = kiln__onnx_operand(call, 0);
    if (!kiln__onnx_need(call, 0))
        return;
    int64_t rank = (int64_t)x->rank;
    int64_t start = kiln__onnx_int(call, "start", 0), end = kiln__onnx_int(call, "end", rank);
    start = start < -rank ? 0 : start < 0 ? start + rank : start > rank ? rank : start;
    end = end < -rank ? 0 : end < 0 ? end + rank : end > rank ? rank : end;
    size_t n = end > start ? (size_t)(end - start) : 0;
    struct kiln__onnx_host *y = kiln__onnx_give_host(call, 0, INT64, 1, &n);
    for (size_t i = 0; y && i < n; i++)
        y->cells[i].i = (int64_t)x->dims[(size_t)start + i];
}

static void size(struct kiln__onnx_call *call)
{
    struct kiln__onnx_value *x = kiln__onnx_operand(call, 0);
    if (!kiln__onnx_need(call, 0))
        return;
    struct kiln__onnx_host *y = kiln__onnx_give_host(call, 0, INT64, 0, NULL);
    size_t count = 1;
    for (size_t d = 0; d < x->rank; d++)
        count *= x->dims[d];
    if (y)
        y->cells[0].i = (int64_t)count;
}

/* The tensor of an attribute, on the host. */
static const struct kiln__onnx_host *tensor_attribute(struct kiln__onnx_call *call,
                                                      const char *name)
{
    const Onnx__AttributeProto *attribute =
        kiln__onnx_attribute(call, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR);
    struct kiln__onnx_elements elements;
    if (!attribute)
        return NULL;
    kiln_status status = kiln__onnx_elements(attribute->t, NULL, &elements);
    if (status) {
        kiln__onnx_refuse(call, status, "attribute '%s': %s", name, kiln_last_error());
        return NULL;
    }
    struct kiln__onnx_host *host =
        kiln__onnx_new_host(call, elements.type, elements.rank, elements.dims);
    for (size_t i = 0; host && i < host->count; i++)
        host->cells[i] = kiln__onnx_element(&elements, i);
    kiln__onnx_elements_free(&elements);
    return host;
}

static void give_array(struct kiln__onnx_call *call, const struct kiln__onnx_host *host)
{
    struct kiln__onnx_value y = {.type = host->type, .rank = host->rank, .host = host};
    memcpy(y.dims, host->dims, sizeof y.dims);
    give(call, 0, y);
}

/* Numbers of an attribute: one is a scalar. */
static void give_numbers(struct kiln__onnx_call *call, const int64_t *integers, const float *floats,
                         size_t rank, size_t n)
{
    struct kiln__onnx_host *y = kiln__onnx_give_host(call, 0, integers ? INT64 : FLOAT, rank, &n);
    for (size_t i = 0; y && i < n; i++) {
        if (integers)
            y->cells[i].i = integers[i];
        else
            y->cells[i].f = (double)floats[i];
    }
}

static void constant(struct kiln__onnx_call *call)
{
    size_t n;
    if (kiln__onnx_has_attribute(call, "value")) {
        const struct kiln__onnx_host *host = tensor_attribute(call, "value");
        if (host)
            give_array(call, host);
    } else if (kiln__onnx_has_attribute(call, "value_int")) {
        int64_t number = kiln__onnx_int(call, "value_int", 0);
        give_numbers(call, &number, NULL, 0, 1);
    } else if (kiln__onnx_has_attribute(call, "value_float")) {
        float number = (float)kiln__onnx_float(call, "value_float", 0);
        give_numbers(call, NULL, &number, 0, 1);
    } else if (kiln__onnx_has_attribute(call, "value_ints")) {
        const int64_t *list = kiln__onnx_ints(call, "value_ints", &n);
        static const int64_t none;
        give_numbers(call, list ? list : &none, NULL, 1, n);
    } else if (kiln__onnx_has_attribute(call, "value_floats")) {
        const float *list = kiln__onnx_floats(call, "value_floats", &n);
        give_numbers(call, NULL, list, 1, n);
    } else
        kiln__onnx_refuse(call, KILN_UNSUPPORTED, "a constant that is neither tensor nor numbers");
}

static void constant_of_shape(struct kiln__onnx_call *call)
{
    size_t n, dims[KILN_MAX_RANK];
    const int64_t *list = kiln__onnx_integers(call, 0, &n);
    if (!kiln__onnx_need(call, 0) || kiln__onnx_failed(call) ||
        !kiln__onnx_shape_of(call, list, n, dims))
        return;
    const struct kiln__onnx_host *value = tensor_attribute(call, "value");
    if (!value && !kiln__onnx_failed(call))
        value = kiln__onnx_new_host(call, FLOAT, 0, NULL);
    if (!value)
        return;
    if (value->count != 1) {
        kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT, "attribute 'value' has %zu elements",
                          value->count);
        return;
    }
    struct kiln__onnx_value one = {.type = value->type, .rank = value->rank, .host = value};
    memcpy(one.dims, value->dims, sizeof one.dims);
    one = kiln__onnx_reshape(call, &one, 0, NULL);
    if (one.type)
        give(call, 0, kiln__onnx_broadcast(call, &one, n, dims));
}

/* How many elements a range of integers has, if its steps are not 0. */
static uint64_t count_integers(int64_t start, int64_t end, int64_t step)
{
    bool up = step > 0;
    if (up ? start >= end : start <= end)
        return 0;
    uint64_t span = up ? (uint64_t)end - (uint64_t)start : (uint64_t)start - (uint64_t)end;
    uint64_t by = up ? (uint64_t)step : 0 - (uint64_t)step;
    return (span - 1) / by + 1;
}

/* More elements than are computed on the host. */
static kiln_tensor range_tensor(struct kiln__onnx_call *call, int type, size_t n,
                                const double *bound)
{
    kiln_type computed = kiln__onnx_type(type)->computed;
    if (kiln__onnx_type_floats(type))
        return kiln_arange(call->batch, computed, bound[0], bound[1], bound[2]);
    kiln_tensor y = kiln_arange(call->batch, computed, 0, (double)n, 1);
    return kiln_add(call->batch, kiln_mul(call->batch, y, kiln__onnx_tensor(call, 2)),
                    kiln__onnx_tensor(call, 0));
}

static void range(struct kiln__onnx_call *call)
{
    double bound[3];
    for (size_t i = 0; i < 3; i++)
        if (!kiln__onnx_need(call, i))
            return;
        else if (!kiln__onnx_scalar(call, i, &bound[i])) {
            kiln__onnx_refuse(
                call, KILN_UNSUPPORTED,
                "operand %zu decides about shapes, and is not known when the model is "
                "recorded",
                i);
            return;
        }
    int type = kiln__onnx_operand(call, 0)->type;
    for (size_t i = 1; i < 3; i++)
        if (kiln__onnx_operand(call, i)->type != type) {
            kiln__onnx_refuse(call, KILN_TYPE_MISMATCH, "a range from %s, and operand %zu is %s",
                              kiln__onnx_type_name(type), i,
                              kiln__onnx_type_name(kiln__onnx_operand(call, i)->type));
            return;
        }
    double steps = ceil((bound[1] - bound[0]) / bound[2]);
    if (!kiln__onnx_type_floats(type) && bound[2] != 0)
        steps = (double)count_integers(kiln__onnx_operand(call, 0)->host->cells->i,
                                       kiln__onnx_operand(call, 1)->host->cells->i,
                                       kiln__onnx_operand(call, 2)->host->cells->i);
    if (bound[2] == 0 || isnan(steps)) {
        kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT, "a range from %g to %g in steps of %g",
                          bound[0], bound[1], bound[2]);
        return;
    }
    if (steps > INT32_MAX) {
        kiln__onnx_refuse(call, KILN_TOO_LARGE,
                          "a range from %g to %g in steps of %g has more than %d elements",
                          bound[0], bound[1], bound[2], INT32_MAX);
        return;
    }
    size_t n = steps > 0 ? (size_t)steps : 0;
    if (!kiln__onnx_fits_host(type, 1, &n)) {
        kiln__onnx_give(call, 0, range_tensor(call, type, n, bound), type);
        return;
    }
    struct kiln__onnx_host *y = kiln__onnx_give_host(call, 0, type, 1, &n);
    const union kiln__onnx_cell *start = kiln__onnx_operand(call, 0)->host->cells;
    const union kiln__onnx_cell *step = kiln__onnx_operand(call, 2)->host->cells;
    for (size_t i = 0; y && i < n; i++) {
        if (y->floats)
            y->cells[i].f = start->f + (double)i * step->f;
        else
            y->cells[i].i = (int64_t)((uint64_t)start->i + (uint64_t)i * (uint64_t)step->i);
        y->cells[i] = kiln__onnx_host_round(type, y->cells[i]);
    }
}

#define BIT KILN__ONNX_BIT

const struct kiln__onnx_row kiln__onnx_shape_rows[] = {
    KILN__ONNX_ROW("Shape", 1, shape),
    KILN__ONNX_ROW("Size", 1, size),
    KILN__ONNX_ROW("Constant", 1, constant),
    KILN__ONNX_ROW("ConstantOfShape", 9, constant_of_shape, .known = BIT(0)),
    KILN__ONNX_ROW("Range", 11, range, .known = BIT(0) | BIT(1) | BIT(2)),
    {0},
};
