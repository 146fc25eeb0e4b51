/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of the program's own: the description is looked at, and becomes a call that nodes name.
 */
#include <kiln/custom.h>
#include <kiln/operations.h>

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "record/call.h"
#include "record/custom_text.h"
#include "util/structure.h"

/* OpenCL promises room for so many bytes of arguments. */
#define PARAMETER_BYTES 1024

/* By which a device's result may differ from the host's. */
#define TOLERANCE 1e-5

struct recording {
    kiln_batch *batch;
    const char *call;
    kiln_custom_kernel kernel;
    struct kiln__custom_call made;
    struct kiln__shape shapes[KILN_CUSTOM_INPUTS];
    struct kiln__node node; /* with its inputs */
};

/* As kiln__fail(), after the call and the kernel; false. */
#define REFUSE(recording, status, format, ...)                                                     \
    (kiln__fail(&(recording)->batch->error, status, "%s: kernel %.64s: " format,                   \
                (recording)->call, (recording)->kernel.name, __VA_ARGS__),                         \
     false)

/* ---- names ---- */

static bool is_identifier(const char *name)
{
    if (!name || strlen(name) > KILN__CUSTOM_NAME ||
        !(isalpha((unsigned char)*name) || *name == '_'))
        return false;
    for (const char *at = name; *at; at++)
        if (!isalnum((unsigned char)*at) && *at != '_')
            return false;
    return strncmp(name, "kiln_", 5) != 0 && strncmp(name, "__", 2) != 0;
}

/* Names of tensors, then of scalars; NULL behind the last. */
static const char *name_at(const struct recording *recording, size_t i)
{
    const kiln_custom_kernel *kernel = &recording->kernel;
    if (i < kernel->input_count)
        return kernel->inputs[i].name;
    i -= kernel->input_count;
    if (i < kernel->output_count)
        return kernel->outputs[i].name;
    i -= kernel->output_count;
    return i < kernel->scalar_count ? kernel->scalars[i].name : NULL;
}

static bool check_names(const struct recording *recording)
{
    const kiln_custom_kernel *kernel = &recording->kernel;
    const size_t count = kernel->input_count + kernel->output_count + kernel->scalar_count;
    for (size_t i = 0; i < count; i++) {
        const char *name = name_at(recording, i);
        if (!is_identifier(name))
            return REFUSE(recording, KILN_INVALID_ARGUMENT,
                          "argument %zu is called %.64s, which is no identifier of at most %d "
                          "letters, digits and underscores, or begins with kiln_ or __",
                          i, name ? name : "NULL", KILN__CUSTOM_NAME);
        for (size_t k = 0; k < i; k++)
            if (!strcmp(name, name_at(recording, k)))
                return REFUSE(recording, KILN_INVALID_ARGUMENT, "two arguments are called %s",
                              name);
    }
    return true;
}

/* ---- counts ---- */

static bool check_count(const struct recording *recording, const char *what, size_t count,
                        size_t least, size_t most, const void *items)
{
    if (count < least || count > most)
        return REFUSE(recording, KILN_INVALID_ARGUMENT, "%zu %s, and it takes %zu to %zu", count,
                      what, least, most);
    if (count && !items)
        return REFUSE(recording, KILN_INVALID_ARGUMENT, "%s is NULL", what);
    return true;
}

static bool check_kernel(const struct recording *recording, const kiln_tensor *inputs)
{
    const kiln_custom_kernel *kernel = &recording->kernel;
    if (!is_identifier(kernel->name)) {
        kiln__fail(&recording->batch->error, KILN_INVALID_ARGUMENT,
                   "%s: the kernel is called %.64s, which is no identifier of at most %d letters, "
                   "digits and underscores, or begins with kiln_ or __",
                   recording->call, kernel->name ? kernel->name : "NULL", KILN__CUSTOM_NAME);
        return false;
    }
    if (!kernel->source)
        return REFUSE(recording, KILN_INVALID_ARGUMENT, "%s is NULL", "source");
    return check_count(recording, "inputs", kernel->input_count, 0, KILN_CUSTOM_INPUTS,
                       kernel->inputs) &&
           check_count(recording, "input tensors", kernel->input_count, 0, KILN_CUSTOM_INPUTS,
                       inputs) &&
           check_count(recording, "outputs", kernel->output_count, 1, KILN_CUSTOM_OUTPUTS,
                       kernel->outputs) &&
           check_count(recording, "scalars", kernel->scalar_count, 0, KILN_CUSTOM_SCALARS,
                       kernel->scalars) &&
           check_names(recording);
}

/* ---- arguments ---- */

/* What lies in blocks comes as f32, as every operation reads it. */
static kiln_tensor unpacked(struct recording *recording, kiln_tensor tensor, const char *name)
{
    const struct kiln__node *node =
        kiln__batch_node(recording->batch, tensor, recording->call, name);
    return node && kiln__node_has_blocks(node) ? kiln_cast(recording->batch, tensor, KILN_F32)
                                               : tensor;
}

