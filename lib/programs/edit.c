/* SPDX-License-Identifier: Apache-2.0 */
/* Parser of the edit lines of a kernel source, and their application to a PTX binary, each match
 * counted. */
#include "programs/edit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/text.h"

#define MARK "//edit "

/* A part of a longer text. */
struct piece {
    const char *at;
    size_t length;
};

struct edit {
    size_t times;
    struct piece from, to;
};

/* The line that starts the source at or after `at`; NULL: there is none. */
static const char *find_line(const char *source, const char *at)
{
    while ((at = strstr(at, MARK)))
        if (at == source || at[-1] == '\n')
            return at;
        else
            at++;
    return NULL;
}

bool kiln__edit_is_wanted(const char *source)
{
    return find_line(source, source) != NULL;
}

/* ---- options ---- */

/* The length of a name at the start of a text. */
static size_t name_length(const char *text, size_t most)
{
    size_t length = 0;
    while (length < most && ((text[length] >= 'A' && text[length] <= 'Z') || text[length] == '_'))
        length++;
    return length;
}

/* The value of an option; empty: there is none of that name. */
static struct piece find_option(const char *options, const char *name, size_t length)
{
    for (const char *at = options; (at = strstr(at, "-D")); at++)
        if (!strncmp(at + 2, name, length) && at[2 + length] == '=') {
            at += 2 + length + 1;
            return (struct piece){at, strcspn(at, " ")};
        }
    return (struct piece){"", 0};
}

/* ---- reading a line ---- */

/* What stands between the next two quotes; behind them goes *at. False: the line has none. */
static bool read_quoted(const char **at, struct piece *piece)
{
    piece->at = *at + strcspn(*at, "\"\n");
    if (*piece->at != '"')
        return false;
    piece->at++;
    piece->length = strcspn(piece->at, "\"\n");
    *at = piece->at + piece->length + 1;
    return piece->at[piece->length] == '"';
}

/* How often: a number, or an option's. */
static const char *read_times(const char *at, const char *options, size_t *times)
{
    char *end;
    size_t name = *at == '$' ? name_length(at + 1, strlen(at + 1)) : 0;
    if (name) {
        *times = strtoul(find_option(options, at + 1, name).at, NULL, 10);
        return at + 1 + name;
    }
    *times = strtoul(at, &end, 10);
    return end;
}

static bool read_line(const char *line, const char *options, struct edit *edit)
{
    const char *at = read_times(line + strlen(MARK), options, &edit->times);
    return edit->times && read_quoted(&at, &edit->from) && edit->from.length &&
           read_quoted(&at, &edit->to);
}

/* ---- one edit ---- */

static const char *edit_find(const char *text, const struct piece *piece)
{
    for (; *text; text++)
        if (!strncmp(text, piece->at, piece->length))
            return text;
    return NULL;
}

static size_t edit_count(const char *text, const struct piece *piece)
{
    size_t times = 0;
    for (; (text = edit_find(text, piece)); text += piece->length)
        times++;
    return times;
}

/* Append `to`, with the values of options. */
static void add_expanded(const struct piece *to, const char *options, struct kiln__text *out)
{
    for (size_t i = 0; i < to->length; i++) {
        size_t name = to->at[i] == '$' ? name_length(to->at + i + 1, to->length - i - 1) : 0;
        struct piece value = {to->at + i, 1};
        if (name)
            value = find_option(options, to->at + i + 1, name);
        kiln__text_add_bytes(out, value.at, value.length);
        i += name;
    }
}

/* Put what comes of one edit in the place of `text`. */
static bool replace(const struct edit *edit, const char *options, struct kiln__text *text,
                    char *why)
{
    struct kiln__text out = {0};
    size_t times = edit_count(text->data, &edit->from);
    if (times != edit->times) {
        snprintf(why, KILN__EDIT_WHY, "\"%.*s\" is there %zu times, not %zu",
                 (int)edit->from.length, edit->from.at, times, edit->times);
        return false;
    }
    const char *at = text->data;
    for (const char *next; (next = edit_find(at, &edit->from)); at = next + edit->from.length) {
        kiln__text_add_bytes(&out, at, (size_t)(next - at));
        add_expanded(&edit->to, options, &out);
    }
    kiln__text_add_bytes(&out, at, strlen(at));
    kiln__text_free(text);
    *text = out;
    if (out.failed)
        snprintf(why, KILN__EDIT_WHY, "no memory");
    return !out.failed;
}

/* ---- all ---- */

char *kiln__edit_apply(const char *source, const char *options, const char *text, size_t length,
                       char why[KILN__EDIT_WHY])
{
    struct kiln__text edited = {0};
    snprintf(why, KILN__EDIT_WHY, "no memory");
    kiln__text_add_bytes(&edited, text, strnlen(text, length));
    bool done = !edited.failed;
    for (const char *line = source; done && (line = find_line(source, line)); line++) {
        struct edit edit;
        done = read_line(line, options, &edit);
        if (!done)
            snprintf(why, KILN__EDIT_WHY, "no edit: %.*s", (int)strcspn(line, "\n"), line);
        done = done && replace(&edit, options, &edited, why);
    }
    if (done)
        return kiln__text_take(&edited);
    kiln__text_free(&edited);
    return NULL;
}
