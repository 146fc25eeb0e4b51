/* SPDX-License-Identifier: Apache-2.0 */
/* Architectures of decoders and encoders: what differs is a row's columns, sizes are the file's. */
#ifndef KILN_LM_ARCHITECTURE_H
#define KILN_LM_ARCHITECTURE_H

#include "lm/gguf.h"

struct kiln__architecture {
    const char *name;   /* general.architecture */
    const char *folder; /* model_type of config.json; NULL: there are no folders of it */
    bool encodes;       /* a text's tokens all see each other, and become one vector; norms are of
                           layers, and come behind attention and feed-forward */
    bool placed;        /* places have vectors of their own; else queries and keys are turned */
    bool plain;         /* feed-forward has no gate */
    bool neighbours;    /* pairs that are turned are elements 2 i and 2 i + 1, in GGUF files */
    bool biases;        /* of queries, keys and values; of encoders, of all products */
    bool head_norms;    /* queries and keys are normalised before they are turned */
    bool fused;         /* queries, keys and values are one tensor, and so are gate and up */
    bool after_norms;   /* what attention and feed-forward give is normalised, too */
    bool gelu;          /* the gate's function, as its approximation by tanh; else swish */
    bool scaled;        /* a token's vector is multiplied by the root of its width */
    bool shifted;       /* folders have scales of norms less 1 */
    bool said;          /* a GGUF file may say a window, which all layers see then */
    size_t period;      /* of so many layers the last one sees all keys; of the others each sees a
                           window; 0: all see all; 1: all see the window */
};

/* "pooling_type" of encoders' files beside those of kiln_lm_pooling. */
enum { KILN__LM_POOLING_NONE = 0, KILN__LM_POOLING_RANK = 4 };

/* Most tokens of an encoder's text. */
enum { KILN__LM_MOST_ENCODED = 8192 };

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
    size_t period;       /* the architecture's, or what the file says */
    bool neighbours;     /* of pairs that are turned, in the file: weights.c parts them */
    int pooling;         /* of encoders, pooling_type */
    int tied;            /* whether logits are products with the words' own vectors */
    double epsilon, attention_scale;
    double base[KILN__LM_REACHES], scale[KILN__LM_REACHES]; /* of angles */
};

/* Have all layers see a window, which the file does not say. Errors: UNSUPPORTED (layers of this
 * architecture see more than one). */
kiln_status kiln__lm_set_window(const char *path, size_t window, struct kiln__lm_shape *shape);

enum kiln__lm_reach kiln__lm_reach(const struct kiln__lm_shape *shape, size_t layer);

/* The row of a name, of folders or of GGUF files. Errors: UNSUPPORTED. */
kiln_status kiln__lm_architecture(const char *path, const char *name, size_t length, bool is_folder,
                                  struct kiln__lm_shape *shape);

/* Whether sizes fit each other; `values` is the size of a head of values. Errors: UNSUPPORTED. */
kiln_status kiln__lm_shape_check(const char *path, const struct kiln__lm_shape *shape,
                                 size_t values);

/* All but the number of words. Errors: INVALID_ARGUMENT, UNSUPPORTED. */
kiln_status kiln__lm_shape_read(const struct kiln__gguf *gguf, struct kiln__lm_shape *shape);

#endif
