/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers as recorded operations: an element's number and a key into the rows of Philox.
 * Elements count from 0 up and derived keys from -1 down, so that the two never meet. */
#include <kiln/random.h>

#include <kiln/batch.h>
#include <kiln/elementwise.h>
#include <kiln/movement.h>

#include "record/call.h"
#include "record/operations.h"

/* ---- keys ---- */

/* 0, 1, 2, ... over a shape. */
static kiln_tensor number_elements(kiln_batch *batch, size_t rank, const size_t *dims)
{
    size_t count = 1;
    for (size_t d = 0; d < rank; d++)
        count *= dims[d];
    return kiln_reshape(batch, kiln_arange(batch, KILN_I32, 0, (double)count, 1), rank, dims);
}

static bool check_key(kiln_batch *batch, kiln_tensor key, const char *call)
{
    const struct kiln__node *node = kiln__batch_node(batch, key, call, "key");
    if (!node)
        return false;
    if (kiln__node_computed(node) != KILN_I32)
        kiln__fail(&batch->error, KILN_TYPE_MISMATCH, "%s: the key is %s, and keys are i32", call,
                   kiln_type_name(node->type));
    else if (node->shape.rank != 1 || node->shape.dims[0] != 2)
        kiln__fail(&batch->error, KILN_SHAPE_MISMATCH, "%s: the key is %s, and keys are [2]", call,
                   kiln__shape_text(&node->shape).text);
    return !batch->error.status;
}

/* Word 0 or 1 for each element, by its number. */
static kiln_tensor draw(kiln_batch *batch, unsigned word, kiln_tensor numbers, kiln_tensor key,
                        const char *call)
{
    const int64_t from[] = {0, 1, 2};
    kiln_tensor first = kiln_slice(batch, key, &from[0], &from[1], NULL);
    kiln_tensor second = kiln_slice(batch, key, &from[1], &from[2], NULL);
    return kiln__record_elementwise(batch, word ? KILN__OP_philox_second : KILN__OP_philox, call,
                                    (kiln_tensor[]){numbers, first, second});
}

static kiln_tensor word_constant(kiln_batch *batch, uint32_t word)
{
    return kiln_constant(batch, KILN_I32, (double)(int32_t)word);
}

kiln_tensor kiln_random_key(kiln_batch *batch, uint64_t seed)
{
    KILN__CALL(batch);
    uint32_t low = (uint32_t)seed, high = (uint32_t)(seed >> 32);
    if (!kiln__batch_is_open(batch, __func__))
        return kiln__none;
    kiln_tensor which = number_elements(batch, 1, (size_t[]){2});
    which = kiln_mul(batch, which, word_constant(batch, high - low));
    return kiln_add(batch, word_constant(batch, low), which);
}

kiln_tensor kiln_random_split(kiln_batch *batch, kiln_tensor key, uint32_t number)
{
    KILN__CALL(batch);
    if (!check_key(batch, key, __func__))
        return kiln__none;
    if (number > INT32_MAX / 2 - 1) {
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT, "%s: number %lu is beyond %d", __func__,
                   (unsigned long)number, INT32_MAX / 2 - 1);
        return kiln__none;
    }
    kiln_tensor which = number_elements(batch, 1, (size_t[]){2});
    kiln_tensor last = word_constant(batch, ~(2 * number)); /* -1, -3, ... */
    return draw(batch, 0, kiln_sub(batch, last, which), key, __func__);
}

kiln_tensor kiln_random_next(kiln_batch *batch, kiln_buffer *state)
{
    KILN__CALL(batch);
    if (!kiln__batch_is_open(batch, __func__))
        return kiln__none;
    if (!state) {
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT, "%s: state is NULL", __func__);
        return kiln__none;
    }
    kiln_tensor key = kiln__record_import(batch, state, __func__);
    if (!check_key(batch, key, __func__))
        return kiln__none;
    if (kiln__batch_exports_to(batch, state)) { /* the same key again: the same numbers */
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT,
                   "%s: the batch leaves something in this state already; split the key that it "
                   "has, by kiln_random_split()",
                   __func__);
        return kiln__none;
    }
    kiln_export(batch, kiln_add(batch, key, number_elements(batch, 1, (size_t[]){2})), state);
    return batch->error.status ? kiln__none : key;
}

