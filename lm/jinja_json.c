/* SPDX-License-Identifier: Apache-2.0 */
/* Writing JSON. */
#include "lm/jinja_json.h"

#include <stdio.h>
#include <string.h>

struct writer {
    struct kiln__jinja *j;
    struct kiln__jinja_builder builder;
    int indent, depth;
};

static void write_value(struct writer *writer, struct kiln__jinja_value value);

static void put(struct writer *writer, const char *word)
{
    kiln__jinja_append(writer->j, &writer->builder, kiln__jinja_word(word));
}

/* A character that JSON escapes; false: it stands as it is. */
static bool put_escape(struct writer *writer, char c)
{
    static const char marks[] = "\"\\\n\r\t\b\f", letters[] = "\"\\nrtbf";
    const char *mark = c ? strchr(marks, c) : NULL;
    char escape[8];
    if (mark)
        snprintf(escape, sizeof escape, "\\%c", letters[mark - marks]);
    else if ((unsigned char)c < ' ')
        snprintf(escape, sizeof escape, "\\u%04x", (unsigned)c);
    else
        return false;
    put(writer, escape);
    return true;
}

static void write_text(struct writer *writer, struct kiln__jinja_text text)
{
    size_t from = 0;
    put(writer, "\"");
    for (size_t i = 0; i < text.length; i++) {
        const char c = text.bytes[i];
        if ((unsigned char)c >= ' ' && c != '"' && c != '\\')
            continue;
        kiln__jinja_append(writer->j, &writer->builder, kiln__jinja_part(text, from, i));
        put_escape(writer, c);
        from = i + 1;
    }
    kiln__jinja_append(writer->j, &writer->builder, kiln__jinja_part(text, from, text.length));
    put(writer, "\"");
}

/* Before an element, or before the end. */
static void write_break(struct writer *writer, bool is_first, bool is_end)
{
    if (!is_first && !is_end)
        put(writer, writer->indent < 0 ? ", " : ",");
    if (writer->indent < 0)
        return;
    put(writer, "\n");
    for (int i = 0; i < writer->indent * writer->depth; i++)
        put(writer, " ");
}

static void write_list(struct writer *writer, const struct kiln__jinja_list *list)
{
    put(writer, "[");
    writer->depth++;
    for (size_t i = 0; i < list->count; i++) {
        write_break(writer, !i, false);
        write_value(writer, list->items[i]);
    }
    writer->depth--;
    if (list->count)
        write_break(writer, false, true);
    put(writer, "]");
}

static void write_dict(struct writer *writer, const struct kiln__jinja_dict *dict)
{
    put(writer, "{");
    writer->depth++;
    for (size_t i = 0; i < dict->count; i++) {
        write_break(writer, !i, false);
        write_text(writer, dict->pairs[i].key);
        put(writer, ": ");
        write_value(writer, dict->pairs[i].value);
    }
    writer->depth--;
    if (dict->count)
        write_break(writer, false, true);
    put(writer, "}");
}

static void write_value(struct writer *writer, struct kiln__jinja_value value)
{
    kiln__jinja_enter(writer->j);
    switch (value.kind) {
    case KILN__JINJA_UNDEFINED: kiln__jinja_need(writer->j, value); break;
    case KILN__JINJA_NONE: put(writer, "null"); break;
    case KILN__JINJA_TRUTH: put(writer, value.whole ? "true" : "false"); break;
    case KILN__JINJA_WHOLE:
        kiln__jinja_append(writer->j, &writer->builder, kiln__jinja_print(writer->j, value));
        break;
    case KILN__JINJA_TEXT: write_text(writer, value.text); break;
    case KILN__JINJA_LIST: write_list(writer, value.list); break;
    case KILN__JINJA_DICT: write_dict(writer, value.dict); break;
    }
    kiln__jinja_leave(writer->j);
}

struct kiln__jinja_text kiln__jinja_json(struct kiln__jinja *j, struct kiln__jinja_value value,
                                         int indent)
{
    struct writer writer = {.j = j, .indent = indent};
    write_value(&writer, value);
    return kiln__jinja_built(&writer.builder);
}
