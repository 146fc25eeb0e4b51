/* SPDX-License-Identifier: Apache-2.0 */
/* The wrapped calls by number, and the dispatch table of what lies below the layer. */
#pragma once

#include "opencl.h"

enum layer__call {
#define CALL(shape, name, ...) LAYER__##name,
#include "calls.def"
#undef CALL
    LAYER__CALLS
};

/* The next layer, or the driver. */
extern cl_icd_dispatch layer__next;

/* Replace the entries of a table by the layer's own, where layer__next has the call at all. */
void layer__install(cl_icd_dispatch *table);
