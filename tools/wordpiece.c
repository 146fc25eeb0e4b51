/* SPDX-License-Identifier: Apache-2.0 */
/* The WordPiece tokenizer: vocabulary and greedy longest match. */
#include "wordpiece.h"

#include <string.h>
#include <utf8proc.h>

#include "../lm/unicode.h"

struct output {
    int32_t *ids;
    size_t count, most;
};

static void put(struct output *output, int32_t id)
{
    if (output->count < output->most)
        output->ids[output->count++] = id;
}

/* ---- one word ---- */

/* The longest piece at `key`, `bytes` at most: how long it is, 0 if there is none. `key` ends with
 * a zero, and does so again afterwards. */
static size_t longest_piece(const struct wordpiece *wordpiece, char *key, size_t bytes, int32_t *id)
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
static void put_word(struct wordpiece *wordpiece, const int32_t *points, size_t count,
                     struct output *output)
{
    const size_t prefix = strlen(wordpiece->prefix), before = output->count;
    char *at = wordpiece->word + prefix, *end = at;
    if (count > wordpiece->longest_word) {
        put(output, wordpiece->unknown);
        return;
    }
    for (size_t i = 0; i < count; i++)
        end += utf8proc_encode_char(points[i], (utf8proc_uint8_t *)end);
    *end = 0;
    for (size_t head = 0; at < end; head = prefix) {
        int32_t id;
        char *key = memcpy(at - head, wordpiece->prefix, head);
        size_t length = longest_piece(wordpiece, key, (size_t)(end - key), &id);
        if (length <= head) {
            output->count = before;
            put(output, wordpiece->unknown);
            return;
        }
        put(output, id);
        at = key + length;
    }
}

/* ---- one text ---- */

/* Words end at spaces, and each punctuation character is one. */
static bool put_words(struct wordpiece *wordpiece, const char *text, size_t bytes,
                      struct output *output)
{
    const struct points *points = &wordpiece->points;
    size_t start = 0;
    if (!points_normalize(&wordpiece->points, text, bytes, &wordpiece->rules))
        return false;
    for (size_t i = 0; i <= points->count && output->count < output->most; i++) {
        bool is_mark = i < points->count && points_is_punctuation(points->data[i]);
        if (i < points->count && !is_mark && !kiln__unicode_is_space(points->data[i]))
            continue;
        if (i > start)
            put_word(wordpiece, points->data + start, i - start, output);
        if (is_mark)
            put_word(wordpiece, points->data + i, 1, output);
        start = i + 1;
    }
    return true;
}

/* The longest special token that the text begins with; 0: none. */
static size_t special_at(const struct wordpiece *wordpiece, const char *text, size_t bytes,
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

bool wordpiece_encode(struct wordpiece *wordpiece, const char *text, size_t bytes, size_t most,
                      int32_t *ids, size_t *count)
{
    struct output output = {ids, 0, most};
    size_t start = 0, at = 0;
    while (at < bytes) {
        int32_t id;
        size_t length = special_at(wordpiece, text + at, bytes - at, &id);
        at += length ? 0 : 1;
        if (!length && at < bytes)
            continue;
        if (!put_words(wordpiece, text + start, at - start, &output))
            return false;
        if (length)
            put(&output, id);
        start = at += length;
    }
    *count = output.count;
    return true;
}
