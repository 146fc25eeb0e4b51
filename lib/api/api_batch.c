/* SPDX-License-Identifier: Apache-2.0 */
/* Batches: made, run, asked about. */
#include <stdlib.h>

#include "api/checked_run.h"
#include "api/loop_runs.h"
#include "api/micro_batches.h"
#include "debug/nan_check.h"
#include "lower/lower.h"
#include "runtime/commands.h"
#include "session/context.h"
#include "util/structure.h"

/* Elements of scores that gradients of attention have in memory at once. GPUs need much work at
 * once, and have the memory for it. */
#define BLOCK_SCORES ((size_t)4 << 20)
#define GPU_SCORES ((size_t)64 << 20)
#define GPU_SHARE 256 /* of its memory: no more for these scores */

/* Operations of a loop whose steps are recorded one by one: more take a second to plan, and fewer
 * are faster as one graph than step by step. */
#define MOST_UNROLLED 4096

/* Steps of longer loops that are planned as one graph where short launches become one: a run costs
 * the host 3 us or more. */
#define MOST_STRETCH 64

static size_t scores_at_once(const kiln_device_info *device)
{
    uint64_t room = device->memory / GPU_SHARE / sizeof(float);
    if (device->type != KILN_DEVICE_GPU || room < BLOCK_SCORES)
        return BLOCK_SCORES;
    return room < GPU_SCORES ? (size_t)room : GPU_SCORES;
}

static struct kiln__record_limits limits_of(const kiln_context *context)
{
    const kiln_device_info *device = &context->runtime.device.info;
    const struct kiln__traits *traits = context->runtime.device.traits;
    return (struct kiln__record_limits){
        .upload_bytes = device->max_allocation,
        .local_memory = device->local_memory,
        .work_group = device->max_work_group,
        .cores = traits->chunked ? device->compute_units : 0,
        .vector = traits->chunked ? traits->vector : 0,
        .unrolled = MOST_UNROLLED,
        .stretch = traits->chunked && traits->one_launch ? MOST_STRETCH : 0,
        .scores = scores_at_once(device),
        .rounds_gradients = device->type == KILN_DEVICE_GPU};
}

static void api_batch_begin(kiln_batch *batch)
{
    kiln__batch_begin(batch);
    batch->product = batch->context->product;
}

/* Asked while a gradient is recorded, so that one goes through products where the kernels have not
 * proved right. */
static bool takes_attention_backward(const kiln_batch *batch, kiln_type type, double scale,
                                     size_t d, size_t e)
{
    const struct kiln__plan_options options = {.device = &batch->context->runtime.device,
                                               .self_tester = batch->context->self_tester};
    return kiln__has_attention_gradients(&options, type, scale, d, e);
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
    batch->limits = limits_of(context);
    batch->takes_attention_backward = takes_attention_backward;
    api_batch_begin(batch);
    return batch;
}

kiln_status kiln__batch_await(const kiln_batch *batch, const char *call, struct kiln__error *error)
{
    return kiln__run_await(batch->last, call, error);
}

static void drop_plan(kiln_batch *batch)
{
    kiln__micro_batches_free(batch->context->plan_cache, batch->parts);
    batch->parts = NULL;
    kiln__loop_runs_free(batch->context->plan_cache, batch->looped);
    batch->looped = NULL;
    kiln__plan_cache_return(batch->context->plan_cache, &batch->lease);
}

/* The driver keeps what enqueued commands use, so that nothing needs waiting for here. */
static void drop_run(kiln_batch *batch)
{
    drop_plan(batch);
    kiln__run_release(batch->last);
    batch->last = NULL;
}

void kiln_batch_release(kiln_batch *batch)
{
    if (!batch)
        return;
    kiln_context *context = batch->context;
    if (!kiln__runtime_check_process(&context->runtime, NULL)) {
        if (batch->last && batch->tables.count) /* that a run may still read */
            kiln__run_wait_for_memory(batch->last);
        drop_run(batch);
        kiln__batch_begin(batch);
    }
    kiln__batch_drop(batch);
    free(batch);
    kiln_context_release(context);
}

kiln_status kiln_batch_reset(kiln_batch *batch)
{
    KILN__RETURN_IF_NULL(NULL, __func__, batch);
    kiln_status status = kiln__runtime_check_process(&batch->context->runtime, NULL);
    if (status)
        return status;
    if (batch->last)
        status = kiln__batch_await(batch, "kiln_batch_reset", NULL);
    drop_run(batch);
    api_batch_begin(batch);
    return status;
}

