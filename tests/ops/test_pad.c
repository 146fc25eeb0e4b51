/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors padded with their own elements: answers of numpy.pad(), and derivatives. */
#include <criterion/criterion.h>
#include <kiln/movement.h>

#include "../support/gradient.h"
#include "../support/movement.h"

#define MODES 4

static kiln_padding mode_at(unsigned i)
{
    static const kiln_padding modes[MODES] = {KILN_PAD_EDGE, KILN_PAD_REFLECT, KILN_PAD_SYMMETRIC,
                                              KILN_PAD_WRAP};
    return modes[i];
}

Test(pad, two_dimensions)
{
    /* 1 to 12 as three rows of four, by 2 and 1 rows, 1 and 3 columns */
    static const int32_t wanted[MODES][48] = {
        {1, 1, 2, 3, 4, 4, 4, 4, 1, 1, 2,  3,  4,  4,  4,  4,  1, 1, 2,  3,  4,  4,  4,  4,
         5, 5, 6, 7, 8, 8, 8, 8, 9, 9, 10, 11, 12, 12, 12, 12, 9, 9, 10, 11, 12, 12, 12, 12},
        {10, 9, 10, 11, 12, 11, 10, 9, 6,  5, 6,  7,  8,  7,  6,  5, 2, 1, 2, 3, 4, 3, 2, 1,
         6,  5, 6,  7,  8,  7,  6,  5, 10, 9, 10, 11, 12, 11, 10, 9, 6, 5, 6, 7, 8, 7, 6, 5},
        {5, 5, 6, 7, 8, 8, 7, 6, 1, 1, 2,  3,  4,  4,  3,  2,  1, 1, 2,  3,  4,  4,  3,  2,
         5, 5, 6, 7, 8, 8, 7, 6, 9, 9, 10, 11, 12, 12, 11, 10, 9, 9, 10, 11, 12, 12, 11, 10},
        {8, 5, 6, 7, 8, 5, 6, 7, 12, 9, 10, 11, 12, 9, 10, 11, 4, 1, 2, 3, 4, 1, 2, 3,
         8, 5, 6, 7, 8, 5, 6, 7, 12, 9, 10, 11, 12, 9, 10, 11, 4, 1, 2, 3, 4, 1, 2, 3},
    };
    for (unsigned i = 0; i < MODES; i++) {
        kiln_batch *b = check_begin();
        kiln_tensor y = kiln_pad_by(b, counted_from(b, 1, DIMS(3, 4)), (size_t[]){2, 1},
                                    (size_t[]){1, 3}, mode_at(i));
        expect_shape(b, y, DIMS(6, 8));
        expect_elements(b, y, 48, wanted[i]);
    }
    check_close();
}

Test(pad, wider_than_what_is_there)
{
    static const int32_t wanted[MODES][15] = {
        {1, 1, 1, 1, 1, 1, 1, 1, 2, 3, 3, 3, 3, 3, 3},
        {2, 3, 2, 1, 2, 3, 2, 1, 2, 3, 2, 1, 2, 3, 2},
        {1, 1, 2, 3, 3, 2, 1, 1, 2, 3, 3, 2, 1, 1, 2},
        {3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2},
    };
    static const int32_t sevens[5] = {1, 1, 1, 1, 1};
    for (unsigned i = 0; i < MODES; i++) {
        kiln_batch *b = check_begin();
        kiln_tensor y =
            kiln_pad_by(b, counted_from(b, 1, DIMS(3)), (size_t[]){7}, (size_t[]){5}, mode_at(i));
        expect_elements(b, y, 15, wanted[i]);
        b = check_begin();
        y = kiln_pad_by(b, counted_from(b, 1, DIMS(1)), (size_t[]){2}, (size_t[]){2}, mode_at(i));
        expect_elements(b, y, 5, sevens);
    }
    check_close();
}

/* However wide, of few pieces. */
Test(pad, wide_edges)
{
    const size_t wide[] = {(size_t)1 << 30, 0};
    size_t dims[KILN_MAX_RANK];
    kiln_batch *b = check_begin();
    kiln_tensor y = kiln_pad_by(b, counted(b, DIMS(3, 0)), wide, wide, KILN_PAD_EDGE);
    expect_ok(kiln_tensor_shape(b, y, NULL, NULL, dims));
    cr_expect_eq(dims[0], 2 * wide[0] + 3);
    check_end(b);
    check_close();
}

Test(pad, by_nothing)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = counted(b, DIMS(2, 0));
    cr_expect_eq(kiln_pad_by(b, x, (size_t[]){0, 0}, (size_t[]){0, 0}, KILN_PAD_WRAP).id, x.id);
    check_end(b);
    check_close();
}

Test(pad, has_derivatives)
{
    for (unsigned i = 0; i < MODES; i++) {
        kiln_batch *b = check_begin();
        kiln_tensor x = check_plain(b, DIMS(2, 3));
        expect_gradient(b, kiln_pad_by(b, x, (size_t[]){1, 4}, (size_t[]){0, 2}, mode_at(i)), 1,
                        &x);
    }
    check_close();
}

static void expect_refused(const size_t *low, const size_t *high, size_t extent, int padding,
                           kiln_status status, const char *part)
{
    kiln_batch *b = check_begin();
    kiln_pad_by(b, counted(b, DIMS(extent)), low, high, (kiln_padding)padding);
    check_refusal(b, status, part);
}

Test(pad, operands_are_checked)
{
    const size_t one[] = {1}, none[] = {0}, huge[] = {SIZE_MAX}, wide[] = {49};
    expect_refused(one, NULL, 4, 0, KILN_INVALID_ARGUMENT, "kiln_pad_by: high is NULL");
    expect_refused(one, one, 4, 4, KILN_INVALID_ARGUMENT, "kiln_pad_by: 4 is no way to pad");
    expect_refused(none, one, 0, 1, KILN_INVALID_ARGUMENT,
                   "kiln_pad_by: dimension 0 of shape [0] has no elements to pad with");
    expect_refused(huge, one, 4, 0, KILN_TOO_LARGE,
                   "kiln_pad_by: shape [4] is padded to too many elements");
    expect_refused(
        none, wide, 3, 3, KILN_INVALID_ARGUMENT,
        "kiln_pad_by: 0 and 49 elements beside dimension 0 of shape [3] are more than 16 times as "
        "many as it has");
    check_close();
}
