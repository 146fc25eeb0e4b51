/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/commands.h"

#include <string.h>

#include "runtime/buffer.h"
#include "runtime/clblast.h"
#include "runtime/kept.h"

struct commands {
    struct kiln__executable *executable;
    struct kiln__stream *stream;
    struct kiln__bindings *bindings;
    struct kiln__run *run; /* receives the events */
    cl_mem arena;
    KILN__VECTOR(struct bounce {
        cl_mem memory;
        struct kiln__binding *binding;
        uint32_t slot;
        bool is_input;
    })
    bounces; /* pool memory between kernels and bindings that need it */
    KILN__VECTOR(struct wrapper {
        cl_mem memory;
        size_t result_bytes; /* 0 of an input */
    })
    wrappers;                         /* around host memory, for this run only */
    KILN__VECTOR(kiln_buffer *) held; /* whose memory stays until the run is enqueued */
    KILN__VECTOR(struct kiln__kept_use) kept;
    KILN__VECTOR(cl_mem) made; /* pool memory for what could be kept and is not */
    bool keeps_nothing;
    size_t maps_back; /* wrappers of results */
    size_t left;      /* steps still to come: the last has an event in any case */
    size_t entered;   /* buffers */
};

static struct kiln__runtime *runtime_of(const struct commands *commands)
{
    return commands->executable->runtime;
}

/* ---- memory ---- */

static kiln_status take_bounce(struct commands *commands, uint32_t slot,
                               struct kiln__binding *binding, bool is_input, cl_mem *memory,
                               struct kiln__error *error)
{
    struct bounce *bounce = kiln__vector_push(&commands->bounces);
    if (!bounce)
        return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to run the batch");
    binding->bounce = commands->bounces.count - 1;
    bounce->binding = binding;
    bounce->slot = slot;
    bounce->is_input = is_input;
    kiln_status status =
        kiln__pool_take(commands->stream->pool, binding->bytes, &bounce->memory, error);
    *memory = bounce->memory;
    return status;
}

/* The caller's memory as a cl_mem: kept with the binding where the driver uses it as it is at any
 * time, else made for this run, whose start is when the driver looks at it. */
static kiln_status wrap_host(struct commands *commands, struct kiln__binding *binding,
                             bool is_input, cl_mem *memory, struct kiln__error *error)
{
    cl_int code;
    bool kept = runtime_of(commands)->host_mode == KILN__HOST_LIVE;
    cl_mem_flags flags = CL_MEM_USE_HOST_PTR | (is_input ? CL_MEM_READ_ONLY : CL_MEM_READ_WRITE);
    *memory =
        clCreateBuffer(runtime_of(commands)->context, flags, binding->bytes, binding->host, &code);
    if (code) {
        *memory = NULL;
        return kiln__cl_fail(error, "clCreateBuffer", code);
    }
    if (kept) {
        binding->memory = *memory;
        return KILN_OK;
    }
    struct wrapper *wrapper = kiln__vector_push(&commands->wrappers);
    if (!wrapper) {
        clReleaseMemObject(*memory);
        return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to run the batch");
    }
    *wrapper = (struct wrapper){*memory, is_input ? 0 : binding->bytes};
    commands->maps_back += !is_input;
    return KILN_OK;
}

/* Have a buffer's memory stay, if it would not otherwise. */
static kiln_status hold(struct commands *commands, struct kiln__binding *binding,
                        struct kiln__error *error)
{
    if (!binding->buffer || !binding->buffer->source.read)
        return KILN_OK;
    kiln_buffer **place = kiln__vector_push(&commands->held);
    if (!place)
        return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to run the batch");
    *place = binding->buffer;
    kiln_status status = kiln__source_hold(binding->buffer, &binding->memory, error);
    commands->held.count -= status != KILN_OK;
    return status;
}

