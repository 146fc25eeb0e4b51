/* SPDX-License-Identifier: Apache-2.0 */
/* A tokenizer's numbers, as texts to compare. */
#pragma once

#include <criterion/criterion.h>
#include <stdio.h>

#include "../../tools/tokenizer.h"

enum { MOST = 512 };

static struct tokenizer *open_one(const char *path)
{
    char error[KILN__TOKENIZER_ERROR] = "";
    struct tokenizer *tokenizer = tokenizer_open(path, error);
    cr_assert(tokenizer, "%s", error);
    return tokenizer;
}

/* The numbers of a text, at most so many, with spaces between them; until the next call. */
static const char *numbers_of(struct tokenizer *tokenizer, const char *text, size_t bytes,
                              size_t most)
{
    static char numbers[8 * MOST];
    static int32_t ids[MOST];
    size_t count, length = 0;
    cr_assert_leq(most, MOST);
    cr_assert(tokenizer_encode(tokenizer, text, bytes, most, ids, &count));
    cr_assert_leq(count, most);
    *numbers = 0;
    for (size_t i = 0; i < count; i++)
        length += (size_t)sprintf(numbers + length, i ? " %d" : "%d", (int)ids[i]);
    return numbers;
}
