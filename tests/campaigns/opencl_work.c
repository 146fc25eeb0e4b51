/* SPDX-License-Identifier: Apache-2.0 */
/* Short trials of everything that kiln does with a device, for campaigns of failing OpenCL calls.
 * */
#include "opencl_work.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kiln/opencl.h>

#include "executor_work.h"
#include "session/context.h"
#include "training_work.h"
#include "util/verify.h"

enum { M = 4, K = WORK_BUFFER_ROWS, N = WORK_BUFFER_COLUMNS };

/* Small whole numbers: every result is exact. They stay where they are, because a run whose end
 * could not be awaited may still write. */
static float x[M * K], weights[K * N], bias[N], y[M * N], sums[M], doubled[K * N], place[M * K];
static float other_x[M * K], other_y[M * N];
static char crooked[sizeof y + 1];

static void fill(float *values, size_t count, unsigned seed)
{
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        values[i] = (float)((int)(seed >> 24) % 9 - 4);
    }
}

/* ---- judging ---- */

bool trial_good(struct trial *trial, kiln_status status)
{
    if (!status)
        return true;
    trial->status = trial->failed ? trial->status : status;
    trial->failed = true;
    trial->speechless |= status > 0 || !*kiln_last_error();
    return false;
}

bool trial_made(struct trial *trial, kiln_status status, const void *object)
{
    void *handed;
    bool is_good = trial_good(trial, status);
    memcpy(&handed, object, sizeof handed);
    trial->speechless |= is_good != (handed != NULL);
    return is_good && handed;
}

kiln_batch *trial_begin(struct trial *trial, kiln_context *context)
{
    kiln_batch *batch = kiln_batch_create(context);
    if (!batch)
        trial_good(trial, KILN_OUT_OF_HOST_MEMORY);
    return batch;
}

bool trial_recorded(struct trial *trial, const kiln_batch *batch)
{
    return batch && trial_good(trial, kiln_batch_status(batch));
}

void trial_expect(struct trial *trial, bool right)
{
    trial->wrong |= !right;
}

static bool matches(const float *values, const float *expected, size_t count)
{
    return !memcmp(values, expected, count * sizeof *values);
}

static float relu(float value)
{
    return value > 0 ? value : 0;
}

/* ---- a batch of a map, a reduction and a matrix product ---- */

struct mixed {
    kiln_tensor x, y;
};

static kiln_batch *record_mixed(struct trial *trial, struct mixed *mixed)
{
    static const int axis = 1;
    kiln_batch *batch = trial_begin(trial, trial->context);
    if (!batch)
        return NULL;
    mixed->x = kiln_upload(batch, KILN_F32, 2, (size_t[]){M, K}, x);
    kiln_tensor w = kiln_import(batch, trial->buffers[0]);
    kiln_tensor b = kiln_upload(batch, KILN_F32, 1, (size_t[]){N}, bias);
    mixed->y = kiln_relu(batch, kiln_add(batch, kiln_matmul(batch, mixed->x, w), b));
    kiln_read(batch, mixed->y, y, sizeof y);
    kiln_read(batch, kiln_sum(batch, mixed->y, 1, &axis, 0), sums, sizeof sums);
    kiln_export(batch, kiln_scale(batch, w, 2), trial->buffers[1]);
    return batch;
}

static void clear_results(void)
{
    memset(y, 0x55, sizeof y);
    memset(other_y, 0x55, sizeof other_y);
    memset(sums, 0x55, sizeof sums);
    memset(doubled, 0x55, sizeof doubled);
}

static bool mixed_fits(const float *from, const float *to)
{
    float expected[M * N], rows[M] = {0};
    for (int i = 0; i < M * N; i++) {
        expected[i] = bias[i % N];
        for (int k = 0; k < K; k++)
            expected[i] += from[i / N * K + k] * weights[k * N + i % N];
        expected[i] = relu(expected[i]);
        rows[i / N] += expected[i];
    }
    return matches(to, expected, M * N) && matches(sums, rows, M);
}