static kiln_status place_binding(struct commands *commands, uint32_t slot,
                                 struct kiln__binding *binding, bool is_input,
                                 struct kiln__error *error)
{
    cl_mem *memory = &commands->executable->memory[slot];
    if (binding->needs_bounce)
        return take_bounce(commands, slot, binding, is_input, memory, error);
    *memory = binding->memory;
    return *memory ? KILN_OK : wrap_host(commands, binding, is_input, memory, error);
}

/* The buffers that a kept slot is made of, the largest first: all that is made of some has one of
 * them for a place where it is found. Which of them was which still counts, in the key. False: one
 * is not a buffer as a whole. */
static bool find_sources(const struct commands *commands, const struct kiln__slot *slot,
                         struct kiln__kept_use *use)
{
    for (uint32_t i = 0; i < slot->n_sources; i++) {
        const struct kiln__binding *binding = &commands->bindings->inputs.items[slot->sources[i]];
        if (binding->is_part || !binding->buffer)
            return false;
        use->buffers[i] = binding->buffer;
        if (binding->buffer->bytes > use->buffers[0]->bytes) {
            use->buffers[i] = use->buffers[0];
            use->buffers[0] = binding->buffer;
            use->key.low ^= UINT64_C(1) << i;
        }
    }
    use->n_buffers = slot->n_sources;
    return true;
}

/* Where launches find, or leave, what they make of buffers. */
static kiln_status place_kept(struct commands *commands, uint32_t index, struct kiln__error *error)
{
    struct kiln__executable *executable = commands->executable;
    const struct kiln__slot *slot = &executable->plan->slots.items[index];
    struct kiln__kept_use *use = kiln__vector_push(&commands->kept);
    cl_mem *made = kiln__vector_push(&commands->made);
    executable->ready[index] = false;
    if (made)
        *made = NULL;
    if (!use || !made) {
        commands->kept.count -= use != NULL;
        return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to run the batch");
    }
    use->key = slot->key;
    use->bytes = slot->bytes;
    if (!commands->keeps_nothing && find_sources(commands, slot, use))
        kiln__kept_take(use, commands->stream->pool);
    executable->ready[index] = use->state == KILN__KEPT_READY;
    executable->memory[index] = use->memory;
    if (use->memory)
        return KILN_OK;
    commands->kept.count--;
    kiln_status status = kiln__pool_take(commands->stream->pool, slot->bytes, made, error);
    executable->memory[index] = *made;
    return status;
}

/* Whether something is to read what the launch makes, and it is not there. */
static bool is_needed(const struct kiln__executable *executable, const struct kiln__launch *launch)
{
    uint32_t made = launch->makes - 1;
    if (!launch->makes)
        return true;
    const struct kiln__slot *slot = &executable->plan->slots.items[made];
    return slot->place == KILN__PLACE_KEPT ? !executable->ready[made]
                                           : slot->wanted || executable->needed[made];
}

/* Launches whose results are kept, and those that only they need: from the last on. */
static void leave_out(struct commands *commands)
{
    struct kiln__executable *executable = commands->executable;
    const struct kiln__plan *plan = executable->plan;
    if (!plan->kept_bytes)
        return;
    memset(executable->needed, 0, plan->slots.count * sizeof *executable->needed);
    for (size_t i = plan->launches.count; i-- > 0;) {
        const struct kiln__launch *launch = &plan->launches.items[i];
        executable->left_out[i] = !is_needed(executable, launch);
        for (size_t k = 0; launch->makes && k < launch->arguments.count; k++)
            if (launch->arguments.items[k].kind == KILN__ARGUMENT_MEMORY &&
                !executable->left_out[i])
                executable->needed[launch->arguments.items[k].slot] = true;
    }
}

/* Whether the run reads what is in the slot. */
static bool is_read(const struct kiln__executable *executable, uint32_t slot)
{
    if (executable->stepped[slot])
        return true;
    for (uint32_t u = executable->first_use[slot]; u < executable->first_use[slot + 1]; u++)
        if (!executable->left_out[executable->uses[u].launch])
            return true;
    return false;
}