kiln_status kiln_batch_set_batch_invariant(kiln_batch *batch)
{
    KILN__RETURN_IF_NULL(NULL, __func__, batch);
    if (batch->error.status)
        return kiln__fail(NULL, batch->error.status, "%s", batch->error.text);
    batch->graph.batch_invariant = batch->changed = true;
    return KILN_OK;
}

kiln_status kiln_batch_set_precision(kiln_batch *batch, kiln_precision precision)
{
    KILN__RETURN_IF_NULL(NULL, __func__, batch);
    if (batch->error.status)
        return kiln__fail(NULL, batch->error.status, "%s", batch->error.text);
    kiln_status status = kiln__precision_check(__func__, (int)precision);
    if (!status)
        batch->product =
            precision ? (uint8_t)(precision - KILN_PRECISION_EXACT) : batch->context->product;
    return status;
}

kiln_status kiln_batch_set_independent(kiln_batch *batch)
{
    KILN__RETURN_IF_NULL(NULL, __func__, batch);
    if (batch->error.status)
        return kiln__fail(NULL, batch->error.status, "%s", batch->error.text);
    batch->bindings.independent = true;
    return KILN_OK;
}

/* ---- running ---- */

/* 1 + the one input in the memory of result `index`; 0: none such. */
static uint32_t find_replaced(const kiln_batch *batch, size_t index)
{
    size_t at = 0;
    uint32_t node, other;
    uint64_t memory = batch->bindings.results.items[index].identity;
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

/* Whether the plan of an earlier recording still is the batch's. */
static bool has_plan(kiln_batch *batch)
{
    if (batch->changed || kiln__plan_cache_has_changed(batch->context->plan_cache, &batch->lease))
        drop_plan(batch);
    batch->changed = false;
    return batch->lease.entry || batch->looped;
}

static kiln_status borrow_plan(kiln_batch *batch, struct kiln__error *error)
{
    if (has_plan(batch))
        return KILN_OK;
    name_replaced(batch);
    if (batch->loops.count)
        return kiln__loop_runs_make(batch, -1, &batch->looped, error);
    return kiln__plan_cache_lease(batch->context->plan_cache, &batch->graph, false, &batch->lease,
                                  error);
}

/* What is compared with the host runs in order. */
static struct kiln__stream *choose_stream(const kiln_batch *batch)
{
    struct kiln__runtime *runtime = &batch->context->runtime;
    bool apart = batch->bindings.independent && batch->context->validate.share == 0 &&
                 batch->context->check_values.share == 0;
    return apart ? kiln__runtime_choose(runtime, batch->last) : runtime->compute;
}

static kiln_status run_in_micro_batches(kiln_batch *batch, const char *call,
                                        struct kiln__run **made, struct kiln__error *error)
{
    kiln_status status =
        batch->parts ? KILN_OK : kiln__micro_batches_make(batch, &batch->parts, error);
    if (!status && kiln__nan_check_wanted(batch))
        status = kiln__micro_batches_check_nan(batch, batch->parts, call, error);
    return status ? status
                  : kiln__micro_batches_run(batch, batch->parts, choose_stream(batch), made, error);
}

/* The batch keeps the run as its latest one. */
static kiln_status api_batch_run(kiln_batch *batch, const char *call)
{
    struct kiln__error error = {0};
    KILN__RETURN_IF_NULL(NULL, call, batch);
    if (batch->error.status)
        return kiln__fail(NULL, batch->error.status, "%s", batch->error.text);
    if (batch->graph.nodes.count && !batch->graph.requests.count)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT,
                          "%s: the batch asks for no result; kiln_read() or kiln_export() one",
                          call);
    kiln_status status = kiln__runtime_check_process(&batch->context->runtime, &error);
    struct kiln__run *made = NULL;
    if (!status)
        status = borrow_plan(batch, &error);
    if (!status && batch->lease.executable)
        return kiln__checked_run(batch, choose_stream(batch), NULL, call, &error);
    if (!status && batch->looped)
        status =
            kiln__loop_runs_run(batch, batch->looped, choose_stream(batch), call, &made, &error);
    else if (!status)
        status = run_in_micro_batches(batch, call, &made, &error);
    if (status)
        return status;
    kiln__run_release(batch->last);
    batch->last = made;
    return KILN_OK;
}

kiln_status kiln_batch_execute(kiln_batch *batch)
{
    if (batch)
        batch->bindings.left = false;
    kiln_status status = api_batch_run(batch, "kiln_batch_execute");
    if (!status)
        status = kiln__batch_await(batch, "kiln_batch_execute", NULL);
    if (!status)
        status = kiln__runtime_report_failure(&batch->context->runtime, "kiln_batch_execute", NULL);
    return kiln__batch_report(batch, status);
}

