/* SPDX-License-Identifier: Apache-2.0 */
/* What a process has, counted after each shift of a soak: its memory, descriptors, threads and
 * OpenCL objects. */
#pragma once

#include <stdbool.h>

enum { SOAK_SHIFTS = 40, SOAK_COUNTS = 5 };

double soak_now(void); /* seconds */

void soak_count(unsigned long found[SOAK_COUNTS]);
void soak_print(const unsigned long found[SOAK_COUNTS]);

/* Whether nothing grows, as is printed. In less than a minute memory is only shown: kernels may
 * still be compiled for the first time. */
bool soak_is_flat(unsigned long found[SOAK_SHIFTS][SOAK_COUNTS], double seconds);