/* The slot's binding, if its buffer only has memory while somebody reads it; or NULL. */
static struct kiln__binding *find_sourced(const struct commands *commands, uint32_t index)
{
    const struct kiln__slot *slot = &commands->executable->plan->slots.items[index];
    if (slot->place != KILN__PLACE_INPUT || !slot->bytes)
        return NULL;
    struct kiln__binding *binding = &commands->bindings->inputs.items[slot->binding];
    return binding->buffer && binding->buffer->source.read ? binding : NULL;
}

/* What such inputs have, once it is known which launches run. */
static kiln_status place_sourced(struct commands *commands, struct kiln__error *error)
{
    struct kiln__executable *executable = commands->executable;
    kiln_status status = KILN_OK;
    for (uint32_t i = 0; i < executable->plan->slots.count && !status; i++) {
        struct kiln__binding *binding = find_sourced(commands, i);
        bool reads = binding && is_read(executable, i);
        if (reads)
            status = hold(commands, binding, error);
        if (reads && !status)
            status = place_binding(commands, i, binding, true, error);
    }
    return status;
}

/* The run was enqueued. */
static void tell_unread(const struct commands *commands)
{
    for (uint32_t i = 0; i < commands->executable->plan->slots.count; i++) {
        const struct kiln__binding *binding = find_sourced(commands, i);
        if (binding && !commands->executable->memory[i])
            kiln__source_went_without(binding->buffer);
    }
}

static struct kiln__binding *result_of(const struct commands *commands,
                                       const struct kiln__plan_step *step)
{
    bool delivers = step->kind == KILN__STEP_DOWNLOAD || step->kind == KILN__STEP_COPY;
    return delivers ? &commands->bindings->results.items[step->binding] : NULL;
}

static kiln_status hold_results(struct commands *commands, struct kiln__error *error)
{
    kiln_status status = KILN_OK;
    for (size_t i = 0; i < commands->bindings->results.count && !status; i++)
        status = hold(commands, &commands->bindings->results.items[i], error);
    return status;
}

/* A delivery to memory that later steps still read goes through a bounce buffer. */
static kiln_status hold_deliveries(struct commands *commands, struct kiln__error *error)
{
    const struct kiln__plan *plan = commands->executable->plan;
    kiln_status status = KILN_OK;
    for (size_t i = 0; i < plan->steps.count && !status; i++) {
        cl_mem memory;
        struct kiln__binding *result = result_of(commands, &plan->steps.items[i]);
        if (result && result->overlaps)
            status =
                take_bounce(commands, plan->steps.items[i].slot, result, false, &memory, error);
    }
    return status;
}

static kiln_status settle_memory(struct commands *commands, struct kiln__error *error)
{
    struct kiln__executable *executable = commands->executable;
    const struct kiln__plan *plan = executable->plan;
    kiln_status status = KILN_OK;
    if (plan->arena_bytes)
        status = kiln__pool_take_turn(commands->stream->pool, plan->arena_bytes, &commands->arena,
                                      error);
    if (!status)
        status = hold_results(commands, error);
    for (size_t i = 0; i < plan->slots.count && !status; i++) {
        const struct kiln__slot *slot = &plan->slots.items[i];
        executable->memory[i] = commands->arena;
        if (slot->bytes == 0 || slot->place == KILN__PLACE_ARENA)
            continue;
        if (slot->place == KILN__PLACE_KEPT) {
            status = place_kept(commands, (uint32_t)i, error);
            continue;
        }
        if (slot->place == KILN__PLACE_COUNTERS) {
            status = kiln__stream_counters(commands->stream, &executable->memory[i], error);
            continue;
        }
        executable->memory[i] = NULL;
        if (find_sourced(commands, (uint32_t)i))
            continue;
        bool is_input = slot->place == KILN__PLACE_INPUT;
        struct kiln__binding *binding = is_input
                                            ? &commands->bindings->inputs.items[slot->binding]
                                            : &commands->bindings->results.items[slot->binding];
        executable->foreign[i] = !binding->buffer && (slot->in_place || !binding->needs_bounce);
        if (slot->in_place)
            executable->memory[i] = binding->memory;
        else
            status = place_binding(commands, (uint32_t)i, binding, is_input, error);
    }
    leave_out(commands);
    if (!status)
        status = place_sourced(commands, error);
    return status ? status : hold_deliveries(commands, error);
}

