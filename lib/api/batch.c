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

kiln_status kiln__batch_await(const kiln_batch *batch, const char *call, struct kiln__error *error)
{
    return kiln__run_await(batch->last, batch->context->runtime.queue, call, error);
}

/* The driver keeps what enqueued commands use, so that nothing needs waiting for here. */
static void drop_run(kiln_batch *batch)
{
    kiln__plans_return(batch->context->plans, &batch->loan);
    kiln__run_release(batch->last);
    batch->last = NULL;
}

static void drop_recording(kiln_batch *batch)
{
    for (size_t i = 0; i < batch->buffers.count; i++)
        kiln_buffer_release(batch->buffers.items[i]);
    batch->buffers.count = 0;
    kiln__bindings_free(&batch->bindings);
    kiln__index_clear(&batch->imports);
    kiln__index_clear(&batch->exports);
    kiln__index_clear(&batch->reads);
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
    if (status)
        return status;
    if (batch->last)
        status = kiln__batch_await(batch, "kiln_batch_reset", NULL);
    drop_run(batch);
    drop_recording(batch);
    batch->graph.nodes.count = batch->graph.requests.count = 0;
    batch->operations = 0;
    batch->error = (struct kiln__error){0};
    batch->serial = next_serial();
    return status;
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
static uint32_t find_replaced(const kiln_batch *batch, size_t index)
{
    size_t at = 0;
    uint32_t node, other;
    uint64_t memory = kiln__memory_hash(batch->bindings.results.items[index].memory);
    if (!kiln__index_find(&batch->imports, memory, &at, &node) ||
        kiln__index_find(&batch->imports, memory, &at, &other))
        return 0;
    return 1 + (uint32_t)batch->graph.nodes.items[node].binding;
}

/* Which buffers are updated is part of a batch's structure; planning relies on it. */
static void name_replaced(kiln_batch *batch)
{
    for (size_t i = 0; i < batch->graph.requests.count; i++)
        if (batch->graph.requests.items[i].kind == KILN__EXPORT)
            batch->graph.requests.items[i].replaces = find_replaced(batch, i);
}

static kiln_status borrow_plan(kiln_batch *batch, struct kiln__error *error)
{
    if (batch->loan.known)
        return KILN_OK;
    name_replaced(batch);
    return kiln__plans_borrow(batch->context->plans, &batch->graph, false, &batch->loan, error);
}

/* The batch keeps the run as its latest one. */
static kiln_status run(kiln_batch *batch, const char *call)
{
    struct kiln__error error = {0};
    if (!batch)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: batch is NULL", call);
    if (batch->error.status)
        return kiln__fail(NULL, batch->error.status, "%s", batch->error.text);
    if (batch->graph.nodes.count && !batch->graph.requests.count)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT,
                          "%s: the batch asks for no result; kiln_read() or kiln_export() one",
                          call);
    kiln_status status = kiln__runtime_check_process(&batch->context->runtime, &error);
    struct kiln__validation validation = {0};
    struct kiln__run *made = NULL;
    if (!status)
        status = borrow_plan(batch, &error);
    if (!status)
        status = kiln__validate_begin(&validation, batch, call, &error);
    if (!status)
        status = kiln__ready_run(batch->loan.ready, &batch->bindings, &made, &error);
    if (status) {
        kiln__validate_free(&validation);
        return status;
    }
    kiln__run_release(batch->last);
    batch->last = made;
    return kiln__validate_end(&validation, batch, call, &error);
}

kiln_status kiln_batch_execute(kiln_batch *batch)
{
    kiln_status status = run(batch, "kiln_batch_execute");
    if (!status)
        status = kiln__batch_await(batch, "kiln_batch_execute", NULL);
    return status ? status
                  : kiln__runs_tell(batch->context->runtime.runs, "kiln_batch_execute", NULL);
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
    if (!status && !event)
        kiln__runs_add(batch->context->runtime.runs, batch->last, batch->context->runtime.queue);
    if (status || !event) {
        free(event);
        return status;
    }
    atomic_init(&event->references, 1);
    event->context = batch->context;
    kiln_context_retain(batch->context);
    kiln__run_retain(batch->last);
    event->run = batch->last;
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
    return status ? status
                  : kiln__run_await(event->run, event->context->runtime.queue, "kiln_event_wait",
                                    NULL);
}

kiln_status kiln_event_poll(kiln_event *event)
{
    kiln_status status = check_event(event, "kiln_event_poll");
    return status ? status : kiln__run_poll(event->run, "kiln_event_poll", NULL);
}

struct notice {
    kiln_event_callback callback;
    void *user;
    struct kiln__run *run; /* NULL: its last command is all there is to look at */
};

static void CL_CALLBACK deliver(cl_event event, cl_int state, void *user)
{
    struct notice notice = *(struct notice *)user;
    kiln_status earlier = notice.run ? kiln__run_poll(notice.run, "kiln", NULL) : KILN_OK;
    bool failed = state < 0 || earlier == KILN_DEVICE_ERROR;
    (void)event;
    free(user);
    kiln__run_release(notice.run);
    notice.callback(failed ? KILN_DEVICE_ERROR : KILN_OK, notice.user);
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
    *notice = (struct notice){callback, user, kiln__run_has_one(event->run) ? NULL : event->run};
    if (notice->run)
        kiln__run_retain(notice->run);
    cl_int code = clSetEventCallback(kiln__run_end(event->run), CL_COMPLETE, deliver, notice);
    if (!code)
        return KILN_OK;
    kiln__run_release(notice->run);
    free(notice);
    return kiln__cl_fail(NULL, "kiln_event_notify: clSetEventCallback", code);
}

void kiln_event_release(kiln_event *event)
{
    if (!event || atomic_fetch_sub(&event->references, 1) != 1)
        return;
    kiln_context *context = event->context;
    if (!kiln__runtime_check_process(&context->runtime, NULL)) {
        kiln__runs_add(context->runtime.runs, event->run, context->runtime.queue);
        kiln__run_release(event->run);
    }
    free(event);
    kiln_context_release(context);
}

cl_event kiln_event_cl(const kiln_event *event)
{
    return event ? kiln__run_end(event->run) : NULL;
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

kiln_status kiln_batch_prepare(kiln_batch *batch, unsigned threads)
{
    struct kiln__error error = {0};
    kiln_status status = check_question(batch, batch, "batch", "kiln_batch_prepare");
    if (status || batch->loan.known)
        return status;
    name_replaced(batch);
    return kiln__plans_prepare(batch->context->plans, &batch->graph, threads, &batch->loan, &error);
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
