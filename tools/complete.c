/* SPDX-License-Identifier: Apache-2.0 */
/* Completion of a command line, read off an argp: options from its tables, arguments from the words
 * of its usage. Of these "list|stat" are words to choose from, "FILE", "MODEL", "NAME=FILE" and
 * "FOLDER" are names, "PROGRAM" is a command line of its own, and others are free text. */
#include "complete.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "suggest.h"

static bool completing;

void kiln__complete_begin(void)
{
    completing = true;
}

bool kiln__completing(void)
{
    return completing;
}

static bool begins(const char *text, const char *with)
{
    return !strncmp(text, with, strlen(with));
}

void kiln__complete_offer(const char *typed, const char *word, const char *about)
{
    if (begins(word, typed))
        printf("%s%s%s\n", word, about ? "\t" : "", about ? about : "");
}

/* ---- words of the usage ---- */

#define MOST_WORD 80

/* "[WORK...]" without what is around it. */
struct wanted {
    char word[MOST_WORD];
    bool repeats;
};

/* The next of a line of the usage, whose rest it answers; NULL: there is none. */
static const char *next_wanted(const char *usage, struct wanted *wanted)
{
    size_t length = 0;
    usage += strspn(usage, " ");
    const size_t all = strcspn(usage, " \n");
    *wanted = (struct wanted){0};
    for (size_t i = 0; i < all && length < MOST_WORD - 1; i++)
        if (!strchr("[].", usage[i]))
            wanted->word[length++] = usage[i];
    for (size_t i = 0; i + 3 <= all; i++)
        wanted->repeats |= begins(usage + i, "...");
    return length ? usage + all : NULL;
}

static bool are_words(const char *wanted)
{
    return islower((unsigned char)*wanted);
}

/* Each of "list|stat" in turn, NULL behind the last; it cuts the text up. */
static char *next_choice(char **choices)
{
    return strsep(choices, "|");
}

static bool is_choice(struct wanted wanted, const char *word)
{
    char *rest = wanted.word;
    for (char *choice; (choice = next_choice(&rest));)
        if (!strcmp(choice, word))
            return true;
    return false;
}

static bool ends(const char *text, const char *with)
{
    const size_t length = strlen(text), tail = strlen(with);
    return length >= tail && !strcmp(text + length - tail, with);
}

/* What is wanted behind the first `before` characters of what is typed. */
static void offer(struct wanted wanted, const char *typed, size_t before)
{
    char *rest = wanted.word;
    char word[2 * MOST_WORD];
    const char *equals = strchr(wanted.word, '=') ? strchr(typed + before, '=') : NULL;
    if (are_words(wanted.word)) {
        for (char *choice; (choice = next_choice(&rest));) {
            snprintf(word, sizeof word, "%.*s%s", (int)before, typed, choice);
            kiln__complete_offer(typed, word, NULL);
        }
        return;
    }
    if (equals)
        before = (size_t)(equals + 1 - typed);
    else if (begins(wanted.word, "NAME=") && !ends(wanted.word, "MODEL"))
        return; /* the name first */
    if (ends(wanted.word, "FILE") || ends(wanted.word, "PATH") || ends(wanted.word, "MODEL"))
        printf(":file\t%.*s\n", (int)before, typed);
    else if (!strcmp(wanted.word, "FOLDER"))
        printf(":folder\t%.*s\n", (int)before, typed);
}

/* ---- arguments ---- */

struct line {
    const struct argp *argp;
    char **given; /* arguments that are no options, */
    size_t count; /* the last of which is looked at */
};

/* What one way to call the command, a line of its usage, wants in the last one's place. */
static bool want(const struct line *line, const char *usage, struct wanted *wanted)
{
    for (size_t i = 0; usage && i < line->count; i++) {
        if (!i || !wanted->repeats)
            usage = next_wanted(usage, wanted);
        if (usage && i + 1 < line->count && are_words(wanted->word) &&
            !is_choice(*wanted, line->given[i]))
            return false;
    }
    return usage;
}

static const char *next_way(const char *usage)
{
    const char *end = usage ? strchr(usage, '\n') : NULL;
    return end ? end + 1 : NULL;
}

static bool is_program(const struct line *line)
{
    struct wanted wanted;
    for (const char *way = line->argp->args_doc; way; way = next_way(way))
        if (want(line, way, &wanted) && !strcmp(wanted.word, "PROGRAM"))
            return true;
    return false;
}

static void offer_arguments(const struct line *line)
{
    struct wanted wanted;
    for (const char *way = line->argp->args_doc; way; way = next_way(way))
        if (want(line, way, &wanted))
            offer(wanted, line->given[line->count - 1], 0);
}

/* ---- options ---- */

static void offer_options(const struct argp *argp, const char *typed)
{
    const struct argp_option *option;
    char word[MOST_WORD];
    for (size_t i = 0; (option = kiln__tool_option(argp, i)); i++) {
        snprintf(word, sizeof word, "--%s", option->name);
        kiln__complete_offer(typed, word, option->doc);
        snprintf(word, sizeof word, "-%c", option->key);
        if (isgraph(option->key) && !strcmp(typed, "-"))
            kiln__complete_offer(typed, word, option->doc);
    }
}

/* The option to which what follows an argument belongs, in it or behind it; NULL: to none. */
static const struct argp_option *takes_value(const struct argp *argp, const char *argument)
{
    const struct argp_option *option;
    const bool is_long = begins(argument, "--");
    const size_t length = is_long ? strcspn(argument + 2, "=") : 0;
    for (size_t i = 0; (option = kiln__tool_option(argp, i)); i++)
        if (is_long ? !strncmp(option->name, argument + 2, length)
                    : option->key == argument[strlen(argument) - 1])
            return option->arg ? option : NULL;
    return NULL;
}

static void offer_value(const struct argp_option *option, const char *typed, size_t before)
{
    struct wanted wanted;
    if (next_wanted(option->arg, &wanted))
        offer(wanted, typed, before);
}

/* One that is typed: its name, or its value behind a '='. */
static void offer_option(const struct argp *argp, const char *typed)
{
    const char *equals = strchr(typed, '=');
    const struct argp_option *option =
        begins(typed, "--") && equals ? takes_value(argp, typed) : NULL;
    if (option)
        offer_value(option, typed, (size_t)(equals + 1 - typed));
    else
        offer_options(argp, typed);
}

void kiln__complete(const struct argp *argp, int argc, char **argv)
{
    struct line line = {.argp = argp, .given = argv};
    bool options_end = false;
    char *typed = argv[argc - 1];
    for (int i = 1; i < argc - 1; i++) {
        char *word = argv[i];
        if (!options_end && *word == '-' && word[1]) {
            const struct argp_option *option = takes_value(argp, word);
            options_end = !strcmp(word, "--");
            if (!option || strchr(word, '=') || option->flags & OPTION_ARG_OPTIONAL)
                continue;
            if (++i == argc - 1) {
                offer_value(option, typed, 0);
                return;
            }
            continue;
        }
        line.given[line.count++] = word; /* not behind what is read */
        if (is_program(&line)) {
            printf(":program\t%d\n", i);
            return;
        }
    }
    if (!options_end && *typed == '-') {
        offer_option(argp, typed);
        return;
    }
    line.given[line.count++] = typed;
    if (is_program(&line))
        printf(":program\t%d\n", argc - 1);
    else
        offer_arguments(&line);
}