static void give_back(struct commands *commands)
{
    struct kiln__pool *pool = commands->stream->pool;
    kiln__pool_give(pool, commands->arena);
    for (size_t i = 0; i < commands->bounces.count; i++)
        kiln__pool_give(pool, commands->bounces.items[i].memory);
    for (size_t i = 0; i < commands->wrappers.count; i++)
        clReleaseMemObject(commands->wrappers.items[i].memory);
    for (size_t i = 0; i < commands->kept.count; i++)
        kiln__kept_give(&commands->kept.items[i]);
    for (size_t i = 0; i < commands->made.count; i++)
        kiln__pool_give(pool, commands->made.items[i]);
    for (size_t i = 0; i < commands->held.count; i++)
        kiln__source_release(commands->held.items[i]);
    kiln__vector_free(&commands->held);
    kiln__vector_free(&commands->bounces);
    kiln__vector_free(&commands->wrappers);
    kiln__vector_free(&commands->kept);
    kiln__vector_free(&commands->made);
    commands->arena = NULL;
    commands->maps_back = 0;
}

/* What other runs took may have been given back, but for those that are being enqueued: without
 * room this one waits for their end and is alone. */
static kiln_status take_memory(struct commands *commands, struct kiln__error *error)
{
    struct kiln__budget *budget = &runtime_of(commands)->memory;
    struct kiln__error first = {0};
    kiln_status status = settle_memory(commands, &first);
    if (status != KILN_OUT_OF_DEVICE_MEMORY)
        return status ? kiln__fail(error, status, "%s", first.text) : KILN_OK;
    give_back(commands);
    kiln__budget_leave(budget);
    kiln__budget_enter(budget, true);
    kiln__budget_make_room(budget); /* small things may have been put into large idle pieces */
    return settle_memory(commands, error);
}

/* ---- commands ---- */

/* Where a launch's event goes, NULL where it has none. */
static cl_event *launch_event(struct commands *commands, cl_event *event)
{
    const struct kiln__runtime *runtime = runtime_of(commands);
    bool ends = commands->left == 1;
    const struct kiln__bindings *bindings = commands->bindings;
    bool later = runtime->ends_on_demand && bindings->left && !bindings->apart;
    commands->left--;
    *event = NULL;
    if (runtime->trace || (ends && !later))
        return event;
    if (ends)
        kiln__run_leave_open(commands->run);
    return NULL;
}

/* The run keeps the event, if the command has one. */
static kiln_status keep(struct commands *commands, cl_event event,
                        const struct kiln__trace_span *what, struct kiln__error *error)
{
    if (!event)
        return KILN_OK;
    if (runtime_of(commands)->trace)
        kiln__trace_add(runtime_of(commands)->trace, commands->stream->number, what, event);
    return kiln__run_keep(commands->run, what->name, what->bytes, event, error);
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
        .called = called ? called[executable->plan->launches.count + slot] : 0};
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
        status = kiln__run_keep_all(commands->run, what->name, what->bytes, events, error);
    kiln__events_free(events);
    return status;
}

static kiln_status upload(struct commands *commands, uint32_t slot, struct spot at,
                          const struct kiln__binding *binding, struct kiln__error *error)
{
    struct kiln__counters *counters = &runtime_of(commands)->counters;
    const struct kiln__transfer transfer = {at.memory, at.offset, binding->host, binding->bytes};
    struct kiln__events events = {0};
    commands->left--;
    kiln_status status = kiln__staging_upload(commands->stream->staging, &transfer, &events, error);
    if (!status) {
        atomic_fetch_add(&counters->uploads, 1);
        atomic_fetch_add(&counters->upload_bytes, binding->bytes);
    }
    const struct kiln__trace_span span = span_of(commands, "upload", slot, binding->bytes);
    return keep_all(commands, status, &events, &span, error);
}

