/* SPDX-License-Identifier: Apache-2.0 */
/* Values that enter and leave a batch. */
#include <kiln/buffer.h>

#include "record/batch.h"
#include "record/call.h"

bool kiln__check_dims(kiln_batch *batch, const char *call, size_t rank, const size_t *dims,
                      struct kiln__shape *shape)
{
    if (rank && !dims)
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT, "%s: dims is NULL", call);
    else if (rank > KILN_MAX_RANK)
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT, "%s: %zu dimensions, and 8 are the most",
                   call, rank);
    else if (!kiln__shape_make(rank, dims, shape))
        kiln__fail(&batch->error, KILN_TOO_LARGE, "%s: shape %s has too many elements", call,
                   kiln__shape_text(shape).text);
    else
        return true;
    return false;
}

bool kiln__check_shape(kiln_batch *batch, const char *call, kiln_type type, size_t rank,
                       const size_t *dims, struct kiln__shape *shape)
{
    if (kiln__type_row(type))
        return kiln__check_dims(batch, call, rank, dims, shape);
    kiln__fail(&batch->error, KILN_INVALID_ARGUMENT, "%s: %d is no data type", call, (int)type);
    return false;
}

bool kiln__check_no_blocks(kiln_batch *batch, const char *call, kiln_type type)
{
    if (kiln__type_is_block(type))
        kiln__fail(&batch->error, KILN_TYPE_MISMATCH,
                   "%s: %s is a type of blocks, of which there are uploads and buffers alone", call,
                   kiln_type_name(type));
    return !batch->error.status;
}

static bool check_blocks(kiln_batch *batch, const char *call, const struct kiln__node *node)
{
    if (kiln__shape_has_blocks(&node->shape, node->type))
        return true;
    kiln__fail(&batch->error, KILN_SHAPE_MISMATCH,
               "%s: shape %s has rows of a part of a block, and blocks of %s have %zu elements",
               call, kiln__shape_text(&node->shape).text, kiln_type_name(node->type),
               kiln_type_block(node->type));
    return false;
}

static kiln_tensor record_input(kiln_batch *batch, const char *call, struct kiln__node *node,
                                const struct kiln__binding *binding)
{
    if (!kiln__vector_add(&batch->bindings.inputs, *binding)) {
        kiln__fail(&batch->error, KILN_OUT_OF_HOST_MEMORY, "%s: no memory to record", call);
        return kiln__none;
    }
    batch->bindings.checked = 0;
    node->binding = batch->bindings.inputs.count - 1;
    return kiln__batch_record(batch, node, call);
}

kiln_tensor kiln_upload(kiln_batch *batch, kiln_type type, size_t rank, const size_t *dims,
                        const void *data)
{
    KILN__CALL(batch);
    struct kiln__node node = {.kind = KILN__UPLOAD, .type = type};
    if (!kiln__batch_is_open(batch, __func__) ||
        !kiln__check_shape(batch, __func__, type, rank, dims, &node.shape) ||
        !check_blocks(batch, __func__, &node))
        return kiln__none;
    size_t bytes = kiln__node_bytes(&node);
    if (!data && bytes) {
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT, "%s: data is NULL", __func__);
        return kiln__none;
    }
    if (bytes > batch->limits.upload_bytes) {
        kiln__fail(&batch->error, KILN_TOO_LARGE,
                   "%s: %zu bytes, and the device allocates at most %llu", __func__, bytes,
                   (unsigned long long)batch->limits.upload_bytes);
        return kiln__none;
    }
    struct kiln__binding binding = {
        .host = (void *)(uintptr_t)data, .bytes = bytes, .item = kiln__type_alignment(type)};
    return record_input(batch, __func__, &node, &binding);
}

/* The batch holds the buffer from now on. */
static bool transfer_hold(kiln_batch *batch, kiln_buffer *buffer, const char *call)
{
    if (!buffer)
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT, "%s: buffer is NULL", call);
    else if (buffer->context != batch->context)
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT, "%s: the buffer is of another context",
                   call);
    if (batch->error.status)
        return false;
    if (!kiln__vector_add(&batch->buffers, buffer)) {
        kiln__fail(&batch->error, KILN_OUT_OF_HOST_MEMORY, "%s: no memory to record", call);
        return false;
    }
    kiln_buffer_retain(buffer);
    return true;
}

static struct kiln__binding buffer_binding(kiln_buffer *buffer)
{
    return (struct kiln__binding){.buffer = buffer,
                                  .identity = kiln__buffer_identity(buffer),
                                  .memory = buffer->source.read ? NULL : buffer->memory,
                                  .bytes = buffer->bytes,
                                  .item = kiln__type_alignment(buffer->type)};
}

