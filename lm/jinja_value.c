/* SPDX-License-Identifier: Apache-2.0 */
/* Values of templates, as Python has them. */
#include <inttypes.h>
#include <stdio.h>

#include "lm/jinja_parts.h"

/* ---- making ---- */

struct kiln__jinja_value kiln__jinja_truth(bool truth)
{
    return (struct kiln__jinja_value){.kind = KILN__JINJA_TRUTH, .whole = truth};
}

struct kiln__jinja_value kiln__jinja_whole(int64_t whole)
{
    return (struct kiln__jinja_value){.kind = KILN__JINJA_WHOLE, .whole = whole};
}

struct kiln__jinja_value kiln__jinja_of_text(struct kiln__jinja_text text)
{
    return (struct kiln__jinja_value){.kind = KILN__JINJA_TEXT, .text = text};
}

struct kiln__jinja_value kiln__jinja_undefined(struct kiln__jinja_text name)
{
    return (struct kiln__jinja_value){.kind = KILN__JINJA_UNDEFINED, .text = name};
}

struct kiln__jinja_value kiln__jinja_new_list(struct kiln__jinja *j)
{
    return (struct kiln__jinja_value){
        .kind = KILN__JINJA_LIST,
        .list = kiln__jinja_take(j, sizeof(struct kiln__jinja_list)),
    };
}

struct kiln__jinja_value kiln__jinja_new_dict(struct kiln__jinja *j)
{
    return (struct kiln__jinja_value){
        .kind = KILN__JINJA_DICT,
        .dict = kiln__jinja_take(j, sizeof(struct kiln__jinja_dict)),
    };
}

void kiln__jinja_add(struct kiln__jinja *j, struct kiln__jinja_list *list,
                     struct kiln__jinja_value item)
{
    list->items =
        kiln__jinja_grow(j, list->items, list->count, &list->capacity, sizeof *list->items);
    list->items[list->count++] = item;
}

void kiln__jinja_put(struct kiln__jinja *j, struct kiln__jinja_dict *dict,
                     struct kiln__jinja_text key, struct kiln__jinja_value value)
{
    struct kiln__jinja_value *found = kiln__jinja_get(j, dict, key);
    kiln__jinja_work(j, 0);
    if (found) {
        *found = value;
        return;
    }
    dict->pairs =
        kiln__jinja_grow(j, dict->pairs, dict->count, &dict->capacity, sizeof *dict->pairs);
    dict->pairs[dict->count++] = (struct kiln__jinja_pair){key, value};
}

struct kiln__jinja_value *kiln__jinja_get(struct kiln__jinja *j,
                                          const struct kiln__jinja_dict *dict,
                                          struct kiln__jinja_text key)
{
    kiln__jinja_look(j, dict->count * sizeof *dict->pairs + key.length);
    for (size_t i = 0; i < dict->count; i++)
        if (kiln__jinja_same(dict->pairs[i].key, key))
            return &dict->pairs[i].value;
    return NULL;
}

/* ---- asking ---- */

const char *kiln__jinja_kind_name(struct kiln__jinja_value value)
{
    static const char *const names[] = {"undefined", "none",   "a truth value",     "a number",
                                        "a text",    "a list", "a list of keywords"};
    return names[value.kind];
}

bool kiln__jinja_is_true(struct kiln__jinja_value value)
{
    switch (value.kind) {
    case KILN__JINJA_UNDEFINED:
    case KILN__JINJA_NONE: return false;
    case KILN__JINJA_TRUTH:
    case KILN__JINJA_WHOLE: return value.whole != 0;
    case KILN__JINJA_TEXT: return value.text.length > 0;
    case KILN__JINJA_LIST: return value.list->count > 0;
    case KILN__JINJA_DICT: return value.dict->is_namespace || value.dict->count > 0;
    }
    return false;
}

static bool same_lists(struct kiln__jinja *j, const struct kiln__jinja_list *a,
                       const struct kiln__jinja_list *b)
{
    bool same = a->count == b->count;
    for (size_t i = 0; i < a->count && same; i++)
        same = kiln__jinja_equal(j, a->items[i], b->items[i]);
    return same;
}

static bool same_dicts(struct kiln__jinja *j, const struct kiln__jinja_dict *a,
                       const struct kiln__jinja_dict *b)
{
    bool same = a->count == b->count;
    for (size_t i = 0; i < a->count && same; i++) {
        const struct kiln__jinja_value *other = kiln__jinja_get(j, b, a->pairs[i].key);
        same = other && kiln__jinja_equal(j, a->pairs[i].value, *other);
    }
    return same;
}

static bool is_number(struct kiln__jinja_value value)
{
    return value.kind == KILN__JINJA_WHOLE || value.kind == KILN__JINJA_TRUTH;
}

static bool same_values(struct kiln__jinja *j, struct kiln__jinja_value a,
                        struct kiln__jinja_value b)
{
    if (is_number(a) && is_number(b))
        return a.whole == b.whole;
    if (a.kind != b.kind)
        return false;
    switch (a.kind) {
    case KILN__JINJA_TEXT:
        kiln__jinja_work(j, a.text.length);
        return kiln__jinja_same(a.text, b.text);
    case KILN__JINJA_LIST: return a.list == b.list || same_lists(j, a.list, b.list);
    case KILN__JINJA_DICT:
        return a.dict == b.dict ||
               (!a.dict->is_namespace && !b.dict->is_namespace && same_dicts(j, a.dict, b.dict));
    default: return true;
    }
}