static kiln_status download(struct commands *commands, uint32_t slot, struct spot at,
                            const struct kiln__binding *binding, struct kiln__error *error)
{
    struct kiln__counters *counters = &runtime_of(commands)->counters;
    const struct kiln__transfer transfer = {at.memory, at.offset, binding->host, binding->bytes};
    struct kiln__events events = {0};
    commands->left--;
    kiln_status status =
        kiln__staging_download(commands->stream->staging, &transfer, false, &events, error);
    if (!status) {
        atomic_fetch_add(&counters->downloads, 1);
        atomic_fetch_add(&counters->download_bytes, binding->bytes);
    }
    const struct kiln__trace_span span = span_of(commands, "download", slot, binding->bytes);
    return keep_all(commands, status, &events, &span, error);
}

static kiln_status copy(struct commands *commands, uint32_t slot, struct spot from, struct spot to,
                        size_t bytes, struct kiln__error *error)
{
    cl_event event = NULL;
    commands->left--;
    cl_int code = clEnqueueCopyBuffer(commands->stream->queue, from.memory, to.memory, from.offset,
                                      to.offset, bytes, 0, NULL, &event);
    if (code)
        return kiln__cl_fail(error, "clEnqueueCopyBuffer", code);
    const struct kiln__trace_span span = span_of(commands, "copy", slot, bytes);
    return keep(commands, event, &span, error);
}

