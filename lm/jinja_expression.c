/* SPDX-License-Identifier: Apache-2.0 */
/* Expressions of templates, from tokens to nodes:
 *
 *   expression = or ("if" or ("else" expression)?)?
 *   or ... *   = binary operators, see the table
 *   unary      = ("-" | "+") unary | primary postfix* filter*
 *   postfix    = "." name | "[" index or slice "]" | "(" arguments ")"
 *   filter     = "|" name arguments? | "is" "not"? name (arguments | primary postfix*)? */
#include "lm/jinja_parser.h"

/* ---- tokens ---- */

bool kiln__parser_is_token(const struct kiln__jinja_token *token, enum kiln__jinja_token_kind kind,
                           const char *word)
{
    return token->kind == kind && (!word || kiln__jinja_is(token->text, word));
}

static bool at_sign(const struct kiln__parser *parser, const char *word)
{
    return kiln__parser_is_token(parser->at, KILN__TOKEN_SIGN, word);
}

static bool at_name(const struct kiln__parser *parser, const char *word)
{
    return kiln__parser_is_token(parser->at, KILN__TOKEN_NAME, word);
}

bool kiln__parser_accept_sign(struct kiln__parser *parser, const char *word)
{
    const bool found = at_sign(parser, word);
    parser->at += found;
    return found;
}

bool kiln__parser_accept_name(struct kiln__parser *parser, const char *word)
{
    const bool found = at_name(parser, word);
    parser->at += found;
    return found;
}

void kiln__parser_refuse(struct kiln__parser *parser, const char *wanted)
{
    const struct kiln__jinja_token *found = parser->at;
    parser->j->place = found->place;
    if (found->kind == KILN__TOKEN_END)
        kiln__jinja_fail(parser->j, KILN_INVALID_ARGUMENT, "it ends where %s should be", wanted);
    kiln__jinja_fail(parser->j, KILN_UNSUPPORTED, "\"%.*s\" where kiln expects %s",
                     KILN__JINJA_SAID(found->text), wanted);
}

void kiln__parser_expect(struct kiln__parser *parser, enum kiln__jinja_token_kind kind,
                         const char *word, const char *wanted)
{
    if (!kiln__parser_is_token(parser->at, kind, word))
        kiln__parser_refuse(parser, wanted);
    parser->at++;
}

struct kiln__jinja_text kiln__parser_expect_name(struct kiln__parser *parser)
{
    const struct kiln__jinja_text name = parser->at->text;
    kiln__parser_expect(parser, KILN__TOKEN_NAME, NULL, "a name");
    return name;
}

/* ---- nodes ---- */

struct kiln__jinja_node *kiln__parser_deepen(struct kiln__parser *parser,
                                             struct kiln__jinja_node *made,
                                             struct kiln__jinja_node *below)
{
    if (below && below->depth >= made->depth)
        made->depth = below->depth + 1;
    if (made->depth > KILN__JINJA_DEPTH)
        kiln__jinja_fail(parser->j, KILN_TOO_LARGE, "more than %d things within each other",
                         (int)KILN__JINJA_DEPTH);
    return made;
}

struct kiln__jinja_node *kiln__parser_make(struct kiln__parser *parser,
                                           enum kiln__jinja_node_kind kind,
                                           struct kiln__jinja_node *a, struct kiln__jinja_node *b,
                                           struct kiln__jinja_node *c)
{
    struct kiln__jinja_node *made = kiln__jinja_take(parser->j, sizeof *made);
    parser->j->place = made->place = parser->at->place;
    made->kind = kind;
    made->a = a;
    made->b = b;
    made->c = c;
    kiln__parser_deepen(parser, made, a);
    kiln__parser_deepen(parser, made, b);
    return kiln__parser_deepen(parser, made, c);
}

/* Put a node behind the last of another's items. */
void kiln__parser_append(struct kiln__parser *parser, struct kiln__jinja_node *to,
                         struct kiln__jinja_node ***last, struct kiln__jinja_node *item)
{
    kiln__parser_deepen(parser, to, item);
    **last = item;
    *last = &item->next;
}

static struct kiln__jinja_node *make_value(struct kiln__parser *parser,
                                           struct kiln__jinja_value value)
{
    struct kiln__jinja_node *made = kiln__parser_make(parser, KILN__NODE_VALUE, NULL, NULL, NULL);
    made->value = value;
    return made;
}

