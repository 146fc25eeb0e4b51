/* SPDX-License-Identifier: Apache-2.0 */
/* "Did you mean": the word that a mistyped one is nearest to, and arguments that are checked so. */
#ifndef KILN_TOOLS_SUGGEST_H
#define KILN_TOOLS_SUGGEST_H

#include <argp.h>
#include <stdbool.h>
#include <stddef.h>

/* Keeps the nearest of the words that it is asked about. */
struct kiln__suggestion {
    const char *word;    /* as it was typed */
    const char *nearest; /* NULL: none is near enough */
    size_t distance;     /* characters that are wrong */
};

void kiln__suggest(struct kiln__suggestion *suggestion, const char *known);

/* 'there is no command "lst"; did you mean "list"?' as wrong usage, which ends the program. */
void kiln__refuse_word(const struct argp_state *state, const char *kind,
                       const struct kiln__suggestion *suggestion);

/* The options that a command takes: its own, those that it shares with others, those that argp has
 * beside them; NULL behind the last. */
const struct argp_option *kiln__tool_option(const struct argp *argp, size_t index);

/* As argp_parse() for a sub-command, which argv[0] names; before that a long option that is none of
 * `argp` ends the program as wrong usage, with the one that it is nearest to. While
 * kiln__completing(), what could follow is printed, and the program ends. */
void kiln__tool_parse(const struct argp *argp, int argc, char **argv, unsigned flags, void *input);

#endif
