/* SPDX-License-Identifier: Apache-2.0 */
/* attention_copies.h, whose head has the recipe, with 46 of the 48 KiB of local memory that
 * OpenCL C lets a kernel have. */
#define DEPTH 8
#define RESIDENT 0
#define LOCAL_FLOATS (KEYS * LINE + 2 * STAGE)
#include "attention_copies.h"