void kiln__parser_enter(struct kiln__parser *parser)
{
    if (++parser->depth > KILN__JINJA_DEPTH) {
        parser->j->place = parser->at->place;
        kiln__jinja_fail(parser->j, KILN_TOO_LARGE, "more than %d things within each other",
                         (int)KILN__JINJA_DEPTH);
    }
}

/* ---- primaries ---- */

static struct kiln__jinja_node *parse_items(struct kiln__parser *parser,
                                            struct kiln__jinja_node *list, const char *close)
{
    struct kiln__jinja_node **last = &list->items;
    while (!kiln__parser_accept_sign(parser, close)) {
        struct kiln__jinja_node *item = kiln__parse_expression(parser);
        if (list->kind == KILN__NODE_DICT) {
            kiln__parser_expect(parser, KILN__TOKEN_SIGN, ":", "\":\"");
            item = kiln__parser_make(parser, KILN__NODE_PAIR, item, kiln__parse_expression(parser),
                                     NULL);
        }
        kiln__parser_append(parser, list, &last, item);
        if (!at_sign(parser, close))
            kiln__parser_expect(parser, KILN__TOKEN_SIGN, ",", "a comma");
    }
    return list;
}

/* The expressions of a call, "(" being read; keywords are `other`. */
static void parse_arguments(struct kiln__parser *parser, struct kiln__jinja_node *call)
{
    struct kiln__jinja_node **last = &call->items;
    size_t count = 0;
    while (!kiln__parser_accept_sign(parser, ")")) {
        struct kiln__jinja_text keyword = {0};
        if (at_name(parser, NULL) && kiln__parser_is_token(parser->at + 1, KILN__TOKEN_SIGN, "=")) {
            keyword = parser->at->text;
            parser->at += 2;
        }
        struct kiln__jinja_node *item = kiln__parse_expression(parser);
        item = kiln__parser_make(parser, KILN__NODE_PAIR, item, NULL, NULL);
        item->other = keyword;
        kiln__parser_append(parser, call, &last, item);
        if (++count > KILN__JINJA_ARGUMENTS)
            kiln__jinja_fail(parser->j, KILN_UNSUPPORTED, "a call with more than %d arguments",
                             (int)KILN__JINJA_ARGUMENTS);
        if (!at_sign(parser, ")"))
            kiln__parser_expect(parser, KILN__TOKEN_SIGN, ",", "a comma");
    }
}

static struct kiln__jinja_node *parse_name(struct kiln__parser *parser)
{
    static const struct {
        const char *name;
        enum kiln__jinja_kind kind;
        int truth;
    } constants[] = {
        {"true", KILN__JINJA_TRUTH, 1},  {"True", KILN__JINJA_TRUTH, 1},
        {"false", KILN__JINJA_TRUTH, 0}, {"False", KILN__JINJA_TRUTH, 0},
        {"none", KILN__JINJA_NONE, 0},   {"None", KILN__JINJA_NONE, 0},
    };
    struct kiln__jinja_node *made = kiln__parser_make(parser, KILN__NODE_NAME, NULL, NULL, NULL);
    made->text = kiln__parser_expect_name(parser);
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        if (kiln__jinja_is(made->text, constants[i].name)) {
            made->kind = KILN__NODE_VALUE;
            made->value =
                (struct kiln__jinja_value){.kind = constants[i].kind, .whole = constants[i].truth};
        }
    return made;
}

/* Texts that follow each other are one. */
static struct kiln__jinja_node *parse_text(struct kiln__parser *parser)
{
    struct kiln__jinja_node *made = make_value(parser, kiln__jinja_of_text(parser->at++->text));
    while (parser->at->kind == KILN__TOKEN_TEXT)
        made = kiln__parser_make(parser, KILN__NODE_JOIN, made,
                                 make_value(parser, kiln__jinja_of_text(parser->at++->text)), NULL);
    return made;
}

static struct kiln__jinja_node *parse_primary(struct kiln__parser *parser)
{
    struct kiln__jinja_node *made;
    if (parser->at->kind == KILN__TOKEN_NAME)
        return parse_name(parser);
    if (parser->at->kind == KILN__TOKEN_TEXT)
        return parse_text(parser);
    if (parser->at->kind == KILN__TOKEN_WHOLE)
        return make_value(parser, kiln__jinja_whole(parser->at++->whole));
    if (kiln__parser_accept_sign(parser, "[")) {
        made = kiln__parser_make(parser, KILN__NODE_LIST, NULL, NULL, NULL);
        return parse_items(parser, made, "]");
    }
    if (kiln__parser_accept_sign(parser, "{")) {
        made = kiln__parser_make(parser, KILN__NODE_DICT, NULL, NULL, NULL);
        return parse_items(parser, made, "}");
    }
    if (!kiln__parser_accept_sign(parser, "("))
        kiln__parser_refuse(parser, "a value");
    made = kiln__parse_expression(parser);
    kiln__parser_expect(parser, KILN__TOKEN_SIGN, ")", "\")\"");
    return made;
}

