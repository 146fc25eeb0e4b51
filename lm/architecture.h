/* SPDX-License-Identifier: Apache-2.0 */
/* Architectures of decoders: what differs is a row's columns, sizes are the file's. */
#ifndef KILN_LM_ARCHITECTURE_H
#define KILN_LM_ARCHITECTURE_H

#include "lm/gguf.h"

struct kiln__architecture {
    const char *name;   /* general.architecture */
    const char *folder; /* model_type of config.json */
    bool neighbours;    /* pairs that are turned are elements 2 i and 2 i + 1, in GGUF files */
    bool biases;        /* of queries, keys and values */
    bool head_norms;    /* queries and keys are normalised before they are turned */
    bool fused;         /* queries, keys and values are one tensor, and so are gate and up */
    bool after_norms;   /* what attention and feed-forward give is normalised, too */
    bool gelu;          /* the gate's function, as its approximation by tanh; else swish */
    bool scaled;        /* a token's vector is multiplied by the root of its width */
    bool shifted;       /* folders have scales of norms less 1 */
    size_t period;      /* of so many layers the last one sees all keys; of the others each sees a
                           window; 0: all see all; 1: all see the window */
};

/* kiln__lm_shape::tied where nothing says it. */
#define KILN__LM_TIED_UNLESS_THERE (-1)

/* Angles of layers that see all keys, and of those that see a window. */
enum kiln__lm_reach { KILN__LM_FAR, KILN__LM_NEAR, KILN__LM_REACHES };

/* Sizes and numbers of a model. */
struct kiln__lm_shape {
    const struct kiln__architecture *architecture;
    size_t layers, width, inner, words, context;
    size_t heads, pairs; /* of queries; of keys and values */
    size_t size;         /* of a head */
    size_t turned;       /* elements of it that are turned */
    size_t window;       /* keys that a near layer sees, its own among them; 0: all */
    bool neighbours;     /* of pairs that are turned */
    int tied;            /* whether logits are products with the words' own vectors */
    double epsilon, attention_scale;
    double base[KILN__LM_REACHES], scale[KILN__LM_REACHES]; /* of angles */
};

enum kiln__lm_reach kiln__lm_reach(const struct kiln__lm_shape *shape, size_t layer);

/* The row of a name, of folders or of GGUF files. Errors: UNSUPPORTED. */
kiln_status kiln__lm_architecture(const char *path, const char *name, size_t length, bool is_folder,
                                  struct kiln__lm_shape *shape);

/* Whether sizes fit each other; `values` is the size of a head of values. Errors: UNSUPPORTED. */
kiln_status kiln__lm_shape_check(const char *path, const struct kiln__lm_shape *shape,
                                 size_t values);

/* Errors: INVALID_ARGUMENT, UNSUPPORTED. */
kiln_status kiln__lm_shape_read(const struct kiln__gguf *gguf, size_t words,
                                struct kiln__lm_shape *shape);

#endif
