/* SPDX-License-Identifier: Apache-2.0 */
/* Enqueueing of one run: binds slots, then uploads, launches, copies and downloads in the plan's
 * order. */
#include "runtime/commands.h"

#include "programs/compiler_guard.h"
#include "programs/kernel_objects.h"
#include "runtime/buffer.h"
#include "runtime/clblast.h"
#include "runtime/slot_memory.h"

struct commands {
    struct kiln__executable *executable;
    struct kiln__stream *stream;
    struct kiln__bindings *bindings;
    struct kiln__slot_memory slots; /* of the same three */
    struct kiln__run *run;          /* receives the events */
    size_t left;                    /* steps still to come: the last has an event in any case */
    size_t launched;                /* kernels */
    size_t entered;                 /* buffers */
};

static struct kiln__runtime *runtime_of(const struct commands *commands)
{
    return commands->executable->runtime;
}

/* ---- commands ---- */

/* Whether the driver may compile when the launch begins: none of this form is before it in the
 * queue. */
static bool compiles(const struct commands *commands, uint32_t index,
                     const struct kiln__launch_shape *form)
{
    const struct kiln__executable *executable = commands->executable;
    return commands->stream->gated && !executable->has_run &&
           !(executable->kernels[index] &&
             kiln__kernel_was_launched(executable->lent[index], commands->stream->queue, form));
}

/* Where a launch's event goes, NULL where it has none: one that `compiles` is watched. */
static cl_event *launch_event(struct commands *commands, bool compiles, cl_event *event)
{
    const struct kiln__runtime *runtime = runtime_of(commands);
    bool ends = commands->left == 1;
    const struct kiln__bindings *bindings = commands->bindings;
    bool later = runtime->ends_on_demand && bindings->left && !bindings->independent;
    commands->left--;
    *event = NULL;
    if (runtime->trace || compiles || (ends && !later))
        return event;
    if (ends)
        kiln__run_defer_event(commands->run);
    return NULL;
}

static kiln_status commands_note(struct commands *commands, cl_event event,
                                 const struct kiln__trace_span *what, struct kiln__error *error)
{
    if (runtime_of(commands)->trace)
        kiln__trace_add(runtime_of(commands)->trace, commands->stream->number, what, event);
    return kiln__run_note(commands->run, what->name, what->bytes, event, error);
}

/* Memory and its byte. */
struct spot {
    cl_mem memory;
    size_t offset;
};

/* A transfer of what lies in a slot, which a trace calls by its names. */
static struct kiln__trace_span span_of(const struct commands *commands, const char *name,
                                       uint32_t slot, uint64_t bytes)
{
    const struct kiln__executable *executable = commands->executable;
    const uint32_t *called = executable->called;
    return (struct kiln__trace_span){
        .name = name,
        .bytes = bytes,
        .called = called ? called[kiln__plan_launches(executable->plan) + slot] : 0};
}

/* `status` of enqueuing them. Spans share the bytes. */
static kiln_status keep_all(struct commands *commands, kiln_status status,
                            struct kiln__events *events, const struct kiln__trace_span *what,
                            struct kiln__error *error)
{
    struct kiln__trace *trace = runtime_of(commands)->trace;
    struct kiln__trace_span share = *what;
    share.bytes = events->count ? what->bytes / events->count : 0;
    for (size_t i = 0; i < events->count && trace && !status; i++)
        kiln__trace_add(trace, commands->stream->number, &share, events->items[i]);
    if (!status)
        status = kiln__run_note_all(commands->run, what->name, what->bytes, events, error);
    kiln__events_free(events);
    return status;
}

/* Of a binding's bytes on the host to the device, or back. */
static kiln_status transfer(struct commands *commands, bool up, uint32_t slot, struct spot at,
                            const struct kiln__binding *binding, struct kiln__error *error)
{
    struct kiln__counters *counters = &runtime_of(commands)->counters;
    struct kiln__staging *staging = commands->stream->staging;
    const struct kiln__transfer moved = {at.memory, at.offset, binding->host, binding->bytes};
    struct kiln__events events = {0};
    commands->left--;
    kiln_status status = up ? kiln__staging_upload(staging, &moved, &events, error)
                            : kiln__staging_download(staging, &moved, false, &events, error);
    if (!status) {
        atomic_fetch_add(up ? &counters->uploads : &counters->downloads, 1);
        atomic_fetch_add(up ? &counters->upload_bytes : &counters->download_bytes, moved.bytes);
    }
    const struct kiln__trace_span span =
        span_of(commands, up ? "upload" : "download", slot, moved.bytes);
    return keep_all(commands, status, &events, &span, error);
}

