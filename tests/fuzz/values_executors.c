/* SPDX-License-Identifier: Apache-2.0 */
/* Decoder of fuzz bytes into arguments: structures of executors and of what they train. */
#include "fuzz/take.h"

#include <limits.h>
#include <string.h>

kiln_context *const *take_contexts(void)
{
    static kiln_context *contexts[SHORTEST];
    for (unsigned i = 0; i < SHORTEST; i++)
        contexts[i] = i < LASTING ? world.contexts[i] : take_context();
    return one_in(32) ? NULL : contexts;
}

size_t take_context_count(void)
{
    static const size_t odd[] = {0, 3, SHORTEST, 65, SIZE_MAX};
    return one_in(8) ? ONE_OF(odd) : 1u + byte() % LASTING;
}

/* Doubles its first input, adds up the others, and may leave something else altogether. */
static kiln_status record_model(kiln_batch *batch, size_t context, size_t rows,
                                const kiln_tensor *inputs, kiln_tensor *outputs, void *user)
{
    uint8_t way = *(uint8_t *)user;
    outputs[0] = kiln_add(batch, inputs[0], inputs[0]);
    if (way == 1)
        outputs[0] = kiln_reshape(batch, inputs[0], 0, NULL);
    else if (way == 2)
        outputs[0] = (kiln_tensor){rows + context};
    return way == 3 ? KILN_UNSUPPORTED : KILN_OK;
}

const kiln_model *take_model(void)
{
    static kiln_model model;
    static kiln_row rows[KILN_MODEL_MOST];
    static uint8_t way;
    memset(rows, 0, sizeof rows);
    rows[0] = (kiln_row){KILN_F32, 1, {4}, 0, 0};
    if (one_in(4))
        rows[0].type = take_type();
    if (one_in(8))
        rows[0].below = take_word();
    if (one_in(8))
        rows[0].dims[0] = take_size();
    if (one_in(16))
        rows[0].rank = take_size();
    rows[0].sequence = one_in(8);
    way = one_in(8) ? byte() % 4 : 0;
    model = (kiln_model){
        take_struct_size(sizeof model), record_model, &way, 1, rows, 1, sizeof(kiln_row),
        KILN_PRECISION_DEFAULT};
    if (one_in(16))
        model.input_count = take_size();
    if (one_in(4))
        model.precision = take_precision();
    if (one_in(16))
        model.output_count = take_size();
    if (one_in(16))
        model.record = NULL;
    return one_in(16) ? NULL : &model;
}

/* The derivative of a sum of squares, or something else altogether. */
static kiln_status record_training(kiln_batch *batch, size_t context, kiln_tensor *gradients,
                                   void *user)
{
    static const float numbers[4] = {1, 2, 3, 4};
    uint8_t way = *(uint8_t *)user;
    kiln_tensor x = kiln_upload(batch, KILN_F32, 1, (size_t[]){4}, numbers);
    gradients[0] = way == 1 ? (kiln_tensor){context + 7} : kiln_add(batch, x, x);
    if (way == 2)
        gradients[0] = kiln_cast(batch, x, KILN_I32);
    return way == 3 ? KILN_UNSUPPORTED : KILN_OK;
}

static kiln_status record_update(kiln_batch *batch, size_t context, const kiln_tensor *gradients,
                                 void *user)
{
    static float sums[LASTING];
    (void)user;
    kiln_tensor sum = kiln_sum(batch, gradients[0], 1, (const int[]){0}, 0);
    return kiln_read(batch, sum, &sums[context % LASTING], sizeof(float));
}

const kiln_training *take_training(void)
{
    static kiln_training training;
    static double shares[SHORTEST];
    static uint8_t way;
    way = one_in(8) ? byte() % 4 : 0;
    for (unsigned i = 0; i < SHORTEST; i++)
        shares[i] = take_number();
    training = (kiln_training){take_struct_size(sizeof training),
                               record_training,
                               record_update,
                               &way,
                               1,
                               NULL,
                               NULL,
                               NULL,
                               NULL};
    if (one_in(8))
        training.shares = shares;
    if (one_in(16))
        training.gradient_count = 0;
    if (one_in(16))
        training.record = NULL;
    if (one_in(16))
        training.update = NULL;
    return one_in(16) ? NULL : &training;
}

