/* SPDX-License-Identifier: Apache-2.0 */
/* Normal forms, step by step, on libutf8proc's tables. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "../lm/unicode.h"
#include "subwords.h"

#define CAPITAL_I_WITH_DOT 0x130 /* the one letter whose lower case has two code points */
#define DOT_ABOVE 0x307

void chars_add(struct chars *chars, const char *bytes, size_t count)
{
    if (chars->count + count > chars->room && !chars->failed) {
        const size_t room = 2 * (chars->count + count) + 64;
        char *grown = realloc(chars->bytes, room);
        chars->failed = !grown;
        if (grown) {
            chars->bytes = grown;
            chars->room = room;
        }
    }
    if (chars->failed || !count)
        return;
    memcpy(chars->bytes + chars->count, bytes, count);
    chars->count += count;
}

static void add_point(struct chars *chars, int32_t point)
{
    char bytes[4];
    const utf8proc_ssize_t count = utf8proc_encode_char(point, (utf8proc_uint8_t *)bytes);
    chars_add(chars, bytes, (size_t)count);
}

/* ---- steps ---- */

/* A grapheme of few bytes as a whole, where a key begins it; else its characters. */
static void map_graphemes(const struct subwords_step *step, const struct chars *from,
                          struct chars *to)
{
    enum { LONG_GRAPHEME = 6 };
    for (size_t at = 0, length; at < from->count; at += length) {
        const char *text = from->bytes + at;
        size_t count;
        length = kiln__grapheme(text, from->count - at);
        const char *whole =
            length < LONG_GRAPHEME ? kiln__charsmap_find(&step->map, text, length, &count) : NULL;
        if (whole)
            chars_add(to, whole, count);
        for (size_t i = 0, size; !whole && i < length; i += size) {
            int32_t point;
            size = kiln__unicode_next(text + i, length - i, &point);
            const char *one = kiln__charsmap_find(&step->map, text + i, size, &count);
            chars_add(to, one ? one : text + i, one ? count : size);
        }
    }
}

static void map_unicode(const struct subwords_step *step, const struct chars *from,
                        struct chars *to)
{
    utf8proc_uint8_t *made = NULL;
    const utf8proc_ssize_t count =
        utf8proc_map((const utf8proc_uint8_t *)from->bytes, (utf8proc_ssize_t)from->count, &made,
                     (utf8proc_option_t)step->options);
    if (count < 0)
        to->failed = true;
    else
        chars_add(to, (const char *)made, (size_t)count);
    free(made);
}

static void add_lower(struct chars *to, int32_t point)
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

static void map_points(const struct subwords_step *step, const struct chars *from, struct chars *to)
{
    for (size_t at = 0, length; at < from->count; at += length) {
        int32_t point;
        length = kiln__unicode_next(from->bytes + at, from->count - at, &point);
        if (step->kind == SUBWORDS_LOWERCASE)
            add_lower(to, point);
        else if (!is_mark(point))
            chars_add(to, from->bytes + at, length);
    }
}

static size_t white_at(const struct chars *chars, size_t at)
{
    int32_t point;
    const size_t length =
        at < chars->count ? kiln__unicode_next(chars->bytes + at, chars->count - at, &point) : 0;
    return length && kiln__unicode_is_space(point) ? length : 0;
}

static void strip(const struct subwords_step *step, const struct chars *from, struct chars *to)
{
    size_t begin = 0, end = from->count, length;
    while (step->left && (length = white_at(from, begin)) > 0)
        begin += length;
    if (step->right)
        end = begin;
    for (size_t at = begin; step->right && at < from->count;) {
        length = white_at(from, at);
        int32_t point;
        at += length ? length : kiln__unicode_next(from->bytes + at, from->count - at, &point);
        end = length ? end : at;
    }
    chars_add(to, from->bytes + begin, end - begin);
}

static void replace(const struct subwords_step *step, const struct chars *from, struct chars *to)
{
    const size_t length = strlen(step->from);
    for (size_t at = 0; at < from->count;) {
        const bool fits =
            from->count - at >= length && !memcmp(from->bytes + at, step->from, length);
        chars_add(to, fits ? step->to : from->bytes + at, fits ? strlen(step->to) : 1);
        at += fits ? length : 1;
    }
}

static void replace_spaces(const struct subwords_step *step, const struct chars *from,
                           struct chars *to)
{
    for (size_t at = 0; at < from->count;) {
        size_t spaces = 0;
        while (at + spaces < from->count && from->bytes[at + spaces] == ' ')
            spaces++;
        chars_add(to, spaces > 1 ? step->to : from->bytes + at, spaces > 1 ? strlen(step->to) : 1);
        at += spaces > 1 ? spaces : 1;
    }
}

