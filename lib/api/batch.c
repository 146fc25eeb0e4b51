/* SPDX-License-Identifier: Apache-2.0 */
#include "api/batch.h"
#include "api/validate.h"

#include <kiln/opencl.h>

#include <stdlib.h>
#include <string.h>

/* Serial numbers make a tensor of another batch, or of one that was reset, a recognisable error. */
static atomic_uint_fast32_t serials;

static uint32_t next_serial(void)
{
    uint32_t serial = (uint32_t)(atomic_fetch_add(&serials, 1) + 1);
    return serial ? serial : next_serial();
}

kiln_batch *kiln_batch_create(kiln_context *context)
{
    if (!context) {
        kiln__fail(NULL, KILN_INVALID_ARGUMENT, "kiln_batch_create: context is NULL");
        return NULL;
    }
    kiln_batch *batch = calloc(1, sizeof *batch);
    if (!batch) {
        kiln__fail(NULL, KILN_OUT_OF_HOST_MEMORY, "kiln_batch_create: no memory");
        return NULL;
    }
    kiln_context_retain(context);
    batch->context = context;
    batch->serial = next_serial();
    return batch;
}

/* A run borrows the caller's memory until its end: where the event cannot be awaited, the queue
 * is. */
static cl_int await(const kiln_context *context, cl_event event)
{
    cl_int code = clWaitForEvents(1, &event);
    if (code && code != CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST)
        kiln__cl_finish(context->runtime.queue);
    return code;
}

cl_int kiln__batch_await(const kiln_batch *batch)
{
    return await(batch->context, batch->last);
}

/* The driver keeps what enqueued commands use, so that nothing needs waiting for here. */
static void drop_run(kiln_batch *batch)
{
    kiln__plans_return(batch->context->plans, &batch->loan);
    if (batch->last)
        clReleaseEvent(batch->last);
    batch->last = NULL;
}

static void drop_recording(kiln_batch *batch)
{
    for (size_t i = 0; i < batch->buffers.count; i++)
        kiln_buffer_release(batch->buffers.items[i]);
    batch->buffers.count = 0;
    kiln__bindings_free(&batch->bindings);
}

void kiln_batch_release(kiln_batch *batch)
{
    if (!batch)
        return;
    kiln_context *context = batch->context;
    if (!kiln__runtime_check_process(&context->runtime, NULL)) {
        drop_run(batch);
        drop_recording(batch);
    }
    kiln__vector_free(&batch->buffers);
    kiln__graph_free(&batch->graph);
    free(batch);
    kiln_context_release(context);
}

kiln_status kiln_batch_reset(kiln_batch *batch)
{
    if (!batch)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "kiln_batch_reset: batch is NULL");
    kiln_status status = kiln__runtime_check_process(&batch->context->runtime, NULL);
    cl_int code = !status && batch->last ? await(batch->context, batch->last) : CL_SUCCESS;
    if (status)
        return status;
    drop_run(batch);
    drop_recording(batch);
    batch->graph.nodes.count = batch->graph.requests.count = 0;
    batch->operations = 0;
    batch->error = (struct kiln__error){0};
    batch->serial = next_serial();
    return code ? kiln__cl_fail(NULL, "kiln_batch_reset: clWaitForEvents", code) : KILN_OK;
}

kiln_status kiln_batch_status(const kiln_batch *batch)
{
    return batch ? batch->error.status : KILN_INVALID_ARGUMENT;
}

const char *kiln_batch_error(const kiln_batch *batch)
{
    return batch ? batch->error.text : "the batch is NULL";
}

/* ---- recording ---- */

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

const struct kiln__node *kiln__batch_node(kiln_batch *batch, kiln_tensor tensor, const char *call,
                                          const char *operand)
{
    if (!kiln__batch_is_open(batch, call))
        return NULL;
    if (tensor.id == 0)
        kiln__fail(&batch->error, KILN_INVALID_HANDLE, "%s: operand %s is the empty tensor", call,
                   operand);
    else if (tensor.id >> 32 != batch->serial)
        kiln__fail(&batch->error, KILN_INVALID_HANDLE,
                   "%s: operand %s is a tensor of another batch, or of this one before a reset",
                   call, operand);
    else if (kiln__tensor_index(tensor) >= batch->graph.nodes.count)
        kiln__fail(&batch->error, KILN_INVALID_HANDLE, "%s: operand %s names no tensor", call,
                   operand);
    else
        return &batch->graph.nodes.items[kiln__tensor_index(tensor)];
    return NULL;
}

