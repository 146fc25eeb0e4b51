/* SPDX-License-Identifier: Apache-2.0 */
/* The pieces of a GGUF file. It has those that begin a word with U+2581 before them, and others
 * without what BERT writes before these. */
#include <string.h>

#include "lm/error.h"
#include "lm/gguf.h"
#include "lm/wordpiece.h"

#define BEGINS_A_WORD "\342\226\201"

enum { LONGEST = 1024 }; /* bytes of a piece; no word has more */

/* As vocab.txt has it. False: it is too long to be part of a text. */
static bool spell(struct kiln__gguf_text text, bool is_whole, char piece[LONGEST])
{
    const size_t lead = strlen(BEGINS_A_WORD);
    const bool begins = text.length >= lead && !memcmp(text.bytes, BEGINS_A_WORD, lead);
    const char *before = is_whole || begins ? "" : "##";
    if (text.length >= LONGEST - 3 || memchr(text.bytes, 0, text.length))
        return false;
    if (!is_whole && begins) {
        text.bytes += lead;
        text.length -= lead;
    }
    memcpy(piece, before, strlen(before));
    memcpy(piece + strlen(before), text.bytes, text.length);
    piece[strlen(before) + text.length] = 0;
    return true;
}

/* Nothing in a file says that capitals count: pieces that have them do, but for those in brackets.
 */
static bool is_cased(const char *piece)
{
    if (*piece == '[')
        return false;
    while (*piece && (*piece < 'A' || *piece > 'Z'))
        piece++;
    return *piece;
}

static kiln_status find_unknown(const struct kiln__gguf *gguf,
                                const struct kiln__vocabulary *vocabulary,
                                struct kiln__wordpiece *words)
{
    uint64_t unknown = UINT64_MAX;
    kiln_status status =
        kiln__gguf_whole(gguf, "tokenizer.ggml.unknown_token_id", vocabulary->count - 1, &unknown);
    const json_t *usual = json_object_get(words->vocabulary, "[UNK]");
    if (!status && unknown == UINT64_MAX && !usual)
        status =
            kiln__lm_fail(KILN_INVALID_ARGUMENT,
                          "kiln_lm_load: %s: no token is for words that have none", gguf->path);
    words->unknown = unknown == UINT64_MAX ? (int32_t)json_integer_value(usual) : (int32_t)unknown;
    return status;
}

kiln_status kiln__wordpiece_read_gguf(const struct kiln__gguf *gguf,
                                      const struct kiln__vocabulary *vocabulary,
                                      struct kiln__wordpiece **words)
{
    const struct kiln__gguf_key *key;
    kiln_status status = kiln__gguf_array(gguf, "tokenizer.ggml.tokens", KILN__GGUF_STRING, &key);
    if (status)
        return status;
    const uint8_t *at = key->values;
    *words = kiln__wordpiece_create();
    if (!*words)
        return kiln__lm_no_memory("kiln_lm_load");
    bool cased = false;
    for (size_t i = 0; i < key->count; i++) {
        char piece[LONGEST];
        const enum kiln__token_kind kind = vocabulary->tokens[i].kind;
        const bool is_whole = kind == KILN__TOKEN_CONTROL || kind == KILN__TOKEN_UNKNOWN;
        const struct kiln__gguf_text text = kiln__gguf_next_text(&at);
        if (!spell(text, is_whole, piece))
            continue;
        cased = cased || (kind == KILN__TOKEN_NORMAL && text.bytes[0] != '[' && is_cased(piece));
        if (!kiln__wordpiece_add(*words, piece, (int32_t)i))
            return kiln__lm_no_memory("kiln_lm_load");
    }
    (*words)->rules.lowercase = (*words)->rules.strip_accents = !cased;
    return find_unknown(gguf, vocabulary, *words);
}
