/* SPDX-License-Identifier: Apache-2.0 */
/* Operands, attributes, results and refusals of one node, as the functions of the operator tables
 * use them. */
#include "onnx/call.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "onnx/error.h"
#include "onnx/record.h"
#include "util/format.h"

void kiln__onnx_refuse(struct kiln__onnx_call *call, kiln_status status, const char *format, ...)
{
    if (call->recorder->status)
        return;
    char words[1024];
    va_list arguments;
    va_start(arguments, format);
    kiln__vformat(words, sizeof words, format, arguments);
    va_end(arguments);
    call->recorder->status =
        kiln__onnx_fail(status, "node '%s' (%s): %s", kiln__onnx_node_name(call->node),
                        call->node->proto->op_type, words);
}

bool kiln__onnx_failed(const struct kiln__onnx_call *call)
{
    return call->recorder->status || kiln_batch_status(call->batch);
}

/* ---- operands ---- */

struct kiln__onnx_value *kiln__onnx_operand(const struct kiln__onnx_call *call, size_t i)
{
    return i < call->n_inputs ? call->in[i] : NULL;
}

bool kiln__onnx_need(struct kiln__onnx_call *call, size_t i)
{
    if (kiln__onnx_operand(call, i))
        return true;
    kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT, "operand %zu is missing", i);
    return false;
}

kiln_tensor kiln__onnx_tensor(struct kiln__onnx_call *call, size_t i)
{
    struct kiln__onnx_value *value = kiln__onnx_operand(call, i);
    return value ? kiln__onnx_tensor_of(call, value) : (kiln_tensor){0};
}

kiln_tensor kiln__onnx_tensor_of(struct kiln__onnx_call *call, struct kiln__onnx_value *value)
{
    return kiln__onnx_on_device(call->recorder, value);
}

const int64_t *kiln__onnx_integers(struct kiln__onnx_call *call, size_t i, size_t *n)
{
    struct kiln__onnx_value *value = kiln__onnx_operand(call, i);
    *n = 0;
    if (!value)
        return NULL;
    if (!value->host) {
        kiln__onnx_refuse(call, KILN_UNSUPPORTED,
                          "operand %zu, '%s', decides about shapes, and is not known when the "
                          "model is recorded",
                          i, call->recorder->model->graphs.names[call->node->inputs[i]]);
        return NULL;
    }
    if (value->host->floats) {
        kiln__onnx_refuse(call, KILN_TYPE_MISMATCH, "operand %zu is %s, and integers are wanted", i,
                          kiln__onnx_type_name(value->type));
        return NULL;
    }
    *n = value->host->count;
    return &value->host->cells[0].i;
}

bool kiln__onnx_scalar(const struct kiln__onnx_call *call, size_t i, double *number)
{
    struct kiln__onnx_value *value = kiln__onnx_operand(call, i);
    if (!value || !value->host || value->host->count != 1)
        return false;
    *number = value->host->floats ? value->host->cells[0].f : (double)value->host->cells[0].i;
    return true;
}

/* ---- attributes ---- */

static const Onnx__AttributeProto *named(size_t n, Onnx__AttributeProto **list, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (list[i]->name && !strcmp(list[i]->name, name))
            return list[i];
    return NULL;
}

/* An attribute of a node inside a function may stand for one of the node that calls it, or for what
 * the function has where that has none. */
static const Onnx__AttributeProto *
find_in(const Onnx__NodeProto *node, const struct kiln__onnx_attributes *outer, const char *name)
{
    const Onnx__AttributeProto *own = named(node->n_attribute, node->attribute, name);
    if (!own || !own->ref_attr_name || !*own->ref_attr_name || !outer)
        return own;
    const Onnx__AttributeProto *given = find_in(outer->caller, outer->outer, own->ref_attr_name);
    return given ? given : named(outer->n_defaults, outer->defaults, own->ref_attr_name);
}

static const Onnx__AttributeProto *find(const struct kiln__onnx_call *call, const char *name)
{
    return find_in(call->node->proto, call->node->attributes, name);
}

bool kiln__onnx_has_attribute(const struct kiln__onnx_call *call, const char *name)
{
    return find(call, name) != NULL;
}

static const char *const kinds[] = {"nothing",  "a float", "an integer", "a string",
                                    "a tensor", "a graph", "floats",     "integers",
                                    "strings",  "tensors", "graphs",     "a sparse tensor"};

static const char *kind_of(int type)
{
    return type >= 0 && (size_t)type < sizeof kinds / sizeof *kinds ? kinds[type]
                                                                    : "something else";
}