kiln_status kiln_batch_submit(kiln_batch *batch, kiln_event **result)
{
    kiln_event *event = NULL;
    if (result) {
        *result = NULL;
        event = calloc(1, sizeof *event);
        if (!event)
            return kiln__batch_report(
                batch, kiln__fail(NULL, KILN_OUT_OF_HOST_MEMORY, "kiln_batch_submit: no memory"));
    }
    if (batch)
        batch->bindings.left = !result;
    kiln_status status = kiln__batch_report(batch, api_batch_run(batch, "kiln_batch_submit"));
    if (!status && !event)
        kiln__runs_add(batch->last);
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

/* ---- asking ---- */

static kiln_status check_question(const kiln_batch *batch, const void *answer, const char *name,
                                  const char *call)
{
    if (!batch || !answer)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: %s is NULL", call,
                          batch ? name : "batch");
    return batch->error.status ? kiln__fail(NULL, batch->error.status, "%s", batch->error.text)
                               : kiln__runtime_check_process(&batch->context->runtime, NULL);
}

kiln_status(kiln_batch_get_cost)(kiln_batch *batch, kiln_batch_cost *cost, size_t size)
{
    struct kiln__error error = {0};
    kiln_status status = check_question(batch, cost, "cost", "kiln_batch_get_cost");
    if (!status)
        status = borrow_plan(batch, &error);
    if (kiln__batch_report(batch, status))
        return status;
    if (batch->looped) {
        kiln_batch_cost all = {0};
        kiln__loop_runs_cost(batch, batch->looped, &all);
        kiln__structure_fill(cost, size, &all, sizeof all);
        return KILN_OK;
    }
    const struct kiln__plan *plan = batch->lease.plan;
    kiln_batch_cost own = {.launches = kiln__plan_enqueued(plan),
                           .peak_bytes = kiln__plan_peak(plan),
                           .unshared_bytes = plan->unshared_bytes + plan->prepacked_bytes,
                           .saved_bytes = plan->fusion.saved_bytes};
    for (size_t i = 0; i < plan->steps.count; i++) {
        own.uploads += plan->steps.items[i].kind == KILN__STEP_UPLOAD;
        own.downloads += plan->steps.items[i].kind == KILN__STEP_DOWNLOAD;
    }
    kiln__structure_fill(cost, size, &own, sizeof own);
    return KILN_OK;
}

kiln_status kiln_batch_prepare(kiln_batch *batch, unsigned threads)
{
    struct kiln__error error = {0};
    kiln_status status = check_question(batch, batch, "batch", "kiln_batch_prepare");
    if (!status && batch->lease.tier != KILN__TIER_OWN)
        drop_plan(batch);
    if (status || has_plan(batch))
        return kiln__batch_report(batch, status);
    name_replaced(batch);
    if (batch->loops.count)
        return kiln__batch_report(
            batch, kiln__loop_runs_make(batch, (int)threads, &batch->looped, &error));
    status = kiln__plan_cache_prepare(batch->context->plan_cache, &batch->graph, threads,
                                      &batch->lease, &error);
    if (!status && !batch->lease.executable)
        status = kiln__micro_batches_make(batch, &batch->parts, &error);
    return kiln__batch_report(batch, status);
}

static kiln_status api_batch_tell(const char *call, kiln__graph_teller *say, kiln_batch *batch,
                                  char **result)
{
    struct kiln__text text = {0};
    kiln_status status = check_question(batch, result, "text", call);
    if (result)
        *result = NULL;
    if (!status)
        name_replaced(batch);
    if (!status && batch->loops.count)
        status = borrow_plan(batch, NULL);
    if (!status && batch->looped)
        status = kiln__loop_runs_explain(batch, batch->looped, say == kiln__plan_cache_explain, say,
                                         &text, NULL);
    else if (!status)
        status = say(batch->context->plan_cache, &batch->graph, &text, NULL);
    if (!status)
        *result = text.data ? kiln__text_take(&text) : calloc(1, 1);
    kiln__text_free(&text);
    return kiln__batch_report(batch, status);
}

kiln_status kiln_batch_explain(kiln_batch *batch, char **result)
{
    return api_batch_tell(__func__, kiln__plan_cache_explain, batch, result);
}

kiln_status kiln_batch_list_works(kiln_batch *batch, char **result)
{
    return api_batch_tell(__func__, kiln__plan_cache_list_works, batch, result);
}
