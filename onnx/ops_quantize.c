/* SPDX-License-Identifier: Apache-2.0 */
/* Whole numbers that stand for others: x = (q - zero point) * scale. Products of such numbers are
 * exact: they are added up as f32 while the sum stays below 2^24, then as i32. */
#include <string.h>

#include "onnx/blocks.h"
#include "onnx/windows.h"

/* Elements of 8 bits that f32 can multiply and add up without rounding: 255 * 255 * 256 < 2^24. */
enum { EXACT = 256 };

#define TYPE(name) ONNX__TENSOR_PROTO__DATA_TYPE__##name

/* What a type of q can hold; false for another. */
static bool find_range(struct kiln__onnx_call *call, int type, double range[2])
{
    static const struct {
        int type;
        double lowest, highest;
    } ranges[] = {{TYPE(UINT8), 0, UINT8_MAX},   {TYPE(INT8), INT8_MIN, INT8_MAX},
                  {TYPE(UINT16), 0, UINT16_MAX}, {TYPE(INT16), INT16_MIN, INT16_MAX},
                  {KILN__ONNX_UINT4, 0, 15},     {KILN__ONNX_INT4, -8, 7}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (ranges[i].type == type) {
            range[0] = ranges[i].lowest;
            range[1] = ranges[i].highest;
            return true;
        }
    kiln__onnx_refuse(call, KILN_UNSUPPORTED, "it quantizes to %s", kiln__onnx_type_name(type));
    return false;
}

/* Rounded, moved by the zero point (the empty tensor: none), and brought into the type's range. */
static void give_rounded(struct kiln__onnx_call *call, kiln_tensor scaled, kiln_tensor zero,
                         int type)
{
    double range[2];
    if (!find_range(call, type, range))
        return;
    kiln_tensor y = kiln_round(call->batch, scaled);
    if (zero.id)
        y = kiln_add(call->batch, y, kiln_cast(call->batch, zero, KILN_F32));
    y = kiln_clamp(call->batch, y, range[0], range[1]);
    kiln__onnx_give(call, 0, kiln_cast(call->batch, y, kiln__onnx_type(type)->computed), type);
}

/* ---- scales and zero points beside x ---- */

/* A scale for each element along the axis, as a shape that broadcasts against x. */
static kiln_tensor along_axis(struct kiln__onnx_call *call, size_t i,
                              const struct kiln__onnx_value *x, size_t axis)
{
    size_t dims[KILN_MAX_RANK];
    for (size_t d = 0; d < x->rank; d++)
        dims[d] = d == axis ? kiln__onnx_operand(call, i)->dims[0] : 1;
    return kiln_reshape(call->batch, kiln__onnx_tensor(call, i), x->rank, dims);
}

/* Operand i, a scale or a zero point, to go with x; the empty tensor if it is left out. */
static kiln_tensor beside(struct kiln__onnx_call *call, size_t i, const struct kiln__onnx_value *x)
{
    const struct kiln__onnx_value *scale = kiln__onnx_operand(call, i);
    size_t block = (size_t)kiln__onnx_int(call, "block_size", 0);
    bool blocks = scale && block && scale->rank == x->rank;
    if (!scale || kiln__onnx_failed(call))
        return (kiln_tensor){0};
    if (scale->rank != 1 && !blocks)
        return kiln__onnx_tensor(call, i);
    if (scale->rank == 1 && scale->dims[0] == 1 && !blocks)
        return kiln_reshape(call->batch, kiln__onnx_tensor(call, i), 0, NULL);
    size_t axis = kiln__onnx_axis(call, kiln__onnx_int(call, "axis", 1), x->rank);
    if (kiln__onnx_failed(call))
        return (kiln_tensor){0};
    return blocks ? kiln__onnx_repeat(call, kiln__onnx_tensor(call, i), axis, block, x->dims[axis])
                  : along_axis(call, i, x, axis);
}

static void record_quantize(struct kiln__onnx_call *call)
{
    const struct kiln__onnx_value *x = kiln__onnx_operand(call, 0);
    const struct kiln__onnx_value *zero = kiln__onnx_operand(call, 2);
    if (!kiln__onnx_need(call, 0) || !kiln__onnx_need(call, 1))
        return;
    int type = zero ? zero->type : (int)kiln__onnx_int(call, "output_dtype", TYPE(UINT8));
    kiln_tensor scaled = kiln_div(call->batch, kiln__onnx_tensor(call, 0), beside(call, 1, x));
    give_rounded(call, scaled, beside(call, 2, x), type ? type : TYPE(UINT8));
}

/* q - zero point, as f32. */
static kiln_tensor centred(struct kiln__onnx_call *call, kiln_tensor q, kiln_tensor zero)
{
    kiln_tensor y = kiln_cast(call->batch, q, KILN_F32);
    return zero.id ? kiln_sub(call->batch, y, kiln_cast(call->batch, zero, KILN_F32)) : y;
}

static void record_dequantize(struct kiln__onnx_call *call)
{
    const struct kiln__onnx_value *x = kiln__onnx_operand(call, 0);
    if (!kiln__onnx_need(call, 0) || !kiln__onnx_need(call, 1))
        return;
    int type = (int)kiln__onnx_int(call, "output_dtype", 0);
    if (type && !kiln__onnx_type_floats(type)) {
        kiln__onnx_refuse(call, KILN_UNSUPPORTED, "it gives numbers of %s",
                          kiln__onnx_type_name(type));
        return;
    }
    kiln_tensor y = centred(call, kiln__onnx_tensor(call, 0), beside(call, 2, x));
    kiln__onnx_give(call, 0, kiln_mul(call->batch, y, beside(call, 1, x)),
                    type ? type : kiln__onnx_operand(call, 1)->type);
}

/* scale = (high - low) / 255 of a range that has 0 in it, 1 where there is nothing else; zero point
 * = round(-low / scale). */
static void record_dynamic(struct kiln__onnx_call *call)
{
    kiln_batch *batch = call->batch;
    if (!kiln__onnx_need(call, 0))
        return;
    kiln_tensor x = kiln__onnx_tensor(call, 0), none = kiln_constant(batch, KILN_F32, 0);
    kiln_tensor low = kiln_minimum(batch, kiln_min(batch, x, 0, NULL, 0), none);
    kiln_tensor high = kiln_maximum(batch, kiln_max(batch, x, 0, NULL, 0), none);
    kiln_tensor range = kiln_sub(batch, high, low);
    kiln_tensor scale =
        kiln_where(batch, kiln_equal(batch, range, none), kiln_constant(batch, KILN_F32, 1),
                   kiln_div(batch, range, kiln_constant(batch, KILN_F32, 255)));
    kiln_tensor zero = kiln_round(
        batch, kiln_clamp(batch, kiln_div(batch, kiln_neg(batch, low), scale), 0, UINT8_MAX));
    give_rounded(call, kiln_div(batch, x, scale), zero, TYPE(UINT8));
    kiln__onnx_give(call, 1, scale, TYPE(FLOAT));
    kiln__onnx_give(call, 2, kiln_cast(batch, zero, KILN_U8), TYPE(UINT8));
}

/* ---- products ---- */

/* Of operand i the elements [begin, end) of dimension `axis`. */
static kiln_tensor part(struct kiln__onnx_call *call, kiln_tensor tensor,
                        const struct kiln__onnx_value *x, size_t axis, size_t begin, size_t end)
{
    int64_t start[KILN_MAX_RANK] = {0}, stop[KILN_MAX_RANK];
    for (size_t i = 0; i < x->rank; i++)
        stop[i] = (int64_t)x->dims[i];
    start[axis] = (int64_t)begin;
    stop[axis] = (int64_t)end;
    return kiln_slice(call->batch, tensor, start, stop, NULL);
}

/* A zero point for each row of the left operand, as a column; for each column of the right one as
 * it is. */
static kiln_tensor zero_point(struct kiln__onnx_call *call, size_t i,
                              const struct kiln__onnx_value *x, bool left)
{
    const struct kiln__onnx_value *zero = kiln__onnx_operand(call, i);
    kiln_tensor tensor = kiln__onnx_tensor(call, i);
    if (zero && left && zero->rank == 1 && zero->dims[0] > 1 && x->rank > 1)
        return kiln_reshape(call->batch, tensor, 2, (size_t[]){zero->dims[0], 1});
    return tensor;
}

/* The i32 product of operands a and b less their zero points. */
static kiln_tensor multiply(struct kiln__onnx_call *call, size_t a, size_t a_zero, size_t b,
                            size_t b_zero)
{
    const struct kiln__onnx_value *left = kiln__onnx_operand(call, a);
    const struct kiln__onnx_value *right = kiln__onnx_operand(call, b);
    if (!kiln__onnx_need(call, a) || !kiln__onnx_need(call, b))
        return (kiln_tensor){0};
    if (!left->rank || !right->rank) {
        kiln__onnx_refuse(call, KILN_SHAPE_MISMATCH, "it multiplies a scalar");
        return (kiln_tensor){0};
    }
    size_t left_axis = left->rank - 1, right_axis = right->rank > 1 ? right->rank - 2 : 0;
    size_t length = left->dims[left_axis];
    kiln_tensor x = centred(call, kiln__onnx_tensor(call, a), zero_point(call, a_zero, left, true));
    kiln_tensor w =
        centred(call, kiln__onnx_tensor(call, b), zero_point(call, b_zero, right, false));
    if (right->dims[right_axis] != length || length <= EXACT)
        return kiln_cast(call->batch, kiln_matmul(call->batch, x, w), KILN_I32);
    kiln_tensor sum = {0};
    for (size_t begin = 0; begin < length && !kiln__onnx_failed(call); begin += EXACT) {
        size_t end = begin + EXACT < length ? begin + EXACT : length;
        kiln_tensor product =
            kiln_cast(call->batch,
                      kiln_matmul(call->batch, part(call, x, left, left_axis, begin, end),
                                  part(call, w, right, right_axis, begin, end)),
                      KILN_I32);
        sum = begin ? kiln_add(call->batch, sum, product) : product;
    }
    return sum;
}

static void record_matmul_integer(struct kiln__onnx_call *call)
{
    kiln__onnx_give(call, 0, multiply(call, 0, 2, 1, 3), TYPE(INT32));
}

/* Operands: a, its scale and zero point, b, its scale and zero point, those of the result. */
static void record_matmul_quantized(struct kiln__onnx_call *call)
{
    for (size_t i = 0; i < 8; i++)
        if (!kiln__onnx_need(call, i))
            return;
    kiln_tensor product = kiln_cast(call->batch, multiply(call, 0, 2, 3, 5), KILN_F32);
    const struct kiln__onnx_value *left = kiln__onnx_operand(call, 0);
    kiln_tensor scale =
        kiln_mul(call->batch, zero_point(call, 1, left, true), kiln__onnx_tensor(call, 4));
    scale = kiln_div(call->batch, scale, kiln__onnx_tensor(call, 6));
    give_rounded(call, kiln_mul(call->batch, product, scale), kiln__onnx_tensor(call, 7),
                 kiln__onnx_operand(call, 7)->type);
}

/* ---- convolutions: exact while sums stay below 2^24 ---- */

/* Of [C, ...] elements, one for each dimension 0 or `channel` of x; a single one stays as it is. */
static kiln_tensor for_channels(struct kiln__onnx_call *call, size_t i,
                                const struct kiln__onnx_value *x, size_t channel)
{
    const struct kiln__onnx_value *value = kiln__onnx_operand(call, i);
    size_t dims[KILN_MAX_RANK];
    kiln_tensor tensor = kiln__onnx_tensor(call, i);
    if (!value || value->rank != 1 || value->dims[0] == 1)
        return value && value->rank ? kiln_reshape(call->batch, tensor, 0, NULL) : tensor;
    for (size_t d = 0; d < x->rank; d++)
        dims[d] = d == channel ? value->dims[0] : 1;
    return kiln_reshape(call->batch, tensor, x->rank, dims);
}

/* Operand 0 with the weights of operand w, each less its zero point, as f32. */
static kiln_tensor convolve(struct kiln__onnx_call *call, size_t x_zero, size_t w, size_t w_zero)
{
    const struct kiln__onnx_value *x = kiln__onnx_operand(call, 0);
    const struct kiln__onnx_value *weights = kiln__onnx_operand(call, w);
    struct kiln__onnx_windows windows;
    kiln_conv_options options = KILN_CONV_OPTIONS_INIT;
    size_t window[3] = {0};
    if (!kiln__onnx_need(call, 0) || !kiln__onnx_need(call, w))
        return (kiln_tensor){0};
    for (size_t i = 0; i + 2 < weights->rank && i < 3; i++)
        window[i] = weights->dims[i + 2];
    int64_t groups = kiln__onnx_int(call, "group", 1);
    if (groups < 1)
        kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT, "it has %lld groups", (long long)groups);
    if (!kiln__onnx_windows(call, weights->rank < 2 ? 0 : weights->rank - 2, window, &windows) ||
        kiln__onnx_failed(call))
        return (kiln_tensor){0};
    options.layout = KILN_CHANNELS_FIRST;
    options.groups = (size_t)groups;
    memcpy(options.stride, windows.stride, sizeof windows.stride);
    memcpy(options.dilation, windows.dilation, sizeof windows.dilation);
    memcpy(options.before, windows.before, sizeof windows.before);
    memcpy(options.after, windows.after, sizeof windows.after);
    for (size_t i = windows.n; i < 3; i++)
        options.stride[i] = options.dilation[i] = options.before[i] = options.after[i] = 0;
    kiln_tensor image = centred(call, kiln__onnx_tensor(call, 0), for_channels(call, x_zero, x, 1));
    kiln_tensor filter =
        centred(call, kiln__onnx_tensor(call, w), for_channels(call, w_zero, weights, 0));
    return kiln_conv(call->batch, image, filter, &options);
}

