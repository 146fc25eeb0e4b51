/* SPDX-License-Identifier: Apache-2.0 */
/* What the decoders of values.def's kinds share: a function for each, the bytes, and what the
 * arguments of one call have to do with each other. */
#pragma once

#include "fuzz/values.h"
#include "fuzz/world.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define ONE_OF(array) (array)[byte() % COUNT(array)]

/* What arguments of one call share. */
extern struct taken {
    struct batch_slot *batch;
    struct kiln__shape shape; /* of the latest tensor or buffer, else of anything */
    size_t bytes;             /* its bytes */
    struct kiln__shape model; /* that dims follow */
    bool has_model;
    size_t rank, n; /* the largest so far */
    bool array;     /* one that is not NULL has been handed out: no large n from now on */
    unsigned arrays;
    float *floats;
    kiln_tensor *tensors;
} now;

/* True in about one of `n` cases. */
bool one_in(unsigned n);

/* An array, unless the count beside it is beyond any array. `turn` tells those of a call apart. */
bool array_allowed(unsigned *turn);

/* Longer than any name may be. */
const char *long_text(void);

/* An extent, and an index into one: right ones mostly. */
size_t take_size(void);
int64_t take_position(size_t extent);

/* The size field of a structure of `right` bytes: right mostly. */
size_t take_struct_size(size_t right);

#define KIND(name, type) type take_##name(void);
#include "fuzz/values.def"
#undef KIND
