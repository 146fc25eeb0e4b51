/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers as texts, and back, with a point whatever locale the program has chosen: in kernels,
 * notes, records, JSON, variables and sentences. All that writes or reads a floating number goes
 * through here (tests/check-numbers.sh). */
#pragma once

#include <stdarg.h>
#include <stddef.h>

/* As snprintf() and vsnprintf(). */
int kiln__format(char *text, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int kiln__vformat(char *text, size_t size, const char *format, va_list arguments)
    __attribute__((format(printf, 3, 0)));

/* As strtod(). */
double kiln__parse_double(const char *text, char **end);