static void record_conv_integer(struct kiln__onnx_call *call)
{
    kiln_tensor y = convolve(call, 2, 1, 3);
    kiln__onnx_give(call, 0, kiln_cast(call->batch, y, KILN_I32), TYPE(INT32));
}

/* Operands: x, its scale and zero point, w, its scale and zero point, those of the result, a bias
 * that is in units of the scales' product. */
static void record_conv_quantized(struct kiln__onnx_call *call)
{
    for (size_t i = 0; i < 8; i++)
        if (!kiln__onnx_need(call, i))
            return;
    const struct kiln__onnx_value *x = kiln__onnx_operand(call, 0);
    kiln_tensor sum = convolve(call, 2, 3, 5);
    if (kiln__onnx_operand(call, 8))
        sum = kiln_add(call->batch, sum,
                       kiln_cast(call->batch, for_channels(call, 8, x, 1), KILN_F32));
    kiln_tensor scale =
        kiln_mul(call->batch, kiln__onnx_tensor(call, 1), for_channels(call, 4, x, 1));
    scale = kiln_div(call->batch, scale, kiln__onnx_tensor(call, 6));
    give_rounded(call, kiln_mul(call->batch, sum, scale), kiln__onnx_tensor(call, 7),
                 kiln__onnx_operand(call, 7)->type);
}

const struct kiln__onnx_row kiln__onnx_quantize_rows[] = {
    KILN__ONNX_ROW("QuantizeLinear", 10, record_quantize),
    KILN__ONNX_ROW("DequantizeLinear", 10, record_dequantize),
    KILN__ONNX_ROW("QuantizeLinear", 1, record_quantize, .domain = KILN__ONNX_MICROSOFT),
    KILN__ONNX_ROW("DequantizeLinear", 1, record_dequantize, .domain = KILN__ONNX_MICROSOFT),
    KILN__ONNX_ROW("DynamicQuantizeLinear", 11, record_dynamic),
    KILN__ONNX_ROW("MatMulInteger", 10, record_matmul_integer),
    KILN__ONNX_ROW("ConvInteger", 10, record_conv_integer),
    KILN__ONNX_ROW("QLinearConv", 10, record_conv_quantized),
    KILN__ONNX_ROW("QLinearMatMul", 10, record_matmul_quantized),
    {0},
};
