/* SPDX-License-Identifier: Apache-2.0 */
/* `kiln explain`: runs a program with $KILN_EXPLAIN naming a file, to which the library appends an
 * explanation of each new plan, and shows that file. */
#include <argp.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "suggest.h"
#include "tool.h"

#define EXIT_USAGE 2

struct request {
    const char *output; /* NULL: standard output */
    const char *form;   /* as $KILN_EXPLAIN_AS has it */
    char **program;     /* with its arguments, NULL-terminated */
};

static const struct argp_option options[] = {
    {"json", 'j', 0, 0, "An object for each batch instead, in a line of its own", 0},
    {"summary", 's', 0, 0, "A line for each launch instead, and what the batch takes as a whole",
     0},
    {"output", 'o', "FILE", 0, "Write the explanation to FILE instead of standard output", 0},
    {0},
};

/* What follows the program's name is the program's own. */
static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct request *request = state->input;
    switch (key) {
    case 'o': request->output = arg; return 0;
    case 'j': request->form = "json"; return 0;
    case 's': request->form = "summary"; return 0;
    case ARGP_KEY_ARG:
        request->program = state->argv + state->next - 1;
        state->next = state->argc;
        return 0;
    case ARGP_KEY_NO_ARGS: argp_error(state, "a program to run is missing"); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static void complain(const char *what)
{
    fprintf(stderr, "kiln explain: %s: %s\n", what, strerror(errno));
}

/* Returns the bytes that were shown. */
static size_t show(const char *path)
{
    char block[4096];
    size_t total = 0, got;
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    while ((got = fread(block, 1, sizeof block, file)))
        total += fwrite(block, 1, got, stdout);
    fclose(file);
    fflush(stdout);
    return total;
}

static bool is_empty(int file)
{
    return lseek(file, 0, SEEK_END) == 0;
}

static int explain(const struct request *request)
{
    char path[PATH_MAX];
    int file = kiln__tool_make_file("kiln explain", request->output, "kiln-explain", path);
    if (file < 0)
        return EXIT_FAILURE;
    int status = EXIT_FAILURE;
    if (setenv("KILN_EXPLAIN", path, 1) ||
        (request->form && setenv("KILN_EXPLAIN_AS", request->form, 1)))
        complain("KILN_EXPLAIN");
    else
        status =
            kiln__tool_run("kiln explain", request->program,
                           !request->output && request->form && !strcmp(request->form, "json"));
    if (!request->output)
        show(path);
    if (is_empty(file) && status < KILN__EXIT_NOT_RUNNABLE)
        fprintf(stderr, "kiln explain: %s ran no batch of kiln\n", request->program[0]);
    if (!request->output)
        unlink(path);
    close(file);
    return status;
}

int kiln__tool_explain(int argc, char **argv)
{
    static const char doc[] =
        "Run PROGRAM and show what kiln makes of each different batch that it runs: the graph, "
        "what was fused and dropped, the plan and the kernels. The exit status is the program's.\v"
        "A program can be explained without this command: KILN_EXPLAIN names a file that "
        "explanations are appended to, \"-\" is standard error.";
    struct argp argp = {
        .options = options, .parser = parse, .args_doc = "PROGRAM [ARGUMENT...]", .doc = doc};
    struct request request = {0};
    kiln__tool_parse(&argp, argc, argv, ARGP_IN_ORDER, &request);
    return request.program ? explain(&request) : EXIT_USAGE;
}
