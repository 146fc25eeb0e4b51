/* SPDX-License-Identifier: Apache-2.0 */
/* Normal forms, step by step, on libutf8proc's tables. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "lm/subwords.h"
#include "lm/unicode.h"

#define CAPITAL_I_WITH_DOT 0x130 /* the one letter whose lower case has two code points */
#define DOT_ABOVE 0x307

static void add_point(struct kiln__text *chars, int32_t point)
{
    char bytes[4];
    const utf8proc_ssize_t count = utf8proc_encode_char(point, (utf8proc_uint8_t *)bytes);
    kiln__text_add_bytes(chars, bytes, (size_t)count);
}

/* ---- steps ---- */

/* A grapheme of few bytes as a whole, where a key begins it; else its characters. */
static void map_graphemes(const struct kiln__subwords_step *step, const struct kiln__text *from,
                          struct kiln__text *to)
{
    enum { LONG_GRAPHEME = 6 };
    for (size_t at = 0, length; at < from->length; at += length) {
        const char *text = from->data + at;
        size_t count;
        length = kiln__grapheme(text, from->length - at);
        const char *whole =
            length < LONG_GRAPHEME ? kiln__charsmap_find(&step->map, text, length, &count) : NULL;
        if (whole)
            kiln__text_add_bytes(to, whole, count);
        for (size_t i = 0, size; !whole && i < length; i += size) {
            int32_t point;
            size = kiln__unicode_next(text + i, length - i, &point);
            const char *one = kiln__charsmap_find(&step->map, text + i, size, &count);
            kiln__text_add_bytes(to, one ? one : text + i, one ? count : size);
        }
    }
}

static void map_unicode(const struct kiln__subwords_step *step, const struct kiln__text *from,
                        struct kiln__text *to)
{
    utf8proc_uint8_t *made = NULL;
    const utf8proc_ssize_t count =
        utf8proc_map((const utf8proc_uint8_t *)from->data, (utf8proc_ssize_t)from->length, &made,
                     (utf8proc_option_t)step->options);
    if (count < 0)
        to->failed = true;
    else
        kiln__text_add_bytes(to, (const char *)made, (size_t)count);
    free(made);
}

static void add_lower(struct kiln__text *to, int32_t point)
{
    if (point == CAPITAL_I_WITH_DOT)
        add_point(to, 'i');
    add_point(to, point == CAPITAL_I_WITH_DOT ? DOT_ABOVE : utf8proc_tolower(point));
}

static bool is_mark(int32_t point)
{
    const utf8proc_category_t category = utf8proc_category(point);
    return category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
}

static void map_points(const struct kiln__subwords_step *step, const struct kiln__text *from,
                       struct kiln__text *to)
{
    for (size_t at = 0, length; at < from->length; at += length) {
        int32_t point;
        length = kiln__unicode_next(from->data + at, from->length - at, &point);
        if (step->kind == KILN__SUBWORDS_LOWERCASE)
            add_lower(to, point);
        else if (!is_mark(point))
            kiln__text_add_bytes(to, from->data + at, length);
    }
}

static size_t white_at(const struct kiln__text *chars, size_t at)
{
    int32_t point;
    const size_t length =
        at < chars->length ? kiln__unicode_next(chars->data + at, chars->length - at, &point) : 0;
    return length && kiln__unicode_is_space(point) ? length : 0;
}

static void strip(const struct kiln__subwords_step *step, const struct kiln__text *from,
                  struct kiln__text *to)
{
    size_t begin = 0, end = from->length, length;
    while (step->left && (length = white_at(from, begin)) > 0)
        begin += length;
    if (step->right)
        end = begin;
    for (size_t at = begin; step->right && at < from->length;) {
        length = white_at(from, at);
        int32_t point;
        at += length ? length : kiln__unicode_next(from->data + at, from->length - at, &point);
        end = length ? end : at;
    }
    kiln__text_add_bytes(to, from->data + begin, end - begin);
}

