/* SPDX-License-Identifier: Apache-2.0 */
/* The `kiln` program: finds the sub-command and hands over to it. */
#define _GNU_SOURCE
#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/version.h>

#include "complete.h"
#include "suggest.h"
#include "tool.h"

#define EXIT_USAGE 2

/* What a build without their libraries leaves out. */
#ifdef HAVE_ONNX
#define WITH_ONNX(run) run, NULL
#else
#define WITH_ONNX(run) NULL, "libkiln-onnx (configure --with-onnx)"
#endif
#if defined HAVE_ONNX && defined HAVE_UTF8PROC
#define WITH_TEXT(run) run, NULL
#else
#define WITH_TEXT(run) NULL, "libkiln-onnx and libutf8proc (configure --with-onnx --with-utf8proc)"
#endif

#ifdef HAVE_LM
#define WITH_LM(run) run, NULL
#else
#define WITH_LM(run) NULL, "libkiln-lm (configure --with-lm)"
#endif

#if defined HAVE_LM && defined HAVE_MICROHTTPD
#define WITH_HTTP(run) run, NULL
#else
#define WITH_HTTP(run) NULL, "libkiln-lm and libmicrohttpd (configure --with-lm --with-microhttpd)"
#endif

static int help(int argc, char **argv);
static int version(int argc, char **argv);

static const struct command {
    const char *name, *called, *about;
    int (*run)(int argc, char **argv); /* NULL: */
    const char *lacks;
} commands[] = {
#define COMMAND(name, about) name, "kiln " name, about
    {COMMAND("run", "run an ONNX file"), WITH_ONNX(kiln__tool_run_model)},
    {COMMAND("embed", "lines of text become vectors, through a sentence encoder"),
     WITH_TEXT(kiln__tool_embed)},
    {COMMAND("generate", "have a text go on, by a language model"), WITH_LM(kiln__tool_generate)},
    {COMMAND("chat", "talk with a language model"), WITH_LM(kiln__tool_chat)},
    {COMMAND("serve", "answer over HTTP with language models"), WITH_HTTP(kiln__tool_serve)},
    {COMMAND("info", "the OpenCL devices of this machine"), kiln__tool_info, NULL},
    {COMMAND("cache", "the kernel cache: list, prune, clear, export, import, warm"),
     kiln__tool_cache, NULL},
    {COMMAND("explain", "run a program and show what kiln makes of its batches"),
     kiln__tool_explain, NULL},
    {COMMAND("profile", "run a program and show where the device's time went"), kiln__tool_profile,
     NULL},
    {COMMAND("tune", "find the parameters with which this device is fastest"), kiln__tool_tune,
     NULL},
    {COMMAND("help", "this text, or what is to be said about a command"), help, NULL},
    {COMMAND("version", "the version of the library that is linked"), version, NULL},
};

#define COMMANDS (sizeof commands / sizeof *commands)

static const char doc[] =
    "Run models, and look at the devices, the kernel cache and the plans of kiln.\v"
    "`kiln help COMMAND' says more about each.";

/* What stands behind the options: the commands. */
static char *write_help(int key, const char *text, void *input)
{
    (void)input;
    if (key != ARGP_KEY_HELP_POST_DOC)
        return (char *)text;
    char *list = NULL;
    size_t size;
    FILE *stream = open_memstream(&list, &size);
    if (!stream)
        return (char *)text;
    fputs("Commands:\n", stream);
    for (size_t i = 0; i < COMMANDS; i++)
        fprintf(stream, "  %-10s %s\n", commands[i].name, commands[i].about);
    fprintf(stream, "\n%s", text);
    fclose(stream);
    return list;
}

static void print_version(FILE *stream, struct argp_state *state)
{
    (void)state;
    fprintf(stream, "kiln %s\n", kiln_version());
}

static const struct command *find_command(const char *name)
{
    for (size_t i = 0; i < COMMANDS; i++)
        if (!strcmp(name, commands[i].name))
            return &commands[i];
    return NULL;
}

/* Ends the program. */
static void refuse_command(struct argp_state *state, const char *name)
{
    struct kiln__suggestion suggestion = {.word = name};
    for (size_t i = 0; i < COMMANDS; i++)
        kiln__suggest(&suggestion, commands[i].name);
    kiln__refuse_word(state, "command", &suggestion);
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
            refuse_command(state, arg);
        choice->first = state->next - 1;
        state->next = state->argc;
        return 0;
    case ARGP_KEY_NO_ARGS: argp_error(state, "a command is missing"); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp whole = {
    .parser = parse, .args_doc = "COMMAND [ARGUMENT...]", .doc = doc, .help_filter = write_help};

/* ---- commands about the program itself ---- */

static int run_command(const struct command *command, int argc, char **argv)
{
    argv[0] = (char *)command->called;
    if (command->run)
        return command->run(argc, argv);
    fprintf(stderr, "%s: this kiln was built without %s\n", command->called, command->lacks);
    return EXIT_FAILURE;
}

/* Of a command: what its --help prints. */
static int help(int argc, char **argv)
{
    static char option[] = "--help";
    const struct command *command = argc > 1 ? find_command(argv[1]) : NULL;
    if (command && command->run != help && command->run != version)
        return run_command(command, 2, (char *[]){NULL, option, NULL});
    char *arguments[] = {program_invocation_short_name, argc > 1 && !command ? argv[1] : option,
                         NULL};
    struct choice choice = {0};
    return argp_parse(&whole, 2, arguments, ARGP_IN_ORDER, NULL, &choice);
}

static int version(int argc, char **argv)
{
    (void)argc, (void)argv;
    printf("kiln %s\n", kiln_version());
    return 0;
}

/* Of the words behind "kiln --complete", the last is being typed. */
static int complete(int argc, char **argv)
{
    const char *typed = argv[argc - 1];
    const struct command *command = argc > 1 ? find_command(argv[0]) : NULL;
    const bool names = argc == 1 || (argc == 2 && command && command->run == help);
    kiln__complete_begin();
    if (names && *typed == '-')
        kiln__complete(&whole, argc + 1, argv - 1);
    else if (names)
        for (size_t i = 0; i < COMMANDS; i++) {
            if (commands[i].run)
                kiln__complete_offer(typed, commands[i].name, commands[i].about);
        }
    else if (command && command->run && command->run != help && command->run != version)
        return run_command(command, argc, argv);
    return EXIT_SUCCESS;
}

/* A full disk shows at the latest where the rest is written. */
static int written(const char *called, int status)
{
    if (!fflush(stdout) && !ferror(stdout))
        return status;
    fprintf(stderr, "%s: standard output could not be written\n", called);
    return status ? status : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    struct choice choice = {0};
    argp_program_version_hook = print_version;
    argp_err_exit_status = EXIT_USAGE;
    if (argc > 2 && !strcmp(argv[1], "--complete"))
        return written("kiln --complete", complete(argc - 2, argv + 2));
    argp_parse(&whole, argc, argv, ARGP_IN_ORDER, NULL, &choice);
    int status = run_command(choice.command, argc - choice.first, argv + choice.first);
    return written(choice.command->called, status);
}
