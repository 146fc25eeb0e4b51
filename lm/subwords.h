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

#include "lm/bpe.h"
#include "lm/charsmap.h"
#include "lm/tokenizer_json.h"
#include "lm/unigram.h"
#include "util/text.h"

/* ---- the normalizer (subwords_normalize.c) ---- */

enum { KILN__SUBWORDS_MOST_STEPS = 16 };

enum kiln__subwords_normal {
    KILN__SUBWORDS_CHARSMAP,
    KILN__SUBWORDS_UNICODE, /* by utf8proc's options */
    KILN__SUBWORDS_LOWERCASE,
    KILN__SUBWORDS_STRIP_ACCENTS,
    KILN__SUBWORDS_STRIP, /* white space at the ends */
    KILN__SUBWORDS_REPLACE,
    KILN__SUBWORDS_REPLACE_SPACES, /* two or more */
    KILN__SUBWORDS_PREPEND
};

struct kiln__subwords_step {
    enum kiln__subwords_normal kind;
    int options;      /* of utf8proc */
    bool left, right; /* ends of a text */
    char *from, *to;  /* texts */
    uint8_t *data;    /* what the map borrows */
    struct kiln__charsmap map;
};

struct kiln__subwords_normalizer {
    struct kiln__subwords_step steps[KILN__SUBWORDS_MOST_STEPS];
    size_t count;
};

/* The text in `chars` becomes its normal form. */
void kiln__subwords_normalize(const struct kiln__subwords_normalizer *normalizer,
                              struct kiln__text *chars);
bool kiln__subwords_read_normalizer(const struct kiln__tokenizer_json *reading,
                                    struct kiln__subwords_normalizer *normalizer);
void kiln__subwords_free_normalizer(struct kiln__subwords_normalizer *normalizer);

/* ---- added tokens (subwords_added.c) ---- */

/* Found in a text as it is, or as it is normalised. */
struct kiln__subwords_added {
    char *text;
    size_t length;
    int32_t id;
    bool takes_left, takes_right; /* white space beside it */
    bool is_word;                 /* not within a word */
    bool is_normal;
    bool is_special; /* a control token */
};

struct kiln__subwords_list {
    struct kiln__subwords_added *added;
    size_t count;
    bool begins[2][256]; /* with such a byte: as it is, normalised */
};

/* Where it is in a text. */
struct kiln__subwords_place {
    const struct kiln__subwords_added *added; /* NULL: there is none */
    size_t begin, end;
};

/* The next one. `from`: behind the last; *at: from where on to look, which moves on. */
struct kiln__subwords_place kiln__subwords_find(const struct kiln__subwords_list *list,
                                                bool is_normal, const struct kiln__reading *reading,
                                                size_t from, size_t *at);
/* Where the white space before a place begins, not before `from`. */
size_t kiln__subwords_white(const char *text, size_t at, size_t from);
bool kiln__subwords_read_added(const struct kiln__tokenizer_json *reading,
                               const struct kiln__subwords_normalizer *normalizer,
                               struct kiln__subwords_list *list);
void kiln__subwords_free_added(struct kiln__subwords_list *list);

/* ---- all ---- */

struct kiln__subwords {
    atomic_size_t holders;
    struct kiln__subwords_list list;
    struct kiln__subwords_normalizer normalizer;
    struct kiln__vocabulary vocabulary;

    /* the pre-tokenizer */
    bool cuts_white; /* at white space, which goes */
    bool leads;      /* byte-level: a part begins with a space */
    bool is_spaced;  /* spaces become `space`, */
    char space[8];
    enum {
        KILN__SUBWORDS_NEVER,
        KILN__SUBWORDS_FIRST,
        KILN__SUBWORDS_ALWAYS
    } begins;         /* a part begins with it, */
    bool cuts_spaced; /* and is cut before it */

    bool is_unigram;
    struct kiln__bpe bpe;
    struct kiln__unigram unigram;
};

struct kiln__subwords *kiln__subwords_read(const struct kiln__tokenizer_json *reading);
void kiln__subwords_hold(struct kiln__subwords *subwords);
void kiln__subwords_close(struct kiln__subwords *subwords);

/* Add the tokens of a text, up to `most` in the list: its end is left out where it is longer. What
 * is no UTF-8 is U+FFFD. Threads: any. False: no memory. */
bool kiln__subwords_encode(const struct kiln__subwords *subwords,
                           const struct kiln__reading *reading, size_t most,
                           struct kiln__tokens *tokens);

/* A token's part of a text: what stands for a space is one, and what names a byte is that byte.
 * `bytes` has room for as many as the token has. Returns how many. Threads: any. */
size_t kiln__subwords_write(const struct kiln__subwords *subwords, int32_t token, char *bytes);

#endif
