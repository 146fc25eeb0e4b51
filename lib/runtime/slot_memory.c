/* SPDX-License-Identifier: Apache-2.0 */
/* Assignment of memory to slots for one run: arena, bound buffers, host memory, bounce buffers,
 * prepacked values. */
#include "runtime/slot_memory.h"

#include <string.h>

#include "runtime/buffer.h"

static struct kiln__runtime *runtime_of(const struct kiln__slot_memory *slots)
{
    return slots->executable->runtime;
}

static kiln_status take_bounce(struct kiln__slot_memory *slots, uint32_t slot,
                               struct kiln__binding *binding, bool is_input, cl_mem *memory,
                               struct kiln__error *error)
{
    struct kiln__bounce *bounce = kiln__vector_push(&slots->bounces);
    if (!bounce)
        return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to run the batch");
    binding->bounce = slots->bounces.count - 1;
    bounce->binding = binding;
    bounce->slot = slot;
    bounce->is_input = is_input;
    kiln_status status =
        kiln__pool_take(slots->stream->pool, binding->bytes, &bounce->memory, error);
    *memory = bounce->memory;
    return status;
}

/* The caller's memory as a cl_mem: kept with the binding where the driver uses it as it is at any
 * time, else made for this run, whose start is when the driver looks at it. */
static kiln_status wrap_host(struct kiln__slot_memory *slots, struct kiln__binding *binding,
                             bool is_input, cl_mem *memory, struct kiln__error *error)
{
    cl_int code;
    bool kept = runtime_of(slots)->host_mode == KILN__HOST_LIVE;
    cl_mem_flags flags = CL_MEM_USE_HOST_PTR | (is_input ? CL_MEM_READ_ONLY : CL_MEM_READ_WRITE);
    *memory =
        clCreateBuffer(runtime_of(slots)->context, flags, binding->bytes, binding->host, &code);
    if (code) {
        *memory = NULL;
        return kiln__cl_fail(error, "clCreateBuffer", code);
    }
    if (kept) {
        binding->memory = *memory;
        return KILN_OK;
    }
    struct kiln__wrapper *wrapper = kiln__vector_push(&slots->wrappers);
    if (!wrapper) {
        clReleaseMemObject(*memory);
        return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to run the batch");
    }
    *wrapper = (struct kiln__wrapper){*memory, is_input ? 0 : binding->bytes};
    slots->maps_back += !is_input;
    return KILN_OK;
}

/* Have a buffer's memory stay, if it would not otherwise. */
static kiln_status slot_memory_hold(struct kiln__slot_memory *slots, struct kiln__binding *binding,
                                    struct kiln__error *error)
{
    if (!binding->buffer || !binding->buffer->source.read)
        return KILN_OK;
    if (!kiln__vector_add(&slots->held, binding->buffer))
        return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to run the batch");
    kiln_status status = kiln__backing_hold(binding->buffer, &binding->memory, error);
    slots->held.count -= status != KILN_OK;
    return status;
}

static kiln_status place_binding(struct kiln__slot_memory *slots, uint32_t slot,
                                 struct kiln__binding *binding, bool is_input,
                                 struct kiln__error *error)
{
    cl_mem *memory = &slots->executable->run.memory[slot];
    if (binding->needs_bounce)
        return take_bounce(slots, slot, binding, is_input, memory, error);
    *memory = binding->memory;
    return *memory ? KILN_OK : wrap_host(slots, binding, is_input, memory, error);
}

/* The buffers that a kept slot is made of, the largest first: all that is made of some has one of
 * them for a place where it is found. Which of them was which still counts, in the key. False: one
 * is not a buffer as a whole. */
