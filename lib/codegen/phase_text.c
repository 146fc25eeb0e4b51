/* SPDX-License-Identifier: Apache-2.0 */
/* Names of a kernel's text get a prefix: macros, types and functions that it defines, and all that
 * begin with kiln_ or KILN_, parts of names that macros put together among them. Reads words, not
 * the language: a name is renamed wherever it stands. */
#include "codegen/phase_text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/parameters.h"

struct word {
    const char *at;
    size_t length;
};

struct phase {
    KILN__VECTOR(struct word) names; /* that the text defines */
    struct kiln__phase_form form;
    struct kiln__text *text;
    size_t lent; /* bytes of local memory so far */
    bool failed;
};

/* ---- words ---- */

static bool begins_word(char c)
{
    return isalpha((unsigned char)c) || c == '_';
}

static bool is_word(struct word word, const char *is)
{
    return strlen(is) == word.length && !strncmp(word.at, is, word.length);
}

static bool is_any(struct word word, const char *const *list)
{
    while (*list && !is_word(word, *list))
        list++;
    return *list;
}

/* Characters that are one thing and no name: a comment, a number. 0: neither. */
static size_t passed_over(const char *at)
{
    size_t length = 0;
    if (at[0] == '/' && at[1] == '*') {
        const char *end = strstr(at + 2, "*/");
        return end ? (size_t)(end + 2 - at) : strlen(at);
    }
    if (at[0] == '/' && at[1] == '/')
        return strcspn(at, "\n");
    if (isdigit((unsigned char)at[0]) || (at[0] == '.' && isdigit((unsigned char)at[1])))
        while (isalnum((unsigned char)at[length]) || at[length] == '.')
            length++;
    return length;
}

/* ---- what the text defines ---- */

static void add_name(struct phase *phase, struct word name)
{
    phase->failed = !kiln__vector_add(&phase->names, name) || phase->failed;
}

/* NAME(...) { */
static bool is_function(struct word word)
{
    static const char *const others[] = {"if", "for", "while", "switch", NULL};
    const char *end = word.at[word.length] == '(' ? kiln__end_of_list(word.at + word.length) : NULL;
    return end && end[strspn(end, " \n")] == '{' && !is_any(word, others);
}

/* The last word before the semicolon. */
static struct word type_name(const char *at)
{
    struct word name = {at, 0};
    while (*at && *at != ';') {
        const size_t length = kiln__identifier_length(at);
        if (length && begins_word(*at))
            name = (struct word){at, length};
        at += length ? length : 1;
    }
    return name;
}

static void collect(struct phase *phase, const char *source)
{
    for (const char *at = source; *at;) {
        const size_t passed = passed_over(at);
        if (passed || !begins_word(*at)) {
            at += passed ? passed : 1;
            continue;
        }
        const struct word word = {at, kiln__identifier_length(at)};
        const char *next = at + word.length + strspn(at + word.length, " ");
        if (is_word(word, "define") && at > source && at[-1] == '#')
            add_name(phase, (struct word){next, kiln__identifier_length(next)});
        else if (is_word(word, "typedef"))
            add_name(phase, type_name(next));
        else if (is_function(word))
            add_name(phase, word);
        at += word.length;
    }
}

/* Whether a macro makes the name of the word, which ends in _, and a number. */
static bool is_numbered(struct word name, struct word word)
{
    size_t k = word.length;
    while (k < name.length && isdigit((unsigned char)name.at[k]))
        k++;
    return word.at[word.length - 1] == '_' && name.length > word.length && k == name.length;
}

static bool is_own(const struct phase *phase, struct word word)
{
    if (word.length >= 5 && (!strncmp(word.at, "kiln_", 5) || !strncmp(word.at, "KILN_", 5)))
        return true;
    for (size_t i = 0; i < phase->names.count; i++) {
        const struct word name = phase->names.items[i];
        if ((name.length == word.length || is_numbered(name, word)) &&
            !memcmp(name.at, word.at, word.length))
            return true;
    }
    return false;
}

/* ---- the text ---- */

/* "-DNAME=value ...": macros. */
static void write_options(struct phase *phase, const char *options)
{
    for (const char *at = options; (at = strstr(at, "-D"));) {
        at += 2;
        const struct word name = {at, kiln__identifier_length(at)};
        const char *value = at + name.length + (at[name.length] == '=');
        add_name(phase, name);
        kiln__text_add(phase->text, "#define p%u_%.*s %.*s\n", phase->form.number, (int)name.length,
                       name.at, (int)strcspn(value, " "), value);
    }
}

