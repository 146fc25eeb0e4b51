/* SPDX-License-Identifier: Apache-2.0 */
/* Short trials of everything that kiln does with a device, for campaigns of failing OpenCL calls:
 * their table, how they begin and end, and what is noted about their calls. */
#include "opencl_work.h"

#include <stdlib.h>
#include <string.h>

#include "basic_work.h"
#include "executor_work.h"
#include "training_work.h"
#include "util/verify.h"

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
    size_t dims[] = {WORK_BUFFER_ROWS, WORK_BUFFER_COLUMNS};
    kiln__verifies = true;
    basic_fill();
    if (trial->work->cold)
        trial_good(trial, kiln_cache_prune(trial->folder, 0, NULL));
    if (trial->work->no_device)
        return;
    if (!trial_good(trial, work_open(trial, &trial->context)))
        return;
    for (int i = 0; i < 2; i++)
        trial_good(trial,
                   kiln_buffer_create(trial->context, KILN_F32, 2, dims, &trial->buffers[i]));
    trial_good(trial, basic_write_weights(trial->buffers[0]));
    if (trial->work->prepare)
        trial->work->prepare(trial);
}

void work_verify(struct trial *trial)
{
    if (trial->work->inspect) {
        trial->work->inspect(trial);
        trial_good(trial, basic_write_weights(trial->buffers[0]));
    }
    if (trial->batch)
        basic_act_again(trial);
    if (trial->context && trial->work->cold)
        basic_act_map(trial);
    else if (trial->context)
        basic_act_mixed(trial);
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
    {.name = "devices", .no_device = true, .act = basic_act_devices},
    {.name = "create", .no_device = true, .act = basic_act_create},
    {.name = "compile", .host_memory = "shared", .cold = true, .act = basic_act_map},
    {.name = "shared", .host_memory = "shared", .act = basic_act_mixed},
    {.name = "mapped", .host_memory = "mapped", .act = basic_act_mixed},
    {.name = "separate", .host_memory = "separate", .act = basic_act_mixed},
    {"again-shared", "shared", .prepare = basic_prepare_again, .act = basic_act_again},
    {"again-mapped", "mapped", .prepare = basic_prepare_again, .act = basic_act_again},
    {"again-separate", "separate", .prepare = basic_prepare_again, .act = basic_act_again},
    {.name = "tuned", .host_memory = "separate", .act = basic_act_tuned},
    {.name = "detached", .host_memory = "shared", .act = basic_act_detached},
    {.name = "empty", .host_memory = "shared", .act = basic_act_empty},
    {.name = "buffers", .host_memory = "shared", .act = basic_act_buffers},
    {.name = "interop", .host_memory = "separate", .act = basic_act_interop},
    {.name = "events", .host_memory = "shared", .act = basic_act_events},
    {.name = "events-separate", .host_memory = "separate", .act = basic_act_events},
    {.name = "profile", .host_memory = "separate", .profile = true, .act = basic_act_mixed},
    {.name = "profile-shared", .host_memory = "shared", .profile = true, .act = basic_act_mixed},
    {.name = "profile-mapped", .host_memory = "mapped", .profile = true, .act = basic_act_mixed},
    {.name = "validate", .host_memory = "separate", .validate = true, .act = basic_act_mixed},
    {.name = "ask", .host_memory = "shared", .act = basic_act_ask},
    {"release", "separate", .profile = true, .silent = true, .prepare = basic_prepare_release,
     .act = work_end},
    {"store", "shared", .cold = true, .silent = true, .prepare = basic_prepare_store,
     .act = work_end},
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
    {.name = "clblast", .host_memory = "separate", .slow = true, .act = basic_act_mixed},
};
const int work_count = sizeof works / sizeof *works;