static void replace(const struct kiln__subwords_step *step, const struct kiln__text *from,
                    struct kiln__text *to)
{
    const size_t length = strlen(step->from);
    for (size_t at = 0; at < from->length;) {
        const bool fits =
            from->length - at >= length && !memcmp(from->data + at, step->from, length);
        kiln__text_add_bytes(to, fits ? step->to : from->data + at, fits ? strlen(step->to) : 1);
        at += fits ? length : 1;
    }
}

static void replace_spaces(const struct kiln__subwords_step *step, const struct kiln__text *from,
                           struct kiln__text *to)
{
    for (size_t at = 0; at < from->length;) {
        size_t spaces = 0;
        while (at + spaces < from->length && from->data[at + spaces] == ' ')
            spaces++;
        kiln__text_add_bytes(to, spaces > 1 ? step->to : from->data + at,
                             spaces > 1 ? strlen(step->to) : 1);
        at += spaces > 1 ? spaces : 1;
    }
}

void kiln__subwords_normalize(const struct kiln__subwords_normalizer *normalizer,
                              struct kiln__text *chars)
{
    for (size_t i = 0; i < normalizer->count && chars->length; i++) {
        const struct kiln__subwords_step *step = &normalizer->steps[i];
        struct kiln__text made = {.failed = chars->failed};
        switch (step->kind) {
        case KILN__SUBWORDS_CHARSMAP: map_graphemes(step, chars, &made); break;
        case KILN__SUBWORDS_UNICODE: map_unicode(step, chars, &made); break;
        case KILN__SUBWORDS_LOWERCASE:
        case KILN__SUBWORDS_STRIP_ACCENTS: map_points(step, chars, &made); break;
        case KILN__SUBWORDS_STRIP: strip(step, chars, &made); break;
        case KILN__SUBWORDS_REPLACE: replace(step, chars, &made); break;
        case KILN__SUBWORDS_REPLACE_SPACES: replace_spaces(step, chars, &made); break;
        case KILN__SUBWORDS_PREPEND:
            kiln__text_add_bytes(&made, step->to, strlen(step->to));
            kiln__text_add_bytes(&made, chars->data, chars->length);
            break;
        }
        free(chars->data);
        *chars = made;
    }
}

/* ---- from the file ---- */

/* The number of bytes; SIZE_MAX: it is no base64. */
static size_t read_base64(const char *text, uint8_t *bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t count = 0;
    uint32_t bits = 0;
    unsigned have = 0;
    for (; *text && *text != '='; text++) {
        const char *digit = strchr(digits, *text);
        if (!digit)
            return SIZE_MAX;
        bits = bits << 6 | (uint32_t)(digit - digits);
        have += 6;
        if (have >= 8)
            bytes[count++] = (uint8_t)(bits >> (have -= 8));
    }
    return count;
}

static bool read_charsmap(const struct kiln__tokenizer_json *reading, const json_t *object,
                          struct kiln__subwords_step *step)
{
    const char *text = kiln__json_text(object, "precompiled_charsmap");
    step->data = malloc(strlen(text) + 1);
    if (!step->data)
        return kiln__tokenizer_refuse(reading, "out of memory");
    const size_t bytes = read_base64(text, step->data);
    return (bytes != SIZE_MAX && kiln__charsmap_read(step->data, bytes, &step->map)) ||
           kiln__tokenizer_refuse(reading, "its normalizer's precompiled_charsmap is damaged");
}

static bool read_replacement(const struct kiln__tokenizer_json *reading, const json_t *object,
                             struct kiln__subwords_step *step)
{
    const json_t *pattern = json_object_get(object, "pattern");
    const char *regex = kiln__json_text(pattern, "Regex"),
               *from = kiln__json_text(pattern, "String");
    if (!strcmp(regex, " {2,}"))
        step->kind = KILN__SUBWORDS_REPLACE_SPACES;
    else if (!*from)
        return kiln__tokenizer_refuse(reading, "its normalizer replaces the pattern \"%s\"", regex);
    step->from = strdup(from);
    step->to = strdup(kiln__json_text(object, "content"));
    return (step->from && step->to) || kiln__tokenizer_refuse(reading, "out of memory");
}