static bool take_inputs(struct recording *recording, const kiln_tensor *inputs)
{
    const kiln_custom_kernel *kernel = &recording->kernel;
    recording->made.n_inputs = (uint32_t)kernel->input_count;
    for (size_t k = 0; k < kernel->input_count; k++) {
        const kiln_custom_tensor *input = &kernel->inputs[k];
        const kiln_tensor tensor = unpacked(recording, inputs[k], input->name);
        const struct kiln__node *node =
            kiln__batch_node(recording->batch, tensor, recording->call, input->name);
        if (!node)
            return false;
        if (input->type && node->type != input->type)
            return REFUSE(recording, KILN_TYPE_MISMATCH, "%s is %s, and it takes %s; cast it",
                          input->name, kiln_type_name(node->type), kiln_type_name(input->type));
        recording->made.inputs[k] = node->type;
        recording->made.strided |= (uint32_t)(input->strided != 0) << k;
        recording->shapes[k] = node->shape;
        recording->node.input[k] = kiln__tensor_index(tensor);
    }
    recording->node.n_inputs = (uint8_t)kernel->input_count;
    return true;
}

static bool take_outputs(struct recording *recording)
{
    const kiln_custom_kernel *kernel = &recording->kernel;
    recording->made.n_outputs = (uint32_t)kernel->output_count;
    for (size_t k = 0; k < kernel->output_count; k++) {
        const kiln_custom_tensor *output = &kernel->outputs[k];
        struct kiln__custom_output *made = &recording->made.outputs[k];
        made->type = output->type;
        if (!kiln__check_shape(recording->batch, recording->call, output->type, output->rank,
                               output->dims, &made->shape) ||
            !kiln__check_no_blocks(recording->batch, recording->call, output->type))
            return false;
    }
    return true;
}

/* An integer that the type holds, or a float. */
static bool fits(const kiln_custom_scalar *scalar)
{
    const double ends = scalar->type == KILN_I32 ? 0x1p31 : 0x1p63;
    return scalar->type == KILN_F32 || (scalar->value == trunc(scalar->value) &&
                                        scalar->value >= -ends && scalar->value < ends);
}

static bool take_scalars(struct recording *recording)
{
    const kiln_custom_kernel *kernel = &recording->kernel;
    for (size_t i = 0; i < kernel->scalar_count; i++) {
        const kiln_custom_scalar *scalar = &kernel->scalars[i];
        if (scalar->type != KILN_F32 && scalar->type != KILN_I32 && scalar->type != KILN_I64)
            return REFUSE(recording, KILN_TYPE_MISMATCH,
                          "scalar %s is %s, and they are f32, i32 or i64", scalar->name,
                          kiln_type_name(scalar->type));
        recording->made.scalars[i] = scalar->value;
        if (!fits(scalar))
            return REFUSE(recording, KILN_INVALID_ARGUMENT, "scalar %s: %s cannot hold %.17g",
                          scalar->name, kiln_type_name(scalar->type), scalar->value);
    }
    return true;
}

/* ---- work sizes ---- */

static bool is_given(const size_t sizes[3])
{
    return sizes[0] || sizes[1] || sizes[2];
}

static bool check_items(const struct recording *recording)
{
    const size_t *global = recording->made.global;
    size_t items;
    if (!__builtin_mul_overflow(global[0], global[1], &items) &&
        !__builtin_mul_overflow(items, global[2], &items) && items <= INT64_MAX)
        return true;
    return REFUSE(recording, KILN_TOO_LARGE, "%zu x %zu x %zu work-items are too many", global[0],
                  global[1], global[2]);
}

static bool check_group(const struct recording *recording)
{
    const size_t *global = recording->made.global, *local = recording->made.local;
    const size_t most = recording->batch->limits.work_group;
    size_t items = 1;
    for (unsigned d = 0; local[0] && d < 3; d++) {
        if (local[d] > global[d] || global[d] % local[d])
            return REFUSE(recording, KILN_INVALID_ARGUMENT,
                          "%zu work-items in dimension %u are no whole number of work-groups of "
                          "%zu; round the global size up, and let items beyond the end return",
                          global[d], d, local[d]);
        if (__builtin_mul_overflow(items, local[d], &items))
            items = SIZE_MAX;
    }
    if (most && items > most)
        return REFUSE(recording, KILN_TOO_LARGE,
                      "work-groups of %zu items, and the device has room for %zu", items, most);
    return true;
}

static bool take_functions(struct recording *recording)
{
    const kiln_custom_kernel *kernel = &recording->kernel;
    struct kiln__custom_call *made = &recording->made;
    if (!(kernel->tolerance >= 0) || isinf(kernel->tolerance))
        return REFUSE(recording, KILN_INVALID_ARGUMENT, "a tolerance of %g", kernel->tolerance);
    made->host = kernel->host;
    made->gradient = kernel->gradient;
    made->tolerance = kernel->tolerance > 0 ? kernel->tolerance : TOLERANCE;
    made->user = kernel->user;
    return true;
}

