/* SPDX-License-Identifier: Apache-2.0 */
/* Every misuse of recording has its sentence: which call, which operand, which shapes. Nothing here
 * needs a device. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include <kiln/opencl.h>

#include "../support/context.h"
#include "../support/graph.h"

/* What a misuse has at hand. */
struct scene {
    kiln_batch *batch;
    kiln_tensor x, y;    /* f32 [4,8] and [4,7] */
    kiln_tensor v, s;    /* f32 [8] and a scalar */
    kiln_tensor i, u;    /* i32 and u8 [4,8] */
    kiln_tensor other;   /* of another batch */
    kiln_tensor before;  /* of this batch before a reset */
    kiln_tensor beyond;  /* of this batch, but more than it has */
    kiln_buffer *floats; /* f32 [4,8] */
    kiln_buffer *integers;
    kiln_buffer *longer;  /* f32 [4,9] */
    kiln_buffer *foreign; /* of another context */
};

static float memory[64];
static const kiln_tensor empty;

static kiln_buffer *imagine_buffer(kiln_context *context, kiln_type type, size_t n)
{
    kiln_buffer *buffer = calloc(1, sizeof *buffer);
    atomic_init(&buffer->references, 1);
    buffer->context = context;
    buffer->type = type;
    cr_assert(kiln__shape_make(2, (size_t[]){4, n}, &buffer->shape));
    buffer->bytes = 4 * n * 4;
    return buffer;
}

static struct scene set_scene(void)
{
    static kiln_batch *another;
    struct scene s = {.batch = imagined_batch()};
    another = imagined_batch();
    s.before = imagine_matrix(s.batch, 4, 8);
    expect_ok(kiln_batch_reset(s.batch));
    s.x = imagine_matrix(s.batch, 4, 8);
    s.y = imagine_matrix(s.batch, 4, 7);
    s.v = imagine_vector(s.batch, 8);
    s.s = kiln_constant(s.batch, KILN_F32, 1.5);
    s.i = kiln_upload(s.batch, KILN_I32, 2, (size_t[]){4, 8}, memory);
    s.u = kiln_upload(s.batch, KILN_U8, 2, (size_t[]){4, 8}, memory);
    s.other = imagine_matrix(another, 4, 8);
    s.beyond = (kiln_tensor){s.x.id + 1000};
    s.floats = imagine_buffer(imagined_cpu(), KILN_F32, 8);
    s.integers = imagine_buffer(imagined_cpu(), KILN_I32, 8);
    s.longer = imagine_buffer(imagined_cpu(), KILN_F32, 9);
    s.foreign = imagine_buffer(imagined_gpu(), KILN_F32, 8);
    kiln_batch_release(another);
    return s;
}

#define DIMS(...) sizeof((size_t[]){__VA_ARGS__}) / sizeof(size_t), ((size_t[]){__VA_ARGS__})
#define AXES(...) sizeof((int[]){__VA_ARGS__}) / sizeof(int), ((int[]){__VA_ARGS__})
#define I64(...) ((int64_t[]){__VA_ARGS__})

/* A misuse leaves the batch failed with its own sentence, and later calls do nothing. */
static void check_misuse(struct scene s, kiln_tensor result, kiln_status status,
                         const char *sentence)
{
    kiln_batch_cost cost;
    char *text;
    cr_expect_eq(result.id, 0, "a tensor in spite of: %s", sentence);
    expect_error(kiln_batch_status(s.batch), status, sentence);
    cr_expect_str_eq(without_call(kiln_batch_error(s.batch)), sentence);
    size_t nodes = s.batch->graph.nodes.count;
    cr_expect_eq(kiln_add(s.batch, s.x, s.x).id, 0);
    cr_expect_eq(kiln_sum(s.batch, s.other, 1, NULL, 0).id, 0);
    cr_expect_eq(kiln_read(s.batch, s.x, memory, 1), status);
    cr_expect_eq(s.batch->graph.nodes.count, nodes, "a failed batch still records");
    cr_expect_str_eq(without_call(kiln_batch_error(s.batch)), sentence);
    expect_error(kiln_batch_execute(s.batch), status, sentence);
    expect_error(kiln_batch_get_cost(s.batch, &cost), status, sentence);
    expect_error(kiln_batch_explain(s.batch, &text), status, sentence);
    cr_expect_null(text);
    expect_ok(kiln_batch_reset(s.batch));
    cr_expect_str_empty(kiln_batch_error(s.batch));
    cr_expect_neq(imagine_vector(s.batch, 3).id, 0, "a reset batch is not usable");
    kiln_batch_release(s.batch);
}

