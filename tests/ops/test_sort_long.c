/* SPDX-License-Identifier: Apache-2.0 */
/* Orders of long lines, which several work-items or work-groups share, and the first few of such.
 */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "../support/movement.h"

Test(sort_long, as_the_reference)
{
    static const struct {
        kiln_type type;
        enum check_values values;
        int descending;
        size_t lines, extent;
    } rows[] = {{KILN_F32, CHECK_SPECIAL, 0, 1, 100003}, {KILN_F32, CHECK_FEW, 0, 2, 65537},
                {KILN_I64, CHECK_PLAIN, 1, 1, 65536},    {KILN_F16, CHECK_PLAIN, 0, 1, 70001},
                {KILN_BF16, CHECK_PLAIN, 1, 1, 65539},   {KILN_I8, CHECK_PLAIN, 0, 1, 65539}};
    kiln_batch *b = check_begin();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const size_t shape[] = {rows[i].lines, rows[i].extent};
        kiln_tensor x = check_input(b, rows[i].type, 2, shape, rows[i].values);
        check_read(b, kiln_argsort(b, x, 1, rows[i].descending));
    }
    check_run(b);
    check_end(b);
    check_close();
}

/* The first few: of lines that are put in order whole, narrowed down, and cut into parts. */
Test(sort_long, slow_few)
{
    static const struct {
        kiln_type type;
        enum check_values values;
        int smallest;
        size_t lines, extent, k;
    } rows[] = {
        {KILN_F32, CHECK_PLAIN, 0, 3, 3000, 1},     {KILN_F32, CHECK_SPECIAL, 0, 40, 1500, 20},
        {KILN_F32, CHECK_FEW, 0, 2, 5000, 1024},    {KILN_F32, CHECK_FEW, 0, 2, 140001, 50},
        {KILN_F32, CHECK_PLAIN, 0, 1, 4000, 3999},  {KILN_F32, CHECK_PLAIN, 0, 3, 1025, 1025},
        {KILN_F32, CHECK_PLAIN, 0, 1, 65541, 9000}, {KILN_I64, CHECK_FEW, 1, 2, 3001, 7},
        {KILN_I64, CHECK_PLAIN, 1, 1, 70001, 300},  {KILN_U8, CHECK_PLAIN, 0, 2, 5000, 700},
        {KILN_F16, CHECK_PLAIN, 1, 2, 2500, 9}};
    kiln_batch *b = check_begin();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const size_t shape[] = {rows[i].lines, rows[i].extent};
        kiln_tensor x = check_input(b, rows[i].type, 2, shape, rows[i].values), at;
        check_read(b, kiln_topk(b, x, rows[i].k, 1, rows[i].smallest, &at));
        check_read(b, at);
    }
    check_run(b);
    check_end(b);
    check_close();
}

/* All elements alike: those that come first. */
Test(sort_long, few_of_equal_ones)
{
    int8_t *ones = calloc(70000, 1);
    kiln_batch *b = check_begin();
    kiln_tensor x = check_given(b, KILN_I8, DIMS(70000), ones), at;
    kiln_topk(b, x, 4, 0, 0, &at);
    EXPECT_ELEMENTS(b, at, 0, 1, 2, 3);
    free(ones);
    check_close();
}