static kiln_status launch(struct commands *commands, uint32_t index, struct kiln__error *error)
{
    struct kiln__runtime *runtime = runtime_of(commands);
    const struct kiln__launch *launch = &commands->executable->plan->launches.items[index];
    if (commands->executable->left_out[index]) {
        commands->left--;
        return KILN_OK;
    }
    cl_event own, *event = launch_event(commands, &own);
    if (launch->source == KILN__SOURCE_CLBLAST) {
        if (!atomic_exchange(&runtime->uses_clblast, true))
            kiln__clblast_begin();
        kiln_status status = kiln__clblast_enqueue(&runtime->device, commands->stream->queue, launch,
                                                   commands->executable->memory, event, error);
        if (status)
            return status;
    } else {
        cl_int code = clEnqueueNDRangeKernel(
            commands->stream->queue, commands->executable->kernels[index], launch->dimensions, NULL,
            launch->global, launch->local, 0, NULL, event);
        if (code)
            return kiln__cl_fail(error, "clEnqueueNDRangeKernel", code);
    }
    atomic_fetch_add(&runtime->counters.launches, 1);
    const struct kiln__executable *executable = commands->executable;
    return keep(commands, own,
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
    const struct spot at = {commands->executable->memory[step->slot],
                            plan->slots.items[step->slot].offset};
    if (step->kind == KILN__STEP_UPLOAD)
        return upload(commands, step->slot, at, &commands->bindings->inputs.items[step->binding],
                      error);
    const struct kiln__binding *result = result_of(commands, step);
    struct spot to = {result->memory, result->offset};
    if (result->overlaps)
        to = (struct spot){commands->bounces.items[result->bounce].memory, 0};
    else if (step->kind == KILN__STEP_DOWNLOAD)
        return download(commands, step->slot, at, result, error);
    return copy(commands, step->slot, at, to, result->bytes, error);
}

/* Inputs go to their bounce buffers first, results leave theirs last. */
static kiln_status run_bounces(struct commands *commands, bool inputs, struct kiln__error *error)
{
    kiln_status status = KILN_OK;
    for (size_t i = 0; i < commands->bounces.count && !status; i++) {
        const struct bounce *bounce = &commands->bounces.items[i];
        const struct kiln__binding *binding = bounce->binding;
        if (bounce->is_input != inputs)
            continue;
        const struct spot bounced = {bounce->memory, 0}, own = {binding->memory, binding->offset};
        if (!binding->host)
            status = copy(commands, bounce->slot, inputs ? own : bounced, inputs ? bounced : own,
                          binding->bytes, error);
        else if (inputs)
            status = upload(commands, bounce->slot, bounced, binding, error);
        else
            status = download(commands, bounce->slot, bounced, binding, error);
    }
    return status;
}

/* Mapping makes a result visible in the caller's memory; the wrapper is not used again. */
static kiln_status map_back(struct commands *commands, const struct wrapper *wrapper,
                            struct kiln__error *error)
{
    cl_command_queue queue = commands->stream->queue;
    cl_event map = NULL, unmap = NULL;
    cl_int code;
    void *mapped = clEnqueueMapBuffer(queue, wrapper->memory, CL_FALSE, CL_MAP_READ, 0,
                                      wrapper->result_bytes, 0, NULL, &map, &code);
    if (code)
        return kiln__cl_fail(error, "clEnqueueMapBuffer", code);
    kiln_status status =
        keep(commands, map,
             &(struct kiln__trace_span){.name = "map", .bytes = wrapper->result_bytes}, error);
    commands->left--;
    code = clEnqueueUnmapMemObject(queue, wrapper->memory, mapped, 0, NULL, &unmap);
    if (code)
        return kiln__cl_fail(error, "clEnqueueUnmapMemObject", code);
    kiln_status unmapped =
        keep(commands, unmap,
             &(struct kiln__trace_span){.name = "unmap", .bytes = wrapper->result_bytes}, error);
    return status ? status : unmapped;
}

static kiln_status map_results_back(struct commands *commands, struct kiln__error *error)
{
    kiln_status status = KILN_OK;
    for (size_t i = 0; i < commands->wrappers.count && !status; i++)
        if (commands->wrappers.items[i].result_bytes)
            status = map_back(commands, &commands->wrappers.items[i], error);
    return status;
}

/* A batch that has nothing to do still completes, after what came before it. */
static kiln_status mark_end(struct commands *commands, struct kiln__error *error)
{
    cl_event event = NULL;
    cl_int code = clEnqueueMarkerWithWaitList(commands->stream->queue, 0, NULL, &event);
    return code ? kiln__cl_fail(error, "clEnqueueMarkerWithWaitList", code)
                : kiln__run_keep(commands->run, "marker", 0, event, error);
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
    for (size_t i = 0; i < commands->bounces.count; i++)
        use_at(commands, commands->bounces.items[i].binding, KILN__NEVER_EARLY);
    for (size_t i = 0; i < plan->steps.count; i++) {
        const struct kiln__plan_step *step = &plan->steps.items[i];
        struct kiln__named named = {0};
        while (kiln__plan_next_named(plan, step, &named)) {
            const struct kiln__slot *slot = &plan->slots.items[named.slot];
            if (slot->place == KILN__PLACE_INPUT)
                use_at(commands, &bindings->inputs.items[slot->binding], i);
            else if (slot->place == KILN__PLACE_RESULT)
                use_at(commands, &bindings->results.items[slot->binding], i);
        }
        if (result_of(commands, step))
            use_at(commands, result_of(commands, step), i);
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
        cl_int code = clEnqueueMarkerWithWaitList(commands->stream->queue, 0, NULL, &event);
        if (code)
            return kiln__cl_fail(error, "clEnqueueMarkerWithWaitList", code);
        use->early = kiln__run_create(commands->stream);
        if (!use->early) {
            clReleaseEvent(event);
            return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to run the batch");
        }
        kiln__run_is_part(use->early);
        status = kiln__run_keep(use->early, "marker", 0, event, error);
    }
    return status;
}

static kiln_status enqueue(struct commands *commands, struct kiln__error *error)
{
    const struct kiln__plan *plan = commands->executable->plan;
    commands->left = plan->steps.count + commands->bounces.count + commands->maps_back;
    if (commands->left == 0)
        return mark_end(commands, error);
    kiln_status status = run_bounces(commands, true, error);
    if (commands->bindings->apart)
        find_last_steps(commands);
    for (size_t i = 0; i < plan->steps.count && !status; i++) {
        status = run_step(commands, &plan->steps.items[i], error);
        if (commands->bindings->apart && !status)
            status = mark_buffers(commands, i, error);
    }
    if (!status)
        status = run_bounces(commands, false, error);
    if (!status)
        status = map_results_back(commands, error);
    cl_int code = status ? CL_SUCCESS : clFlush(commands->stream->queue);
    return code ? kiln__cl_fail(error, "clFlush", code) : status;
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
        kiln__buffer_enter(use->buffer, use->writes);
        status = kiln__buffer_waits(use->buffer, commands->stream, use->writes, &events, error);
    }
    if (!status)
        return kiln__stream_wait(commands->stream, &events, error);
    kiln__events_free(&events);
    return status;
}

