/* SPDX-License-Identifier: Apache-2.0 */
/* BERT's tokenizer: a text becomes the numbers of the pieces of its words, as the models of that
 * family were trained with. Cleaning and cutting are those of Hugging Face's `tokenizers`, whose
 * numbers tests/onnx/test_wordpiece.c knows; Unicode's tables are libutf8proc's. */
#pragma once

#include "tokenizer.h"

/* ---- code points (wordpiece_text.c) ---- */

struct points {
    int32_t *data;
    size_t count, capacity;
};

/* What a text goes through before it is cut. */
struct wordpiece_rules {
    bool clean; /* control characters go, white space becomes spaces */
    bool space_chinese;
    bool strip_accents;
    bool lowercase;
};

/* Fills `points` anew. Bytes that are not UTF-8 count as U+FFFD, which cleaning drops. False: no
 * memory. */
bool points_normalize(struct points *points, const char *text, size_t bytes,
                      const struct wordpiece_rules *rules);
bool points_is_punctuation(int32_t point);

/* ---- a vocabulary (wordpiece_vocabulary.c) ---- */

enum { WORDPIECE_MOST_PREFIX = 15, WORDPIECE_MOST_WORD = 10000 };

struct wordpiece {
    json_t *vocabulary;       /* piece: number */
    json_t *specials;         /* such as [MASK]: number; found in any text as they are */
    bool special_begins[256]; /* with such a byte */
    struct wordpiece_rules rules;
    char prefix[WORDPIECE_MOST_PREFIX + 1]; /* of a piece that does not begin a word */
    int32_t unknown;
    size_t longest_word;  /* in characters; a longer one is unknown */
    size_t longest_piece; /* in bytes */

    struct points points; /* of the text at hand */
    char *word;           /* room for a prefix, then the word at hand in UTF-8 */
};

/* Of tokenizer.json; where the reading has none, of vocab.txt, and of the tokenizer_config.json
 * beside it if there is one. NULL: said. */
struct wordpiece *wordpiece_read(const struct kiln__tokenizer_json *file);
void wordpiece_close(struct wordpiece *wordpiece);

/* The same tokenizer for another thread, to be closed as well. NULL: no memory. */
struct wordpiece *wordpiece_share(const struct wordpiece *wordpiece);

/* ---- texts (wordpiece.c) ---- */

/* See tokenizer_encode(), without what is around a text. */
bool wordpiece_encode(struct wordpiece *wordpiece, const char *text, size_t bytes, size_t most,
                      int32_t *ids, size_t *count);
