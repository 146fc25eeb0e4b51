/* SPDX-License-Identifier: Apache-2.0 */
/* Who made the first NaN, the first infinity, and who had an index out of range. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include <kiln/elementwise.h>
#include <kiln/reductions.h>

#include "../support/context.h"

#define DIMS(...) sizeof((size_t[]){__VA_ARGS__}) / sizeof(size_t), ((size_t[]){__VA_ARGS__})

enum { N = 8 };

static float values[N] = {1, 2, 3, -4, 5, 6, 7, 8}, result[N * N];

static kiln_context *open_looking(double share)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    options.check_values = share;
    return open_context_with(&options);
}

/* The batch, run once more after `value` has been put at its input's `place`, says so, or nothing.
 */
static void expect_blame(kiln_batch *batch, const char *sentence)
{
    kiln_status status = kiln_batch_execute(batch);
    if (sentence)
        expect_error_part(status, KILN_BAD_VALUE, sentence);
    else
        expect_ok(status);
    cr_expect_eq(kiln_batch_status(batch), KILN_OK, "an error of a run is not sticky");
}

/* The logarithm of a negative number, in the middle of one kernel. */
Test(values, name_who_made_the_first_nan)
{
    kiln_context *context = open_looking(1);
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor x = kiln_upload(batch, KILN_F32, DIMS(2, 4), values);
    kiln_tensor y = kiln_name(batch, kiln_log(batch, x), "layer3.q");
    kiln_read(batch, kiln_exp(batch, kiln_sqrt(batch, y)), result, sizeof *result * N);
    memset(result, 0x55, sizeof result);
    float before = result[0];
    expect_blame(batch, "kiln_batch_execute: %1 log \"layer3.q\" (kiln_log, call 2), f32[2,4]: "
                        "element [0,3] is NaN, and no operand has one");
    cr_expect_eq(result[0], before, "the batch has run");
    values[3] = 4;
    expect_blame(batch, NULL);
    values[3] = NAN; /* nobody's making */
    expect_blame(batch, NULL);
    values[3] = 0; /* log makes an infinity, the root of which is a NaN */
    expect_blame(batch, "%1 log \"layer3.q\" (kiln_log, call 2), f32[2,4]: element [0,3] is "
                        "infinite, and all operands are finite");
    kiln_batch_release(batch);
    close_context(context);
}

/* inf - inf, of an infinity that was given; and one that its own call replaces. */
Test(values, name_who_makes_a_nan_of_infinities_and_not_what_a_call_hides)
{
    kiln_context *context = open_looking(1);
    kiln_batch *batch = kiln_batch_create(context);
    values[3] = INFINITY;
    kiln_tensor x = kiln_upload(batch, KILN_F32, DIMS(N), values);
    kiln_tensor y = kiln_logsumexp(batch, x, 1, (int[]){0}, 0);
    kiln_read(batch, y, result, sizeof *result);
    expect_blame(batch, NULL);
    kiln_tensor z = kiln_name(batch, kiln_sub(batch, x, x), "difference");
    kiln_read(batch, z, result + 1, sizeof *result * N);
    expect_blame(batch, "sub \"difference\" (kiln_sub, call 4), f32[8]: element [3] is NaN, and no "
                        "operand has one, only infinities");
    values[3] = -4;
    expect_blame(batch, NULL);
    kiln_batch_release(batch);
    close_context(context);
}

/* Parameters are not spoiled. */
Test(values, leave_buffers_as_they_are)
{
    kiln_context *context = open_looking(1);
    kiln_batch *batch = kiln_batch_create(context);
    kiln_buffer *buffer = make_buffer(context, N, values);
    kiln_tensor x = kiln_import(batch, buffer);
    expect_ok(kiln_export(batch, kiln_sub(batch, x, kiln_log(batch, x)), buffer));
    expect_blame(batch, "log (kiln_log, call 2), f32[8]: element [3] is NaN");
    expect_buffer(buffer, N, values);
    kiln_batch_release(batch);
    kiln_buffer_release(buffer);
    close_context(context);
}

Test(values, tell_indices_out_of_range)
{
    static int32_t indices[3] = {0, 7, 2};
    kiln_context *context = open_looking(1);
    kiln_batch *batch = kiln_batch_create(context);
    values[3] = 4;
    kiln_tensor x = kiln_upload(batch, KILN_F32, DIMS(4, 2), values);
    kiln_tensor where = kiln_upload(batch, KILN_I32, DIMS(3), indices);
    kiln_tensor rows = kiln_name(batch, kiln_gather(batch, x, where, 0), "words");
    kiln_tensor back = kiln_scatter_add(batch, x, where, rows, 0);
    kiln_tensor whole = kiln_gather(batch, kiln_cast(batch, x, KILN_I32), where, 0);
    kiln_read(batch, back, result, sizeof *result * N);
    expect_blame(batch, "gather \"words\" (kiln_gather, call 3), f32[3,2]: index [1] is 7, and "
                        "dimension 0 of [4,2] has 4");
    expect_ok(kiln_batch_reset(batch));
    x = kiln_upload(batch, KILN_F32, DIMS(4, 2), values);
    where = kiln_upload(batch, KILN_I32, DIMS(3), indices);
    rows = kiln_upload(batch, KILN_F32, DIMS(3, 2), values);
    back = kiln_scatter_add(batch, x, where, rows, 0);
    kiln_read(batch, back, result, sizeof *result * N);
    expect_blame(batch, "scatter_add (kiln_scatter_add, call 4), f32[4,2]: index [1] is 7");
    indices[1] = 1;
    expect_blame(batch, NULL);
    (void)whole;
    kiln_batch_release(batch);
    close_context(context);
}

/* A label to ignore is no class, and nobody is to blame. */
Test(values, tell_labels_that_are_no_class)
{
    static int32_t labels[2] = {1, 9};
    kiln_cross_entropy_options options = KILN_CROSS_ENTROPY_INIT;
    options.ignores = 1;
    options.ignored_label = 9;
    kiln_context *context = open_looking(1);
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor x = kiln_upload(batch, KILN_F32, DIMS(2, 4), values), gradient;
    kiln_tensor y = kiln_upload(batch, KILN_I32, DIMS(2), labels);
    kiln_tensor loss = kiln_cross_entropy_with(batch, x, y, &options);
    expect_ok(kiln_grad(batch, loss, &x, 1, &gradient));
    kiln_read(batch, gradient, result, sizeof *result * N);
    kiln_read(batch, loss, result + N, sizeof *result);
    expect_blame(batch, NULL);
    loss = kiln_name(batch, kiln_cross_entropy(batch, x, y), "loss");
    kiln_read(batch, loss, result + N + 1, sizeof *result);
    expect_blame(batch, "where \"loss\" (kiln_cross_entropy, call 7), f32[2]: element [1] is NaN");
    kiln_batch_release(batch);
    close_context(context);
}

/* Half of the runs: the first, the third. */
Test(values, of_a_share_of_the_runs)
{
    kiln_context *context = open_looking(0.5);
    kiln_batch *batch = kiln_batch_create(context);
    values[3] = -4;
    kiln_tensor x = kiln_upload(batch, KILN_F32, DIMS(N), values);
    kiln_read(batch, kiln_sqrt(batch, x), result, sizeof *result * N);
    for (int i = 0; i < 2; i++) {
        expect_blame(batch, "sqrt (kiln_sqrt, call 2)");
        expect_blame(batch, NULL);
    }
    kiln_batch_release(batch);
    close_context(context);
}