static bool read_prefix(const struct kiln__tokenizer_json *reading, const json_t *object,
                        struct kiln__subwords_step *step)
{
    step->to = strdup(kiln__json_text(object, "prepend"));
    return step->to || kiln__tokenizer_refuse(reading, "out of memory");
}

static bool read_ends(const struct kiln__tokenizer_json *reading, const json_t *object,
                      struct kiln__subwords_step *step)
{
    (void)reading;
    step->left = kiln__json_flag(object, "strip_left", true);
    step->right = kiln__json_flag(object, "strip_right", true);
    return true;
}

static const struct row {
    const char *type;
    enum kiln__subwords_normal kind;
    int options;
    bool (*read)(const struct kiln__tokenizer_json *reading, const json_t *object,
                 struct kiln__subwords_step *step);
} rows[] = {
    {"Precompiled", KILN__SUBWORDS_CHARSMAP, 0, read_charsmap},
    {"NFC", KILN__SUBWORDS_UNICODE, UTF8PROC_STABLE | UTF8PROC_COMPOSE, NULL},
    {"NFD", KILN__SUBWORDS_UNICODE, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, NULL},
    {"NFKC", KILN__SUBWORDS_UNICODE, UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT, NULL},
    {"NFKD", KILN__SUBWORDS_UNICODE, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT, NULL},
    {"Lowercase", KILN__SUBWORDS_LOWERCASE, 0, NULL},
    {"StripAccents", KILN__SUBWORDS_STRIP_ACCENTS, 0, NULL},
    {"Strip", KILN__SUBWORDS_STRIP, 0, read_ends},
    {"Replace", KILN__SUBWORDS_REPLACE, 0, read_replacement},
    {"Prepend", KILN__SUBWORDS_PREPEND, 0, read_prefix},
};

static bool read_step(const struct kiln__tokenizer_json *reading, const json_t *object,
                      struct kiln__subwords_normalizer *normalizer)
{
    const char *type = kiln__json_text(object, "type");
    size_t i, row = 0;
    json_t *part;
    if (!strcmp(type, "Sequence")) {
        json_array_foreach(json_object_get(object, "normalizers"), i, part)
        {
            if (!strcmp(kiln__json_text(part, "type"), "Sequence") ||
                !read_step(reading, part, normalizer))
                return *reading->error ||
                       kiln__tokenizer_refuse(reading, "its normalizer is nested");
        }
        return true;
    }
    while (row < sizeof rows / sizeof *rows && strcmp(rows[row].type, type) != 0)
        row++;
    if (row == sizeof rows / sizeof *rows)
        return kiln__tokenizer_refuse(reading, "its normalizer is \"%s\"", type);
    if (normalizer->count == KILN__SUBWORDS_MOST_STEPS)
        return kiln__tokenizer_refuse(reading, "its normalizer has more than %d steps",
                                      KILN__SUBWORDS_MOST_STEPS);
    struct kiln__subwords_step *step = &normalizer->steps[normalizer->count++];
    step->kind = rows[row].kind;
    step->options = rows[row].options;
    return !rows[row].read || rows[row].read(reading, object, step);
}

bool kiln__subwords_read_normalizer(const struct kiln__tokenizer_json *reading,
                                    struct kiln__subwords_normalizer *normalizer)
{
    const json_t *object = json_object_get(reading->root, "normalizer");
    return !object || json_is_null(object) || read_step(reading, object, normalizer);
}

void kiln__subwords_free_normalizer(struct kiln__subwords_normalizer *normalizer)
{
    for (size_t i = 0; i < normalizer->count; i++) {
        free(normalizer->steps[i].from);
        free(normalizer->steps[i].to);
        free(normalizer->steps[i].data);
    }
}