/* "local TYPE NAME[COUNT]": a pointer into what is lent. Returns what is left behind it. */
static const char *write_lent(struct phase *phase, const char *at)
{
    const char *type = at + strspn(at, " "), *name = type + kiln__identifier_length(type);
    name += strspn(name, " ");
    const size_t length = kiln__identifier_length(name);
    const char *count = name + length + (name[length] == '[');
    kiln__text_add(phase->text, "local %.*s *const %.*s = (local %.*s *)(phase_memory + %zu)",
                   (int)kiln__identifier_length(type), type, (int)length, name,
                   (int)kiln__identifier_length(type), type, phase->lent / sizeof(int64_t));
    phase->lent += strtoul(count, NULL, 10) * sizeof(int64_t);
    return count + strcspn(count, "]") + 1;
}

static void open_parameters(const struct phase *phase)
{
    kiln__text_add(phase->text,
                   "(%sconst int phase_item, const int phase_wide, const int phase_high, ",
                   phase->form.lent_memory ? "local long *const phase_memory, " : "");
}

/* Returns what is left behind the word. */
static const char *write_word(struct phase *phase, struct word word, bool *kernel)
{
    static const char sized[] = "__attribute__((reqd_work_group_size(";
    static const char *const kernels[] = {"kernel", "__kernel", NULL};
    static const char *const locals[] = {"local", "__local", NULL};
    static const char *const restricts[] = {"restrict", NULL};
    static const char *const items[] = {"get_group_id", NULL};
    static const char *const globals[] = {"get_global_id", NULL};
    static const char *const sizes[] = {"get_global_size", "get_num_groups",
                                        NULL}; /* of the first two dimensions */
    struct kiln__text *text = phase->text;
    const char *end = word.at + word.length;
    if (!strncmp(word.at, sized, sizeof sized - 1) && kiln__end_of_list(end))
        return kiln__end_of_list(end);
    if (is_any(word, kernels)) {
        *kernel = true;
        kiln__text_add(text, "static __attribute__((noinline))");
    } else if (is_any(word, locals) && phase->form.lent_memory) {
        end = write_lent(phase, end);
    } else if (is_any(word, restricts) && phase->form.lent_memory) {
        return end;
    } else if (is_any(word, locals)) {
        kiln__text_add(text, "__private");
    } else if (is_any(word, items) || (is_any(word, globals) && phase->form.items == 1)) {
        kiln__text_add(text, "p%u_item", phase->form.number);
    } else if (is_any(word, globals)) {
        kiln__text_add(text, "p%u_global", phase->form.number);
    } else if (is_any(word, sizes) && phase->form.items == 1) {
        kiln__text_add(text, "p%u_size", phase->form.number);
    } else {
        if (is_own(phase, word))
            kiln__text_add(text, "p%u_", phase->form.number);
        kiln__text_add_bytes(text, word.at, word.length);
        if (*kernel && *end == '(') {
            open_parameters(phase);
            *kernel = false;
            end++;
        }
    }
    return end;
}

/* What the text calls to know its work-group, and its item. */
static void write_places(const struct phase *phase)
{
    const unsigned number = phase->form.number;
    if (phase->form.items > 1)
        kiln__text_add(
            phase->text,
            "#define p%u_item(dimension) phase_item\n"
            "#define p%u_global(dimension) (phase_item * %u + get_local_id(dimension))\n",
            number, number, phase->form.items);
    else
        kiln__text_add(phase->text,
                       "#define p%u_item(dimension) "
                       "kiln_item(dimension, phase_item, phase_wide, phase_high)\n"
                       "#define p%u_size(dimension) ((dimension) ? phase_high : phase_wide)\n",
                       number, number);
}

size_t kiln__phase_text(const char *source, const char *options,
                        const struct kiln__phase_form *form, struct kiln__text *text)
{
    struct phase phase = {.form = *form, .text = text};
    bool kernel = false;
    collect(&phase, source);
    write_options(&phase, options);
    write_places(&phase);
    for (const char *at = source; *at;) {
        const size_t passed = passed_over(at);
        if (begins_word(*at)) {
            at = write_word(&phase, (struct word){at, kiln__identifier_length(at)}, &kernel);
        } else {
            kiln__text_add_bytes(text, at, passed ? passed : 1);
            at += passed ? passed : 1;
        }
    }
    text->failed = text->failed || phase.failed;
    kiln__vector_free(&phase.names);
    return phase.lent;
}
