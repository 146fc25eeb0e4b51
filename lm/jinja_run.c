/* SPDX-License-Identifier: Apache-2.0 */
/* Running a template: expressions and statements. */
#include <string.h>

#include "lm/jinja_parts.h"

/* How a body ended. */
enum ending { THROUGH, BROKEN, CONTINUED };

static struct kiln__jinja_value evaluate(struct kiln__jinja *j,
                                         const struct kiln__jinja_node *node);
static enum ending run(struct kiln__jinja *j, const struct kiln__jinja_node *body);

/* ---- names ---- */

static struct kiln__jinja_value *find_name(const struct kiln__jinja_names *names,
                                           struct kiln__jinja_text name, size_t from)
{
    for (size_t i = names->count; i-- > from;)
        if (kiln__jinja_same(names->pairs[i].key, name))
            return &names->pairs[i].value;
    return NULL;
}

void kiln__jinja_set(struct kiln__jinja *j, struct kiln__jinja_text name,
                     struct kiln__jinja_value value)
{
    struct kiln__jinja_names *names = &j->names;
    struct kiln__jinja_value *found = find_name(names, name, names->scope);
    kiln__jinja_look(j, (names->count - names->scope) * sizeof *names->pairs + name.length);
    if (found) {
        *found = value;
        return;
    }
    names->pairs =
        kiln__jinja_grow(j, names->pairs, names->count, &names->capacity, sizeof *names->pairs);
    names->pairs[names->count++] = (struct kiln__jinja_pair){name, value};
}

/* ---- operators ---- */

static struct kiln__jinja_value join(struct kiln__jinja *j, struct kiln__jinja_text a,
                                     struct kiln__jinja_text b)
{
    struct kiln__jinja_builder builder = {0};
    kiln__jinja_reserve(j, &builder, a.length + b.length);
    kiln__jinja_append(j, &builder, a);
    kiln__jinja_append(j, &builder, b);
    return kiln__jinja_of_text(kiln__jinja_built(&builder));
}

static struct kiln__jinja_value join_lists(struct kiln__jinja *j, const struct kiln__jinja_list *a,
                                           const struct kiln__jinja_list *b)
{
    struct kiln__jinja_value whole = kiln__jinja_new_list(j);
    for (size_t i = 0; i < a->count; i++)
        kiln__jinja_add(j, whole.list, a->items[i]);
    for (size_t i = 0; i < b->count; i++)
        kiln__jinja_add(j, whole.list, b->items[i]);
    return whole;
}

/* Quotients and remainders go down, as Python's do. */
static bool compute(enum kiln__jinja_node_kind kind, int64_t a, int64_t b, int64_t *result)
{
    switch (kind) {
    case KILN__NODE_ADD: return !__builtin_add_overflow(a, b, result);
    case KILN__NODE_SUBTRACT: return !__builtin_sub_overflow(a, b, result);
    case KILN__NODE_MULTIPLY: return !__builtin_mul_overflow(a, b, result);
    default: break;
    }
    if (!b || (a == INT64_MIN && b == -1))
        return false;
    const int64_t rest = a % b, down = rest && (rest < 0) != (b < 0);
    *result = kind == KILN__NODE_DIVIDE ? a / b - down : rest + (down ? b : 0);
    return true;
}

static struct kiln__jinja_value calculate(struct kiln__jinja *j, enum kiln__jinja_node_kind kind,
                                          struct kiln__jinja_value a, struct kiln__jinja_value b)
{
    int64_t result;
    kiln__jinja_need(j, a);
    kiln__jinja_need(j, b);
    if (kind == KILN__NODE_ADD && a.kind == KILN__JINJA_TEXT && b.kind == KILN__JINJA_TEXT)
        return join(j, a.text, b.text);
    if (kind == KILN__NODE_ADD && a.kind == KILN__JINJA_LIST && b.kind == KILN__JINJA_LIST)
        return join_lists(j, a.list, b.list);
    if (a.kind != KILN__JINJA_WHOLE || b.kind != KILN__JINJA_WHOLE)
        kiln__jinja_fail(j, KILN_INVALID_ARGUMENT, "%s and %s cannot be computed with",
                         kiln__jinja_kind_name(a), kiln__jinja_kind_name(b));
    if (!compute(kind, a.whole, b.whole, &result))
        kiln__jinja_fail(j, KILN_INVALID_ARGUMENT,
                         "a number that is too large, or a division by 0");
    return kiln__jinja_whole(result);
}