void subwords_normalize(const struct subwords_normalizer *normalizer, struct chars *chars)
{
    for (size_t i = 0; i < normalizer->count && chars->count; i++) {
        const struct subwords_step *step = &normalizer->steps[i];
        struct chars made = {.failed = chars->failed};
        switch (step->kind) {
        case SUBWORDS_CHARSMAP: map_graphemes(step, chars, &made); break;
        case SUBWORDS_UNICODE: map_unicode(step, chars, &made); break;
        case SUBWORDS_LOWERCASE:
        case SUBWORDS_STRIP_ACCENTS: map_points(step, chars, &made); break;
        case SUBWORDS_STRIP: strip(step, chars, &made); break;
        case SUBWORDS_REPLACE: replace(step, chars, &made); break;
        case SUBWORDS_REPLACE_SPACES: replace_spaces(step, chars, &made); break;
        case SUBWORDS_PREPEND:
            chars_add(&made, step->to, strlen(step->to));
            chars_add(&made, chars->bytes, chars->count);
            break;
        }
        free(chars->bytes);
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

static bool read_charsmap(const struct tokenizer_reading *reading, const json_t *object,
                          struct subwords_step *step)
{
    const char *text = tokenizer_text(object, "precompiled_charsmap");
    step->data = malloc(strlen(text) + 1);
    if (!step->data)
        return tokenizer_refuse(reading, "out of memory");
    const size_t bytes = read_base64(text, step->data);
    return (bytes != SIZE_MAX && kiln__charsmap_read(step->data, bytes, &step->map)) ||
           tokenizer_refuse(reading, "its normalizer's precompiled_charsmap is damaged");
}

static bool read_replacement(const struct tokenizer_reading *reading, const json_t *object,
                             struct subwords_step *step)
{
    const json_t *pattern = json_object_get(object, "pattern");
    const char *regex = tokenizer_text(pattern, "Regex"), *from = tokenizer_text(pattern, "String");
    if (!strcmp(regex, " {2,}"))
        step->kind = SUBWORDS_REPLACE_SPACES;
    else if (!*from)
        return tokenizer_refuse(reading, "its normalizer replaces the pattern \"%s\"", regex);
    step->from = strdup(from);
    step->to = strdup(tokenizer_text(object, "content"));
    return (step->from && step->to) || tokenizer_refuse(reading, "out of memory");
}

static bool read_prefix(const struct tokenizer_reading *reading, const json_t *object,
                        struct subwords_step *step)
{
    step->to = strdup(tokenizer_text(object, "prepend"));
    return step->to || tokenizer_refuse(reading, "out of memory");
}

static bool read_ends(const struct tokenizer_reading *reading, const json_t *object,
                      struct subwords_step *step)
{
    (void)reading;
    step->left = tokenizer_flag(object, "strip_left", true);
    step->right = tokenizer_flag(object, "strip_right", true);
    return true;
}

static const struct row {
    const char *type;
    enum subwords_normal kind;
    int options;
    bool (*read)(const struct tokenizer_reading *reading, const json_t *object,
                 struct subwords_step *step);
} rows[] = {
    {"Precompiled", SUBWORDS_CHARSMAP, 0, read_charsmap},
    {"NFC", SUBWORDS_UNICODE, UTF8PROC_STABLE | UTF8PROC_COMPOSE, NULL},
    {"NFD", SUBWORDS_UNICODE, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, NULL},
    {"NFKC", SUBWORDS_UNICODE, UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT, NULL},
    {"NFKD", SUBWORDS_UNICODE, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT, NULL},
    {"Lowercase", SUBWORDS_LOWERCASE, 0, NULL},
    {"StripAccents", SUBWORDS_STRIP_ACCENTS, 0, NULL},
    {"Strip", SUBWORDS_STRIP, 0, read_ends},
    {"Replace", SUBWORDS_REPLACE, 0, read_replacement},
    {"Prepend", SUBWORDS_PREPEND, 0, read_prefix},
};

static bool read_step(const struct tokenizer_reading *reading, const json_t *object,
                      struct subwords_normalizer *normalizer)
{
    const char *type = tokenizer_text(object, "type");
    size_t i, row = 0;
    json_t *part;
    if (!strcmp(type, "Sequence")) {
        json_array_foreach(json_object_get(object, "normalizers"), i, part)
        {
            if (!strcmp(tokenizer_text(part, "type"), "Sequence") ||
                !read_step(reading, part, normalizer))
                return *reading->error || tokenizer_refuse(reading, "its normalizer is nested");
        }
        return true;
    }
    while (row < sizeof rows / sizeof *rows && strcmp(rows[row].type, type) != 0)
        row++;
    if (row == sizeof rows / sizeof *rows)
        return tokenizer_refuse(reading, "its normalizer is \"%s\"", type);
    if (normalizer->count == SUBWORDS_MOST_STEPS)
        return tokenizer_refuse(reading, "its normalizer has more than %d steps",
                                SUBWORDS_MOST_STEPS);
    struct subwords_step *step = &normalizer->steps[normalizer->count++];
    step->kind = rows[row].kind;
    step->options = rows[row].options;
    return !rows[row].read || rows[row].read(reading, object, step);
}

bool subwords_read_normalizer(const struct tokenizer_reading *reading,
                              struct subwords_normalizer *normalizer)
{
    const json_t *object = json_object_get(reading->root, "normalizer");
    return !object || json_is_null(object) || read_step(reading, object, normalizer);
}

void subwords_free_normalizer(struct subwords_normalizer *normalizer)
{
    for (size_t i = 0; i < normalizer->count; i++) {
        free(normalizer->steps[i].from);
        free(normalizer->steps[i].to);
        free(normalizer->steps[i].data);
    }
}
