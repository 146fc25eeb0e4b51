/* SPDX-License-Identifier: Apache-2.0 */
/* Decoder of fuzz bytes into arguments: structures of options, and of executors. */
#include "fuzz/take.h"

#include <limits.h>
#include <string.h>

/* ---- options ---- */

static size_t take_struct_size(size_t right)
{
    const size_t wrong[] = {0, 1, 4, 8, right - 1, right + 1, right / 2, 4097, SIZE_MAX};
    return one_in(16) ? ONE_OF(wrong) : right;
}

const kiln_attention_options *take_attention_options(void)
{
    static const int64_t diagonals[] = {0, 1, -1, 100, INT64_MIN, INT64_MAX};
    static kiln_attention_options options;
    if (one_in(3))
        return NULL;
    options.size = take_struct_size(sizeof options);
    options.scale = take_number();
    options.causal = take_flag();
    options.diagonal = ONE_OF(diagonals);
    return &options;
}

const kiln_cross_entropy_options *take_cross_entropy_options(void)
{
    static kiln_cross_entropy_options options;
    if (one_in(3))
        return NULL;
    options.size = take_struct_size(sizeof options);
    options.reduction = (kiln_loss_reduction)(byte() % 4);
    options.class_weights = take_tensor();
    options.label_smoothing = one_in(2) ? take_number() : 0;
    options.ignores = take_flag();
    options.ignored_label = take_axis();
    options.log_probabilities = take_flag();
    return &options;
}

const char *take_equation(void)
{
    static const char *const texts[] = {"ij,jk->ik", "...i,...i", "ii->i", "i,j->ji",
                                        "->",        ",",         "a b",   "ij,ij->",
                                        "i1",        "abcdefghi", "i..j",  NULL};
    return ONE_OF(texts);
}

const kiln_window_options *take_window_options(void)
{
    static kiln_window_options options;
    size_t *const pairs[] = {options.stride, options.dilation, options.before, options.after};
    if (one_in(3))
        return NULL;
    options.size = take_struct_size(sizeof options);
    for (unsigned i = 0; i < COUNT(pairs); i++)
        for (unsigned k = 0; k < 2; k++)
            pairs[i][k] = one_in(4) ? take_size() : byte() % 2;
    options.groups = take_index();
    return &options;
}

kiln_layout take_layout(void)
{
    return (kiln_layout)(one_in(8) ? 2 : byte() % 2);
}

static void take_triples(unsigned count, size_t *const *triples)
{
    for (unsigned i = 0; i < count; i++)
        for (unsigned k = 0; k < 3; k++)
            triples[i][k] = one_in(4) ? take_size() : byte() % 2;
}

const kiln_conv_options *take_conv_options(void)
{
    static kiln_conv_options options;
    size_t *const triples[] = {options.stride, options.dilation, options.before, options.after,
                               options.output_padding};
    if (one_in(3))
        return NULL;
    options.size = take_struct_size(sizeof options);
    options.layout = take_layout();
    options.groups = take_index();
    take_triples(COUNT(triples), triples);
    return &options;
}

const kiln_pool_options *take_pool_options(void)
{
    static kiln_pool_options options;
    size_t *const triples[] = {options.stride, options.dilation, options.before, options.after};
    if (one_in(3))
        return NULL;
    options.size = take_struct_size(sizeof options);
    options.layout = take_layout();
    options.ceil = take_flag();
    options.count_padding = take_flag();
    take_triples(COUNT(triples), triples);
    return &options;
}

kiln_dft_kind take_dft_kind(void)
{
    return (kiln_dft_kind)(byte() % 5);
}

kiln_taper take_taper(void)
{
    return (kiln_taper)(byte() % 4);
}

kiln_block_order take_block_order(void)
{
    return (kiln_block_order)(one_in(8) ? 2 : byte() % 2);
}

const kiln_resize_options *take_resize_options(void)
{
    static kiln_resize_options options;
    static double numbers[3][KILN_MAX_RANK];
    if (one_in(3))
        return NULL;
    options.size = take_struct_size(sizeof options);
    options.method = (kiln_resize_method)(one_in(16) ? 3 : byte() % 3);
    options.coordinates = (kiln_coordinates)(byte() % 8);
    options.nearest = (kiln_nearest)(one_in(16) ? 4 : byte() % 4);
    options.cubic = one_in(4) ? take_number() : -0.75;
    options.exclude_outside = take_flag();
    options.antialias = take_flag();
    for (unsigned i = 0; i < 3; i++)
        for (unsigned d = 0; d < KILN_MAX_RANK; d++)
            numbers[i][d] = one_in(4) ? take_number() : 1;
    options.scales = one_in(2) ? NULL : numbers[0];
    options.start = one_in(4) ? NULL : numbers[1];
    options.end = one_in(4) ? NULL : numbers[2];
    options.extrapolation = take_number();
    return &options;
}

