/* SPDX-License-Identifier: Apache-2.0 */
#include "session/validate.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/bounds.h"
#include "plan/describe.h"
#include "runtime/commands.h"
#include "util/environment.h"
#include "util/log.h"

kiln_status kiln__validate_choose(const char *call, double option, double *share)
{
    const char *text = kiln__environment("KILN_VALIDATE");
    char *end = NULL;
    *share = option;
    if (option == 0 && text) {
        *share = strtod(text, &end);
        if (*end || !(*share >= 0 && *share <= 1))
            return kiln__fail(NULL, KILN_INVALID_ARGUMENT,
                              "%s: KILN_VALIDATE is \"%s\", not a number from 0 to 1", call, text);
    }
    return *share >= 0 && *share <= 1
               ? KILN_OK
               : kiln__fail(NULL, KILN_INVALID_ARGUMENT,
                            "%s: validate is %g, not a number from 0 to 1", call, *share);
}

/* Of n runs ceil(n * share), spread evenly: the first one is always among them. */
static bool is_chosen(kiln_context *context)
{
    if (context->validate <= 0)
        return false;
    double before = (double)atomic_fetch_add(&context->runs, 1);
    return ceil((before + 1) * context->validate) > ceil(before * context->validate);
}

/* ---- content of bindings ---- */

static kiln_status no_memory(struct kiln__error *error)
{
    return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to validate the batch");
}

static kiln_status copy_content(kiln_context *context, const struct kiln__binding *binding,
                                void **copy, struct kiln__error *error)
{
    *copy = malloc(binding->bytes + 1);
    if (!*copy)
        return no_memory(error);
    if (binding->bytes && binding->host)
        memcpy(*copy, binding->host, binding->bytes);
    if (!binding->bytes || binding->host)
        return KILN_OK;
    cl_int code = clEnqueueReadBuffer(context->runtime.compute->queue, binding->memory, CL_TRUE, 0,
                                      binding->bytes, *copy, 0, NULL, NULL);
    return code ? kiln__cl_fail(error, "clEnqueueReadBuffer", code) : KILN_OK;
}

/* ---- indices ---- */

/* Whether the device can hold every value at once, and something beside. */
static bool fits(const kiln_batch *batch)
{
    const kiln_device_info *device = &batch->context->runtime.device.info;
    double bytes = 0;
    bool fits = true;
    for (size_t i = 0; i < batch->graph.nodes.count; i++) {
        size_t own = kiln__node_bytes(&batch->graph.nodes.items[i]);
        fits = fits && own <= device->max_allocation;
        bytes += (double)own;
    }
    if (fits && bytes <= 0.5 * (double)device->memory)
        return true;
    KILN__LOG(KILN__LOG_INFO,
              "indices are not checked, operations not validated one by one: %.0f bytes of values",
              bytes);
    return false;
}

static bool copy_binding(kiln_context *context, const struct kiln__binding *from, void *content,
                         struct kiln__binding *copy)
{
    cl_int code = CL_SUCCESS;
    *copy = (struct kiln__binding){.bytes = from->bytes, .item = from->item};
    if (from->host || !from->bytes)
        copy->host = content ? content : malloc(from->bytes + 1);
    else
        copy->memory = clCreateBuffer(context->runtime.context,
                                      CL_MEM_READ_WRITE | (content ? CL_MEM_COPY_HOST_PTR : 0),
                                      from->bytes, content, &code);
    return copy->host || (copy->memory && !code);
}

/* The input in the same buffer, whose copy stands for both; or NULL. */
static const struct kiln__binding *same_buffer(const struct kiln__bindings *bindings,
                                               const struct kiln__bindings *copies, size_t result)
{
    cl_mem memory = bindings->results.items[result].memory;
    for (size_t i = 0; i < bindings->inputs.count && !bindings->results.items[result].host; i++)
        if (!bindings->inputs.items[i].host && bindings->inputs.items[i].memory == memory)
            return &copies->inputs.items[i];
    return NULL;
}

