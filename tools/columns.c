/* SPDX-License-Identifier: Apache-2.0 */
/* The last column of tables, broken at the width of a terminal. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* vasprintf */
#endif
#include "columns.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define USUAL_WIDTH 80
#define LEAST_ROOM 30 /* of a column beside others */
#define OWN_COLUMN 10

size_t kiln__tool_width(void)
{
    const char *said = getenv("COLUMNS");
    const long number = said ? strtol(said, NULL, 10) : 0;
    struct winsize size = {0};
    if (number > 0)
        return (size_t)number;
    if (!isatty(STDOUT_FILENO))
        return SIZE_MAX;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) || !size.ws_col ? USUAL_WIDTH : size.ws_col;
}

/* Bytes of the text that go into so many characters, up to a blank. A longer word, such as a path
 * that somebody may copy, is not broken. */
static size_t fitting(const char *text, size_t room)
{
    size_t bytes = 0, blank = 0;
    for (size_t characters = 0; text[bytes]; bytes++) {
        if (text[bytes] == ' ' && characters > room)
            return blank ? blank : bytes;
        if (text[bytes] == ' ')
            blank = bytes;
        characters += ((unsigned char)text[bytes] & 0xc0) != 0x80;
        if (characters > room && blank)
            return blank;
    }
    return bytes;
}

void kiln__tool_print_rest(int printed, const char *format, ...)
{
    const size_t width = kiln__tool_width();
    size_t column = printed < 0 ? 0 : (size_t)printed;
    va_list arguments;
    char *text = NULL;
    va_start(arguments, format);
    const int length = vasprintf(&text, format, arguments);
    va_end(arguments);
    const char *rest = length < 0 ? "" : text;
    const size_t room = width > column ? width - column : 0;
    if (room < LEAST_ROOM && rest[fitting(rest, room)]) {
        column = OWN_COLUMN;
        printf("\n%*s", OWN_COLUMN, "");
    }
    for (;;) {
        const size_t bytes = fitting(rest, width > column ? width - column : LEAST_ROOM);
        printf("%.*s\n", (int)bytes, rest);
        rest += bytes + strspn(rest + bytes, " ");
        if (!*rest)
            break;
        printf("%*s", (int)column, "");
    }
    free(text);
}
