/* SPDX-License-Identifier: Apache-2.0 */
/* text      = types header accessors signature "{" arguments source "}"
 *
 * The signature has a parameter for each argument, by its number; the names that the source goes by
 * are constants made of these. Errors have the lines of header and source. */
#include "record/custom_text.h"

#include <ctype.h>
#include <string.h>

#include "ops/ops.h"
#include "util/code.h"

/* Whether the name stands in the text, which may be NULL, as a word of its own. */
static bool has_word(const char *text, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = text; at && (at = strstr(at, name)); at += length) {
        const unsigned char before = at == text ? ' ' : (unsigned char)at[-1];
        const unsigned char behind = (unsigned char)at[length];
        if (!isalnum(before) && before != '_' && !isalnum(behind) && behind != '_')
            return true;
    }
    return false;
}

static bool mentions(const struct kiln__custom_writer *writer, const char *tensor, const char *what)
{
    const struct kiln__phrase name = kiln__phrase("%s_%s", tensor, what);
    return has_word(writer->kernel->source, name.text) ||
           has_word(writer->kernel->header, name.text);
}

static size_t add(struct kiln__custom_writer *writer, struct kiln__custom_argument argument)
{
    writer->failed = !kiln__vector_add(&writer->arguments, argument) || writer->failed;
    return writer->arguments.count - 1;
}

/* ---- tensors ---- */

/* One of the inputs, or behind them of the outputs. */
struct tensor {
    const char *name;
    const struct kiln__type_row *type;
    const struct kiln__shape *shape;
    bool input, strided, narrow;
    unsigned number;
};

static struct tensor tensor_of(const struct kiln__custom_writer *writer, unsigned k)
{
    const struct kiln__custom_call *call = writer->call;
    struct tensor tensor = {.input = k < call->n_inputs};
    tensor.number = tensor.input ? k : k - call->n_inputs;
    const struct kiln__custom_output *output = &call->outputs[tensor.number];
    tensor.name =
        tensor.input ? writer->kernel->inputs[k].name : writer->kernel->outputs[tensor.number].name;
    tensor.type = kiln__type_row(tensor.input ? call->inputs[k] : output->type);
    tensor.shape = tensor.input ? &writer->shapes[k] : &output->shape;
    tensor.strided = tensor.input && (call->strided >> k & 1);
    tensor.narrow = tensor.type->floating && kiln__type_row(tensor.type->computed) != tensor.type;
    return tensor;
}

static unsigned count_tensors(const struct kiln__custom_writer *writer)
{
    return writer->call->n_inputs + writer->call->n_outputs;
}

static const char *computed(const struct tensor *tensor)
{
    return kiln__type_row(tensor->type->computed)->device;
}

/* Narrow types by kernels/narrow.cl; a bool is 0 or 1. Parameters have names that no tensor has. */
static void write_accessor(struct kiln__text *text, const struct tensor *tensor)
{
    const char *name = tensor->name;
    const bool is_bool = !strcmp(tensor->type->name, kiln_type_name(KILN_BOOL));
    if (tensor->input && tensor->narrow)
        kiln__text_add(text, "#define KILN_LOAD_%s(kiln_i) kiln_%s_load(%s[kiln_i])\n", name,
                       tensor->type->name, name);
    else if (tensor->input && is_bool)
        kiln__text_add(text, "#define KILN_LOAD_%s(kiln_i) ((uchar)(%s[kiln_i] != 0))\n", name,
                       name);
    else if (tensor->input)
        kiln__text_add(text, "#define KILN_LOAD_%s(kiln_i) (%s[kiln_i])\n", name, name);
    else if (tensor->narrow)
        kiln__text_add(text,
                       "#define KILN_STORE_%s(kiln_i, kiln_x) (%s[kiln_i] = "
                       "kiln_%s_store(kiln_%s_round(kiln_x)))\n",
                       name, name, tensor->type->name, tensor->type->name);
    else if (is_bool)
        kiln__text_add(
            text, "#define KILN_STORE_%s(kiln_i, kiln_x) (%s[kiln_i] = (uchar)((kiln_x) != 0))\n",
            name, name);
    else
        kiln__text_add(text, "#define KILN_STORE_%s(kiln_i, kiln_x) (%s[kiln_i] = (kiln_x))\n",
                       name, name);
}

static void write_head(struct kiln__custom_writer *writer)
{
    const kiln_custom_kernel *kernel = writer->kernel;
    struct kiln__text *text = &writer->text;
    for (unsigned k = 0; k < count_tensors(writer); k++) {
        const struct tensor tensor = tensor_of(writer, k);
        kiln__text_add(text, "#define %s_type %s\n#define %s_rank %u\n", tensor.name,
                       computed(&tensor), tensor.name, tensor.shape->rank);
    }
    if (kernel->header)
        kiln__text_add(text, "#line 1 \"%s.header\"\n%s\n#line 1 \"kiln\"\n", kernel->name,
                       kernel->header);
    kiln__text_add(text, "#define LOAD(tensor, i) KILN_LOAD_##tensor(i)\n"
                         "#define STORE(tensor, i, value) KILN_STORE_##tensor(i, value)\n");
    for (unsigned k = 0; k < count_tensors(writer); k++) {
        const struct tensor tensor = tensor_of(writer, k);
        write_accessor(text, &tensor);
    }
}

/* ---- what is handed over ---- */

