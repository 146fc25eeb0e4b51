/* SPDX-License-Identifier: Apache-2.0 */
/* Plans and runs of parts, and the memory of values between them. */
#include "api/loop_runs.h"

#include <stdlib.h>

#include "api/checked_run.h"
#include "api/loop_counts.h"
#include "runtime/memory_pool.h"
#include "session/context.h"

/* After so many launches the queue is waited for: what it holds takes memory of the host. */
#define MOST_QUEUED 2048

static kiln_status no_memory(struct kiln__error *error)
{
    return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to run the batch");
}

/* ---- plans ---- */

struct planning {
    kiln_batch *batch;
    int threads; /* -1: only as runs need */
    struct kiln__error *error;
};

/* Names may have come or gone since. */
static bool label(const kiln_batch *batch, struct kiln__loop_part *part)
{
    struct kiln__label *own = realloc(part->labels.nodes.items, (part->of.count + 1) * sizeof *own);
    if (!own)
        return false;
    for (size_t i = 0; i < part->of.count; i++)
        own[i] = batch->labels.nodes.items[part->of.items[i]];
    part->labels = batch->labels;
    part->labels.nodes.items = own;
    part->labels.nodes.count = part->labels.nodes.capacity = part->of.count;
    part->graph.labels = &part->labels;
    return true;
}

/* Before each run: what compiles behind may be there, and how often it runs counts. */
static kiln_status lease_part(const struct planning *planning, struct kiln__loop_part *part)
{
    struct kiln__plan_cache *cache = planning->batch->context->plan_cache;
    if (part->lease.entry && kiln__plan_cache_has_changed(cache, &part->lease))
        kiln__plan_cache_return(cache, &part->lease);
    if (part->lease.entry)
        return KILN_OK;
    kiln_status status =
        planning->threads < 0
            ? kiln__plan_cache_lease(cache, &part->graph, false, &part->lease, planning->error)
            : kiln__plan_cache_prepare(cache, &part->graph, (unsigned)planning->threads,
                                       &part->lease, planning->error);
    if (!status && !part->lease.executable)
        status = kiln__fail(planning->error, KILN_OUT_OF_DEVICE_MEMORY,
                            "kiln: a part of the batch, which has loops, needs %llu bytes of "
                            "device memory at once, and there may not be as many",
                            (unsigned long long)kiln__plan_peak(part->lease.plan));
    return status;
}

static kiln_status plan_part(void *of, struct kiln__loop_part *part, double times)
{
    const struct planning *planning = of;
    if (times == 0)
        return KILN_OK;
    return label(planning->batch, part) ? lease_part(planning, part) : no_memory(planning->error);
}

static kiln_status return_lease(void *of, struct kiln__loop_part *part, double times)
{
    (void)times;
    kiln__plan_cache_return(of, &part->lease);
    return KILN_OK;
}

void kiln__loop_runs_free(struct kiln__plan_cache *cache, struct kiln__loop_runs *runs)
{
    if (!runs)
        return;
    kiln__loop_each_part(runs->batch, &runs->scope, 1, return_lease, cache);
    kiln__loop_scope_free(&runs->scope);
    free(runs);
}

kiln_status kiln__loop_runs_make(kiln_batch *batch, int threads, struct kiln__loop_runs **made,
                                 struct kiln__error *error)
{
    struct kiln__loop_runs *runs = calloc(1, sizeof *runs);
    if (runs)
        runs->batch = batch;
    kiln_status status = runs && kiln__loop_scope_make(batch, &runs->scope)
                             ? kiln__loop_each_part(batch, &runs->scope, 1, plan_part,
                                                    &(struct planning){batch, threads, error})
                             : no_memory(error);
    *made = status ? NULL : runs;
    if (status)
        kiln__loop_runs_free(batch->context->plan_cache, runs);
    return status;
}

/* ---- memory ---- */

