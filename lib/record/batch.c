/* SPDX-License-Identifier: Apache-2.0 */
/* What recordings are made of: tensors, nodes, the first error. */
#include "record/batch.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/buffer.h>

#include "record/replayed.h"

/* Serial numbers make a tensor of another batch, or of one that was reset, a recognisable error. */
static atomic_uint_fast32_t serials;

static uint32_t next_serial(void)
{
    uint32_t serial = (uint32_t)(atomic_fetch_add(&serials, 1) + 1);
    return serial ? serial : next_serial();
}

void kiln__batch_begin(kiln_batch *batch)
{
    for (size_t i = 0; i < batch->buffers.count; i++)
        kiln_buffer_release(batch->buffers.items[i]);
    batch->buffers.count = 0;
    for (size_t i = 0; i < batch->tables.count; i++)
        free(batch->tables.items[i]);
    batch->tables.count = 0;
    for (size_t i = 0; i < batch->loops.count; i++)
        kiln__replayed_free(batch->loops.items[i]);
    for (size_t i = 0; i < batch->kernels.count; i++)
        free(batch->kernels.items[i]);
    batch->loops.count = batch->kernels.count = batch->instead.count = 0;
    kiln__bindings_free(&batch->bindings);
    kiln__index_clear(&batch->imports);
    kiln__index_clear(&batch->exports);
    batch->reads.count = 0;
    batch->graph.nodes.count = batch->graph.requests.count = 0;
    kiln__graph_drop_calls(&batch->graph);
    batch->graph.batch_invariant = false;
    batch->graph.labels = batch->bindings.labels = &batch->labels;
    kiln__labels_clear(&batch->labels);
    batch->operations = 0;
    batch->error = (struct kiln__error){0};
    kiln__batch_report(batch, KILN_OK);
    batch->changed = true;
    batch->serial = next_serial();
}

void kiln__batch_drop(kiln_batch *batch)
{
    kiln__vector_free(&batch->buffers);
    kiln__vector_free(&batch->tables);
    kiln__vector_free(&batch->reads);
    kiln__vector_free(&batch->loops);
    kiln__vector_free(&batch->kernels);
    kiln__vector_free(&batch->instead);
    kiln__graph_free(&batch->graph);
    kiln__labels_free(&batch->labels);
}

void *kiln__batch_alloc(kiln_batch *batch, size_t count, size_t item, const char *call)
{
    void **place = batch->error.status ? NULL : kiln__vector_push(&batch->tables);
    void *table = place ? calloc(count + 1, item) : NULL;
    if (place)
        *place = table;
    if (!table && !batch->error.status)
        kiln__fail(&batch->error, KILN_OUT_OF_HOST_MEMORY, "%s: no memory to record", call);
    return table;
}

bool kiln__batch_is_open(kiln_batch *batch, const char *call)
{
    if (!batch)
        kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: batch is NULL", call);
    return batch && !batch->error.status;
}

uint32_t kiln__tensor_index(kiln_tensor tensor)
{
    return (uint32_t)tensor.id - 1;
}

kiln_tensor kiln__batch_tensor(const kiln_batch *batch, uint32_t index)
{
    return (kiln_tensor){(uint64_t)batch->serial << 32 | (index + 1)};
}

kiln_tensor kiln__batch_resolve(const kiln_batch *batch, kiln_tensor tensor)
{
    return kiln__batch_tensor(batch, kiln__batch_instead(batch, kiln__tensor_index(tensor)));
}

const struct kiln__node *kiln__batch_node(kiln_batch *batch, kiln_tensor tensor, const char *call,
                                          const char *operand)
{
    uint32_t index = kiln__tensor_index(tensor);
    if (!kiln__batch_is_open(batch, call))
        return NULL;
    if (tensor.id == 0)
        kiln__fail(&batch->error, KILN_INVALID_HANDLE, "%s: operand %s is the empty tensor", call,
                   operand);
    else if (tensor.id >> 32 != batch->serial)
        kiln__fail(&batch->error, KILN_INVALID_HANDLE,
                   "%s: operand %s is a tensor of another batch, or of this one before a reset",
                   call, operand);
    else if (index >= batch->graph.nodes.count)
        kiln__fail(&batch->error, KILN_INVALID_HANDLE, "%s: operand %s names no tensor", call,
                   operand);
    if (batch->error.status)
        return NULL;
    kiln__call_operand(batch, operand, index);
    return &batch->graph.nodes.items[index];
}

const struct kiln__node *kiln__batch_floating(kiln_batch *batch, kiln_tensor tensor,
                                              const char *call, const char *operand)
{
    const struct kiln__node *node = kiln__batch_node(batch, tensor, call, operand);
    if (!node || kiln__node_is_floating(node))
        return node;
    kiln__fail(&batch->error, KILN_TYPE_MISMATCH,
               "%s: operand %s is %s, and only floating types are taken; cast it", call, operand,
               kiln_type_name(node->type));
    return NULL;
}

