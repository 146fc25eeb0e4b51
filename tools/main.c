/* SPDX-License-Identifier: Apache-2.0 */
/* The `kiln` program: finds the sub-command and hands over to it. */
#include <argp.h>
#include <stdio.h>
#include <string.h>

#include <kiln/version.h>

#include "tool.h"

#define EXIT_USAGE 2

static const struct command {
    const char *name, *called;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"info", "kiln info", kiln__tool_info},
    {"cache", "kiln cache", kiln__tool_cache},
    {"explain", "kiln explain", kiln__tool_explain},
    {"tune", "kiln tune", kiln__tool_tune},
};

static const char doc[] =
    "Look at the devices, the kernel cache and the plans of kiln.\v"
    "Commands:\n"
    "  info       the OpenCL devices of this machine\n"
    "  cache      the kernel cache: list, prune, clear, export, import, warm\n"
    "  explain    run a program and show what kiln makes of its batches\n"
    "  tune       find the parameters with which this device is fastest\n"
    "\n"
    "`kiln COMMAND --help' says more about each.";

static void print_version(FILE *stream, struct argp_state *state)
{
    (void)state;
    fprintf(stream, "kiln %s\n", kiln_version());
}

static const struct command *find_command(const char *name)
{
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (!strcmp(name, commands[i].name))
            return &commands[i];
    return NULL;
}

struct choice {
    const struct command *command;
    int first; /* argument that named it */
};

/* Everything behind the command's name is the command's own. */
static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct choice *choice = state->input;
    switch (key) {
    case ARGP_KEY_ARG:
        choice->command = find_command(arg);
        if (!choice->command)
            argp_error(state, "there is no command \"%s\"", arg);
        choice->first = state->next - 1;
        state->next = state->argc;
        return 0;
    case ARGP_KEY_NO_ARGS: argp_error(state, "a command is missing"); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

int main(int argc, char **argv)
{
    struct choice choice = {0};
    struct argp argp = {.parser = parse, .args_doc = "COMMAND [ARGUMENT...]", .doc = doc};
    argp_program_version_hook = print_version;
    argp_err_exit_status = EXIT_USAGE;
    argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &choice);
    argp_program_version_hook = NULL; /* --version is the program's, not a command's */
    argv[choice.first] = (char *)choice.command->called;
    return choice.command->run(argc - choice.first, argv + choice.first);
}
