/* SPDX-License-Identifier: Apache-2.0 */
/* Recording of the attention-gradient nodes, which the adjoint of attention calls. */
#include "record/record_attention_backward.h"

kiln_tensor kiln__record_attention_backward(kiln_batch *batch, const struct kiln__attention *how,
                                            uint8_t narrow, unsigned count,
                                            const kiln_tensor *inputs)
{
    const char *call = "kiln_gradient";
    struct kiln__node node = {.kind = KILN__ATTENTION_BACKWARD, .type = KILN_F32, .op = narrow};
    for (unsigned i = 0; i < count; i++) {
        const struct kiln__node *input = kiln__batch_node(batch, inputs[i], call, "of attention");
        if (!input)
            return kiln__none;
        node.input[node.n_inputs++] = kiln__tensor_index(inputs[i]);
        if (i == KILN__ROW_OPERAND)
            node.shape = input->shape;
        else if (i == KILN__OTHER_STREAMED_OPERAND && how->backward_result == KILN__BACKWARD_VALUES)
            node.shape.dims[node.shape.rank - 1] = input->shape.dims[input->shape.rank - 1];
    }
    if (how->backward_result == KILN__BACKWARD_LOG_SUM_EXP)
        node.shape.dims[node.shape.rank - 1] = 1;
    node.attention = *how;
    return kiln__batch_record(batch, &node, call);
}
