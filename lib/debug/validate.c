/* SPDX-License-Identifier: Apache-2.0 */
/* Comparison of a run with the float64 reference: results first, then each operation, in order to
 * name the first one off. */
#include "debug/validate.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/launch_text.h"
#include "plan/names.h"
#include "reference/bounds.h"
#include "util/log.h"

static kiln_status no_memory(struct kiln__error *error)
{
    return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to validate the batch");
}

static bool validate_fits(const kiln_batch *batch)
{
    return kiln__intermediates_fits(batch,
                                    "indices are not checked, operations not validated one by one");
}

/* ---- indices ---- */

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
    copy->identity = (uintptr_t)copy->memory;
    return copy->host || (copy->memory && !code);
}

/* The input in the same buffer, whose copy stands for both; or NULL. */
static const struct kiln__binding *same_buffer(const struct kiln__bindings *bindings,
                                               const struct kiln__bindings *copies, size_t result)
{
    uintptr_t identity = bindings->results.items[result].identity;
    for (size_t i = 0; i < bindings->inputs.count && !bindings->results.items[result].host; i++)
        if (!bindings->inputs.items[i].host && bindings->inputs.items[i].identity == identity)
            return &copies->inputs.items[i];
    return NULL;
}

static bool copy_bindings(const struct kiln__inputs *inputs, const kiln_batch *batch,
                          struct kiln__bindings *copies)
{
    const struct kiln__bindings *from = &batch->bindings;
    for (size_t i = 0; i < from->inputs.count; i++) {
        struct kiln__binding *copy = kiln__vector_push(&copies->inputs);
        if (!copy || !copy_binding(batch->context, &from->inputs.items[i], inputs->items[i], copy))
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

static kiln_status check_indices(struct kiln__inputs *inputs, const kiln_batch *batch,
                                 const char *call, struct kiln__error *error)
{
    struct kiln__bindings copies = {0};
    kiln_status status = copy_bindings(inputs, batch, &copies)
                             ? kiln__intermediates_run(batch->context, &batch->graph, &copies, true,
                                                       call, &inputs->lost, error)
                             : no_memory(error);
    free_copies(batch, &copies, inputs->lost);
    return status;
}

kiln_status kiln__validate_begin(struct kiln__inputs *inputs, const kiln_batch *batch,
                                 const uint32_t *numbers, const char *call,
                                 struct kiln__error *error)
{
    *inputs = (struct kiln__inputs){0};
    if (batch->unvalidated || !kiln__sample_next(&batch->context->validate))
        return KILN_OK;
    kiln_status status = kiln__intermediates_inputs_copy(batch, inputs, error);
    inputs->numbers = numbers;
    if (!status && validate_fits(batch))
        status = check_indices(inputs, batch, call, error);
    if (status)
        kiln__intermediates_inputs_free(inputs);
    return status;
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
    for (size_t i = 0; i < kiln__node_count(node); i++) {
        double value = kiln__value_at(node->type, found, i);
        if (kiln__bounds_allow(node->type, wanted[i], allowed[i], value))
            continue;
        *difference = (struct difference){i, value, wanted[i], allowed[i]};
        return true;
    }
    return false;
}

static kiln_status wrong(const struct kiln__inputs *inputs, const struct kiln__graph *graph,
                         uint32_t index, const char *call, const char *blame,
                         const struct difference *difference, struct kiln__error *error)
{
    const struct kiln__node *node = &graph->nodes.items[index];
    struct kiln__text label = {0};
    kiln__labels_append(graph->labels, index, &label);
    kiln_status status = kiln__fail(
        error, KILN_WRONG_RESULT,
        "%s: %%%u %s%s, %s%s, element %s: the device has %s and the host %s, and "
        "they may differ "
        "by %.3g (%s)",
        call, inputs->numbers ? inputs->numbers[index] : index, kiln__node_name(node),
        label.data ? label.data : "", kiln_type_name(node->type),
        kiln__shape_text(&node->shape).text,
        kiln__shape_position(&node->shape, difference->element).text,
        kiln__value_text(node->type, difference->found).text,
        kiln__value_text(node->type, difference->wanted).text, difference->allowed, blame);
    kiln__text_free(&label);
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
    struct kiln__names names;
    kiln__names_make(plan, batch->graph.labels, &names);
    kiln__names_append(&names, launch, " for ", ", ", text);
    kiln__names_free(&names);
    kiln__text_add(text, launch ? ", which computes it, or one before it" : ", which computes it");
}

static kiln_status compare_result(const struct kiln__inputs *inputs, const kiln_batch *batch,
                                  size_t i, const struct kiln__reference *reference,
                                  const struct kiln__bounds *bounds, const char *call,
                                  struct kiln__error *error)
{
    void *found;
    struct difference difference;
    uint32_t index = batch->graph.requests.items[i].node;
    kiln_status status =
        kiln__copy_content(batch->context, &batch->bindings.results.items[i], &found, error);
    if (!status && differ(&batch->graph.nodes.items[index], found, reference->values[index],
                          bounds->errors[index], &difference)) {
        struct kiln__text blame = {0};
        blame_kernel(batch, i, &blame);
        status = wrong(inputs, &batch->graph, index, call, blame.data ? blame.data : "",
                       &difference, error);
        kiln__text_free(&blame);
    }
    free(found);
    return status;
}

static kiln_status compare_results(const struct kiln__inputs *inputs, const kiln_batch *batch,
                                   const char *call, struct kiln__error *error)
{
    struct kiln__reference reference;
    struct kiln__bounds bounds;
    kiln_status status = KILN_OK;
    if (!kiln__reference_run(&batch->graph, (const void *const *)inputs->items, &reference))
        return no_memory(error);
    if (!kiln__bounds_make(&batch->graph, &reference, denormal_of(&batch->context->runtime),
                           &bounds)) {
        kiln__reference_free(&reference);
        return no_memory(error);
    }
    for (size_t i = 0; i < batch->bindings.results.count && !status; i++)
        if (!is_overwritten(&batch->bindings, i))
            status = compare_result(inputs, batch, i, &reference, &bounds, call, error);
    kiln__bounds_free(&bounds);
    kiln__reference_free(&reference);
    return status;
}

/* ---- the operations one by one ---- */

/* Beside the device's values what the host has from these. */
struct comparison {
    struct kiln__intermediates intermediates;
    struct kiln__reference given; /* per node: the device's values */
    double **unknown; /* per node: INFINITY where its value is undefined, else 0; or NULL */
};

static bool make_comparison(const struct kiln__inputs *inputs, const kiln_batch *batch,
                            struct comparison *comparison)
{
    size_t count = batch->graph.nodes.count;
    bool made = kiln__intermediates_make(inputs, batch, &comparison->intermediates);
    comparison->given.values = calloc(count + 1, sizeof(double *));
    comparison->given.count = comparison->given.values ? count : 0;
    comparison->unknown = calloc(count + 1, sizeof(double *));
    return made && comparison->given.values && comparison->unknown;
}

static void free_comparison(struct comparison *comparison, bool lost)
{
    for (size_t i = 0; comparison->unknown && i < comparison->intermediates.graph.nodes.count; i++)
        free(comparison->unknown[i]);
    free(comparison->unknown);
    kiln__reference_free(&comparison->given);
    kiln__intermediates_free(&comparison->intermediates, lost);
}

/* Keeps `allowed` for a node of which some elements have no bound, as beside the part of a place
 * that has nothing beneath; else frees it. What an own kernel has computed is there. */
static void keep_unknown(struct comparison *comparison, uint32_t index, double *allowed)
{
    bool keep = false;
    const struct kiln__node *node = &comparison->intermediates.graph.nodes.items[index];
    size_t count = kiln__node_count(node);
    for (size_t i = 0; i < count && node->kind != KILN__CUSTOM; i++) {
        allowed[i] = isinf(allowed[i]) ? INFINITY : 0;
        keep = keep || allowed[i] > 0;
    }
    comparison->unknown[index] = keep ? allowed : NULL;
    if (!keep)
        free(allowed);
}

/* Compare a node's value with the host's from the same operands; from then on the device's is what
 * counts. `found` is NULL for inputs and constants. */
static kiln_status compare_node(const struct kiln__inputs *inputs, struct comparison *comparison,
                                uint32_t index, const void *found, double denormal,
                                const char *call, struct kiln__error *error)
{
    const struct kiln__node *node = &comparison->intermediates.graph.nodes.items[index];
    size_t count = kiln__node_count(node);
    double *values = malloc((count + 1) * sizeof *values);
    double *allowed = malloc((count + 1) * sizeof *allowed);
    struct difference difference;
    comparison->given.values[index] = values;
    bool done =
        values && allowed &&
        kiln__reference_node(&comparison->intermediates.graph, index,
                             (const void *const *)inputs->items, &comparison->given, values);
    if (done && found)
        done = kiln__bounds_node(&comparison->intermediates.graph, index, &comparison->given,
                                 comparison->unknown, denormal, allowed);
    bool off = done && found && differ(node, found, values, allowed, &difference);
    if (done && found)
        kiln__values_load(node->type, found, count, values);
    if (done && found)
        keep_unknown(comparison, index, allowed);
    else
        free(allowed);
    if (!done)
        return no_memory(error);
    return off ? wrong(inputs, &comparison->intermediates.graph, index, call, "from equal operands",
                       &difference, error)
               : KILN_OK;
}

static kiln_status compare_operations(struct kiln__inputs *inputs, const kiln_batch *batch,
                                      const char *call, struct kiln__error *error)
{
    struct comparison comparison = {0};
    const struct kiln__intermediates *intermediates = &comparison.intermediates;
    size_t next = 0;
    double denormal = denormal_of(&batch->context->runtime);
    kiln_status status = make_comparison(inputs, batch, &comparison) ? KILN_OK : no_memory(error);
    if (!status)
        status = kiln__intermediates_run(batch->context, &comparison.intermediates.graph,
                                         &comparison.intermediates.bindings, true, call,
                                         &inputs->lost, error);
    for (uint32_t i = 0; i < intermediates->graph.nodes.count && !status; i++) {
        const struct kiln__node *node = &intermediates->graph.nodes.items[i];
        const void *found = kiln__intermediates_value(intermediates, i, &next);
        if (found || kiln__node_is_input(node) || node->kind == KILN__CONSTANT)
            status = compare_node(inputs, &comparison, i, found, denormal, call, error);
    }
    free_comparison(&comparison, inputs->lost);
    return status;
}

/* ---- both ---- */

kiln_status kiln__validate_end(struct kiln__inputs *inputs, const kiln_batch *batch,
                               const char *call, struct kiln__error *error)
{
    if (!inputs->items)
        return KILN_OK;
    struct kiln__error of_results = {0}, of_operations = {0};
    kiln_status status = kiln__batch_await(batch, call, &of_results);
    if (!status)
        status = compare_results(inputs, batch, call, &of_results);
    if ((!status || status == KILN_WRONG_RESULT) && validate_fits(batch))
        compare_operations(inputs, batch, call, &of_operations);
    kiln__intermediates_inputs_free(inputs);
    /* An operation says more than a result. */
    const struct kiln__error *first = &of_results;
    if (of_operations.status == KILN_WRONG_RESULT || !of_results.status)
        first = &of_operations;
    return first->status ? kiln__fail(error, first->status, "%s", first->text) : KILN_OK;
}
