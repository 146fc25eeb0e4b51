/* SPDX-License-Identifier: Apache-2.0 */
/* Trials that train: gradients and optimisers, with a check of the parameters after a failed step.
 * */
#include "training_work.h"

#include <string.h>

#include <kiln/elementwise.h>
#include <kiln/reductions.h>

enum {
    ROWS = 4,
    CLASSES = WORK_BUFFER_COLUMNS,
    FEATURES = WORK_BUFFER_ROWS,
    PARAMETERS = 2,
    COUNT = FEATURES * CLASSES
};

/* They stay where they are, because a run whose end could not be awaited may still use them. */
static float inputs[ROWS * FEATURES], result[ROWS * FEATURES];
static float found[PARAMETERS][COUNT];
static const uint8_t labels[ROWS] = {0, 3, 1, 2};

/* What a part starts from, and what its first run left. */
struct course {
    bool known;
    float start[PARAMETERS][COUNT], end[PARAMETERS][COUNT], result[ROWS * FEATURES];
};
static struct course layer, network, moves;

static void fill(float *values, size_t count, unsigned seed)
{
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        values[i] = (float)((int)(seed >> 24) - 128) / 256;
    }
}

static void read_parameters(struct trial *trial)
{
    for (int i = 0; i < PARAMETERS; i++)
        trial_good(trial, kiln_buffer_read(trial->buffers[i], 0, found[i], sizeof found[i]));
}

/* The parameters as they were before; the first time, learn what the part makes of them. */
static void prepare(struct trial *trial, struct course *course, void (*act)(struct trial *))
{
    fill(inputs, ROWS * FEATURES, 5);
    for (unsigned i = 0; i < PARAMETERS; i++) {
        fill(course->start[i], COUNT, i);
        trial_good(trial, kiln_buffer_write(trial->buffers[i], 0, course->start[i],
                                            sizeof course->start[i]));
    }
    if (course->known)
        return;
    act(trial);
    read_parameters(trial);
    if (trial->failed)
        return;
    memcpy(course->end, found, sizeof found);
    memcpy(course->result, result, sizeof result);
    course->known = true;
    prepare(trial, course, act);
}

static void run(struct trial *trial, kiln_batch *batch, const struct course *course)
{
    memset(result, 0, sizeof result);
    if (!trial_recorded(trial, batch) || !trial_good(trial, kiln_batch_execute(batch)) ||
        !course->known)
        return;
    trial_expect(trial, !memcmp(result, course->result, sizeof result));
    bool readable = !trial->failed;
    read_parameters(trial);
    if (readable && !trial->failed)
        trial_expect(trial, !memcmp(found, course->end, sizeof found));
}

static const struct course *course_of(const struct trial *trial)
{
    void (*act)(struct trial *) = trial->work->act;
    return act == training_act_layer ? &layer : act == training_act_network ? &network : &moves;
}

void training_inspect(struct trial *trial)
{
    const struct course *course = course_of(trial);
    read_parameters(trial);
    for (int i = 0; i < PARAMETERS && !trial->late; i++)
        trial_expect(trial, !memcmp(found[i], course->start[i], sizeof found[i]) ||
                                !memcmp(found[i], course->end[i], sizeof found[i]));
}

/* ---- what the parts share ---- */

struct step {
    kiln_batch *batch;
    kiln_optimizer *optimizer;
    kiln_tensor parameters[PARAMETERS];
};

static bool begin(struct trial *trial, const kiln_optimizer_options *options, struct step *step)
{
    kiln_status status = kiln_optimizer_create(trial->context, options, PARAMETERS, trial->buffers,
                                               &step->optimizer);
    step->batch = NULL;
    if (!trial_made(trial, status, &step->optimizer))
        return false;
    step->batch = trial_begin(trial, trial->context);
    for (int i = 0; step->batch && i < PARAMETERS; i++)
        step->parameters[i] = kiln_import(step->batch, trial->buffers[i]);
    return step->batch;
}

static void descend(const struct step *step, kiln_tensor loss)
{
    kiln_tensor gradients[PARAMETERS];
    kiln_grad(step->batch, loss, step->parameters, PARAMETERS, gradients);
    kiln_clip_by_norm(step->batch, PARAMETERS, gradients, 0.5, gradients);
    kiln_optimizer_step(step->batch, step->optimizer, gradients);
    kiln_read(step->batch, loss, result, sizeof *result);
}

static void end(struct step *step)
{
    kiln_batch_release(step->batch);
    kiln_optimizer_release(step->optimizer);
}

/* ---- a layer ---- */