/* "[" being read: an index, or up to three expressions with colons between them. */
static struct kiln__jinja_node *parse_index(struct kiln__parser *parser,
                                            struct kiln__jinja_node *object)
{
    struct kiln__jinja_node *slice =
                                kiln__parser_make(parser, KILN__NODE_SLICE, object, NULL, NULL),
                            **last = &slice->items;
    int colons = 0;
    struct kiln__jinja_node *first = at_sign(parser, ":") ? NULL : kiln__parse_expression(parser);
    if (kiln__parser_accept_sign(parser, "]"))
        return kiln__parser_make(parser, KILN__NODE_INDEX, object, first, NULL);
    for (; colons < 3; colons++) {
        struct kiln__jinja_node *none =
            make_value(parser, (struct kiln__jinja_value){.kind = KILN__JINJA_NONE});
        const bool is_left_out = colons && (at_sign(parser, ":") || at_sign(parser, "]"));
        struct kiln__jinja_node *bound = !colons       ? first
                                         : is_left_out ? NULL
                                                       : kiln__parse_expression(parser);
        kiln__parser_append(parser, slice, &last, bound ? bound : none);
        if (colons < 2 && !kiln__parser_accept_sign(parser, ":") && !at_sign(parser, "]"))
            kiln__parser_refuse(parser, "\"]\"");
    }
    kiln__parser_expect(parser, KILN__TOKEN_SIGN, "]", "\"]\"");
    return slice;
}

static struct kiln__jinja_node *parse_postfix(struct kiln__parser *parser,
                                              struct kiln__jinja_node *object)
{
    for (;;) {
        if (kiln__parser_accept_sign(parser, ".")) {
            object = kiln__parser_make(parser, KILN__NODE_DOT, object, NULL, NULL);
            object->text = kiln__parser_expect_name(parser);
        } else if (kiln__parser_accept_sign(parser, "[")) {
            object = parse_index(parser, object);
        } else if (kiln__parser_accept_sign(parser, "(")) {
            object = kiln__parser_make(parser, KILN__NODE_CALL, object, NULL, NULL);
            parse_arguments(parser, object);
        } else {
            return object;
        }
    }
}

/* ---- filters and tests ---- */

static struct kiln__jinja_node *parse_filter(struct kiln__parser *parser,
                                             struct kiln__jinja_node *value)
{
    struct kiln__jinja_node *made = kiln__parser_make(parser, KILN__NODE_FILTER, value, NULL, NULL);
    made->text = kiln__parser_expect_name(parser);
    if (kiln__parser_accept_sign(parser, "("))
        parse_arguments(parser, made);
    return made;
}

/* What stands behind a test's name without brackets, as in "x is eq y". */
static bool begins_argument(const struct kiln__parser *parser)
{
    const struct kiln__jinja_token *at = parser->at;
    return at->kind == KILN__TOKEN_TEXT || at->kind == KILN__TOKEN_WHOLE || at_sign(parser, "[") ||
           at_sign(parser, "{") ||
           (at->kind == KILN__TOKEN_NAME && !at_name(parser, "else") && !at_name(parser, "or") &&
            !at_name(parser, "and") && !at_name(parser, "if") && !at_name(parser, "is"));
}

static struct kiln__jinja_node *parse_test(struct kiln__parser *parser,
                                           struct kiln__jinja_node *value)
{
    const bool negated = kiln__parser_accept_name(parser, "not");
    struct kiln__jinja_node *made = kiln__parser_make(parser, KILN__NODE_TEST, value, NULL, NULL);
    made->text = kiln__parser_expect_name(parser);
    if (kiln__parser_accept_sign(parser, "(")) {
        parse_arguments(parser, made);
    } else if (begins_argument(parser)) {
        struct kiln__jinja_node *argument = parse_postfix(parser, parse_primary(parser)),
                                **last = &made->items;
        kiln__parser_append(parser, made, &last,
                            kiln__parser_make(parser, KILN__NODE_PAIR, argument, NULL, NULL));
    }
    return negated ? kiln__parser_make(parser, KILN__NODE_NOT, made, NULL, NULL) : made;
}

