/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel's text as a function of a text with several. */
#pragma once

#include "util/text.h"

/* Append `source`, the text of kernels whose work-groups have `items` work-items, to `text`, so
 * that it can stand beside others: each of its names has "p<number>_" before it, -D options are
 * macros, kernels are functions with parameters before their own: int phase_item, phase_wide,
 * phase_high, a work-group's number and how many there are along the first two dimensions. Local
 * memory is the function's own: with several items there can be none. */
void kiln__phase_text(const char *source, const char *options, unsigned number, unsigned items,
                      struct kiln__text *text);
