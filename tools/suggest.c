/* SPDX-License-Identifier: Apache-2.0 */
/* Nearest word by edit distance, for mistyped commands and options. */
#include "suggest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "complete.h"

#define MOST_WORD 40

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Characters to be changed, added, left out or swapped with their neighbour until one word is the
 * other (optimal string alignment). Long words are far from all others. */
static size_t distance(const char *a, const char *b)
{
    size_t rows[MOST_WORD + 1][MOST_WORD + 1];
    const size_t m = strlen(a), n = strlen(b);
    if (m > MOST_WORD || n > MOST_WORD)
        return MOST_WORD;
    for (size_t i = 0; i <= m; i++)
        for (size_t k = 0; k <= n; k++) {
            size_t *here = &rows[i][k];
            *here = i ? i : k;
            if (!i || !k)
                continue;
            *here = least(rows[i - 1][k], rows[i][k - 1]) + 1;
            *here = least(*here, rows[i - 1][k - 1] + (a[i - 1] != b[k - 1]));
            if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1])
                *here = least(*here, rows[i - 2][k - 2] + 1);
        }
    return rows[m][n];
}

void kiln__suggest(struct kiln__suggestion *suggestion, const char *known)
{
    size_t wrong = distance(suggestion->word, known);
    size_t most = strlen(suggestion->word) > 3 ? 2 : 1;
    if (wrong > most || (suggestion->nearest && wrong >= suggestion->distance))
        return;
    suggestion->nearest = known;
    suggestion->distance = wrong;
}

void kiln__refuse_word(const struct argp_state *state, const char *kind,
                       const struct kiln__suggestion *suggestion)
{
    const char *nearest = suggestion->nearest;
    argp_error(state, "there is no %s \"%s\"%s%s%s", kind, suggestion->word,
               nearest ? "; did you mean \"" : "", nearest ? nearest : "", nearest ? "\"?" : "");
}

/* ---- options ---- */

static const struct argp_option *nth(const struct argp_option *options, size_t *index)
{
    for (; options && options->name; options++)
        if (!(*index)--)
            return options;
    return NULL;
}

const struct argp_option *kiln__tool_option(const struct argp *argp, size_t index)
{
    static const struct argp_option common[] = {{"help", '?', 0, 0, "Give this help list", 0},
                                                {"usage", 0, 0, 0, "Give a short usage message", 0},
                                                {"version", 'V', 0, 0, "Print program version", 0},
                                                {0}};
    const struct argp_option *option = nth(argp->options, &index);
    for (const struct argp_child *child = argp->children; child && child->argp && !option; child++)
        option = nth(child->argp->options, &index);
    return option ? option : nth(common, &index);
}

/* The option that a word, up to its end, is or begins; else how near it is. */
static const struct argp_option *find_long(const struct argp *argp,
                                           struct kiln__suggestion *suggestion)
{
    const struct argp_option *option;
    for (size_t i = 0; (option = kiln__tool_option(argp, i)); i++) {
        if (!strncmp(option->name, suggestion->word, strlen(suggestion->word)))
            return option;
        kiln__suggest(suggestion, option->name);
    }
    return NULL;
}

static bool has_value(const struct argp *argp, char letter)
{
    const struct argp_option *option;
    for (size_t i = 0; (option = kiln__tool_option(argp, i)); i++)
        if (option->key == letter && option->arg)
            return true;
    return false;
}

/* Whether the next argument is the value of a short option: of the last one of "-nd". */
static bool takes_next(const struct argp *argp, const char *letters)
{
    for (; *letters; letters++)
        if (has_value(argp, *letters))
            return !letters[1];
    return false;
}

static void refuse(const char *called, const struct kiln__suggestion *suggestion)
{
    fprintf(stderr, "%s: there is no option --%s", called, suggestion->word);
    if (suggestion->nearest)
        fprintf(stderr, "; did you mean --%s?", suggestion->nearest);
    fprintf(stderr, "\nTry `%s --help' or `%s --usage' for more information.\n", called, called);
    exit(argp_err_exit_status);
}

/* skip: the next argument belongs to it. */
static void check_long(const struct argp *argp, const char *called, const char *argument,
                       bool *skip)
{
    char word[MOST_WORD + 1];
    struct kiln__suggestion suggestion = {.word = word};
    size_t length = strcspn(argument, "=");
    if (length > MOST_WORD)
        length = MOST_WORD;
    memcpy(word, argument, length);
    word[length] = 0;
    const struct argp_option *option = find_long(argp, &suggestion);
    if (!option)
        refuse(called, &suggestion);
    *skip = option->arg && !strchr(argument, '=');
}

void kiln__tool_parse(const struct argp *argp, int argc, char **argv, unsigned flags, void *input)
{
    if (kiln__completing()) {
        kiln__complete(argp, argc, argv);
        exit(0);
    }
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        bool skip = false;
        if (!strncmp(argv[i], "--", 2))
            check_long(argp, argv[0], argv[i] + 2, &skip);
        else if (*argv[i] == '-')
            skip = takes_next(argp, argv[i] + 1);
        else if (flags & ARGP_IN_ORDER)
            break; /* what follows is another program's */
        i += skip;
    }
    argp_parse(argp, argc, argv, flags, NULL, input);
}
