/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts, buffers, batches and executors that fuzzed calls use, and the check that none is left.
 * */
#include "fuzz/world.h"
#include "session/context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct world world;
unsigned world_builds;

/* Most nodes of a batch before it starts again: gradients of gradients grow fast. */
#define MOST_NODES 600

/* Most nodes of one that runs, and the most work of all of them. */
#define MOST_RUN 64

/* ---- the compiler ---- */

cl_int __real_clBuildProgram(cl_program program, cl_uint count, const cl_device_id *devices,
                             const char *options,
                             void(CL_CALLBACK *notify)(cl_program program, void *user), void *user);
cl_int __wrap_clBuildProgram(cl_program program, cl_uint count, const cl_device_id *devices,
                             const char *options,
                             void(CL_CALLBACK *notify)(cl_program program, void *user), void *user);

/* Compiling takes the time of a thousand calls. */
cl_int __wrap_clBuildProgram(cl_program program, cl_uint count, const cl_device_id *devices,
                             const char *options,
                             void(CL_CALLBACK *notify)(cl_program program, void *user), void *user)
{
    if (!world_builds)
        return CL_BUILD_PROGRAM_FAILURE;
    world_builds--;
    return __real_clBuildProgram(program, count, devices, options, notify, user);
}

/* ---- the canary ---- */

static bool sing(kiln_context *context, float song[3])
{
    static const float x[3][4] = {{1, -2, 3, 4}, {0, 5, -6, 7}, {2, 2, 2, 2}};
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor values = kiln_upload(batch, KILN_F32, 2, (size_t[]){3, 4}, x);
    values = kiln_relu(batch, kiln_add(batch, values, kiln_constant(batch, KILN_F32, 1)));
    kiln_read(batch, kiln_sum(batch, values, 1, (int[]){1}, 0), song, 3 * sizeof *song);
    bool done = !kiln_batch_execute(batch);
    kiln_batch_release(batch);
    return done;
}

bool canary_sings(void)
{
    static const float right[3] = {11, 15, 12};
    unsigned builds = world_builds;
    bool good = true;
    world_builds = 2;
    for (unsigned i = 0; i < LASTING; i++) {
        float song[3] = {0};
        good = good && sing(world.contexts[i], song) && !memcmp(song, right, sizeof right);
    }
    world_builds = builds;
    return good;
}

/* ---- begin ---- */

/* Nothing of the user's is read or written. */
static bool make_folder(void)
{
    const char *parent = getenv("TMPDIR");
    snprintf(world.folder, sizeof world.folder, "%s/kiln-fuzz.XXXXXX", parent ? parent : "/tmp");
    if (!mkdtemp(world.folder))
        return false;
    snprintf(world.cache, sizeof world.cache, "%s/cache", world.folder);
    snprintf(world.bundle, sizeof world.bundle, "%s/bundle", world.folder);
    return !mkdir(world.cache, 0700) && !setenv("KILN_CACHE_DIR", world.cache, 1) &&
           !setenv("HOME", world.folder, 1) && !setenv("XDG_CACHE_HOME", world.folder, 1);
}

bool world_begin(void)
{
    size_t devices;
    if (!make_folder() || kiln_device_count(&devices) || !devices)
        return false;
    for (unsigned i = 0; i < LASTING; i++) {
        if (kiln_context_create(NULL, &world.contexts[i]))
            return false;
        world.context_references[i] = 1;
    }
    const struct kiln__runtime *runtime = &world.contexts[0]->runtime;
    world.out_of_order = clCreateCommandQueue(runtime->context, runtime->device.id,
                                              CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, NULL);
    return canary_sings();
}

/* ---- batches ---- */

struct batch_slot *batch_slot_of(const kiln_batch *batch)
{
    for (unsigned i = 0; batch && i < BATCHES; i++)
        if (world.batches[i].batch == batch)
            return &world.batches[i];
    return NULL;
}

void batch_note(struct batch_slot *slot, kiln_tensor tensor)
{
    slot->recent[slot->recorded++ % RECENT] = tensor;
}

