/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel's text as a function of a text with several. */
#pragma once

#include "util/text.h"

struct kiln__phase_form {
    unsigned number; /* each of its names has "p<number>_" before it */
    unsigned items;  /* of a work-group */
    /* The caller lends local memory, which is the function's first parameter, and other work-groups
     * have written what it reads: no pointer is restricted, so that no load is made too early. */
    bool lent_memory;
};

/* Append `source`, the text of kernels of such work-groups, to `text`, so that it can stand beside
 * others: -D options are macros, kernels are functions with parameters before their own: int
 * phase_item, phase_wide, phase_high, a work-group's number and, of single items, how many there
 * are along the first two dimensions. Local memory is the function's own where there is one item;
 * else there is none that is not lent. Returns how many bytes are to be lent. */
size_t kiln__phase_text(const char *source, const char *options,
                        const struct kiln__phase_form *form, struct kiln__text *text);