void training_act_layer(struct trial *trial)
{
    kiln_optimizer_options options = KILN_SGD_INIT;
    struct step step;
    options.momentum = 0.9;
    if (begin(trial, &options, &step)) {
        kiln_batch *b = step.batch;
        kiln_tensor x = kiln_upload(b, KILN_F32, 2, (size_t[]){ROWS, FEATURES}, inputs);
        kiln_tensor y = kiln_upload(b, KILN_U8, 1, (size_t[]){ROWS}, labels);
        kiln_tensor key = kiln_random_split(b, kiln_random_key(b, 7), 1);
        kiln_tensor hidden = kiln_dropout(b, x, 0.25, key);
        kiln_tensor first = kiln_relu(b, kiln_matmul(b, hidden, step.parameters[0]));
        kiln_tensor second = kiln_matmul(b, hidden, step.parameters[1]);
        descend(&step, kiln_cross_entropy(b, kiln_add(b, first, second), y));
        run(trial, b, &layer);
    }
    end(&step);
}

void training_prepare_layer(struct trial *trial)
{
    prepare(trial, &layer, training_act_layer);
}

/* ---- a network ---- */

/* An image of each of two halves of the input: [2,4,4,1] to [2,9,8]. */
static kiln_tensor convolve(kiln_batch *b, kiln_tensor x, kiln_tensor parameter)
{
    kiln_window_options options = KILN_WINDOW_OPTIONS_INIT;
    kiln_window_options pool = KILN_WINDOW_OPTIONS_INIT;
    pool.stride[0] = pool.stride[1] = 1;
    pool.after[0] = pool.after[1] = 1;
    kiln_tensor w = kiln_reshape(b, parameter, 4, (size_t[]){2, 2, 1, FEATURES});
    kiln_tensor y = kiln_conv2d(b, kiln_reshape(b, x, 4, (size_t[]){2, 4, 4, 1}), w, &options);
    y = kiln_max_pool2d(b, kiln_relu(b, y), (size_t[]){2, 2}, &pool);
    return kiln_reshape(b, y, 3, (size_t[]){2, 9, FEATURES});
}

void training_act_network(struct trial *trial)
{
    static const kiln_optimizer_options options = KILN_ADAMW_INIT;
    static const float images[2 * 4 * 4] = {.5F, -1, 2, 0, 1, .25F, -.5F, 1, [20] = 3, [31] = -2};
    const kiln_tensor none = {0};
    const int last = -1;
    struct step step;
    if (begin(trial, &options, &step)) {
        kiln_batch *b = step.batch;
        kiln_tensor x = kiln_upload(b, KILN_F32, 1, (size_t[]){2 * 4 * 4}, images);
        x = convolve(b, x, step.parameters[0]);
        kiln_attention_options causal = KILN_ATTENTION_OPTIONS_INIT;
        causal.causal = 1;
        x = kiln_attention(b, x, x, x, none, &causal);
        x = kiln_layer_norm(b, x, none, none, 1, &last, 1e-5);
        kiln_tensor places = kiln_arange(b, KILN_I32, 0, 9, 1);
        kiln_tensor table = kiln_gather(
            b, kiln_pad(b, step.parameters[1], (size_t[]){1, 0}, (size_t[]){0, 0}, 0.5), places, 0);
        table = kiln_broadcast(b, table, 3, (size_t[]){2, 9, CLASSES});
        x = kiln_concat(b, 2, (kiln_tensor[]){x, table}, -1);
        descend(&step, kiln_mean(b, kiln_square(b, kiln_gelu(b, x)), 0, NULL, 0));
        run(trial, b, &network);
    }
    end(&step);
}

void training_prepare_network(struct trial *trial)
{
    prepare(trial, &network, training_act_network);
}

/* ---- what moves ---- */

void training_act_moves(struct trial *trial)
{
    const int last = -1;
    kiln_batch *b = trial_begin(trial, trial->context);
    if (!b)
        return;
    kiln_tensor p = kiln_import(b, trial->buffers[0]), parts[2], gradient;
    kiln_tensor indices = kiln_upload(b, KILN_U8, 1, (size_t[]){ROWS}, labels);
    kiln_tensor noise = kiln_random_normal(b, 2, (size_t[]){ROWS, CLASSES}, kiln_random_key(b, 3));
    kiln_tensor y = kiln_scatter_add(b, p, indices, noise, 0);
    kiln_split(b, kiln_cumsum(b, y, 0, 1), 0, 2, NULL, parts);
    y = kiln_softmax(b, kiln_concat(b, 2, parts, 1), 1, &last);
    y = kiln_mul(b, y, kiln_one_hot(b, indices, FEATURES, KILN_F32));
    kiln_grad(b, kiln_sum(b, y, 0, NULL, 0), &p, 1, &gradient);
    kiln_export(b, kiln_sub(b, p, gradient), trial->buffers[0]);
    kiln_export(b, kiln_transpose(b, kiln_reshape(b, y, 2, (size_t[]){CLASSES, FEATURES}), NULL),
                trial->buffers[1]);
    kiln_read(b, y, result, sizeof result);
    run(trial, b, &moves);
    kiln_batch_release(b);
}

void training_prepare_moves(struct trial *trial)
{
    prepare(trial, &moves, training_act_moves);
}
