/* SPDX-License-Identifier: Apache-2.0 */
/* Random batches against the reference. KILN_RANDOM_SEED starts elsewhere, KILN_RANDOM_COUNT makes
 * more of them: make check-random-long. */
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
static void some(struct random_range range)
{
    range.first = number_in("KILN_RANDOM_SEED", 1) + range.first;
    range.count = number_in("KILN_RANDOM_COUNT", range.count);
    random_check(&range);
    check_close();
}

Test(ops_random, small, .timeout = 360000)
{
    some((struct random_range){0, 24, 6, 3, 8});
}
Test(ops_random, middle, .timeout = 360000)
{
    some((struct random_range){1000000, 8, 6, 8, 4});
}
Test(ops_random, large, .timeout = 360000)
{
    some((struct random_range){2000000, 1, 4, 40, 0});
}
