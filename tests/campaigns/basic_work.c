/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of the work that are not training and no executor: batches, buffers, contexts, events,
 * questions. Every result is exact. */
#include "basic_work.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kiln/opencl.h>

#include "session/context.h"

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

void basic_fill(void)
{
    fill(x, M * K, 1);
    fill(other_x, M * K, 2);
    fill(weights, K * N, 3);
    fill(bias, N, 4);
}

kiln_status basic_write_weights(kiln_buffer *buffer)
{
    return kiln_buffer_write(buffer, 0, weights, sizeof weights);
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

void basic_act_mixed(struct trial *trial)
{
    struct mixed mixed;
    kiln_batch *batch = record_mixed(trial, &mixed);
    if (trial_recorded(trial, batch))
        run_mixed(trial, batch, x, y);
    kiln_batch_release(batch);
}

/* By values for its map and its sums. */
void basic_act_tuned(struct trial *trial)
{
    if (trial_good(trial,
                   kiln_context_tune(trial->context, "map 32: vector 4\nreduce 4x4: vector 4\n")))
        basic_act_mixed(trial);
}

/* ---- a batch of one small map ---- */

void basic_act_map(struct trial *trial)
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

void basic_prepare_again(struct trial *trial)
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

void basic_act_again(struct trial *trial)
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

void basic_act_detached(struct trial *trial)
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

void basic_act_empty(struct trial *trial)
{
    kiln_batch *batch = trial_begin(trial, trial->context);
    trial_good(trial, kiln_batch_execute(batch));
    trial_good(trial, kiln_batch_reset(batch));
    kiln_batch_release(batch);
    trial_good(trial, kiln_context_finish(trial->context));
}

/* ---- buffers ---- */

void basic_act_buffers(struct trial *trial)
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

void basic_act_create(struct trial *trial)
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
void basic_act_interop(struct trial *trial)
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
    for (int tries = 0; tries < 60000 && notes == before; tries++)
        usleep(1000);
    trial->failed |= bad_notes > 0;
}

void basic_act_events(struct trial *trial)
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

void basic_act_ask(struct trial *trial)
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

void basic_act_devices(struct trial *trial)
{
    size_t count = 0, index = 0;
    kiln_device_info info;
    trial_good(trial, kiln_device_count(&count));
    if (trial_good(trial, kiln_device_find(NULL, &index)) &&
        trial_good(trial, kiln_device_describe(index, &info)))
        trial_expect(trial, *info.name && info.compute_units && info.memory);
}

/* ---- releases ---- */

void basic_prepare_release(struct trial *trial)
{
    struct mixed mixed;
    void *mapping;
    trial->batch = record_mixed(trial, &mixed);
    trial_made(trial, kiln_batch_submit(trial->batch, &trial->event), &trial->event);
    trial_made(trial, kiln_buffer_map(trial->buffers[0], &mapping), &mapping);
}

void basic_prepare_store(struct trial *trial)
{
    kiln_batch *batch = trial_begin(trial, trial->context);
    kiln_tensor values = kiln_upload(batch, KILN_F32, 1, (size_t[]){M * N}, x);
    kiln_read(batch, kiln_relu(batch, values), y, sizeof y);
    trial_good(trial, kiln_batch_execute(batch));
    kiln_batch_release(batch);
}
