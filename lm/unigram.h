/* SPDX-License-Identifier: Apache-2.0 */
/* SentencePiece's unigram model: of all ways to put a piece together from tokens, the one whose
 * scores have the greatest sum. */
#ifndef KILN_LM_UNIGRAM_H
#define KILN_LM_UNIGRAM_H

#include "lm/bpe.h"
#include "lm/vocabulary.h"

struct kiln__unigram {
    const struct kiln__vocabulary *vocabulary;
    double *scores;     /* of each token; freed with it */
    double stranger;    /* score of a character that is no token */
    int32_t unknown;    /* what such characters in a row become together, */
    int32_t bytes[256]; /* unless their bytes all are tokens; -1: it is none */
};

/* Once vocabulary, scores and unknown are there. */
void kiln__unigram_begin(struct kiln__unigram *unigram);
void kiln__unigram_free(struct kiln__unigram *unigram);

/* Add the tokens of a piece, which is UTF-8. Threads: any. False: no memory. */
bool kiln__unigram_encode(const struct kiln__unigram *unigram, const char *text, size_t bytes,
                          struct kiln__tokens *tokens);

#endif
