/* SPDX-License-Identifier: Apache-2.0 */
/* Public functions on buffers: creation, wrapping of a program's cl_mem, sources, reads and writes,
 * references. */
#include <stdlib.h>
#include <string.h>

#include <kiln/opencl.h>

#include "session/context.h"

/* Everything but the memory. */
static kiln_status api_buffer_make(const char *call, kiln_context *context, kiln_type type,
                                   size_t rank, const size_t *dims, kiln_buffer **result)
{
    struct kiln__shape shape;
    if (!result)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: buffer is NULL", call);
    *result = NULL;
    if (!context || (rank && !dims))
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: %s is NULL", call,
                          context ? "dims" : "context");
    if (!kiln__type_row(type))
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: %d is no data type", call, (int)type);
    if (rank > KILN_MAX_RANK)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: %zu dimensions, and 8 are the most",
                          call, rank);
    if (!kiln__shape_make(rank, dims, &shape))
        return kiln__fail(NULL, KILN_TOO_LARGE, "%s: shape %s has too many elements", call,
                          kiln__shape_text(&shape).text);
    if (!kiln__shape_has_blocks(&shape, type))
        return kiln__fail(NULL, KILN_SHAPE_MISMATCH,
                          "%s: shape %s has rows of a part of a block, and blocks of %s have %zu "
                          "elements",
                          call, kiln__shape_text(&shape).text, kiln_type_name(type),
                          kiln_type_block(type));
    kiln_status status = kiln__runtime_check_process(&context->runtime, NULL);
    if (status)
        return status;
    kiln_buffer *buffer = calloc(1, sizeof *buffer);
    if (!buffer)
        return kiln__fail(NULL, KILN_OUT_OF_HOST_MEMORY, "%s: no memory", call);
    atomic_init(&buffer->references, 1);
    buffer->context = context;
    buffer->stream = context->runtime.compute;
    buffer->type = type;
    buffer->shape = shape;
    buffer->bytes = kiln__type_bytes(type, kiln__shape_count(&shape));
    *result = buffer;
    return KILN_OK;
}

/* From here on the buffer counts, and holds its context. */
static void count_in(kiln_buffer *buffer)
{
    kiln__buffer_begin(buffer);
    kiln_context_retain(buffer->context);
    atomic_fetch_add(&buffer->context->runtime.counters.buffers_live, 1);
    atomic_fetch_add(&buffer->context->runtime.counters.buffer_bytes, buffer->bytes);
}

kiln_status kiln_buffer_create(kiln_context *context, kiln_type type, size_t rank,
                               const size_t *dims, kiln_buffer **result)
{
    kiln_status status = api_buffer_make("kiln_buffer_create", context, type, rank, dims, result);
    if (status)
        return status;
    kiln_buffer *buffer = *result;
    struct kiln__error error = {0};
    if (buffer->bytes)
        status = kiln__budget_create_buffer(&context->runtime.memory, buffer->bytes,
                                            &buffer->memory, &error);
    if (!status) {
        count_in(buffer);
        return KILN_OK;
    }
    status = kiln__fail(NULL, status, "kiln_buffer_create: %s", error.text);
    free(buffer);
    *result = NULL;
    return status;
}

/* ---- memory of the host's ---- */

struct ending {
    void (*call)(void *user);
    void *user;
};

static void CL_CALLBACK end_wrapping(cl_mem memory, void *user)
{
    struct ending *ending = user;
    (void)memory;
    ending->call(ending->user);
    free(ending);
}

/* Work on host memory starts anywhere an element can; a driver that does not tell when it has ended
 * has none of it. */
static cl_mem api_buffer_wrap(const struct kiln__runtime *runtime, void *host, size_t bytes,
                              size_t item, struct ending *ending)
{
    cl_int code;
    if (runtime->host_mode == KILN__HOST_SEPARATE || !bytes || (uintptr_t)host % item)
        return NULL;
    cl_mem memory = clCreateBuffer(runtime->context, CL_MEM_USE_HOST_PTR | CL_MEM_READ_WRITE, bytes,
                                   host, &code);
    if (code)
        return NULL;
    if (!clSetMemObjectDestructorCallback(memory, end_wrapping, ending))
        return memory;
    clReleaseMemObject(memory);
    return NULL;
}

