/* SPDX-License-Identifier: Apache-2.0 */
/* The tokenizer of a sentence encoder, from tokenizer.json or vocab.txt: WordPiece
 * (lm/wordpiece.h), or byte-level BPE and unigram models (lm/subwords.h). */
#ifndef KILN_TOOLS_TOKENIZER_H
#define KILN_TOOLS_TOKENIZER_H

#include "../lm/tokenizer_json.h"

struct kiln_lm;

struct tokenizer {
    struct kiln__wordpiece *words; /* one of the three, shared by all threads */
    struct kiln__subwords *subwords;
    struct kiln_lm *lm; /* a GGUF file's, which is borrowed */
    struct kiln__tokenizer_facts facts;
};

/* Read tokenizer.json, or vocab.txt (a piece a line) with the tokenizer_config.json beside it if
 * there is one. NULL: a sentence is in `error`. */
struct tokenizer *tokenizer_open(const char *path, char error[KILN__TOKENIZER_ERROR]);

/* That of an encoder in a GGUF file, which lives longer. NULL: no memory. */
struct tokenizer *tokenizer_of_model(struct kiln_lm *lm);
void tokenizer_close(struct tokenizer *tokenizer);

/* The same tokenizer for another thread, to be closed as well. NULL: no memory. */
struct tokenizer *tokenizer_share(const struct tokenizer *tokenizer);

/* The numbers of a text with those before and behind it, `most` at most: the text's end is left
 * out where it is longer. One thread at a time. False: no memory. */
bool tokenizer_encode(struct tokenizer *tokenizer, const char *text, size_t bytes, size_t most,
                      int32_t *ids, size_t *count);

#endif
