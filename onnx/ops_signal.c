/* SPDX-License-Identifier: Apache-2.0 */
/* Spectra. */
#include <math.h>

#include "onnx/call.h"

/* The only element of operand i, known when the model is recorded; `usual` where it is left out. */
static double number(struct kiln__onnx_call *call, size_t i, double usual)
{
    double found = usual;
    if (kiln__onnx_operand(call, i) && !kiln__onnx_scalar(call, i, &found))
        kiln__onnx_refuse(call, KILN_UNSUPPORTED,
                          "operand %zu decides about shapes, and is not known when the model is "
                          "recorded",
                          i);
    return found;
}

/* The same as a size. */
static size_t size(struct kiln__onnx_call *call, size_t i, double usual)
{
    double found = number(call, i, usual);
    if (!(found >= 0 && found <= INT32_MAX))
        kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT, "operand %zu is %g", i, found);
    return kiln__onnx_failed(call) ? 0 : (size_t)found;
}

static void dft(struct kiln__onnx_call *call)
{
    if (!kiln__onnx_need(call, 0))
        return;
    bool back = kiln__onnx_int(call, "inverse", 0) != 0;
    bool half = kiln__onnx_int(call, "onesided", 0) != 0;
    double axis =
        call->version < 20 ? (double)kiln__onnx_int(call, "axis", 1) : number(call, 2, -2);
    size_t length = size(call, 1, 0);
    kiln_dft_kind kind = back   ? half ? KILN_DFT_REAL : KILN_DFT_INVERSE
                         : half ? KILN_DFT_HALF
                                : KILN_DFT;
    if (!(fabs(axis) <= KILN_MAX_RANK))
        kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT, "there is no axis %g", axis);
    if (!kiln__onnx_failed(call))
        kiln__onnx_give(call, 0,
                        kiln_dft(call->batch, kiln__onnx_tensor(call, 0), (int)axis, length, kind),
                        kiln__onnx_operand(call, 0)->type);
}

/* Operands: signal, step, window or none, length or none. */
static void stft(struct kiln__onnx_call *call)
{
    if (!kiln__onnx_need(call, 0) || !kiln__onnx_need(call, 1))
        return;
    const struct kiln__onnx_value *x = kiln__onnx_operand(call, 0);
    const struct kiln__onnx_value *window = kiln__onnx_operand(call, 2);
    size_t step = size(call, 1, 0), usual = window && window->rank ? window->dims[0] : 0;
    size_t length = size(call, 3, (double)usual);
    bool half = kiln__onnx_int(call, "onesided", 1) != 0;
    kiln_tensor signal = kiln__onnx_tensor(call, 0);
    if (kiln__onnx_failed(call))
        return;
    if (x->rank == 2) /* real, without a dimension for that */
        signal = kiln_reshape(call->batch, signal, 3, (size_t[]){x->dims[0], x->dims[1], 1});
    kiln__onnx_give(call, 0,
                    kiln_stft(call->batch, signal, kiln__onnx_tensor(call, 2), length, step,
                              half ? KILN_DFT_HALF : KILN_DFT),
                    x->type);
}

static void mel_weight_matrix(struct kiln__onnx_call *call)
{
    for (size_t i = 0; i < 5; i++)
        if (!kiln__onnx_need(call, i))
            return;
    int type = (int)kiln__onnx_int(call, "output_datatype", 1);
    size_t bins = size(call, 0, 0), length = size(call, 1, 0);
    double rate = number(call, 2, 0), low = number(call, 3, 0), high = number(call, 4, 0);
    if (!kiln__onnx_type(type) || !kiln__onnx_type_floats(type))
        kiln__onnx_refuse(call, KILN_UNSUPPORTED, "weights of type %d", type);
    if (!kiln__onnx_failed(call))
        kiln__onnx_give(call, 0, kiln_mel_weights(call->batch, bins, length, rate, low, high),
                        type);
}

#define BIT(i) KILN__ONNX_BIT(i)

const struct kiln__onnx_row kiln__onnx_signal_rows[] = {
    KILN__ONNX_ROW("DFT", 17, dft, .known = BIT(1) | BIT(2)),
    KILN__ONNX_ROW("STFT", 17, stft, .known = BIT(1) | BIT(3)),
    KILN__ONNX_ROW("MelWeightMatrix", 17, mel_weight_matrix,
                   .known = BIT(0) | BIT(1) | BIT(2) | BIT(3) | BIT(4)),
    {0},
};
