/* SPDX-License-Identifier: Apache-2.0 */
/* The sub-commands of the `kiln` program. Each parses its own arguments (argv[0] is how it was
 * called, "kiln info") and answers the exit status: 0 success, 1 failure, 2 wrong usage. */
#ifndef KILN_TOOLS_TOOL_H
#define KILN_TOOLS_TOOL_H

int kiln__tool_info(int argc, char **argv);
int kiln__tool_cache(int argc, char **argv);
int kiln__tool_explain(int argc, char **argv);

#endif