/* The tensor that stands for the buffer already, or none. */
static kiln_tensor find_import(const kiln_batch *batch, const kiln_buffer *buffer)
{
    uint32_t i;
    for (size_t at = 0;
         kiln__index_find(&batch->imports, kiln__buffer_identity(buffer), &at, &i);) {
        const struct kiln__node *node = &batch->graph.nodes.items[i];
        if (node->type == buffer->type && kiln__shape_equal(&node->shape, &buffer->shape))
            return kiln__batch_tensor(batch, i);
    }
    return kiln__none;
}

kiln_tensor kiln__record_import(kiln_batch *batch, kiln_buffer *buffer, const char *call)
{
    if (!kiln__batch_is_open(batch, call) || !transfer_hold(batch, buffer, call))
        return kiln__none;
    kiln_tensor known = find_import(batch, buffer);
    if (known.id)
        return known;
    struct kiln__node node = {.kind = KILN__IMPORT, .type = buffer->type, .shape = buffer->shape};
    struct kiln__binding binding = buffer_binding(buffer);
    kiln_tensor made = record_input(batch, call, &node, &binding);
    if (made.id && !kiln__index_add(&batch->imports, kiln__buffer_identity(buffer),
                                    kiln__tensor_index(made))) {
        kiln__fail(&batch->error, KILN_OUT_OF_HOST_MEMORY, "%s: no memory to record", call);
        return kiln__none;
    }
    return made;
}

kiln_tensor kiln_import(kiln_batch *batch, kiln_buffer *buffer)
{
    KILN__CALL(batch);
    return kiln__record_import(batch, buffer, __func__);
}

kiln_tensor kiln__record_fill(kiln_batch *batch, const char *call, kiln_type type,
                              const struct kiln__shape *shape, double value)
{
    struct kiln__node node = {.kind = KILN__CONSTANT, .type = type, .shape = *shape};
    if (!kiln__check_no_blocks(batch, call, type))
        return kiln__none;
    node.value = kiln__value_of_number(type, value);
    /* The highest i64 is 2^63 as a double, which is beyond it. */
    const bool holds = kiln__value_number(type, node.value) == value && value != 0x1p63;
    if (!kiln__type_row(type)->floating && !holds) {
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT, "%s: %s cannot hold %.17g", call,
                   kiln_type_name(type), value);
        return kiln__none;
    }
    return kiln__batch_record(batch, &node, call);
}

kiln_tensor kiln__batch_number(kiln_batch *batch, kiln_type type, double value, const char *call)
{
    struct kiln__shape shape;
    if (!kiln__batch_is_open(batch, call) || !kiln__check_shape(batch, call, type, 0, NULL, &shape))
        return kiln__none;
    return kiln__record_fill(batch, call, type, &shape, value);
}

kiln_tensor kiln_constant(kiln_batch *batch, kiln_type type, double value)
{
    KILN__CALL(batch);
    return kiln__batch_number(batch, type, value, __func__);
}

kiln_tensor kiln_fill(kiln_batch *batch, kiln_type type, size_t rank, const size_t *dims,
                      double value)
{
    KILN__CALL(batch);
    struct kiln__shape shape;
    if (!kiln__batch_is_open(batch, __func__) ||
        !kiln__check_shape(batch, __func__, type, rank, dims, &shape))
        return kiln__none;
    return kiln__record_fill(batch, __func__, type, &shape, value);
}

/* ---- results ---- */

/* Later calls find the request by its buffer, or as the read of a number. */
static bool index_request(kiln_batch *batch, const struct kiln__request *request,
                          const struct kiln__binding *binding)
{
    uint32_t number = (uint32_t)(batch->graph.requests.count - 1);
    if (request->kind == KILN__EXPORT)
        return kiln__index_add(&batch->exports, binding->identity, number);
    return kiln__vector_add(&batch->reads, number);
}

static kiln_status request(kiln_batch *batch, const char *call, kiln_tensor tensor,
                           enum kiln__request_kind kind, const struct kiln__binding *binding)
{
    batch->changed = true;
    struct kiln__request *place = kiln__vector_push(&batch->graph.requests);
    struct kiln__binding *bound = place ? kiln__vector_push(&batch->bindings.results) : NULL;
    if (bound) {
        *place = (struct kiln__request){
            .node = kiln__batch_instead(batch, kiln__tensor_index(tensor)), .kind = kind};
        *bound = *binding;
    }
    if (!bound || !index_request(batch, place, binding))
        return kiln__fail(&batch->error, KILN_OUT_OF_HOST_MEMORY, "%s: no memory to record", call);
    batch->bindings.checked = 0;
    return KILN_OK;
}

