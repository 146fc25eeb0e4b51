/* SPDX-License-Identifier: Apache-2.0 */
/* printf() and strtod() in the C locale, whatever the program has chosen. */
#include "util/format.h"

#include <locale.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* C's own locale, which is never freed. 0 without memory: the program's counts. */
static locale_t plain;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_plain(void)
{
    plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

/* Of the calling thread alone. */
static locale_t enter_plain(void)
{
    pthread_once(&once, make_plain);
    return plain ? uselocale(plain) : (locale_t)0;
}

static void leave_plain(locale_t before)
{
    if (before)
        uselocale(before);
}

int kiln__vformat(char *text, size_t size, const char *format, va_list arguments)
{
    locale_t before = enter_plain();
    int length = vsnprintf(text, size, format, arguments);
    leave_plain(before);
    return length;
}

int kiln__format(char *text, size_t size, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = kiln__vformat(text, size, format, arguments);
    va_end(arguments);
    return length;
}

double kiln__parse_double(const char *text, char **end)
{
    locale_t before = enter_plain();
    double number = strtod(text, end);
    leave_plain(before);
    return number;
}
