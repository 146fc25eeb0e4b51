/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens from a file's metadata, found by their bytes. */
#include "lm/vocabulary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lm/error.h"
#include "lm/unicode.h"

enum { MOST_TOKENS = 1 << 24 };

/* ---- bytes ---- */

/* Byte-level BPE writes printable characters of Latin-1 as they are, and the 68 other bytes, in
 * their order, as the characters from 256 on. */
static bool stands_for_itself(int32_t byte)
{
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

static int byte_of(int32_t point)
{
    if (point < 256)
        return point >= 0 && stands_for_itself(point) ? point : -1;
    int32_t left = point - 256;
    for (int byte = 0; byte < 256; byte++)
        if (!stands_for_itself(byte) && left-- == 0)
            return byte;
    return -1;
}

size_t kiln__byte_level(const char *text, size_t length, char *bytes)
{
    size_t count = 0;
    for (size_t at = 0; at < length;) {
        int32_t point;
        const size_t size = kiln__unicode_next(text + at, length - at, &point);
        const int byte = byte_of(point);
        if (byte >= 0)
            bytes[count++] = (char)byte;
        else
            for (size_t i = 0; i < size; i++)
                bytes[count++] = text[at + i];
        at += size;
    }
    return count;
}

size_t kiln__spaced(const char *text, size_t length, char *bytes)
{
    static const char mark[] = "\xe2\x96\x81"; /* U+2581 */
    size_t count = 0;
    for (size_t at = 0; at < length;) {
        const bool is_space = length - at >= 3 && !memcmp(text + at, mark, 3);
        bytes[count++] = is_space ? ' ' : text[at];
        at += is_space ? 3 : 1;
    }
    return count;
}

/* ---- order ---- */

static int compare_bytes(const char *a, size_t a_length, const char *b, size_t b_length)
{
    const int order = memcmp(a, b, a_length < b_length ? a_length : b_length);
    return order ? order : (a_length > b_length) - (a_length < b_length);
}

/* qsort() hands nothing on: pairs of a token and its number. */
struct numbered {
    const struct kiln__token *token;
    int32_t number;
};

static int by_bytes(const void *a, const void *b)
{
    const struct numbered *x = a, *y = b;
    const int order =
        compare_bytes(x->token->bytes, x->token->length, y->token->bytes, y->token->length);
    return order ? order : (x->number > y->number) - (x->number < y->number);
}

static int by_beginning(const void *a, const void *b)
{
    const struct numbered *x = a, *y = b;
    const unsigned char first = (unsigned char)*x->token->bytes,
                        second = (unsigned char)*y->token->bytes;
    if (first != second)
        return first < second ? -1 : 1;
    if (x->token->length != y->token->length)
        return x->token->length < y->token->length ? 1 : -1;
    return (x->number > y->number) - (x->number < y->number);
}

static bool is_special(const struct kiln__token *token)
{
    return token->kind == KILN__TOKEN_CONTROL || token->kind == KILN__TOKEN_USER ||
           token->kind == KILN__TOKEN_UNKNOWN;
}

static bool is_ordinary(const struct kiln__token *token)
{
    return token->kind == KILN__TOKEN_NORMAL;
}

/* The numbers of the tokens that are wanted, in an order; NULL: no memory. */
static int32_t *pick(const struct kiln__vocabulary *vocabulary,
                     bool (*wanted)(const struct kiln__token *),
                     int (*order)(const void *, const void *), size_t *count)
{
    struct numbered *all = malloc((vocabulary->count + 1) * sizeof *all);
    int32_t *picked = malloc((vocabulary->count + 1) * sizeof *picked);
    *count = 0;
    for (size_t i = 0; all && i < vocabulary->count; i++)
        if (vocabulary->tokens[i].length && wanted(&vocabulary->tokens[i]))
            all[(*count)++] = (struct numbered){&vocabulary->tokens[i], (int32_t)i};
    if (all && picked) {
        qsort(all, *count, sizeof *all, order);
        for (size_t i = 0; i < *count; i++)
            picked[i] = all[i].number;
    } else {
        free(picked);
        picked = NULL;
    }
    free(all);
    return picked;
}

/* ---- from the file ---- */

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
    if (kind == KILN__TOKEN_BYTE && text.length == 6) {
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
    vocabulary->ordered = pick(vocabulary, is_ordinary, by_bytes, &vocabulary->n_ordered);
    vocabulary->special = pick(vocabulary, is_special, by_beginning, &vocabulary->n_special);
    if (!vocabulary->ordered || !vocabulary->special)
        return kiln__lm_no_memory("kiln_lm_load");
    for (size_t i = 0; i < vocabulary->n_special; i++) {
        const char *bytes = vocabulary->tokens[vocabulary->special[i]].bytes;
        vocabulary->special_from[(unsigned char)*bytes + 1]++;
    }
    for (size_t i = 1; i <= 256; i++)
        vocabulary->special_from[i] += vocabulary->special_from[i - 1];
    return KILN_OK;
}

void kiln__vocabulary_free(struct kiln__vocabulary *vocabulary)
{
    free(vocabulary->tokens);
    free(vocabulary->storage);
    free(vocabulary->ordered);
    free(vocabulary->special);
}

/* ---- finding ---- */

int32_t kiln__vocabulary_find(const struct kiln__vocabulary *vocabulary, const char *bytes,
                              size_t length)
{
    size_t low = 0, high = vocabulary->n_ordered;
    while (low < high) { /* the first that is not before it */
        const size_t middle = low + (high - low) / 2;
        const struct kiln__token *token = &vocabulary->tokens[vocabulary->ordered[middle]];
        if (compare_bytes(token->bytes, token->length, bytes, length) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == vocabulary->n_ordered)
        return -1;
    const struct kiln__token *token = &vocabulary->tokens[vocabulary->ordered[low]];
    return compare_bytes(token->bytes, token->length, bytes, length) ? -1
                                                                     : vocabulary->ordered[low];
}

int32_t kiln__vocabulary_special(const struct kiln__vocabulary *vocabulary, const char *text,
                                 size_t bytes, bool control)
{
    const size_t *from = &vocabulary->special_from[(unsigned char)*text];
    for (size_t i = from[0]; i < from[1]; i++) {
        const struct kiln__token *token = &vocabulary->tokens[vocabulary->special[i]];
        if (token->length <= bytes && (control || token->kind == KILN__TOKEN_USER) &&
            !memcmp(token->bytes, text, token->length))
            return vocabulary->special[i];
    }
    return -1;
}
