/* SPDX-License-Identifier: Apache-2.0 */
/* Random batches against the reference. KILN_RANDOM_SEED starts elsewhere, KILN_RANDOM_COUNT makes
 * more of them. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "support/check.h"
#include "support/random.h"

static uint64_t number_in(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);
    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

/* Small ones say what went wrong, large ones go further. */
static void some(uint64_t part, uint64_t count, size_t operations)
{
    count = number_in("KILN_RANDOM_COUNT", count);
    random_check(number_in("KILN_RANDOM_SEED", 1) + part * 1000000, count, operations);
    check_close();
}

Test(ops_random, small, .timeout = 36000)
{
    some(0, 60, 4);
}
Test(ops_random, middle, .timeout = 36000)
{
    some(1, 30, 9);
}
Test(ops_random, large, .timeout = 36000)
{
    some(2, 6, 40);
}
