/* SPDX-License-Identifier: Apache-2.0 */
/* Values become elements as they are stored, a program's function computes with these, and its
 * results become values. */
#include "reference/reference_custom.h"

#include <stdlib.h>
#include <string.h>

static bool make_array(kiln_type type, const struct kiln__shape *shape, kiln_array *array)
{
    *array = (kiln_array){.type = type, .rank = shape->rank};
    memcpy(array->dims, shape->dims, sizeof array->dims);
    array->data = calloc(kiln__shape_count(shape) + 1, kiln_type_size(type));
    return array->data;
}

static bool make_input(const struct kiln__node *node, const double *values, kiln_array *array)
{
    const size_t bytes = kiln_type_size(node->type);
    if (!make_array(node->type, &node->shape, array))
        return false;
    for (size_t i = 0; i < kiln__node_count(node); i++)
        kiln__value_store(node->type, values[i], (char *)array->data + i * bytes);
    return true;
}

bool kiln__custom_evaluate(const struct kiln__graph *graph, const struct kiln__node *node,
                           kiln_custom_host host, double *const *values, double *result)
{
    const struct kiln__custom_call *call = &node->custom.call->call;
    kiln_array inputs[KILN_CUSTOM_INPUTS] = {{0}}, outputs[KILN_CUSTOM_OUTPUTS] = {{0}};
    bool done = true;
    memset(result, 0, kiln__node_count(node) * sizeof *result);
    if (!host)
        return true;
    for (unsigned k = 0; k < call->n_inputs && done; k++)
        done = make_input(kiln__graph_input(graph, node, k), values[node->input[k]], &inputs[k]);
    for (unsigned k = 0; k < call->n_outputs && done; k++)
        done = make_array(call->outputs[k].type, &call->outputs[k].shape, &outputs[k]);
    if (done)
        host(inputs, outputs, call->scalars, call->user);
    const size_t bytes = kiln_type_size(node->type);
    for (size_t i = 0; i < kiln__node_count(node) && done; i++)
        result[i] = kiln__value_load(node->type,
                                     (const char *)outputs[node->custom.output].data + i * bytes);
    for (unsigned k = 0; k < call->n_inputs; k++)
        free(inputs[k].data);
    for (unsigned k = 0; k < call->n_outputs; k++)
        free(outputs[k].data);
    return done;
}
