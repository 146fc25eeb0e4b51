/* SPDX-License-Identifier: Apache-2.0 */
/* Which lines of kernels/builtins.cl a program needs. A word of the program may also be the
 * beginning of a function's name, which ends with "_", as in PASTE(convert_, TYPE). */
#include "programs/builtins.h"

#include <stdbool.h>
#include <string.h>

#include "util/kernel_texts.h"

#define ROW "\nDECLARE_"
#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"
#define DIGITS "0123456789"

enum { MOST_ROWS = 128 };

/* A row, and the word that it is about. */
struct row {
    const char *text, *word;
    size_t length, word_length;
    bool needed;
};

/* Up to the first row. */
static size_t head_length(const char *file)
{
    return (size_t)(strstr(file, ROW) + 1 - file);
}

static size_t list_rows(const char *file, struct row rows[MOST_ROWS])
{
    size_t count = 0;
    for (const char *at = strstr(file, ROW); at && count < MOST_ROWS; at = strstr(at, ROW)) {
        const char *text = ++at, *word = strchr(text, '(') + 1;
        rows[count++] =
            (struct row){text, word, strcspn(text, "\n") + 1, strcspn(word, ",)"), false};
    }
    return count;
}

static bool is_about(const struct row *row, const char *word, size_t length)
{
    return length >= row->word_length
               ? !strncmp(word, row->word, row->word_length)
               : word[length - 1] == '_' && !strncmp(word, row->word, length);
}

void kiln__builtins_declare(const char *source, struct kiln__text *text)
{
    const char *file = kiln__kernel_text("builtins");
    struct row rows[MOST_ROWS];
    const size_t count = list_rows(file, rows);
    for (const char *at = source; *(at += strcspn(at, LETTERS DIGITS));) {
        const size_t length = strspn(at, LETTERS DIGITS);
        for (size_t i = 0; i < count; i++)
            rows[i].needed = rows[i].needed || is_about(&rows[i], at, length);
        at += length;
    }
    kiln__text_add_bytes(text, file, head_length(file));
    for (size_t i = 0; i < count; i++)
        if (rows[i].needed)
            kiln__text_add_bytes(text, rows[i].text, rows[i].length);
    kiln__text_add(text, "#line 1\n");
    kiln__text_add_bytes(text, source, strlen(source));
}