/* The misuse is an expression over the scene `s`. */
#define MISUSE(status, sentence, expression)                                                       \
    do {                                                                                           \
        struct scene s = set_scene();                                                              \
        kiln_tensor result = expression;                                                           \
        check_misuse(s, result, status, sentence);                                                 \
    } while (0)

/* Of a call that answers a status: it has to be an error, and there is no tensor. */
static kiln_tensor status_only(kiln_status status)
{
    cr_expect_lt(status, 0);
    return empty;
}

#define OTHER "is a tensor of another batch, or of this one before a reset"
#define EMPTY "is the empty tensor"
#define NINE DIMS(1, 1, 1, 1, 1, 1, 1, 1, 1)
#define VAST ((size_t)1 << 31)

static kiln_tensor tall(struct scene *s)
{
    return kiln_broadcast(s->batch, s->s, 2, (size_t[]){VAST, 1});
}

/* ---- handles ---- */

Test(errors, a_handle_that_names_nothing)
{
    MISUSE(KILN_INVALID_HANDLE, "kiln_add: operand a " EMPTY, kiln_add(s.batch, empty, s.x));
    MISUSE(KILN_INVALID_HANDLE, "kiln_add: operand b " EMPTY, kiln_add(s.batch, s.x, empty));
    MISUSE(KILN_INVALID_HANDLE, "kiln_mul: operand b " OTHER, kiln_mul(s.batch, s.x, s.other));
    MISUSE(KILN_INVALID_HANDLE, "kiln_exp: operand a " OTHER, kiln_exp(s.batch, s.before));
    MISUSE(KILN_INVALID_HANDLE, "kiln_neg: operand a names no tensor", kiln_neg(s.batch, s.beyond));
    MISUSE(KILN_INVALID_HANDLE, "kiln_sum: operand x " EMPTY, kiln_sum(s.batch, empty, 0, NULL, 0));
    MISUSE(KILN_INVALID_HANDLE, "kiln_cast: operand x " OTHER,
           kiln_cast(s.batch, s.other, KILN_I32));
    MISUSE(KILN_INVALID_HANDLE, "kiln_scale: operand x " EMPTY, kiln_scale(s.batch, empty, 2));
    MISUSE(KILN_INVALID_HANDLE, "kiln_reshape: operand x " OTHER,
           kiln_reshape(s.batch, s.before, DIMS(32)));
    MISUSE(KILN_INVALID_HANDLE, "kiln_transpose: operand x " EMPTY,
           kiln_transpose(s.batch, empty, NULL));
    MISUSE(KILN_INVALID_HANDLE, "kiln_slice: operand x " OTHER,
           kiln_slice(s.batch, s.other, I64(0, 0), I64(1, 1), NULL));
    MISUSE(KILN_INVALID_HANDLE, "kiln_broadcast: operand x " EMPTY,
           kiln_broadcast(s.batch, empty, DIMS(4, 8)));
    MISUSE(KILN_INVALID_HANDLE, "kiln_matmul: operand b " EMPTY, kiln_matmul(s.batch, s.x, empty));
    MISUSE(KILN_INVALID_HANDLE, "kiln_matmul_transposed: operand a " OTHER,
           kiln_matmul_transposed(s.batch, s.other, 1, s.x, 0));
    MISUSE(KILN_INVALID_HANDLE, "kiln_dot: operand b " EMPTY, kiln_dot(s.batch, s.v, empty));
    MISUSE(KILN_INVALID_HANDLE, "kiln_read: operand tensor " EMPTY,
           status_only(kiln_read(s.batch, empty, memory, 4)));
    MISUSE(KILN_INVALID_HANDLE, "kiln_export: operand tensor " OTHER,
           status_only(kiln_export(s.batch, s.other, s.floats)));
    MISUSE(KILN_INVALID_HANDLE, "kiln_rebind_upload: operand tensor " EMPTY,
           status_only(kiln_rebind_upload(s.batch, empty, memory)));
    MISUSE(KILN_INVALID_HANDLE, "kiln_rebind_upload: the tensor is no upload",
           status_only(kiln_rebind_upload(s.batch, kiln_neg(s.batch, s.x), memory)));
}

