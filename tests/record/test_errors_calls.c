/* SPDX-License-Identifier: Apache-2.0 */
/* Every public call names itself in its errors, and bears a missing batch. No device. */
#include <criterion/criterion.h>
#include <stdio.h>

#include <kiln/opencl.h>

#include "../support/context.h"
#include "../support/graph.h"

static float memory[64];
static const kiln_tensor empty;

#define AXES(...) sizeof((int[]){__VA_ARGS__}) / sizeof(int), ((int[]){__VA_ARGS__})
#define EMPTY "is the empty tensor"

/* ---- every operation of the tables ---- */

static void expect_null_batch(kiln_tensor result, const char *name)
{
    char sentence[80];
    snprintf(sentence, sizeof sentence, "kiln_%s: batch is NULL", name);
    cr_expect_eq(result.id, 0);
    cr_expect_str_eq(without_call(kiln_last_error()), sentence);
}

static void expect_batch_error(kiln_batch *batch, const char *name, const char *rest)
{
    char sentence[160];
    snprintf(sentence, sizeof sentence, "kiln_%s: %s", name, rest);
    cr_expect_str_eq(without_call(kiln_batch_error(batch)), sentence);
    expect_ok(kiln_batch_reset(batch));
}

#define ARGUMENTS_1 first
#define ARGUMENTS_2 first, x
#define ARGUMENTS_3 first, x, x
#define ARGUMENTS_1N(number) first, 1
#define ARGUMENTS_1NN(number, other) first, 1, 2
#define CALL(name, ...) kiln_##name(__VA_ARGS__)