/* Below 0, 0 or above. */
static int compare(struct kiln__jinja *j, struct kiln__jinja_value a, struct kiln__jinja_value b)
{
    kiln__jinja_need(j, a);
    kiln__jinja_need(j, b);
    if (a.kind == KILN__JINJA_WHOLE && b.kind == KILN__JINJA_WHOLE)
        return (a.whole > b.whole) - (a.whole < b.whole);
    if (a.kind != KILN__JINJA_TEXT || b.kind != KILN__JINJA_TEXT)
        kiln__jinja_fail(j, KILN_INVALID_ARGUMENT, "%s and %s have no order",
                         kiln__jinja_kind_name(a), kiln__jinja_kind_name(b));
    const size_t common = a.text.length < b.text.length ? a.text.length : b.text.length;
    kiln__jinja_look(j, common);
    const int order = common ? memcmp(a.text.bytes, b.text.bytes, common) : 0;
    return order ? order : (a.text.length > b.text.length) - (a.text.length < b.text.length);
}

static struct kiln__jinja_value apply(struct kiln__jinja *j, enum kiln__jinja_node_kind kind,
                                      struct kiln__jinja_value a, struct kiln__jinja_value b)
{
    switch (kind) {
    case KILN__NODE_EQUAL: return kiln__jinja_truth(kiln__jinja_equal(j, a, b));
    case KILN__NODE_UNEQUAL: return kiln__jinja_truth(!kiln__jinja_equal(j, a, b));
    case KILN__NODE_LESS: return kiln__jinja_truth(compare(j, a, b) < 0);
    case KILN__NODE_GREATER: return kiln__jinja_truth(compare(j, a, b) > 0);
    case KILN__NODE_AT_MOST: return kiln__jinja_truth(compare(j, a, b) <= 0);
    case KILN__NODE_AT_LEAST: return kiln__jinja_truth(compare(j, a, b) >= 0);
    case KILN__NODE_IN: return kiln__jinja_truth(kiln__jinja_contains(j, b, a));
    case KILN__NODE_NOT_IN: return kiln__jinja_truth(!kiln__jinja_contains(j, b, a));
    case KILN__NODE_JOIN: return join(j, kiln__jinja_print(j, a), kiln__jinja_print(j, b));
    default: return calculate(j, kind, a, b);
    }
}

/* ---- slices ---- */

/* A bound of a slice as Python reads it, from `least` to `most`. */
static int64_t read_bound(struct kiln__jinja *j, struct kiln__jinja_value bound, int64_t count,
                          int64_t usual, int64_t least, int64_t most)
{
    if (bound.kind == KILN__JINJA_NONE)
        return usual;
    if (bound.kind != KILN__JINJA_WHOLE)
        kiln__jinja_fail(j, KILN_INVALID_ARGUMENT, "%s is no bound of a slice",
                         kiln__jinja_kind_name(bound));
    const int64_t at = bound.whole < 0 ? bound.whole + count : bound.whole;
    return at < least ? least : at > most ? most : at;
}