/* ---- shapes and types ---- */

Test(errors, what_does_not_fit)
{
    MISUSE(KILN_SHAPE_MISMATCH, "kiln_add: shapes [4,8] and [4,7] do not broadcast",
           kiln_add(s.batch, s.x, s.y));
    MISUSE(KILN_SHAPE_MISMATCH, "kiln_maximum: shapes [4,7] and [8] do not broadcast",
           kiln_maximum(s.batch, s.y, s.v));
    MISUSE(KILN_TYPE_MISMATCH, "kiln_add: operands are f32 and i32; cast one of them",
           kiln_add(s.batch, s.x, s.i));
    MISUSE(KILN_TYPE_MISMATCH, "kiln_exp: operands are i32, and only floating types are taken",
           kiln_exp(s.batch, s.i));
    MISUSE(KILN_TYPE_MISMATCH,
           "kiln_mean: the operand is u8, and only floating types are taken; cast it",
           kiln_mean(s.batch, s.u, 0, NULL, 0));
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_scale: i32 cannot hold 0.5", kiln_scale(s.batch, s.i, 0.5));
    MISUSE(KILN_SHAPE_MISMATCH, "kiln_reshape: shape [4,8] has 32 elements and shape [4,9] has 36",
           kiln_reshape(s.batch, s.x, DIMS(4, 9)));
    MISUSE(KILN_SHAPE_MISMATCH, "kiln_broadcast: shape [4,8] does not broadcast to [4,9]",
           kiln_broadcast(s.batch, s.x, DIMS(4, 9)));
    MISUSE(KILN_SHAPE_MISMATCH, "kiln_broadcast: shape [4,8] does not broadcast to [8]",
           kiln_broadcast(s.batch, s.x, DIMS(8)));
}

Test(errors, products_that_do_not_fit)
{
    MISUSE(KILN_SHAPE_MISMATCH,
           "kiln_matmul: shapes [4,8] and [4,7] do not fit: a's last dimension must be b's last "
           "but one, and leading dimensions must broadcast",
           kiln_matmul(s.batch, s.x, s.y));
    MISUSE(KILN_TYPE_MISMATCH,
           "kiln_matmul: operand b is i32, and only floating types are taken; cast it",
           kiln_matmul(s.batch, s.x, s.i));
    MISUSE(KILN_SHAPE_MISMATCH, "kiln_matmul: operand a of shape [] has too few dimensions",
           kiln_matmul(s.batch, s.s, s.x));
    MISUSE(KILN_SHAPE_MISMATCH,
           "kiln_matmul_transposed: operand a of shape [8] has too few dimensions",
           kiln_matmul_transposed(s.batch, s.v, 1, s.x, 1));
    MISUSE(KILN_SHAPE_MISMATCH,
           "kiln_matmul: shapes [3,4,8] and [2,8,4] do not fit: a's last dimension must be b's "
           "last but one, and leading dimensions must broadcast",
           kiln_matmul(s.batch, imagine(s.batch, DIMS(3, 4, 8)), imagine(s.batch, DIMS(2, 8, 4))));
    MISUSE(KILN_SHAPE_MISMATCH, "kiln_dot: shapes [8] and [9] are not two vectors of one length",
           kiln_dot(s.batch, s.v, imagine_vector(s.batch, 9)));
    MISUSE(KILN_SHAPE_MISMATCH,
           "kiln_dot: shapes [4,8] and [4,8] are not two vectors of one length",
           kiln_dot(s.batch, s.x, s.x));
    MISUSE(KILN_TYPE_MISMATCH, "kiln_dot: operands are f32 and i32; cast one of them",
           kiln_dot(s.batch, s.v, kiln_cast(s.batch, s.v, KILN_I32)));
}

Test(errors, buffers_that_do_not_fit)
{
    MISUSE(KILN_TYPE_MISMATCH, "kiln_export: the tensor is f32 and the buffer is i32",
           status_only(kiln_export(s.batch, s.x, s.integers)));
    MISUSE(KILN_SHAPE_MISMATCH, "kiln_export: the tensor is [4,8] and the buffer is [4,9]",
           status_only(kiln_export(s.batch, s.x, s.longer)));
}

