/* SPDX-License-Identifier: Apache-2.0 */
/* Reshapes move nothing: what follows one is computed in the kernel before it, within the bounds of
 * the reference, wherever the group's dimensions can walk all that it reads. */
#include <criterion/criterion.h>
#include <string.h>

#include "../support/check.h"

static const kiln_tensor no_mask;

static size_t launches_of(kiln_batch *batch)
{
    kiln_batch_cost cost;
    expect_ok(kiln_batch_get_cost(batch, &cost));
    return cost.launches;
}

/* Run what was asked for, in so many launches. */
static void expect_launches(kiln_batch *b, size_t wanted)
{
    check_run(b);
    cr_expect_eq(launches_of(b), wanted, "%zu", launches_of(b));
    check_end(b);
}

static kiln_tensor reshaped(kiln_batch *b, kiln_tensor x, size_t rank, const size_t *dims)
{
    return kiln_reshape(b, x, rank, dims);
}

static kiln_tensor product(kiln_batch *b)
{
    return kiln_matmul(b, check_plain(b, DIMS(32, 20)), check_plain(b, DIMS(20, 24)));
}

Test(fusion_reshaped, follows_products)
{
    kiln_batch *b = check_begin();
    kiln_tensor y = kiln_add(b, product(b), check_plain(b, DIMS(24)));
    check_read(b, reshaped(b, kiln_gelu(b, y), DIMS(4, 8, 24)));
    expect_launches(b, 1);

    b = check_begin();
    y = kiln_add(b, reshaped(b, product(b), DIMS(4, 8, 24)), check_plain(b, DIMS(24)));
    check_read(b, kiln_add(b, kiln_tanh(b, y), check_plain(b, DIMS(4, 8, 24))));
    expect_launches(b, 1);

    b = check_begin(); /* one dimension more behind, and then one in all */
    y = kiln_add(b, reshaped(b, product(b), DIMS(32, 4, 6)), check_plain(b, DIMS(4, 6)));
    y = reshaped(b, kiln_exp(b, y), DIMS(32 * 24));
    check_read(b, kiln_mul(b, y, check_plain(b, DIMS(32 * 24))));
    expect_launches(b, 1);
    check_close();
}

/* The group's dimensions do not walk what is repeated within one of them. */
Test(fusion_reshaped, stays_apart_where_strides_do_not_say_it)
{
    kiln_batch *b = check_begin();
    kiln_tensor y = kiln_exp(b, reshaped(b, product(b), DIMS(4, 8, 24)));
    check_read(b, kiln_mul(b, y, check_plain(b, DIMS(4, 1, 24))));
    expect_launches(b, 2);

    b = check_begin(); /* other elements of the same number */
    y = kiln_transpose(b, product(b), NULL);
    check_read(b, kiln_exp(b, reshaped(b, y, DIMS(4, 6, 32))));
    expect_launches(b, 2);
    check_close();
}

/* The operand is read once more behind the product, in another shape; and the product is a result,
 * too. */
Test(fusion_reshaped, takes_the_same_value_as_operand_and_behind)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = check_plain(b, DIMS(24, 24)), y = kiln_matmul(b, x, x);
    kiln_tensor flat = reshaped(b, x, DIMS(3, 8, 24));
    check_read(b, kiln_mul(b, kiln_exp(b, reshaped(b, y, DIMS(3, 8, 24))), flat));
    check_read(b, y);
    expect_launches(b, 1);

    b = check_begin(); /* of another order than the elements' */
    x = check_plain(b, DIMS(24, 24));
    y = reshaped(b, kiln_matmul(b, x, x), DIMS(3, 8, 24));
    flat = reshaped(b, kiln_transpose(b, x, NULL), DIMS(3, 8, 24));
    check_read(b, kiln_mul(b, kiln_exp(b, y), flat));
    check_run(b);
    check_end(b);
    check_close();
}

Test(fusion_reshaped, follows_maps_and_rows)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = check_plain(b, DIMS(32, 24));
    kiln_tensor y = kiln_add(b, x, check_plain(b, DIMS(24)));
    check_read(b, kiln_exp(b, reshaped(b, y, DIMS(4, 8, 24))));
    check_read(b, y);
    expect_launches(b, 1);

    b = check_begin(); /* whole rows */
    x = check_plain(b, DIMS(32, 24));
    y = reshaped(b, kiln_softmax(b, x, 1, (int[]){1}), DIMS(4, 8, 24));
    check_read(b, kiln_gelu(b, kiln_add(b, y, check_plain(b, DIMS(24)))));
    expect_launches(b, 1);

    b = check_begin(); /* columns */
    x = check_plain(b, DIMS(32, 24));
    y = reshaped(b, kiln_softmax(b, x, 1, (int[]){0}), DIMS(4, 8, 24));
    check_read(b, kiln_gelu(b, kiln_add(b, y, check_plain(b, DIMS(24)))));
    expect_launches(b, 1);

    b = check_begin(); /* one for each row */
    x = check_plain(b, DIMS(6, 4, 24));
    y = reshaped(b, kiln_sum(b, x, 1, (int[]){2}, 0), DIMS(3, 8));
    check_read(b, kiln_exp(b, kiln_mul(b, y, check_plain(b, DIMS(3, 8)))));
    expect_launches(b, 1);
    check_close();
}

