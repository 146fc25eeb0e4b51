/* SPDX-License-Identifier: Apache-2.0 */
/* Slices at positions that are tensors: answers of numpy written down here, and the reference for
 * all types; buffers that are written in place. */
#include <criterion/criterion.h>

#include <string.h>

#include "../support/movement.h"
#include "ops/ops.h"

/* ---- known answers ---- */

Test(ops_update_slice, one_position)
{
    static const struct {
        int32_t at, wanted[12];
    } rows[] = {
        {0, {50, 51, 52, 53, 4, 5, 6, 7, 8, 9, 10, 11}},
        {1, {0, 1, 50, 51, 52, 53, 6, 7, 8, 9, 10, 11}},
        {4, {0, 1, 2, 3, 4, 5, 6, 7, 50, 51, 52, 53}},
        {5, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 50, 51}},
        {6, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}},
        {-1, {52, 53, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}},
        {INT32_MAX, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}},
        {INT32_MIN, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        kiln_batch *b = check_begin();
        kiln_tensor x = counted(b, DIMS(6, 2)), part = counted_from(b, 50, DIMS(2, 2));
        kiln_tensor start = numbers(b, DIMS(1), &rows[i].at);
        expect_elements(b, kiln_update_slice(b, x, part, start, 0), 12, rows[i].wanted);
    }
    check_close();
}

Test(ops_update_slice, along_the_last_axis)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = counted(b, DIMS(2, 5)), part = counted_from(b, 50, DIMS(2, 2));
    EXPECT_ELEMENTS(b, kiln_update_slice(b, x, part, numbers(b, SCALAR, NUMBERS(3)), -1), 0, 1, 2,
                    50, 51, 5, 6, 7, 52, 53);
    check_close();
}

Test(ops_update_slice, a_position_for_each_row)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = counted(b, DIMS(4, 3)), part = counted_from(b, 50, DIMS(4, 1));
    kiln_tensor start = numbers(b, DIMS(4), NUMBERS(2, 0, 3, -1));
    EXPECT_ELEMENTS(b, kiln_update_slice(b, x, part, start, 1), 0, 1, 50, 51, 4, 5, 6, 7, 8, 9, 10,
                    11);

    b = check_begin();
    x = counted(b, DIMS(2, 2, 3)), part = counted_from(b, 50, DIMS(2, 2, 2));
    start = numbers(b, DIMS(2, 1), NUMBERS(1, 2));
    EXPECT_ELEMENTS(b, kiln_update_slice(b, x, part, start, 2), 0, 50, 51, 3, 52, 53, 6, 7, 54, 9,
                    10, 56);
    check_close();
}

Test(ops_update_slice, nothing)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = counted(b, DIMS(2, 2)), part = counted_from(b, 50, DIMS(0, 2));
    EXPECT_ELEMENTS(b, kiln_update_slice(b, x, part, numbers(b, DIMS(1), NUMBERS(1)), 0), 0, 1, 2,
                    3);

    b = check_begin();
    x = counted(b, DIMS(0, 2)), part = counted_from(b, 50, DIMS(1, 2));
    expect_elements(b, kiln_update_slice(b, x, part, numbers(b, DIMS(1), NUMBERS(0)), 0), 0, NULL);
    check_close();
}

Test(ops_slice_at, positions)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = counted(b, DIMS(4, 2));
    EXPECT_ELEMENTS(b, kiln_slice_at(b, x, numbers(b, SCALAR, NUMBERS(3)), 2, 0), 6, 7, 0, 0);

    b = check_begin();
    x = counted(b, DIMS(2, 4));
    EXPECT_ELEMENTS(b, kiln_slice_at(b, x, numbers(b, DIMS(2), NUMBERS(2, 0)), 2, 1), 2, 3, 4, 5);

    b = check_begin();
    x = counted(b, DIMS(2, 4));
    EXPECT_ELEMENTS(b, kiln_slice_at(b, x, numbers(b, DIMS(2), NUMBERS(3, -1)), 2, 1), 3, 0, 0, 4);
    check_close();
}

