/* SPDX-License-Identifier: Apache-2.0 */
/* What stands before the elements of an .npy file: a Python dictionary in words. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include <kiln/status.h>

#include "files/file_types.h"
#include "graph/shape.h"
#include "util/text.h"

struct kiln__npy {
    const struct kiln__file_type *type;
    bool swapped; /* bytes are in the other order than this machine's */
    bool fortran; /* the first index runs fastest */
    struct kiln__shape shape;
};

/* Read the dictionary, a zero-terminated text. After an error `why` says what is wrong with it.
 * Errors: IO_ERROR, UNSUPPORTED, TOO_LARGE. */
kiln_status kiln__npy_parse(const char *text, struct kiln__npy *npy, struct kiln__phrase *why);

/* All that stands before the elements of an array of kiln's. bf16 is announced as float32. */
void kiln__npy_print(kiln_type type, const struct kiln__shape *shape, struct kiln__text *text);

/* "\x93NUMPY", two bytes of version: what such a file begins with. */
#define KILN__NPY_MAGIC "\x93NUMPY"
enum { KILN__NPY_MAGIC_BYTES = 6 };
