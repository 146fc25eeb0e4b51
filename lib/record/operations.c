/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that are table rows, and casts. */
#include <kiln/elementwise.h>
#include <kiln/movement.h>
#include <kiln/operations.h>
#include <kiln/reductions.h>

#include <math.h>

#include "record/call.h"
#include "record/operations.h"

/* ---- elementwise ---- */

static void refuse_shapes(kiln_batch *batch, const char *call, const struct kiln__shape *a,
                          const struct kiln__shape *b)
{
    bool matches = kiln__shape_matches(a, b);
    kiln__fail(&batch->error, matches ? KILN_TOO_LARGE : KILN_SHAPE_MISMATCH,
               "%s: shapes %s and %s %s", call, kiln__shape_text(a).text, kiln__shape_text(b).text,
               matches ? "broadcast to too many elements" : "do not broadcast");
}

static bool check_types(kiln_batch *batch, const char *call,
                        const struct kiln__elementwise_row *row,
                        const struct kiln__node *const *inputs)
{
    enum kiln__types types = row->types;
    const struct kiln__node *last = inputs[row->arity - 1];
    const char *name = kiln_type_name(last->type);
    kiln_type type = kiln__node_computed(last);
    for (unsigned i = 0; i < row->arity; i++) {
        const char *given = kiln_type_name(inputs[i]->type);
        kiln_type found = kiln__node_computed(inputs[i]);
        kiln_type wanted = kiln__types_operand(types, i, type);
        if (found != wanted && wanted != type)
            kiln__fail(&batch->error, KILN_TYPE_MISMATCH,
                       "%s: the mask is %s, and only bool and u8 are taken; a comparison makes one",
                       call, given);
        else if (found != wanted)
            kiln__fail(&batch->error, KILN_TYPE_MISMATCH,
                       "%s: operands are %s and %s; cast one of them", call, given, name);
    }
    if (!kiln__types_accept(types, type))
        kiln__fail(&batch->error, KILN_TYPE_MISMATCH, "%s: operands are %s, and only %s are taken",
                   call, kiln_type_name(inputs[0]->type),
                   types == KILN__WORDS     ? "integers of 32 bits"
                   : types == KILN__INTEGER ? "integers"
                                            : "floating types");
    return !batch->error.status;
}

static bool broadcast_all(kiln_batch *batch, const char *call, unsigned count,
                          const struct kiln__node *const *inputs, struct kiln__shape *shape)
{
    *shape = inputs[0]->shape;
    for (unsigned i = 1; i < count; i++) {
        struct kiln__shape before = *shape;
        if (!kiln__shape_broadcast(&before, &inputs[i]->shape, shape)) {
            refuse_shapes(batch, call, &before, &inputs[i]->shape);
            return false;
        }
    }
    return true;
}

static kiln_tensor record_cast(kiln_batch *batch, kiln_tensor x, kiln_type type, const char *call);

/* Of what the operation leaves as it is. */
static kiln_tensor record_whole(kiln_batch *batch, kiln_tensor x, const struct kiln__node *node,
                                const char *call)
{
    const kiln_type type = kiln__node_computed(node);
    return type == node->type ? x : record_cast(batch, x, type, call);
}

kiln_tensor kiln__record_elementwise(kiln_batch *batch, enum kiln__elementwise op, const char *call,
                                     const kiln_tensor *operands)
{
    static const char *const names[3] = {"a", "b", "c"};
    const struct kiln__elementwise_row *row = &kiln__elementwise_rows[op];
    const struct kiln__node *inputs[3];
    struct kiln__node node = {.kind = KILN__ELEMENTWISE, .op = (uint8_t)op, .n_inputs = row->arity};
    for (unsigned i = 0; i < row->arity; i++) {
        inputs[i] = kiln__batch_node(batch, operands[i], call, names[i]);
        if (!inputs[i])
            return kiln__none;
        node.input[i] = kiln__tensor_index(operands[i]);
    }
    op = kiln__elementwise_of(op, kiln__node_computed(inputs[row->arity - 1]));
    if (op == KILN__OP_COUNT)
        return record_whole(batch, operands[0], inputs[0], call);
    node.op = (uint8_t)op;
    row = &kiln__elementwise_rows[op];
    if (!check_types(batch, call, row, inputs) ||
        !broadcast_all(batch, call, row->arity, inputs, &node.shape))
        return kiln__none;
    node.type = kiln__types_result(row->types, kiln__node_computed(inputs[row->arity - 1]));
    return kiln__batch_record(batch, &node, call);
}

/* A row without numbers has none of them read. */
static const double no_numbers[1];

/* Numbers become constants of what the first operand is computed in, operands like others from
 * then on. */