static bool copy_bindings(const struct kiln__validation *validation, const kiln_batch *batch,
                          struct kiln__bindings *copies)
{
    const struct kiln__bindings *from = &batch->bindings;
    for (size_t i = 0; i < from->inputs.count; i++) {
        struct kiln__binding *copy = kiln__vector_push(&copies->inputs);
        if (!copy ||
            !copy_binding(batch->context, &from->inputs.items[i], validation->inputs[i], copy))
            return false;
    }
    for (size_t i = 0; i < from->results.count; i++) {
        struct kiln__binding *copy = kiln__vector_push(&copies->results);
        const struct kiln__binding *same = copy ? same_buffer(from, copies, i) : NULL;
        if (!copy)
            return false;
        if (same)
            *copy = *same;
        else if (!copy_binding(batch->context, &from->results.items[i], NULL, copy))
            return false;
    }
    return true;
}

static void free_copies(const kiln_batch *batch, struct kiln__bindings *copies, bool lost)
{
    for (size_t i = 0; i < copies->results.count; i++) {
        struct kiln__binding *copy = &copies->results.items[i];
        void *host = copy->host;
        bool own = !same_buffer(&batch->bindings, copies, i);
        if (!host && copy->memory && own)
            clReleaseMemObject(copy->memory);
        kiln__bindings_move(copies, copy, NULL);
        if (!lost && own)
            free(host);
    }
    for (size_t i = 0; i < copies->inputs.count; i++)
        if (!copies->inputs.items[i].host && copies->inputs.items[i].memory)
            clReleaseMemObject(copies->inputs.items[i].memory);
    kiln__bindings_free(copies);
}

/* Run with checked kernels. `lost`: the end could not be awaited. */
static kiln_status run_checked(kiln_context *context, const struct kiln__graph *graph,
                               struct kiln__bindings *bindings, const char *call, bool *lost,
                               struct kiln__error *error)
{
    struct kiln__stream *stream = context->runtime.compute;
    struct kiln__lease lease;
    struct kiln__run *run = NULL;
    kiln_status status = kiln__plan_cache_lease(context->plan_cache, graph, true, &lease, error);
    if (status)
        return status;
    status = kiln__commands_run(lease.executable, stream, bindings, &run, error);
    if (!status)
        status = kiln__run_await(run, call, error);
    *lost = status && kiln__cl_finish(stream->queue);
    if (!status)
        status = kiln__checked_judge(lease.executable, stream, call, error);
    if (status == KILN_WRONG_RESULT)
        KILN__LOG(KILN__LOG_ERROR, "%s", kiln_last_error());
    kiln__run_release(run);
    kiln__plan_cache_return(context->plan_cache, &lease);
    return status;
}

static kiln_status check_indices(struct kiln__validation *validation, const kiln_batch *batch,
                                 const char *call, struct kiln__error *error)
{
    struct kiln__bindings copies = {0};
    kiln_status status =
        copy_bindings(validation, batch, &copies)
            ? run_checked(batch->context, &batch->graph, &copies, call, &validation->lost, error)
            : no_memory(error);
    free_copies(batch, &copies, validation->lost);
    return status;
}

kiln_status kiln__validate_begin(struct kiln__validation *validation, const kiln_batch *batch,
                                 const char *call, struct kiln__error *error)
{
    size_t count = batch->bindings.inputs.count;
    *validation = (struct kiln__validation){0};
    if (batch->unvalidated || !is_chosen(batch->context))
        return KILN_OK;
    /* Earlier runs may still write what this one reads. */
    cl_int code = kiln__runtime_finish(&batch->context->runtime);
    if (code)
        return kiln__cl_fail(error, "clFinish", code);
    validation->inputs = calloc(count + 1, sizeof *validation->inputs);
    kiln_status status = validation->inputs ? KILN_OK : no_memory(error);
    for (; validation->count < count && !status; validation->count++)
        status = copy_content(batch->context, &batch->bindings.inputs.items[validation->count],
                              &validation->inputs[validation->count], error);
    if (!status && fits(batch))
        status = check_indices(validation, batch, call, error);
    if (status)
        kiln__validate_free(validation);
    return status;
}

void kiln__validate_free(struct kiln__validation *validation)
{
    for (size_t i = 0; i < validation->count && !validation->lost; i++)
        free(validation->inputs[i]);
    free(validation->inputs);
    *validation = (struct kiln__validation){0};
}