kiln_tensor kiln__batch_record(kiln_batch *batch, const struct kiln__node *node, const char *call)
{
    uint32_t index;
    kiln__plans_return(batch->context->plans, &batch->loan);
    if (!kiln__graph_add(&batch->graph, node, &index)) {
        kiln__fail(&batch->error, KILN_OUT_OF_HOST_MEMORY, "%s: no memory to record", call);
        return (kiln_tensor){0};
    }
    batch->operations += !kiln__node_is_input(node) && node->kind != KILN__CONSTANT;
    return kiln__batch_tensor(batch, index);
}

/* ---- running ---- */

/* 1 + the one input in the memory of result `index`; 0: none such. */
static uint32_t find_replaced(const struct kiln__bindings *bindings, size_t index)
{
    cl_mem memory = bindings->results.items[index].memory;
    uint32_t found = 0;
    for (uint32_t i = 0; i < bindings->inputs.count; i++) {
        if (bindings->inputs.items[i].memory != memory)
            continue;
        if (found)
            return 0;
        found = i + 1;
    }
    return found;
}

/* Which buffers are updated is part of a batch's structure; planning relies on it. */
static void name_replaced(kiln_batch *batch)
{
    for (size_t i = 0; i < batch->graph.requests.count; i++)
        if (batch->graph.requests.items[i].kind == KILN__EXPORT)
            batch->graph.requests.items[i].replaces = find_replaced(&batch->bindings, i);
}

static kiln_status borrow_plan(kiln_batch *batch, struct kiln__error *error)
{
    if (batch->loan.known)
        return KILN_OK;
    name_replaced(batch);
    return kiln__plans_borrow(batch->context->plans, &batch->graph, &batch->loan, error);
}

/* The event of the run; the batch keeps it as its latest one. */
static kiln_status run(kiln_batch *batch, const char *call)
{
    struct kiln__error error = {0};
    if (!batch)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: batch is NULL", call);
    if (batch->error.status)
        return kiln__fail(NULL, batch->error.status, "%s", batch->error.text);
    kiln_status status = kiln__runtime_check_process(&batch->context->runtime, &error);
    struct kiln__validation validation = {0};
    cl_event done = NULL;
    if (!status)
        status = borrow_plan(batch, &error);
    if (!status)
        status = kiln__validate_begin(&validation, batch, &error);
    if (!status)
        status = kiln__ready_run(batch->loan.ready, &batch->bindings, &done, &error);
    if (status) {
        kiln__validate_free(&validation);
        return status;
    }
    if (batch->last)
        clReleaseEvent(batch->last);
    batch->last = done;
    return kiln__validate_end(&validation, batch, call, &error);
}

static kiln_status completion(cl_int code, const char *call)
{
    return code ? kiln__fail(NULL, KILN_DEVICE_ERROR, "%s: a command of the batch failed (%s)",
                             call, kiln__cl_name(code))
                : KILN_OK;
}

kiln_status kiln_batch_execute(kiln_batch *batch)
{
    kiln_status status = run(batch, "kiln_batch_execute");
    return status ? status : completion(await(batch->context, batch->last), "kiln_batch_execute");
}

kiln_status kiln_batch_submit(kiln_batch *batch, kiln_event **result)
{
    kiln_event *event = NULL;
    if (result) {
        *result = NULL;
        event = calloc(1, sizeof *event);
        if (!event)
            return kiln__fail(NULL, KILN_OUT_OF_HOST_MEMORY, "kiln_batch_submit: no memory");
    }
    kiln_status status = run(batch, "kiln_batch_submit");
    if (status || !event) {
        free(event);
        return status;
    }
    cl_int code = clRetainEvent(batch->last);
    if (code) {
        await(batch->context, batch->last);
        free(event);
        return kiln__cl_fail(NULL, "kiln_batch_submit: clRetainEvent", code);
    }
    atomic_init(&event->references, 1);
    event->context = batch->context;
    kiln_context_retain(batch->context);
    event->done = batch->last;
    *result = event;
    return KILN_OK;
}

/* ---- events ---- */

static kiln_status check_event(const kiln_event *event, const char *call)
{
    if (!event)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: event is NULL", call);
    return kiln__runtime_check_process(&event->context->runtime, NULL);
}

kiln_status kiln_event_wait(kiln_event *event)
{
    kiln_status status = check_event(event, "kiln_event_wait");
    return status ? status : completion(await(event->context, event->done), "kiln_event_wait");
}

