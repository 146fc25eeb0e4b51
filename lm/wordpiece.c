/* SPDX-License-Identifier: Apache-2.0 */
/* The WordPiece tokenizer: vocabulary and greedy longest match. */
#include "lm/wordpiece.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "lm/unicode.h"

/* A text that is cut. */
struct cutting {
    const struct kiln__wordpiece *wordpiece;
    struct kiln__points points; /* of the text at hand */
    char *word;                 /* room for a prefix, then the word at hand in UTF-8 */
    struct kiln__tokens *tokens;
    size_t most;
};

static bool put(struct cutting *cutting, int32_t id)
{
    return cutting->tokens->count >= cutting->most || kiln__tokens_add(cutting->tokens, id);
}

/* ---- one word ---- */

/* The longest piece at `key`, `bytes` at most: how long it is, 0 if there is none. `key` ends with
 * a zero, and does so again afterwards. */
static size_t longest_piece(const struct kiln__wordpiece *wordpiece, char *key, size_t bytes,
                            int32_t *id)
{
    size_t most = bytes < wordpiece->longest_piece ? bytes : wordpiece->longest_piece;
    for (; most; most--) {
        char behind = key[most];
        if (((unsigned char)behind & 0xc0) == 0x80)
            continue; /* within a character */
        key[most] = 0;
        json_t *number = json_object_get(wordpiece->vocabulary, key);
        key[most] = behind;
        if (number) {
            *id = (int32_t)json_integer_value(number);
            return most;
        }
    }
    return 0;
}

/* Greedy: the longest piece first. A word that has a part without one is unknown as a whole. What
 * is behind a piece that was found gets its prefix in the place of that piece's end: a piece
 * shorter than the prefix is why there is room before the word. */
static bool put_word(struct cutting *cutting, const int32_t *points, size_t count)
{
    const struct kiln__wordpiece *wordpiece = cutting->wordpiece;
    const size_t prefix = strlen(wordpiece->prefix), before = cutting->tokens->count;
    char *at = cutting->word + prefix, *end = at;
    if (count > wordpiece->longest_word)
        return put(cutting, wordpiece->unknown);
    for (size_t i = 0; i < count; i++)
        end += utf8proc_encode_char(points[i], (utf8proc_uint8_t *)end);
    *end = 0;
    for (size_t head = 0; at < end; head = prefix) {
        int32_t id;
        char *key = memcpy(at - head, wordpiece->prefix, head);
        size_t length = longest_piece(wordpiece, key, (size_t)(end - key), &id);
        if (length <= head) {
            cutting->tokens->count = before;
            return put(cutting, wordpiece->unknown);
        }
        if (!put(cutting, id))
            return false;
        at = key + length;
    }
    return true;
}

/* ---- one text ---- */

/* Words end at spaces, and each punctuation character is one. */
static bool put_words(struct cutting *cutting, const char *text, size_t bytes)
{
    struct kiln__points *points = &cutting->points;
    size_t start = 0;
    bool fine = kiln__points_normalize(points, text, bytes, &cutting->wordpiece->rules);
    for (size_t i = 0; fine && i <= points->count && cutting->tokens->count < cutting->most; i++) {
        bool is_mark = i < points->count && kiln__points_is_punctuation(points->data[i]);
        if (i < points->count && !is_mark && !kiln__unicode_is_space(points->data[i]))
            continue;
        if (i > start)
            fine = put_word(cutting, points->data + start, i - start);
        if (fine && is_mark)
            fine = put_word(cutting, points->data + i, 1);
        start = i + 1;
    }
    return fine;
}

/* The longest special token that the text begins with; 0: none. */
static size_t special_at(const struct kiln__wordpiece *wordpiece, const char *text, size_t bytes,
                         int32_t *id)
{
    const char *key;
    json_t *number;
    size_t longest = 0;
    if (!wordpiece->special_begins[(unsigned char)*text])
        return 0;
    json_object_foreach(wordpiece->specials, key, number)
    {
        size_t length = strlen(key);
        if (length <= longest || length > bytes || memcmp(key, text, length))
            continue;
        longest = length;
        *id = (int32_t)json_integer_value(number);
    }
    return longest;
}

static bool put_text(struct cutting *cutting, const char *text, size_t bytes)
{
    size_t start = 0, at = 0;
    while (at < bytes) {
        int32_t id;
        size_t length = special_at(cutting->wordpiece, text + at, bytes - at, &id);
        at += length ? 0 : 1;
        if (!length && at < bytes)
            continue;
        if (!put_words(cutting, text + start, at - start) || (length && !put(cutting, id)))
            return false;
        start = at += length;
    }
    return true;
}

bool kiln__wordpiece_encode(const struct kiln__wordpiece *wordpiece, const char *text, size_t bytes,
                            size_t most, struct kiln__tokens *tokens)
{
    struct cutting cutting = {.wordpiece = wordpiece, .tokens = tokens, .most = most};
    cutting.word = malloc(KILN__WORDPIECE_MOST_PREFIX + 4 * wordpiece->longest_word + 1);
    const bool fine = cutting.word && put_text(&cutting, text, bytes);
    free(cutting.points.data);
    free(cutting.word);
    return fine;
}
