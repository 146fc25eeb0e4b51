/* SPDX-License-Identifier: Apache-2.0 */
/* Filters and methods. */
#include <string.h>

#include "lm/jinja_json.h"
#include "lm/jinja_rows.h"

/* ---- texts ---- */

static struct kiln__jinja_value strip_ends(struct kiln__jinja *j, struct kiln__jinja_value self,
                                           struct kiln__jinja_value which, bool front, bool back)
{
    const bool any = !kiln__jinja_is_given(which) || which.kind == KILN__JINJA_NONE;
    const struct kiln__jinja_text text = kiln__jinja_print(j, self),
                                  marks = any ? text : kiln__jinja_need_text(j, which);
    kiln__jinja_work(j, text.length);
    return kiln__jinja_of_text(kiln__jinja_strip(j, text, any ? NULL : &marks, front, back));
}

static struct kiln__jinja_value strip(struct kiln__jinja *j, struct kiln__jinja_value self,
                                      const struct kiln__jinja_value *given)
{
    return strip_ends(j, self, given[0], true, true);
}

static struct kiln__jinja_value strip_left(struct kiln__jinja *j, struct kiln__jinja_value self,
                                           const struct kiln__jinja_value *given)
{
    return strip_ends(j, self, given[0], true, false);
}

static struct kiln__jinja_value strip_right(struct kiln__jinja *j, struct kiln__jinja_value self,
                                            const struct kiln__jinja_value *given)
{
    return strip_ends(j, self, given[0], false, true);
}

/* Letters beyond ASCII stay as they are: templates change the case of roles alone. */
static struct kiln__jinja_value change_case(struct kiln__jinja *j, struct kiln__jinja_value self,
                                            bool first, bool rest)
{
    const struct kiln__jinja_text text = kiln__jinja_print(j, self);
    struct kiln__jinja_builder builder = {0};
    kiln__jinja_append(j, &builder, text);
    for (size_t i = 0; i < text.length; i++) {
        char *c = &builder.bytes[i];
        const bool upper = i ? rest : first;
        if (upper ? *c >= 'a' && *c <= 'z' : *c >= 'A' && *c <= 'Z')
            *c ^= 0x20;
    }
    return kiln__jinja_of_text(kiln__jinja_built(&builder));
}

static struct kiln__jinja_value to_upper(struct kiln__jinja *j, struct kiln__jinja_value self,
                                         const struct kiln__jinja_value *given)
{
    (void)given;
    return change_case(j, self, true, true);
}

static struct kiln__jinja_value to_lower(struct kiln__jinja *j, struct kiln__jinja_value self,
                                         const struct kiln__jinja_value *given)
{
    (void)given;
    return change_case(j, self, false, false);
}

static struct kiln__jinja_value capitalize(struct kiln__jinja *j, struct kiln__jinja_value self,
                                           const struct kiln__jinja_value *given)
{
    (void)given;
    return change_case(j, self, true, false);
}

static struct kiln__jinja_value starts_with(struct kiln__jinja *j, struct kiln__jinja_value self,
                                            const struct kiln__jinja_value *given)
{
    const struct kiln__jinja_text text = kiln__jinja_need_text(j, self),
                                  part = kiln__jinja_need_text(j, given[0]);
    return kiln__jinja_truth(part.length <= text.length &&
                             kiln__jinja_same(kiln__jinja_part(text, 0, part.length), part));
}

static struct kiln__jinja_value ends_with(struct kiln__jinja *j, struct kiln__jinja_value self,
                                          const struct kiln__jinja_value *given)
{
    const struct kiln__jinja_text text = kiln__jinja_need_text(j, self),
                                  part = kiln__jinja_need_text(j, given[0]);
    if (part.length > text.length)
        return kiln__jinja_truth(false);
    return kiln__jinja_truth(
        kiln__jinja_same(kiln__jinja_part(text, text.length - part.length, text.length), part));
}

/* At each place of a separator, so often at most; without one at white space. */
static struct kiln__jinja_value split(struct kiln__jinja *j, struct kiln__jinja_value self,
                                      const struct kiln__jinja_value *given)
{
    struct kiln__jinja_text text = kiln__jinja_need_text(j, self);
    const bool by_space = !kiln__jinja_is_given(given[0]) || given[0].kind == KILN__JINJA_NONE;
    if (by_space || (kiln__jinja_is_given(given[1]) && kiln__jinja_need_whole(j, given[1]) < 0))
        kiln__jinja_fail(j, KILN_UNSUPPORTED, "kiln splits by a separator alone");
    const struct kiln__jinja_text separator = kiln__jinja_need_text(j, given[0]);
    if (!separator.length)
        kiln__jinja_fail(j, KILN_INVALID_ARGUMENT, "an empty separator");
    int64_t most = kiln__jinja_is_given(given[1]) ? given[1].whole : INT64_MAX;
    struct kiln__jinja_value parts = kiln__jinja_new_list(j);
    size_t at;
    for (; most && (at = kiln__jinja_find(j, text, separator, 0)) != SIZE_MAX; most--) {
        kiln__jinja_add(j, parts.list, kiln__jinja_of_text(kiln__jinja_part(text, 0, at)));
        text = kiln__jinja_part(text, at + separator.length, text.length);
    }
    kiln__jinja_add(j, parts.list, kiln__jinja_of_text(text));
    return parts;
}

