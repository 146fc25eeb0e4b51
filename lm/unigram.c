/* SPDX-License-Identifier: Apache-2.0 */
/* Viterbi's algorithm over the places between bytes. Sums, order and ties are those of Hugging
 * Face's `tokenizers`. */
#include "lm/unigram.h"

#include <math.h>
#include <stdlib.h>

#include "lm/unicode.h"

#define STRANGER_PENALTY 10.0 /* below the lowest score */

void kiln__unigram_begin(struct kiln__unigram *unigram)
{
    const struct kiln__vocabulary *vocabulary = unigram->vocabulary;
    double least = INFINITY;
    for (size_t i = 0; i < vocabulary->count; i++)
        least = unigram->scores[i] < least ? unigram->scores[i] : least;
    unigram->stranger = least - STRANGER_PENALTY;
}

void kiln__unigram_free(struct kiln__unigram *unigram)
{
    free(unigram->scores);
}

/* The best way to a place. */
struct way {
    double score;
    size_t from; /* where its last token begins; SIZE_MAX: there is no way yet */
    int32_t token;
};

static void offer(struct way *way, double score, size_t from, int32_t token)
{
    if (way->from == SIZE_MAX || score > way->score)
        *way = (struct way){score, from, token};
}

/* Tokens in the order of their bytes that have so many first bytes in common. */
struct range {
    size_t low, high;
};

/* Those that go on with a byte. */
static struct range narrow(const struct kiln__vocabulary *vocabulary, struct range range,
                           size_t depth, unsigned char byte)
{
    struct range found = range;
    for (int end = 0; end < 2; end++) { /* the first not below the byte, the first above it */
        size_t low = found.low, high = range.high;
        while (low < high) {
            const size_t middle = low + (high - low) / 2;
            const struct kiln__token *token = &vocabulary->tokens[vocabulary->ordered[middle]];
            const int at = token->length > depth ? (unsigned char)token->bytes[depth] : -1;
            if (at < byte + end)
                low = middle + 1;
            else
                high = middle;
        }
        *(end ? &found.high : &found.low) = low;
    }
    return found;
}

/* Ways on from a place whose own is known, along all tokens that are there. */
static void go_on(const struct kiln__unigram *unigram, const char *text, size_t bytes, size_t at,
                  size_t character, struct way *ways)
{
    const struct kiln__vocabulary *vocabulary = unigram->vocabulary;
    struct range range = {0, vocabulary->n_ordered};
    bool is_known = false;
    for (size_t length = 1; at + length <= bytes; length++) {
        range = narrow(vocabulary, range, length - 1, (unsigned char)text[at + length - 1]);
        if (range.low == range.high)
            break;
        const int32_t number = vocabulary->ordered[range.low]; /* the shortest is the first */
        if (vocabulary->tokens[number].length != length)
            continue;
        is_known = is_known || length == character;
        offer(&ways[at + length], unigram->scores[number] + ways[at].score, at, number);
    }
    if (!is_known)
        offer(&ways[at + character], unigram->stranger + ways[at].score, at, unigram->unknown);
}

/* Strangers in a row. */
static bool add_strangers(const struct kiln__unigram *unigram, const char *text, size_t bytes,
                          struct kiln__tokens *tokens)
{
    const int32_t together = kiln__vocabulary_find(unigram->vocabulary, text, bytes);
    if (together >= 0)
        return kiln__tokens_add(tokens, together);
    bool fine = true;
    for (size_t i = 0; i < bytes; i++)
        if (unigram->bytes[(unsigned char)text[i]] < 0)
            return kiln__tokens_add(tokens, unigram->unknown);
    for (size_t i = 0; i < bytes && fine; i++)
        fine = kiln__tokens_add(tokens, unigram->bytes[(unsigned char)text[i]]);
    return fine;
}

/* The way to the end from its beginning on: each place's `from` leads on instead of back. */
static void turn_round(struct way *ways, size_t bytes)
{
    size_t at = bytes, next = SIZE_MAX;
    int32_t token = -1;
    while (at != SIZE_MAX) {
        const struct way way = ways[at];
        ways[at] = (struct way){0, next, token};
        next = at;
        token = way.token;
        at = at ? way.from : SIZE_MAX;
    }
}

bool kiln__unigram_encode(const struct kiln__unigram *unigram, const char *text, size_t bytes,
                          struct kiln__tokens *tokens)
{
    struct way *ways = malloc((bytes + 1) * sizeof *ways);
    bool fine = ways;
    for (size_t i = 0; ways && i <= bytes; i++)
        ways[i] = (struct way){0, SIZE_MAX, -1};
    for (size_t at = 0, length; fine && at < bytes; at += length) {
        int32_t point;
        length = kiln__unicode_next(text + at, bytes - at, &point);
        go_on(unigram, text, bytes, at, length, ways);
    }
    if (fine)
        turn_round(ways, bytes);
    for (size_t at = 0, begin; fine && at < bytes;) {
        begin = at;
        const int32_t token = ways[at].token;
        at = ways[at].from;
        while (token == unigram->unknown && at < bytes && ways[at].token == token)
            at = ways[at].from;
        fine = token == unigram->unknown ? add_strangers(unigram, text + begin, at - begin, tokens)
                                         : kiln__tokens_add(tokens, token);
    }
    free(ways);
    return fine;
}