static struct kiln__jinja_value slice(struct kiln__jinja *j, struct kiln__jinja_value object,
                                      const struct kiln__jinja_node *bounds)
{
    const struct kiln__jinja_value from = evaluate(j, bounds), to = evaluate(j, bounds->next),
                                   by = evaluate(j, bounds->next->next);
    kiln__jinja_need(j, object);
    if (object.kind != KILN__JINJA_LIST && object.kind != KILN__JINJA_TEXT)
        kiln__jinja_fail(j, KILN_INVALID_ARGUMENT, "%s has no slices",
                         kiln__jinja_kind_name(object));
    const struct kiln__jinja_list *items = kiln__jinja_items(j, object);
    const int64_t count = (int64_t)items->count;
    const int64_t step = read_bound(j, by, 0, 1, INT32_MIN, INT32_MAX);
    if (!step)
        kiln__jinja_fail(j, KILN_INVALID_ARGUMENT, "the step of a slice is 0");
    const bool up = step > 0;
    const int64_t last = up ? count : -1, least = up ? 0 : -1, most = up ? count : count - 1;
    const int64_t end = read_bound(j, to, count, last, least, most);
    struct kiln__jinja_value part = kiln__jinja_new_list(j);
    struct kiln__jinja_builder text = {0};
    for (int64_t at = read_bound(j, from, count, up ? 0 : count - 1, least, most);
         up ? at < end : at > end; at += step)
        if (object.kind == KILN__JINJA_TEXT)
            kiln__jinja_append(j, &text, items->items[at].text);
        else
            kiln__jinja_add(j, part.list, items->items[at]);
    return object.kind == KILN__JINJA_TEXT ? kiln__jinja_of_text(kiln__jinja_built(&text)) : part;
}

/* ---- expressions ---- */

static struct kiln__jinja_arguments read_arguments(struct kiln__jinja *j,
                                                   const struct kiln__jinja_node *node)
{
    struct kiln__jinja_arguments arguments = {0};
    for (const struct kiln__jinja_node *item = node->items; item; item = item->next)
        arguments.given[arguments.count++] =
            (struct kiln__jinja_pair){item->other, evaluate(j, item->a)};
    return arguments;
}

static struct kiln__jinja_value call(struct kiln__jinja *j, const struct kiln__jinja_node *node)
{
    const struct kiln__jinja_node *called = node->a;
    const struct kiln__jinja_arguments arguments = read_arguments(j, node);
    if (called->kind == KILN__NODE_DOT)
        return kiln__jinja_method(j, called->text, evaluate(j, called->a), &arguments);
    if (called->kind == KILN__NODE_NAME)
        return kiln__jinja_function(j, called->text, &arguments);
    kiln__jinja_fail(j, KILN_UNSUPPORTED, "kiln calls names and methods alone");
}

static struct kiln__jinja_value make_list(struct kiln__jinja *j,
                                          const struct kiln__jinja_node *node)
{
    struct kiln__jinja_value list = kiln__jinja_new_list(j);
    for (const struct kiln__jinja_node *item = node->items; item; item = item->next)
        kiln__jinja_add(j, list.list, evaluate(j, item));
    return list;
}

static struct kiln__jinja_value make_dict(struct kiln__jinja *j,
                                          const struct kiln__jinja_node *node)
{
    struct kiln__jinja_value dict = kiln__jinja_new_dict(j);
    for (const struct kiln__jinja_node *item = node->items; item; item = item->next) {
        const struct kiln__jinja_value key = evaluate(j, item->a);
        if (key.kind != KILN__JINJA_TEXT)
            kiln__jinja_fail(j, KILN_UNSUPPORTED, "%s as a key", kiln__jinja_kind_name(key));
        kiln__jinja_put(j, dict.dict, key.text, evaluate(j, item->b));
    }
    return dict;
}

static struct kiln__jinja_value look_up(struct kiln__jinja *j, struct kiln__jinja_text name)
{
    const struct kiln__jinja_value *found = find_name(&j->names, name, 0);
    kiln__jinja_work(j, j->names.count * sizeof *j->names.pairs + name.length);
    return found ? *found : kiln__jinja_undefined(name);
}

static struct kiln__jinja_value negate(struct kiln__jinja *j, struct kiln__jinja_value value)
{
    return calculate(j, KILN__NODE_SUBTRACT, kiln__jinja_whole(0), value);
}