static bool find_sources(const struct kiln__slot_memory *slots, const struct kiln__slot *slot,
                         struct kiln__prepacked_use *use)
{
    for (uint32_t i = 0; i < slot->n_sources; i++) {
        const struct kiln__binding *binding = &slots->bindings->inputs.items[slot->sources[i]];
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
static kiln_status place_prepacked(struct kiln__slot_memory *slots, uint32_t index,
                                   struct kiln__error *error)
{
    struct kiln__executable *executable = slots->executable;
    const struct kiln__slot *slot = &executable->plan->slots.items[index];
    struct kiln__prepacked_use *use = kiln__vector_push(&slots->prepacked);
    kiln_status status = KILN_OK;
    if (!use)
        return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to run the batch");
    use->key = slot->key;
    use->bytes = slot->bytes;
    if (!slots->prepacks_nothing && find_sources(slots, slot, use))
        kiln__prepacked_take(use, slots->stream->pool);
    if (!use->memory)
        status = kiln__pool_take(slots->stream->pool, slot->bytes, &use->memory, error);
    executable->run.ready[index] = use->state == KILN__PREPACKED_READY;
    executable->run.memory[index] = use->memory;
    return status;
}

/* Whether the run reads what is in the slot. */
static bool is_read(const struct kiln__executable *executable, uint32_t slot)
{
    return executable->plan->slots.items[slot].wanted || executable->run.needed[slot];
}

/* Whether something is to read what the launch makes, and it is not there. */
static bool is_needed(const struct kiln__executable *executable, const struct kiln__launch *launch)
{
    uint32_t made = launch->prepacks - 1;
    if (!launch->prepacks)
        return true;
    return executable->plan->slots.items[made].storage == KILN__STORAGE_PREPACKED
               ? !executable->run.ready[made]
               : is_read(executable, made);
}

/* Launches whose results are kept, and those that only they need: from the last on. Where nothing
 * is kept, all are needed. */
static void leave_out(struct kiln__slot_memory *slots)
{
    struct kiln__run_slots *run = &slots->executable->run;
    const struct kiln__plan *plan = slots->executable->plan;
    if (!plan->prepacked_bytes)
        return;
    memset(run->needed, 0, plan->slots.count * sizeof *run->needed);
    for (size_t i = plan->launches.count; i-- > 0;) {
        const struct kiln__launch *launch = &plan->launches.items[i];
        run->left_out[i] = !is_needed(slots->executable, launch);
        for (size_t k = 0; launch->prepacks && k < launch->arguments.count; k++)
            if (launch->arguments.items[k].kind == KILN__ARGUMENT_MEMORY && !run->left_out[i])
                run->needed[launch->arguments.items[k].slot] = true;
    }
}

/* What the slot stands for; NULL: it is memory of the run's. */
static struct kiln__binding *find_binding(const struct kiln__slot_memory *slots, uint32_t index)
{
    const struct kiln__slot *slot = &slots->executable->plan->slots.items[index];
    if (!slot->bytes)
        return NULL;
    return slot->storage == KILN__STORAGE_INPUT    ? &slots->bindings->inputs.items[slot->binding]
           : slot->storage == KILN__STORAGE_RESULT ? &slots->bindings->results.items[slot->binding]
                                                   : NULL;
}

/* Whether its memory may come and go. */
static bool is_sourced(const struct kiln__binding *binding)
{
    return binding->buffer && binding->buffer->source.read;
}

/* The slot's binding, if its buffer only has memory while somebody reads it; or NULL. */
static struct kiln__binding *find_sourced(const struct kiln__slot_memory *slots, uint32_t index)
{
    const struct kiln__slot *slot = &slots->executable->plan->slots.items[index];
    struct kiln__binding *binding = find_binding(slots, index);
    return binding && slot->storage == KILN__STORAGE_INPUT && is_sourced(binding) ? binding : NULL;
}

/* What such inputs have, once it is known which launches run. */
static kiln_status place_sourced(struct kiln__slot_memory *slots, struct kiln__error *error)
{
    struct kiln__executable *executable = slots->executable;
    kiln_status status = KILN_OK;
    for (size_t i = 0; i < executable->run.anew_count && !status; i++) {
        const uint32_t slot = executable->run.anew[i];
        struct kiln__binding *binding = find_sourced(slots, slot);
        bool reads = binding && is_read(executable, slot);
        if (reads)
            status = slot_memory_hold(slots, binding, error);
        if (reads && !status)
            status = place_binding(slots, slot, binding, true, error);
    }
    return status;
}

void kiln__slot_memory_mark_unread(const struct kiln__slot_memory *slots)
{
    const struct kiln__executable *executable = slots->executable;
    for (size_t i = 0; i < executable->run.anew_count; i++) {
        const struct kiln__binding *binding = find_sourced(slots, executable->run.anew[i]);
        if (binding && !executable->run.memory[executable->run.anew[i]])
            kiln__backing_was_unread(binding->buffer);
    }
}

struct kiln__binding *kiln__slot_memory_result(const struct kiln__slot_memory *slots,
                                               const struct kiln__plan_step *step)
{
    bool delivers = step->kind == KILN__STEP_DOWNLOAD || step->kind == KILN__STEP_COPY;
    return delivers ? &slots->bindings->results.items[step->binding] : NULL;
}

static kiln_status hold_results(struct kiln__slot_memory *slots, struct kiln__error *error)
{
    kiln_status status = KILN_OK;
    for (size_t i = 0; i < slots->bindings->results.count && !status; i++)
        status = slot_memory_hold(slots, &slots->bindings->results.items[i], error);
    return status;
}

/* A delivery to memory that later steps still read goes through a bounce buffer. */
static kiln_status hold_deliveries(struct kiln__slot_memory *slots, struct kiln__error *error)
{
    const struct kiln__plan *plan = slots->executable->plan;
    kiln_status status = KILN_OK;
    for (size_t i = 0; i < plan->steps.count && slots->bindings->overlap && !status; i++) {
        cl_mem memory;
        struct kiln__binding *result = kiln__slot_memory_result(slots, &plan->steps.items[i]);
        if (result && result->overlaps)
            status = take_bounce(slots, plan->steps.items[i].slot, result, false, &memory, error);
    }
    return status;
}

static kiln_status place_slot(struct kiln__slot_memory *slots, uint32_t index,
                              struct kiln__error *error)
{
    struct kiln__executable *executable = slots->executable;
    const struct kiln__slot *slot = &executable->plan->slots.items[index];
    struct kiln__binding *binding = find_binding(slots, index);
    executable->run.memory[index] = binding ? NULL : slots->arena;
    executable->run.foreign[index] = false;
    if (slot->bytes && slot->storage == KILN__STORAGE_PREPACKED)
        return place_prepacked(slots, index, error);
    if (slot->bytes && slot->storage == KILN__STORAGE_COUNTERS)
        return kiln__stream_counters(slots->stream, &executable->run.memory[index], error);
    if (!binding || find_sourced(slots, index))
        return KILN_OK;
    executable->run.foreign[index] = !binding->buffer && (slot->in_place || !binding->needs_bounce);
    if (!slot->in_place)
        return place_binding(slots, index, binding, slot->storage == KILN__STORAGE_INPUT, error);
    executable->run.memory[index] = binding->memory;
    return KILN_OK;
}

/* Whether the next run of the same bindings, with the same arena, may have other memory there. */
static bool is_placed_anew(const struct kiln__slot_memory *slots, uint32_t index)
{
    const struct kiln__slot *slot = &slots->executable->plan->slots.items[index];
    const struct kiln__binding *binding = find_binding(slots, index);
    if (!binding)
        return slot->bytes && slot->storage != KILN__STORAGE_ARENA;
    bool wrapped = binding->host && runtime_of(slots)->host_mode != KILN__HOST_LIVE;
    return is_sourced(binding) || binding->needs_bounce || wrapped;
}

/* What stays where the run before has it is not looked at again. */
static kiln_status place_slots(struct kiln__slot_memory *slots, struct kiln__error *error)
{
    struct kiln__executable *executable = slots->executable;
    kiln_status status = KILN_OK;
    if (executable->run.settled != slots->bindings->checked ||
        executable->run.arena != slots->arena) {
        executable->run.settled = 0;
        executable->run.arena = slots->arena;
        executable->run.anew_count = 0;
        for (uint32_t i = 0; i < executable->plan->slots.count && !status; i++)
            if (is_placed_anew(slots, i))
                executable->run.anew[executable->run.anew_count++] = i;
            else
                status = place_slot(slots, i, error);
    }
    for (size_t i = 0; i < executable->run.anew_count && !status; i++)
        status = place_slot(slots, executable->run.anew[i], error);
    return status;
}

static kiln_status settle_memory(struct kiln__slot_memory *slots, struct kiln__error *error)
{
    const struct kiln__plan *plan = slots->executable->plan;
    kiln_status status = KILN_OK;
    if (plan->arena_bytes)
        status = kiln__pool_take_turn(slots->stream->pool, plan->arena_bytes, &slots->arena, error);
    if (!status)
        status = hold_results(slots, error);
    if (!status)
        status = place_slots(slots, error);
    leave_out(slots);
    if (!status)
        status = place_sourced(slots, error);
    return status ? status : hold_deliveries(slots, error);
}

static void give_prepacked(struct kiln__prepacked_use *use, struct kiln__pool *pool)
{
    if (use->state == KILN__PREPACKED_NOT)
        kiln__pool_give(pool, use->memory);
    else
        kiln__prepacked_give(use);
}

void kiln__slot_memory_give_back(struct kiln__slot_memory *slots)
{
    struct kiln__pool *pool = slots->stream->pool;
    kiln__pool_give(pool, slots->arena);
    for (size_t i = 0; i < slots->bounces.count; i++)
        kiln__pool_give(pool, slots->bounces.items[i].memory);
    for (size_t i = 0; i < slots->wrappers.count; i++)
        clReleaseMemObject(slots->wrappers.items[i].memory);
    for (size_t i = 0; i < slots->prepacked.count; i++)
        give_prepacked(&slots->prepacked.items[i], pool);
    for (size_t i = 0; i < slots->held.count; i++)
        kiln__backing_release(slots->held.items[i]);
    kiln__vector_free(&slots->held);
    kiln__vector_free(&slots->bounces);
    kiln__vector_free(&slots->wrappers);
    kiln__vector_free(&slots->prepacked);
    slots->arena = NULL;
    slots->maps_back = 0;
}

kiln_status kiln__slot_memory_take(struct kiln__slot_memory *slots, struct kiln__error *error)
{
    struct kiln__budget *budget = &runtime_of(slots)->memory;
    struct kiln__error first = {0};
    kiln_status status = settle_memory(slots, &first);
    if (status != KILN_OUT_OF_DEVICE_MEMORY)
        return status ? kiln__fail(error, status, "%s", first.text) : KILN_OK;
    kiln__slot_memory_give_back(slots);
    kiln__budget_leave(budget);
    kiln__budget_enter(budget, true);
    kiln__budget_make_room(budget,
                           true); /* small things may have been put into large idle pieces */
    return settle_memory(slots, error);
}