static bool export_fits(void)
{
    bool fits = true;
    for (int i = 0; i < K * N; i++)
        fits &= doubled[i] == 2 * weights[i];
    return fits;
}

static void run_mixed(struct trial *trial, kiln_batch *batch, const float *from, const float *to)
{
    clear_results();
    if (!trial_good(trial, kiln_batch_execute(batch)))
        return;
    trial_expect(trial, mixed_fits(from, to));
    if (trial_good(trial, kiln_buffer_read(trial->buffers[1], 0, doubled, sizeof doubled)))
        trial_expect(trial, export_fits());
}

static void act_mixed(struct trial *trial)
{
    struct mixed mixed;
    kiln_batch *batch = record_mixed(trial, &mixed);
    if (trial_recorded(trial, batch))
        run_mixed(trial, batch, x, y);
    kiln_batch_release(batch);
}

/* ---- a batch of one small map ---- */

static void act_map(struct trial *trial)
{
    kiln_batch *batch = trial_begin(trial, trial->context);
    kiln_tensor values = kiln_upload(batch, KILN_F32, 1, (size_t[]){M * N}, x);
    kiln_read(batch, kiln_relu(batch, values), y, sizeof y);
    clear_results();
    if (trial_recorded(trial, batch) && trial_good(trial, kiln_batch_execute(batch)))
        for (int i = 0; i < M * N; i++)
            trial_expect(trial, y[i] == relu(x[i]));
    kiln_batch_release(batch);
    trial_good(trial, kiln_context_sync_cache(trial->context));
}

/* ---- the same batch again, and with other memory ---- */

static struct mixed kept;

static void prepare_again(struct trial *trial)
{
    trial->batch = record_mixed(trial, &kept);
    run_mixed(trial, trial->batch, x, y);
}

/* Runs whose intermediates lie elsewhere each time, as happens where threads share the pool. */
static void run_elsewhere(struct trial *trial)
{
    struct kiln__pool *pool = trial->context->runtime.compute->pool;
    kiln_batch_cost cost = {0};
    cl_mem taken = NULL;
    if (!trial_good(trial, kiln_batch_get_cost(trial->batch, &cost)) || !cost.peak_bytes)
        return;
    for (int i = 0; i < 3; i++) {
        trial_good(trial, kiln__pool_take(pool, cost.peak_bytes, &taken, NULL));
        run_mixed(trial, trial->batch, x, y);
        kiln__pool_give(pool, taken);
    }
}

static void act_again(struct trial *trial)
{
    kiln_batch *batch = trial->batch;
    run_elsewhere(trial);
    run_mixed(trial, batch, x, y);
    trial_good(trial, kiln_rebind_upload(batch, kept.x, other_x));
    trial_good(trial, kiln_rebind_read(batch, 0, other_y, sizeof other_y));
    run_mixed(trial, batch, other_x, other_y);
    trial_good(trial, kiln_rebind_upload(batch, kept.x, x));
    trial_good(trial, kiln_rebind_read(batch, 0, y, sizeof y));
    run_mixed(trial, batch, x, y);
}

/* ---- host memory that kernels must not touch ---- */

static void act_detached(struct trial *trial)
{
    kiln_batch *batch = trial_begin(trial, trial->context);
    kiln_tensor values = kiln_upload(batch, KILN_F32, 1, (size_t[]){M * K}, place);
    kiln_tensor few = kiln_slice(batch, values, (int64_t[]){0}, (int64_t[]){M * N}, NULL);
    kiln_read(batch, kiln_neg(batch, values), place, sizeof place); /* over its own operand */
    kiln_read(batch, kiln_relu(batch, few), crooked + 1, sizeof y);
    memcpy(place, x, sizeof place);
    if (trial_recorded(trial, batch) && trial_good(trial, kiln_batch_execute(batch))) {
        memcpy(y, crooked + 1, sizeof y);
        for (int i = 0; i < M * K; i++)
            trial_expect(trial, place[i] == -x[i]);
        for (int i = 0; i < M * N; i++)
            trial_expect(trial, y[i] == relu(x[i]));
    }
    kiln_batch_release(batch);
}

