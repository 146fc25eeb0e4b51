/* SPDX-License-Identifier: Apache-2.0 */
/* The public attention call: checks of operands and options, broadcast of the leading dimensions,
 * types, the node. */
#include <kiln/attention.h>

#include <math.h>

#include <kiln/movement.h>

#include "graph/attention.h"
#include "record/batch.h"
#include "record/call.h"
#include "record/operations.h"
#include "util/structure.h"

enum { LENGTHS = KILN__MASK + 1, OPERANDS };

/* Of q, k, v, mask, lengths, the last two of which may not be there. */
struct operands {
    kiln_tensor tensor[OPERANDS];
    struct kiln__shape shape[OPERANDS];
    bool given[OPERANDS];
};

static const char *const names[] = {"q", "k", "v", "mask", "lengths"};

static bool check_operand(kiln_batch *batch, const char *call, unsigned i,
                          struct operands *operands)
{
    const struct kiln__node *node = kiln__batch_node(batch, operands->tensor[i], call, names[i]);
    if (!node)
        return false;
    operands->shape[i] = node->shape;
    operands->given[i] = true;
    if (i == LENGTHS) {
        if (kiln__node_is_floating(node) || node->type == KILN_BOOL)
            kiln__fail(&batch->error, KILN_TYPE_MISMATCH,
                       "%s: lengths are %s, and only integers are taken", call,
                       kiln_type_name(node->type));
        return !batch->error.status;
    }
    bool is_mask = i == KILN__MASK && kiln__node_computed(node) == KILN_U8;
    if (!kiln__node_is_floating(node) && !is_mask)
        kiln__fail(&batch->error, KILN_TYPE_MISMATCH,
                   "%s: operand %s is %s, and only floating types%s are taken", call, names[i],
                   kiln_type_name(node->type), i == KILN__MASK ? ", bool and u8" : "");
    else if (i != KILN__MASK && node->shape.rank < 2)
        kiln__fail(&batch->error, KILN_SHAPE_MISMATCH,
                   "%s: operand %s of shape %s has too few dimensions", call, names[i],
                   kiln__shape_text(&node->shape).text);
    return !batch->error.status;
}

static bool read_options(kiln_batch *batch, const char *call, const kiln_attention_options *options,
                         size_t d, struct kiln__attention *attention)
{
    *attention = (struct kiln__attention){.scale = d ? 1 / sqrt((double)d) : 1};
    kiln_attention_options own = KILN_ATTENTION_OPTIONS_INIT;
    if (options &&
        KILN__STRUCTURE_READ(&batch->error, call, options, "KILN_ATTENTION_OPTIONS_INIT", &own))
        return false;
    if (!isfinite((float)own.scale))
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT, "%s: the scale %g is not finite", call,
                   own.scale);
    if (own.window < 0)
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT,
                   "%s: the window of %lld keys is negative; 0 sees all keys", call,
                   (long long)own.window);
    if (own.scale != 0)
        attention->scale = (float)own.scale;
    attention->causal = own.causal != 0;
    attention->diagonal = own.causal ? own.diagonal : 0;
    attention->window = own.window;
    return !batch->error.status;
}

static size_t last(const struct kiln__shape *shape, uint32_t from_last)
{
    return shape->dims[shape->rank - from_last];
}

/* The dimensions before the last two; all of lengths, which have none such. */
static struct kiln__shape leading(const struct operands *operands, unsigned i)
{
    struct kiln__shape leading = operands->shape[i];
    for (unsigned k = 0; k < 2 && leading.rank && i != LENGTHS; k++)
        leading.dims[--leading.rank] = 0;
    return leading;
}