static void forget(struct batch_slot *slot)
{
    for (unsigned i = 0; i < 4; i++)
        world.stale[world.forgotten++ % RECENT] = slot->recent[i];
    memset(slot->recent, 0, sizeof slot->recent);
    slot->recorded = 0;
}

void batch_fill(struct batch_slot *slot)
{
    static const float floats[64];
    static const int32_t whole[4] = {0, 1, 2, 3};
    kiln_batch *batch = slot->batch;
    forget(slot);
    batch_note(slot, kiln_upload(batch, KILN_F32, 2, (size_t[]){4, 4}, floats));
    batch_note(slot, kiln_upload(batch, KILN_F32, 1, (size_t[]){4}, floats));
    batch_note(slot, kiln_upload(batch, KILN_I32, 1, (size_t[]){4}, whole));
    batch_note(slot, kiln_upload(batch, KILN_U8, 2, (size_t[]){4, 4}, floats));
    batch_note(slot, kiln_upload(batch, KILN_F32, 4, (size_t[]){1, 4, 4, 2}, floats));
    batch_note(slot, kiln_constant(batch, KILN_F32, 2));
    batch_note(slot, kiln_random_key(batch, 7));
    for (unsigned i = 0; slot->recorded < RECENT; i++)
        batch_note(slot, slot->recent[i]);
}

void batch_adopt(kiln_batch *batch)
{
    for (unsigned i = 0; batch && i < BATCHES; i++) {
        if (world.batches[i].batch)
            continue;
        world.batches[i].batch = batch;
        batch_fill(&world.batches[i]);
        return;
    }
    kiln_batch_release(batch);
}

bool batch_is_full(const kiln_batch *batch)
{
    return batch->graph.nodes.count > MOST_NODES;
}

bool batch_runs(const kiln_batch *batch)
{
    const struct kiln__graph *graph = &batch->graph;
    if (kiln_batch_status(batch))
        return true;
    if (graph->nodes.count > MOST_RUN)
        return false;
    for (size_t i = 0; i < graph->nodes.count; i++)
        if (kiln__node_bytes(&graph->nodes.items[i]) > ROOM)
            return false;
    for (size_t i = 0; i < batch->buffers.count; i++)
        if (batch->buffers.items[i]->mapped)
            return false;
    return true;
}

/* ---- after a call ---- */

/* The first free place of an array; NULL: none. */
#define PLACE_IN(array, most, found)                                                               \
    for (unsigned place = 0; place < (most) && !(found); place++)                                  \
        if (!(array)[place])                                                                       \
            (found) = &(array)[place];

/* Keep what a call made, or the second of these; forget what it freed. */
static void settle_host(void)
{
    for (unsigned i = 0; i < HOSTS; i++) {
        if (world.host[i].memory &&
            !kiln__pins_hold(&world.host[i].context->runtime.pins, world.host[i].memory, 1))
            world.host[i].memory = NULL;
        for (unsigned c = 0; c < CONTEXTS && world.new_host && !world.host[i].memory; c++) {
            kiln_context *context = world.contexts[c];
            if (!context || !kiln__pins_hold(&context->runtime.pins, world.new_host, 1))
                continue;
            world.host[i].context = context;
            world.host[i].memory = world.new_host;
            world.new_host = NULL;
        }
    }
    for (unsigned c = 0; c < CONTEXTS && world.new_host; c++)
        if (world.contexts[c] &&
            kiln__pins_hold(&world.contexts[c]->runtime.pins, world.new_host, 1)) {
            kiln_host_free(world.contexts[c], world.new_host);
            world.new_host = NULL;
        }
}