/* ---- a batch without anything to compute ---- */

static void act_empty(struct trial *trial)
{
    kiln_batch *batch = trial_begin(trial, trial->context);
    trial_good(trial, kiln_batch_execute(batch));
    trial_good(trial, kiln_batch_reset(batch));
    kiln_batch_release(batch);
    trial_good(trial, kiln_context_finish(trial->context));
}

/* ---- buffers ---- */

static void act_buffers(struct trial *trial)
{
    kiln_buffer *buffer = NULL;
    void *mapping = NULL;
    size_t dims[] = {M * N};
    if (!trial_made(trial, kiln_buffer_create(trial->context, KILN_F32, 1, dims, &buffer), &buffer))
        return;
    bool holds = trial_good(trial, kiln_buffer_write(buffer, 0, x, sizeof y));
    clear_results();
    if (trial_good(trial, kiln_buffer_read(buffer, 0, y, sizeof y)) && holds)
        trial_expect(trial, matches(y, x, M * N));
    if (trial_made(trial, kiln_buffer_map(buffer, &mapping), &mapping)) {
        trial_expect(trial, !holds || matches(mapping, x, M * N));
        memcpy(mapping, other_x, sizeof y);
        if (trial_good(trial, kiln_buffer_unmap(buffer)) &&
            trial_good(trial, kiln_buffer_read(buffer, 0, y, sizeof y)))
            trial_expect(trial, matches(y, other_x, M * N));
    }
    kiln_buffer_release(buffer); /* perhaps while mapped */
}

/* ---- contexts ---- */

static void act_create(struct trial *trial)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    kiln_context *context;
    options.cache = KILN_CACHE_OFF;
    if (trial_made(trial, kiln_context_create(&options, &context), &context))
        trial_good(trial, kiln_context_finish(context));
    kiln_context_release(context);
}

static void use_foreign(struct trial *trial, kiln_context *context, kiln_buffer *buffer)
{
    kiln_batch *batch = trial_begin(trial, context);
    kiln_read(batch, kiln_import(batch, buffer), doubled, sizeof doubled);
    clear_results();
    if (trial_recorded(trial, batch) && trial_good(trial, kiln_batch_execute(batch)))
        trial_expect(trial, matches(doubled, weights, K * N));
    kiln_batch_release(batch);
}

/* A second context over the OpenCL objects of the first, a second buffer over its memory. */
static void act_interop(struct trial *trial)
{
    cl_context cl;
    cl_device_id device;
    cl_command_queue queue;
    kiln_context *context;
    kiln_buffer *buffer = NULL;
    size_t dims[] = {K, N};
    trial_good(trial, kiln_context_cl(trial->context, &cl, &device, &queue));
    if (!trial_made(trial, kiln_context_create_cl(cl, device, queue, NULL, &context), &context))
        return;
    if (trial_made(trial,
                   kiln_buffer_create_cl(context, kiln_buffer_cl(trial->buffers[0]), KILN_F32, 2,
                                         dims, &buffer),
                   &buffer))
        use_foreign(trial, context, buffer);
    kiln_buffer_release(buffer);
    kiln_context_release(context);
}

/* ---- events ---- */

static atomic_int notes, bad_notes;

static void noted(kiln_status status, void *user)
{
    (void)user;
    bad_notes += status != KILN_OK;
    notes++;
}

/* A callback that is still to come may hold what is looked for afterwards. */
static void await_note(struct trial *trial, int before)
{
    for (int tries = 0; tries < 2000 && notes == before; tries++)
        usleep(1000);
    trial->failed |= bad_notes > 0;
}

