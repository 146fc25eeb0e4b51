/* SPDX-License-Identifier: Apache-2.0 */
/* Operations beside and behind each other over one input, on the device: pairs, and triples of all
 * kinds. tests/fuse/test_groups enumerates many more, but has no kernels. Kernels are compiled
 * without optimisation, which is most of the time that this takes; KILN_PAIRS=all takes all pairs.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "../support/check.h"
#include "../support/samples.h"
#include "record/batch.h"

enum { MOST_FAILURES = 3 };

static size_t failures;

static void record(kiln_batch *batch, const struct sample *sample, kiln_tensor x, kiln_tensor *made)
{
    *made = sample->record(batch, x);
    check_read(batch, *made);
}

/* Three beside each other; the last one may be missing, or stand behind the first. */
static void try_three(const struct sample *a, const struct sample *b, const struct sample *c,
                      bool behind)
{
    kiln_batch *batch = check_begin();
    kiln_tensor made[3];
    check_seed(1);
    kiln_tensor x = check_plain(batch, DIMS(SAMPLE_SIZE, SAMPLE_SIZE));
    record(batch, a, x, &made[0]);
    record(batch, b, x, &made[1]);
    if (c)
        record(batch, c, behind ? sample_square(batch, made[0]) : x, &made[2]);
    bool right = check_run(batch);
    cr_expect(right, "%s, %s, %s%s", a->name, b->name, c ? c->name : "",
              behind ? " behind the first" : "");
    failures += !right;
    check_end(batch);
}

static const struct sample *kind(int number)
{
    return sample_of((enum sample_kind)number);
}

Test(pairs, of_kinds_beside_and_behind_each_other, .init = check_cheaply, .timeout = 600)
{
    for (int a = 0; a < SAMPLE_KINDS; a++)
        for (int b = 0; b < SAMPLE_KINDS && failures < MOST_FAILURES; b++)
            try_three(kind(a), kind(b), kind(b), true);
    check_close();
}

Test(pairs, of_operations_of_which_each_comes_twice, .init = check_cheaply, .timeout = 3600)
{
    const char *wanted = getenv("KILN_PAIRS");
    const size_t step = wanted && !strcmp(wanted, "all") ? 1 : sample_count - 1;
    for (size_t i = 0; i < sample_count * sample_count && failures < MOST_FAILURES; i += step)
        try_three(&samples[i / sample_count], &samples[i % sample_count], NULL, false);
    check_close();
}

Test(pairs, triples_of_all_kinds, .init = check_cheaply, .timeout = 600)
{
    for (int i = 0; i < SAMPLE_KINDS * SAMPLE_KINDS * SAMPLE_KINDS && failures < MOST_FAILURES; i++)
        try_three(kind(i / SAMPLE_KINDS / SAMPLE_KINDS), kind(i / SAMPLE_KINDS % SAMPLE_KINDS),
                  kind(i % SAMPLE_KINDS), false);
    check_close();
}
