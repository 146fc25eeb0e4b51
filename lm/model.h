/* SPDX-License-Identifier: Apache-2.0 */
/* A model that was loaded. */
#ifndef KILN_LM_MODEL_H
#define KILN_LM_MODEL_H

#include <stdatomic.h>

#include <kiln/kiln.h>
#include <kiln/lm.h>

#include "lm/architecture.h"
#include "lm/tokenizer.h"

enum { KILN__LM_MOST_PARTS = 3 };

/* Rows that follow each other: queries, keys and values of a token come from one product, and so do
 * the two parts of a gate, unless the file stores them as different types. NULL: there is no more
 * of it. */
struct kiln__lm_matrix {
    kiln_buffer *parts[KILN__LM_MOST_PARTS];
};

/* What an architecture has not is empty. */
struct kiln__lm_layer {
    struct kiln__lm_matrix attention_norm, qkv, qkv_bias, q_norm, k_norm, out, out_norm;
    struct kiln__lm_matrix inner_norm, gate_up, down, down_norm;
};

struct kiln__lm_weights {
    struct kiln__lm_matrix words, norm;
    struct kiln__lm_matrix output; /* `words` itself where the file has none */
    float *factors;                /* of the angles' frequencies; NULL: all 1 */
    struct kiln__lm_layer *layers;
};

struct kiln_lm {
    atomic_int references; /* the caller's and sessions' */
    kiln_context *context;
    kiln_type stored; /* type of matrices; 0: each as the file has it */
    struct kiln__tokenizer tokenizer;
    struct kiln__lm_shape shape;
    struct kiln__lm_weights weights;
    char *name, *architecture, *template; /* texts of kiln_lm_info */
};

/* Errors: INVALID_ARGUMENT (a tensor that is missing, or of another shape), those of buffers. */
kiln_status kiln__lm_weights_read(const struct kiln__gguf *gguf, kiln_lm *lm);
void kiln__lm_weights_free(kiln_lm *lm);

/* The tokens of a text, which the caller frees; with `begin` the one that a text begins with comes
 * first, if the file wants it. Errors: OUT_OF_HOST_MEMORY. */
kiln_status kiln__lm_encode(const char *call, const kiln_lm *lm,
                            const struct kiln__reading *reading, bool begin, int32_t **tokens,
                            size_t *count);

#endif
