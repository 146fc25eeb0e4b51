/* SPDX-License-Identifier: Apache-2.0 */
/* Merges and scores from a GGUF file's metadata. */
#include <stdlib.h>
#include <string.h>

#include "lm/bpe.h"
#include "lm/error.h"
#include "lm/gguf.h"

/* "left right": the first space behind the first character parts them. `room` has as many bytes as
 * the text. */
static bool read_merge(const struct kiln__vocabulary *vocabulary, struct kiln__gguf_text text,
                       char *room, struct kiln__bpe_merge *merge)
{
    const char *space = text.length > 1 ? memchr(text.bytes + 1, ' ', text.length - 1) : NULL;
    if (!space)
        return false;
    const size_t before = (size_t)(space - text.bytes);
    const size_t left = kiln__byte_level(text.bytes, before, room);
    const size_t right = kiln__byte_level(space + 1, text.length - before - 1, room + left);
    merge->left = kiln__vocabulary_find(vocabulary, room, left);
    merge->right = kiln__vocabulary_find(vocabulary, room + left, right);
    merge->made = kiln__vocabulary_find(vocabulary, room, left + right);
    return merge->left >= 0 && merge->right >= 0 && merge->made >= 0;
}

static kiln_status read_merges(const struct kiln__gguf *gguf, const struct kiln__gguf_key *key,
                               struct kiln__bpe *bpe)
{
    const uint8_t *at = key->values;
    size_t longest = 1;
    for (size_t i = 0; i < key->count; i++) {
        const size_t length = kiln__gguf_next_text(&at).length;
        longest = length > longest ? length : longest;
    }
    char *room = malloc(longest);
    bpe->merges = malloc((key->count + 1) * sizeof *bpe->merges);
    kiln_status status = room && bpe->merges ? KILN_OK : kiln__lm_no_memory("kiln_lm_load");
    at = key->values;
    for (size_t i = 0; i < key->count && !status; i++) {
        const struct kiln__gguf_text text = kiln__gguf_next_text(&at);
        bpe->merges[i].rank = (uint32_t)i;
        if (!read_merge(bpe->vocabulary, text, room, &bpe->merges[i]))
            status = kiln__lm_fail(KILN_INVALID_ARGUMENT,
                                   "kiln_lm_load: %s: merge %zu, \"%.*s\", is no pair of tokens "
                                   "that makes a token",
                                   gguf->path, i, KILN__GGUF_SAID(text));
    }
    free(room);
    if (status)
        return status;
    bpe->n_merges = key->count;
    kiln__bpe_order(bpe);
    return KILN_OK;
}

kiln_status kiln__bpe_read(const struct kiln__gguf *gguf, const struct kiln__vocabulary *vocabulary,
                           struct kiln__bpe *bpe)
{
    struct kiln__gguf_text name = {"none", 4};
    const struct kiln__gguf_key *key;
    kiln_status status = kiln__gguf_string(gguf, "tokenizer.ggml.pre", &name);
    bpe->vocabulary = vocabulary;
    bpe->rule = kiln__split_rule(name.bytes, name.length);
    if (!status && !bpe->rule)
        status = kiln__lm_fail(KILN_UNSUPPORTED,
                               "kiln_lm_load: %s: the pre-tokenizer is \"%.*s\"; kiln knows %s",
                               gguf->path, KILN__GGUF_SAID(name), kiln__split_names());
    if (!status)
        status = kiln__gguf_array(gguf, "tokenizer.ggml.merges", KILN__GGUF_STRING, &key);
    if (status)
        return status;
    bpe->whole = bpe->rule->whole;
    for (int byte = 0; byte < 256; byte++) {
        const char bytes[] = {(char)byte};
        bpe->bytes[byte] = kiln__vocabulary_find(vocabulary, bytes, 1);
    }
    return read_merges(gguf, key, bpe);
}

/* Higher scores come first: floats in the order of their bits, turned around. */
static uint32_t rank_of(float score)
{
    uint32_t bits;
    memcpy(&bits, &score, sizeof bits);
    return bits >> 31 ? bits : ~bits & 0x7fffffff;
}

kiln_status kiln__bpe_read_scores(const struct kiln__gguf *gguf,
                                  const struct kiln__vocabulary *vocabulary, struct kiln__bpe *bpe)
{
    static const char name[] = "tokenizer.ggml.scores";
    const struct kiln__gguf_key *key;
    bpe->vocabulary = vocabulary;
    bpe->unknown = -1;
    bpe->leads = true;
    kiln_status status = kiln__gguf_array(gguf, name, KILN__GGUF_F32, &key);
    if (!status && key->count != vocabulary->count)
        status = kiln__lm_fail(KILN_INVALID_ARGUMENT,
                               "kiln_lm_load: %s: key \"%s\" has %zu elements for %zu tokens",
                               gguf->path, name, key->count, vocabulary->count);
    if (!status)
        status = kiln__gguf_bool(gguf, "tokenizer.ggml.add_space_prefix", &bpe->leads);
    if (status)
        return status;
    bpe->ranks = malloc(vocabulary->count * sizeof *bpe->ranks);
    if (!bpe->ranks)
        return kiln__lm_no_memory("kiln_lm_load");
    for (int byte = 0; byte < 256; byte++)
        bpe->bytes[byte] = -1;
    for (size_t i = 0; i < vocabulary->count; i++) {
        const struct kiln__token *token = &vocabulary->tokens[i];
        bpe->ranks[i] = rank_of(kiln__gguf_f32_at(key, i));
        if (token->kind == KILN__TOKEN_BYTE && token->length == 1)
            bpe->bytes[(unsigned char)*token->bytes] = (int32_t)i;
        if (token->kind == KILN__TOKEN_UNKNOWN)
            bpe->unknown = (int32_t)i;
    }
    return KILN_OK;
}