static kiln_status commands_copy(struct commands *commands, uint32_t slot, struct spot from,
                                 struct spot to, size_t bytes, struct kiln__error *error)
{
    cl_event event = NULL;
    commands->left--;
    cl_int code = clEnqueueCopyBuffer(commands->stream->queue, from.memory, to.memory, from.offset,
                                      to.offset, bytes, 0, NULL, &event);
    if (code)
        return kiln__cl_fail(error, "clEnqueueCopyBuffer", code);
    const struct kiln__trace_span span = span_of(commands, "copy", slot, bytes);
    return commands_note(commands, event, &span, error);
}

static kiln_status enqueue_kernel(struct commands *commands, uint32_t index, cl_event *event,
                                  struct kiln__error *error)
{
    struct kiln__runtime *runtime = runtime_of(commands);
    const struct kiln__launch *launch = kiln__plan_launch_at(commands->executable->plan, index);
    if (launch->source == KILN__SOURCE_CLBLAST) {
        if (!atomic_exchange(&runtime->uses_clblast, true))
            kiln__clblast_begin();
        return kiln__clblast_enqueue(&runtime->device, commands->stream->queue, launch,
                                     commands->executable->run.memory, event, error);
    }
    cl_int code = clEnqueueNDRangeKernel(commands->stream->queue,
                                         commands->executable->kernels[index], launch->dimensions,
                                         NULL, launch->global, launch->local, 0, NULL, event);
    return code ? kiln__cl_fail(error, "clEnqueueNDRangeKernel", code) : KILN_OK;
}

/* At the end of the process no launch is added for which the driver would compile. */
static kiln_status enqueue_first(struct commands *commands, uint32_t index, cl_event *event,
                                 struct kiln__error *error)
{
    if (!kiln__compiler_enter())
        return kiln__fail(error, KILN_BUILD_FAILED,
                          "kernel %.80s is not compiled: the process ends",
                          kiln__plan_launch_at(commands->executable->plan, index)->kernel);
    kiln_status status = enqueue_kernel(commands, index, event, error);
    if (!status)
        kiln__compiler_launched(commands->stream->queue, *event);
    kiln__compiler_leave();
    return status;
}

/* What the step of a launch enqueues: that, or at the first of several one that does them all.
 * False: nothing, and it counts no more among the steps that are left. */
static bool find_enqueued(struct commands *commands, uint32_t *index)
{
    const struct kiln__executable *executable = commands->executable;
    const struct kiln__plan *plan = executable->plan;
    const uint32_t joined = plan->launches.items[*index].joined;
    if (!joined || !executable->kernels[plan->launches.count + joined - 1]) {
        commands->left -= executable->run.left_out[*index];
        return !executable->run.left_out[*index];
    }
    const struct kiln__launch *all = &plan->joined.items[joined - 1];
    if (all->phases.items[0] != *index)
        return false;
    commands->left -= all->phases.count - 1;
    *index = (uint32_t)plan->launches.count + joined - 1;
    return true;
}

static kiln_status launch(struct commands *commands, uint32_t index, struct kiln__error *error)
{
    const struct kiln__executable *executable = commands->executable;
    if (!find_enqueued(commands, &index))
        return KILN_OK;
    const struct kiln__launch *launch = kiln__plan_launch_at(executable->plan, index);
    const struct kiln__launch_shape form =
        kiln__launch_shape(launch->dimensions, launch->global, launch->local);
    const bool first = compiles(commands, index, &form);
    cl_event own, *event = launch_event(commands, first, &own);
    kiln_status status = first ? enqueue_first(commands, index, event, error)
                               : enqueue_kernel(commands, index, event, error);
    if (status)
        return status;
    if (first && executable->kernels[index])
        kiln__kernel_launched(executable->lent[index], commands->stream->queue, &form);
    commands->launched++;
    if (!own)
        return KILN_OK;
    return commands_note(commands, own,
                         &(struct kiln__trace_span){
                             .name = launch->kernel,
                             .bytes = launch->bytes,
                             .described = executable->described ? executable->described[index] : 0,
                             .called = executable->called ? executable->called[index] : 0},
                         error);
}

