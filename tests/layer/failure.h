/* SPDX-License-Identifier: Apache-2.0 */
/* Which call fails. */
#pragma once

#include <stdbool.h>

#include "calls.h"
#include "layer.h"

/* Who may be picked. */
enum layer__chance {
    LAYER__ANY,   /* by number or by name */
    LAYER__EVENT, /* the same, and the caller asked for an event */
    LAYER__NAMED  /* by name only */
};

struct layer__verdict {
    enum kiln_layer_where where; /* 0: the call goes its way */
    cl_int code;
};

/* Count one call and say whether it fails. */
struct layer__verdict layer__judge(enum layer__call call, enum layer__chance chance);

/* The body of kiln_layer_fail; `call` LAYER__CALLS means any. */
void layer__arm(unsigned long n, enum layer__call call, cl_int code, enum kiln_layer_mode mode,
                enum kiln_layer_where where);

/* Read the KILN_LAYER_FAIL variables. Returns the name of one that makes no sense, or NULL. */
const char *layer__arm_from_environment(void);
