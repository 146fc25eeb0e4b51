/* SPDX-License-Identifier: Apache-2.0 */
/* A safetensors file: eight bytes that say how long its header is, the header, which is JSON, and
 * the tensors' elements, one after another without gaps. */
#pragma once

#include <jansson.h>

#include "files/file_types.h"
#include "files/mapping.h"
#include "graph/shape.h"

struct kiln__saved {
    const char *name;                     /* the header's */
    const char *word;                     /* what the file calls its type, the header's too */
    const struct kiln__file_type *stored; /* NULL: no type that is known here */
    struct kiln__shape shape;
    size_t begin, end; /* of its elements, from the first tensor's on */
};

struct kiln__safetensors {
    struct kiln__mapping *mapping;
    json_t *header;
    size_t data;                 /* where the first tensor begins */
    struct kiln__saved *tensors; /* by name */
    size_t count;
};

/* Open a file and look at all that its header says, so that every tensor lies in it. `call` and
 * `path` are for sentences. After an error there is nothing to close.
 * Errors: IO_ERROR, UNSUPPORTED, TOO_LARGE, OUT_OF_HOST_MEMORY. */
kiln_status kiln__safetensors_open(const char *call, const char *path,
                                   struct kiln__safetensors *file);
void kiln__safetensors_close(struct kiln__safetensors *file);

/* NULL: there is none of that name. */
const struct kiln__saved *kiln__safetensors_find(const struct kiln__safetensors *file,
                                                 const char *name);

/* A tensor's name for a sentence, in quotation marks, cut where it is long. */
struct kiln__phrase kiln__safetensors_name(const char *name);

/* The longest header, which is what other readers take. */
#define KILN__SAFETENSORS_HEADER 100000000u

#define KILN__SAFETENSORS_METADATA "__metadata__"
