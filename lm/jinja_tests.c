/* SPDX-License-Identifier: Apache-2.0 */
/* Tests and functions. */
#include "lm/jinja_rows.h"

/* ---- tests ---- */

static bool is_of(struct kiln__jinja_value self, unsigned kinds)
{
    return kinds >> self.kind & 1;
}

/* Tests of a value's kind: those for which they hold, as bits. */
#define KIND(name) (1u << KILN__JINJA_##name)

static const struct {
    const char *name;
    unsigned kinds;
} kind_tests[] = {
    {"undefined", KIND(UNDEFINED)},
    {"none", KIND(NONE)},
    {"boolean", KIND(TRUTH)},
    {"integer", KIND(WHOLE)},
    {"number", KIND(WHOLE) | KIND(TRUTH)},
    {"string", KIND(TEXT)},
    {"mapping", KIND(DICT)},
    {"sequence", KIND(TEXT) | KIND(LIST) | KIND(DICT) | KIND(UNDEFINED)},
    {"iterable", KIND(TEXT) | KIND(LIST) | KIND(DICT) | KIND(UNDEFINED)},
    {"defined", ~KIND(UNDEFINED)},
};

static struct kiln__jinja_value is_true(struct kiln__jinja *j, struct kiln__jinja_value self,
                                        const struct kiln__jinja_value *given)
{
    (void)j, (void)given;
    return kiln__jinja_truth(self.kind == KILN__JINJA_TRUTH && self.whole);
}

static struct kiln__jinja_value is_false(struct kiln__jinja *j, struct kiln__jinja_value self,
                                         const struct kiln__jinja_value *given)
{
    (void)j, (void)given;
    return kiln__jinja_truth(self.kind == KILN__JINJA_TRUTH && !self.whole);
}

static struct kiln__jinja_value is_equal(struct kiln__jinja *j, struct kiln__jinja_value self,
                                         const struct kiln__jinja_value *given)
{
    return kiln__jinja_truth(kiln__jinja_equal(j, self, given[0]));
}

static struct kiln__jinja_value is_unequal(struct kiln__jinja *j, struct kiln__jinja_value self,
                                           const struct kiln__jinja_value *given)
{
    return kiln__jinja_truth(!kiln__jinja_equal(j, self, given[0]));
}

static struct kiln__jinja_value is_in(struct kiln__jinja *j, struct kiln__jinja_value self,
                                      const struct kiln__jinja_value *given)
{
    return kiln__jinja_truth(kiln__jinja_contains(j, given[0], self));
}

static const struct kiln__jinja_row tests[] = {
    {"true", {0}, is_true},        {"false", {0}, is_false},         {"eq", {"other"}, is_equal},
    {"==", {"other"}, is_equal},   {"equalto", {"other"}, is_equal}, {"ne", {"other"}, is_unequal},
    {"!=", {"other"}, is_unequal}, {"in", {"seq"}, is_in},
};

bool kiln__jinja_test(struct kiln__jinja *j, struct kiln__jinja_text name,
                      struct kiln__jinja_value self, const struct kiln__jinja_arguments *arguments)
{
    kiln__jinja_work(j, 0);
    for (size_t i = 0; i < sizeof kind_tests / sizeof *kind_tests; i++)
        if (kiln__jinja_is(name, kind_tests[i].name) && !arguments->count)
            return is_of(self, kind_tests[i].kinds);
    return kiln__jinja_is_true(
        kiln__jinja_call(j, "test", tests, sizeof tests / sizeof *tests, name, self, arguments));
}

/* ---- functions ---- */

static struct kiln__jinja_value raise(struct kiln__jinja *j, struct kiln__jinja_value self,
                                      const struct kiln__jinja_value *given)
{
    const struct kiln__jinja_text words = kiln__jinja_need_text(j, given[0]);
    (void)self;
    kiln__jinja_fail(j, KILN_INVALID_ARGUMENT, "%.*s", KILN__JINJA_SAID(words));
}

static struct kiln__jinja_value range(struct kiln__jinja *j, struct kiln__jinja_value self,
                                      const struct kiln__jinja_value *given)
{
    enum { MOST = 100000 }; /* as Jinja's sandbox has it */
    const bool is_one = !kiln__jinja_is_given(given[1]);
    const int64_t from = is_one ? 0 : kiln__jinja_need_whole(j, given[0]);
    const int64_t to = kiln__jinja_need_whole(j, given[is_one ? 0 : 1]);
    const int64_t by = kiln__jinja_is_given(given[2]) ? kiln__jinja_need_whole(j, given[2]) : 1;
    struct kiln__jinja_value made = kiln__jinja_new_list(j);
    (void)self;
    if (by != 1)
        kiln__jinja_fail(j, KILN_UNSUPPORTED, "kiln counts by 1 alone");
    if (from < -MOST || to > MOST)
        kiln__jinja_fail(j, KILN_TOO_LARGE, "a range beyond %d", (int)MOST);
    for (int64_t i = from; i < to; i++)
        kiln__jinja_add(j, made.list, kiln__jinja_whole(i));
    return made;
}

static const struct kiln__jinja_row functions[] = {
    {"raise_exception", {"message"}, raise},
    {"range", {"start", "stop", "step"}, range},
};

/* Keywords are its content. */
static struct kiln__jinja_value
make_dict(struct kiln__jinja *j, const struct kiln__jinja_arguments *arguments, bool is_namespace)
{
    struct kiln__jinja_value made = kiln__jinja_new_dict(j);
    for (size_t i = 0; i < arguments->count; i++) {
        if (!arguments->given[i].key.length)
            kiln__jinja_fail(j, KILN_UNSUPPORTED, "a value without a keyword");
        kiln__jinja_put(j, made.dict, arguments->given[i].key, arguments->given[i].value);
    }
    made.dict->is_namespace = is_namespace;
    return made;
}

struct kiln__jinja_value kiln__jinja_function(struct kiln__jinja *j, struct kiln__jinja_text name,
                                              const struct kiln__jinja_arguments *arguments)
{
    const bool is_namespace = kiln__jinja_is(name, "namespace");
    if (is_namespace || kiln__jinja_is(name, "dict"))
        return make_dict(j, arguments, is_namespace);
    return kiln__jinja_call(j, "function", functions, sizeof functions / sizeof *functions, name,
                            kiln__jinja_whole(0), arguments);
}
