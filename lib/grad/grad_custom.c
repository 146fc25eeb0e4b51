/* SPDX-License-Identifier: Apache-2.0 */
/* The adjoint of an own kernel is what the program records: once for all outputs of a call. */

#include "grad/gradient.h"

/* The node of output `k`: those of a call follow each other. */
static uint32_t output_node(const struct kiln__node *node, uint32_t index, unsigned k)
{
    return index - (uint32_t)node->custom.output + k;
}

/* What flows to output `k`, zeros if nothing does. */
static kiln_tensor flowed_to(const struct kiln__gradient *walk, const struct kiln__node *node,
                             uint32_t index, unsigned k)
{
    const struct kiln__custom_output *output = &node->custom.call->call.outputs[k];
    const kiln_tensor flowed = walk->flows[output_node(node, index, k)].gradient;
    if (flowed.id || !kiln__type_row(output->type)->floating)
        return flowed;
    return kiln_fill(walk->batch, KILN_F32, output->shape.rank, output->shape.dims, 0);
}

/* Whether what has been recorded is a gradient of that input. */
static bool check(const struct kiln__gradient *walk, const struct kiln__node *node, unsigned k,
                  kiln_tensor gradient)
{
    const struct kiln__node *given =
        kiln__batch_node(walk->batch, gradient, walk->call, "gradients[k]");
    if (!given)
        return false;
    const struct kiln__node *input = kiln__gradient_at(walk, node->input[k]);
    if (!kiln__node_is_floating(given) || !kiln__shape_equal(&given->shape, &input->shape))
        kiln__fail(&walk->batch->error, KILN_SHAPE_MISMATCH,
                   "%s: kernel %s: the gradient of input %u is %s%s, and the input's shape is %s",
                   walk->call, kiln__node_name(node), k, kiln_type_name(given->type),
                   kiln__shape_text(&given->shape).text, kiln__shape_text(&input->shape).text);
    return !walk->batch->error.status;
}

void kiln__adjoint_custom(struct kiln__gradient *walk, const struct kiln__node *node, kiln_tensor y,
                          kiln_tensor g)
{
    (void)g;
    kiln_batch *batch = walk->batch;
    const struct kiln__custom_call *call = &node->custom.call->call;
    const uint32_t index = kiln__tensor_index(y);
    kiln_tensor inputs[KILN_CUSTOM_INPUTS] = {{0}}, gradients[KILN_CUSTOM_INPUTS] = {{0}};
    kiln_tensor outputs[KILN_CUSTOM_OUTPUTS] = {{0}}, flowed[KILN_CUSTOM_OUTPUTS] = {{0}};
    for (unsigned k = (unsigned)node->custom.output + 1; k < call->n_outputs; k++)
        if (walk->flows[output_node(node, index, k)].gradient.id)
            return; /* when that one's turn came */
    for (unsigned k = 0; k < call->n_inputs; k++)
        inputs[k] = kiln__gradient_operand(walk, node, k);
    for (unsigned k = 0; k < call->n_outputs; k++) {
        outputs[k] = kiln__batch_tensor(batch, output_node(node, index, k));
        flowed[k] = flowed_to(walk, node, index, k);
    }
    if (node->custom.call->loop)
        kiln__adjoint_loop(walk, node, inputs, flowed, gradients);
    const kiln_status status =
        node->custom.call->loop
            ? batch->error.status
            : call->gradient(batch, inputs, outputs, flowed, gradients,
                             node->custom.call->file ? (void *)call->scalars : call->user);
    if (status && !batch->error.status)
        kiln__fail(&batch->error, status < 0 ? status : KILN_INVALID_ARGUMENT,
                   "%s: the gradient of kernel %s could not be recorded", walk->call,
                   kiln__node_name(node));
    for (unsigned k = 0; k < call->n_inputs && !batch->error.status; k++)
        if (gradients[k].id && check(walk, node, k, gradients[k]))
            kiln__gradient_accumulate(walk, node->input[k], gradients[k]);
}
