/* SPDX-License-Identifier: Apache-2.0 */
/* What may stand next on a command line, for shells: `kiln --complete WORD...`, the last word of
 * which is being typed. It is read off the tables of options and the words of the usage, so that
 * both shells offer what the program takes (tools/completions). */
#ifndef KILN_TOOLS_COMPLETE_H
#define KILN_TOOLS_COMPLETE_H

#include <argp.h>
#include <stdbool.h>

/* From now on commands say what could follow their arguments (kiln__tool_parse()), and run nothing.
 */
void kiln__complete_begin(void);
bool kiln__completing(void);

/* Print a word, and behind a tab what it is about, where it begins as the one that is typed. */
void kiln__complete_offer(const char *typed, const char *word, const char *about);

/* What could stand in the place of the last argument, a line each: words that begin as it does;
 * else what a shell knows itself behind a colon: ":file", ":folder", with a tab and what of the
 * argument stands in front of the name; ":program", a tab, and which argument is the program's
 * name. */
void kiln__complete(const struct argp *argp, int argc, char **argv);

#endif
