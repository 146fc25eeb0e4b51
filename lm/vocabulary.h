/* SPDX-License-Identifier: Apache-2.0 */
/* The tokens of a model: bytes, and kinds. */
#ifndef KILN_LM_VOCABULARY_H
#define KILN_LM_VOCABULARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kiln/status.h>

struct kiln__gguf;

/* tokenizer.ggml.token_type. */
enum kiln__token_kind {
    KILN__TOKEN_NORMAL = 1,
    KILN__TOKEN_UNKNOWN = 2,
    KILN__TOKEN_CONTROL = 3,
    KILN__TOKEN_USER = 4,
    KILN__TOKEN_UNUSED = 5,
    KILN__TOKEN_BYTE = 6
};

struct kiln__token {
    const char *bytes;
    size_t length;
    enum kiln__token_kind kind;
};

struct kiln__vocabulary {
    size_t count;
    struct kiln__token *tokens;
    char *storage;
    size_t n_ordered, n_special;
    int32_t *ordered; /* those that texts become, by their bytes */
    int32_t *special; /* those that are found in texts as they are: by their first byte, of these */
    size_t special_from[257]; /* from here on, the longest first */
};

/* How a file writes tokens. */
enum kiln__spelling {
    KILN__BYTE_LEVEL, /* in characters that stand for bytes */
    KILN__SPACED,     /* U+2581 is a space, "<0x0A>" a byte */
    KILN__AS_WRITTEN
};

/* From a GGUF file. */
kiln_status kiln__vocabulary_read(const struct kiln__gguf *gguf, enum kiln__spelling spelling,
                                  struct kiln__vocabulary *vocabulary);

/* Make tokens that are there findable. False: no memory. */
bool kiln__vocabulary_index(struct kiln__vocabulary *vocabulary);
void kiln__vocabulary_free(struct kiln__vocabulary *vocabulary);

/* The token of these bytes; -1: there is none. */
int32_t kiln__vocabulary_find(const struct kiln__vocabulary *vocabulary, const char *bytes,
                              size_t length);

/* The longest special token that a text begins with; -1: none. Without `control` only those that a
 * user may write. */
int32_t kiln__vocabulary_special(const struct kiln__vocabulary *vocabulary, const char *text,
                                 size_t bytes, bool control);

/* From characters that stand for bytes to these; answers how many, at most `length`. Others stay as
 * they are. */
size_t kiln__byte_level(const char *text, size_t length, char *bytes);

/* U+2581 becomes a space; answers how many bytes there are, at most `length`. */
size_t kiln__spaced(const char *text, size_t length, char *bytes);

#endif
