/* SPDX-License-Identifier: Apache-2.0 */
/* A small preprocessor and parser that reads a kernel's parameter list from its text, for
 * verify_launches.c. */
#include "codegen/parameters.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/codegen.h"
#include "util/kernel_texts.h"

size_t kiln__identifier_length(const char *at)
{
    size_t length = 0;
    while (isalnum((unsigned char)at[length]) || at[length] == '_')
        length++;
    return length;
}

static bool is_word(const char *at, size_t length, const char *word)
{
    return strlen(word) == length && !strncmp(at, word, length);
}

/* ---- finding the kernel ---- */

const char *kiln__find_kernel(const char *text, const char *name)
{
    for (const char *at = text; (at = strstr(at, "kernel ")); at++) {
        bool starts = at == text || at[-1] == '\n' || (at - text > 2 && at[-1] == '_');
        const char *word = starts ? strstr(at, "void") : NULL;
        if (!word)
            continue;
        word += strlen("void");
        word += strspn(word, " \n");
        size_t length = kiln__identifier_length(word);
        if (is_word(word, length, name) && word[length] == '(')
            return word + length;
    }
    return NULL;
}

const char *kiln__end_of_list(const char *at)
{
    int depth = 0;
    for (; *at; at++) {
        depth += (*at == '(') - (*at == ')');
        if (!depth)
            return at + 1;
    }
    return NULL;
}

/* ---- the few words of the preprocessor that parameters are written with ---- */

struct expansion {
    const struct kiln__launch *launch;
    const char *file;   /* of a template */
    const char *before; /* the text before it, or NULL */
    struct kiln__text *to;
};

/* The value of "-DNAME=value" among the options; 0 if there is none. */
static long option(const struct kiln__launch *launch, const char *name, size_t length)
{
    for (const char *at = launch->options; (at = strstr(at, "-D")); at++)
        if (!strncmp(at + 2, name, length) && at[2 + length] == '=')
            return strtol(at + 2 + length + 1, NULL, 10);
    return 0;
}

/* "#define EPILOGUE_PARAMETERS , ...", up to the end of the line; so for operands. */
static void expand_more(const struct expansion *expansion, const char *word, size_t length)
{
    struct kiln__phrase define = kiln__phrase("#define %.*s ", (int)length, word);
    const char *at = expansion->before ? strstr(expansion->before, define.text) : NULL;
    at = at ? at + strlen(define.text) : "";
    kiln__text_add_bytes(expansion->to, at, strcspn(at, "\n"));
}

static bool ends_in(const char *word, size_t length, const char *end)
{
    return length >= strlen(end) && is_word(word + length - strlen(end), strlen(end), end);
}

/* IF_NAME(parameter), which is there if option NAME is: to its last parenthesis, or into it. */
static const char *expand_if(const struct expansion *expansion, const char *word)
{
    const char *name = word + strlen("IF_"), *open = name + kiln__identifier_length(name);
    if (!option(expansion->launch, name, kiln__identifier_length(name)))
        return open + strcspn(open, ")");
    kiln__text_add(expansion->to, ", ");
    return open;
}

/* PASTE(TO_, RUNS)(RUN) of kernels/attention*.h: RUN(0) to RUN(RUNS - 1). */
static void expand_runs(const struct expansion *expansion)
{
    static const char define[] = "#define RUN(i) ";
    const char *at = strstr(expansion->file, define);
    for (long run = 0; at && run < option(expansion->launch, "RUNS", 4); run++)
        for (const char *c = at + sizeof define - 1; *c != '\n'; c++) {
            if (!strncmp(c, "##i", 3)) {
                kiln__text_add(expansion->to, "%ld", run);
                c += 2;
            } else if (!strncmp(c, "IF_", 3)) {
                c = expand_if(expansion, c);
            } else if (*c != ')') {
                kiln__text_add_bytes(expansion->to, c, 1);
            }
        }
}