static kiln_tensor batch_append(kiln_batch *batch, const struct kiln__node *node, const char *call)
{
    uint32_t index;
    struct kiln__label *label = kiln__vector_push(&batch->labels.nodes);
    batch->changed = true;
    if (!label || !kiln__graph_add(&batch->graph, node, &index)) {
        kiln__fail(&batch->error, KILN_OUT_OF_HOST_MEMORY, "%s: no memory to record", call);
        return (kiln_tensor){0};
    }
    *label = (struct kiln__label){batch->depth ? (uint32_t)batch->labels.calls.count : 0,
                                  batch->labels.scope};
    batch->operations += !kiln__node_is_input(node) && node->kind != KILN__CONSTANT;
    return kiln__batch_tensor(batch, index);
}

/* Operand `k` as the type that is computed in. */
static uint32_t cast_operand(kiln_batch *batch, const struct kiln__node *node, unsigned k,
                             const char *call)
{
    const struct kiln__node *input = &batch->graph.nodes.items[node->input[k]];
    kiln_type computed = kiln__node_computed(input);
    bool takes = kiln__node_has_blocks(input) ? kiln__node_takes_blocks(node, k)
                                              : kiln__node_takes_stored(node, k);
    if (computed == input->type || takes)
        return node->input[k];
    struct kiln__node cast = {.kind = KILN__CAST, .type = computed, .n_inputs = 1};
    cast.shape = input->shape;
    cast.input[0] = node->input[k];
    return kiln__tensor_index(batch_append(batch, &cast, call));
}

kiln_tensor kiln__batch_record(kiln_batch *batch, const struct kiln__node *node, const char *call)
{
    struct kiln__node own = *node;
    if (kiln__node_has_blocks(node) && !kiln__node_is_input(node))
        own.type = kiln__node_computed(node);
    for (unsigned k = 0; k < node->n_inputs; k++)
        own.input[k] = kiln__batch_instead(batch, node->input[k]);
    for (unsigned k = 0; k < node->n_inputs && !batch->error.status; k++)
        own.input[k] = cast_operand(batch, &own, k, call);
    if (batch->error.status)
        return (kiln_tensor){0};
    return batch_append(batch, &own, call);
}

/* ---- asking ---- */

kiln_status kiln_batch_status(const kiln_batch *batch)
{
    return batch ? batch->error.status : KILN_INVALID_ARGUMENT;
}

const char *kiln_batch_error(const kiln_batch *batch)
{
    if (!batch)
        return "the batch is NULL";
    return batch->error.status ? batch->error.text : batch->run_error.text;
}

kiln_status kiln__batch_report(kiln_batch *batch, kiln_status status)
{
    if (!batch)
        return status;
    batch->run_error.status = status;
    batch->run_error.text[0] = '\0';
    if (status)
        snprintf(batch->run_error.text, sizeof batch->run_error.text, "%s", kiln_last_error());
    return status;
}

kiln_status kiln_tensor_shape(const kiln_batch *batch, kiln_tensor tensor, kiln_type *type,
                              size_t *rank, size_t *dims)
{
    KILN__RETURN_IF_NULL(NULL, __func__, batch);
    if (tensor.id >> 32 != batch->serial || kiln__tensor_index(tensor) >= batch->graph.nodes.count)
        return kiln__fail(NULL, KILN_INVALID_HANDLE,
                          "kiln_tensor_shape: the tensor is none of this batch");
    const struct kiln__node *node = kiln__tensor_node(batch, tensor);
    if (type)
        *type = node->type;
    if (rank)
        *rank = node->shape.rank;
    if (dims)
        memcpy(dims, node->shape.dims, sizeof node->shape.dims);
    return KILN_OK;
}

size_t kiln_batch_operation_count(const kiln_batch *batch)
{
    return batch ? batch->operations : 0;
}

kiln_status kiln_batch_fail(kiln_batch *batch, kiln_status status, const char *sentence)
{
    KILN__RETURN_IF_NULL(NULL, __func__, batch);
    if (status >= 0 || !strcmp(kiln_status_name(status), "UNKNOWN"))
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "kiln_batch_fail: %d is no error",
                          (int)status);
    if (!batch->error.status)
        kiln__fail(&batch->error, status, "%s",
                   sentence && *sentence ? sentence : kiln_status_text(status));
    return batch->error.status;
}

size_t kiln_batch_read_count(const kiln_batch *batch)
{
    return batch ? batch->reads.count : 0;
}

size_t kiln_batch_buffer_count(const kiln_batch *batch)
{
    return batch ? batch->bindings.inputs.count + batch->bindings.results.count : 0;
}
