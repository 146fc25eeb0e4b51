/* SPDX-License-Identifier: Apache-2.0 */
/* Structures of the public interface in the form that a caller was built with, which may be older
 * or newer than the library's: see "Structures that can grow" in kiln/types.h. */
#pragma once

#include <stddef.h>

#include "util/error.h"

/* What a caller gives, and who asks. */
struct kiln__given {
    const char *call;
    const char *name;        /* of the argument */
    const char *initialiser; /* that sets its size */
    const void *at;
    size_t size;
};

/* Take it in our form: what the caller's lacks is 0. Errors, as kiln__fail() takes them:
 * INVALID_ARGUMENT (no such structure has that size), UNSUPPORTED (something other than 0 in what
 * ours lacks). */
kiln_status kiln__structure_take(struct kiln__error *error, const struct kiln__given *given,
                                 void *own, size_t own_size);

/* The same of a structure that begins with its size: from `given` to *own. */
#define KILN__STRUCTURE_READ(error, call, given, initialiser, own)                                 \
    kiln__structure_take(error,                                                                    \
                         &(struct kiln__given){call, #given, initialiser, given, (given)->size},   \
                         own, sizeof *(own))

/* Fill the caller's form of ours: what ours lacks is 0. */
void kiln__structure_fill(void *to, size_t size, const void *own, size_t own_size);
