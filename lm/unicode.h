/* SPDX-License-Identifier: Apache-2.0 */
/* Characters in UTF-8 and their classes, from libutf8proc's tables; the tokenizer of `kiln embed`
 * uses them, too. */
#ifndef KILN_LM_UNICODE_H
#define KILN_LM_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What tokenizers' patterns call \p{L}, \p{N} and \s, and the rest. */
enum kiln__class { KILN__LETTER = 1, KILN__NUMBER = 2, KILN__SPACE = 4, KILN__OTHER = 8 };

/* The character that a text of at least one byte begins with, and how many bytes it has: a byte
 * that begins none is a character by itself, of value -1. */
size_t kiln__unicode_next(const char *text, size_t bytes, int32_t *point);

enum kiln__class kiln__unicode_class(int32_t point);

bool kiln__unicode_is_space(int32_t point);

#endif
