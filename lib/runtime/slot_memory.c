/* SPDX-License-Identifier: Apache-2.0 */
/* Assignment of memory to slots for one run: arena, bound buffers, host memory, bounce buffers,
 * prepacked values. */
#include "runtime/slot_memory.h"

#include <string.h>

#include "runtime/buffer.h"

static struct kiln__runtime *runtime_of(const struct kiln__placing *placing)
{
    return placing->executable->runtime;
}

static kiln_status take_bounce(struct kiln__placing *placing, uint32_t slot,
                               struct kiln__binding *binding, bool is_input, cl_mem *memory,
                               struct kiln__error *error)
{
    struct kiln__bounce *bounce = kiln__vector_push(&placing->bounces);
    if (!bounce)
        return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to run the batch");
    binding->bounce = placing->bounces.count - 1;
    bounce->binding = binding;
    bounce->slot = slot;
    bounce->is_input = is_input;
    kiln_status status =
        kiln__pool_take(placing->stream->pool, binding->bytes, &bounce->memory, error);
    *memory = bounce->memory;
    return status;
}

/* The caller's memory as a cl_mem: kept with the binding where the driver uses it as it is at any
 * time, else made for this run, whose start is when the driver looks at it. */
static kiln_status wrap_host(struct kiln__placing *placing, struct kiln__binding *binding,
                             bool is_input, cl_mem *memory, struct kiln__error *error)
{
    cl_int code;
    bool kept = runtime_of(placing)->host_mode == KILN__HOST_LIVE;
    cl_mem_flags flags = CL_MEM_USE_HOST_PTR | (is_input ? CL_MEM_READ_ONLY : CL_MEM_READ_WRITE);
    *memory =
        clCreateBuffer(runtime_of(placing)->context, flags, binding->bytes, binding->host, &code);
    if (code) {
        *memory = NULL;
        return kiln__cl_fail(error, "clCreateBuffer", code);
    }
    if (kept) {
        binding->memory = *memory;
        return KILN_OK;
    }
    struct kiln__wrapper *wrapper = kiln__vector_push(&placing->wrappers);
    if (!wrapper) {
        clReleaseMemObject(*memory);
        return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to run the batch");
    }
    *wrapper = (struct kiln__wrapper){*memory, is_input ? 0 : binding->bytes};
    placing->maps_back += !is_input;
    return KILN_OK;
}

/* Have a buffer's memory stay, if it would not otherwise. */
static kiln_status hold(struct kiln__placing *placing, struct kiln__binding *binding,
                        struct kiln__error *error)
{
    if (!binding->buffer || !binding->buffer->source.read)
        return KILN_OK;
    kiln_buffer **place = kiln__vector_push(&placing->held);
    if (!place)
        return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to run the batch");
    *place = binding->buffer;
    kiln_status status = kiln__source_hold(binding->buffer, &binding->memory, error);
    placing->held.count -= status != KILN_OK;
    return status;
}

static kiln_status place_binding(struct kiln__placing *placing, uint32_t slot,
                                 struct kiln__binding *binding, bool is_input,
                                 struct kiln__error *error)
{
    cl_mem *memory = &placing->executable->memory[slot];
    if (binding->needs_bounce)
        return take_bounce(placing, slot, binding, is_input, memory, error);
    *memory = binding->memory;
    return *memory ? KILN_OK : wrap_host(placing, binding, is_input, memory, error);
}

/* The buffers that a kept slot is made of, the largest first: all that is made of some has one of
 * them for a place where it is found. Which of them was which still counts, in the key. False: one
 * is not a buffer as a whole. */