struct looping {
    kiln_batch *batch;
    struct kiln__stream *stream;
    struct kiln__binding *values; /* per node of the batch: where its value is by now */
    KILN__VECTOR(cl_mem) taken;
    struct kiln__run *run; /* the last one so far, or NULL */
    size_t queued;
    struct kiln__text call; /* for sentences: with the steps that it is in */
    struct kiln__error *error;
};

static const struct kiln__node *looping_node(const struct looping *looping, uint32_t index)
{
    return &looping->batch->graph.nodes.items[index];
}

static kiln_status take(struct looping *looping, const struct kiln__node *node,
                        struct kiln__binding *binding)
{
    *binding = (struct kiln__binding){.bytes = kiln__node_bytes(node),
                                      .item = kiln__type_alignment(node->type)};
    if (!binding->bytes)
        return KILN_OK;
    cl_mem *place = kiln__vector_push(&looping->taken);
    if (!place)
        return no_memory(looping->error);
    kiln_status status =
        kiln__pool_take(looping->stream->pool, binding->bytes, place, looping->error);
    looping->taken.count -= status != KILN_OK;
    binding->memory = status ? NULL : *place;
    binding->identity = (uintptr_t)binding->memory;
    return status;
}

/* All that was taken after the first `kept`: what uses it is in the queue. */
static void give_back(struct looping *looping, size_t kept)
{
    while (looping->taken.count > kept)
        kiln__pool_give(looping->stream->pool, looping->taken.items[--looping->taken.count]);
}

/* `count` rows of `rows`, from `number` on. */
static struct kiln__binding rows_of(struct kiln__binding binding, size_t rows, size_t number,
                                    size_t count)
{
    const size_t bytes = binding.bytes / rows;
    if (binding.host)
        binding.host = (char *)binding.host + number * bytes;
    binding.offset += binding.host ? 0 : number * bytes;
    binding.bytes = count * bytes;
    binding.is_part = true;
    return binding;
}

/* A wrapper around host memory is each one's own. */
static struct kiln__binding bound(const struct kiln__binding *from)
{
    struct kiln__binding to = *from;
    to.memory = from->host ? NULL : from->memory;
    return to;
}

/* ---- a part ---- */

static bool push_binding(void **items, size_t *count, size_t *capacity,
                         const struct kiln__binding *binding)
{
    if (!kiln__vector_grow(items, count, capacity, sizeof *binding))
        return false;
    ((struct kiln__binding *)*items)[*count - 1] = *binding;
    return true;
}
#define PUSH(vector, binding)                                                                      \
    push_binding((void **)&(vector)->items, &(vector)->count, &(vector)->capacity, binding)

static kiln_status bind(struct looping *looping, struct kiln__loop_part *part,
                        const struct kiln__binding *wanted, struct kiln__bindings *bindings)
{
    bool done = true;
    kiln_status status = KILN_OK;
    for (size_t i = 0; i < part->inputs.count && done; i++) {
        const struct kiln__node *node = looping_node(looping, part->inputs.items[i]);
        const bool own = node->kind == KILN__UPLOAD || kiln__node_is_buffer(node);
        const struct kiln__binding input =
            bound(own ? &looping->batch->bindings.inputs.items[node->binding]
                      : &looping->values[part->inputs.items[i]]);
        done = PUSH(&bindings->inputs, &input);
    }
    for (size_t i = 0; i < part->graph.requests.count && done && !status; i++) {
        struct kiln__binding result;
        if (i < part->values.count) {
            const uint32_t value = part->values.items[i];
            status = take(looping, looping_node(looping, value), &looping->values[value]);
            result = looping->values[value];
        } else {
            result = bound(&wanted[i - part->values.count]);
        }
        done = PUSH(&bindings->results, &result);
    }
    return done ? status : no_memory(looping->error);
}