/* ---- the reference ---- */

/* Untouched elements and those that are put are what they were, bit by bit. */
Test(ops_update_slice, slow_all_types)
{
    static const size_t inner[] = {1, 24};
    for (int t = 1; kiln__type_row((kiln_type)t); t++)
        for (size_t i = 0; i < 4 && !kiln__type_is_block((kiln_type)t); i++) {
            const kiln_type type = (kiln_type)t;
            if (type != KILN_F32 && (i % 2 == i / 2) != t % 2)
                continue; /* each of both, by turns together */
            kiln_batch *b = check_begin();
            const size_t last = inner[i % 2], count = 1 + i / 2;
            kiln_tensor x = check_input(b, type, DIMS(2, 3, 9, last), CHECK_PLAIN);
            kiln_tensor part = check_input(b, type, DIMS(2, 3, count, last), CHECK_PLAIN);
            kiln_tensor start =
                i < 2 ? numbers(b, DIMS(1), NUMBERS(8)) : numbers(b, DIMS(2, 1), NUMBERS(4, 8));
            check_read(b, kiln_update_slice(b, x, part, start, 2));
            check_read(b, kiln_slice_at(b, x, start, count, 2));
            check_run(b);
            check_end(b);
        }
    check_close();
}

/* ---- in place ---- */

enum { ROWS = 64, LONG = 16, ALL = ROWS * LONG };

/* A buffer of 16-bit patterns, NaNs of all kinds among them. */
static kiln_buffer *make_patterns(kiln_context *context, uint16_t content[ALL])
{
    kiln_buffer *buffer = NULL;
    for (uint32_t i = 0; i < ALL; i++)
        content[i] = (uint16_t)(i % 3 ? i * 2654435761u >> 16 : 0x7f80 + i % 256);
    expect_ok(kiln_buffer_create(context, KILN_BF16, DIMS(ROWS, LONG), &buffer));
    expect_ok(kiln_buffer_write(buffer, 0, content, ALL * sizeof *content));
    return buffer;
}

static void expect_patterns(kiln_buffer *buffer, const uint16_t wanted[ALL])
{
    uint16_t content[ALL];
    expect_ok(kiln_buffer_read(buffer, 0, content, sizeof content));
    cr_expect_arr_eq(content, wanted, sizeof content);
}

static kiln_buffer *make_position(kiln_context *context)
{
    kiln_buffer *buffer = NULL;
    expect_ok(kiln_buffer_create(context, KILN_I32, DIMS(1), &buffer));
    return buffer;
}

static void write_position(kiln_buffer *buffer, int32_t at)
{
    expect_ok(kiln_buffer_write(buffer, 0, &at, sizeof at));
}

/* One launch of the part's size, whatever the position; what is beside it keeps its bits. */
Test(ops_update_slice, a_buffer_is_written_in_place)
{
    uint16_t wanted[ALL];
    kiln_context *context = open_context();
    kiln_buffer *cache = make_patterns(context, wanted), *position = make_position(context);
    kiln_buffer *row = make_buffer(context, LONG, (float[LONG]){1, 2, 3, 4, 5, 6});
    kiln_batch *b = kiln_batch_create(context);
    kiln_tensor x = kiln_import(b, cache), at = kiln_import(b, position);
    kiln_tensor part = kiln_reshape(b, kiln_scale(b, kiln_import(b, row), 2), DIMS(1, LONG));
    kiln_tensor y = kiln_update_slice(b, x, kiln_cast(b, part, KILN_BF16), at, 0);
    expect_ok(kiln_export(b, y, cache));
    cr_expect_eq(cost_of(b).launches, 1u);
    cr_expect_eq(cost_of(b).peak_bytes, 0u);
    cr_expect(explains(b, "result #0 in place"));
    static const int32_t positions[] = {7, 0, ROWS - 1, ROWS, -1, 30};
    for (size_t i = 0; i < sizeof positions / sizeof *positions; i++) {
        write_position(position, positions[i]);
        run_batch(b);
        for (int k = 0; k < LONG && positions[i] >= 0 && positions[i] < ROWS; k++) {
            const float value = k < 6 ? 2 * (float)(k + 1) : 0;
            uint32_t bits;
            memcpy(&bits, &value, sizeof bits);
            wanted[positions[i] * LONG + k] = (uint16_t)(bits >> 16);
        }
        expect_patterns(cache, wanted);
    }
    kiln_batch_release(b);
    kiln_buffer_release(row);
    kiln_buffer_release(cache);
    kiln_buffer_release(position);
    close_context(context);
}