/* ---- arguments ---- */

Test(errors, inputs_and_types_that_are_none)
{
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_upload: 99 is no data type",
           kiln_upload(s.batch, (kiln_type)99, DIMS(4), memory));
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_upload: 257 is no data type",
           kiln_upload(s.batch, (kiln_type)257, DIMS(4), memory));
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_upload: 9 dimensions, and 8 are the most",
           kiln_upload(s.batch, KILN_F32, NINE, memory));
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_upload: dims is NULL",
           kiln_upload(s.batch, KILN_F32, 2, NULL, memory));
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_upload: data is NULL",
           kiln_upload(s.batch, KILN_F32, DIMS(4), NULL));
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_import: buffer is NULL", kiln_import(s.batch, NULL));
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_import: the buffer is of another context",
           kiln_import(s.batch, s.foreign));
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_constant: 0 is no data type",
           kiln_constant(s.batch, (kiln_type)0, 1));
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_constant: u8 cannot hold 256",
           kiln_constant(s.batch, KILN_U8, 256));
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_constant: i32 cannot hold 0.25",
           kiln_constant(s.batch, KILN_I32, 0.25));
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_constant: i32 cannot hold nan",
           kiln_constant(s.batch, KILN_I32, NAN));
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_constant: i64 cannot hold 9.2233720368547758e+18",
           kiln_constant(s.batch, KILN_I64, 0x1p63)); /* which its highest is rounded to */
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_fill: i64 cannot hold 9.2233720368547758e+18",
           kiln_fill(s.batch, KILN_I64, DIMS(4), 0x1p63));
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_cast: 77 is no data type",
           kiln_cast(s.batch, s.x, (kiln_type)77));
}

Test(errors, dimensions_that_are_none)
{
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_reshape: 9 dimensions, and 8 are the most",
           kiln_reshape(s.batch, s.x, NINE));
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_reshape: dims is NULL",
           kiln_reshape(s.batch, s.x, 2, NULL));
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_broadcast: dims is NULL",
           kiln_broadcast(s.batch, s.x, 2, NULL));
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_broadcast: 9 dimensions, and 8 are the most",
           kiln_broadcast(s.batch, s.x, NINE));
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_transpose: shape [8] has no two dimensions to swap",
           kiln_transpose(s.batch, s.v, NULL));
    MISUSE(KILN_INVALID_ARGUMENT,
           "kiln_transpose: axes are no order of the 2 dimensions of shape [4,8]",
           kiln_transpose(s.batch, s.x, (size_t[]){1, 1}));
    MISUSE(KILN_INVALID_ARGUMENT,
           "kiln_transpose: axes are no order of the 2 dimensions of shape [4,8]",
           kiln_transpose(s.batch, s.x, (size_t[]){0, 2}));
}

Test(errors, slices_that_are_none)
{
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_slice: start is NULL",
           kiln_slice(s.batch, s.x, NULL, I64(1, 1), NULL));
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_slice: stop is NULL",
           kiln_slice(s.batch, s.x, I64(1, 1), NULL, NULL));
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_slice: 0 to 9 by 1 is not within dimension 1, which has 8",
           kiln_slice(s.batch, s.x, I64(0, 0), I64(4, 9), NULL));
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_slice: -1 to 4 by 1 is not within dimension 0, which has 4",
           kiln_slice(s.batch, s.x, I64(-1, 0), I64(4, 8), NULL));
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_slice: the step of dimension 1 is 0",
           kiln_slice(s.batch, s.x, I64(0, 0), I64(4, 8), I64(1, 0)));
    MISUSE(KILN_INVALID_ARGUMENT,
           "kiln_slice: 4 to -1 by -1 is not within dimension 0, which has 4",
           kiln_slice(s.batch, s.x, I64(4, 0), I64(-1, 8), I64(-1, 1)));
    MISUSE(KILN_INVALID_ARGUMENT,
           "kiln_slice: 9223372036854775807 to -9223372036854775808 by 1 is not within dimension "
           "0, which has 4",
           kiln_slice(s.batch, s.x, I64(INT64_MAX, 0), I64(INT64_MIN, 8), NULL));
}

