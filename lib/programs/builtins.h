/* SPDX-License-Identifier: Apache-2.0 */
/* The declarations of OpenCL C's functions that a program of kiln's own needs. */
#pragma once

#include "util/text.h"

/* The program behind the lines of kernels/builtins.cl that it needs; errors name its own lines. */
void kiln__builtins_declare(const char *source, struct kiln__text *text);
