/* SPDX-License-Identifier: Apache-2.0 */
/* attention_copies.h, whose head has the recipe, with longer stages: a barrier for every 2048
 * multiply-adds of an item, not for every 512. They take more local memory than OpenCL C lets a
 * kernel have, so that the array, [4096] bytes here, gets its size, LOCAL, in the program's binary,
 * which is PTX (lib/programs/edit.h). DEPTH is 32, and d is WIDTH at most. */
//edit 1 "[4096]" "[$LOCAL]"
#define RESIDENT 1
#define LOCAL_FLOATS 1024
#include "attention_copies.h"