/* The leading dimensions of all operands together. */
static bool share_leading(kiln_batch *batch, const char *call, const struct operands *operands,
                          struct kiln__shape *shape)
{
    *shape = leading(operands, KILN__QUERY);
    for (unsigned i = 1; i < OPERANDS; i++) {
        struct kiln__shape other = leading(operands, i), so_far = *shape;
        if (operands->given[i] && !kiln__shape_broadcast(&so_far, &other, shape)) {
            bool matches = kiln__shape_matches(&so_far, &other);
            kiln__fail(&batch->error, matches ? KILN_TOO_LARGE : KILN_SHAPE_MISMATCH,
                       "%s: the leading dimensions of %s, shape %s, %s those before, %s", call,
                       names[i], kiln__shape_text(&operands->shape[i]).text,
                       matches ? "make too many elements with" : "do not broadcast with",
                       kiln__shape_text(&so_far).text);
            return false;
        }
    }
    return true;
}

/* `leading` with two dimensions more. */
static bool extend(kiln_batch *batch, const char *call, const struct kiln__shape *leading,
                   size_t rows, size_t columns, struct kiln__shape *shape)
{
    size_t dims[KILN_MAX_RANK];
    if (leading->rank + 2 > KILN_MAX_RANK) { /* of lengths: others have two more themselves */
        kiln__fail(
            &batch->error, KILN_INVALID_ARGUMENT,
            "%s: leading dimensions %s and two of a matrix make %u dimensions, and 8 are the "
            "most",
            call, kiln__shape_text(leading).text, leading->rank + 2);
        return false;
    }
    for (uint32_t d = 0; d < leading->rank; d++)
        dims[d] = leading->dims[d];
    dims[leading->rank] = rows;
    dims[leading->rank + 1] = columns;
    if (kiln__shape_make(leading->rank + 2, dims, shape))
        return true;
    kiln__fail(&batch->error, KILN_TOO_LARGE, "%s: shape %s has too many elements", call,
               kiln__shape_text(shape).text);
    return false;
}

/* Bring the lengths to the leading dimensions and two of 1, and to a type that there is room for
 * any of them in. */
static bool spread_lengths(kiln_batch *batch, const char *call, const struct kiln__shape *leading,
                           struct operands *operands)
{
    kiln_tensor *lengths = &operands->tensor[LENGTHS];
    struct kiln__shape own = operands->shape[LENGTHS], shape;
    if (!extend(batch, call, &own, 1, 1, &own) || !extend(batch, call, leading, 1, 1, &shape))
        return false;
    *lengths = kiln__record_indices(batch, *lengths, call);
    *lengths = kiln_reshape(batch, kiln_cast(batch, *lengths, KILN_I32), own.rank, own.dims);
    if (!kiln__shape_equal(&own, &shape))
        *lengths = kiln_broadcast(batch, *lengths, shape.rank, shape.dims);
    return !batch->error.status;
}

/* Bring an operand to the leading dimensions and to rows by columns. */
static bool attention_spread(kiln_batch *batch, const char *call, const struct kiln__shape *leading,
                             size_t m, size_t n, unsigned i, struct operands *operands)
{
    struct kiln__shape shape, both, own = operands->shape[i];
    if (i == LENGTHS)
        return spread_lengths(batch, call, leading, operands);
    size_t rows = i == KILN__MASK ? m : last(&own, 2),
           columns = i == KILN__MASK ? n : last(&own, 1);
    if (!extend(batch, call, leading, rows, columns, &shape))
        return false;
    if (kiln__shape_equal(&shape, &own))
        return true;
    if (!kiln__shape_broadcast(&own, &shape, &both) || !kiln__shape_equal(&both, &shape)) {
        kiln__fail(&batch->error, KILN_SHAPE_MISMATCH,
                   "%s: shape %s of %s does not broadcast to %s", call, kiln__shape_text(&own).text,
                   names[i], kiln__shape_text(&shape).text);
        return false;
    }
    operands->tensor[i] = kiln_broadcast(batch, operands->tensor[i], shape.rank, shape.dims);
    return !batch->error.status;
}