/* ---- comparing ---- */

/* The first element that is off. */
struct difference {
    size_t element;
    double found, wanted, allowed;
};

static bool differ(const struct kiln__node *node, const void *found, const double *wanted,
                   const double *allowed, struct difference *difference)
{
    size_t bytes = kiln_type_size(node->type);
    for (size_t i = 0; i < kiln__node_count(node); i++) {
        double value = kiln__type_load(node->type, (const char *)found + i * bytes);
        if (kiln__bounds_allow(wanted[i], allowed[i], value))
            continue;
        *difference = (struct difference){i, value, wanted[i], allowed[i]};
        return true;
    }
    return false;
}

/* "[1,3]" */
static struct kiln__shape_text position(const struct kiln__shape *shape, size_t element)
{
    struct kiln__shape index = *shape;
    for (uint32_t d = shape->rank; d-- > 0; element /= shape->dims[d])
        index.dims[d] = element % shape->dims[d];
    return kiln__shape_text(&index);
}

static kiln_status wrong(const struct kiln__graph *graph, uint32_t index, const char *call,
                         const char *blame, const struct difference *difference,
                         struct kiln__error *error)
{
    const struct kiln__node *node = &graph->nodes.items[index];
    kiln_status status = kiln__fail(
        error, KILN_WRONG_RESULT,
        "%s: %%%u %s, %s%s, element %s: the device has %.9g and the host %.9g, and they may differ "
        "by %.3g (%s)",
        call, index, kiln__node_name(node), kiln_type_name(node->type),
        kiln__shape_text(&node->shape).text, position(&node->shape, difference->element).text,
        difference->found, difference->wanted, difference->allowed, blame);
    KILN__LOG(KILN__LOG_ERROR, "%s", kiln_last_error());
    return status;
}

/* What flushing denormals may change. */
static double denormal_of(const struct kiln__runtime *runtime)
{
    cl_device_fp_config config = CL_FP_DENORM;
    clGetDeviceInfo(runtime->device.id, CL_DEVICE_SINGLE_FP_CONFIG, sizeof config, &config, NULL);
    return config & CL_FP_DENORM ? 0 : FLT_MIN;
}

/* ---- the requested results ---- */

/* Another result has been written over this one. */
static bool is_overwritten(const struct kiln__bindings *bindings, size_t result)
{
    for (size_t i = result + 1; i < bindings->results.count; i++)
        if (kiln__bindings_overlap(&bindings->results.items[result], &bindings->results.items[i]))
            return true;
    return false;
}

/* What to blame for a result whose operations may each be right alone: the kernel that writes it.
 */
static void blame_kernel(const kiln_batch *batch, size_t result, struct kiln__text *text)
{
    const struct kiln__plan *plan = batch->lease.plan;
    uint32_t node = plan->fusion.graph.requests.items[result].node, launch = 0;
    bool found = false;
    for (uint32_t i = 0; i < plan->launches.count; i++) {
        const struct kiln__group *group = &plan->fusion.groups.items[plan->launches.items[i].group];
        for (size_t k = 0; k < group->stores.count; k++) {
            found = found || group->stores.items[k].node == node;
            launch = group->stores.items[k].node == node ? i : launch;
        }
    }
    kiln__text_add(text, "each operation alone is right");
    if (!found)
        return;
    kiln__text_add(text, ", but not ");
    kiln__launch_title(plan, launch, text);
    kiln__text_add(text, launch ? ", which computes it, or one before it" : ", which computes it");
}

static kiln_status compare_result(const kiln_batch *batch, size_t i,
                                  const struct kiln__reference *reference,
                                  const struct kiln__bounds *bounds, const char *call,
                                  struct kiln__error *error)
{
    void *found;
    struct difference difference;
    uint32_t index = batch->graph.requests.items[i].node;
    kiln_status status =
        copy_content(batch->context, &batch->bindings.results.items[i], &found, error);
    if (!status && differ(&batch->graph.nodes.items[index], found, reference->values[index],
                          bounds->errors[index], &difference)) {
        struct kiln__text blame = {0};
        blame_kernel(batch, i, &blame);
        status =
            wrong(&batch->graph, index, call, blame.data ? blame.data : "", &difference, error);
        kiln__text_free(&blame);
    }
    free(found);
    return status;
}