static void act_events(struct trial *trial)
{
    struct mixed mixed;
    kiln_event *event = NULL;
    kiln_batch *batch = record_mixed(trial, &mixed);
    clear_results();
    if (trial_recorded(trial, batch) &&
        trial_made(trial, kiln_batch_submit(batch, &event), &event)) {
        kiln_status state = kiln_event_poll(event);
        if (state != KILN_NOT_READY)
            trial_good(trial, state);
        int before = notes;
        bad_notes = 0;
        /* Nobody can take back a callback that was registered. */
        bool registered =
            !trial->returns && trial_good(trial, kiln_event_notify(event, noted, NULL));
        if (trial_good(trial, kiln_event_wait(event)))
            trial_expect(trial, mixed_fits(x, y));
        if (registered)
            await_note(trial, before);
        kiln_event_release(event);
    }
    trial_good(trial, kiln_batch_reset(batch));
    kiln_batch_release(batch);
}

/* ---- questions ---- */

static void act_ask(struct trial *trial)
{
    struct mixed mixed;
    kiln_batch_cost cost;
    char *text = NULL;
    kiln_batch *batch = record_mixed(trial, &mixed);
    if (trial_good(trial, kiln_batch_get_cost(batch, &cost)))
        trial_expect(trial, cost.launches > 0);
    if (trial_made(trial, kiln_batch_explain(batch, &text), &text))
        trial_expect(trial, strlen(text) > 100);
    kiln_free(text);
    kiln_batch_release(batch);
}

static void act_devices(struct trial *trial)
{
    size_t count = 0, index = 0;
    kiln_device_info info;
    trial_good(trial, kiln_device_count(&count));
    if (trial_good(trial, kiln_device_find(NULL, &index)) &&
        trial_good(trial, kiln_device_describe(index, &info)))
        trial_expect(trial, *info.name && info.compute_units && info.memory);
}

/* ---- releases ---- */

static void prepare_release(struct trial *trial)
{
    struct mixed mixed;
    void *mapping;
    trial->batch = record_mixed(trial, &mixed);
    trial_made(trial, kiln_batch_submit(trial->batch, &trial->event), &trial->event);
    trial_made(trial, kiln_buffer_map(trial->buffers[0], &mapping), &mapping);
}

static void prepare_store(struct trial *trial)
{
    kiln_batch *batch = trial_begin(trial, trial->context);
    kiln_tensor values = kiln_upload(batch, KILN_F32, 1, (size_t[]){M * N}, x);
    kiln_read(batch, kiln_relu(batch, values), y, sizeof y);
    trial_good(trial, kiln_batch_execute(batch));
    kiln_batch_release(batch);
}

/* ---- beginning and end ---- */

kiln_status work_open(const struct trial *trial, kiln_context **context)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    options.cache_dir = trial->folder;
    options.profile = trial->work->profile;
    options.validate = trial->work->validate;
    options.matmul = trial->work->slow ? "clblast" : NULL;
    setenv("KILN_HOST_MEMORY", trial->work->host_memory, 1);
    return kiln_context_create(&options, context);
}

void work_begin(struct trial *trial)
{
    size_t dims[] = {K, N};
    kiln__verifies = true;
    fill(x, M * K, 1);
    fill(other_x, M * K, 2);
    fill(weights, K * N, 3);
    fill(bias, N, 4);
    if (trial->work->cold)
        trial_good(trial, kiln_cache_prune(trial->folder, 0, NULL));
    if (trial->work->no_device)
        return;
    if (!trial_good(trial, work_open(trial, &trial->context)))
        return;
    for (int i = 0; i < 2; i++)
        trial_good(trial,
                   kiln_buffer_create(trial->context, KILN_F32, 2, dims, &trial->buffers[i]));
    trial_good(trial, kiln_buffer_write(trial->buffers[0], 0, weights, sizeof weights));
    if (trial->work->prepare)
        trial->work->prepare(trial);
}