kiln_buffer *kiln__buffer_wrap(kiln_context *context, kiln_type type,
                               const struct kiln__shape *shape, void *host,
                               void (*ended)(void *user), void *user)
{
    kiln_buffer *buffer;
    struct ending *ending = malloc(sizeof *ending);
    if (!ending || api_buffer_make("kiln", context, type, shape->rank, shape->dims, &buffer)) {
        free(ending);
        return NULL;
    }
    *ending = (struct ending){ended, user};
    buffer->memory =
        api_buffer_wrap(&context->runtime, host, buffer->bytes, kiln__type_alignment(type), ending);
    buffer->wraps = true;
    if (buffer->memory) {
        count_in(buffer);
        return buffer;
    }
    free(ending);
    free(buffer);
    return NULL;
}

/* ---- memory of the program's ---- */

static kiln_status check_memory(const kiln_buffer *buffer, cl_mem memory)
{
    cl_context own = NULL;
    size_t bytes = 0;
    cl_int code = clGetMemObjectInfo(memory, CL_MEM_CONTEXT, sizeof own, &own, NULL);
    if (!code)
        code = clGetMemObjectInfo(memory, CL_MEM_SIZE, sizeof bytes, &bytes, NULL);
    if (code)
        return kiln__cl_fail(NULL, "clGetMemObjectInfo", code);
    if (own != buffer->context->runtime.context)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT,
                          "kiln_buffer_create_cl: the cl_mem is of another cl_context");
    if (bytes < buffer->bytes)
        return kiln__fail(NULL, KILN_TOO_LARGE,
                          "kiln_buffer_create_cl: a tensor of %zu bytes does not fit a cl_mem of "
                          "%zu",
                          buffer->bytes, bytes);
    return KILN_OK;
}

kiln_status kiln_buffer_create_cl(kiln_context *context, cl_mem memory, kiln_type type, size_t rank,
                                  const size_t *dims, kiln_buffer **result)
{
    kiln_status status =
        api_buffer_make("kiln_buffer_create_cl", context, type, rank, dims, result);
    if (status)
        return status;
    if (!memory)
        status = kiln__fail(NULL, KILN_INVALID_ARGUMENT, "kiln_buffer_create_cl: memory is NULL");
    else
        status = check_memory(*result, memory);
    cl_int code = status ? CL_SUCCESS : clRetainMemObject(memory);
    if (code)
        status = kiln__cl_fail(NULL, "kiln_buffer_create_cl: clRetainMemObject", code);
    if (status) {
        free(*result);
        *result = NULL;
        return status;
    }
    (*result)->memory = memory;
    (*result)->lent = true;
    count_in(*result);
    return KILN_OK;
}

cl_mem kiln_buffer_cl(const kiln_buffer *buffer)
{
    if (!buffer)
        return NULL;
    kiln_buffer *own = (kiln_buffer *)(uintptr_t)buffer;
    struct kiln__error error = {0};
    cl_mem memory;
    kiln_status status = kiln__backing_hold_unbudgeted(own, &memory, &error);
    if (status) {
        kiln__fail(NULL, status, "kiln_buffer_cl: %s", error.text);
        return NULL;
    }
    atomic_store(&own->shown, true);
    atomic_store(&own->source.is_content, false);
    kiln__backing_release(own);
    return memory;
}

void kiln_buffer_retain(kiln_buffer *buffer)
{
    if (buffer)
        atomic_fetch_add(&buffer->references, 1);
}

void kiln_buffer_release(kiln_buffer *buffer)
{
    if (!buffer || atomic_fetch_sub(&buffer->references, 1) != 1)
        return;
    kiln_context *context = buffer->context;
    bool child = kiln__runtime_check_process(&context->runtime, NULL);
    if (buffer->mapped && !child)
        kiln__buffer_unmap(buffer, "kiln_buffer_release");
    if (!child)
        kiln__buffer_drop(buffer);
    kiln__backing_end(buffer);
    atomic_fetch_sub(&context->runtime.counters.buffers_live, 1);
    atomic_fetch_sub(&context->runtime.counters.buffer_bytes, buffer->bytes);
    free(buffer);
    kiln_context_release(context);
}

/* ---- content ---- */