/* ---- numbers ---- */

/* The upper 24 bits of a word as a number from [0, 1). */
static kiln_tensor fraction(kiln_batch *batch, kiln_tensor word, const char *call)
{
    kiln_tensor bits = kiln__record_elementwise(batch, KILN__OP_high_bits, call, &word);
    return kiln_scale(batch, kiln_cast(batch, bits, KILN_F32), 0x1p-24);
}

/* The numbers of a shape's elements; the empty tensor, with the error recorded, if the arguments
 * are wrong. */
static kiln_tensor random_begin(kiln_batch *batch, size_t rank, const size_t *dims, kiln_tensor key,
                                const char *call)
{
    struct kiln__shape shape;
    if (!check_key(batch, key, call) ||
        !kiln__check_shape(batch, call, KILN_F32, rank, dims, &shape))
        return kiln__none;
    if (kiln__shape_count(&shape) > INT32_MAX) {
        kiln__fail(&batch->error, KILN_TOO_LARGE,
                   "%s: the elements of shape %s cannot be numbered by an i32", call,
                   kiln__shape_text(&shape).text);
        return kiln__none;
    }
    return number_elements(batch, rank, dims);
}

kiln_tensor kiln_random_uniform(kiln_batch *batch, size_t rank, const size_t *dims, kiln_tensor key)
{
    KILN__CALL(batch);
    kiln_tensor numbers = random_begin(batch, rank, dims, key, __func__);
    return numbers.id ? fraction(batch, draw(batch, 0, numbers, key, __func__), __func__)
                      : kiln__none;
}

kiln_tensor kiln_random_normal(kiln_batch *batch, size_t rank, const size_t *dims, kiln_tensor key)
{
    KILN__CALL(batch);
    kiln_tensor numbers = random_begin(batch, rank, dims, key, __func__);
    if (!numbers.id)
        return kiln__none;
    kiln_tensor one = kiln_constant(batch, KILN_F32, 1);
    kiln_tensor radius = fraction(batch, draw(batch, 0, numbers, key, __func__), __func__);
    kiln_tensor angle = fraction(batch, draw(batch, 1, numbers, key, __func__), __func__);
    radius = kiln_scale(batch, kiln_log(batch, kiln_sub(batch, one, radius)), -2);
    angle = kiln_cos(batch, kiln_scale(batch, angle, 6.283185307179586));
    return kiln_mul(batch, kiln_sqrt(batch, radius), angle);
}

/* ---- dropout ---- */

kiln_tensor kiln_dropout(kiln_batch *batch, kiln_tensor x, double probability, kiln_tensor key)
{
    KILN__CALL(batch);
    const struct kiln__node *node = kiln__batch_floating(batch, x, __func__, "x");
    if (!node)
        return kiln__none;
    if (!(probability >= 0 && probability <= 1))
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT, "%s: %g is no probability", __func__,
                   probability);
    if (batch->error.status)
        return kiln__none;
    const struct kiln__shape shape = node->shape; /* recording moves nodes */
    kiln_tensor numbers = random_begin(batch, shape.rank, shape.dims, key, __func__);
    if (!numbers.id)
        return kiln__none;
    kiln_tensor drawn = fraction(batch, draw(batch, 0, numbers, key, __func__), __func__);
    kiln_tensor keep =
        kiln_greater_equal(batch, drawn, kiln_constant(batch, KILN_F32, probability));
    kiln_tensor scaled = kiln_scale(batch, x, probability < 1 ? 1 / (1 - probability) : 0);
    return kiln_where(batch, keep, scaled, kiln_constant(batch, KILN_F32, 0));
}
