/* SPDX-License-Identifier: Apache-2.0 */
/* Decoder of fuzz bytes into arguments: structures of options. */
#include "fuzz/take.h"

#include <limits.h>

size_t take_struct_size(size_t right)
{
    const size_t wrong[] = {0, 1, 4, 8, right - 1, right + 1, right / 2, 4097, SIZE_MAX};
    return one_in(16) ? ONE_OF(wrong) : right;
}

const kiln_attention_options *take_attention_options(void)
{
    static const int64_t diagonals[] = {0, 1, -1, 100, INT64_MIN, INT64_MAX};
    static const int64_t windows[] = {0, 0, 1, 7, -1, INT64_MAX};
    static kiln_attention_options options;
    if (one_in(3))
        return NULL;
    options.size = take_struct_size(sizeof options);
    options.scale = take_number();
    options.causal = take_flag();
    options.diagonal = ONE_OF(diagonals);
    options.window = ONE_OF(windows);
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

const char *take_expression(void)
{
    static const char *const texts[] = {"x * y + 1",  "x if x > y else -x",
                                        "x ? y : 2",  "~x & y",
                                        "x // y % 3", "clamp(x, 0, y)",
                                        "x ** 3",     "i32(x) << 2",
                                        "1e9999",     "x +",
                                        "(((",        "exp(x) == !y",
                                        "1 // 0",     "\t@",
                                        "",           "where(x)",
                                        NULL};
    return ONE_OF(texts);
}

const char *take_expression_names(void)
{
    static const char *const texts[] = {"x y", "y x", "x", "", "  ", "x y z", NULL, NULL};
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

/* No program has to compile: the body names nothing, or what there is not. */
const kiln_custom_kernel *take_own_kernel(void)
{
    static const char *const names[] = {"own", "x", "y", "kiln_x", "1x", "", "x y", "own2"};
    static const char *const texts[] = {"", "x_shape[0];", "(void)y_size;", "}", "#error no"};
    static kiln_custom_tensor tensors[2][SHORTEST];
    static kiln_custom_scalar scalars[2];
    static kiln_custom_kernel kernel;
    if (one_in(8))
        return NULL;
    kernel.size = take_struct_size(sizeof kernel);
    kernel.name = one_in(8) ? NULL : ONE_OF(names);
    kernel.source = one_in(8) ? NULL : ONE_OF(texts);
    kernel.header = one_in(2) ? NULL : ONE_OF(texts);
    for (unsigned k = 0; k < 2 * SHORTEST; k++) {
        kiln_custom_tensor *tensor = &tensors[k / SHORTEST][k % SHORTEST];
        tensor->name = k < 2 && !one_in(8) ? names[1 + k / SHORTEST] : ONE_OF(names);
        tensor->type = one_in(2) ? KILN_F32 : take_type();
        tensor->rank = byte() % 10;
        tensor->strided = take_flag();
        for (unsigned d = 0; d < KILN_MAX_RANK; d++)
            tensor->dims[d] = one_in(16) ? SIZE_MAX : byte() % 3;
    }
    for (unsigned i = 0; i < COUNT(scalars); i++)
        scalars[i] = (kiln_custom_scalar){ONE_OF(names), take_type(), take_number()};
    kernel.inputs = one_in(8) ? NULL : tensors[0];
    kernel.input_count = one_in(16) ? SIZE_MAX : byte() % (SHORTEST + 1);
    kernel.outputs = one_in(8) ? NULL : tensors[1];
    kernel.output_count = one_in(2) ? 1 : byte() % (SHORTEST + 1);
    kernel.scalars = one_in(8) ? NULL : scalars;
    kernel.scalar_count = byte() % 3;
    for (unsigned d = 0; d < 3; d++) {
        kernel.global[d] = one_in(16) ? SIZE_MAX : byte() % 9;
        kernel.local[d] = one_in(2) ? 0 : byte() % 5;
    }
    kernel.tolerance = one_in(8) ? take_number() : 0;
    return &kernel;
}

/* States, elements and steps are those of earlier calls, or anything. */
const kiln_loop_options *take_loop(void)
{
    static kiln_tensor tensors[4][SHORTEST];
    static kiln_loop_options options;
    if (one_in(8))
        return NULL;
    for (unsigned k = 0; k < 4 * SHORTEST; k++)
        tensors[k / SHORTEST][k % SHORTEST] = take_tensor();
    options.size = take_struct_size(sizeof options);
    options.steps = one_in(16) ? SIZE_MAX : one_in(8) ? 70000 : byte() % 5;
    options.state_count = byte() % (SHORTEST + 1);
    options.states = one_in(8) ? NULL : tensors[0];
    options.next = one_in(8) ? NULL : tensors[1];
    options.element_count = one_in(2) ? 0 : byte() % (SHORTEST + 1);
    options.elements = one_in(8) ? NULL : tensors[2];
    options.output_count = one_in(2) ? 0 : byte() % (SHORTEST + 1);
    options.outputs = one_in(8) ? NULL : tensors[3];
    options.step = one_in(2) ? (kiln_tensor){0} : take_tensor();
    options.until = one_in(2) ? (kiln_tensor){0} : take_tensor();
    options.reverse = take_flag();
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
