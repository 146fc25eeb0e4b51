/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of a batch's inputs and of its graph, in which every operation's value is a result, and
 * their run. */
#include "debug/intermediates.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/commands.h"
#include "util/log.h"

/* ---- inputs ---- */

static kiln_status no_memory(struct kiln__error *error)
{
    return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to look at the batch");
}

kiln_status kiln__copy_content(kiln_context *context, const struct kiln__binding *binding,
                               void **copy, struct kiln__error *error)
{
    *copy = malloc(binding->bytes + 1);
    if (!*copy)
        return no_memory(error);
    if (binding->bytes && binding->host)
        memcpy(*copy, binding->host, binding->bytes);
    if (!binding->bytes || binding->host)
        return KILN_OK;
    cl_mem memory = binding->buffer ? binding->buffer->memory : binding->memory; /* which stays */
    cl_int code = clEnqueueReadBuffer(context->runtime.compute->queue, memory, CL_TRUE,
                                      binding->offset, binding->bytes, *copy, 0, NULL, NULL);
    return code ? kiln__cl_fail(error, "clEnqueueReadBuffer", code) : KILN_OK;
}

kiln_status kiln__intermediates_inputs_copy(const kiln_batch *batch, struct kiln__inputs *inputs,
                                            struct kiln__error *error)
{
    size_t count = batch->bindings.inputs.count;
    *inputs = (struct kiln__inputs){0};
    cl_int code = kiln__runtime_finish(&batch->context->runtime);
    if (code)
        return kiln__cl_fail(error, "clFinish", code);
    inputs->items = calloc(count + 1, sizeof *inputs->items);
    kiln_status status = inputs->items ? KILN_OK : no_memory(error);
    for (; inputs->count < count && !status; inputs->count++)
        status = kiln__copy_content(batch->context, &batch->bindings.inputs.items[inputs->count],
                                    &inputs->items[inputs->count], error);
    if (status)
        kiln__intermediates_inputs_free(inputs);
    return status;
}

void kiln__intermediates_inputs_free(struct kiln__inputs *inputs)
{
    for (size_t i = 0; i < inputs->count && !inputs->lost; i++)
        free(inputs->items[i]);
    free(inputs->items);
    *inputs = (struct kiln__inputs){0};
}

/* ---- running ---- */

bool kiln__intermediates_fits(const kiln_batch *batch, const char *undone)
{
    const kiln_device_info *device = &batch->context->runtime.device.info;
    double bytes = 0;
    bool fits = true;
    for (size_t i = 0; i < batch->graph.nodes.count; i++) {
        size_t own = kiln__node_bytes(&batch->graph.nodes.items[i]);
        fits = fits && own <= device->max_allocation;
        bytes += (double)own;
    }
    if (fits && bytes <= 0.5 * (double)batch->context->runtime.memory.limit)
        return true;
    if (undone)
        KILN__LOG(KILN__LOG_INFO, "%s: %.0f bytes of values", undone, bytes);
    return false;
}

kiln_status kiln__intermediates_run(kiln_context *context, const struct kiln__graph *graph,
                                    struct kiln__bindings *bindings, bool checked, const char *call,
                                    bool *lost, struct kiln__error *error)
{
    struct kiln__stream *stream = context->runtime.compute;
    struct kiln__lease lease;
    struct kiln__run *run = NULL;
    kiln_status status = kiln__plan_cache_lease(context->plan_cache, graph, checked, &lease, error);
    if (status)
        return status;
    if (!lease.executable)
        status = kiln__fail(error, KILN_OUT_OF_DEVICE_MEMORY,
                            "%s: no memory to hold every value at once", call);
    if (!status)
        status = kiln__commands_run(lease.executable, stream, bindings, &run, error);
    if (!status)
        status = kiln__run_await(run, call, error);
    *lost = status && kiln__cl_finish(stream->queue);
    if (!status && checked)
        status = kiln__checked_judge(lease.executable, stream, call, error);
    if (status == KILN_WRONG_RESULT)
        KILN__LOG(KILN__LOG_ERROR, "%s", kiln_last_error());
    kiln__run_release(run);
    kiln__plan_cache_return(context->plan_cache, &lease);
    return status;
}

/* ---- every value ---- */

void kiln__intermediates_free(struct kiln__intermediates *intermediates, bool lost)
{
    for (size_t i = 0; i < intermediates->bindings.results.count; i++) {
        void *host = intermediates->bindings.results.items[i].host;
        kiln__bindings_move(&intermediates->bindings, &intermediates->bindings.results.items[i],
                            NULL);
        if (!lost)
            free(host);
    }
    kiln__bindings_free(&intermediates->bindings);
    kiln__graph_free(&intermediates->graph);
}

/* Ask for a node's value. */
static bool ask_for(struct kiln__intermediates *intermediates, uint32_t index)
{
    const struct kiln__node *node = &intermediates->graph.nodes.items[index];
    struct kiln__request *request = kiln__vector_push(&intermediates->graph.requests);
    struct kiln__binding *result =
        request ? kiln__vector_push(&intermediates->bindings.results) : NULL;
    if (!result)
        return false;
    *request = (struct kiln__request){.node = index, .kind = KILN__READ};
    result->bytes = kiln__node_bytes(node);
    result->item = kiln__type_alignment(node->type);
    result->host = malloc(result->bytes + 1);
    return result->host;
}

bool kiln__intermediates_make(const struct kiln__inputs *inputs, const kiln_batch *batch,
                              struct kiln__intermediates *intermediates)
{
    const struct kiln__graph *graph = &batch->graph;
    bool *needed = kiln__graph_needed(graph);
    bool done = needed;
    intermediates->graph.labels = graph->labels;
    for (uint32_t i = 0; i < graph->nodes.count && done; i++) {
        struct kiln__node node = graph->nodes.items[i];
        uint32_t index;
        if (node.kind == KILN__IMPORT)
            node.kind = KILN__UPLOAD;
        done = kiln__graph_add(&intermediates->graph, &node, &index);
        if (done && needed[i] && !kiln__node_is_input(&node) && node.kind != KILN__CONSTANT)
            done = ask_for(intermediates, i);
    }
    free(needed);
    for (size_t i = 0; i < inputs->count && done; i++) {
        done =
            kiln__vector_add(&intermediates->bindings.inputs,
                             (struct kiln__binding){.host = inputs->items[i],
                                                    .bytes = batch->bindings.inputs.items[i].bytes,
                                                    .item = batch->bindings.inputs.items[i].item});
    }
    return done;
}

const void *kiln__intermediates_value(const struct kiln__intermediates *intermediates,
                                      uint32_t node, size_t *next)
{
    if (*next == intermediates->graph.requests.count ||
        intermediates->graph.requests.items[*next].node != node)
        return NULL;
    return intermediates->bindings.results.items[(*next)++].host;
}
