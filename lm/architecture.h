/* SPDX-License-Identifier: Apache-2.0 */
/* Architectures of decoders: what differs is a row's columns, sizes are the file's. */
#ifndef KILN_LM_ARCHITECTURE_H
#define KILN_LM_ARCHITECTURE_H

#include "lm/gguf.h"

struct kiln__architecture {
    const char *name; /* general.architecture */
    bool neighbours;  /* pairs that are turned are elements 2 i and 2 i + 1 */
    bool biases;      /* of queries, keys and values */
    bool head_norms;  /* queries and keys are normalised before they are turned */
};

/* Sizes and numbers of a model. */
struct kiln__lm_shape {
    const struct kiln__architecture *architecture;
    size_t layers, width, inner, words, context;
    size_t heads, pairs; /* of queries; of keys and values */
    size_t size;         /* of a head */
    size_t turned;       /* elements of it that are turned */
    double epsilon, base, scale;
};

/* Errors: INVALID_ARGUMENT, UNSUPPORTED. */
kiln_status kiln__lm_shape_read(const struct kiln__gguf *gguf, size_t words,
                                struct kiln__lm_shape *shape);

#endif
