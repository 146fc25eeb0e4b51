/* SPDX-License-Identifier: Apache-2.0 */
/* BERT's tokenizer: a text becomes the numbers of the pieces of its words, as the models of that
 * family were trained with. Cleaning and cutting are those of Hugging Face's `tokenizers`, whose
 * numbers tests/onnx/test_wordpiece.c knows; Unicode's tables are libutf8proc's. */
#ifndef KILN_LM_WORDPIECE_H
#define KILN_LM_WORDPIECE_H

#include <stdatomic.h>

#include "lm/bpe.h"
#include "lm/tokenizer_json.h"
#include "lm/vocabulary.h"

/* ---- code points (wordpiece_text.c) ---- */

struct kiln__points {
    int32_t *data;
    size_t count, capacity;
};

/* What a text goes through before it is cut. */
struct kiln__wordpiece_rules {
    bool clean; /* control characters go, white space becomes spaces */
    bool space_chinese;
    bool strip_accents;
    bool lowercase;
};

/* Fills `points` anew. Bytes that are not UTF-8 count as U+FFFD, which cleaning drops. False: no
 * memory. */
bool kiln__points_normalize(struct kiln__points *points, const char *text, size_t bytes,
                            const struct kiln__wordpiece_rules *rules);
bool kiln__points_is_punctuation(int32_t point);

/* ---- a vocabulary (wordpiece_vocabulary.c) ---- */

enum { KILN__WORDPIECE_MOST_PREFIX = 15, KILN__WORDPIECE_MOST_WORD = 10000 };

struct kiln__wordpiece {
    atomic_size_t holders;
    json_t *vocabulary;       /* piece: number */
    json_t *specials;         /* such as [MASK]: number; found in any text as they are */
    bool special_begins[256]; /* with such a byte */
    struct kiln__wordpiece_rules rules;
    char prefix[KILN__WORDPIECE_MOST_PREFIX + 1]; /* of a piece that does not begin a word */
    int32_t unknown;
    size_t longest_word;  /* in characters; a longer one is unknown */
    size_t longest_piece; /* in bytes */
};

/* Of tokenizer.json; where the reading has none, of vocab.txt, and of the tokenizer_config.json
 * beside it if there is one. NULL: said. */
struct kiln__wordpiece *kiln__wordpiece_read(const struct kiln__tokenizer_json *file);

/* One without pieces, as BERT's uncased models have it, and its pieces. NULL, false: no memory. */
struct kiln__wordpiece *kiln__wordpiece_create(void);
bool kiln__wordpiece_add(struct kiln__wordpiece *wordpiece, const char *piece, int32_t id);

/* Of a GGUF file (wordpiece_gguf.c); to be closed even after an error. Errors: INVALID_ARGUMENT,
 * OUT_OF_HOST_MEMORY. */
kiln_status kiln__wordpiece_read_gguf(const struct kiln__gguf *gguf,
                                      const struct kiln__vocabulary *vocabulary,
                                      struct kiln__wordpiece **words);

void kiln__wordpiece_hold(struct kiln__wordpiece *wordpiece);
void kiln__wordpiece_close(struct kiln__wordpiece *wordpiece);

/* ---- texts (wordpiece.c) ---- */

/* As kiln__subwords_encode(). */
bool kiln__wordpiece_encode(const struct kiln__wordpiece *wordpiece, const char *text, size_t bytes,
                            size_t most, struct kiln__tokens *tokens);

#endif
