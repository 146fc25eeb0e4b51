/* SPDX-License-Identifier: Apache-2.0 */
/* attention_copies.h, whose head has the recipe, with as much local memory as OpenCL C lets a
 * kernel have: 46 KiB. */
#define DEPTH 8
#define RESIDENT 0
#define LOCAL_FLOATS (KEYS * LINE + 2 * STAGE)
#include "attention_copies.h"
