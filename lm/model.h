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
    struct kiln__lm_matrix out_bias, out_norm_shift, up_bias, down_bias, down_norm_shift;
};

struct kiln__lm_weights {
    struct kiln__lm_matrix words, norm;
    struct kiln__lm_matrix output;                    /* `words` itself where the file has none */
    struct kiln__lm_matrix norm_shift, places, kinds; /* of encoders */
    kiln_buffer *cosine, *sine; /* of encoders that turn, of each position [context,turned/2] */
    float *factors;             /* of the angles' frequencies; NULL: all 1 */
    struct kiln__lm_layer *layers;
};

struct kiln_lm {
    atomic_int references; /* the caller's and sessions' */
    kiln_context *context;
    kiln_type stored; /* type of matrices; 0: each as the file has it */
    struct kiln__tokenizer tokenizer;
    struct kiln__lm_shape shape;
    struct kiln__lm_weights weights;
    struct kiln__lm_genai *genai; /* an ONNX file in place of weights; NULL: there is none */
    char *name, *architecture, *template; /* texts of kiln_lm_info */
};

/* Errors: INVALID_ARGUMENT (a tensor that is missing, or of another shape), those of buffers. */
kiln_status kiln__lm_weights_read(const struct kiln__gguf *gguf, kiln_lm *lm);
void kiln__lm_weights_free(kiln_lm *lm);

/* Whether it is one of blocks that kiln_lm_options::weights may ask for. */
bool kiln__lm_is_block_type(kiln_type type);

/* A buffer [rows, width] of f32 is replaced by one of blocks, unless these cannot hold it. Errors:
 * OUT_OF_HOST_MEMORY, those of buffers. */
kiln_status kiln__lm_quantise(kiln_context *context, kiln_type type, size_t rows, size_t width,
                              kiln_buffer **matrix);

/* The tokens of a text, which the caller frees; with `begin` the one that a text begins with comes
 * first, if the file wants it. Errors: OUT_OF_HOST_MEMORY. */
kiln_status kiln__lm_encode(const char *call, const kiln_lm *lm,
                            const struct kiln__reading *reading, bool begin, int32_t **tokens,
                            size_t *count);

#endif
