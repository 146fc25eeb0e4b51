/* SPDX-License-Identifier: Apache-2.0 */
/* A call of a kernel of the program's own: its text, what is handed to it, and what it leaves.
 *
 * Equal calls are one in the whole process, so that nodes which name them have equal bytes, and
 * batches that make the same call share a plan. Each graph holds the calls that its nodes name. */
#pragma once

#include <kiln/custom.h>

#include "graph/loop.h"
#include "graph/shape.h"

enum kiln__custom_kind {
    KILN__CUSTOM_INPUT,  /* memory and offset of input `number` */
    KILN__CUSTOM_OUTPUT, /* the same of an output */
    KILN__CUSTOM_STRIDE, /* how far apart the elements of input `number` are along `dim`, i64 */
    KILN__CUSTOM_I32,    /* `integer` */
    KILN__CUSTOM_I64,
    KILN__CUSTOM_F32 /* `real` */
};

/* What the kernel takes, in its order. */
struct kiln__custom_argument {
    uint8_t kind; /* enum kiln__custom_kind */
    uint8_t number, dim;
    float real;
    int64_t integer;
};
_Static_assert(sizeof(struct kiln__custom_argument) == 16, "no padding");

struct kiln__custom_output {
    kiln_type type;
    struct kiln__shape shape;
};

/* Compared as bytes: padding is zero. */
struct kiln__custom_call {
    uint32_t n_inputs, n_outputs, n_arguments;
    uint32_t strided; /* bit k: input k may lie in any way that strides say */
    uint32_t weights; /* bit k: input k is kept in the kernel's form with the buffers it is of */
    kiln_type inputs[KILN_CUSTOM_INPUTS];
    struct kiln__custom_output outputs[KILN_CUSTOM_OUTPUTS];
    size_t global[3], local[3]; /* local[0] of 0: as the device likes */
    double scalars[KILN_CUSTOM_SCALARS];
    kiln_custom_host rounded; /* the host's function with f32's roundings: what these make of it
                                 many steps later bounds errors beside `tolerance`; or NULL */
    kiln_custom_host spread;  /* of kernels that are linear: at most what errors of inputs, or
                                 magnitudes, make of outputs; `tolerance` is relative to these
                                 then; or NULL */
    kiln_custom_host host;    /* as the program gave them, these and what follows */
    kiln_custom_gradient gradient;
    double tolerance;
    void *user;
};

struct kiln__custom {
    struct kiln__custom_call call;
    const struct kiln__custom_argument *arguments;
    const char *kernel; /* in `text`: KILN__CUSTOM_PREFIX and the name; static */
    const char *text;
    const char *file; /* kernels/FILE.cl, which the text's macros stand before: rows' functions in
                         them are FN(name), of vectors; static. NULL: the text is whole */
    const struct kiln__loop *loop; /* what the kernel does, in place of a text; NULL: has one */
};

#define KILN__CUSTOM_PREFIX "kiln_"

/* The name that the program gave it. */
const char *kiln__custom_name(const struct kiln__custom *custom);

/* The one that equals `custom`, which is copied if there is none yet; NULL without memory. Give
 * it back by kiln__custom_release(). Any thread. */
const struct kiln__custom *kiln__custom_find(const struct kiln__custom *custom);
void kiln__custom_retain(const struct kiln__custom *custom);
void kiln__custom_release(const struct kiln__custom *custom);
