/* SPDX-License-Identifier: Apache-2.0 */
/* How elements come from memory and go there. No other text of generated kernels knows how a type
 * is stored. */
#pragma once

#include "ops/ops.h"
#include "util/code.h"

/* A type's name in OpenCL C where values are computed: "float", "float16". */
struct kiln__type_name {
    char text[16];
};
struct kiln__type_name kiln__emit_type(kiln_type type, unsigned width);

/* What pointers to memory of the type point to. */
const char *kiln__emit_memory_type(kiln_type type);

/* Write an expression: `value`, a step's of type `from`, as one of type `to`. Integers beyond its
 * range wrap around, or are its ends where it `saturates`. */
void kiln__emit_convert(struct kiln__text *text, kiln_type from, kiln_type to, unsigned width,
                        const char *value, bool saturates);

/* How the elements of a vector lie. */
enum kiln__fit {
    KILN__FIT_ALIGNED, /* neighbours, at a multiple of the vector's size */
    KILN__FIT_LOOSE,   /* neighbours, at a multiple of an element's size */
    KILN__FIT_SPREAD,  /* the same, on a device that may have to store them one by one */
    KILN__FIT_STRIDED  /* `stride` apart */
};

/* `width` elements of memory from `offset` on; the texts are such as "x3", "b3 + i". Of strided
 * ones element `lane` is at `offset` + (`at` + lane) * `stride`. */
struct kiln__elements {
    kiln_type type;
    unsigned width;
    enum kiln__fit fit;
    bool checked; /* the index is looked at (checked_text.c) */
    struct kiln__phrase pointer, offset;
    const char *at; /* STRIDED, and: */
    struct kiln__phrase stride;
};

/* Write an expression: their value. */
void kiln__emit_load(struct kiln__text *text, const struct kiln__elements *elements);

/* Add statements that store `value` there; `stream` also in a form that goes past the caches,
 * for aligned vectors, which the kernel's variable of that name turns on. */
void kiln__emit_store(struct kiln__code *code, const struct kiln__elements *elements,
                      const char *value, bool stream);