const kiln_recurrent *take_recurrent(void)
{
    static kiln_recurrent layer;
    kiln_tensor *const operands[] = {&layer.x, &layer.w, &layer.r,        &layer.bias,
                                     &layer.h, &layer.c, &layer.peephole, &layer.lengths};
    if (one_in(8))
        return NULL;
    layer.size = take_struct_size(sizeof layer);
    for (unsigned i = 0; i < COUNT(operands); i++)
        *operands[i] = i > 2 && one_in(2) ? (kiln_tensor){0} : take_tensor();
    layer.direction = (kiln_direction)(byte() % 4);
    layer.gates = (kiln_gates)(one_in(8) ? 2 : byte() % 2);
    layer.clip = one_in(4) ? take_number() : 0;
    layer.linear_before_reset = take_flag();
    layer.input_forget = take_flag();
    layer.activation[byte() % 2][byte() % 3] = one_in(2) ? kiln_relu : NULL;
    return &layer;
}

const kiln_optimizer_options *take_optimizer_options(void)
{
    static kiln_optimizer_options options;
    static const int methods[] = {0, 4, -1, INT_MAX};
    const kiln_optimizer_options usual[] = {KILN_SGD_INIT, KILN_ADAM_INIT, KILN_ADAMW_INIT};
    if (one_in(32))
        return NULL;
    options = ONE_OF(usual);
    double *const numbers[] = {&options.learning_rate, &options.weight_decay, &options.momentum,
                               &options.beta1,         &options.beta2,        &options.epsilon};
    options.size = take_struct_size(sizeof options);
    if (one_in(2))
        *ONE_OF(numbers) = take_number();
    if (one_in(16))
        options.method = (kiln_optimizer_method)ONE_OF(methods);
    options.nesterov = one_in(4) ? take_flag() : 0;
    return &options;
}

const kiln_context_options *take_context_options(void)
{
    static kiln_context_options options;
    static const int modes[] = {0, 0, 0, 1, 2, 3, 4, -1, INT_MAX};
    const char *matmul[] = {NULL, NULL, "", "no such kernel", "cpu_packed", long_text()};
    if (one_in(4))
        return NULL;
    options = (kiln_context_options)KILN_CONTEXT_OPTIONS_INIT;
    options.size = take_struct_size(sizeof options);
    options.device = one_in(2) ? take_device_name() : NULL;
    options.cache_dir = one_in(2) ? take_folder() : NULL;
    options.cache_limit = take_wide();
    options.cache = (kiln_cache_mode)ONE_OF(modes);
    options.host_memory = (kiln_host_memory)ONE_OF(modes);
    options.matmul = ONE_OF(matmul);
    options.profile = take_flag();
    options.trace = one_in(4) ? take_file() : NULL;
    options.validate = one_in(4) ? take_number() : 0;
    return &options;
}

/* ---- executors ---- */

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
    training = (kiln_training){
        take_struct_size(sizeof training), record_training, record_update, &way, 1, NULL};
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

/* Requests end soon: nobody comes to fill a batch. */
const kiln_executor_options *take_executor_options(void)
{
    static kiln_executor_options options;
    static const uint64_t waits[] = {0, 1, 100, 1000, UINT64_MAX};
    options = (kiln_executor_options){
        take_struct_size(sizeof options), 1 + byte() % 8, 0, 100, 4, 0, one_in(16), one_in(2)};
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

kiln_scatter_mode take_scatter_mode(void)
{
    static const int numbers[] = {0, 1, 2, 3, 4, 5, -1, INT_MAX};
    return (kiln_scatter_mode)ONE_OF(numbers);
}

kiln_precision take_precision(void)
{
    static const int numbers[] = {0, 1, 2, 3, 4, 5, 6, -1};
    return (kiln_precision)ONE_OF(numbers);
}

int64_t take_diagonal(void)
{
    static const int64_t numbers[] = {0, 1, -1, 2, INT64_MAX, INT64_MIN};
    return ONE_OF(numbers);
}
