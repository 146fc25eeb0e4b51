/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens from a GGUF file's metadata. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lm/error.h"
#include "lm/gguf.h"
#include "lm/vocabulary.h"

enum { MOST_TOKENS = 1 << 24 };

static kiln_status read_kinds(const struct kiln__gguf *gguf, struct kiln__vocabulary *vocabulary)
{
    static const char name[] = "tokenizer.ggml.token_type";
    const struct kiln__gguf_key *key = NULL;
    kiln_status status =
        kiln__gguf_key(gguf, name) ? kiln__gguf_array(gguf, name, KILN__GGUF_I32, &key) : KILN_OK;
    if (!status && key && key->count != vocabulary->count)
        status = kiln__lm_fail(KILN_INVALID_ARGUMENT,
                               "kiln_lm_load: %s: key \"%s\" has %zu elements for %zu tokens",
                               gguf->path, name, key->count, vocabulary->count);
    for (size_t i = 0; i < vocabulary->count && !status; i++) {
        const int32_t kind = key ? kiln__gguf_i32_at(key, i) : KILN__TOKEN_NORMAL;
        vocabulary->tokens[i].kind = kind >= KILN__TOKEN_NORMAL && kind <= KILN__TOKEN_BYTE
                                         ? (enum kiln__token_kind)kind
                                         : KILN__TOKEN_UNUSED;
    }
    return status;
}

/* What a token says, in a place with as much room as it takes in the file; answers how many bytes.
 */
static size_t spell(enum kiln__spelling spelling, enum kiln__token_kind kind,
                    struct kiln__gguf_text text, char *bytes)
{
    unsigned byte;
    char word[8];
    if (spelling == KILN__BYTE_LEVEL && kind == KILN__TOKEN_NORMAL)
        return kiln__byte_level(text.bytes, text.length, bytes);
    if (spelling == KILN__SPACED && kind == KILN__TOKEN_NORMAL)
        return kiln__spaced(text.bytes, text.length, bytes);
    if (spelling != KILN__AS_WRITTEN && kind == KILN__TOKEN_BYTE && text.length == 6) {
        snprintf(word, sizeof word, "%.6s", text.bytes);
        if (sscanf(word, "<0x%2X>", &byte) == 1) {
            *bytes = (char)byte;
            return 1;
        }
    }
    memcpy(bytes, text.bytes, text.length);
    return text.length;
}

static kiln_status read_tokens(const struct kiln__gguf *gguf, const struct kiln__gguf_key *key,
                               enum kiln__spelling spelling, struct kiln__vocabulary *vocabulary)
{
    const uint8_t *at = key->values;
    size_t bytes = 0;
    vocabulary->count = key->count;
    for (size_t i = 0; i < key->count; i++)
        bytes += kiln__gguf_next_text(&at).length;
    vocabulary->tokens = calloc(key->count + 1, sizeof *vocabulary->tokens);
    char *storage = vocabulary->storage = malloc(bytes + 1);
    if (!vocabulary->tokens || !storage)
        return kiln__lm_no_memory("kiln_lm_load");
    kiln_status status = read_kinds(gguf, vocabulary);
    at = key->values;
    for (size_t i = 0; i < key->count && !status; i++) {
        const struct kiln__gguf_text text = kiln__gguf_next_text(&at);
        struct kiln__token *token = &vocabulary->tokens[i];
        token->bytes = storage;
        token->length = spell(spelling, token->kind, text, storage);
        storage += token->length;
    }
    return status;
}

kiln_status kiln__vocabulary_read(const struct kiln__gguf *gguf, enum kiln__spelling spelling,
                                  struct kiln__vocabulary *vocabulary)
{
    const struct kiln__gguf_key *key;
    kiln_status status = kiln__gguf_array(gguf, "tokenizer.ggml.tokens", KILN__GGUF_STRING, &key);
    if (!status && (!key->count || key->count > MOST_TOKENS))
        status = kiln__lm_fail(KILN_INVALID_ARGUMENT, "kiln_lm_load: %s has %zu tokens", gguf->path,
                               key->count);
    if (!status)
        status = read_tokens(gguf, key, spelling, vocabulary);
    if (status)
        return status;
    return kiln__vocabulary_index(vocabulary) ? KILN_OK : kiln__lm_no_memory("kiln_lm_load");
}