static kiln_status check_range(const char *call, const kiln_buffer *buffer, size_t offset,
                               const void *data, size_t bytes)
{
    KILN__RETURN_IF_NULL(NULL, call, buffer, data);
    if (offset > buffer->bytes || bytes > buffer->bytes - offset)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT,
                          "%s: %zu bytes from byte %zu go beyond the buffer's %zu", call, bytes,
                          offset, buffer->bytes);
    if (buffer->mapped)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: the buffer is mapped", call);
    return kiln__runtime_check_process(&buffer->context->runtime, NULL);
}

kiln_status kiln_buffer_write(kiln_buffer *buffer, size_t offset, const void *data, size_t bytes)
{
    kiln_status status = check_range("kiln_buffer_write", buffer, offset, data, bytes);
    return status || !bytes ? status
                            : kiln__buffer_transfer(buffer, true, offset, (void *)(uintptr_t)data,
                                                    bytes, "kiln_buffer_write");
}

kiln_status kiln_buffer_read(kiln_buffer *buffer, size_t offset, void *data, size_t bytes)
{
    kiln_status status = check_range("kiln_buffer_read", buffer, offset, data, bytes);
    if (status || !bytes)
        return status;
    status = kiln__buffer_transfer(buffer, false, offset, data, bytes, "kiln_buffer_read");
    return status
               ? status
               : kiln__runtime_report_failure(&buffer->context->runtime, "kiln_buffer_read", NULL);
}

kiln_status kiln_buffer_map(kiln_buffer *buffer, void **data)
{
    KILN__RETURN_IF_NULL(NULL, __func__, buffer, data);
    *data = NULL;
    kiln_status status = kiln__runtime_check_process(&buffer->context->runtime, NULL);
    if (status)
        return status;
    if (!buffer->bytes)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "kiln_buffer_map: the buffer has no bytes");
    if (atomic_exchange(&buffer->mapped, true))
        return kiln__fail(NULL, KILN_WRONG_STATE, "kiln_buffer_map: the buffer is mapped already");
    status = kiln__buffer_map(buffer, "kiln_buffer_map");
    if (!status) {
        status = kiln__runtime_report_failure(&buffer->context->runtime, "kiln_buffer_map", NULL);
        if (status)
            kiln__buffer_unmap(buffer, "kiln_buffer_map");
    }
    if (status) {
        buffer->mapped = false;
        return status;
    }
    *data = buffer->mapping;
    return KILN_OK;
}

kiln_status kiln_buffer_unmap(kiln_buffer *buffer)
{
    KILN__RETURN_IF_NULL(NULL, __func__, buffer);
    kiln_status status = kiln__runtime_check_process(&buffer->context->runtime, NULL);
    if (status)
        return status;
    if (!buffer->mapped)
        return kiln__fail(NULL, KILN_WRONG_STATE, "kiln_buffer_unmap: the buffer is not mapped");
    status = kiln__buffer_unmap(buffer, "kiln_buffer_unmap");
    if (!status)
        buffer->mapped = false;
    return status;
}

kiln_status kiln_buffer_set_source(kiln_buffer *buffer, kiln_buffer_reader read,
                                   void (*end)(void *user), void *user)
{
    KILN__RETURN_IF_NULL(NULL, __func__, buffer, read);
    if (atomic_load(&buffer->references) != 1 || buffer->source.read)
        return kiln__fail(NULL, KILN_WRONG_STATE, "kiln_buffer_set_source: %s",
                          buffer->source.read ? "the buffer has a source already"
                                              : "somebody else has the buffer already");
    kiln__backing_begin(buffer, read, end, user);
    return KILN_OK;
}

size_t kiln_buffer_bytes(const kiln_buffer *buffer)
{
    return buffer ? buffer->bytes : 0;
}

kiln_status kiln_buffer_shape(const kiln_buffer *buffer, kiln_type *type, size_t *rank,
                              size_t *dims)
{
    KILN__RETURN_IF_NULL(NULL, __func__, buffer);
    if (type)
        *type = buffer->type;
    if (rank)
        *rank = buffer->shape.rank;
    if (dims)
        memcpy(dims, buffer->shape.dims, sizeof buffer->shape.dims);
    return KILN_OK;
}