Test(errors_calls, every_elementwise_operation_checks_its_batch_and_handles)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x, first;
#define KILN_OP(name, arity, ...)                                                                  \
    first = x = imagine_vector(batch, 3);                                                          \
    if (kiln__elementwise_rows[KILN__OP_##name].types == KILN__SELECTION)                          \
        first = kiln_isnan(batch, x);                                                              \
    if (kiln__elementwise_rows[KILN__OP_##name].types == KILN__INTEGER)                            \
        first = x = kiln_cast(batch, x, KILN_I32);                                                 \
    expect_null_batch(CALL(name, NULL, ARGUMENTS_##arity), #name);                                 \
    cr_expect_neq(CALL(name, batch, ARGUMENTS_##arity).id, 0);                                     \
    first = empty;                                                                                 \
    cr_expect_eq(CALL(name, batch, ARGUMENTS_##arity).id, 0);                                      \
    expect_batch_error(batch, #name, "operand a " EMPTY);
#define KILN_OP_INTERNAL(name, ...)
#include "ops/elementwise.def"
#undef KILN_OP_INTERNAL
#undef KILN_OP
    kiln_batch_release(batch);
}

Test(errors_calls, every_reduction_checks_its_batch_handle_and_axes)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x;
#define KILN_REDUCE(name, ...)                                                                     \
    x = imagine_vector(batch, 3);                                                                  \
    expect_null_batch(kiln_##name(NULL, x, 0, NULL, 0), #name);                                    \
    cr_expect_neq(kiln_##name(batch, x, 0, NULL, 1).id, 0);                                        \
    cr_expect_eq(kiln_##name(batch, empty, 0, NULL, 0).id, 0);                                     \
    expect_batch_error(batch, #name, "operand x " EMPTY);                                          \
    x = imagine_vector(batch, 3);                                                                  \
    cr_expect_eq(kiln_##name(batch, x, AXES(1), 0).id, 0);                                         \
    expect_batch_error(batch, #name, "axis 1 is not one of the dimensions of shape [3]");
#include "ops/reduce.def"
#undef KILN_REDUCE
    kiln_batch_release(batch);
}

/* ---- no batch at all ---- */

Test(errors_calls, every_other_recording_call_without_a_batch)
{
    kiln_tensor x = {1};
    expect_null_batch(kiln_upload(NULL, KILN_F32, 0, NULL, memory), "upload");
    expect_null_batch(kiln_import(NULL, NULL), "import");
    expect_null_batch(kiln_constant(NULL, KILN_F32, 1), "constant");
    expect_null_batch(kiln_scale(NULL, x, 1), "scale");
    expect_null_batch(kiln_cast(NULL, x, KILN_F32), "cast");
    expect_null_batch(kiln_reshape(NULL, x, 0, NULL), "reshape");
    expect_null_batch(kiln_transpose(NULL, x, NULL), "transpose");
    expect_null_batch(kiln_slice(NULL, x, NULL, NULL, NULL), "slice");
    expect_null_batch(kiln_broadcast(NULL, x, 0, NULL), "broadcast");
    expect_null_batch(kiln_matmul(NULL, x, x), "matmul");
    expect_null_batch(kiln_matmul_transposed(NULL, x, 0, x, 0), "matmul_transposed");
    expect_null_batch(kiln_dot(NULL, x, x), "dot");
    expect_null_batch(kiln_matmul_quantized(NULL, x, x, x, 0, x), "matmul_quantized");
    expect_null_batch(kiln_quantize(NULL, x, 0, NULL, &x), "quantize");
    expect_null_batch(kiln_lerp(NULL, x, x, x), "lerp");
    expect_null_batch(kiln_slerp(NULL, x, x, x), "slerp");
    expect_error(kiln_read(NULL, x, memory, 4), KILN_INVALID_ARGUMENT, "kiln_read: batch is NULL");
    expect_error(kiln_export(NULL, x, NULL), KILN_INVALID_ARGUMENT, "kiln_export: batch is NULL");
    expect_error(kiln_rebind_upload(NULL, x, memory), KILN_INVALID_ARGUMENT,
                 "kiln_rebind_upload: batch is NULL");
    expect_error(kiln_rebind_read(NULL, 0, memory, 4), KILN_INVALID_ARGUMENT,
                 "kiln_rebind_read: batch is NULL");
}

Test(errors_calls, every_question_without_an_object)
{
    kiln_event *event;
    kiln_batch_cost cost;
    char *text;
    kiln_batch *batch = imagined_batch();
    expect_error(kiln_batch_execute(NULL), KILN_INVALID_ARGUMENT,
                 "kiln_batch_execute: batch is NULL");
    expect_error(kiln_batch_submit(NULL, &event), KILN_INVALID_ARGUMENT,
                 "kiln_batch_submit: batch is NULL");
    cr_expect_null(event);
    expect_error(kiln_batch_reset(NULL), KILN_INVALID_ARGUMENT, "kiln_batch_reset: batch is NULL");
    expect_error(kiln_batch_get_cost(NULL, &cost), KILN_INVALID_ARGUMENT,
                 "kiln_batch_get_cost: batch is NULL");
    expect_error(kiln_batch_get_cost(batch, NULL), KILN_INVALID_ARGUMENT,
                 "kiln_batch_get_cost: cost is NULL");
    expect_error(kiln_batch_explain(NULL, &text), KILN_INVALID_ARGUMENT,
                 "kiln_batch_explain: batch is NULL");
    expect_error(kiln_batch_explain(batch, NULL), KILN_INVALID_ARGUMENT,
                 "kiln_batch_explain: text is NULL");
    expect_error(kiln_tensor_shape(NULL, empty, NULL, NULL, NULL), KILN_INVALID_ARGUMENT,
                 "kiln_tensor_shape: batch is NULL");
    expect_error(kiln_tensor_shape(batch, empty, NULL, NULL, NULL), KILN_INVALID_HANDLE,
                 "kiln_tensor_shape: the tensor is none of this batch");
    cr_expect_eq(kiln_batch_status(batch), KILN_OK, "a question is not sticky");
    cr_expect_null(kiln_batch_create(NULL));
    cr_expect_str_eq(kiln_last_error(), "kiln_batch_create: context is NULL");
    cr_expect_eq(kiln_batch_status(NULL), KILN_INVALID_ARGUMENT);
    cr_expect_str_not_empty(kiln_batch_error(NULL));
    cr_expect_eq(kiln_batch_operation_count(NULL), 0u);
    cr_expect_eq(kiln_batch_buffer_count(NULL), 0u);
    cr_expect_eq(kiln_batch_read_count(NULL), 0u);
    kiln_batch_release(batch);
    kiln_batch_release(NULL);
    kiln_free(NULL);
}

Test(errors_calls, a_batch_fails_by_its_caller_s_own_words)
{
    kiln_context *context = open_context();
    kiln_batch *batch = kiln_batch_create(context);
    expect_error(kiln_batch_fail(NULL, KILN_INVALID_ARGUMENT, "x"), KILN_INVALID_ARGUMENT,
                 "kiln_batch_fail: batch is NULL");
    expect_error(kiln_batch_fail(batch, KILN_OK, "x"), KILN_INVALID_ARGUMENT,
                 "kiln_batch_fail: 0 is no error");
    expect_error(kiln_batch_fail(batch, (kiln_status)-999, "x"), KILN_INVALID_ARGUMENT,
                 "kiln_batch_fail: -999 is no error");
    cr_expect_eq(kiln_batch_status(batch), KILN_OK);
    expect_error(kiln_batch_fail(batch, KILN_SHAPE_MISMATCH, "rows of 3%s, not 4"),
                 KILN_SHAPE_MISMATCH, "rows of 3%s, not 4");
    cr_expect_str_eq(kiln_batch_error(batch), "rows of 3%s, not 4");
    cr_expect_eq(kiln_batch_fail(batch, KILN_UNSUPPORTED, "later"), KILN_SHAPE_MISMATCH);
    cr_expect_str_eq(kiln_batch_error(batch), "rows of 3%s, not 4");
    cr_expect_eq(kiln_batch_execute(batch), KILN_SHAPE_MISMATCH);
    kiln_batch_release(batch);
    kiln_context_release(context);
}

/* ---- words ---- */

Test(errors_calls, the_first_error_stays_beside_later_ones_of_the_thread)
{
    kiln_batch *batch = imagined_batch(), *second = imagined_batch();
    kiln_exp(batch, empty);
    kiln_log(second, empty);
    cr_expect_str_eq(without_call(kiln_batch_error(batch)), "kiln_exp: operand a " EMPTY);
    cr_expect_str_eq(without_call(kiln_last_error()), "kiln_log: operand a " EMPTY);
    kiln_batch_release(batch);
    kiln_batch_release(second);
}

Test(errors_calls, every_status_has_a_name_and_a_text)
{
#define STATUS(name, value, text)                                                                  \
    cr_expect_str_eq(kiln_status_name((kiln_status)(value)), #name);                               \
    cr_expect_str_eq(kiln_status_text(KILN_##name), text);
    KILN_STATUS_MAP(STATUS)
    cr_expect_str_eq(kiln_status_name((kiln_status)-99), "UNKNOWN");
    cr_expect_str_eq(kiln_status_text((kiln_status)99), "not a status of kiln");
}

Test(errors_calls, a_long_shape_is_cut_not_overrun)
{
    size_t most[8] = {0};
    kiln_batch *batch = imagined_batch();
    for (size_t i = 1; i < 8; i++)
        most[i] = SIZE_MAX;
    kiln_tensor x = imagine(batch, 8, most);
    cr_expect_eq(kiln_add(batch, x, imagine_vector(batch, 7)).id, 0);
    expect_error_part(kiln_batch_status(batch), KILN_SHAPE_MISMATCH,
                      "kiln_add: shapes [0,18446744073709551615,18446744073709551615");
    kiln_batch_release(batch);
}