void world_settle(void)
{
    kiln_context **context = NULL;
    kiln_buffer **buffer = NULL;
    kiln_event **event = NULL;
    kiln_optimizer **optimizer = NULL;
    kiln_executor **executor = NULL;
    kiln_future **future = NULL;
    kiln_parallel **parallel = NULL;
    PLACE_IN(world.contexts, CONTEXTS, context)
    PLACE_IN(world.buffers, BUFFERS, buffer)
    PLACE_IN(world.events, EVENTS, event)
    PLACE_IN(world.optimizers, OPTIMIZERS, optimizer)
    PLACE_IN(world.executors, EXECUTORS, executor)
    PLACE_IN(world.futures, FUTURES, future)
    PLACE_IN(world.parallels, PARALLELS, parallel)
    if (world.new_context && context) {
        *context = world.new_context;
        world.context_references[context - world.contexts] = 1;
        world.new_context = NULL;
    }
    if (buffer && kiln_buffer_bytes(world.new_buffer) <= ROOM) {
        *buffer = world.new_buffer;
        world.buffer_references[buffer - world.buffers] = 1;
        world.new_buffer = NULL;
    }
    if (event) {
        *event = world.new_event;
        world.new_event = NULL;
    }
    if (optimizer) {
        *optimizer = world.new_optimizer;
        world.new_optimizer = NULL;
    }
    if (world.new_executor && executor) {
        *executor = world.new_executor;
        world.executor_references[executor - world.executors] = 1;
        world.new_executor = NULL;
    }
    if (future) {
        *future = world.new_future;
        world.new_future = NULL;
    }
    if (parallel) {
        *parallel = world.new_parallel;
        world.new_parallel = NULL;
    }
    kiln_context_release(world.new_context);
    kiln_buffer_release(world.new_buffer);
    kiln_event_release(world.new_event);
    kiln_optimizer_release(world.new_optimizer);
    kiln_executor_release(world.new_executor);
    kiln_future_release(world.new_future);
    kiln_parallel_release(world.new_parallel);
    kiln_free(world.new_model);
    kiln_free(world.array.data);
    kiln_free(world.saved);
    kiln_free(world.words);
    for (unsigned i = 0; i < SHORTEST; i++)
        kiln_buffer_release(world.new_buffers[i]);
    kiln_free(world.text);
    settle_host();
}

/* ---- after a sequence ---- */

static void release_all(void)
{
    for (unsigned i = 0; i < HOSTS; i++)
        if (world.host[i].memory)
            kiln_host_free(world.host[i].context, world.host[i].memory);
    memset(world.host, 0, sizeof world.host);
    for (unsigned i = 0; i < FUTURES; i++)
        kiln_future_release(world.futures[i]);
    for (unsigned i = 0; i < PARALLELS; i++)
        kiln_parallel_release(world.parallels[i]);
    for (unsigned i = 0; i < EXECUTORS; i++)
        for (; world.executor_references[i]; world.executor_references[i]--)
            kiln_executor_release(world.executors[i]);
    for (unsigned i = 0; i < BATCHES; i++)
        kiln_batch_release(world.batches[i].batch);
    for (unsigned i = 0; i < EVENTS; i++)
        kiln_event_release(world.events[i]);
    for (unsigned i = 0; i < OPTIMIZERS; i++)
        kiln_optimizer_release(world.optimizers[i]);
    for (unsigned i = 0; i < BUFFERS; i++)
        for (; world.buffer_references[i]; world.buffer_references[i]--)
            kiln_buffer_release(world.buffers[i]);
    for (unsigned i = 0; i < CONTEXTS; i++)
        for (; world.context_references[i] > (i < LASTING); world.context_references[i]--)
            kiln_context_release(world.contexts[i]);
    memset(world.batches, 0, sizeof world.batches);
    memset(world.events, 0, sizeof world.events);
    memset(world.optimizers, 0, sizeof world.optimizers);
    memset(world.executors, 0, sizeof world.executors);
    memset(world.futures, 0, sizeof world.futures);
    memset(world.parallels, 0, sizeof world.parallels);
    memset(world.buffers, 0, sizeof world.buffers);
    memset(world.contexts + LASTING, 0, (CONTEXTS - LASTING) * sizeof *world.contexts);
}

const char *world_clear(void)
{
    release_all();
    for (unsigned i = 0; i < LASTING; i++) {
        kiln_context *context = world.contexts[i];
        if (atomic_load(&context->references) != 1)
            return "something still holds a context";
        if (atomic_load(&context->runtime.counters.buffers_live))
            return "a buffer is left";
    }
    return NULL;
}
