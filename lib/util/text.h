/* SPDX-License-Identifier: Apache-2.0 */
/* A growing text. Running out of memory is remembered, not reported at each call: the text is then
 * empty and `failed` is set, so that a writer checks once at its end. */
#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

struct kiln__text {
    char *data; /* zero-terminated; NULL while empty */
    size_t length;
    size_t capacity;
    bool failed;
};

void kiln__text_add(struct kiln__text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void kiln__text_vadd(struct kiln__text *text, const char *format, va_list arguments)
    __attribute__((format(printf, 2, 0)));
void kiln__text_add_bytes(struct kiln__text *text, const void *bytes, size_t length);
void kiln__text_free(struct kiln__text *text);

/* Give back the room that nothing is in; the bytes that are left. */
size_t kiln__text_trim(struct kiln__text *text);

/* A few words that are put into a text later, by value. */
struct kiln__phrase {
    char text[224];
};
struct kiln__phrase kiln__phrase(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Control characters, which a terminal would obey, become '?': for words out of a foreign file. */
void kiln__phrase_clean(struct kiln__phrase *phrase);

/* Hand the memory over to the caller, who frees it; NULL if the text failed. */
char *kiln__text_take(struct kiln__text *text);
