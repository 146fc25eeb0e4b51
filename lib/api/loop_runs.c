/* SPDX-License-Identifier: Apache-2.0 */
/* Plans and runs of parts, and the memory of values between them. */
#include "api/loop_runs.h"

#include <stdlib.h>

#include "api/loop_scopes.h"
#include "runtime/commands.h"
#include "runtime/memory_pool.h"
#include "session/context.h"

/* After so many runs the queue is waited for: what it holds takes memory of the host. */
#define MOST_QUEUED 512

/* Between looks whether a loop has ended. */
#define LOOK_EVERY 64

struct kiln__loop_runs {
    struct kiln__loop_scope scope;
};

static kiln_status no_memory(struct kiln__error *error)
{
    return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to run the batch");
}

/* ---- each part ---- */

/* Whether the host looks before a step whether the loop has ended, which takes waiting for the
 * device; and how often that is. */
static bool looks_before(size_t step)
{
    return step && ((step & (step - 1)) == 0 || step % LOOK_EVERY == 0);
}

static double looks(const struct kiln__replayed *loop)
{
    const size_t regular = loop->options.steps / LOOK_EVERY;
    double count = (double)regular;
    for (size_t step = 1; step < LOOK_EVERY && step < loop->options.steps; step *= 2)
        count++;
    return count;
}

typedef kiln_status visitor(void *of, struct kiln__loop_part *part, double times);

