/* SPDX-License-Identifier: Apache-2.0 */
/* BPE: parts of a piece are merged. Byte-level BPE begins with bytes, and of its pairs the one
 * comes first that the file lists first; SentencePiece's begins with characters, and the pair that
 * makes the token of the highest score comes first, or the one that the file lists first. */
#ifndef KILN_LM_BPE_H
#define KILN_LM_BPE_H

#include "lm/split.h"
#include "lm/vocabulary.h"

/* Numbers of tokens; all zero is an empty list. */
struct kiln__tokens {
    int32_t *numbers;
    size_t count, capacity;
};

/* False: no memory. */
bool kiln__tokens_add(struct kiln__tokens *tokens, int32_t number);

/* A text to be read. */
struct kiln__reading {
    const char *text;
    size_t bytes;
    bool control;      /* control tokens that are written out are these */
    const char *given; /* of each byte, whether it is part of none even so; NULL: of none */
};

/* Of two tokens in a row; the lowest rank comes first. */
struct kiln__bpe_merge {
    int32_t left, right, made;
    uint32_t rank;
};

struct kiln__bpe {
    const struct kiln__vocabulary *vocabulary;
    const struct kiln__split_rule *rule; /* of byte-level BPE; NULL: SentencePiece's, where all
                                            bytes are tokens, or there are ranks */
    bool whole;                          /* a piece that is a token needs no merges */
    int32_t bytes[256];                  /* their tokens; -1: none, the byte is left out */
    size_t n_merges;
    struct kiln__bpe_merge *merges; /* in the order of their pairs */
    uint32_t *ranks;                /* of tokens, by their scores */
    int32_t unknown;                /* what a byte without a token is; -1: it is left out */
    bool leads;                     /* a text begins with a space */
};

/* From a GGUF file: merges, or scores. */
kiln_status kiln__bpe_read(const struct kiln__gguf *gguf, const struct kiln__vocabulary *vocabulary,
                           struct kiln__bpe *bpe);
kiln_status kiln__bpe_read_scores(const struct kiln__gguf *gguf,
                                  const struct kiln__vocabulary *vocabulary, struct kiln__bpe *bpe);

/* Make merges that are there findable. */
void kiln__bpe_order(struct kiln__bpe *bpe);
void kiln__bpe_free(struct kiln__bpe *bpe);

/* Add the tokens of part of a text, of its beginning or of another. Threads: any. False: no memory.
 */
bool kiln__bpe_encode(const struct kiln__bpe *bpe, const char *text, size_t bytes, bool begins,
                      struct kiln__tokens *tokens);

#endif
