/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory that outlives batches. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "../support/context.h"

enum { N = 1000 };

static float content[N], found[N];

/* ---- making ---- */

Test(buffers, know_their_type_shape_and_bytes)
{
    kiln_context *context = open_context();
    kiln_buffer *buffer;
    kiln_type type;
    size_t rank, dims[KILN_MAX_RANK];
    expect_ok(kiln_buffer_create(context, KILN_I32, 2, (size_t[]){3, 5}, &buffer));
    expect_ok(kiln_buffer_shape(buffer, &type, &rank, dims));
    cr_expect_eq(type, KILN_I32);
    cr_expect_eq(rank, 2u);
    cr_expect_arr_eq(dims, ((size_t[KILN_MAX_RANK]){3, 5}), sizeof dims);
    cr_expect_eq(kiln_buffer_bytes(buffer), 60u);
    cr_expect_eq(kiln_buffer_bytes(NULL), 0u);
    expect_ok(kiln_buffer_shape(buffer, NULL, NULL, NULL));
    kiln_buffer_release(buffer);
    close_context(context);
}

Test(buffers, are_counted_while_someone_holds_them)
{
    kiln_context *context = open_context();
    kiln_buffer *buffer = make_buffer(context, N, NULL);
    kiln_batch *batch = kiln_batch_create(context);
    kiln_buffer_retain(buffer);
    kiln_import(batch, buffer);
    kiln_buffer_release(buffer);
    kiln_buffer_release(buffer); /* the batch still has it */
    cr_expect_eq(stats_of(context).buffers_live, 1u);
    cr_expect_eq(stats_of(context).buffer_bytes, 4u * N);
    expect_ok(kiln_batch_reset(batch));
    cr_expect_eq(stats_of(context).buffers_live, 0u);
    cr_expect_eq(stats_of(context).buffer_bytes, 0u);
    kiln_buffer_retain(NULL);
    kiln_buffer_release(NULL);
    kiln_batch_release(batch);
    close_context(context);
}

Test(buffers, hold_the_context)
{
    kiln_context *context = open_context();
    kiln_buffer *buffer = make_buffer(context, N, content);
    kiln_context_release(context);
    expect_buffer(buffer, N, content);
    kiln_buffer_release(buffer);
}

Test(buffers, that_cannot_be_made)
{
    kiln_context *context = open_context();
    kiln_buffer *buffer = (kiln_buffer *)&content;
    const size_t n = 4, large = (size_t)1 << 31;
    expect_error(kiln_buffer_create(context, KILN_F32, 1, &n, NULL), KILN_INVALID_ARGUMENT,
                 "kiln_buffer_create: buffer is NULL");
    expect_error(kiln_buffer_create(NULL, KILN_F32, 1, &n, &buffer), KILN_INVALID_ARGUMENT,
                 "kiln_buffer_create: context is NULL");
    cr_expect_null(buffer);
    expect_error(kiln_buffer_create(context, KILN_F32, 1, NULL, &buffer), KILN_INVALID_ARGUMENT,
                 "kiln_buffer_create: dims is NULL");
    expect_error(kiln_buffer_create(context, (kiln_type)0, 1, &n, &buffer), KILN_INVALID_ARGUMENT,
                 "kiln_buffer_create: 0 is no data type");
    expect_error(kiln_buffer_create(context, KILN_F32, 9, (size_t[9]){0}, &buffer),
                 KILN_INVALID_ARGUMENT, "kiln_buffer_create: 9 dimensions, and 8 are the most");
    expect_error(kiln_buffer_create(context, KILN_F32, 2, (size_t[]){large, large}, &buffer),
                 KILN_TOO_LARGE,
                 "kiln_buffer_create: shape [2147483648,2147483648] has too many elements");
    expect_error_part(kiln_buffer_create(context, KILN_F32, 2, (size_t[]){large, 1 << 20}, &buffer),
                      KILN_OUT_OF_DEVICE_MEMORY,
                      "kiln_buffer_create: no 9007199254740992 bytes of device memory");
    cr_expect(strstr(kiln_last_error(), "; the device has "), "%s", kiln_last_error());
    cr_expect_null(buffer);
    cr_expect_eq(stats_of(context).buffers_live, 0u);
    close_context(context);
}

/* ---- content ---- */

Test(buffers, keep_what_is_written_into_a_part)
{
    kiln_context *context = open_context();
    kiln_buffer *buffer = make_buffer(context, N, content);
    fill(content, N, 1);
    expect_ok(kiln_buffer_write(buffer, 0, content, sizeof content));
    content[10] = 100;
    content[11] = 200;
    expect_ok(kiln_buffer_write(buffer, 40, &content[10], 8));
    expect_buffer(buffer, N, content);
    expect_ok(kiln_buffer_read(buffer, 4 * (N - 3), found, 12));
    cr_expect_arr_eq(found, &content[N - 3], 12);
    expect_ok(kiln_buffer_write(buffer, sizeof content, content, 0));
    expect_ok(kiln_buffer_read(buffer, 0, found, 0));
    kiln_buffer_release(buffer);
    close_context(context);
}

