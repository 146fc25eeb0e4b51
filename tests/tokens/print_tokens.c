/* SPDX-License-Identifier: Apache-2.0 */
/* print_tokens FILE: the tokens of each line of standard input, by the tokenizer in FILE. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>

#include "../../tools/tokenizer.h"

enum { MOST = 1 << 16 };

int main(int argc, char **argv)
{
    static int32_t ids[MOST];
    char error[KILN__TOKENIZER_ERROR] = "wrong usage", *line = NULL;
    struct tokenizer *tokenizer = argc == 2 ? tokenizer_open(argv[1], error) : NULL;
    size_t room = 0, count = 0;
    ssize_t length;
    if (!tokenizer) {
        fprintf(stderr, "print_tokens: %s\n", error);
        return EXIT_FAILURE;
    }
    while ((length = getline(&line, &room, stdin)) >= 0) {
        length -= length && line[length - 1] == '\n';
        if (!tokenizer_encode(tokenizer, line, (size_t)length, MOST, ids, &count))
            return EXIT_FAILURE;
        for (size_t i = 0; i < count; i++)
            printf(i ? " %d" : "%d", (int)ids[i]);
        putchar('\n');
    }
    free(line);
    tokenizer_close(tokenizer);
    return EXIT_SUCCESS;
}