static struct kiln__jinja_value replace(struct kiln__jinja *j, struct kiln__jinja_value self,
                                        const struct kiln__jinja_value *given)
{
    const struct kiln__jinja_text text = kiln__jinja_print(j, self),
                                  old = kiln__jinja_need_text(j, given[0]),
                                  new = kiln__jinja_need_text(j, given[1]);
    struct kiln__jinja_builder builder = {0};
    size_t from = 0, at;
    if (!old.length)
        kiln__jinja_fail(j, KILN_UNSUPPORTED, "kiln replaces no empty text");
    while ((at = kiln__jinja_find(j, text, old, from)) != SIZE_MAX) {
        kiln__jinja_append(j, &builder, kiln__jinja_part(text, from, at));
        kiln__jinja_append(j, &builder, new);
        from = at + old.length;
    }
    kiln__jinja_append(j, &builder, kiln__jinja_part(text, from, text.length));
    return kiln__jinja_of_text(kiln__jinja_built(&builder));
}

/* ---- lists, keywords ---- */

static struct kiln__jinja_value count_of(struct kiln__jinja *j, struct kiln__jinja_value self,
                                         const struct kiln__jinja_value *given)
{
    (void)given;
    if (self.kind == KILN__JINJA_DICT)
        return kiln__jinja_whole((int64_t)self.dict->count);
    return kiln__jinja_whole((int64_t)kiln__jinja_items(j, self)->count);
}

static struct kiln__jinja_value list_of(struct kiln__jinja *j, struct kiln__jinja_value self,
                                        const struct kiln__jinja_value *given)
{
    (void)given;
    return (struct kiln__jinja_value){.kind = KILN__JINJA_LIST, .list = kiln__jinja_items(j, self)};
}

static struct kiln__jinja_value first_of(struct kiln__jinja *j, struct kiln__jinja_value self,
                                         const struct kiln__jinja_value *given)
{
    const struct kiln__jinja_list *items = kiln__jinja_items(j, self);
    (void)given;
    return items->count ? items->items[0] : kiln__jinja_undefined(kiln__jinja_word("first"));
}

static struct kiln__jinja_value last_of(struct kiln__jinja *j, struct kiln__jinja_value self,
                                        const struct kiln__jinja_value *given)
{
    const struct kiln__jinja_list *items = kiln__jinja_items(j, self);
    (void)given;
    return items->count ? items->items[items->count - 1]
                        : kiln__jinja_undefined(kiln__jinja_word("last"));
}

static struct kiln__jinja_value reverse(struct kiln__jinja *j, struct kiln__jinja_value self,
                                        const struct kiln__jinja_value *given)
{
    const struct kiln__jinja_list *items = kiln__jinja_items(j, self);
    struct kiln__jinja_value turned = kiln__jinja_new_list(j);
    (void)given;
    if (self.kind == KILN__JINJA_TEXT)
        kiln__jinja_fail(j, KILN_UNSUPPORTED, "kiln reverses lists alone");
    for (size_t i = items->count; i-- > 0;)
        kiln__jinja_add(j, turned.list, items->items[i]);
    return turned;
}

static struct kiln__jinja_value join(struct kiln__jinja *j, struct kiln__jinja_value self,
                                     const struct kiln__jinja_value *given)
{
    const struct kiln__jinja_list *items = kiln__jinja_items(j, self);
    const struct kiln__jinja_text between = kiln__jinja_print(j, given[0]);
    struct kiln__jinja_builder builder = {0};
    for (size_t i = 0; i < items->count; i++) {
        struct kiln__jinja_value item = items->items[i];
        if (i)
            kiln__jinja_append(j, &builder, between);
        if (kiln__jinja_is_given(given[1]))
            item = kiln__jinja_index(j, item, given[1]);
        kiln__jinja_append(j, &builder, kiln__jinja_print(j, item));
    }
    return kiln__jinja_of_text(kiln__jinja_built(&builder));
}