/* A buffer that the result goes to and that is read for it, in two shapes. */
Test(fusion_reshaped, updates_buffers)
{
    kiln_context *context = check_context();
    for (int turned = 0; turned < 2; turned++) {
        kiln_batch *b = check_begin();
        kiln_buffer *buffer;
        float content[24 * 24], found[24 * 24], wanted[24 * 24];
        expect_ok(kiln_buffer_create(context, KILN_F32, DIMS(3, 8, 24), &buffer));
        for (size_t i = 0; i < 24 * 24; i++)
            content[i] = (float)(i % 13) - 6;
        expect_ok(kiln_buffer_write(buffer, 0, content, sizeof content));
        kiln_tensor old = kiln_import(b, buffer), flat = reshaped(b, old, DIMS(24, 24));
        if (turned)
            flat = kiln_transpose(b, flat, NULL);
        kiln_tensor y = kiln_matmul(b, flat, check_plain(b, DIMS(24, 24)));
        y = kiln_add(b, reshaped(b, y, DIMS(3, 8, 24)), reshaped(b, flat, DIMS(3, 8, 24)));
        y = kiln_tanh(b, y);
        kiln_export(b, y, buffer);
        float *expected = check_read(b, y);
        expect_ok(kiln_batch_execute(b));
        memcpy(wanted, expected, sizeof wanted);
        expect_ok(kiln_buffer_read(buffer, 0, found, sizeof found));
        cr_expect_arr_eq(found, wanted, sizeof found);
        check_end(b);
        kiln_buffer_release(buffer);
    }
    check_close();
}

/* The values of heads stand beside each other, then the rows of all sequences behind each other. */
Test(fusion_reshaped, follows_attention)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = check_plain(b, DIMS(2, 3, 20, 8));
    kiln_tensor y = kiln_attention(b, x, x, x, no_mask, NULL);
    y = kiln_transpose(b, y, (size_t[]){0, 2, 1, 3});
    check_read(b, reshaped(b, y, DIMS(40, 24)));
    expect_launches(b, 1);

    b = check_begin(); /* all heads in one dimension */
    kiln_tensor q = check_plain(b, DIMS(2, 2, 3, 20, 8)), k = check_plain(b, DIMS(2, 2, 1, 20, 8));
    y = reshaped(b, kiln_attention(b, q, k, k, no_mask, NULL), DIMS(2, 6, 20, 8));
    y = kiln_transpose(b, y, (size_t[]){0, 2, 1, 3});
    check_read(b, reshaped(b, y, DIMS(2, 20, 48)));
    expect_launches(b, 1);
    check_close();
}

/* Three parts of a product's rows are operands of an attention: as narrow as they are rounded, and
 * scaled, in the product's kernel. */
Test(fusion_reshaped, keeps_what_follows_a_product_before_its_heads)
{
    for (int narrow = 0; narrow < 2; narrow++) {
        kiln_batch *b = check_begin();
        kiln_tensor y = kiln_matmul(b, check_plain(b, DIMS(40, 16)), check_plain(b, DIMS(16, 72)));
        y = kiln_mul(b, y, check_plain(b, DIMS(1, 72)));
        y = narrow ? kiln_cast(b, y, KILN_BF16) : y;
        y = kiln_transpose(b, reshaped(b, y, DIMS(2, 20, 9, 8)), (size_t[]){0, 2, 1, 3});
        kiln_tensor part[3];
        for (int64_t i = 0; i < 3; i++)
            part[i] = kiln_slice(b, y, (int64_t[]){0, 3 * i, 0, 0},
                                 (int64_t[]){2, 3 * i + 3, 20, 8}, NULL);
        check_read(b, kiln_attention(b, part[0], part[1], part[2], no_mask, NULL));
        expect_launches(b, 2);
    }
    check_close();
}

/* The same of one row, whose scale has the product's shape; two halves of each head are turned by
 * an angle. */
Test(fusion_reshaped, scales_a_row_before_its_parts)
{
    kiln_batch *b = check_begin();
    kiln_tensor y = kiln_matmul(b, check_plain(b, DIMS(1, 16)), check_plain(b, DIMS(16, 48)));
    y = kiln_mul(b, y, check_plain(b, DIMS(1, 48)));
    y = kiln_transpose(b, reshaped(b, y, DIMS(1, 1, 6, 8)), (size_t[]){0, 2, 1, 3});
    kiln_tensor one = kiln_slice(b, y, (int64_t[]){0, 0, 0, 0}, (int64_t[]){1, 6, 1, 4}, NULL);
    kiln_tensor two = kiln_slice(b, y, (int64_t[]){0, 0, 0, 4}, (int64_t[]){1, 6, 1, 8}, NULL);
    kiln_tensor sine = check_plain(b, DIMS(4)), cosine = check_plain(b, DIMS(4));
    check_read(b, kiln_sub(b, kiln_mul(b, one, cosine), kiln_mul(b, two, sine)));
    check_read(b, kiln_add(b, kiln_mul(b, two, cosine), kiln_mul(b, one, sine)));
    expect_launches(b, 2);
    check_close();
}

/* A cast behind heads is one before them. */
Test(fusion_reshaped, rounds_before_the_heads)
{
    kiln_batch *b = check_begin();
    kiln_tensor y = kiln_matmul(b, check_plain(b, DIMS(40, 16)), check_plain(b, DIMS(16, 24)));
    y = kiln_add(b, y, check_plain(b, DIMS(24)));
    y = kiln_transpose(b, reshaped(b, y, DIMS(2, 20, 3, 8)), (size_t[]){0, 2, 1, 3});
    y = kiln_cast(b, y, KILN_F16);
    check_read(b, kiln_attention(b, y, y, y, no_mask, NULL));
    expect_launches(b, 2);
    check_close();
}