Test(errors, axes_that_are_none)
{
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_sum: axis 2 is not one of the dimensions of shape [4,8]",
           kiln_sum(s.batch, s.x, AXES(2), 0));
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_max: axis -3 is not one of the dimensions of shape [4,8]",
           kiln_max(s.batch, s.x, AXES(-3), 1));
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_sum: axis -1 is named twice",
           kiln_sum(s.batch, s.x, AXES(1, -1), 0));
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_sum: axes is NULL", kiln_sum(s.batch, s.x, 2, NULL, 0));
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_max: shape [3,0] has no elements to choose from",
           kiln_max(s.batch, imagine_matrix(s.batch, 3, 0), AXES(1), 0));
}

Test(errors, memory_that_is_none)
{
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_read: f32[4,8] has 128 bytes, and room for 64 was given",
           status_only(kiln_read(s.batch, s.x, memory, 64)));
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_read: data is NULL",
           status_only(kiln_read(s.batch, s.x, NULL, 128)));
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_export: buffer is NULL",
           status_only(kiln_export(s.batch, s.x, NULL)));
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_export: the buffer is of another context",
           status_only(kiln_export(s.batch, s.x, s.foreign)));
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_rebind_upload: data is NULL",
           status_only(kiln_rebind_upload(s.batch, s.x, NULL)));
    MISUSE(KILN_INVALID_ARGUMENT,
           "kiln_rebind_read: read 0 of a batch that was asked for 0, numbered from 0",
           status_only(kiln_rebind_read(s.batch, 0, memory, sizeof memory)));
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_rebind_read: read 0 has 32 bytes, and room for 8 was given",
           (kiln_read(s.batch, s.v, memory, 32),
            status_only(kiln_rebind_read(s.batch, 0, memory, 8))));
    MISUSE(
        KILN_INVALID_ARGUMENT, "kiln_rebind_read: data is NULL",
        (kiln_read(s.batch, s.v, memory, 32), status_only(kiln_rebind_read(s.batch, 0, NULL, 32))));
}

/* ---- sizes ---- */

Test(errors, a_size_beyond_all)
{
    MISUSE(KILN_TOO_LARGE,
           "kiln_upload: shape [2147483648,2147483648,2147483648] has too many elements",
           kiln_upload(s.batch, KILN_U8, DIMS(VAST, VAST, VAST), memory));
    MISUSE(KILN_TOO_LARGE,
           "kiln_upload: 1073741828 bytes, and the device allocates at most 1073741824",
           kiln_upload(s.batch, KILN_F32, DIMS(IMAGINED_LARGEST / 4 + 1), memory));
    MISUSE(KILN_TOO_LARGE, "kiln_reshape: shape [2147483648,2147483648] has too many elements",
           kiln_reshape(s.batch, s.x, DIMS(VAST, VAST)));
    MISUSE(KILN_TOO_LARGE, "kiln_broadcast: shape [2147483648,2147483648] has too many elements",
           kiln_broadcast(s.batch, s.s, DIMS(VAST, VAST)));
    MISUSE(KILN_TOO_LARGE,
           "kiln_add: shapes [2147483648,1] and [1,2147483648] broadcast to too many elements",
           kiln_add(s.batch, tall(&s), kiln_transpose(s.batch, tall(&s), NULL)));
    MISUSE(KILN_TOO_LARGE,
           "kiln_matmul_transposed: shapes [2147483648,1] and [1,2147483648] have a product with "
           "too many elements",
           kiln_matmul_transposed(s.batch, tall(&s), 0, tall(&s), 1));
    MISUSE(KILN_TOO_LARGE, "kiln_argmax: 2147483648 positions do not fit an i32",
           kiln_argmax(s.batch, tall(&s), 0, NULL, 0));
}

/* ---- quantised products ---- */

static kiln_tensor bytes(const struct scene *s, size_t m, size_t n)
{
    return kiln_fill(s->batch, KILN_I8, 2, (size_t[]){m, n}, 1);
}