const Onnx__AttributeProto *kiln__onnx_attribute(struct kiln__onnx_call *call, const char *name,
                                                 Onnx__AttributeProto__AttributeType type)
{
    const Onnx__AttributeProto *found = find(call, name);
    if (!found)
        return NULL;
    /* Early files have no type. */
    bool there = found->type == type || !found->has_type;
    if (type == ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR)
        there = there && found->t;
    if (type == ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH)
        there = there && found->g;
    if (there)
        return found;
    kiln__onnx_refuse(call, KILN_TYPE_MISMATCH, "attribute '%s' is %s, and should be %s", name,
                      kind_of((int)found->type), kind_of((int)type));
    return NULL;
}

int64_t kiln__onnx_int(struct kiln__onnx_call *call, const char *name, int64_t usual)
{
    const Onnx__AttributeProto *found =
        kiln__onnx_attribute(call, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT);
    return found ? found->i : usual;
}

double kiln__onnx_float(struct kiln__onnx_call *call, const char *name, double usual)
{
    const Onnx__AttributeProto *found =
        kiln__onnx_attribute(call, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT);
    return found ? (double)found->f : usual;
}

const char *kiln__onnx_string(struct kiln__onnx_call *call, const char *name, const char *usual)
{
    const Onnx__AttributeProto *found =
        kiln__onnx_attribute(call, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING);
    if (!found)
        return usual ? usual : "";
    /* Bytes in a file do not end with a 0. */
    size_t cells = found->s.len / sizeof(union kiln__onnx_cell) + 1;
    struct kiln__onnx_host *room =
        kiln__onnx_new_host(call, ONNX__TENSOR_PROTO__DATA_TYPE__INT64, 1, &cells);
    if (!room)
        return "";
    if (found->s.len)
        memcpy(room->cells, found->s.data, found->s.len);
    return (const char *)room->cells;
}

const int64_t *kiln__onnx_ints(struct kiln__onnx_call *call, const char *name, size_t *n)
{
    const Onnx__AttributeProto *found =
        kiln__onnx_attribute(call, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS);
    *n = found ? found->n_ints : 0;
    return found ? found->ints : NULL;
}

const float *kiln__onnx_floats(struct kiln__onnx_call *call, const char *name, size_t *n)
{
    const Onnx__AttributeProto *found =
        kiln__onnx_attribute(call, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS);
    *n = found ? found->n_floats : 0;
    return found ? found->floats : NULL;
}

size_t kiln__onnx_axis(struct kiln__onnx_call *call, int64_t axis, size_t rank)
{
    int64_t dimensions = (int64_t)rank;
    if (axis >= -dimensions && axis < dimensions)
        return (size_t)(axis < 0 ? axis + dimensions : axis);
    kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT, "axis %" PRId64 " of %zu dimensions", axis,
                      rank);
    return 0;
}

const int64_t *kiln__onnx_list(struct kiln__onnx_call *call, const char *name, size_t i, size_t *n)
{
    if (kiln__onnx_operand(call, i))
        return kiln__onnx_integers(call, i, n);
    return kiln__onnx_ints(call, name, n);
}

/* ---- other operators ---- */

void kiln__onnx_apply(struct kiln__onnx_call *call, const char *name, int version, size_t n_inputs,
                      struct kiln__onnx_value *const *in, size_t n_outputs,
                      struct kiln__onnx_value *out)
{
    enum { MOST = 8 };
    static const bool all[MOST] = {true, true, true, true, true, true, true, true};
    struct kiln__onnx_call inner = *call;
    inner.row = kiln__onnx_find_row("", name, version);
    if (!inner.row || n_outputs > MOST) {
        kiln__onnx_refuse(call, KILN_UNSUPPORTED, "%s of version %d with %zu results", name,
                          version, n_outputs);
        return;
    }
    inner.version = version;
    inner.n_inputs = n_inputs;
    inner.in = (struct kiln__onnx_value **)in;
    inner.n_outputs = n_outputs;
    inner.out = out;
    inner.wanted = out == call->out ? call->wanted : all;
    inner.row->record(&inner);
}

/* ---- results ---- */

/* What the lower bits are as an integer of so many. */
static kiln_tensor cut(kiln_batch *batch, kiln_tensor x, kiln_type type, int bits, bool is_signed)
{
    const int unused = 8 * (int)kiln_type_size(type) - bits;
    kiln_tensor up = kiln_constant(batch, type, unused);
    if (is_signed)
        return kiln_shift_right(batch, kiln_shift_left(batch, x, up), up);
    return kiln_bit_and(batch, x, kiln_constant(batch, type, (double)((INT64_C(1) << bits) - 1)));
}