static kiln_status compare_results(const struct kiln__validation *validation,
                                   const kiln_batch *batch, const char *call,
                                   struct kiln__error *error)
{
    struct kiln__reference reference;
    struct kiln__bounds bounds;
    kiln_status status = KILN_OK;
    if (!kiln__reference_run(&batch->graph, (const void *const *)validation->inputs, &reference))
        return no_memory(error);
    if (!kiln__bounds_make(&batch->graph, &reference, denormal_of(&batch->context->runtime),
                           &bounds)) {
        kiln__reference_free(&reference);
        return no_memory(error);
    }
    for (size_t i = 0; i < batch->bindings.results.count && !status; i++)
        if (!is_overwritten(&batch->bindings, i))
            status = compare_result(batch, i, &reference, &bounds, call, error);
    kiln__bounds_free(&bounds);
    kiln__reference_free(&reference);
    return status;
}

/* ---- the operations one by one ---- */

/* The batch's graph with every operation's value asked for, and where the values are. */
struct exposure {
    struct kiln__graph graph;
    struct kiln__bindings bindings;
    struct kiln__reference given; /* per node: the device's values */
    double **unknown; /* per node: INFINITY where its value is undefined, else 0; or NULL */
};

static void free_exposure(struct exposure *exposure, bool lost)
{
    for (size_t i = 0; i < exposure->bindings.results.count; i++) {
        void *host = exposure->bindings.results.items[i].host;
        kiln__bindings_move(&exposure->bindings, &exposure->bindings.results.items[i], NULL);
        if (!lost)
            free(host);
    }
    kiln__bindings_free(&exposure->bindings);
    for (size_t i = 0; exposure->unknown && i < exposure->graph.nodes.count; i++)
        free(exposure->unknown[i]);
    free(exposure->unknown);
    kiln__reference_free(&exposure->given);
    kiln__graph_free(&exposure->graph);
}

/* Ask for a node's value. */
static bool expose(struct exposure *exposure, uint32_t index)
{
    const struct kiln__node *node = &exposure->graph.nodes.items[index];
    struct kiln__request *request = kiln__vector_push(&exposure->graph.requests);
    struct kiln__binding *result = request ? kiln__vector_push(&exposure->bindings.results) : NULL;
    if (!result)
        return false;
    *request = (struct kiln__request){.node = index, .kind = KILN__READ};
    result->bytes = kiln__node_bytes(node);
    result->item = kiln_type_size(node->type);
    result->host = malloc(result->bytes + 1);
    return result->host;
}

/* Inputs come from the copies; what no result needs stays out. */
static bool make_exposure(const struct kiln__validation *validation, const kiln_batch *batch,
                          struct exposure *exposure)
{
    const struct kiln__graph *graph = &batch->graph;
    bool *needed = kiln__graph_needed(graph);
    bool done = needed;
    for (uint32_t i = 0; i < graph->nodes.count && done; i++) {
        struct kiln__node node = graph->nodes.items[i];
        uint32_t index;
        if (node.kind == KILN__IMPORT)
            node.kind = KILN__UPLOAD;
        done = kiln__graph_add(&exposure->graph, &node, &index);
        if (done && needed[i] && !kiln__node_is_input(&node) && node.kind != KILN__CONSTANT)
            done = expose(exposure, i);
    }
    free(needed);
    for (size_t i = 0; i < validation->count && done; i++) {
        struct kiln__binding *input = kiln__vector_push(&exposure->bindings.inputs);
        done = input;
        if (done)
            *input = (struct kiln__binding){.host = validation->inputs[i],
                                            .bytes = batch->bindings.inputs.items[i].bytes,
                                            .item = batch->bindings.inputs.items[i].item};
    }
    exposure->given.values = calloc(graph->nodes.count + 1, sizeof(double *));
    exposure->given.count = exposure->given.values ? graph->nodes.count : 0;
    exposure->unknown = calloc(graph->nodes.count + 1, sizeof(double *));
    return done && exposure->given.values && exposure->unknown;
}

