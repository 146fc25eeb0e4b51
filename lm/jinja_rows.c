/* SPDX-License-Identifier: Apache-2.0 */
/* Calling rows. */
#include "lm/jinja_rows.h"

bool kiln__jinja_is_given(struct kiln__jinja_value argument)
{
    return argument.kind != KILN__JINJA_UNDEFINED;
}

struct kiln__jinja_text kiln__jinja_need_text(struct kiln__jinja *j,
                                              struct kiln__jinja_value argument)
{
    kiln__jinja_need(j, argument);
    if (argument.kind != KILN__JINJA_TEXT)
        kiln__jinja_fail(j, KILN_INVALID_ARGUMENT, "%s where a text should be",
                         kiln__jinja_kind_name(argument));
    kiln__jinja_work(j, argument.text.length);
    return argument.text;
}

int64_t kiln__jinja_need_whole(struct kiln__jinja *j, struct kiln__jinja_value argument)
{
    kiln__jinja_need(j, argument);
    if (argument.kind != KILN__JINJA_WHOLE)
        kiln__jinja_fail(j, KILN_INVALID_ARGUMENT, "%s where a number should be",
                         kiln__jinja_kind_name(argument));
    return argument.whole;
}

/* The parameter that a keyword names, or that stands at a place; too many: there is none. */
static size_t find_parameter(const struct kiln__jinja_row *row, struct kiln__jinja_text keyword,
                             size_t place)
{
    for (size_t i = 0; i < KILN__JINJA_PARAMETERS && row->parameters[i]; i++)
        if (keyword.length ? kiln__jinja_is(keyword, row->parameters[i]) : i == place)
            return i;
    return KILN__JINJA_PARAMETERS;
}

static struct kiln__jinja_value call_row(struct kiln__jinja *j, const struct kiln__jinja_row *row,
                                         struct kiln__jinja_value self,
                                         const struct kiln__jinja_arguments *arguments)
{
    struct kiln__jinja_value bound[KILN__JINJA_PARAMETERS];
    for (size_t i = 0; i < KILN__JINJA_PARAMETERS; i++)
        bound[i] =
            kiln__jinja_undefined(kiln__jinja_word(row->parameters[i] ? row->parameters[i] : ""));
    for (size_t i = 0; i < arguments->count; i++) {
        const size_t place = find_parameter(row, arguments->given[i].key, i);
        if (place < KILN__JINJA_PARAMETERS)
            bound[place] = arguments->given[i].value;
        else
            kiln__jinja_fail(j, KILN_UNSUPPORTED, "\"%s\" with an argument that kiln does not know",
                             row->name);
    }
    return row->call(j, self, bound);
}

struct kiln__jinja_value kiln__jinja_call(struct kiln__jinja *j, const char *what,
                                          const struct kiln__jinja_row *rows, size_t count,
                                          struct kiln__jinja_text name,
                                          struct kiln__jinja_value self,
                                          const struct kiln__jinja_arguments *arguments)
{
    kiln__jinja_work(j, 0);
    for (size_t i = 0; i < count; i++)
        if (kiln__jinja_is(name, rows[i].name))
            return call_row(j, &rows[i], self, arguments);
    kiln__jinja_fail(j, KILN_UNSUPPORTED, "kiln knows no %s \"%.*s\"", what,
                     KILN__JINJA_SAID(name));
}