static struct kiln__jinja_value evaluate(struct kiln__jinja *j, const struct kiln__jinja_node *node)
{
    struct kiln__jinja_value a;
    struct kiln__jinja_arguments arguments;
    kiln__jinja_work(j, 0);
    j->place = node->place;
    switch (node->kind) {
    case KILN__NODE_VALUE: return node->value;
    case KILN__NODE_NAME: return look_up(j, node->text);
    case KILN__NODE_LIST: return make_list(j, node);
    case KILN__NODE_DICT: return make_dict(j, node);
    case KILN__NODE_CALL: return call(j, node);
    case KILN__NODE_CHOICE:
        if (kiln__jinja_is_true(evaluate(j, node->a)))
            return evaluate(j, node->b);
        return node->c ? evaluate(j, node->c) : kiln__jinja_undefined(kiln__jinja_word("else"));
    default: break;
    }
    a = evaluate(j, node->a);
    switch (node->kind) {
    case KILN__NODE_DOT: return kiln__jinja_index(j, a, kiln__jinja_of_text(node->text));
    case KILN__NODE_INDEX: return kiln__jinja_index(j, a, evaluate(j, node->b));
    case KILN__NODE_SLICE: return slice(j, a, node->items);
    case KILN__NODE_FILTER:
        arguments = read_arguments(j, node);
        return kiln__jinja_filter(j, node->text, a, &arguments);
    case KILN__NODE_TEST:
        arguments = read_arguments(j, node);
        return kiln__jinja_truth(kiln__jinja_test(j, node->text, a, &arguments));
    case KILN__NODE_NOT: return kiln__jinja_truth(!kiln__jinja_is_true(a));
    case KILN__NODE_NEGATE: return negate(j, a);
    case KILN__NODE_OR: return kiln__jinja_is_true(a) ? a : evaluate(j, node->b);
    case KILN__NODE_AND: return kiln__jinja_is_true(a) ? evaluate(j, node->b) : a;
    default: return apply(j, node->kind, a, evaluate(j, node->b));
    }
}

/* ---- statements ---- */

/* One name for each element, or two for each pair. */
static void set_names(struct kiln__jinja *j, const struct kiln__jinja_node *node,
                      struct kiln__jinja_value item)
{
    if (!node->other.length) {
        kiln__jinja_set(j, node->text, item);
        return;
    }
    if (item.kind != KILN__JINJA_LIST || item.list->count != 2)
        kiln__jinja_fail(j, KILN_INVALID_ARGUMENT, "%s is no pair", kiln__jinja_kind_name(item));
    kiln__jinja_set(j, node->text, item.list->items[0]);
    kiln__jinja_set(j, node->other, item.list->items[1]);
}

/* What `loop` is at an element. */
static void set_loop(struct kiln__jinja *j, struct kiln__jinja_dict *loop,
                     const struct kiln__jinja_list *items, size_t i)
{
    const int64_t at = (int64_t)i, count = (int64_t)items->count;
    const struct kiln__jinja_value none = kiln__jinja_undefined(kiln__jinja_word("loop"));
    const struct {
        const char *name;
        struct kiln__jinja_value value;
    } all[] = {
        {"index0", kiln__jinja_whole(at)},
        {"index", kiln__jinja_whole(at + 1)},
        {"first", kiln__jinja_truth(!at)},
        {"last", kiln__jinja_truth(at + 1 == count)},
        {"length", kiln__jinja_whole(count)},
        {"revindex0", kiln__jinja_whole(count - at - 1)},
        {"revindex", kiln__jinja_whole(count - at)},
        {"previtem", at ? items->items[at - 1] : none},
        {"nextitem", at + 1 < count ? items->items[at + 1] : none},
    };
    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        kiln__jinja_put(j, loop, kiln__jinja_word(all[k].name), all[k].value);
}

