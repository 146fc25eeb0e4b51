/* SPDX-License-Identifier: Apache-2.0 */
/* The text of an own kernel around the body that a program gives. */
#pragma once

#include "graph/custom_calls.h"
#include "util/text.h"
#include "util/vector.h"

/* Bytes of a name. */
#define KILN__CUSTOM_NAME 64

struct kiln__custom_writer {
    const kiln_custom_kernel *kernel;
    const struct kiln__custom_call *call;
    const struct kiln__shape *shapes; /* of the inputs */
    struct kiln__text text;
    KILN__VECTOR(struct kiln__custom_argument) arguments;
    bool failed; /* without memory */
};

/* Write the text, and list what the kernel takes. What source and header do not name is not handed
 * over.
 */
void kiln__custom_write(struct kiln__custom_writer *writer);
