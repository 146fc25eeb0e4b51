/* SPDX-License-Identifier: Apache-2.0 */
/* From texts to tokens and back, as a file's metadata says. */
#ifndef KILN_LM_TOKENIZER_H
#define KILN_LM_TOKENIZER_H

#include "lm/bpe.h"
#include "lm/gguf.h"
#include "lm/subwords.h"
#include "lm/vocabulary.h"
#include "lm/wordpiece.h"

struct kiln__tokenizer {
    struct kiln__vocabulary vocabulary;
    struct kiln__bpe bpe;
    struct kiln__subwords
        *subwords; /* of tokenizer.json, in place of all that finds tokens; or NULL */
    struct kiln__wordpiece *words; /* of encoders, in place of bpe; or NULL */
    struct kiln__subwords *pieces; /* of encoders, too, between special tokens; or NULL */
    bool encodes;                  /* texts stand between two tokens, and do not go on */
    int32_t begin, end;            /* of a text; -1: none */
    int32_t mask;                  /* of encoders; -1: none */
    bool adds_begin;
    bool *ends; /* of each token, whether an answer ends with it */
};

/* Of an encoder, or of a model whose texts go on. Errors: INVALID_ARGUMENT, UNSUPPORTED,
 * OUT_OF_HOST_MEMORY; to be freed even so. */
kiln_status kiln__tokenizer_read(const struct kiln__gguf *gguf, bool encodes,
                                 struct kiln__tokenizer *tokenizer);

/* Which tokens of the vocabulary end an answer in whatever file. Errors: OUT_OF_HOST_MEMORY. */
kiln_status kiln__tokenizer_make_ends(struct kiln__tokenizer *tokenizer);
void kiln__tokenizer_free(struct kiln__tokenizer *tokenizer);

/* Add the tokens of a text. Threads: any. False: no memory. */
bool kiln__tokenizer_encode(const struct kiln__tokenizer *tokenizer,
                            const struct kiln__reading *reading, struct kiln__tokens *tokens);

#endif
