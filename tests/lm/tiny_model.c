/* SPDX-License-Identifier: Apache-2.0 */
/* The tiny model, loaded for each test of a suite. */
#include "tiny_model.h"

#include <criterion/criterion.h>

#include "tiny.h"

kiln_lm *lm;

void open_model(void)
{
    open_device();
    expect_ok(kiln_lm_load(context, tiny_path(), NULL, &lm));
}

void close_model(void)
{
    kiln_lm_release(lm);
    close_device();
}

void expect_nothing_made(const kiln_context_stats *since)
{
    const kiln_context_stats now = stats_of(context);
    cr_expect_eq(now.plans_made, since->plans_made);
    cr_expect_eq(now.kernels_compiled + now.kernels_from_disk,
                 since->kernels_compiled + since->kernels_from_disk);
}
