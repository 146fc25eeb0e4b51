/* SPDX-License-Identifier: Apache-2.0 */
/* Added tokens, such as <s>: found in a text before all others, the leftmost and longest first. */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "lm/subwords.h"
#include "lm/unicode.h"

/* ---- what is beside one ---- */

/* The character before a place. */
static int32_t point_before(const char *text, size_t at)
{
    int32_t point = -1;
    size_t length = 1;
    while (length < at && ((unsigned char)text[at - length] & 0xc0) == 0x80)
        length++;
    kiln__unicode_next(text + at - length, length, &point);
    return point;
}

static bool is_of_word(int32_t point)
{
    const utf8proc_category_t category = utf8proc_category(point);
    return point >= 0 && ((category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) ||
                          category == UTF8PROC_CATEGORY_PC || point == 0x200c || point == 0x200d);
}

static bool is_within_word(const char *text, size_t bytes, size_t begin, size_t end)
{
    int32_t behind = -1;
    if (end < bytes)
        kiln__unicode_next(text + end, bytes - end, &behind);
    return (begin && is_of_word(point_before(text, begin))) || is_of_word(behind);
}

size_t kiln__subwords_white(const char *text, size_t at, size_t from)
{
    while (at > from && kiln__unicode_is_space(point_before(text, at))) {
        at--;
        while (at > from && ((unsigned char)text[at] & 0xc0) == 0x80)
            at--;
    }
    return at;
}

static size_t skip_right(const char *text, size_t bytes, size_t at)
{
    while (at < bytes) {
        int32_t point;
        const size_t length = kiln__unicode_next(text + at, bytes - at, &point);
        if (!kiln__unicode_is_space(point))
            break;
        at += length;
    }
    return at;
}

/* ---- finding ---- */

/* Bytes from a place on that may be of a control token. */
static size_t own_bytes(const struct kiln__reading *reading, size_t at)
{
    const size_t rest = reading->bytes - at;
    const char *given = reading->given ? memchr(reading->given + at, 1, rest) : NULL;
    if (!reading->control)
        return 0;
    return given ? (size_t)(given - reading->given) - at : rest;
}

static const struct kiln__subwords_added *longest_at(const struct kiln__subwords_list *list,
                                                     bool is_normal,
                                                     const struct kiln__reading *reading, size_t at)
{
    const struct kiln__subwords_added *found = NULL;
    const char *text = reading->text + at;
    if (!list->begins[is_normal][(unsigned char)*text])
        return NULL;
    const size_t own = own_bytes(reading, at);
    for (size_t i = 0; i < list->count; i++) {
        const struct kiln__subwords_added *added = &list->added[i];
        if (added->is_normal == is_normal &&
            added->length <= (added->is_special ? own : reading->bytes - at) &&
            (!found || added->length > found->length) && !memcmp(added->text, text, added->length))
            found = added;
    }
    return found;
}

struct kiln__subwords_place kiln__subwords_find(const struct kiln__subwords_list *list,
                                                bool is_normal, const struct kiln__reading *reading,
                                                size_t from, size_t *at)
{
    const char *text = reading->text;
    const size_t bytes = reading->bytes;
    for (size_t begin = *at; begin < bytes; begin = *at) {
        const struct kiln__subwords_added *added = longest_at(list, is_normal, reading, begin);
        size_t end = *at = begin + (added ? added->length : 1);
        if (!added || (added->is_word && is_within_word(text, bytes, begin, end)))
            continue;
        if (added->takes_left)
            begin = kiln__subwords_white(text, begin, from);
        if (added->takes_right)
            end = *at = skip_right(text, bytes, end);
        return (struct kiln__subwords_place){added, begin, end};
    }
    return (struct kiln__subwords_place){NULL, bytes, bytes};
}

/* ---- from the file ---- */

static bool read_one(const struct kiln__tokenizer_json *reading, const json_t *object,
                     const struct kiln__subwords_normalizer *normalizer,
                     struct kiln__subwords_added *added)
{
    const json_t *id = json_object_get(object, "id");
    const char *content = kiln__json_text(object, "content");
    const json_int_t number = json_integer_value(id);
    struct kiln__text text = {0};
    if (!json_is_integer(id) || number < 0 || number >= INT32_MAX)
        return kiln__tokenizer_refuse(reading, "the added token \"%s\" has no number", content);
    const bool special = kiln__json_flag(object, "special", false);
    *added =
        (struct kiln__subwords_added){.id = (int32_t)number,
                                      .takes_left = kiln__json_flag(object, "lstrip", false),
                                      .takes_right = kiln__json_flag(object, "rstrip", false),
                                      .is_word = kiln__json_flag(object, "single_word", false),
                                      .is_special = special,
                                      .is_normal = kiln__json_flag(object, "normalized", !special)};
    kiln__text_add_bytes(&text, content, strlen(content));
    if (added->is_normal)
        kiln__subwords_normalize(normalizer, &text);
    added->text = text.data;
    added->length = text.length;
    return !text.failed || kiln__tokenizer_refuse(reading, "out of memory");
}

/* Those without a text are found nowhere. */
bool kiln__subwords_read_added(const struct kiln__tokenizer_json *reading,
                               const struct kiln__subwords_normalizer *normalizer,
                               struct kiln__subwords_list *list)
{
    const json_t *tokens = json_object_get(reading->root, "added_tokens");
    size_t i;
    json_t *object;
    list->added = calloc(json_array_size(tokens) + 1, sizeof *list->added);
    if (!list->added)
        return kiln__tokenizer_refuse(reading, "out of memory");
    json_array_foreach(tokens, i, object)
    {
        struct kiln__subwords_added *added = &list->added[list->count];
        if (!read_one(reading, object, normalizer, added)) {
            free(added->text);
            return false;
        }
        if (reading->to->largest < added->id)
            reading->to->largest = added->id;
        if (!added->length) {
            free(added->text);
            added->text = NULL; /* the next one has this place */
            continue;
        }
        list->begins[added->is_normal][(unsigned char)*added->text] = true;
        list->count++;
    }
    return true;
}

void kiln__subwords_free_added(struct kiln__subwords_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->added[i].text);
    free(list->added);
}