/* The method of a text: what stands between is itself. */
static struct kiln__jinja_value join_by(struct kiln__jinja *j, struct kiln__jinja_value self,
                                        const struct kiln__jinja_value *given)
{
    return join(
        j, given[0],
        (const struct kiln__jinja_value[]){self, kiln__jinja_undefined(kiln__jinja_word(""))});
}

static const struct kiln__jinja_dict *need_dict(struct kiln__jinja *j,
                                                struct kiln__jinja_value self)
{
    kiln__jinja_need(j, self);
    if (self.kind != KILN__JINJA_DICT)
        kiln__jinja_fail(j, KILN_INVALID_ARGUMENT, "%s has no keywords",
                         kiln__jinja_kind_name(self));
    return self.dict;
}

static struct kiln__jinja_value items_of(struct kiln__jinja *j, struct kiln__jinja_value self,
                                         const struct kiln__jinja_value *given)
{
    struct kiln__jinja_value all = kiln__jinja_new_list(j);
    (void)given;
    if (!kiln__jinja_is_given(self))
        return all;
    const struct kiln__jinja_dict *dict = need_dict(j, self);
    for (size_t i = 0; i < dict->count; i++) {
        struct kiln__jinja_value pair = kiln__jinja_new_list(j);
        kiln__jinja_add(j, pair.list, kiln__jinja_of_text(dict->pairs[i].key));
        kiln__jinja_add(j, pair.list, dict->pairs[i].value);
        kiln__jinja_add(j, all.list, pair);
    }
    return all;
}

static struct kiln__jinja_value keys_of(struct kiln__jinja *j, struct kiln__jinja_value self,
                                        const struct kiln__jinja_value *given)
{
    need_dict(j, self);
    return list_of(j, self, given);
}

static struct kiln__jinja_value values_of(struct kiln__jinja *j, struct kiln__jinja_value self,
                                          const struct kiln__jinja_value *given)
{
    const struct kiln__jinja_dict *dict = need_dict(j, self);
    struct kiln__jinja_value all = kiln__jinja_new_list(j);
    (void)given;
    for (size_t i = 0; i < dict->count; i++)
        kiln__jinja_add(j, all.list, dict->pairs[i].value);
    return all;
}

static struct kiln__jinja_value get_or(struct kiln__jinja *j, struct kiln__jinja_value self,
                                       const struct kiln__jinja_value *given)
{
    const struct kiln__jinja_value *found =
        kiln__jinja_get(j, need_dict(j, self), kiln__jinja_need_text(j, given[0]));
    return found                            ? *found
           : kiln__jinja_is_given(given[1]) ? given[1]
                                            : (struct kiln__jinja_value){.kind = KILN__JINJA_NONE};
}

/* ---- choosing ---- */

static bool passes(struct kiln__jinja *j, struct kiln__jinja_value item,
                   const struct kiln__jinja_value *given)
{
    struct kiln__jinja_arguments arguments = {.count = kiln__jinja_is_given(given[2])};
    const struct kiln__jinja_value attribute = kiln__jinja_index(j, item, given[0]);
    arguments.given[0].value = given[2];
    return kiln__jinja_is_given(given[1])
               ? kiln__jinja_test(j, kiln__jinja_need_text(j, given[1]), attribute, &arguments)
               : kiln__jinja_is_true(attribute);
}

static struct kiln__jinja_value select_where(struct kiln__jinja *j, struct kiln__jinja_value self,
                                             const struct kiln__jinja_value *given, bool wanted)
{
    const struct kiln__jinja_list *items = kiln__jinja_items(j, self);
    struct kiln__jinja_value chosen = kiln__jinja_new_list(j);
    for (size_t i = 0; i < items->count; i++)
        if (passes(j, items->items[i], given) == wanted)
            kiln__jinja_add(j, chosen.list, items->items[i]);
    return chosen;
}

static struct kiln__jinja_value select_attribute(struct kiln__jinja *j,
                                                 struct kiln__jinja_value self,
                                                 const struct kiln__jinja_value *given)
{
    return select_where(j, self, given, true);
}

static struct kiln__jinja_value reject_attribute(struct kiln__jinja *j,
                                                 struct kiln__jinja_value self,
                                                 const struct kiln__jinja_value *given)
{
    return select_where(j, self, given, false);
}

/* A filter by its name, or an attribute, of each. */
static struct kiln__jinja_value map(struct kiln__jinja *j, struct kiln__jinja_value self,
                                    const struct kiln__jinja_value *given)
{
    const struct kiln__jinja_arguments none = {0};
    const struct kiln__jinja_list *items = kiln__jinja_items(j, self);
    struct kiln__jinja_value made = kiln__jinja_new_list(j);
    for (size_t i = 0; i < items->count; i++)
        kiln__jinja_add(j, made.list,
                        kiln__jinja_is_given(given[1])
                            ? kiln__jinja_index(j, items->items[i], given[1])
                            : kiln__jinja_filter(j, kiln__jinja_need_text(j, given[0]),
                                                 items->items[i], &none));
    return made;
}

