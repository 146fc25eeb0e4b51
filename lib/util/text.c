/* SPDX-License-Identifier: Apache-2.0 */
/* Growing text buffers with printf-style appending. */
#include "util/text.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/format.h"

static void text_fail(struct kiln__text *text)
{
    free(text->data);
    *text = (struct kiln__text){.failed = true};
}

/* Make room for `length` more bytes and the final zero. */
static bool text_reserve(struct kiln__text *text, size_t length)
{
    if (text->failed)
        return false;
    size_t needed = text->length + length + 1;
    if (needed <= text->capacity)
        return true;
    size_t capacity = text->capacity ? text->capacity : 256;
    while (capacity < needed)
        capacity *= 2;
    char *data = realloc(text->data, capacity);
    if (!data) {
        text_fail(text);
        return false;
    }
    text->data = data;
    text->capacity = capacity;
    return true;
}

void kiln__text_vadd(struct kiln__text *text, const char *format, va_list arguments)
{
    va_list again;
    va_copy(again, arguments);
    int length = kiln__vformat(NULL, 0, format, arguments);
    if (length < 0)
        text_fail(text);
    else if (text_reserve(text, (size_t)length)) {
        kiln__vformat(text->data + text->length, (size_t)length + 1, format, again);
        text->length += (size_t)length;
    }
    va_end(again);
}

void kiln__text_add(struct kiln__text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    kiln__text_vadd(text, format, arguments);
    va_end(arguments);
}

struct kiln__phrase kiln__phrase(const char *format, ...)
{
    struct kiln__phrase phrase = {0};
    va_list arguments;
    va_start(arguments, format);
    int length = kiln__vformat(phrase.text, sizeof phrase.text, format, arguments);
    va_end(arguments);
    assert(length >= 0 && (size_t)length < sizeof phrase.text);
    (void)length;
    return phrase;
}

void kiln__phrase_clean(struct kiln__phrase *phrase)
{
    for (char *at = phrase->text; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            *at = '?';
}

void kiln__text_add_bytes(struct kiln__text *text, const void *bytes, size_t length)
{
    if (!text_reserve(text, length))
        return;
    if (length)
        memcpy(text->data + text->length, bytes, length);
    text->length += length;
    text->data[text->length] = '\0';
}

size_t kiln__text_trim(struct kiln__text *text)
{
    char *data = text->data ? realloc(text->data, text->length + 1) : NULL;
    if (data) {
        text->data = data;
        text->capacity = text->length + 1;
    }
    return text->capacity;
}

void kiln__text_free(struct kiln__text *text)
{
    free(text->data);
    *text = (struct kiln__text){0};
}

char *kiln__text_take(struct kiln__text *text)
{
    if (!text->failed && !text->data)
        kiln__text_add_bytes(text, "", 0);
    char *data = text->data;
    *text = (struct kiln__text){0};
    return data;
}
