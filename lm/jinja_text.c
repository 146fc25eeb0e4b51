/* SPDX-License-Identifier: Apache-2.0 */
/* What a run of a template stands on: its end, rooms, and texts that know which of their bytes come
 * from messages. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "lm/error.h"
#include "lm/jinja_parts.h"
#include "lm/unicode.h"
#include "util/format.h"

/* ---- the end of a run ---- */

_Noreturn void kiln__jinja_fail(struct kiln__jinja *j, kiln_status status, const char *format, ...)
{
    char sentence[512];
    size_t line = 1;
    va_list arguments;
    va_start(arguments, format);
    kiln__vformat(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    for (size_t i = 0; i < j->place && i < j->source.length; i++)
        line += j->source.bytes[i] == '\n';
    j->status = kiln__lm_fail(status, "%s: line %zu of the chat template: %s", j->request->call,
                              line, sentence);
    longjmp(j->end, 1);
}

void kiln__jinja_work(struct kiln__jinja *j, size_t bytes)
{
    enum { BYTES_OF_A_STEP = 256 };
    j->steps += 1 + bytes / BYTES_OF_A_STEP;
    if (j->steps > KILN__JINJA_STEPS)
        kiln__jinja_fail(j, KILN_TOO_LARGE, "more than %d steps", (int)KILN__JINJA_STEPS);
}

void kiln__jinja_look(struct kiln__jinja *j, size_t bytes)
{
    enum { AT_ONCE = 4096 };
    j->looked += bytes;
    if (j->looked < AT_ONCE)
        return;
    bytes = j->looked;
    j->looked = 0;
    kiln__jinja_work(j, bytes);
}

void kiln__jinja_enter(struct kiln__jinja *j)
{
    kiln__jinja_work(j, 0);
    if (++j->depth > KILN__JINJA_DEPTH)
        kiln__jinja_fail(j, KILN_TOO_LARGE, "values more than %d deep", (int)KILN__JINJA_DEPTH);
}

void kiln__jinja_leave(struct kiln__jinja *j)
{
    j->depth--;
}

/* ---- rooms ---- */

struct kiln__jinja_room {
    struct kiln__jinja_room *before;
    size_t used, capacity;
    max_align_t bytes[];
};

void *kiln__jinja_take(struct kiln__jinja *j, size_t bytes)
{
    enum { USUAL = 1 << 14, ALIGN = sizeof(max_align_t) };
    struct kiln__jinja_room *room = j->rooms;
    if (bytes > j->left)
        kiln__jinja_fail(j, KILN_TOO_LARGE, "the template takes too much memory");
    bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    if (!room || bytes > room->capacity - room->used) {
        const size_t capacity = bytes > USUAL ? bytes : USUAL;
        room = calloc(1, sizeof *room + capacity);
        if (!room)
            kiln__jinja_fail(j, KILN_OUT_OF_HOST_MEMORY, "no memory");
        room->before = j->rooms;
        room->capacity = capacity;
        j->rooms = room;
    }
    j->left -= bytes < j->left ? bytes : j->left;
    room->used += bytes;
    return (char *)room->bytes + room->used - bytes;
}

void *kiln__jinja_grow(struct kiln__jinja *j, void *items, size_t count, size_t *capacity,
                       size_t size)
{
    if (count < *capacity)
        return items;
    *capacity = count ? 2 * count : 4;
    void *grown = kiln__jinja_take(j, *capacity * size);
    if (count)
        memcpy(grown, items, count * size);
    return grown;
}

void kiln__jinja_free_rooms(struct kiln__jinja *j)
{
    while (j->rooms) {
        struct kiln__jinja_room *before = j->rooms->before;
        free(j->rooms);
        j->rooms = before;
    }
}

/* ---- texts ---- */

struct kiln__jinja_text kiln__jinja_word(const char *word)
{
    return (struct kiln__jinja_text){word, NULL, strlen(word)};
}

bool kiln__jinja_is(struct kiln__jinja_text text, const char *word)
{
    return kiln__jinja_same(text, kiln__jinja_word(word));
}

bool kiln__jinja_same(struct kiln__jinja_text a, struct kiln__jinja_text b)
{
    return a.length == b.length && (!a.length || !memcmp(a.bytes, b.bytes, a.length));
}

struct kiln__jinja_text kiln__jinja_part(struct kiln__jinja_text text, size_t from, size_t to)
{
    return (struct kiln__jinja_text){text.bytes + from, text.given ? text.given + from : NULL,
                                     to - from};
}

size_t kiln__jinja_find(struct kiln__jinja *j, struct kiln__jinja_text text,
                        struct kiln__jinja_text part, size_t from)
{
    for (size_t at = from; part.length <= text.length && at <= text.length - part.length; at++) {
        const size_t places = text.length - part.length - at + 1;
        const char *first =
            part.length ? memchr(text.bytes + at, *part.bytes, places) : text.bytes + at;
        kiln__jinja_look(j, first ? (size_t)(first - text.bytes) - at + part.length : places);
        if (!first)
            return SIZE_MAX;
        at = (size_t)(first - text.bytes);
        if (!part.length || !memcmp(first, part.bytes, part.length))
            return at;
    }
    return SIZE_MAX;
}

size_t kiln__jinja_step(struct kiln__jinja_text text, size_t at)
{
    int32_t point;
    return at + kiln__unicode_next(text.bytes + at, text.length - at, &point);
}

/* Python's str.isspace() has four separators more than regular expressions' \s has elsewhere. */
static bool is_stripped(struct kiln__jinja *j, struct kiln__jinja_text text, size_t at, size_t end,
                        const struct kiln__jinja_text *which)
{
    enum { LIKE_BYTES = 64 }; /* a character takes as long as so many of them compared */
    int32_t point;
    kiln__jinja_look(j, LIKE_BYTES);
    if (which)
        return kiln__jinja_find(j, *which, kiln__jinja_part(text, at, end), 0) != SIZE_MAX;
    kiln__unicode_next(text.bytes + at, end - at, &point);
    return (point >= 0x1c && point <= 0x1f) || kiln__unicode_is_space(point);
}

/* Where the last character begins. */
static size_t step_back(struct kiln__jinja_text text, size_t end)
{
    for (size_t length = 4; length > 1; length--)
        if (length <= end && kiln__jinja_step(kiln__jinja_part(text, 0, end), end - length) == end)
            return end - length;
    return end - 1;
}

struct kiln__jinja_text kiln__jinja_strip(struct kiln__jinja *j, struct kiln__jinja_text text,
                                          const struct kiln__jinja_text *which, bool front,
                                          bool back)
{
    size_t from = 0, to = text.length;
    while (front && from < to && is_stripped(j, text, from, kiln__jinja_step(text, from), which))
        from = kiln__jinja_step(text, from);
    while (back && from < to && is_stripped(j, text, step_back(text, to), to, which))
        to = step_back(text, to);
    return kiln__jinja_part(text, from, to);
}

void kiln__jinja_reserve(struct kiln__jinja *j, struct kiln__jinja_builder *builder,
                         size_t capacity)
{
    char *grown = kiln__jinja_take(j, 2 * capacity);
    if (builder->length) {
        memcpy(grown, builder->bytes, builder->length);
        memcpy(grown + capacity, builder->given, builder->length);
    }
    *builder = (struct kiln__jinja_builder){grown, grown + capacity, builder->length, capacity};
}

void kiln__jinja_append(struct kiln__jinja *j, struct kiln__jinja_builder *builder,
                        struct kiln__jinja_text text)
{
    kiln__jinja_work(j, text.length);
    if (!text.length)
        return;
    if (text.length > builder->capacity - builder->length)
        kiln__jinja_reserve(j, builder, 2 * (builder->length + text.length));
    memcpy(builder->bytes + builder->length, text.bytes, text.length);
    if (text.given)
        memcpy(builder->given + builder->length, text.given, text.length);
    builder->length += text.length; /* what was taken is zeros */
}

struct kiln__jinja_text kiln__jinja_built(const struct kiln__jinja_builder *builder)
{
    return (struct kiln__jinja_text){builder->length ? builder->bytes : "", builder->given,
                                     builder->length};
}