/* A part before the loops behind it; `times`: how often a run of the batch runs it. */
static kiln_status each_part(struct kiln__loop_scope *scope, double times, visitor *visit, void *of)
{
    kiln_status status = KILN_OK;
    for (size_t i = 0; i < scope->parts.count && !status; i++) {
        struct kiln__loop_part *part = &scope->parts.items[i];
        if (part->graph.requests.count)
            status = visit(of, part, times);
        for (size_t l = 0; l < part->loops.count && !status; l++) {
            struct kiln__loop_inside *inside = &part->loops.items[l];
            const double steps = times * (double)inside->loop->options.steps;
            status = each_part(&inside->step, steps, visit, of);
            if (!status)
                status = each_part(&inside->ended, times * looks(inside->loop), visit, of);
        }
    }
    return status;
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

static kiln_status plan_part(void *of, struct kiln__loop_part *part, double times)
{
    const struct planning *planning = of;
    kiln_batch *batch = planning->batch;
    struct kiln__plan_cache *cache = batch->context->plan_cache;
    (void)times;
    if (!label(batch, part))
        return no_memory(planning->error);
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
    each_part(&runs->scope, 1, return_lease, cache);
    kiln__loop_scope_free(&runs->scope);
    free(runs);
}

kiln_status kiln__loop_runs_make(kiln_batch *batch, int threads, struct kiln__loop_runs **made,
                                 struct kiln__error *error)
{
    struct kiln__loop_runs *runs = calloc(1, sizeof *runs);
    kiln_status status =
        runs && kiln__loop_scope_make(batch, &runs->scope)
            ? each_part(&runs->scope, 1, plan_part, &(struct planning){batch, threads, error})
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

/* Row `number` of `rows`. */
static struct kiln__binding row_of(struct kiln__binding binding, size_t rows, size_t number)
{
    const size_t bytes = binding.bytes / rows;
    if (binding.host)
        binding.host = (char *)binding.host + number * bytes;
    binding.offset += binding.host ? 0 : number * bytes;
    binding.bytes = bytes;
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
static kiln_status follow(struct looping *looping, struct kiln__run *made)
{
    if (looping->run)
        kiln__runs_add(looping->run);
    kiln__run_release(looping->run);
    looping->run = made;
    if (++looping->queued % MOST_QUEUED)
        return KILN_OK;
    return kiln__run_await(made, "kiln", looping->error);
}

static kiln_status run_part(struct looping *looping, struct kiln__loop_part *part,
                            const struct kiln__binding *wanted)
{
    struct kiln__bindings bindings = {.labels = &part->labels};
    struct kiln__run *made = NULL;
    kiln_status status = bind(looping, part, wanted, &bindings);
    if (!status)
        status = kiln__commands_run(part->lease.executable, looping->stream, &bindings, &made,
                                    looping->error);
    kiln__bindings_free(&bindings);
    return status ? status : follow(looping, made);
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

/* What step `number` begins with, of which `states` have been left by the one before it; NULL:
 * there is none. */
static void begin_step(struct looping *looping, const struct kiln__replayed *loop, size_t number,
                       const struct kiln__binding *states)
{
    const kiln_loop_options *options = &loop->options;
    for (size_t k = 0; k < loop->n_states; k++)
        looping->values[loop->states[k]] =
            states ? states[k] : *value_of(looping, loop->initial[k]);
    for (size_t k = 0; k < options->element_count; k++) {
        const uint32_t element = kiln__tensor_index(options->elements[k]);
        looping->values[element] = row_of(
            *value_of(looping, looping_node(looping, element)->input[0]), options->steps, number);
    }
}

static kiln_status look(struct looping *looping, struct kiln__loop_inside *inside, bool *ended)
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

static kiln_status take_steps(struct looping *looping, struct kiln__loop_inside *inside,
                              struct kiln__binding *left[2], size_t *taken)
{
    const struct kiln__replayed *loop = inside->loop;
    const size_t steps = loop->options.steps;
    kiln_status status = KILN_OK;
    for (size_t i = 0; i < steps && !status; i++) {
        const size_t number = loop->options.reverse ? steps - 1 - i : i;
        bool ended = false;
        begin_step(looping, loop, number, i ? left[(i - 1) % 2] : NULL);
        if (loop->ended && looks_before(i))
            status = look(looping, inside, &ended);
        if (status || ended)
            break;
        *taken = i + 1;
        for (size_t k = 0; k < loop->options.output_count; k++)
            left[i % 2][loop->n_states + k] =
                row_of(looping->values[loop->results + loop->n_states + k], steps, number);
        status = run_scope(looping, &inside->step, left[i % 2]);
    }
    return status;
}

static kiln_status run_loop(struct looping *looping, struct kiln__loop_inside *inside)
{
    const struct kiln__replayed *loop = inside->loop;
    const size_t results = loop->n_states + loop->options.output_count;
    struct kiln__binding *room = calloc(2 * results, sizeof *room);
    struct kiln__binding *left[2] = {room, room + results};
    kiln_status status = room ? KILN_OK : no_memory(looping->error);
    size_t taken = 0;
    for (size_t k = 0; k < results && !status; k++) {
        const uint32_t result = loop->results + (uint32_t)k;
        const struct kiln__node *node = looping_node(looping, result);
        if (k >= loop->n_states)
            status = take(looping, node, &looping->values[result]);
        for (int side = 0; k < loop->n_states && side < 2 && !status; side++)
            status = take(looping, node, &left[side][k]);
    }
    if (!status)
        status = take_steps(looping, inside, left, &taken);
    for (size_t k = 0; k < loop->n_states && !status; k++)
        looping->values[loop->results + k] = left[(taken - 1) % 2][k];
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
                                struct kiln__stream *stream, struct kiln__run **run,
                                struct kiln__error *error)
{
    struct looping looping = {.batch = batch, .stream = stream, .error = error};
    looping.values = calloc(batch->graph.nodes.count + 1, sizeof *looping.values);
    kiln_status status =
        looping.values ? each_part(&runs->scope, 1, plan_part, &(struct planning){batch, -1, error})
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
    free(looping.values);
    return status;
}

/* ---- asking ---- */

static kiln_status add_cost(void *of, struct kiln__loop_part *part, double times)
{
    kiln_batch_cost *cost = of;
    const struct kiln__plan *plan = part->lease.plan;
    const double launches = (double)kiln__plan_enqueued(plan) * times;
    if (kiln__plan_peak(plan) > cost->peak_bytes)
        cost->peak_bytes = kiln__plan_peak(plan);
    cost->launches += launches < 0x1p62 ? (size_t)launches : 0;
    cost->unshared_bytes += plan->unshared_bytes + plan->kept_bytes;
    cost->saved_bytes += (uint64_t)((double)plan->fusion.saved_bytes * times);
    for (size_t i = 0; i < plan->steps.count; i++) {
        cost->uploads += plan->steps.items[i].kind == KILN__STEP_UPLOAD;
        cost->downloads += plan->steps.items[i].kind == KILN__STEP_DOWNLOAD;
    }
    return KILN_OK;
}

/* Two pieces of memory for each state. */
static uint64_t between(const kiln_batch *batch, const struct kiln__loop_scope *scope)
{
    const struct kiln__node *nodes = batch->graph.nodes.items;
    uint64_t bytes = 0;
    for (size_t i = 0; i < scope->parts.count; i++) {
        const struct kiln__loop_part *part = &scope->parts.items[i];
        for (size_t k = 0; k < part->values.count; k++)
            bytes += kiln__node_bytes(&nodes[part->values.items[k]]);
        for (size_t l = 0; l < part->loops.count; l++) {
            const struct kiln__replayed *loop = part->loops.items[l].loop;
            for (uint32_t k = loop->results; k < loop->end; k++)
                bytes += kiln__node_bytes(&nodes[k]) * (1 + (k < loop->results + loop->n_states));
            bytes += between(batch, &part->loops.items[l].step);
        }
    }
    return bytes;
}

void kiln__loop_runs_cost(const kiln_batch *batch, const struct kiln__loop_runs *runs,
                          kiln_batch_cost *cost)
{
    struct kiln__loop_runs *own = (struct kiln__loop_runs *)(uintptr_t)runs;
    each_part(&own->scope, 1, add_cost, cost);
    const uint64_t bytes = between(batch, &runs->scope);
    cost->peak_bytes += bytes;
    cost->unshared_bytes += bytes;
}

struct telling {
    kiln_batch *batch;
    bool heads;
    kiln__graph_teller *tell;
    struct kiln__text *text;
    struct kiln__error *error;
};

static kiln_status tell_part(void *of, struct kiln__loop_part *part, double times)
{
    const struct telling *telling = of;
    if (telling->heads)
        kiln__text_add(telling->text, "==== a part that runs %.0f times ====\n", times);
    return telling->tell(telling->batch->context->plan_cache, &part->graph, telling->text,
                         telling->error);
}

kiln_status kiln__loop_runs_tell(kiln_batch *batch, const struct kiln__loop_runs *runs, bool heads,
                                 kiln__graph_teller *tell, struct kiln__text *text,
                                 struct kiln__error *error)
{
    struct kiln__loop_runs *own = (struct kiln__loop_runs *)(uintptr_t)runs;
    return each_part(&own->scope, 1, tell_part, &(struct telling){batch, heads, tell, text, error});
}