Test(errors, quantised_products_name_their_call_and_operand)
{
    kiln_tensor scale;
    MISUSE(KILN_TYPE_MISMATCH,
           "kiln_quantize: operand x is i32, and only floating types are taken; cast it",
           kiln_quantize(s.batch, s.i, AXES(1), &scale));
    MISUSE(KILN_INVALID_ARGUMENT,
           "kiln_quantize: axis 2 is not one of the dimensions of shape [4,8]",
           kiln_quantize(s.batch, s.x, AXES(2), &scale));
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_quantize: scale is NULL",
           kiln_quantize(s.batch, s.x, AXES(1), NULL));
    MISUSE(KILN_INVALID_HANDLE, "kiln_matmul_quantized: operand b " EMPTY,
           kiln_matmul_quantized(s.batch, s.x, empty, empty, 0, empty));
    MISUSE(KILN_TYPE_MISMATCH,
           "kiln_matmul_quantized: operand a is u8, and only i8 and floating types are taken; "
           "cast it",
           kiln_matmul_quantized(s.batch, s.u, empty, s.x, 1, empty));
    MISUSE(KILN_SHAPE_MISMATCH,
           "kiln_matmul_quantized: operand b of shape [8] has too few dimensions",
           kiln_matmul_quantized(s.batch, s.x, empty, s.v, 0, empty));
    MISUSE(KILN_SHAPE_MISMATCH,
           "kiln_matmul_quantized: shapes [2,1041] and [1040,2] do not fit: a's last dimension "
           "must be b's last but one, and leading dimensions must broadcast",
           kiln_matmul_quantized(s.batch, bytes(&s, 2, 1041), empty, bytes(&s, 1040, 2), 0, empty));
    MISUSE(KILN_TOO_LARGE,
           "kiln_matmul_quantized: sums of 131072 products of i8 do not fit in i32; at most "
           "131071 do",
           kiln_matmul_quantized(s.batch, bytes(&s, 2, 131072), empty, bytes(&s, 2, 131072), 1,
                                 empty));
    MISUSE(KILN_SHAPE_MISMATCH,
           "kiln_matmul_quantized: a_scale of shape [4,8] is not one scale for each row of a "
           "product of shape [4,4]",
           kiln_matmul_quantized(s.batch, s.x, s.x, s.x, 1, empty));
    MISUSE(KILN_SHAPE_MISMATCH,
           "kiln_matmul_quantized: b_scale of shape [8] is not one scale for each column of a "
           "product of shape [4,4]",
           kiln_matmul_quantized(s.batch, s.x, empty, s.x, 1, s.v));
    MISUSE(KILN_TYPE_MISMATCH,
           "kiln_matmul_quantized: operand b_scale is i32, and only floating types are taken; "
           "cast it",
           kiln_matmul_quantized(s.batch, s.x, empty, s.x, 1, s.i));
}

/* ---- normalizations ---- */

Test(errors, normalizations_name_their_call_and_operand)
{
    MISUSE(KILN_INVALID_HANDLE, "kiln_softmax: operand x " EMPTY,
           kiln_softmax(s.batch, empty, AXES(1)));
    MISUSE(KILN_TYPE_MISMATCH,
           "kiln_log_softmax: operand x is i32, and only floating types are taken; cast it",
           kiln_log_softmax(s.batch, s.i, AXES(1)));
    MISUSE(KILN_INVALID_ARGUMENT,
           "kiln_logsumexp: axis 2 is not one of the dimensions of shape [4,8]",
           kiln_logsumexp(s.batch, s.x, AXES(2), 0));
    MISUSE(KILN_INVALID_ARGUMENT, "kiln_norm: axes is NULL", kiln_norm(s.batch, s.x, 1, NULL, 0));
    MISUSE(KILN_INVALID_ARGUMENT,
           "kiln_variance: the correction is -1, and must be finite and not negative",
           kiln_variance(s.batch, s.x, AXES(1), -1, 0));
    MISUSE(KILN_INVALID_ARGUMENT,
           "kiln_rms_norm: epsilon is nan, and must be finite and not negative",
           kiln_rms_norm(s.batch, s.x, empty, AXES(1), NAN));
    MISUSE(KILN_INVALID_HANDLE, "kiln_layer_norm: operand scale " OTHER,
           kiln_layer_norm(s.batch, s.x, s.other, empty, AXES(1), 0));
    MISUSE(KILN_TYPE_MISMATCH,
           "kiln_layer_norm: operand shift is u8, and only floating types are taken; cast it",
           kiln_layer_norm(s.batch, s.x, s.v, s.u, AXES(1), 0));
    MISUSE(KILN_SHAPE_MISMATCH,
           "kiln_rms_norm: operand scale of shape [4,8] does not broadcast to x of shape [8]",
           kiln_rms_norm(s.batch, s.v, s.x, AXES(0), 0));
}