bool kiln__jinja_equal(struct kiln__jinja *j, struct kiln__jinja_value a,
                       struct kiln__jinja_value b)
{
    kiln__jinja_enter(j);
    const bool same = same_values(j, a, b);
    kiln__jinja_leave(j);
    return same;
}

bool kiln__jinja_contains(struct kiln__jinja *j, struct kiln__jinja_value whole,
                          struct kiln__jinja_value part)
{
    bool found = false;
    switch (whole.kind) {
    case KILN__JINJA_UNDEFINED: return false;
    case KILN__JINJA_LIST:
        for (size_t i = 0; i < whole.list->count && !found; i++)
            found = kiln__jinja_equal(j, whole.list->items[i], part);
        return found;
    case KILN__JINJA_DICT:
        return part.kind == KILN__JINJA_TEXT && kiln__jinja_get(j, whole.dict, part.text);
    case KILN__JINJA_TEXT:
        if (part.kind == KILN__JINJA_TEXT) {
            kiln__jinja_work(j, whole.text.length);
            return kiln__jinja_find(j, whole.text, part.text, 0) != SIZE_MAX;
        }
        break;
    default: break;
    }
    kiln__jinja_need(j, part);
    kiln__jinja_fail(j, KILN_INVALID_ARGUMENT, "%s cannot be in %s", kiln__jinja_kind_name(part),
                     kiln__jinja_kind_name(whole));
}

void kiln__jinja_need(struct kiln__jinja *j, struct kiln__jinja_value value)
{
    if (value.kind == KILN__JINJA_UNDEFINED)
        kiln__jinja_fail(j, KILN_INVALID_ARGUMENT, "\"%.*s\" is undefined",
                         KILN__JINJA_SAID(value.text));
}

/* ---- texts, elements ---- */

struct kiln__jinja_text kiln__jinja_print(struct kiln__jinja *j, struct kiln__jinja_value value)
{
    enum { DIGITS = 24 };
    switch (value.kind) {
    case KILN__JINJA_UNDEFINED: return kiln__jinja_word("");
    case KILN__JINJA_NONE: return kiln__jinja_word("None");
    case KILN__JINJA_TRUTH: return kiln__jinja_word(value.whole ? "True" : "False");
    case KILN__JINJA_TEXT: return value.text;
    case KILN__JINJA_WHOLE: {
        char *digits = kiln__jinja_take(j, DIGITS);
        snprintf(digits, DIGITS, "%" PRId64, value.whole);
        return kiln__jinja_word(digits);
    }
    default: break;
    }
    kiln__jinja_fail(j, KILN_UNSUPPORTED, "kiln prints no %s, but for tojson",
                     kiln__jinja_kind_name(value) + 2);
}

struct kiln__jinja_list *kiln__jinja_items(struct kiln__jinja *j, struct kiln__jinja_value value)
{
    struct kiln__jinja_list *items;
    if (value.kind == KILN__JINJA_LIST)
        return value.list;
    items = kiln__jinja_new_list(j).list;
    switch (value.kind) {
    case KILN__JINJA_UNDEFINED: return items;
    case KILN__JINJA_DICT:
        for (size_t i = 0; i < value.dict->count; i++)
            kiln__jinja_add(j, items, kiln__jinja_of_text(value.dict->pairs[i].key));
        return items;
    case KILN__JINJA_TEXT:
        for (size_t at = 0, end; at < value.text.length; at = end) {
            end = kiln__jinja_step(value.text, at);
            kiln__jinja_add(j, items, kiln__jinja_of_text(kiln__jinja_part(value.text, at, end)));
        }
        return items;
    default: break;
    }
    kiln__jinja_fail(j, KILN_INVALID_ARGUMENT, "%s has no elements", kiln__jinja_kind_name(value));
}

struct kiln__jinja_value kiln__jinja_index(struct kiln__jinja *j, struct kiln__jinja_value object,
                                           struct kiln__jinja_value key)
{
    const struct kiln__jinja_value *found = NULL;
    kiln__jinja_need(j, object);
    if (object.kind == KILN__JINJA_DICT && key.kind == KILN__JINJA_TEXT)
        found = kiln__jinja_get(j, object.dict, key.text);
    if ((object.kind == KILN__JINJA_LIST || object.kind == KILN__JINJA_TEXT) && is_number(key)) {
        const struct kiln__jinja_list *items = kiln__jinja_items(j, object);
        const int64_t count = (int64_t)items->count;
        const int64_t at = key.whole < 0 ? key.whole + count : key.whole;
        if (at >= 0 && at < count)
            found = &items->items[at];
    }
    return found ? *found
                 : kiln__jinja_undefined(key.kind == KILN__JINJA_TEXT
                                             ? key.text
                                             : kiln__jinja_word("an element that is not there"));
}