static kiln_status run_step(struct commands *commands, const struct kiln__plan_step *step,
                            struct kiln__error *error)
{
    const struct kiln__plan *plan = commands->executable->plan;
    if (step->kind == KILN__STEP_LAUNCH)
        return launch(commands, step->launch, error);
    const struct spot at = {commands->executable->run.memory[step->slot],
                            plan->slots.items[step->slot].offset};
    if (step->kind == KILN__STEP_UPLOAD)
        return transfer(commands, true, step->slot, at,
                        &commands->bindings->inputs.items[step->binding], error);
    const struct kiln__binding *result = kiln__slot_memory_result(&commands->slots, step);
    struct spot to = {result->memory, result->offset};
    if (result->overlaps)
        to = (struct spot){commands->slots.bounces.items[result->bounce].memory, 0};
    else if (step->kind == KILN__STEP_DOWNLOAD)
        return transfer(commands, false, step->slot, at, result, error);
    return commands_copy(commands, step->slot, at, to, result->bytes, error);
}

/* Inputs go to their bounce buffers first, results leave theirs last. */
static kiln_status run_bounces(struct commands *commands, bool inputs, struct kiln__error *error)
{
    kiln_status status = KILN_OK;
    for (size_t i = 0; i < commands->slots.bounces.count && !status; i++) {
        const struct kiln__bounce *bounce = &commands->slots.bounces.items[i];
        const struct kiln__binding *binding = bounce->binding;
        if (bounce->is_input != inputs)
            continue;
        const struct spot bounced = {bounce->memory, 0}, own = {binding->memory, binding->offset};
        if (!binding->host)
            status = commands_copy(commands, bounce->slot, inputs ? own : bounced,
                                   inputs ? bounced : own, binding->bytes, error);
        else
            status = transfer(commands, inputs, bounce->slot, bounced, binding, error);
    }
    return status;
}

/* Mapping makes a result visible in the caller's memory; the wrapper is not used again. */
static kiln_status map_back(struct commands *commands, const struct kiln__wrapper *wrapper,
                            struct kiln__error *error)
{
    cl_command_queue queue = commands->stream->queue;
    cl_event map = NULL, unmap = NULL;
    cl_int code;
    void *mapped = clEnqueueMapBuffer(queue, wrapper->memory, CL_FALSE, CL_MAP_READ, 0,
                                      wrapper->result_bytes, 0, NULL, &map, &code);
    if (code)
        return kiln__cl_fail(error, "clEnqueueMapBuffer", code);
    kiln_status status = commands_note(
        commands, map, &(struct kiln__trace_span){.name = "map", .bytes = wrapper->result_bytes},
        error);
    commands->left--;
    code = clEnqueueUnmapMemObject(queue, wrapper->memory, mapped, 0, NULL, &unmap);
    if (code)
        return kiln__cl_fail(error, "clEnqueueUnmapMemObject", code);
    kiln_status unmapped = commands_note(
        commands, unmap,
        &(struct kiln__trace_span){.name = "unmap", .bytes = wrapper->result_bytes}, error);
    return status ? status : unmapped;
}

static kiln_status map_results_back(struct commands *commands, struct kiln__error *error)
{
    kiln_status status = KILN_OK;
    for (size_t i = 0; i < commands->slots.wrappers.count && !status; i++)
        if (commands->slots.wrappers.items[i].result_bytes)
            status = map_back(commands, &commands->slots.wrappers.items[i], error);
    return status;
}

/* A batch that has nothing to do still completes, after what came before it. */
static kiln_status mark_end(struct commands *commands, struct kiln__error *error)
{
    cl_event event = NULL;
    kiln_status status = kiln__cl_mark(commands->stream->queue, &event, error);
    return status ? status : kiln__run_note(commands->run, "marker", 0, event, error);
}