static kiln_tensor record_row(kiln_batch *batch, enum kiln__elementwise op, const char *call,
                              const kiln_tensor *tensors, const double *numbers)
{
    const struct kiln__elementwise_row *row = &kiln__elementwise_rows[op];
    kiln_tensor operands[3];
    for (unsigned i = 0; i < row->tensors; i++)
        operands[i] = tensors[i];
    for (unsigned i = row->tensors; i < row->arity; i++) {
        const struct kiln__node *input = kiln__batch_node(batch, tensors[0], call, "a");
        if (!input)
            return kiln__none;
        operands[i] =
            kiln__batch_number(batch, kiln__node_computed(input), numbers[i - row->tensors], call);
    }
    return kiln__record_elementwise(batch, op, call, operands);
}

#define RECORD(name, tensors, numbers)                                                             \
    record_row(batch, KILN__OP_##name, __func__, tensors, numbers)
#define DEFINE_1(name)                                                                             \
    kiln_tensor kiln_##name(kiln_batch *batch, kiln_tensor a)                                      \
    {                                                                                              \
        KILN__CALL(batch);                                                                         \
        return RECORD(name, &a, no_numbers);                                                       \
    }
#define DEFINE_2(name)                                                                             \
    kiln_tensor kiln_##name(kiln_batch *batch, kiln_tensor a, kiln_tensor b)                       \
    {                                                                                              \
        KILN__CALL(batch);                                                                         \
        return RECORD(name, ((kiln_tensor[]){a, b}), no_numbers);                                  \
    }
#define DEFINE_3(name)                                                                             \
    kiln_tensor kiln_##name(kiln_batch *batch, kiln_tensor a, kiln_tensor b, kiln_tensor c)        \
    {                                                                                              \
        KILN__CALL(batch);                                                                         \
        return RECORD(name, ((kiln_tensor[]){a, b, c}), no_numbers);                               \
    }
#define DEFINE_1N(name)                                                                            \
    kiln_tensor kiln_##name(kiln_batch *batch, kiln_tensor a, double b)                            \
    {                                                                                              \
        KILN__CALL(batch);                                                                         \
        return RECORD(name, &a, &b);                                                               \
    }
#define DEFINE_1NN(name)                                                                           \
    kiln_tensor kiln_##name(kiln_batch *batch, kiln_tensor a, double b, double c)                  \
    {                                                                                              \
        KILN__CALL(batch);                                                                         \
        return RECORD(name, &a, ((double[]){b, c}));                                               \
    }
/* An arity as the DEFINE of its signature. */
#define SIGNATURE_1 DEFINE_1
#define SIGNATURE_2 DEFINE_2
#define SIGNATURE_3 DEFINE_3
#define SIGNATURE_1N(number) DEFINE_1N
#define SIGNATURE_1NN(first, second) DEFINE_1NN
#define DEFINE(signature, name) signature(name)
#define KILN_OP(name, arity, ...) DEFINE(SIGNATURE_##arity, name)
#define KILN_OP_INTERNAL(name, ...)
#include "ops/elementwise.def"
#undef KILN_OP_INTERNAL
#undef KILN_OP

kiln_tensor kiln_scale(kiln_batch *batch, kiln_tensor x, double factor)
{
    KILN__CALL(batch);
    const struct kiln__node *input = kiln__batch_node(batch, x, __func__, "x");
    if (!input)
        return kiln__none;
    kiln_tensor number = kiln__batch_number(batch, kiln__node_computed(input), factor, __func__);
    return batch->error.status ? kiln__none : kiln_mul(batch, x, number);
}

static kiln_tensor record_cast(kiln_batch *batch, kiln_tensor x, kiln_type type, const char *call)
{
    struct kiln__node node = {.kind = KILN__CAST, .type = type, .n_inputs = 1};
    node.shape = kiln__tensor_node(batch, x)->shape;
    node.input[0] = kiln__tensor_index(x);
    return kiln__batch_record(batch, &node, call);
}

kiln_tensor kiln_cast(kiln_batch *batch, kiln_tensor x, kiln_type type)
{
    KILN__CALL(batch);
    const struct kiln__node *input = kiln__batch_node(batch, x, __func__, "x");
    if (!input)
        return kiln__none;
    if (!kiln__type_row(type)) {
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT, "%s: %d is no data type", __func__,
                   (int)type);
        return kiln__none;
    }
    if (!kiln__check_no_blocks(batch, __func__, type))
        return kiln__none;
    /* A truth is more than the nearest number. */
    if (type == KILN_BOOL && input->type != type) {
        kiln_tensor zero = kiln__batch_number(batch, kiln__node_computed(input), 0, __func__);
        x = batch->error.status ? kiln__none : kiln_not_equal(batch, x, zero);
    }
    return batch->error.status ? kiln__none : record_cast(batch, x, type, __func__);
}