/* The run before is nobody's any more. */
static kiln_status replace_previous_run(struct looping *looping, struct kiln__run *made,
                                        size_t launches)
{
    const size_t before = looping->queued;
    if (looping->run)
        kiln__runs_add(looping->run);
    kiln__run_release(looping->run);
    looping->run = made;
    looping->queued += launches;
    if (looping->queued / MOST_QUEUED == before / MOST_QUEUED)
        return KILN_OK;
    return kiln__run_await(made, "kiln", looping->error);
}

static kiln_status run_part(struct looping *looping, struct kiln__loop_part *part,
                            const struct kiln__binding *wanted)
{
    kiln_status status = lease_part(&(struct planning){looping->batch, -1, looping->error}, part);
    if (status)
        return status;
    kiln_batch alone = {.context = looping->batch->context,
                        .graph = part->graph,
                        .bindings = {.labels = &part->labels},
                        .lease = part->lease,
                        .unvalidated = looping->batch->unvalidated};
    status = bind(looping, part, wanted, &alone.bindings);
    if (!status)
        status =
            kiln__checked_run(&alone, looping->stream, part->of.items,
                              looping->call.data ? looping->call.data : "kiln", looping->error);
    kiln__bindings_free(&alone.bindings);
    const kiln_status followed =
        alone.last ? replace_previous_run(looping, alone.last, 1 + part->lease.plan->launches.count)
                   : KILN_OK;
    return status ? status : followed;
}

/* ---- loops ---- */

static kiln_status run_scope(struct looping *looping, struct kiln__loop_scope *scope,
                             const struct kiln__binding *wanted);

static const struct kiln__binding *value_of(const struct looping *looping, uint32_t index)
{
    const struct kiln__node *node = looping_node(looping, index);
    return kiln__node_is_buffer(node) ? &looping->batch->bindings.inputs.items[node->binding]
                                      : &looping->values[index];
}

/* What `count` steps, the lowest of which is `number`, begin with, of which `states` have been left
 * by the one before them; NULL: there is none. */
static void begin_steps(struct looping *looping, const struct kiln__replayed *loop, size_t number,
                        size_t count, const struct kiln__binding *states)
{
    const kiln_loop_options *options = &loop->options;
    const kiln_tensor *elements = count > 1 ? loop->stretch->options.elements : options->elements;
    for (size_t k = 0; k < loop->n_states; k++)
        looping->values[loop->states[k]] =
            states ? states[k] : *value_of(looping, loop->initial[k]);
    for (size_t k = 0; k < options->element_count; k++) {
        const uint32_t element = kiln__tensor_index(elements[k]);
        looping->values[element] =
            rows_of(*value_of(looping, looping_node(looping, element)->input[0]), options->steps,
                    number, count);
    }
}

static kiln_status poll_end(struct looping *looping, struct kiln__loop_inside *inside, bool *ended)
{
    int32_t value = 0;
    const struct kiln__binding wanted = {
        .host = &value, .bytes = sizeof value, .item = sizeof value};
    kiln_status status = run_scope(looping, &inside->ended, &wanted);
    /* Also after an error nothing may write there any more. */
    kiln_status awaited =
        looping->run ? kiln__run_await(looping->run, "kiln", looping->error) : KILN_OK;
    *ended = !status && !awaited && value;
    return status ? status : awaited;
}

/* The call with the numbers of the steps around this one alone. */
static void say_less(struct looping *looping, size_t length)
{
    if (!looping->call.data)
        return;
    looping->call.length = length;
    looping->call.data[length] = '\0';
}

static void say_step(struct looping *looping, size_t length, size_t number)
{
    if (!kiln__loop_runs_single_steps(looping->batch))
        return;
    say_less(looping, length);
    kiln__text_add(&looping->call, ", step %zu", number);
}