/* The elements for which a loop's condition holds. */
static const struct kiln__jinja_list *choose(struct kiln__jinja *j,
                                             const struct kiln__jinja_node *node,
                                             const struct kiln__jinja_list *items, size_t before)
{
    if (!node->b)
        return items;
    struct kiln__jinja_value chosen = kiln__jinja_new_list(j);
    for (size_t i = 0; i < items->count; i++) {
        set_names(j, node, items->items[i]);
        if (kiln__jinja_is_true(evaluate(j, node->b)))
            kiln__jinja_add(j, chosen.list, items->items[i]);
        j->names.count = before;
    }
    return chosen.list;
}

static enum ending run_for(struct kiln__jinja *j, const struct kiln__jinja_node *node)
{
    const struct kiln__jinja_list *items = kiln__jinja_items(j, evaluate(j, node->a));
    struct kiln__jinja_names *names = &j->names;
    const size_t scope = names->scope, before = names->count;
    const struct kiln__jinja_value loop = kiln__jinja_new_dict(j);
    enum ending ending = THROUGH;
    names->scope = before;
    items = choose(j, node, items, before);
    for (size_t i = 0; i < items->count && ending != BROKEN; i++) {
        set_loop(j, loop.dict, items, i);
        kiln__jinja_set(j, kiln__jinja_word("loop"), loop);
        set_names(j, node, items->items[i]);
        ending = run(j, node->items);
        names->count = before;
    }
    names->scope = scope;
    return items->count || !node->c ? THROUGH : run(j, node->c);
}

static struct kiln__jinja_value capture(struct kiln__jinja *j, const struct kiln__jinja_node *body,
                                        enum ending *ending)
{
    struct kiln__jinja_builder own = {0}, *output = j->output;
    j->output = &own;
    *ending = run(j, body);
    j->output = output;
    return kiln__jinja_of_text(kiln__jinja_built(&own));
}

static enum ending run_set(struct kiln__jinja *j, const struct kiln__jinja_node *node)
{
    enum ending ending = THROUGH;
    const struct kiln__jinja_value value =
        node->a ? evaluate(j, node->a) : capture(j, node->items, &ending);
    if (!node->other.length) {
        kiln__jinja_set(j, node->text, value);
        return ending;
    }
    const struct kiln__jinja_value object = look_up(j, node->text);
    if (object.kind != KILN__JINJA_DICT || !object.dict->is_namespace)
        kiln__jinja_fail(j, KILN_INVALID_ARGUMENT, "\"%.*s\" is no namespace",
                         KILN__JINJA_SAID(node->text));
    kiln__jinja_put(j, object.dict, node->other, value);
    return ending;
}

static enum ending run_one(struct kiln__jinja *j, const struct kiln__jinja_node *node)
{
    kiln__jinja_work(j, 0);
    j->place = node->place;
    switch (node->kind) {
    case KILN__NODE_DATA: kiln__jinja_append(j, j->output, node->text); return THROUGH;
    case KILN__NODE_PRINT:
        kiln__jinja_append(j, j->output, kiln__jinja_print(j, evaluate(j, node->a)));
        return THROUGH;
    case KILN__NODE_IF:
        if (kiln__jinja_is_true(evaluate(j, node->a)))
            return run(j, node->b);
        return node->c ? run(j, node->c) : THROUGH;
    case KILN__NODE_FOR: return run_for(j, node);
    case KILN__NODE_SET: return run_set(j, node);
    case KILN__NODE_BREAK: return BROKEN;
    case KILN__NODE_CONTINUE: return CONTINUED;
    default: return run(j, node);
    }
}

/* A body, or one statement, as "elif" is. */
static enum ending run(struct kiln__jinja *j, const struct kiln__jinja_node *body)
{
    enum ending ending = THROUGH;
    if (body->kind != KILN__NODE_BODY)
        return run_one(j, body);
    for (const struct kiln__jinja_node *node = body->items; node && !ending; node = node->next)
        ending = run_one(j, node);
    return ending;
}

void kiln__jinja_run(struct kiln__jinja *j, const struct kiln__jinja_node *body)
{
    run(j, body);
}