static void leave_buffers(struct commands *commands, bool enqueued)
{
    for (size_t i = 0; i < commands->kept.count && enqueued; i++)
        if (commands->kept.items[i].state == KILN__KEPT_NEW)
            kiln__kept_offer(&commands->kept.items[i], kiln__run_end(commands->run));
    for (size_t i = 0; i < commands->entered; i++) {
        struct kiln__use_of_buffer *use = &commands->bindings->buffers.items[i];
        if (enqueued)
            kiln__buffer_note(use->buffer, use->early ? use->early : commands->run, use->writes);
        kiln__buffer_leave(use->buffer);
        kiln__run_release(use->early);
        use->early = NULL;
    }
    commands->entered = 0;
}

static bool holds_kept(const struct commands *commands)
{
    for (size_t i = 0; i < commands->kept.count; i++)
        if (!kiln__kept_holds(&commands->kept.items[i]))
            return false;
    return true;
}

/* Memory is taken before buffers are entered: it may take waiting for other runs, which may be to
 * enter them. */
static kiln_status prepare(struct commands *commands, struct kiln__error *error)
{
    kiln_status status = take_memory(commands, error);
    if (!status)
        status = kiln__executable_bind(commands->executable, error);
    return status ? status : enter_buffers(commands, error);
}

static kiln_status submit(struct commands *commands, struct kiln__error *error)
{
    kiln_status status = KILN_OK;
    if (!kiln__bindings_check(commands->bindings))
        status = kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to run the batch");
    if (!status)
        status = prepare(commands, error);
    if (!status && !holds_kept(commands)) { /* a writer was faster */
        leave_buffers(commands, false);
        give_back(commands);
        commands->keeps_nothing = true;
        status = prepare(commands, error);
    }
    return status ? status : enqueue(commands, error);
}

kiln_status kiln__commands_run(struct kiln__executable *executable, struct kiln__stream *stream,
                               struct kiln__bindings *bindings, struct kiln__run **run,
                               struct kiln__error *error)
{
    *run = NULL;
    kiln_status status = kiln__runtime_check_process(executable->runtime, error);
    if (status)
        return status;
    struct commands commands = {.executable = executable, .stream = stream, .bindings = bindings};
    commands.run = kiln__run_create(stream);
    if (!commands.run)
        return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to run the batch");
    kiln__executable_call(executable, bindings->labels);
    kiln__executable_begin(executable);
    kiln__stream_enter(stream);
    kiln__budget_enter(&executable->runtime->memory, false);
    status = submit(&commands, error);
    if (status)
        kiln__stream_finish(stream);
    leave_buffers(&commands, !status);
    if (status) {
        kiln__run_release(commands.run);
    } else {
        tell_unread(&commands);
        kiln__executable_launched(executable);
        atomic_fetch_add(&executable->runtime->counters.batches, 1);
        *run = commands.run;
    }
    give_back(&commands);
    kiln__budget_leave(&executable->runtime->memory);
    kiln__stream_leave(stream);
    return status;
}
