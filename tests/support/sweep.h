/* SPDX-License-Identifier: Apache-2.0 */
/* The error of elementwise rows in units of the last place, against the host in double: over a
 * dense sample of all floats for one operand, over special and random values for more. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sweep {
    double ulp;          /* the worst error; infinity where a finite value had to come, or NaN */
    double at[3], found; /* its operands, numbers among them, and what the device has */
    uint64_t tested, wrong;
};

/* Whether the row computes floats from floats. */
bool sweep_takes(unsigned op);

/* Run a row on the device of check_context(). One tensor: every `step`-th float of the 2^32, and
 * special values. More: special values with each other, and 2^32 / step / 4 random ones. */
void sweep_row(unsigned op, uint64_t step, struct sweep *sweep);

/* Rows of one tensor over the floats around each of `centres`, `each` of them. */
void sweep_around(unsigned op, const float *centres, size_t count, size_t each,
                  struct sweep *sweep);

/* "exp(88.7)" */
struct sweep_text {
    char text[120];
};
struct sweep_text sweep_call(unsigned op, const struct sweep *sweep);