/* Who reads the content before sees the old one, who reads the result the new one; several parts
 * take a launch each. */
Test(ops_update_slice, readers_before_and_after)
{
    float old[12], before[12], after[12], wanted[12];
    for (int i = 0; i < 12; i++)
        wanted[i] = old[i] = (float)i;
    wanted[2] = wanted[3] = 50;
    wanted[8] = wanted[9] = 60;
    kiln_context *context = open_context();
    kiln_buffer *buffer = make_buffer(context, 12, old);
    kiln_batch *b = kiln_batch_create(context);
    kiln_tensor x = kiln_reshape(b, kiln_import(b, buffer), DIMS(6, 2));
    kiln_tensor one = kiln_fill(b, KILN_F32, DIMS(1, 2), 50);
    kiln_tensor two = kiln_fill(b, KILN_F32, DIMS(1, 2), 60);
    kiln_tensor y = kiln_update_slice(b, x, one, numbers(b, DIMS(1), NUMBERS(1)), 0);
    y = kiln_update_slice(b, y, two, numbers(b, DIMS(1), NUMBERS(4)), 0);
    expect_ok(kiln_export(b, kiln_reshape(b, y, DIMS(12)), buffer));
    expect_ok(kiln_read(b, kiln_scale(b, x, 2), before, sizeof before));
    expect_ok(kiln_read(b, kiln_scale(b, y, 3), after, sizeof after));
    cr_expect_eq(cost_of(b).launches, 4u);
    run_batch(b);
    expect_buffer(buffer, 12, wanted);
    for (int i = 0; i < 12; i++) {
        cr_expect_eq(before[i], 2 * old[i]);
        cr_expect_eq(after[i], 3 * wanted[i]);
    }
    kiln_batch_release(b);
    kiln_buffer_release(buffer);
    close_context(context);
}

/* A part made of the old content elsewhere, and a reader of both, need a copy of it. */
Test(ops_update_slice, old_content_that_is_needed_later)
{
    float old[8], both[8], wanted[8];
    for (int i = 0; i < 8; i++)
        wanted[i] = old[i] = (float)i;
    wanted[6] = 0;
    wanted[7] = 1;
    kiln_context *context = open_context();
    kiln_buffer *buffer = make_buffer(context, 8, old);
    kiln_batch *b = kiln_batch_create(context);
    kiln_tensor x = kiln_import(b, buffer);
    kiln_tensor part = kiln_slice_at(b, x, numbers(b, DIMS(1), NUMBERS(0)), 2, 0);
    kiln_tensor y = kiln_update_slice(b, x, part, numbers(b, DIMS(1), NUMBERS(6)), 0);
    expect_ok(kiln_export(b, y, buffer));
    expect_ok(kiln_read(b, kiln_sub(b, y, x), both, sizeof both));
    run_batch(b);
    expect_buffer(buffer, 8, wanted);
    for (int i = 0; i < 8; i++)
        cr_expect_eq(both[i], wanted[i] - old[i]);
    kiln_batch_release(b);
    kiln_buffer_release(buffer);
    close_context(context);
}

