/* SPDX-License-Identifier: Apache-2.0 */
/* The tokenizer of a sentence encoder, from tokenizer.json or vocab.txt: WordPiece (wordpiece.h),
 * or byte-level BPE and unigram models (subwords.h). */
#ifndef KILN_TOOLS_TOKENIZER_H
#define KILN_TOOLS_TOKENIZER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TOKENIZER_MOST_AROUND = 4, /* tokens before and behind each text */
    TOKENIZER_ERROR = 512
};

/* Tokens before and behind each text. */
struct tokenizer_around {
    int32_t before[TOKENIZER_MOST_AROUND], after[TOKENIZER_MOST_AROUND];
    size_t before_count, after_count;
};

struct tokenizer {
    struct wordpiece *words;   /* one of the two */
    struct subwords *subwords; /* shared by all threads */
    struct tokenizer_around around;
    int32_t unknown; /* a token for a text that would have none */
    int32_t largest; /* number of a token */
};

/* Read tokenizer.json, or vocab.txt (a piece a line) with the tokenizer_config.json beside it if
 * there is one. NULL: a sentence is in `error`. */
struct tokenizer *tokenizer_open(const char *path, char error[TOKENIZER_ERROR]);
void tokenizer_close(struct tokenizer *tokenizer);

/* The same tokenizer for another thread, to be closed as well. NULL: no memory. */
struct tokenizer *tokenizer_share(const struct tokenizer *tokenizer);

/* The numbers of a text with those before and behind it, `most` at most: the text's end is left
 * out where it is longer. One thread at a time. False: no memory. */
bool tokenizer_encode(struct tokenizer *tokenizer, const char *text, size_t bytes, size_t most,
                      int32_t *ids, size_t *count);

/* ---- reading (tokenizer_json.c) ---- */

/* Everything in such a file comes from outside: what is not as expected is an error in words. */
struct tokenizer_reading {
    const char *path;
    const json_t *root; /* of tokenizer.json */
    char *error;
    struct tokenizer *to;
};

/* Answers false. */
bool tokenizer_refuse(const struct tokenizer_reading *reading, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A member's text, "" if there is none; a flag that may be left out. */
const char *tokenizer_text(const json_t *object, const char *key);
bool tokenizer_flag(const json_t *object, const char *key, bool usual);

/* Read what stands around a text. */
bool tokenizer_read_processor(const struct tokenizer_reading *reading);

#endif
