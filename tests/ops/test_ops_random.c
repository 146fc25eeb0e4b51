/* SPDX-License-Identifier: Apache-2.0 */
/* Random batches against the reference. KILN_RANDOM_SEED starts elsewhere, KILN_RANDOM_COUNT says
 * how many small structures there are: make check-random-long. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "../support/check.h"
#include "../support/random.h"

static uint64_t number_in(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);
    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

/* Small ones say what went wrong, larger ones go further, and there are fewer of them: one of
 * `share`. */
static void some(struct random_range range, uint64_t share)
{
    range.first = number_in("KILN_RANDOM_SEED", 1) + range.base;
    range.count = (number_in("KILN_RANDOM_COUNT", 24) + share - 1) / share;
    random_check(&range);
    check_close_random();
}

Test(ops_random, small, .timeout = 360000)
{
    some((struct random_range){.variants = 6, .operations = 3, .validate_each = 8}, 1);
}
Test(ops_random, middle, .timeout = 360000)
{
    some((struct random_range){.base = 1000000, .variants = 6, .operations = 8, .validate_each = 4},
         3);
}
Test(ops_random, large, .timeout = 360000)
{
    some((struct random_range){.base = 2000000, .variants = 4, .operations = 40}, 24);
}