kiln_tensor kiln__onnx_settle(struct kiln__onnx_call *call, kiln_tensor tensor, int type)
{
    const struct kiln__onnx_type *known = kiln__onnx_type(type);
    kiln_type has;
    if (!known || !tensor.id || kiln__onnx_type_floats(type) || known->type == KILN_BOOL ||
        kiln_tensor_shape(call->batch, tensor, &has, NULL, NULL))
        return tensor;
    if (kiln__onnx_computed(has) == KILN_F32)
        return tensor;
    if (kiln__onnx_computed(has) != known->computed)
        tensor = kiln_cast(call->batch, tensor, known->computed);
    if (known->bits < 8 * kiln_type_size(known->computed))
        tensor = cut(call->batch, tensor, known->computed, (int)known->bits,
                     known->storage == KILN__ONNX_SIGNED);
    return tensor;
}

kiln_tensor kiln__onnx_positions(struct kiln__onnx_call *call, kiln_tensor tensor)
{
    kiln_type type;
    if (!tensor.id || kiln_tensor_shape(call->batch, tensor, &type, NULL, NULL))
        return tensor;
    if (type == KILN_I64)
        tensor = kiln_clamp(call->batch, tensor, INT32_MIN, INT32_MAX);
    return kiln_cast(call->batch, tensor, KILN_I32);
}

void kiln__onnx_give(struct kiln__onnx_call *call, size_t k, kiln_tensor tensor, int type)
{
    if (k >= call->n_outputs || !tensor.id)
        return;
    struct kiln__onnx_value *out = &call->out[k];
    if (!kiln__onnx_type(type)) {
        kiln__onnx_refuse(call, KILN_UNSUPPORTED, "there are no tensors of %s",
                          kiln__onnx_type_name(type));
        return;
    }
    tensor = kiln__onnx_settle(call, tensor, type);
    *out = (struct kiln__onnx_value){.type = type, .tensor = tensor};
    if (kiln_tensor_shape(call->batch, tensor, NULL, &out->rank, out->dims))
        kiln__onnx_refuse(call, KILN_INVALID_HANDLE, "%s", kiln_last_error());
}

void kiln__onnx_give_like(struct kiln__onnx_call *call, kiln_tensor tensor)
{
    const struct kiln__onnx_value *x = kiln__onnx_operand(call, 0);
    if (x)
        kiln__onnx_give(call, 0, tensor, x->type);
}

void kiln__onnx_give_value(struct kiln__onnx_call *call, size_t k,
                           const struct kiln__onnx_value *value)
{
    if (k < call->n_outputs)
        call->out[k] = *value;
}

/* A node of thirty bytes can make an array of half a MiB, which stays as long as others read it. */
enum { MOST_HELD = 256 << 20 };

struct kiln__onnx_host *kiln__onnx_new_host(struct kiln__onnx_call *call, int type, size_t rank,
                                            const size_t *dims)
{
    if (!kiln__onnx_type(type)) {
        kiln__onnx_refuse(call, KILN_UNSUPPORTED, "there are no tensors of %s",
                          kiln__onnx_type_name(type));
        return NULL;
    }
    struct kiln__onnx_recorder *recorder = call->recorder;
    if (recorder->held > MOST_HELD) {
        kiln__onnx_refuse(call, KILN_TOO_LARGE,
                          "values that are known when the model is recorded, and that other nodes "
                          "read later, take more than %d bytes",
                          MOST_HELD);
        return NULL;
    }
    struct kiln__onnx_host *host = kiln__onnx_host_new(&recorder->hosts, type, rank, dims);
    if (!host)
        kiln__onnx_refuse(call, KILN_OUT_OF_HOST_MEMORY, "no memory for an array on the host");
    else
        recorder->held += kiln__onnx_host_bytes(host);
    return host;
}

struct kiln__onnx_host *kiln__onnx_give_host(struct kiln__onnx_call *call, size_t k, int type,
                                             size_t rank, const size_t *dims)
{
    struct kiln__onnx_host *host = kiln__onnx_new_host(call, type, rank, dims);
    if (!host || k >= call->n_outputs)
        return host;
    struct kiln__onnx_value *out = &call->out[k];
    *out = (struct kiln__onnx_value){.type = type, .rank = rank, .host = host};
    memcpy(out->dims, host->dims, sizeof out->dims);
    return host;
}

bool kiln__onnx_shape_of(struct kiln__onnx_call *call, const int64_t *list, size_t n, size_t *dims)
{
    if (n > KILN_MAX_RANK) {
        kiln__onnx_refuse(call, KILN_UNSUPPORTED, "a shape of %zu dimensions, and %d are the most",
                          n, KILN_MAX_RANK);
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        if (list[i] < 0 || (uint64_t)list[i] > PTRDIFF_MAX) {
            kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT, "dimension %zu of a shape is %" PRId64,
                              i, list[i]);
            return false;
        }
        dims[i] = (size_t)list[i];
    }
    size_t count;
    if (kiln__onnx_count(n, dims, &count))
        return true;
    kiln__onnx_refuse(call, KILN_TOO_LARGE, "a shape has more elements than can be counted");
    return false;
}
