/* SPDX-License-Identifier: Apache-2.0 */
#include "executor_work.h"

#include <string.h>

#include <kiln/elementwise.h>
#include <kiln/executor.h>

enum { REQUESTS = 3, WIDTH = 4 };

/* They stay where they are, because a run whose end could not be awaited may still write. */
static float x[REQUESTS][WIDTH], y[REQUESTS][WIDTH];

static kiln_status record(kiln_batch *batch, size_t context, size_t rows, const kiln_tensor *inputs,
                          kiln_tensor *outputs, void *user)
{
    (void)context, (void)rows, (void)user;
    outputs[0] = kiln_relu(batch, inputs[0]);
    return KILN_OK;
}

/* Each either fails with a sentence or has the result. */
static void serve(struct trial *trial, kiln_executor *executor)
{
    kiln_future *futures[REQUESTS];
    for (int i = 0; i < REQUESTS; i++) {
        const kiln_input input = {x[i], sizeof x[i], KILN_F32};
        const kiln_output output = {y[i], sizeof y[i], KILN_F32};
        trial_made(trial, kiln_executor_submit(executor, &input, &output, 1, NULL, &futures[i]),
                   &futures[i]);
    }
    for (int i = 0; i < REQUESTS; i++) {
        if (futures[i] && trial_good(trial, kiln_future_wait(futures[i])))
            for (int k = 0; k < WIDTH; k++)
                trial_expect(trial, y[i][k] == (x[i][k] > 0 ? x[i][k] : 0));
        kiln_future_release(futures[i]);
    }
}

void executor_act(struct trial *trial)
{
    const kiln_row row = {.type = KILN_F32, .rank = 1, .dims = {WIDTH}};
    const kiln_model model = {sizeof model, record, NULL, 1, &row, 1};
    kiln_executor_options options = KILN_EXECUTOR_OPTIONS_INIT;
    kiln_executor *executor;
    char *text;
    for (int i = 0; i < REQUESTS * WIDTH; i++)
        x[i / WIDTH][i % WIDTH] = (float)(i % 7 - 3);
    memset(y, 0, sizeof y);
    options.max_batch = 2;
    if (!trial_made(trial, kiln_executor_create(&trial->context, 1, &model, &options, &executor),
                    &executor))
        return;
    serve(trial, executor);
    if (trial_made(trial, kiln_executor_metrics(executor, KILN_METRICS_JSON, &text), &text))
        kiln_free(text);
    kiln_executor_release(executor);
}