static struct kiln__jinja_value default_to(struct kiln__jinja *j, struct kiln__jinja_value self,
                                           const struct kiln__jinja_value *given)
{
    const bool is_there =
        kiln__jinja_is_given(self) && (!kiln__jinja_is_true(given[1]) || kiln__jinja_is_true(self));
    (void)j;
    return is_there                         ? self
           : kiln__jinja_is_given(given[0]) ? given[0]
                                            : kiln__jinja_of_text(kiln__jinja_word(""));
}

static struct kiln__jinja_value print(struct kiln__jinja *j, struct kiln__jinja_value self,
                                      const struct kiln__jinja_value *given)
{
    (void)given;
    return kiln__jinja_of_text(kiln__jinja_print(j, self));
}

static struct kiln__jinja_value same(struct kiln__jinja *j, struct kiln__jinja_value self,
                                     const struct kiln__jinja_value *given)
{
    (void)j, (void)given;
    return self;
}

static struct kiln__jinja_value to_json(struct kiln__jinja *j, struct kiln__jinja_value self,
                                        const struct kiln__jinja_value *given)
{
    const bool is_wide = kiln__jinja_is_given(given[0]) && given[0].kind != KILN__JINJA_NONE;
    const int64_t indent = is_wide ? kiln__jinja_need_whole(j, given[0]) : -1;
    if (is_wide && (indent < 0 || indent > 16))
        kiln__jinja_fail(j, KILN_UNSUPPORTED, "an indent that is not from 0 to 16");
    return kiln__jinja_of_text(kiln__jinja_json(j, self, (int)indent));
}

static const struct kiln__jinja_row filters[] = {
    {"trim", {"chars"}, strip},
    {"upper", {0}, to_upper},
    {"lower", {0}, to_lower},
    {"capitalize", {0}, capitalize},
    {"replace", {"old", "new"}, replace},
    {"length", {0}, count_of},
    {"count", {0}, count_of},
    {"list", {0}, list_of},
    {"first", {0}, first_of},
    {"last", {0}, last_of},
    {"reverse", {0}, reverse},
    {"join", {"d", "attribute"}, join},
    {"items", {0}, items_of},
    {"selectattr", {"attribute", "test", "value"}, select_attribute},
    {"rejectattr", {"attribute", "test", "value"}, reject_attribute},
    {"map", {"filter", "attribute"}, map},
    {"default", {"default_value", "boolean"}, default_to},
    {"d", {"default_value", "boolean"}, default_to},
    {"string", {0}, print},
    {"safe", {0}, same},
    {"tojson", {"indent"}, to_json},
};

struct kiln__jinja_value kiln__jinja_filter(struct kiln__jinja *j, struct kiln__jinja_text name,
                                            struct kiln__jinja_value self,
                                            const struct kiln__jinja_arguments *arguments)
{
    return kiln__jinja_call(j, "filter", filters, sizeof filters / sizeof *filters, name, self,
                            arguments);
}

/* ---- methods ---- */

static const struct kiln__jinja_row text_methods[] = {
    {"strip", {"chars"}, strip},
    {"lstrip", {"chars"}, strip_left},
    {"rstrip", {"chars"}, strip_right},
    {"upper", {0}, to_upper},
    {"lower", {0}, to_lower},
    {"capitalize", {0}, capitalize},
    {"startswith", {"prefix"}, starts_with},
    {"endswith", {"suffix"}, ends_with},
    {"split", {"sep", "maxsplit"}, split},
    {"replace", {"old", "new"}, replace},
    {"join", {"iterable"}, join_by},
};

static const struct kiln__jinja_row dict_methods[] = {
    {"items", {0}, items_of},
    {"keys", {0}, keys_of},
    {"values", {0}, values_of},
    {"get", {"key", "default"}, get_or},
};

struct kiln__jinja_value kiln__jinja_method(struct kiln__jinja *j, struct kiln__jinja_text name,
                                            struct kiln__jinja_value self,
                                            const struct kiln__jinja_arguments *arguments)
{
    kiln__jinja_need(j, self);
    if (self.kind == KILN__JINJA_TEXT)
        return kiln__jinja_call(j, "text's method", text_methods,
                                sizeof text_methods / sizeof *text_methods, name, self, arguments);
    return kiln__jinja_call(
        j, "method", dict_methods,
        self.kind == KILN__JINJA_DICT ? sizeof dict_methods / sizeof *dict_methods : 0, name, self,
        arguments);
}
