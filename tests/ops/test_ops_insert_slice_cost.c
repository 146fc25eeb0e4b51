/* SPDX-License-Identifier: Apache-2.0 */
/* What places cost: a launch per part, in the memory of what it is put on where nobody else reads
 * that. */
#include <criterion/criterion.h>

#include "../support/check.h"

/* One launch per part, no memory beyond what comes in and goes out. */
Test(ops_place_cost, a_concat_is_one_launch_per_part)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = check_plain(b, DIMS(64, 8)), y = check_plain(b, DIMS(64, 24)),
                z = check_plain(b, DIMS(64, 32));
    kiln_tensor parts[] = {kiln_exp(b, x), kiln_scale(b, y, 2), z};
    check_read(b, kiln_concat(b, 3, parts, 1));
    cr_expect_eq(cost_of(b).launches, 3u);
    check_run(b);
    check_end(b);
    check_close();
}

/* The padding, and the part, computed into it. */
Test(ops_place_cost, a_pad_is_two_launches)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = check_plain(b, DIMS(64, 8));
    check_read(b, kiln_pad(b, kiln_exp(b, kiln_transpose(b, x, NULL)), (size_t[]){1, 1},
                           (size_t[]){1, 1}, 0));
    cr_expect_eq(cost_of(b).launches, 2u);
    check_run(b);
    check_end(b);
    check_close();
}

/* A part cut out of a whole again is the part. */
Test(ops_place_cost, a_split_undoes_a_concat)
{
    kiln_batch *b = check_begin();
    kiln_tensor parts[] = {check_plain(b, DIMS(4, 3)), check_plain(b, DIMS(4, 5)),
                           check_plain(b, DIMS(4, 2))};
    kiln_tensor cut[3];
    expect_ok(kiln_split(b, kiln_concat(b, 3, parts, 1), 1, 3, (size_t[]){3, 5, 2}, cut));
    for (size_t i = 0; i < 3; i++)
        check_read(b, cut[i]);
    cr_expect_eq(cost_of(b).launches, 0u);
    check_run(b);
    check_end(b);
    check_close();
}

/* A chain of updates of a value that nobody else reads runs in its memory. */
Test(ops_place_cost, updates_run_in_place)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = check_plain(b, DIMS(64, 64)), p = check_plain(b, DIMS(64, 1));
    kiln_tensor state = kiln_matmul(b, x, x);
    for (int64_t i = 0; i < 10; i++)
        state =
            kiln_insert_slice(b, state, kiln_scale(b, p, (double)i), (int64_t[]){0, 3 * i}, NULL);
    check_read(b, kiln_sum(b, state, 1, (int[]){1}, 0));
    size_t product = 1;
    cr_expect_leq(cost_of(b).launches, product + 10 + 1);
    cr_expect_leq(cost_of(b).unshared_bytes, 4u * (2 * 64 * 64 + 64 + 64) + 4096);
    check_run(b);
    check_end(b);
    check_close();
}

/* Neither an imported buffer nor one that a base is exported to changes. */
Test(ops_place_cost, buffers_stay_as_they_are)
{
    float content[12], placed[12], wanted[12];
    for (int i = 0; i < 12; i++)
        wanted[i] = content[i] = (float)i;
    wanted[4] = wanted[5] = 77;
    kiln_context *context = open_context();
    kiln_buffer *buffer = make_buffer(context, 12, content), *copy = make_buffer(context, 12, NULL);
    kiln_buffer *result = make_buffer(context, 12, NULL);
    kiln_batch *b = kiln_batch_create(context);
    kiln_tensor x = kiln_import(b, buffer);
    kiln_tensor y =
        kiln_insert_slice(b, x, kiln_fill(b, KILN_F32, DIMS(2), 77), (int64_t[]){4}, NULL);
    expect_ok(kiln_export(b, y, result));
    expect_ok(kiln_read(b, y, placed, sizeof placed));
    expect_ok(
        kiln_export(b, kiln_insert_slice(b, kiln_add(b, x, x), x, (int64_t[]){0}, NULL), copy));
    run_batch(b);
    run_batch(b);
    expect_buffer(buffer, 12, content);
    expect_buffer(copy, 12, content);
    expect_buffer(result, 12, wanted);
    cr_expect_arr_eq(placed, wanted, sizeof wanted);
    kiln_batch_release(b);
    kiln_buffer_release(buffer);
    kiln_buffer_release(copy);
    kiln_buffer_release(result);
    close_context(context);
}