static bool take_sizes(struct recording *recording)
{
    const kiln_custom_kernel *kernel = &recording->kernel;
    struct kiln__custom_call *made = &recording->made;
    const size_t elements = kiln__shape_count(&made->outputs[0].shape);
    const bool global = is_given(kernel->global), local = is_given(kernel->local);
    for (unsigned d = 0; d < 3; d++) {
        made->global[d] = kernel->global[d] ? kernel->global[d] : 1;
        made->local[d] = !local ? 0 : kernel->local[d] ? kernel->local[d] : 1;
    }
    if (!global)
        made->global[0] = elements ? elements : 1;
    return check_items(recording) && check_group(recording);
}

/* ---- recording ---- */

static size_t parameter_bytes(const struct kiln__custom_writer *writer)
{
    size_t bytes = 0;
    for (size_t i = 0; i < writer->arguments.count; i++) {
        const uint8_t kind = writer->arguments.items[i].kind;
        const bool memory = kind == KILN__CUSTOM_INPUT || kind == KILN__CUSTOM_OUTPUT;
        const bool half = kind == KILN__CUSTOM_I32 || kind == KILN__CUSTOM_F32;
        bytes += memory ? 16 : half ? 4 : 8; /* a pointer and its offset */
    }
    return bytes;
}

/* The call as the process knows it; NULL with the error recorded. */
static const struct kiln__custom *find_call(struct recording *recording)
{
    const kiln_custom_kernel *kernel = &recording->kernel;
    struct kiln__custom_writer writer = {
        .kernel = kernel, .call = &recording->made, .shapes = recording->shapes};
    char name[sizeof KILN__CUSTOM_PREFIX + KILN__CUSTOM_NAME];
    const struct kiln__custom *found = NULL;
    snprintf(name, sizeof name, "%s%s", KILN__CUSTOM_PREFIX, kernel->name);
    kiln__custom_write(&writer);
    const size_t bytes = parameter_bytes(&writer);
    recording->made.n_arguments = (uint32_t)writer.arguments.count;
    if (!writer.failed && bytes > PARAMETER_BYTES) {
        (void)REFUSE(recording, KILN_TOO_LARGE,
                     "%zu bytes of arguments, shapes and strides that the source names among them, "
                     "and OpenCL promises room for %d",
                     bytes, PARAMETER_BYTES);
    } else if (!writer.failed) {
        struct kiln__custom custom = {
            .arguments = writer.arguments.items, .kernel = name, .text = writer.text.data};
        memcpy(&custom.call, &recording->made, sizeof custom.call);
        found = kiln__custom_find(&custom);
    }
    if (!found && !recording->batch->error.status)
        kiln__fail(&recording->batch->error, KILN_OUT_OF_HOST_MEMORY, "%s: no memory to record",
                   recording->call);
    kiln__text_free(&writer.text);
    kiln__vector_free(&writer.arguments);
    return found;
}

static void record_outputs(struct recording *recording, kiln_tensor *outputs)
{
    const struct kiln__custom *custom = find_call(recording);
    struct kiln__node *node = &recording->node;
    for (unsigned k = 0; custom && k < custom->call.n_outputs; k++) {
        node->kind = KILN__CUSTOM;
        node->type = custom->call.outputs[k].type;
        node->shape = custom->call.outputs[k].shape;
        node->custom = (struct kiln__custom_node){.call = custom, .output = k};
        outputs[k] = kiln__batch_record(recording->batch, node, recording->call);
    }
    if (custom)
        kiln__custom_release(custom);
}

static void record(kiln_batch *batch, const char *call, const kiln_custom_kernel *kernel,
                   const kiln_tensor *inputs, kiln_tensor *outputs)
{
    struct recording recording;
    memset(&recording, 0, sizeof recording); /* calls are compared as bytes */
    recording.batch = batch;
    recording.call = call;
    if (!kiln__batch_is_open(batch, call))
        return;
    if (!kernel || !outputs)
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT, "%s: %s is NULL", call,
                   kernel ? "outputs" : "kernel");
    else if (!KILN__STRUCTURE_READ(&batch->error, call, kernel, "KILN_CUSTOM_KERNEL_INIT",
                                   &recording.kernel) &&
             check_kernel(&recording, inputs) && take_inputs(&recording, inputs) &&
             take_outputs(&recording) && take_scalars(&recording) && take_sizes(&recording) &&
             take_functions(&recording))
        record_outputs(&recording, outputs);
}

/* After an error nothing is there. */
static void clear(const kiln_custom_kernel *kernel, kiln_tensor *outputs)
{
    const bool counts = kernel && kernel->size > offsetof(kiln_custom_kernel, outputs);
    for (size_t k = 0; counts && outputs && k < kernel->output_count && k < KILN_CUSTOM_OUTPUTS;
         k++)
        outputs[k] = (kiln_tensor){0};
}

kiln_status kiln_custom(kiln_batch *batch, const kiln_custom_kernel *kernel,
                        const kiln_tensor *inputs, kiln_tensor *outputs)
{
    KILN__CALL(batch);
    if (batch)
        kiln__call_unnamed(batch);
    record(batch, __func__, kernel, inputs, outputs);
    const kiln_status status = batch ? batch->error.status : KILN_INVALID_ARGUMENT;
    if (status)
        clear(kernel, outputs);
    return status;
}
