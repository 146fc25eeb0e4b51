/* SPDX-License-Identifier: Apache-2.0 */
/* Tokenizers whose tokens are parts of a text as it is: byte-level BPE, as RoBERTa, ModernBERT and
 * Qwen have it, SentencePiece's BPE, as Gemma and Llama, and its unigram model, as XLM-R, e5 and
 * bge-m3. A text goes through the
 * stages that tokenizer.json names, as through those of Hugging Face's `tokenizers`:
 *
 *     added tokens -> normalizer -> added tokens -> pre-tokenizer -> model */
#ifndef KILN_TOOLS_SUBWORDS_H
#define KILN_TOOLS_SUBWORDS_H

#include <stdatomic.h>

#include "../lm/bpe.h"
#include "../lm/charsmap.h"
#include "../lm/unigram.h"
#include "tokenizer.h"

/* Bytes that grow; after a lack of memory nothing is added any more. */
struct chars {
    char *bytes;
    size_t count, room;
    bool failed;
};
void chars_add(struct chars *chars, const char *bytes, size_t count);

/* ---- the normalizer (subwords_normalize.c) ---- */

enum { SUBWORDS_MOST_STEPS = 16 };

enum subwords_normal {
    SUBWORDS_CHARSMAP,
    SUBWORDS_UNICODE, /* by utf8proc's options */
    SUBWORDS_LOWERCASE,
    SUBWORDS_STRIP_ACCENTS,
    SUBWORDS_STRIP, /* white space at the ends */
    SUBWORDS_REPLACE,
    SUBWORDS_REPLACE_SPACES, /* two or more */
    SUBWORDS_PREPEND
};

struct subwords_step {
    enum subwords_normal kind;
    int options;      /* of utf8proc */
    bool left, right; /* ends of a text */
    char *from, *to;  /* texts */
    uint8_t *data;    /* what the map borrows */
    struct kiln__charsmap map;
};

struct subwords_normalizer {
    struct subwords_step steps[SUBWORDS_MOST_STEPS];
    size_t count;
};

/* The text in `chars` becomes its normal form. */
void subwords_normalize(const struct subwords_normalizer *normalizer, struct chars *chars);
bool subwords_read_normalizer(const struct tokenizer_reading *reading,
                              struct subwords_normalizer *normalizer);
void subwords_free_normalizer(struct subwords_normalizer *normalizer);

/* ---- added tokens (subwords_added.c) ---- */

/* Found in a text as it is, or as it is normalised. */
struct subwords_added {
    char *text;
    size_t length;
    int32_t id;
    bool takes_left, takes_right; /* white space beside it */
    bool is_word;                 /* not within a word */
    bool is_normal;
};

struct subwords_list {
    struct subwords_added *added;
    size_t count;
    bool begins[2][256]; /* with such a byte: as it is, normalised */
};

/* Where it is in a text. */
struct subwords_place {
    const struct subwords_added *added; /* NULL: there is none */
    size_t begin, end;
};

/* The next one. `from`: behind the last; *at: from where on to look, which moves on. */
struct subwords_place subwords_find(const struct subwords_list *list, bool is_normal,
                                    const char *text, size_t bytes, size_t from, size_t *at);
bool subwords_read_added(const struct tokenizer_reading *reading,
                         const struct subwords_normalizer *normalizer, struct subwords_list *list);
void subwords_free_added(struct subwords_list *list);

/* ---- all ---- */

struct subwords {
    atomic_size_t holders;
    struct subwords_list list;
    struct subwords_normalizer normalizer;
    struct kiln__vocabulary vocabulary;

    /* the pre-tokenizer */
    bool cuts_white; /* at white space, which goes */
    bool leads;      /* byte-level: a part begins with a space */
    bool is_spaced;  /* spaces become `space`, */
    char space[8];
    enum { SUBWORDS_NEVER, SUBWORDS_FIRST, SUBWORDS_ALWAYS } begins; /* a part begins with it, */
    bool cuts_spaced;                                                /* and is cut before it */

    bool is_unigram;
    struct kiln__bpe bpe;
    struct kiln__unigram unigram;
};

struct subwords *subwords_read(const struct tokenizer_reading *reading);
void subwords_hold(struct subwords *subwords);
void subwords_close(struct subwords *subwords);

/* See tokenizer_encode(), without what is around a text. Threads: any. */
bool subwords_encode(const struct subwords *subwords, const char *text, size_t bytes, size_t most,
                     int32_t *ids, size_t *count);

/* A token's part of a text: what stands for a space is one, and what names a byte is that byte.
 * `bytes` has room for as many as the token has. Returns how many. Threads: any. */
size_t subwords_write(const struct subwords *subwords, int32_t token, char *bytes);

#endif