/* ---- buffers that others may use before the run has ended ---- */

/* Smaller ones gain less than the event costs. */
#define EARLY_BYTES ((size_t)1 << 18)

static void use_at(struct commands *commands, const struct kiln__binding *binding, size_t step)
{
    struct kiln__use_of_buffer *use = kiln__bindings_find(commands->bindings, binding->buffer);
    if (use && use->last_step != KILN__NEVER_EARLY)
        use->last_step = step;
}

static void find_last_steps(struct commands *commands)
{
    const struct kiln__plan *plan = commands->executable->plan;
    const struct kiln__bindings *bindings = commands->bindings;
    for (size_t i = 0; i < bindings->buffers.count; i++)
        bindings->buffers.items[i].last_step = 0;
    for (size_t i = 0; i < commands->slots.bounces.count; i++)
        use_at(commands, commands->slots.bounces.items[i].binding, KILN__NEVER_EARLY);
    for (size_t i = 0; i < plan->steps.count; i++) {
        const struct kiln__plan_step *step = &plan->steps.items[i];
        struct kiln__named named = {0};
        while (kiln__plan_next_named(plan, step, &named)) {
            const struct kiln__slot *slot = &plan->slots.items[named.slot];
            if (slot->storage == KILN__STORAGE_INPUT)
                use_at(commands, &bindings->inputs.items[slot->binding], i);
            else if (slot->storage == KILN__STORAGE_RESULT)
                use_at(commands, &bindings->results.items[slot->binding], i);
        }
        if (kiln__slot_memory_result(&commands->slots, step))
            use_at(commands, kiln__slot_memory_result(&commands->slots, step), i);
    }
}

/* The run is done with some of the buffers that it writes. */
static kiln_status mark_buffers(struct commands *commands, size_t step, struct kiln__error *error)
{
    const struct kiln__bindings *bindings = commands->bindings;
    cl_event event = NULL;
    kiln_status status = KILN_OK;
    for (size_t i = 0; i < bindings->buffers.count && !status && commands->left; i++) {
        struct kiln__use_of_buffer *use = &bindings->buffers.items[i];
        if (!use->writes || use->last_step != step || use->buffer->bytes < EARLY_BYTES)
            continue;
        status = kiln__cl_mark(commands->stream->queue, &event, error);
        if (status)
            return status;
        use->early = kiln__run_create(commands->stream);
        if (!use->early) {
            clReleaseEvent(event);
            return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to run the batch");
        }
        kiln__run_mark_part(use->early);
        status = kiln__run_note(use->early, "marker", 0, event, error);
    }
    return status;
}

/* Whoever asks for the end of an open run makes its event, and flushes. What else is in a queue
 * that the program has may be waiting for a flush. */
static bool is_flushed_later(const struct commands *commands)
{
    const struct kiln__runtime *runtime = runtime_of(commands);
    return runtime->starts_unflushed && !atomic_load(&runtime->shown) &&
           kiln__run_is_open(commands->run);
}

static kiln_status commands_enqueue(struct commands *commands, struct kiln__error *error)
{
    const struct kiln__plan *plan = commands->executable->plan;
    commands->left = plan->steps.count + commands->slots.bounces.count + commands->slots.maps_back;
    if (commands->left == 0)
        return mark_end(commands, error);
    kiln_status status = run_bounces(commands, true, error);
    if (commands->bindings->independent)
        find_last_steps(commands);
    for (size_t i = 0; i < plan->steps.count && !status; i++) {
        status = run_step(commands, &plan->steps.items[i], error);
        if (commands->bindings->independent && !status)
            status = mark_buffers(commands, i, error);
    }
    if (!status)
        status = run_bounces(commands, false, error);
    if (!status)
        status = map_results_back(commands, error);
    if (status || is_flushed_later(commands))
        return status;
    cl_int code = clFlush(commands->stream->queue);
    return code ? kiln__cl_fail(error, "clFlush", code) : KILN_OK;
}

/* ---- a run ---- */

/* Commands of other streams that use the same buffers come first. Threads that use them wait
 * outside until leave_buffers(). */