static kiln_status take_steps(struct looping *looping, struct kiln__loop_inside *inside,
                              struct kiln__binding *left[2], size_t *runs)
{
    const struct kiln__replayed *loop = inside->loop;
    const size_t steps = loop->options.steps, said = looping->call.length;
    const size_t stretch = kiln__loop_steps_per_run(looping->batch, loop);
    kiln_status status = KILN_OK;
    size_t before = 0;
    for (size_t i = 0, count; i < steps && !status; before = i, i += count) {
        struct kiln__binding *ours = left[*runs % 2];
        count = steps - i < stretch ? 1 : stretch;
        const size_t number = loop->options.reverse ? steps - count - i : i;
        bool ended = false;
        say_step(looping, said, number);
        begin_steps(looping, loop, number, count, i ? left[(*runs - 1) % 2] : NULL);
        if (loop->ended && kiln__loop_polls_end_before(i, before))
            status = poll_end(looping, inside, &ended);
        if (status || ended)
            break;
        ++*runs;
        for (size_t k = 0; k < loop->options.output_count; k++)
            ours[loop->n_states + k] =
                rows_of(looping->values[loop->results + loop->n_states + k], steps, number, count);
        status = run_scope(looping, count > 1 ? &inside->stretch : &inside->step, ours);
    }
    say_less(looping, said);
    return status;
}

static kiln_status run_loop(struct looping *looping, struct kiln__loop_inside *inside)
{
    const struct kiln__replayed *loop = inside->loop;
    const size_t results = loop->n_states + loop->options.output_count;
    struct kiln__binding *room = calloc(2 * results, sizeof *room);
    struct kiln__binding *left[2] = {room, room + results};
    kiln_status status = room ? KILN_OK : no_memory(looping->error);
    size_t runs = 0;
    for (size_t k = 0; k < results && !status; k++) {
        const uint32_t result = loop->results + (uint32_t)k;
        const struct kiln__node *node = looping_node(looping, result);
        if (k >= loop->n_states)
            status = take(looping, node, &looping->values[result]);
        for (int side = 0; k < loop->n_states && side < 2 && !status; side++)
            status = take(looping, node, &left[side][k]);
    }
    if (!status)
        status = take_steps(looping, inside, left, &runs);
    for (size_t k = 0; k < loop->n_states && !status; k++)
        looping->values[loop->results + k] = left[(runs - 1) % 2][k];
    free(room);
    return status;
}

static kiln_status run_scope(struct looping *looping, struct kiln__loop_scope *scope,
                             const struct kiln__binding *wanted)
{
    const size_t kept = looping->taken.count;
    kiln_status status = KILN_OK;
    for (size_t i = 0; i < scope->parts.count && !status; i++) {
        struct kiln__loop_part *part = &scope->parts.items[i];
        if (part->graph.requests.count)
            status = run_part(looping, part, wanted);
        for (size_t l = 0; l < part->loops.count && !status; l++)
            status = run_loop(looping, &part->loops.items[l]);
    }
    give_back(looping, kept);
    return status;
}

kiln_status kiln__loop_runs_run(kiln_batch *batch, struct kiln__loop_runs *runs,
                                struct kiln__stream *stream, const char *call,
                                struct kiln__run **run, struct kiln__error *error)
{
    struct looping looping = {.batch = batch, .stream = stream, .error = error};
    kiln__text_add(&looping.call, "%s", call);
    looping.values = calloc(batch->graph.nodes.count + 1, sizeof *looping.values);
    kiln_status status = looping.values ? kiln__loop_each_part(batch, &runs->scope, 1, plan_part,
                                                               &(struct planning){batch, -1, error})
                                        : no_memory(error);
    if (!status)
        status = run_scope(&looping, &runs->scope, batch->bindings.results.items);
    if (status && looping.run) { /* nothing of it is under way any more */
        kiln__run_await(looping.run, "kiln", NULL);
        kiln__run_release(looping.run);
        looping.run = NULL;
    }
    *run = looping.run;
    kiln__vector_free(&looping.taken);
    kiln__text_free(&looping.call);
    free(looping.values);
    return status;
}