/* The list that starts at the parenthesis `at`, without it, expanded. */
static void expand_list(const struct expansion *expansion, const char *at)
{
    int depth = 1;
    for (at++; *at && depth;) {
        size_t length = kiln__identifier_length(at);
        if (!strncmp(at, "#if ", 4) &&
            !option(expansion->launch, at + 4, kiln__identifier_length(at + 4)))
            at = strstr(at, "#endif");
        if (!at)
            return;
        if (*at == '#') {
            at += strcspn(at, "\n");
        } else if (ends_in(at, length, "_PARAMETERS")) {
            expand_more(expansion, at, length);
            at += length;
        } else if (is_word(at, length, "PASTE")) {
            expand_runs(expansion);
            at += strcspn(at, "\n") - 1; /* it stands last, before the list's parenthesis */
        } else {
            depth += (*at == '(') - (*at == ')');
            length = length ? length : 1;
            kiln__text_add_bytes(expansion->to, at, depth ? length : 0);
            at += length;
        }
    }
}

/* ---- reading the list ---- */

/* Bytes of an element of this type. */
static uint8_t item_of(const char *word, size_t length)
{
    static const struct {
        const char *name;
        uint8_t bytes;
    } types[] = {{"char", 1}, {"uchar", 1}, {"short", 2}, {"ushort", 2}, {"half", 2},
                 {"int", 4},  {"uint", 4},  {"float", 4}, {"long", 8},   {"ulong", 8}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (is_word(word, length, types[i].name))
            return types[i].bytes;
    return 0;
}

static struct kiln__parameter read_one(const char *at, size_t length)
{
    struct kiln__parameter parameter = {.name = ""};
    for (const char *end = at + length; at < end;) {
        size_t word = kiln__identifier_length(at);
        parameter.memory = parameter.memory || *at == '*';
        if (word == 0) {
            at++;
            continue;
        }
        parameter.constant = parameter.constant || is_word(at, word, "const");
        parameter.restricted = parameter.restricted || is_word(at, word, "restrict");
        if (is_word(at, word, "long") || is_word(at, word, "int") || is_word(at, word, "float"))
            parameter.type = *at;
        parameter.item = parameter.item ? parameter.item : item_of(at, word);
        snprintf(parameter.name, sizeof parameter.name, "%.*s", (int)word, at);
        at += word;
    }
    return parameter;
}

static void read_list(struct kiln__parameters *parameters)
{
    const char *list = parameters->text.data;
    for (const char *at = list; *at;) {
        size_t length = strcspn(at, ",");
        struct kiln__parameter parameter = read_one(at, length);
        parameter.at = (size_t)(at - list);
        parameter.length = length;
        if (!kiln__vector_add(&parameters->list, parameter)) {
            parameters->failed = true;
            return;
        }
        at += length + (at[length] == ',');
    }
}

struct kiln__parameters kiln__parameters_of(const struct kiln__plan *plan,
                                            const struct kiln__launch *launch)
{
    struct kiln__parameters parameters = {.found = false};
    struct kiln__text shown = {0};
    const struct kiln__custom *custom =
        launch->source == KILN__SOURCE_CUSTOM ? kiln__launch_custom(plan, launch) : NULL;
    const char *file = custom                                    ? custom->file
                       : launch->source == KILN__SOURCE_TEMPLATE ? launch->file
                                                                 : NULL;
    if (kiln__launch_has_text(launch))
        kiln__codegen_show(plan, launch, &shown);
    struct expansion expansion = {.launch = launch, .before = shown.data, .to = &parameters.text};
    expansion.file = file ? kiln__kernel_text(file) : shown.data;
    const char *kernel = expansion.file ? kiln__find_kernel(expansion.file, launch->kernel) : NULL;
    parameters.found = kernel;
    if (kernel)
        expand_list(&expansion, kernel);
    parameters.failed = shown.failed || parameters.text.failed;
    if (!parameters.failed && parameters.text.data)
        read_list(&parameters);
    kiln__text_free(&shown);
    return parameters;
}

void kiln__parameters_free(struct kiln__parameters *parameters)
{
    kiln__text_free(&parameters->text);
    kiln__vector_free(&parameters->list);
}
