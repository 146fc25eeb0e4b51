/* SPDX-License-Identifier: Apache-2.0 */
/* The catalogue of kernels as a table, and what is asked of its rows. */
#include "device/kernels.h"

#include <string.h>

enum {
    CHUNKED = KILN__KERNEL_CHUNKED,
    GROUPED = KILN__KERNEL_GROUPED,
    AMPERE = KILN__KERNEL_AMPERE,
    HOPPER = KILN__KERNEL_HOPPER,
    PROVED = KILN__KERNEL_PROVED,
    STEPS = KILN__KERNEL_STEPS,
    NO_WORKSPACE = KILN__KERNEL_NO_WORKSPACE,
    IM2COL = KILN__KERNEL_IM2COL,
    BATCH_INVARIANT = KILN__KERNEL_BATCH_INVARIANT,
    EXACT_INTEGERS = KILN__KERNEL_EXACT_INTEGERS,
    LOG_SUM_EXP = KILN__KERNEL_LOG_SUM_EXP,
    PAIR = KILN__KERNEL_PAIR,
    OWN_ORDER = KILN__KERNEL_OWN_ORDER
};

static const struct kiln__kernel_row rows[] = {
#define KERNEL(family, module, name, file, traits, purpose)                                        \
    {KILN__KERNEL_##family, traits, #name, file, purpose},
#include "device/kernels.def"
};
enum { ROWS = sizeof rows / sizeof *rows };

const struct kiln__kernel_row *kiln__kernel(size_t number)
{
    return number < ROWS ? &rows[number] : NULL;
}

size_t kiln__kernel_number(const struct kiln__kernel_row *kernel)
{
    return (size_t)(kernel - rows);
}

const struct kiln__kernel_row *kiln__kernel_of(enum kiln__kernel_family family, size_t number)
{
    for (size_t i = 0; i < ROWS; i++)
        if (rows[i].family == family && number-- == 0)
            return &rows[i];
    return NULL;
}

const struct kiln__kernel_row *kiln__kernel_named(enum kiln__kernel_family family, const char *name)
{
    for (size_t i = 0; i < ROWS; i++)
        if (rows[i].family == family && !strcmp(rows[i].name, name))
            return &rows[i];
    return NULL;
}

const char *kiln__kernel_family_name(enum kiln__kernel_family family)
{
    static const char *const names[] = {"a product", "an attention", "an attention's gradient",
                                        "a sort", "a scatter"};
    _Static_assert(sizeof names / sizeof *names == KILN__KERNEL_FAMILIES, "a name per family");
    return names[family];
}

bool kiln__kernel_is_for(const struct kiln__kernel_row *kernel, const struct kiln__device *device)
{
    const unsigned traits = kernel->traits;
    const bool chunked = device->traits->chunked, ptx = device->info.has_inline_ptx;
    return (!(traits & CHUNKED) || chunked) && (!(traits & GROUPED) || !chunked) &&
           (!(traits & AMPERE) || (ptx && device->ptx_level >= KILN__AMPERE)) &&
           (!(traits & HOPPER) || (ptx && device->ptx_level == KILN__HOPPER));
}

bool kiln__kernel_is_tuned_on(const struct kiln__kernel_row *kernel,
                              const struct kiln__device *device)
{
    return !(kernel->traits & CHUNKED) == !device->traits->chunked;
}

const char *kiln__reason_text(enum kiln__reason reason)
{
    static const char *const words[] = {"it was asked for", "the tuned values have it",
                                        "it is expected to be the fastest", "nothing else fits"};
    return words[reason];
}