static kiln_status enter_buffers(struct commands *commands, struct kiln__error *error)
{
    const struct kiln__bindings *bindings = commands->bindings;
    struct kiln__events events = {0};
    kiln_status status = KILN_OK;
    for (; commands->entered < bindings->buffers.count && !status; commands->entered++) {
        const struct kiln__use_of_buffer *use = &bindings->buffers.items[commands->entered];
        status = kiln__buffer_enter(use->buffer, commands->stream, use->writes, &events, error);
    }
    if (!status)
        return kiln__stream_wait(commands->stream, &events, error);
    kiln__events_free(&events);
    return status;
}

static void leave_buffers(struct commands *commands, bool enqueued)
{
    for (size_t i = 0; i < commands->slots.prepacked.count && enqueued; i++)
        if (commands->slots.prepacked.items[i].state == KILN__PREPACKED_NEW)
            kiln__prepacked_offer(&commands->slots.prepacked.items[i],
                                  kiln__run_end(commands->run));
    for (size_t i = 0; i < commands->entered; i++) {
        struct kiln__use_of_buffer *use = &commands->bindings->buffers.items[i];
        struct kiln__run *run = use->early ? use->early : commands->run;
        kiln__buffer_leave(use->buffer, enqueued ? run : NULL, use->writes);
        if (use->early)
            kiln__run_release(use->early);
        use->early = NULL;
    }
    commands->entered = 0;
}

static bool holds_prepacked(const struct commands *commands)
{
    for (size_t i = 0; i < commands->slots.prepacked.count; i++)
        if (!kiln__prepacked_holds(&commands->slots.prepacked.items[i]))
            return false;
    return true;
}

/* Memory is taken before buffers are entered: it may take waiting for other runs, which may be to
 * enter them. */
static kiln_status commands_prepare(struct commands *commands, struct kiln__error *error)
{
    kiln_status status = kiln__slot_memory_take(&commands->slots, error);
    if (!status)
        status = kiln__executable_bind(commands->executable, commands->bindings->checked, error);
    return status ? status : enter_buffers(commands, error);
}

static kiln_status submit(struct commands *commands, struct kiln__error *error)
{
    kiln_status status = KILN_OK;
    if (!kiln__bindings_check(commands->bindings))
        status = kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to run the batch");
    if (!status)
        status = commands_prepare(commands, error);
    if (!status && !holds_prepacked(commands)) { /* a writer was faster */
        leave_buffers(commands, false);
        kiln__slot_memory_give_back(&commands->slots);
        commands->slots.prepacks_nothing = true;
        status = commands_prepare(commands, error);
    }
    return status ? status : commands_enqueue(commands, error);
}

kiln_status kiln__commands_run(struct kiln__executable *executable, struct kiln__stream *stream,
                               struct kiln__bindings *bindings, struct kiln__run **run,
                               struct kiln__error *error)
{
    *run = NULL;
    kiln_status status = kiln__runtime_check_process(executable->runtime, error);
    if (status)
        return status;
    struct commands commands = {
        .executable = executable,
        .stream = stream,
        .bindings = bindings,
        .slots = {.executable = executable, .stream = stream, .bindings = bindings}};
    commands.run = kiln__run_create(stream);
    if (!commands.run)
        return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to run the batch");
    kiln__executable_set_labels(executable, bindings->labels);
    kiln__executable_begin(executable);
    kiln__stream_enter(stream);
    kiln__budget_enter(&executable->runtime->memory, false);
    status = submit(&commands, error);
    atomic_fetch_add(&executable->runtime->counters.launches, commands.launched);
    if (status)
        kiln__stream_finish(stream);
    leave_buffers(&commands, !status);
    if (status) {
        kiln__run_release(commands.run);
    } else {
        kiln__slot_memory_mark_unread(&commands.slots);
        kiln__executable_launched(executable);
        atomic_fetch_add(&executable->runtime->counters.batches, 1);
        *run = commands.run;
    }
    kiln__slot_memory_give_back(&commands.slots);
    kiln__budget_leave(&executable->runtime->memory);
    kiln__stream_leave(stream);
    return status;
}