/* Keeps `allowed` for a node of which some elements have no bound, as beside the part of a place
 * that has nothing beneath; else frees it. */
static void keep_unknown(struct exposure *exposure, uint32_t index, double *allowed)
{
    bool keep = false;
    size_t count = kiln__node_count(&exposure->graph.nodes.items[index]);
    for (size_t i = 0; i < count; i++) {
        allowed[i] = isinf(allowed[i]) ? INFINITY : 0;
        keep = keep || allowed[i] > 0;
    }
    exposure->unknown[index] = keep ? allowed : NULL;
    if (!keep)
        free(allowed);
}

/* Compare a node's value with the host's from the same operands; from then on the device's is what
 * counts. `found` is NULL for inputs and constants. */
static kiln_status compare_node(const struct kiln__validation *validation,
                                struct exposure *exposure, uint32_t index, const void *found,
                                double denormal, const char *call, struct kiln__error *error)
{
    const struct kiln__node *node = &exposure->graph.nodes.items[index];
    size_t count = kiln__node_count(node), bytes = kiln_type_size(node->type);
    double *values = malloc((count + 1) * sizeof *values);
    double *allowed = malloc((count + 1) * sizeof *allowed);
    struct difference difference;
    exposure->given.values[index] = values;
    bool done =
        values && allowed &&
        kiln__reference_node(&exposure->graph, index, (const void *const *)validation->inputs,
                             &exposure->given, values);
    if (done && found)
        done = kiln__bounds_node(&exposure->graph, index, &exposure->given, exposure->unknown,
                                 denormal, allowed);
    bool off = done && found && differ(node, found, values, allowed, &difference);
    for (size_t i = 0; i < count && done && found; i++)
        values[i] = kiln__type_load(node->type, (const char *)found + i * bytes);
    if (done && found)
        keep_unknown(exposure, index, allowed);
    else
        free(allowed);
    if (!done)
        return no_memory(error);
    return off ? wrong(&exposure->graph, index, call, "from equal operands", &difference, error)
               : KILN_OK;
}

static kiln_status compare_operations(struct kiln__validation *validation, const kiln_batch *batch,
                                      const char *call, struct kiln__error *error)
{
    struct exposure exposure = {0};
    size_t next = 0;
    double denormal = denormal_of(&batch->context->runtime);
    kiln_status status = make_exposure(validation, batch, &exposure) ? KILN_OK : no_memory(error);
    if (!status)
        status = run_checked(batch->context, &exposure.graph, &exposure.bindings, call,
                             &validation->lost, error);
    for (uint32_t i = 0; i < exposure.graph.nodes.count && !status; i++) {
        const struct kiln__node *node = &exposure.graph.nodes.items[i];
        bool asked =
            next < exposure.graph.requests.count && exposure.graph.requests.items[next].node == i;
        const void *found = asked ? exposure.bindings.results.items[next++].host : NULL;
        if (found || kiln__node_is_input(node) || node->kind == KILN__CONSTANT)
            status = compare_node(validation, &exposure, i, found, denormal, call, error);
    }
    free_exposure(&exposure, validation->lost);
    return status;
}

/* ---- both ---- */

kiln_status kiln__validate_end(struct kiln__validation *validation, const kiln_batch *batch,
                               const char *call, struct kiln__error *error)
{
    struct kiln__error of_results = {0}, of_operations = {0};
    if (!validation->inputs)
        return KILN_OK;
    kiln_status status = kiln__batch_await(batch, call, &of_results);
    if (!status)
        status = compare_results(validation, batch, call, &of_results);
    if ((!status || status == KILN_WRONG_RESULT) && fits(batch))
        compare_operations(validation, batch, call, &of_operations);
    kiln__validate_free(validation);
    /* An operation says more than a result. */
    const struct kiln__error *first = &of_results;
    if (of_operations.status == KILN_WRONG_RESULT || !of_results.status)
        first = &of_operations;
    return first->status ? kiln__fail(error, first->status, "%s", first->text) : KILN_OK;
}