/* What a call without a batch, or on a failed one, answers. */
static kiln_status closed(const kiln_batch *batch)
{
    return batch ? batch->error.status : KILN_INVALID_ARGUMENT;
}

kiln_status kiln_read(kiln_batch *batch, kiln_tensor tensor, void *data, size_t bytes)
{
    KILN__CALL(batch);
    const struct kiln__node *node = kiln__batch_node(batch, tensor, __func__, "tensor");
    if (!node)
        return closed(batch);
    if (bytes != kiln__node_bytes(node))
        return kiln__fail(&batch->error, KILN_INVALID_ARGUMENT,
                          "%s: %s%s has %zu bytes, and room for %zu was given", __func__,
                          kiln_type_name(node->type), kiln__shape_text(&node->shape).text,
                          kiln__node_bytes(node), bytes);
    if (!data && bytes)
        return kiln__fail(&batch->error, KILN_INVALID_ARGUMENT, "%s: data is NULL", __func__);
    struct kiln__binding binding = {
        .host = data, .bytes = bytes, .item = kiln__type_alignment(node->type)};
    return request(batch, __func__, tensor, KILN__READ, &binding);
}

/* Buffers without elements have no memory, and nothing to disagree about. */
bool kiln__batch_exports_to(const kiln_batch *batch, const kiln_buffer *buffer)
{
    size_t at = 0;
    uint32_t request;
    return kiln__buffer_identity(buffer) &&
           kiln__index_find(&batch->exports, kiln__buffer_identity(buffer), &at, &request);
}

kiln_status kiln_export(kiln_batch *batch, kiln_tensor tensor, kiln_buffer *buffer)
{
    KILN__CALL(batch);
    const struct kiln__node *node = kiln__batch_node(batch, tensor, __func__, "tensor");
    if (!node || !transfer_hold(batch, buffer, __func__))
        return closed(batch);
    if (node->type != buffer->type)
        return kiln__fail(&batch->error, KILN_TYPE_MISMATCH,
                          "%s: the tensor is %s and the buffer is %s", __func__,
                          kiln_type_name(node->type), kiln_type_name(buffer->type));
    if (!kiln__shape_equal(&node->shape, &buffer->shape))
        return kiln__fail(
            &batch->error, KILN_SHAPE_MISMATCH, "%s: the tensor is %s and the buffer is %s",
            __func__, kiln__shape_text(&node->shape).text, kiln__shape_text(&buffer->shape).text);
    if (kiln__batch_exports_to(batch, buffer))
        return kiln__fail(
            &batch->error, KILN_INVALID_ARGUMENT,
            "%s: the batch leaves a tensor in this buffer already, and a buffer takes "
            "one",
            __func__);
    struct kiln__binding binding = buffer_binding(buffer);
    return request(batch, __func__, tensor, KILN__EXPORT, &binding);
}

/* ---- other memory in later runs ---- */

kiln_status kiln_rebind_upload(kiln_batch *batch, kiln_tensor tensor, const void *data)
{
    const struct kiln__node *node = kiln__batch_node(batch, tensor, __func__, "tensor");
    if (!node)
        return closed(batch);
    if (node->kind != KILN__UPLOAD)
        return kiln__fail(&batch->error, KILN_INVALID_HANDLE, "%s: the tensor is no upload",
                          __func__);
    KILN__RETURN_IF_NULL(&batch->error, __func__, data);
    kiln__bindings_move(&batch->bindings, &batch->bindings.inputs.items[node->binding],
                        (void *)(uintptr_t)data);
    return KILN_OK;
}

kiln_status kiln_rebind_read(kiln_batch *batch, size_t read, void *data, size_t bytes)
{
    if (!kiln__batch_is_open(batch, __func__))
        return closed(batch);
    if (read >= batch->reads.count)
        return kiln__fail(&batch->error, KILN_INVALID_ARGUMENT,
                          "%s: read %zu of a batch that was asked for %zu, numbered from 0",
                          __func__, read, batch->reads.count);
    struct kiln__binding *binding = &batch->bindings.results.items[batch->reads.items[read]];
    if (bytes != binding->bytes)
        return kiln__fail(&batch->error, KILN_INVALID_ARGUMENT,
                          "%s: read %zu has %zu bytes, and room for %zu was given", __func__, read,
                          binding->bytes, bytes);
    if (!data && bytes)
        return kiln__fail(&batch->error, KILN_INVALID_ARGUMENT, "%s: data is NULL", __func__);
    kiln__bindings_move(&batch->bindings, binding, data);
    return KILN_OK;
}