static bool find_sources(const struct kiln__placing *placing, const struct kiln__slot *slot,
                         struct kiln__kept_use *use)
{
    for (uint32_t i = 0; i < slot->n_sources; i++) {
        const struct kiln__binding *binding = &placing->bindings->inputs.items[slot->sources[i]];
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
static kiln_status place_kept(struct kiln__placing *placing, uint32_t index,
                              struct kiln__error *error)
{
    struct kiln__executable *executable = placing->executable;
    const struct kiln__slot *slot = &executable->plan->slots.items[index];
    struct kiln__kept_use *use = kiln__vector_push(&placing->kept);
    cl_mem *made = kiln__vector_push(&placing->made);
    executable->ready[index] = false;
    if (made)
        *made = NULL;
    if (!use || !made) {
        placing->kept.count -= use != NULL;
        return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to run the batch");
    }
    use->key = slot->key;
    use->bytes = slot->bytes;
    if (!placing->keeps_nothing && find_sources(placing, slot, use))
        kiln__kept_take(use, placing->stream->pool);
    executable->ready[index] = use->state == KILN__KEPT_READY;
    executable->memory[index] = use->memory;
    if (use->memory)
        return KILN_OK;
    placing->kept.count--;
    kiln_status status = kiln__pool_take(placing->stream->pool, slot->bytes, made, error);
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
static void leave_out(struct kiln__placing *placing)
{
    struct kiln__executable *executable = placing->executable;
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

/* What the slot stands for; NULL: it is memory of the run's. */
static struct kiln__binding *find_binding(const struct kiln__placing *placing, uint32_t index)
{
    const struct kiln__slot *slot = &placing->executable->plan->slots.items[index];
    if (!slot->bytes)
        return NULL;
    return slot->place == KILN__PLACE_INPUT    ? &placing->bindings->inputs.items[slot->binding]
           : slot->place == KILN__PLACE_RESULT ? &placing->bindings->results.items[slot->binding]
                                               : NULL;
}

/* Whether its memory may come and go. */
static bool is_sourced(const struct kiln__binding *binding)
{
    return binding->buffer && binding->buffer->source.read;
}

/* The slot's binding, if its buffer only has memory while somebody reads it; or NULL. */
static struct kiln__binding *find_sourced(const struct kiln__placing *placing, uint32_t index)
{
    const struct kiln__slot *slot = &placing->executable->plan->slots.items[index];
    struct kiln__binding *binding = find_binding(placing, index);
    return binding && slot->place == KILN__PLACE_INPUT && is_sourced(binding) ? binding : NULL;
}

/* What such inputs have, once it is known which launches run. */
static kiln_status place_sourced(struct kiln__placing *placing, struct kiln__error *error)
{
    struct kiln__executable *executable = placing->executable;
    kiln_status status = KILN_OK;
    for (size_t i = 0; i < executable->anew_count && !status; i++) {
        const uint32_t slot = executable->anew[i];
        struct kiln__binding *binding = find_sourced(placing, slot);
        bool reads = binding && is_read(executable, slot);
        if (reads)
            status = hold(placing, binding, error);
        if (reads && !status)
            status = place_binding(placing, slot, binding, true, error);
    }
    return status;
}

void kiln__placing_tell_unread(const struct kiln__placing *placing)
{
    const struct kiln__executable *executable = placing->executable;
    for (size_t i = 0; i < executable->anew_count; i++) {
        const struct kiln__binding *binding = find_sourced(placing, executable->anew[i]);
        if (binding && !executable->memory[executable->anew[i]])
            kiln__source_went_without(binding->buffer);
    }
}

struct kiln__binding *kiln__placing_result(const struct kiln__placing *placing,
                                           const struct kiln__plan_step *step)
{
    bool delivers = step->kind == KILN__STEP_DOWNLOAD || step->kind == KILN__STEP_COPY;
    return delivers ? &placing->bindings->results.items[step->binding] : NULL;
}

static kiln_status hold_results(struct kiln__placing *placing, struct kiln__error *error)
{
    kiln_status status = KILN_OK;
    for (size_t i = 0; i < placing->bindings->results.count && !status; i++)
        status = hold(placing, &placing->bindings->results.items[i], error);
    return status;
}

/* A delivery to memory that later steps still read goes through a bounce buffer. */
static kiln_status hold_deliveries(struct kiln__placing *placing, struct kiln__error *error)
{
    const struct kiln__plan *plan = placing->executable->plan;
    kiln_status status = KILN_OK;
    for (size_t i = 0; i < plan->steps.count && placing->bindings->overlap && !status; i++) {
        cl_mem memory;
        struct kiln__binding *result = kiln__placing_result(placing, &plan->steps.items[i]);
        if (result && result->overlaps)
            status = take_bounce(placing, plan->steps.items[i].slot, result, false, &memory, error);
    }
    return status;
}

static kiln_status place_slot(struct kiln__placing *placing, uint32_t index,
                              struct kiln__error *error)
{
    struct kiln__executable *executable = placing->executable;
    const struct kiln__slot *slot = &executable->plan->slots.items[index];
    struct kiln__binding *binding = find_binding(placing, index);
    executable->memory[index] = binding ? NULL : placing->arena;
    executable->foreign[index] = false;
    if (slot->bytes && slot->place == KILN__PLACE_KEPT)
        return place_kept(placing, index, error);
    if (slot->bytes && slot->place == KILN__PLACE_COUNTERS)
        return kiln__stream_counters(placing->stream, &executable->memory[index], error);
    if (!binding || find_sourced(placing, index))
        return KILN_OK;
    executable->foreign[index] = !binding->buffer && (slot->in_place || !binding->needs_bounce);
    if (!slot->in_place)
        return place_binding(placing, index, binding, slot->place == KILN__PLACE_INPUT, error);
    executable->memory[index] = binding->memory;
    return KILN_OK;
}

/* Whether the next run of the same bindings, with the same arena, may have other memory there. */
static bool is_placed_anew(const struct kiln__placing *placing, uint32_t index)
{
    const struct kiln__slot *slot = &placing->executable->plan->slots.items[index];
    const struct kiln__binding *binding = find_binding(placing, index);
    if (!binding)
        return slot->bytes && slot->place != KILN__PLACE_ARENA;
    bool wrapped = binding->host && runtime_of(placing)->host_mode != KILN__HOST_LIVE;
    return is_sourced(binding) || binding->needs_bounce || wrapped;
}

/* What stays where the run before has it is not looked at again. */
static kiln_status place_slots(struct kiln__placing *placing, struct kiln__error *error)
{
    struct kiln__executable *executable = placing->executable;
    kiln_status status = KILN_OK;
    if (executable->settled != placing->bindings->checked || executable->arena != placing->arena) {
        executable->settled = 0;
        executable->arena = placing->arena;
        executable->anew_count = 0;
        for (uint32_t i = 0; i < executable->plan->slots.count && !status; i++)
            if (is_placed_anew(placing, i))
                executable->anew[executable->anew_count++] = i;
            else
                status = place_slot(placing, i, error);
    }
    for (size_t i = 0; i < executable->anew_count && !status; i++)
        status = place_slot(placing, executable->anew[i], error);
    return status;
}

static kiln_status settle_memory(struct kiln__placing *placing, struct kiln__error *error)
{
    const struct kiln__plan *plan = placing->executable->plan;
    kiln_status status = KILN_OK;
    if (plan->arena_bytes)
        status =
            kiln__pool_take_turn(placing->stream->pool, plan->arena_bytes, &placing->arena, error);
    if (!status)
        status = hold_results(placing, error);
    if (!status)
        status = place_slots(placing, error);
    leave_out(placing);
    if (!status)
        status = place_sourced(placing, error);
    return status ? status : hold_deliveries(placing, error);
}

void kiln__placing_give_back(struct kiln__placing *placing)
{
    struct kiln__pool *pool = placing->stream->pool;
    kiln__pool_give(pool, placing->arena);
    for (size_t i = 0; i < placing->bounces.count; i++)
        kiln__pool_give(pool, placing->bounces.items[i].memory);
    for (size_t i = 0; i < placing->wrappers.count; i++)
        clReleaseMemObject(placing->wrappers.items[i].memory);
    for (size_t i = 0; i < placing->kept.count; i++)
        kiln__kept_give(&placing->kept.items[i]);
    for (size_t i = 0; i < placing->made.count; i++)
        kiln__pool_give(pool, placing->made.items[i]);
    for (size_t i = 0; i < placing->held.count; i++)
        kiln__source_release(placing->held.items[i]);
    kiln__vector_free(&placing->held);
    kiln__vector_free(&placing->bounces);
    kiln__vector_free(&placing->wrappers);
    kiln__vector_free(&placing->kept);
    kiln__vector_free(&placing->made);
    placing->arena = NULL;
    placing->maps_back = 0;
}

kiln_status kiln__placing_take(struct kiln__placing *placing, struct kiln__error *error)
{
    struct kiln__budget *budget = &runtime_of(placing)->memory;
    struct kiln__error first = {0};
    kiln_status status = settle_memory(placing, &first);
    if (status != KILN_OUT_OF_DEVICE_MEMORY)
        return status ? kiln__fail(error, status, "%s", first.text) : KILN_OK;
    kiln__placing_give_back(placing);
    kiln__budget_leave(budget);
    kiln__budget_enter(budget, true);
    kiln__budget_make_room(budget); /* small things may have been put into large idle pieces */
    return settle_memory(placing, error);
}
