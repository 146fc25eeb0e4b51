/* SPDX-License-Identifier: Apache-2.0 */
/* The texts of kernels/NAME.cl, put into the library at build time. */
#pragma once

#include <stddef.h>

/* The text of kernels/NAME.cl, NULL if there is none. */
const char *kiln__kernel_text(const char *name);