Test(buffers, refuse_a_range_beyond_their_end)
{
    kiln_context *context = open_context();
    kiln_buffer *buffer = make_buffer(context, 2, NULL);
    expect_error(kiln_buffer_write(NULL, 0, content, 4), KILN_INVALID_ARGUMENT,
                 "kiln_buffer_write: buffer is NULL");
    expect_error(kiln_buffer_write(buffer, 0, NULL, 4), KILN_INVALID_ARGUMENT,
                 "kiln_buffer_write: data is NULL");
    expect_error(kiln_buffer_read(buffer, 0, NULL, 4), KILN_INVALID_ARGUMENT,
                 "kiln_buffer_read: data is NULL");
    expect_error(kiln_buffer_read(NULL, 0, found, 4), KILN_INVALID_ARGUMENT,
                 "kiln_buffer_read: buffer is NULL");
    expect_error(kiln_buffer_read(buffer, 4, found, 5), KILN_INVALID_ARGUMENT,
                 "kiln_buffer_read: 5 bytes from byte 4 go beyond the buffer's 8");
    expect_error(kiln_buffer_write(buffer, 9, content, 0), KILN_INVALID_ARGUMENT,
                 "kiln_buffer_write: 0 bytes from byte 9 go beyond the buffer's 8");
    expect_error(kiln_buffer_write(buffer, 4, content, SIZE_MAX), KILN_INVALID_ARGUMENT,
                 "kiln_buffer_write: 18446744073709551615 bytes from byte 4 go beyond the "
                 "buffer's 8");
    expect_error(kiln_buffer_shape(NULL, NULL, NULL, NULL), KILN_INVALID_ARGUMENT,
                 "kiln_buffer_shape: buffer is NULL");
    kiln_buffer_release(buffer);
    close_context(context);
}

Test(buffers, of_no_elements_are_legal)
{
    kiln_context *context = open_context();
    kiln_batch *batch = kiln_batch_create(context);
    kiln_buffer *buffer = make_buffer(context, 0, NULL);
    void *data = found;
    expect_ok(kiln_buffer_write(buffer, 0, content, 0));
    expect_error(kiln_buffer_map(buffer, &data), KILN_INVALID_ARGUMENT,
                 "kiln_buffer_map: the buffer has no bytes");
    cr_expect_null(data);
    kiln_tensor x = kiln_import(batch, buffer);
    expect_ok(kiln_export(batch, kiln_neg(batch, x), buffer));
    float sum = 5;
    expect_ok(kiln_read(batch, kiln_sum(batch, x, 0, NULL, 0), &sum, 4));
    run_batch(batch);
    cr_expect_eq(sum, 0);
    kiln_buffer_release(buffer);
    kiln_batch_release(batch);
    close_context(context);
}

/* ---- mapping ---- */

Test(buffers, can_be_mapped_and_written_through_the_mapping)
{
    kiln_context *context = open_context();
    kiln_buffer *buffer = make_buffer(context, N, NULL);
    void *data;
    fill(content, N, 3);
    expect_ok(kiln_buffer_map(buffer, &data));
    memcpy(data, content, sizeof content);
    expect_ok(kiln_buffer_unmap(buffer));
    expect_buffer(buffer, N, content);
    expect_ok(kiln_buffer_map(buffer, &data));
    cr_expect_arr_eq(data, content, sizeof content);
    kiln_buffer_release(buffer); /* a mapping ends with its buffer */
    close_context(context);
}

Test(buffers, are_mapped_once_and_unmapped_once)
{
    kiln_context *context = open_context();
    kiln_buffer *buffer = make_buffer(context, N, content);
    void *data, *twice;
    expect_error(kiln_buffer_unmap(buffer), KILN_WRONG_STATE,
                 "kiln_buffer_unmap: the buffer is not mapped");
    expect_ok(kiln_buffer_map(buffer, &data));
    expect_error(kiln_buffer_map(buffer, &twice), KILN_WRONG_STATE,
                 "kiln_buffer_map: the buffer is mapped already");
    cr_expect_null(twice);
    expect_error(kiln_buffer_write(buffer, 0, content, 4), KILN_INVALID_ARGUMENT,
                 "kiln_buffer_write: the buffer is mapped");
    expect_ok(kiln_buffer_unmap(buffer));
    expect_error(kiln_buffer_unmap(buffer), KILN_WRONG_STATE,
                 "kiln_buffer_unmap: the buffer is not mapped");
    expect_error(kiln_buffer_map(NULL, &data), KILN_INVALID_ARGUMENT,
                 "kiln_buffer_map: buffer is NULL");
    expect_error(kiln_buffer_map(buffer, NULL), KILN_INVALID_ARGUMENT,
                 "kiln_buffer_map: data is NULL");
    expect_error(kiln_buffer_unmap(NULL), KILN_INVALID_ARGUMENT,
                 "kiln_buffer_unmap: buffer is NULL");
    kiln_buffer_release(buffer);
    close_context(context);
}