void work_verify(struct trial *trial)
{
    if (trial->work->inspect) {
        trial->work->inspect(trial);
        trial_good(trial, kiln_buffer_write(trial->buffers[0], 0, weights, sizeof weights));
    }
    if (trial->batch)
        act_again(trial);
    if (trial->context && trial->work->cold)
        act_map(trial);
    else if (trial->context)
        act_mixed(trial);
}

void work_end(struct trial *trial)
{
    kiln_batch_release(trial->batch);
    kiln_event_release(trial->event);
    kiln_buffer_release(trial->buffers[0]);
    kiln_buffer_release(trial->buffers[1]);
    kiln_context_release(trial->context);
    trial->batch = NULL;
    trial->event = NULL;
    trial->buffers[0] = trial->buffers[1] = NULL;
    trial->context = NULL;
}

const struct work works[] = {
    {.name = "devices", .no_device = true, .act = act_devices},
    {.name = "create", .no_device = true, .act = act_create},
    {.name = "compile", .host_memory = "shared", .cold = true, .act = act_map},
    {.name = "shared", .host_memory = "shared", .act = act_mixed},
    {.name = "mapped", .host_memory = "mapped", .act = act_mixed},
    {.name = "separate", .host_memory = "separate", .act = act_mixed},
    {"again-shared", "shared", .prepare = prepare_again, .act = act_again},
    {"again-mapped", "mapped", .prepare = prepare_again, .act = act_again},
    {"again-separate", "separate", .prepare = prepare_again, .act = act_again},
    {.name = "detached", .host_memory = "shared", .act = act_detached},
    {.name = "empty", .host_memory = "shared", .act = act_empty},
    {.name = "buffers", .host_memory = "shared", .act = act_buffers},
    {.name = "interop", .host_memory = "separate", .act = act_interop},
    {.name = "events", .host_memory = "shared", .act = act_events},
    {.name = "events-separate", .host_memory = "separate", .act = act_events},
    {.name = "profile", .host_memory = "separate", .profile = true, .act = act_mixed},
    {.name = "profile-shared", .host_memory = "shared", .profile = true, .act = act_mixed},
    {.name = "profile-mapped", .host_memory = "mapped", .profile = true, .act = act_mixed},
    {.name = "validate", .host_memory = "separate", .validate = true, .act = act_mixed},
    {.name = "ask", .host_memory = "shared", .act = act_ask},
    {"release", "separate", .profile = true, .silent = true, .prepare = prepare_release,
     .act = work_end},
    {"store", "shared", .cold = true, .silent = true, .prepare = prepare_store, .act = work_end},
    {"layer", "shared", .prepare = training_prepare_layer, .act = training_act_layer,
     .inspect = training_inspect},
    {"layer-validate", "separate", .validate = true, .prepare = training_prepare_layer,
     .act = training_act_layer, .inspect = training_inspect},
    {"network", "shared", .prepare = training_prepare_network, .act = training_act_network,
     .inspect = training_inspect},
    {"moves", "shared", .prepare = training_prepare_moves, .act = training_act_moves,
     .inspect = training_inspect},
    {"moves-validate", "shared", .validate = true, .prepare = training_prepare_moves,
     .act = training_act_moves, .inspect = training_inspect},
    {.name = "executor", .host_memory = "shared", .act = executor_act},
    {.name = "executor-separate", .host_memory = "separate", .act = executor_act},
    {"serve", "shared", .prepare = executor_prepare_serve, .act = executor_act_serve,
     .inspect = executor_inspect},
    {"serve-separate", "separate", .prepare = executor_prepare_serve, .act = executor_act_serve,
     .inspect = executor_inspect},
    {"serve-two", "separate", .reruns = true, .prepare = executor_prepare_two,
     .act = executor_act_serve, .inspect = executor_inspect},
    {.name = "clblast", .host_memory = "separate", .slow = true, .act = act_mixed},
};
const int work_count = sizeof works / sizeof *works;