/* One that nobody adds up with: shards alone are made with it. */
static kiln_status join_none(void *user, kiln_status own, size_t numbers, uint32_t layout,
                             double *shares)
{
    (void)user, (void)numbers, (void)layout, (void)shares;
    return own;
}

static kiln_status begin_none(void *user, float *values, size_t count)
{
    (void)user, (void)values, (void)count;
    return KILN_UNSUPPORTED;
}

static kiln_status gather_none(void *user, void *values, size_t elements, size_t bytes)
{
    (void)user, (void)values, (void)elements, (void)bytes;
    return KILN_UNSUPPORTED;
}

static kiln_status wait_none(void *user)
{
    (void)user;
    return KILN_UNSUPPORTED;
}

static kiln_status agree_none(void *user, kiln_status own)
{
    (void)user;
    return own;
}

const kiln_reducer *take_reducer(void)
{
    static kiln_reducer reducer;
    reducer = (kiln_reducer){take_struct_size(sizeof reducer),
                             NULL,
                             0,
                             join_none,
                             begin_none,
                             wait_none,
                             agree_none,
                             byte() % 4,
                             byte() % 4,
                             begin_none,
                             gather_none};
    if (one_in(8))
        reducer.begin_shard = NULL;
    return one_in(8) ? NULL : &reducer;
}

/* Requests end soon: nobody comes to fill a batch. */
const kiln_executor_options *take_executor_options(void)
{
    static kiln_executor_options options;
    static const uint64_t waits[] = {0, 1, 100, 1000, UINT64_MAX};
    options = (kiln_executor_options){take_struct_size(sizeof options),
                                      1 + byte() % 8,
                                      0,
                                      100,
                                      4,
                                      0,
                                      one_in(16),
                                      one_in(2),
                                      byte()};
    options.min_batch = one_in(8) ? take_size() : byte() % 3;
    options.max_wait_us = ONE_OF(waits);
    options.max_queue = byte() % 4;
    options.retry_us = ONE_OF(waits);
    if (one_in(16))
        options.max_batch = take_size();
    return one_in(16) ? NULL : &options;
}

size_t take_rows(void)
{
    static const size_t odd[] = {0, 9, 1025, SIZE_MAX, SIZE_MAX / 16 + 1};
    return one_in(8) ? ONE_OF(odd) : now.n;
}

/* Of rows of four. */
static size_t take_row_bytes(void)
{
    return one_in(8) ? take_size() : now.n * 16;
}

/* What has more than the memory here is not there. */
const kiln_input *take_inputs(void)
{
    static kiln_input inputs[KILN_MODEL_MOST];
    now.n = 1 + byte() % 4;
    for (unsigned i = 0; i < COUNT(inputs); i++) {
        size_t bytes = take_row_bytes();
        inputs[i] = (kiln_input){bytes <= ROOM ? take_data() : NULL, bytes, take_type()};
    }
    return one_in(32) ? NULL : inputs;
}

const kiln_output *take_outputs(void)
{
    static kiln_output outputs[KILN_MODEL_MOST];
    for (unsigned i = 0; i < COUNT(outputs); i++) {
        size_t bytes = take_row_bytes();
        outputs[i] = (kiln_output){bytes <= ROOM ? take_room() : NULL, bytes, take_type()};
    }
    return one_in(32) ? NULL : outputs;
}

const kiln_request_options *take_request_options(void)
{
    static kiln_request_options options;
    static const uint64_t waits[] = {0, 0, 0, 1, 1000, UINT64_MAX};
    if (one_in(2))
        return NULL;
    options = (kiln_request_options){take_struct_size(sizeof options),
                                     (kiln_priority)(one_in(16) ? take_flag() : byte() % 3),
                                     ONE_OF(waits),
                                     (kiln_when_full)(one_in(16) ? take_flag() : byte() % 2),
                                     ONE_OF(waits),
                                     0};
    if (one_in(8))
        options.length = take_size();
    return &options;
}

kiln_shutdown take_shutdown(void)
{
    static const int numbers[] = {0, 1, 2, 3, -1, INT_MAX};
    return (kiln_shutdown)ONE_OF(numbers);
}

kiln_metrics_format take_metrics_format(void)
{
    static const int numbers[] = {1, 2, 1, 2, 0, 3, -1, INT_MAX};
    return (kiln_metrics_format)ONE_OF(numbers);
}