static bool check_sizes(kiln_batch *batch, const char *call, const struct operands *operands)
{
    const struct kiln__shape *q = operands->shape, *k = q + KILN__KEY, *v = q + KILN__VALUE;
    if (last(q, 1) == last(k, 1) && last(k, 2) == last(v, 2))
        return true;
    kiln__fail(
        &batch->error, KILN_SHAPE_MISMATCH,
        "%s: shapes q %s, k %s and v %s do not fit: they must be [..., m, d], [..., n, d] and "
        "[..., n, e]",
        call, kiln__shape_text(q).text, kiln__shape_text(k).text, kiln__shape_text(v).text);
    return false;
}

/* The narrow type that all but a mask are stored as: weights may be rounded to it. 0: there is none
 * such. */
static uint8_t weights_type(const kiln_batch *batch, const struct operands *operands)
{
    const struct kiln__node *nodes = batch->graph.nodes.items;
    kiln_type type = nodes[kiln__tensor_index(operands->tensor[KILN__QUERY])].type;
    bool same = type == KILN_F16 || type == KILN_BF16;
    for (unsigned i = KILN__KEY; i < KILN__MASK; i++)
        same = same && nodes[kiln__tensor_index(operands->tensor[i])].type == type;
    return same ? (uint8_t)type : 0;
}

static kiln_tensor attention_record(kiln_batch *batch, const char *call, struct operands *operands,
                                    const kiln_attention_options *options)
{
    struct kiln__node node = {.kind = KILN__ATTENTION, .type = KILN_F32};
    struct kiln__attention attention;
    struct kiln__shape common;
    size_t m = last(operands->shape, 2), d = last(operands->shape, 1);
    size_t n = last(&operands->shape[KILN__VALUE], 2), e = last(&operands->shape[KILN__VALUE], 1);
    if (kiln__attention_local(d, e) > batch->limits.local_memory) {
        kiln__fail(&batch->error, KILN_UNSUPPORTED,
                   "%s: %zu columns of q and %zu of v need more local memory than the device has",
                   call, d, e);
        return kiln__none;
    }
    if (!read_options(batch, call, options, d, &attention) ||
        !share_leading(batch, call, operands, &common) ||
        !extend(batch, call, &common, m, e, &node.shape))
        return kiln__none;
    node.attention = attention;
    node.attention.lengths = operands->given[LENGTHS];
    node.op = weights_type(batch, operands);
    if (kiln__product_narrow(batch->product))
        node.attention.product = batch->product;
    for (unsigned i = 0; i < OPERANDS; i++) {
        if (!operands->given[i])
            continue;
        if (!attention_spread(batch, call, &common, m, n, i, operands))
            return kiln__none;
        node.input[node.n_inputs++] = kiln__tensor_index(operands->tensor[i]);
    }
    return kiln__batch_record(batch, &node, call);
}

static kiln_tensor attend(kiln_batch *batch, const char *call, struct operands *operands,
                          const kiln_attention_options *options)
{
    for (unsigned i = 0; i < OPERANDS; i++)
        if ((i < KILN__MASK || operands->given[i] || operands->tensor[i].id) &&
            !check_operand(batch, call, i, operands))
            return kiln__none;
    return check_sizes(batch, call, operands) ? attention_record(batch, call, operands, options)
                                              : kiln__none;
}

kiln_tensor kiln_attention(kiln_batch *batch, kiln_tensor q, kiln_tensor k, kiln_tensor v,
                           kiln_tensor mask, const kiln_attention_options *options)
{
    KILN__CALL(batch);
    struct operands operands = {.tensor = {q, k, v, mask}};
    return attend(batch, __func__, &operands, options);
}

kiln_tensor kiln_attention_with_lengths(kiln_batch *batch, kiln_tensor q, kiln_tensor k,
                                        kiln_tensor v, kiln_tensor mask, kiln_tensor lengths,
                                        const kiln_attention_options *options)
{
    KILN__CALL(batch);
    struct operands operands = {.tensor = {q, k, v, mask, lengths}, .given[LENGTHS] = true};
    return attend(batch, __func__, &operands, options);
}