/* ---- in batches ---- */

Test(buffers, carry_state_from_batch_to_batch)
{
    kiln_context *context = open_context();
    kiln_buffer *state = make_buffer(context, N, NULL);
    kiln_batch *first = kiln_batch_create(context), *second = kiln_batch_create(context);
    fill(content, N, 5);
    kiln_tensor x = kiln_upload(first, KILN_F32, 1, (size_t[]){N}, content);
    expect_ok(kiln_export(first, kiln_square(first, x), state));
    expect_ok(
        kiln_read(second, kiln_sqrt(second, kiln_import(second, state)), found, sizeof found));
    run_batch(first);
    run_batch(second);
    for (int i = 0; i < N; i++)
        cr_assert_float_eq(found[i], content[i] < 0 ? -content[i] : content[i], 1e-5);
    kiln_buffer_release(state);
    kiln_batch_release(first);
    kiln_batch_release(second);
    close_context(context);
}

/* The import sees the content before the run: here each element comes from the other end. */
Test(buffers, are_updated_in_place_a_hundred_times)
{
    kiln_context *context = open_context();
    kiln_batch *batch = kiln_batch_create(context);
    fill(content, N, 7);
    kiln_buffer *state = make_buffer(context, N, content);
    kiln_tensor x = kiln_import(batch, state);
    kiln_tensor turned = kiln_slice(batch, x, (int64_t[]){N - 1}, (int64_t[]){-1}, (int64_t[]){-1});
    expect_ok(
        kiln_export(batch, kiln_add(batch, turned, kiln_constant(batch, KILN_F32, 1)), state));
    for (int i = 0; i < 100; i++)
        run_batch(batch);
    for (int i = 0; i < N; i++)
        content[i] += 100;
    expect_buffer(state, N, content);
    kiln_buffer_release(state);
    kiln_batch_release(batch);
    close_context(context);
}

Test(buffers, swap_their_contents_in_one_batch)
{
    kiln_context *context = open_context();
    kiln_batch *batch = kiln_batch_create(context);
    fill(content, N, 8);
    fill(found, N, 9);
    kiln_buffer *left = make_buffer(context, N, content);
    kiln_buffer *right = make_buffer(context, N, found);
    kiln_tensor x = kiln_import(batch, left), y = kiln_import(batch, right);
    expect_ok(kiln_export(batch, x, right));
    expect_ok(kiln_export(batch, y, left));
    run_batch(batch);
    expect_buffer(left, N, found);
    expect_buffer(right, N, content);
    kiln_buffer_release(left);
    kiln_buffer_release(right);
    kiln_batch_release(batch);
    close_context(context);
}

Test(buffers, are_overwritten_only_after_their_last_use)
{
    kiln_context *context = open_context();
    kiln_batch *batch = kiln_batch_create(context);
    fill(content, N, 8);
    fill(found, N, 9);
    kiln_buffer *left = make_buffer(context, N, content), *copy = make_buffer(context, N, NULL);
    kiln_buffer *right = make_buffer(context, N, found);
    kiln_tensor negative = kiln_neg(batch, kiln_import(batch, left));
    expect_ok(kiln_export(batch, negative, copy));
    expect_ok(kiln_export(batch, negative, right));
    expect_ok(kiln_export(batch, kiln_square(batch, kiln_import(batch, right)), left));
    run_batch(batch);
    for (int i = 0; i < N; i++) {
        content[i] = -content[i];
        found[i] *= found[i];
    }
    expect_buffer(copy, N, content);
    expect_buffer(right, N, content);
    expect_buffer(left, N, found);
    kiln_buffer_release(left);
    kiln_buffer_release(right);
    kiln_buffer_release(copy);
    kiln_batch_release(batch);
    close_context(context);
}

/* Which of two it held would be for the order of kernels to say. */
Test(buffers, take_one_result_of_a_batch)
{
    kiln_context *context = open_context();
    kiln_batch *batch = kiln_batch_create(context);
    float value = 0;
    kiln_buffer *place = make_buffer(context, 1, &value);
    kiln_tensor x = kiln_import(batch, place);
    expect_ok(kiln_export(batch, kiln_sub(batch, x, kiln_constant(batch, KILN_F32, 1)), place));
    cr_expect_eq(kiln_export(batch, x, place), KILN_INVALID_ARGUMENT);
    cr_expect_str_eq(without_call(kiln_batch_error(batch)),
                     "kiln_export: the batch leaves a tensor in this buffer already, and a buffer "
                     "takes one");
    kiln_buffer_release(place);
    kiln_batch_release(batch);
    close_context(context);
}