/* Slices at numbers, and scatters, leave alone what they do not touch as well. */
Test(ops_update_slice, others_in_place)
{
    float old[12], wanted[12];
    for (int i = 0; i < 12; i++)
        wanted[i] = old[i] = (float)i;
    wanted[4] = wanted[5] = 77;
    wanted[8] += 7;
    wanted[9] += 7;
    kiln_context *context = open_context();
    kiln_buffer *buffer = make_buffer(context, 12, old), *other = make_buffer(context, 12, old);
    kiln_batch *b = kiln_batch_create(context);
    kiln_tensor x = kiln_import(b, buffer), z = kiln_import(b, other);
    kiln_tensor y =
        kiln_insert_slice(b, x, kiln_fill(b, KILN_F32, DIMS(2), 77), (int64_t[]){4}, NULL);
    kiln_tensor sevens = kiln_fill(b, KILN_F32, DIMS(2), 7);
    expect_ok(kiln_export(b, kiln_scatter_add(b, y, numbers(b, DIMS(2), NUMBERS(8, 9)), sevens, 0),
                          buffer));
    expect_ok(kiln_export(b, kiln_scatter_add(b, z, numbers(b, DIMS(2), NUMBERS(8, 9)), sevens, 0),
                          other));
    cr_expect_leq(cost_of(b).launches, 4u);
    run_batch(b);
    expect_buffer(buffer, 12, wanted);
    wanted[4] = 4;
    wanted[5] = 5;
    expect_buffer(other, 12, wanted);
    kiln_batch_release(b);
    kiln_buffer_release(buffer);
    kiln_buffer_release(other);
    close_context(context);
}

/* Rows whose halves are turned into each other, as rotary's are, are made where they are put: keys
 * of two heads, at the place 5 of 7, by a quarter of a turn. */
Test(ops_update_slice, rows_out_of_a_reshape)
{
    enum { HEADS = 2, PLACES = 7, PAIRS = 3, SIZE = 2 * PAIRS };
    float keys[HEADS * SIZE], old[HEADS * PLACES * SIZE], wanted[HEADS * PLACES * SIZE];
    float sums[HEADS * PLACES];
    for (int i = 0; i < HEADS * PLACES * SIZE; i++)
        wanted[i] = old[i] = (float)-i;
    for (int h = 0; h < HEADS; h++)
        for (int p = 0; p < PAIRS; p++) {
            const float a = keys[h * SIZE + p] = (float)(10 * h + p + 1);
            const float b = keys[h * SIZE + PAIRS + p] = (float)(100 * h + 5 * p);
            wanted[(h * PLACES + 5) * SIZE + p] = -2 * b;
            wanted[(h * PLACES + 5) * SIZE + PAIRS + p] = 2 * a;
        }
    kiln_context *context = open_context();
    kiln_buffer *cache = make_buffer(context, HEADS * PLACES * SIZE, old);
    kiln_buffer *key = make_buffer(context, HEADS * SIZE, keys);
    kiln_batch *b = kiln_batch_create(context);
    kiln_tensor x = kiln_reshape(b, kiln_import(b, cache), DIMS(HEADS, PLACES, SIZE));
    kiln_tensor k = kiln_reshape(b, kiln_scale(b, kiln_import(b, key), 2), DIMS(HEADS, 1, SIZE));
    k = kiln_rotary(b, k, kiln_fill(b, KILN_F32, DIMS(1, PAIRS), 0),
                    kiln_fill(b, KILN_F32, DIMS(1, PAIRS), 1), 0);
    kiln_tensor y = kiln_update_slice(b, x, k, numbers(b, DIMS(1), NUMBERS(5)), 1);
    expect_ok(kiln_export(b, kiln_reshape(b, y, DIMS(HEADS * PLACES * SIZE)), cache));
    expect_ok(kiln_read(b, kiln_sum(b, y, 1, (int[]){2}, 0), sums, sizeof sums));
    cr_expect(explains(b, "done before a reshape of what it puts there"));
    cr_expect(explains(b, "result #0 in place"));
    run_batch(b);
    expect_buffer(cache, HEADS * PLACES * SIZE, wanted);
    for (int i = 0; i < HEADS * PLACES; i++) {
        float sum = 0;
        for (int j = 0; j < SIZE; j++)
            sum += wanted[i * SIZE + j];
        cr_expect_eq(sums[i], sum);
    }
    kiln_batch_release(b);
    kiln_buffer_release(key);
    kiln_buffer_release(cache);
    close_context(context);
}