/* ---- reductions ---- */

bool kiln__check_number(kiln_batch *batch, const char *call, const char *what, double value)
{
    if (isfinite(value) && value >= 0)
        return true;
    kiln__fail(&batch->error, KILN_INVALID_ARGUMENT,
               "%s: %s is %.9g, and must be finite and not negative", call, what, value);
    return false;
}

bool kiln__read_axes(kiln_batch *batch, const char *call, const struct kiln__shape *shape,
                     size_t n_axes, const int *axes, uint64_t *mask)
{
    *mask = n_axes ? 0 : (UINT64_C(1) << shape->rank) - 1;
    if (n_axes && !axes)
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT, "%s: axes is NULL", call);
    for (size_t i = 0; i < n_axes && !batch->error.status; i++) {
        int axis = axes[i] < 0 ? axes[i] + (int)shape->rank : axes[i];
        if (axis < 0 || axis >= (int)shape->rank)
            kiln__fail(&batch->error, KILN_INVALID_ARGUMENT,
                       "%s: axis %d is not one of the dimensions of shape %s", call, axes[i],
                       kiln__shape_text(shape).text);
        else if (*mask >> axis & 1)
            kiln__fail(&batch->error, KILN_INVALID_ARGUMENT, "%s: axis %d is named twice", call,
                       axes[i]);
        else
            *mask |= UINT64_C(1) << axis;
    }
    return !batch->error.status;
}

/* The shapes without the reduced dimensions, and with them as 1. */
static size_t reduced_shapes(const struct kiln__shape *from, uint64_t mask,
                             struct kiln__shape *dropped, struct kiln__shape *kept)
{
    size_t reduced = 1;
    *dropped = (struct kiln__shape){0};
    *kept = *from;
    for (uint32_t d = 0; d < from->rank; d++) {
        if (mask >> d & 1) {
            reduced *= from->dims[d];
            kept->dims[d] = 1;
        } else {
            dropped->dims[dropped->rank++] = from->dims[d];
        }
    }
    return reduced;
}

static bool check_reduction(kiln_batch *batch, const struct kiln__reduce_row *row, const char *call,
                            const struct kiln__node *input, size_t reduced)
{
    if (!kiln__types_accept(row->types, kiln__node_computed(input)))
        kiln__fail(&batch->error, KILN_TYPE_MISMATCH,
                   "%s: the operand is %s, and only floating types are taken; cast it", call,
                   kiln_type_name(input->type));
    else if (!row->empty && reduced == 0)
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT,
                   "%s: shape %s has no elements to choose from", call,
                   kiln__shape_text(&input->shape).text);
    else if (row->indexed && reduced > INT32_MAX)
        kiln__fail(&batch->error, KILN_TOO_LARGE, "%s: %zu positions do not fit an i32", call,
                   reduced);
    return !batch->error.status;
}

kiln_tensor kiln__record_reduction(kiln_batch *batch, enum kiln__reduction op, const char *call,
                                   kiln_tensor x, size_t n_axes, const int *axes, int keep_dims)
{
    const struct kiln__reduce_row *row = &kiln__reduce_rows[op];
    const struct kiln__node *input = kiln__batch_node(batch, x, call, "x");
    struct kiln__node node = {.kind = KILN__REDUCE, .op = (uint8_t)op, .n_inputs = 1};
    struct kiln__shape kept;
    uint64_t axes_mask;
    if (!input || !kiln__read_axes(batch, call, &input->shape, n_axes, axes, &axes_mask))
        return kiln__none;
    node.axes = axes_mask;
    size_t reduced = reduced_shapes(&input->shape, axes_mask, &node.shape, &kept);
    if (!check_reduction(batch, row, call, input, reduced))
        return kiln__none;
    node.type = kiln__reduce_result(row, input->type);
    node.input[0] = kiln__tensor_index(x);
    kiln_tensor result = kiln__batch_record(batch, &node, call);
    return keep_dims && !batch->error.status ? kiln_reshape(batch, result, kept.rank, kept.dims)
                                             : result;
}

#define KILN_REDUCE(name, ...)                                                                     \
    kiln_tensor kiln_##name(kiln_batch *batch, kiln_tensor x, size_t n_axes, const int *axes,      \
                            int keep_dims)                                                         \
    {                                                                                              \
        KILN__CALL(batch);                                                                         \
        return kiln__record_reduction(batch, KILN__REDUCE_##name, __func__, x, n_axes, axes,       \
                                      keep_dims);                                                  \
    }
#include "ops/reduce.def"

#undef KILN_REDUCE
