/* SPDX-License-Identifier: Apache-2.0 */
/* The sub-commands of the `kiln` program. Each parses its own arguments (argv[0] is how it was
 * called, "kiln info") and answers the exit status: 0 success, 1 failure, 2 wrong usage. */
#pragma once

#include <stdbool.h>

int kiln__tool_info(int argc, char **argv);
int kiln__tool_cache(int argc, char **argv);
int kiln__tool_explain(int argc, char **argv);
int kiln__tool_profile(int argc, char **argv);
int kiln__tool_tune(int argc, char **argv);
int kiln__tool_run_model(int argc, char **argv);
int kiln__tool_embed(int argc, char **argv);
int kiln__tool_generate(int argc, char **argv);
int kiln__tool_chat(int argc, char **argv);
int kiln__tool_serve(int argc, char **argv);

/* An empty file, open for writing, that a program which is run is to write: `given`, or one in
 * $TMPDIR whose name begins with `prefix`. Its path is absolute (PATH_MAX places), since the
 * program may change its folder. -1 where it cannot be made, which is said as `command`. */
int kiln__tool_make_file(const char *command, const char *given, const char *prefix, char *path);

/* Run a program, found as a shell finds it; with `aside` what it prints goes to standard error, as
 * standard output is for what another program reads. Answers the exit status that a shell would
 * give; one that cannot be run is said as `command`. */
#define KILN__EXIT_NOT_RUNNABLE 126
#define KILN__EXIT_NOT_FOUND 127
int kiln__tool_run(const char *command, char **program, bool aside);