/* The axis is one of those that are reshaped, or somebody else reads the rows: as it was. */
Test(ops_update_slice, rows_that_stay_behind_a_reshape)
{
    for (int shared = 0; shared < 2; shared++) {
        kiln_batch *b = check_begin();
        kiln_tensor x = check_input(b, KILN_F32, DIMS(3, 8), CHECK_PLAIN);
        kiln_tensor rows = check_input(b, KILN_F32, DIMS(3, 2, 2), CHECK_PLAIN);
        rows = kiln_mul(b, rows,
                        kiln_slice(b, rows, (int64_t[]){0, 1, 0}, (int64_t[]){3, -1, 2},
                                   (int64_t[]){1, -1, 1}));
        kiln_tensor part = kiln_reshape(b, rows, DIMS(3, 4));
        kiln_tensor at = numbers(b, DIMS(1), NUMBERS(shared ? 0 : 3));
        if (shared)
            check_read(b, rows);
        check_read(b, shared ? kiln_update_slice(b, kiln_reshape(b, x, DIMS(6, 4)), part, at, 0)
                             : kiln_update_slice(b, x, part, at, 1));
        check_run(b);
        check_end(b);
    }
    check_close();
}

/* ---- errors ---- */

Test(ops_update_slice, refused)
{
    kiln_context *context = open_context();
    kiln_batch *b = kiln_batch_create(context);
    kiln_tensor x = kiln_fill(b, KILN_F32, DIMS(2, 3, 4), 0),
                start = kiln_fill(b, KILN_I32, DIMS(3), 0);
    kiln_update_slice(b, x, kiln_fill(b, KILN_F32, DIMS(2, 1, 4), 0), start, 1);
    expect_error(
        kiln_batch_execute(b), KILN_SHAPE_MISMATCH,
        "kiln_update_slice: start of shape [3] is neither one position nor one for each of "
        "[2], the dimensions of x before axis 1");
    kiln_batch_release(b);
    b = kiln_batch_create(context);
    x = kiln_fill(b, KILN_F32, DIMS(2, 3), 0), start = kiln_fill(b, KILN_I32, DIMS(1), 0);
    kiln_update_slice(b, x, kiln_fill(b, KILN_F32, DIMS(1, 3), 0), start, 1);
    expect_error(
        kiln_batch_execute(b), KILN_SHAPE_MISMATCH,
        "kiln_update_slice: part of shape [1,3] and x of shape [2,3] differ beside axis 1");
    kiln_batch_release(b);
    b = kiln_batch_create(context);
    x = kiln_fill(b, KILN_F32, DIMS(2, 3), 0), start = kiln_fill(b, KILN_I32, DIMS(1), 0);
    kiln_update_slice(b, x, kiln_fill(b, KILN_BF16, DIMS(2, 1), 0), start, 1);
    expect_error(kiln_batch_execute(b), KILN_TYPE_MISMATCH,
                 "kiln_update_slice: x is f32 and part is bf16; cast one of them");
    kiln_batch_release(b);
    b = kiln_batch_create(context);
    x = kiln_fill(b, KILN_F32, DIMS(2, 3), 0), start = kiln_fill(b, KILN_F32, DIMS(1), 0);
    kiln_slice_at(b, x, start, 1, 1);
    expect_error(kiln_batch_execute(b), KILN_TYPE_MISMATCH,
                 "kiln_slice_at: indices are f32, and only integers are taken");
    kiln_batch_release(b);
    close_context(context);
}