static struct kiln__jinja_node *parse_unary(struct kiln__parser *parser)
{
    kiln__parser_enter(parser);
    struct kiln__jinja_node *made;
    if (kiln__parser_accept_sign(parser, "-"))
        made = kiln__parser_make(parser, KILN__NODE_NEGATE, parse_unary(parser), NULL, NULL);
    else if (kiln__parser_accept_sign(parser, "+"))
        made = parse_unary(parser);
    else
        made = parse_postfix(parser, parse_primary(parser));
    for (;;) {
        if (kiln__parser_accept_sign(parser, "|"))
            made = parse_filter(parser, made);
        else if (kiln__parser_accept_name(parser, "is"))
            made = parse_test(parser, made);
        else if (at_sign(parser, "("))
            made = parse_postfix(parser, made);
        else
            break;
    }
    parser->depth--;
    return made;
}

/* ---- operators ---- */

/* Levels from the loosest one on. */
enum { OR, AND, NOT, COMPARISON, SUM, JOIN, PRODUCT, UNARY };

static const struct binary {
    const char *word, *second; /* two words, as "not in" */
    int level;
    enum kiln__jinja_node_kind kind;
} operators[] = {
    {"or", NULL, OR, KILN__NODE_OR},
    {"and", NULL, AND, KILN__NODE_AND},
    {"==", NULL, COMPARISON, KILN__NODE_EQUAL},
    {"!=", NULL, COMPARISON, KILN__NODE_UNEQUAL},
    {"<", NULL, COMPARISON, KILN__NODE_LESS},
    {">", NULL, COMPARISON, KILN__NODE_GREATER},
    {"<=", NULL, COMPARISON, KILN__NODE_AT_MOST},
    {">=", NULL, COMPARISON, KILN__NODE_AT_LEAST},
    {"in", NULL, COMPARISON, KILN__NODE_IN},
    {"not", "in", COMPARISON, KILN__NODE_NOT_IN},
    {"+", NULL, SUM, KILN__NODE_ADD},
    {"-", NULL, SUM, KILN__NODE_SUBTRACT},
    {"~", NULL, JOIN, KILN__NODE_JOIN},
    {"*", NULL, PRODUCT, KILN__NODE_MULTIPLY},
    {"//", NULL, PRODUCT, KILN__NODE_DIVIDE},
    {"%", NULL, PRODUCT, KILN__NODE_MODULO},
};

/* The operator of a level here, which is read; NULL: there is none. */
static const struct binary *accept_operator(struct kiln__parser *parser, int level)
{
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        const struct binary *row = &operators[i];
        if (row->level != level || !(at_sign(parser, row->word) || at_name(parser, row->word)))
            continue;
        if (row->second && !kiln__parser_is_token(parser->at + 1, KILN__TOKEN_NAME, row->second))
            continue;
        parser->at += row->second ? 2 : 1;
        return row;
    }
    return NULL;
}

static struct kiln__jinja_node *parse_level(struct kiln__parser *parser, int level)
{
    const struct binary *row;
    if (level == UNARY)
        return parse_unary(parser);
    if (level == NOT && at_name(parser, "not")) {
        kiln__parser_enter(parser);
        parser->at++;
        struct kiln__jinja_node *negated =
            kiln__parser_make(parser, KILN__NODE_NOT, parse_level(parser, NOT), NULL, NULL);
        parser->depth--;
        return negated;
    }
    struct kiln__jinja_node *left = parse_level(parser, level + 1);
    for (int count = 0; (row = accept_operator(parser, level)) != NULL; count++) {
        if (level == COMPARISON && count)
            kiln__jinja_fail(parser->j, KILN_UNSUPPORTED, "kiln compares two values, not three");
        left = kiln__parser_make(parser, row->kind, left, parse_level(parser, level + 1), NULL);
    }
    return left;
}

struct kiln__jinja_node *kiln__parse_expression(struct kiln__parser *parser)
{
    kiln__parser_enter(parser);
    struct kiln__jinja_node *made = parse_level(parser, OR);
    if (kiln__parser_accept_name(parser, "if")) {
        struct kiln__jinja_node *condition = parse_level(parser, OR);
        struct kiln__jinja_node *other =
            kiln__parser_accept_name(parser, "else") ? kiln__parse_expression(parser) : NULL;
        made = kiln__parser_make(parser, KILN__NODE_CHOICE, condition, made, other);
    }
    parser->depth--;
    return made;
}

struct kiln__jinja_node *kiln__parse_or(struct kiln__parser *parser)
{
    return parse_level(parser, OR);
}