kiln_status kiln_event_poll(kiln_event *event)
{
    cl_int state = CL_COMPLETE;
    kiln_status status = check_event(event, "kiln_event_poll");
    if (status)
        return status;
    cl_int code =
        clGetEventInfo(event->done, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL);
    if (code || state < 0)
        return completion(code ? code : state, "kiln_event_poll");
    return state == CL_COMPLETE ? KILN_OK : KILN_NOT_READY;
}

struct notice {
    kiln_event_callback callback;
    void *user;
};

static void CL_CALLBACK deliver(cl_event event, cl_int state, void *user)
{
    struct notice notice = *(struct notice *)user;
    (void)event;
    free(user);
    notice.callback(state < 0 ? KILN_DEVICE_ERROR : KILN_OK, notice.user);
}

kiln_status kiln_event_notify(kiln_event *event, kiln_event_callback callback, void *user)
{
    kiln_status status = check_event(event, "kiln_event_notify");
    if (status)
        return status;
    if (!callback)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "kiln_event_notify: callback is NULL");
    struct notice *notice = malloc(sizeof *notice);
    if (!notice)
        return kiln__fail(NULL, KILN_OUT_OF_HOST_MEMORY, "kiln_event_notify: no memory");
    *notice = (struct notice){callback, user};
    cl_int code = clSetEventCallback(event->done, CL_COMPLETE, deliver, notice);
    if (!code)
        return KILN_OK;
    free(notice);
    return kiln__cl_fail(NULL, "kiln_event_notify: clSetEventCallback", code);
}

void kiln_event_release(kiln_event *event)
{
    if (!event || atomic_fetch_sub(&event->references, 1) != 1)
        return;
    kiln_context *context = event->context;
    if (!kiln__runtime_check_process(&context->runtime, NULL))
        clReleaseEvent(event->done);
    free(event);
    kiln_context_release(context);
}

cl_event kiln_event_cl(const kiln_event *event)
{
    return event ? event->done : NULL;
}

/* ---- asking ---- */

kiln_status kiln_tensor_shape(const kiln_batch *batch, kiln_tensor tensor, kiln_type *type,
                              size_t *rank, size_t *dims)
{
    if (!batch)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "kiln_tensor_shape: batch is NULL");
    if (tensor.id >> 32 != batch->serial || kiln__tensor_index(tensor) >= batch->graph.nodes.count)
        return kiln__fail(NULL, KILN_INVALID_HANDLE,
                          "kiln_tensor_shape: the tensor is none of this batch");
    const struct kiln__node *node = &batch->graph.nodes.items[kiln__tensor_index(tensor)];
    if (type)
        *type = (kiln_type)node->type;
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

size_t kiln_batch_buffer_count(const kiln_batch *batch)
{
    return batch ? batch->bindings.inputs.count + batch->bindings.results.count : 0;
}

static kiln_status check_question(const kiln_batch *batch, const void *answer, const char *name,
                                  const char *call)
{
    if (!batch || !answer)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: %s is NULL", call,
                          batch ? name : "batch");
    return batch->error.status ? kiln__fail(NULL, batch->error.status, "%s", batch->error.text)
                               : kiln__runtime_check_process(&batch->context->runtime, NULL);
}

kiln_status kiln_batch_get_cost(kiln_batch *batch, kiln_batch_cost *cost)
{
    struct kiln__error error = {0};
    kiln_status status = check_question(batch, cost, "cost", "kiln_batch_get_cost");
    if (!status)
        status = borrow_plan(batch, &error);
    if (status)
        return status;
    const struct kiln__plan *plan = batch->loan.plan;
    *cost = (kiln_batch_cost){.launches = plan->launches.count,
                              .peak_bytes = plan->arena_bytes,
                              .unshared_bytes = plan->unshared_bytes,
                              .saved_bytes = plan->fusion.saved_bytes};
    for (size_t i = 0; i < plan->steps.count; i++) {
        cost->uploads += plan->steps.items[i].kind == KILN__STEP_UPLOAD;
        cost->downloads += plan->steps.items[i].kind == KILN__STEP_DOWNLOAD;
    }
    return KILN_OK;
}

kiln_status kiln_batch_explain(kiln_batch *batch, char **result)
{
    struct kiln__text text = {0};
    kiln_status status = check_question(batch, result, "text", "kiln_batch_explain");
    if (result)
        *result = NULL;
    if (!status)
        name_replaced(batch);
    if (!status)
        status = kiln__plans_explain(batch->context->plans, &batch->graph, &text, NULL);
    if (!status)
        *result = kiln__text_take(&text);
    kiln__text_free(&text);
    return status;
}
