/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens, found by their bytes. */
#include "lm/vocabulary.h"

#include <stdlib.h>
#include <string.h>

#include "lm/unicode.h"

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

bool kiln__vocabulary_index(struct kiln__vocabulary *vocabulary)
{
    vocabulary->ordered = pick(vocabulary, is_ordinary, by_bytes, &vocabulary->n_ordered);
    vocabulary->special = pick(vocabulary, is_special, by_beginning, &vocabulary->n_special);
    if (!vocabulary->ordered || !vocabulary->special)
        return false;
    for (size_t i = 0; i < vocabulary->n_special; i++) {
        const char *bytes = vocabulary->tokens[vocabulary->special[i]].bytes;
        vocabulary->special_from[(unsigned char)*bytes + 1]++;
    }
    for (size_t i = 1; i <= 256; i++)
        vocabulary->special_from[i] += vocabulary->special_from[i - 1];
    return true;
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