/* The signature grows beside the constants that stand at the start of the body. */
struct body {
    struct kiln__text signature, constants;
};

static void write_pointer(struct kiln__custom_writer *writer, const struct tensor *tensor,
                          struct body *body)
{
    const size_t at =
        add(writer, (struct kiln__custom_argument){.kind = tensor->input ? KILN__CUSTOM_INPUT
                                                                         : KILN__CUSTOM_OUTPUT,
                                                   .number = (uint8_t)tensor->number});
    const char *constant = tensor->input ? "const " : "";
    kiln__text_add(&body->signature,
                   "%sglobal %s%s *restrict kiln_m%zu, const long kiln_m%zu_offset",
                   body->signature.length ? ",\n" : "", constant, tensor->type->stored, at, at);
    kiln__text_add(&body->constants, "global %s%s *const %s = kiln_m%zu + kiln_m%zu_offset\n",
                   constant, tensor->type->stored, tensor->name, at, at);
}

/* The parameter's number. */
static size_t write_value(struct kiln__custom_writer *writer, const char *type,
                          struct kiln__custom_argument argument, struct body *body)
{
    const size_t at = add(writer, argument);
    kiln__text_add(&body->signature, ",\nconst %s kiln_v%zu", type, at);
    return at;
}

static size_t write_long(struct kiln__custom_writer *writer, int64_t value, struct body *body)
{
    return write_value(writer, "long",
                       (struct kiln__custom_argument){.kind = KILN__CUSTOM_I64, .integer = value},
                       body);
}

/* A constant array with a number for each dimension, or a 0 of none. */
static void write_numbers(struct kiln__custom_writer *writer, const struct tensor *tensor,
                          bool strides, struct body *body)
{
    const uint32_t rank = tensor->shape->rank;
    struct kiln__text numbers = {0};
    for (uint32_t d = 0; d < rank; d++) {
        const struct kiln__custom_argument stride = {
            .kind = KILN__CUSTOM_STRIDE, .number = (uint8_t)tensor->number, .dim = (uint8_t)d};
        const size_t at = strides ? write_value(writer, "long", stride, body)
                                  : write_long(writer, (int64_t)tensor->shape->dims[d], body);
        kiln__text_add(&numbers, "%skiln_v%zu", d ? ", " : "", at);
    }
    kiln__text_add(&body->constants, "const long %s_%s[] = {%s}\n", tensor->name,
                   strides ? "strides" : "shape", rank ? numbers.data : "0");
    writer->failed = writer->failed || numbers.failed;
    kiln__text_free(&numbers);
}

static void write_tensor(struct kiln__custom_writer *writer, const struct tensor *tensor,
                         struct body *body)
{
    write_pointer(writer, tensor, body);
    if (mentions(writer, tensor->name, "size")) {
        const size_t at = write_long(writer, (int64_t)kiln__shape_count(tensor->shape), body);
        kiln__text_add(&body->constants, "const long %s_size = kiln_v%zu\n", tensor->name, at);
    }
    if (mentions(writer, tensor->name, "shape"))
        write_numbers(writer, tensor, false, body);
    if (tensor->strided && mentions(writer, tensor->name, "strides"))
        write_numbers(writer, tensor, true, body);
}

static void write_scalar(struct kiln__custom_writer *writer, const kiln_custom_scalar *scalar,
                         struct body *body)
{
    const char *type = kiln__type_row(scalar->type)->device;
    struct kiln__custom_argument argument = {.kind = KILN__CUSTOM_F32};
    if (scalar->type == KILN_F32) {
        argument.real = (float)scalar->value;
    } else {
        argument.kind = scalar->type == KILN_I32 ? KILN__CUSTOM_I32 : KILN__CUSTOM_I64;
        argument.integer = (int64_t)scalar->value;
    }
    const size_t at = write_value(writer, type, argument, body);
    kiln__text_add(&body->constants, "const %s %s = kiln_v%zu\n", type, scalar->name, at);
}

static void write_kernel(struct kiln__custom_writer *writer, const struct body *body)
{
    const kiln_custom_kernel *kernel = writer->kernel;
    struct kiln__code code = {0};
    kiln__code_function(&code, "kernel void %s%s(%s)", KILN__CUSTOM_PREFIX, kernel->name,
                        body->signature.data);
    kiln__code_add(&code, "%s", body->constants.data);
    kiln__code_line(&code, "#line 1 \"%s\"\n%s\n#line 1 \"kiln\"", kernel->name, kernel->source);
    kiln__code_end(&code);
    kiln__code_print(&code, &writer->text);
}

void kiln__custom_write(struct kiln__custom_writer *writer)
{
    const kiln_custom_kernel *kernel = writer->kernel;
    struct body body = {{0}, {0}};
    write_head(writer);
    for (unsigned k = 0; k < count_tensors(writer); k++) {
        const struct tensor tensor = tensor_of(writer, k);
        write_tensor(writer, &tensor, &body);
    }
    for (size_t i = 0; i < kernel->scalar_count; i++)
        write_scalar(writer, &kernel->scalars[i], &body);
    writer->failed = writer->failed || body.signature.failed || body.constants.failed;
    if (!writer->failed)
        write_kernel(writer, &body);
    writer->failed = writer->failed || writer->text.failed;
    kiln__text_free(&body.signature);
    kiln__text_free(&body.constants);
}
