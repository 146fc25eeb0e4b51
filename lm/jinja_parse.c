/* SPDX-License-Identifier: Apache-2.0 */
/* From tokens to nodes:
 *
 *   body       = (DATA | "{{" expression "}}" | "{%" statement "%}")*
 *   statement  = "if" expression body ("elif" expression body)* ("else" body)? "endif"
 *              | "for" name ("," name)? "in" or ("if" expression)? body ("else" body)? "endfor"
 *              | "set" name ("." name)? ("=" expression | body "endset") | "break" | "continue"
 *   expression = or ("if" or ("else" expression)?)?
 *   or ... *   = binary operators, see the table
 *   unary      = ("-" | "+") unary | primary postfix* filter*
 *   postfix    = "." name | "[" index or slice "]" | "(" arguments ")"
 *   filter     = "|" name arguments? | "is" "not"? name (arguments | primary postfix*)? */
#include "lm/jinja_parts.h"

struct parser {
    struct kiln__jinja *j;
    const struct kiln__jinja_token *at;
    int depth, loops; /* around what is read */
};

static struct kiln__jinja_node *parse_expression(struct parser *parser);
static struct kiln__jinja_node *parse_body(struct parser *parser);

/* ---- tokens ---- */

static bool is_token(const struct kiln__jinja_token *token, enum kiln__jinja_token_kind kind,
                     const char *word)
{
    return token->kind == kind && (!word || kiln__jinja_is(token->text, word));
}

static bool at_sign(const struct parser *parser, const char *word)
{
    return is_token(parser->at, KILN__TOKEN_SIGN, word);
}

static bool at_name(const struct parser *parser, const char *word)
{
    return is_token(parser->at, KILN__TOKEN_NAME, word);
}

static bool accept_sign(struct parser *parser, const char *word)
{
    const bool found = at_sign(parser, word);
    parser->at += found;
    return found;
}

static bool accept_name(struct parser *parser, const char *word)
{
    const bool found = at_name(parser, word);
    parser->at += found;
    return found;
}

static _Noreturn void refuse(struct parser *parser, const char *wanted)
{
    const struct kiln__jinja_token *found = parser->at;
    parser->j->place = found->place;
    if (found->kind == KILN__TOKEN_END)
        kiln__jinja_fail(parser->j, KILN_INVALID_ARGUMENT, "it ends where %s should be", wanted);
    kiln__jinja_fail(parser->j, KILN_UNSUPPORTED, "\"%.*s\" where kiln expects %s",
                     KILN__JINJA_SAID(found->text), wanted);
}

static void expect(struct parser *parser, enum kiln__jinja_token_kind kind, const char *word,
                   const char *wanted)
{
    if (!is_token(parser->at, kind, word))
        refuse(parser, wanted);
    parser->at++;
}

static struct kiln__jinja_text expect_name(struct parser *parser)
{
    const struct kiln__jinja_text name = parser->at->text;
    expect(parser, KILN__TOKEN_NAME, NULL, "a name");
    return name;
}

/* ---- nodes ---- */

static struct kiln__jinja_node *deepen(struct parser *parser, struct kiln__jinja_node *made,
                                       struct kiln__jinja_node *below)
{
    if (below && below->depth >= made->depth)
        made->depth = below->depth + 1;
    if (made->depth > KILN__JINJA_DEPTH)
        kiln__jinja_fail(parser->j, KILN_TOO_LARGE, "more than %d things within each other",
                         (int)KILN__JINJA_DEPTH);
    return made;
}

static struct kiln__jinja_node *make(struct parser *parser, enum kiln__jinja_node_kind kind,
                                     struct kiln__jinja_node *a, struct kiln__jinja_node *b,
                                     struct kiln__jinja_node *c)
{
    struct kiln__jinja_node *made = kiln__jinja_take(parser->j, sizeof *made);
    parser->j->place = made->place = parser->at->place;
    made->kind = kind;
    made->a = a;
    made->b = b;
    made->c = c;
    deepen(parser, made, a);
    deepen(parser, made, b);
    return deepen(parser, made, c);
}

/* Put a node behind the last of another's items. */
static void append(struct parser *parser, struct kiln__jinja_node *to,
                   struct kiln__jinja_node ***last, struct kiln__jinja_node *item)
{
    deepen(parser, to, item);
    **last = item;
    *last = &item->next;
}

static struct kiln__jinja_node *make_value(struct parser *parser, struct kiln__jinja_value value)
{
    struct kiln__jinja_node *made = make(parser, KILN__NODE_VALUE, NULL, NULL, NULL);
    made->value = value;
    return made;
}

static void enter(struct parser *parser)
{
    if (++parser->depth > KILN__JINJA_DEPTH) {
        parser->j->place = parser->at->place;
        kiln__jinja_fail(parser->j, KILN_TOO_LARGE, "more than %d things within each other",
                         (int)KILN__JINJA_DEPTH);
    }
}

/* ---- primaries ---- */

static struct kiln__jinja_node *parse_items(struct parser *parser, struct kiln__jinja_node *list,
                                            const char *close)
{
    struct kiln__jinja_node **last = &list->items;
    while (!accept_sign(parser, close)) {
        struct kiln__jinja_node *item = parse_expression(parser);
        if (list->kind == KILN__NODE_DICT) {
            expect(parser, KILN__TOKEN_SIGN, ":", "\":\"");
            item = make(parser, KILN__NODE_PAIR, item, parse_expression(parser), NULL);
        }
        append(parser, list, &last, item);
        if (!at_sign(parser, close))
            expect(parser, KILN__TOKEN_SIGN, ",", "a comma");
    }
    return list;
}

/* The expressions of a call, "(" being read; keywords are `other`. */
static void parse_arguments(struct parser *parser, struct kiln__jinja_node *call)
{
    struct kiln__jinja_node **last = &call->items;
    size_t count = 0;
    while (!accept_sign(parser, ")")) {
        struct kiln__jinja_text keyword = {0};
        if (at_name(parser, NULL) && is_token(parser->at + 1, KILN__TOKEN_SIGN, "=")) {
            keyword = parser->at->text;
            parser->at += 2;
        }
        struct kiln__jinja_node *item = parse_expression(parser);
        item = make(parser, KILN__NODE_PAIR, item, NULL, NULL);
        item->other = keyword;
        append(parser, call, &last, item);
        if (++count > KILN__JINJA_ARGUMENTS)
            kiln__jinja_fail(parser->j, KILN_UNSUPPORTED, "a call with more than %d arguments",
                             (int)KILN__JINJA_ARGUMENTS);
        if (!at_sign(parser, ")"))
            expect(parser, KILN__TOKEN_SIGN, ",", "a comma");
    }
}

static struct kiln__jinja_node *parse_name(struct parser *parser)
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
    struct kiln__jinja_node *made = make(parser, KILN__NODE_NAME, NULL, NULL, NULL);
    made->text = expect_name(parser);
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        if (kiln__jinja_is(made->text, constants[i].name)) {
            made->kind = KILN__NODE_VALUE;
            made->value =
                (struct kiln__jinja_value){.kind = constants[i].kind, .whole = constants[i].truth};
        }
    return made;
}

/* Texts that follow each other are one. */
static struct kiln__jinja_node *parse_text(struct parser *parser)
{
    struct kiln__jinja_node *made = make_value(parser, kiln__jinja_of_text(parser->at++->text));
    while (parser->at->kind == KILN__TOKEN_TEXT)
        made = make(parser, KILN__NODE_JOIN, made,
                    make_value(parser, kiln__jinja_of_text(parser->at++->text)), NULL);
    return made;
}

static struct kiln__jinja_node *parse_primary(struct parser *parser)
{
    struct kiln__jinja_node *made;
    if (parser->at->kind == KILN__TOKEN_NAME)
        return parse_name(parser);
    if (parser->at->kind == KILN__TOKEN_TEXT)
        return parse_text(parser);
    if (parser->at->kind == KILN__TOKEN_WHOLE)
        return make_value(parser, kiln__jinja_whole(parser->at++->whole));
    if (accept_sign(parser, "[")) {
        made = make(parser, KILN__NODE_LIST, NULL, NULL, NULL);
        return parse_items(parser, made, "]");
    }
    if (accept_sign(parser, "{")) {
        made = make(parser, KILN__NODE_DICT, NULL, NULL, NULL);
        return parse_items(parser, made, "}");
    }
    if (!accept_sign(parser, "("))
        refuse(parser, "a value");
    made = parse_expression(parser);
    expect(parser, KILN__TOKEN_SIGN, ")", "\")\"");
    return made;
}

/* "[" being read: an index, or up to three expressions with colons between them. */
static struct kiln__jinja_node *parse_index(struct parser *parser, struct kiln__jinja_node *object)
{
    struct kiln__jinja_node *slice = make(parser, KILN__NODE_SLICE, object, NULL, NULL),
                            **last = &slice->items;
    int colons = 0;
    struct kiln__jinja_node *first = at_sign(parser, ":") ? NULL : parse_expression(parser);
    if (accept_sign(parser, "]"))
        return make(parser, KILN__NODE_INDEX, object, first, NULL);
    for (; colons < 3; colons++) {
        struct kiln__jinja_node *none =
            make_value(parser, (struct kiln__jinja_value){.kind = KILN__JINJA_NONE});
        const bool is_left_out = colons && (at_sign(parser, ":") || at_sign(parser, "]"));
        struct kiln__jinja_node *bound = !colons       ? first
                                         : is_left_out ? NULL
                                                       : parse_expression(parser);
        append(parser, slice, &last, bound ? bound : none);
        if (colons < 2 && !accept_sign(parser, ":") && !at_sign(parser, "]"))
            refuse(parser, "\"]\"");
    }
    expect(parser, KILN__TOKEN_SIGN, "]", "\"]\"");
    return slice;
}

static struct kiln__jinja_node *parse_postfix(struct parser *parser,
                                              struct kiln__jinja_node *object)
{
    for (;;) {
        if (accept_sign(parser, ".")) {
            object = make(parser, KILN__NODE_DOT, object, NULL, NULL);
            object->text = expect_name(parser);
        } else if (accept_sign(parser, "[")) {
            object = parse_index(parser, object);
        } else if (accept_sign(parser, "(")) {
            object = make(parser, KILN__NODE_CALL, object, NULL, NULL);
            parse_arguments(parser, object);
        } else {
            return object;
        }
    }
}

/* ---- filters and tests ---- */

static struct kiln__jinja_node *parse_filter(struct parser *parser, struct kiln__jinja_node *value)
{
    struct kiln__jinja_node *made = make(parser, KILN__NODE_FILTER, value, NULL, NULL);
    made->text = expect_name(parser);
    if (accept_sign(parser, "("))
        parse_arguments(parser, made);
    return made;
}

/* What stands behind a test's name without brackets, as in "x is eq y". */
static bool begins_argument(const struct parser *parser)
{
    const struct kiln__jinja_token *at = parser->at;
    return at->kind == KILN__TOKEN_TEXT || at->kind == KILN__TOKEN_WHOLE || at_sign(parser, "[") ||
           at_sign(parser, "{") ||
           (at->kind == KILN__TOKEN_NAME && !at_name(parser, "else") && !at_name(parser, "or") &&
            !at_name(parser, "and") && !at_name(parser, "if") && !at_name(parser, "is"));
}

static struct kiln__jinja_node *parse_test(struct parser *parser, struct kiln__jinja_node *value)
{
    const bool negated = accept_name(parser, "not");
    struct kiln__jinja_node *made = make(parser, KILN__NODE_TEST, value, NULL, NULL);
    made->text = expect_name(parser);
    if (accept_sign(parser, "(")) {
        parse_arguments(parser, made);
    } else if (begins_argument(parser)) {
        struct kiln__jinja_node *argument = parse_postfix(parser, parse_primary(parser)),
                                **last = &made->items;
        append(parser, made, &last, make(parser, KILN__NODE_PAIR, argument, NULL, NULL));
    }
    return negated ? make(parser, KILN__NODE_NOT, made, NULL, NULL) : made;
}

static struct kiln__jinja_node *parse_unary(struct parser *parser)
{
    enter(parser);
    struct kiln__jinja_node *made;
    if (accept_sign(parser, "-"))
        made = make(parser, KILN__NODE_NEGATE, parse_unary(parser), NULL, NULL);
    else if (accept_sign(parser, "+"))
        made = parse_unary(parser);
    else
        made = parse_postfix(parser, parse_primary(parser));
    for (;;) {
        if (accept_sign(parser, "|"))
            made = parse_filter(parser, made);
        else if (accept_name(parser, "is"))
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
static const struct binary *accept_operator(struct parser *parser, int level)
{
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        const struct binary *row = &operators[i];
        if (row->level != level || !(at_sign(parser, row->word) || at_name(parser, row->word)))
            continue;
        if (row->second && !is_token(parser->at + 1, KILN__TOKEN_NAME, row->second))
            continue;
        parser->at += row->second ? 2 : 1;
        return row;
    }
    return NULL;
}

static struct kiln__jinja_node *parse_level(struct parser *parser, int level)
{
    const struct binary *row;
    if (level == UNARY)
        return parse_unary(parser);
    if (level == NOT && at_name(parser, "not")) {
        enter(parser);
        parser->at++;
        struct kiln__jinja_node *negated =
            make(parser, KILN__NODE_NOT, parse_level(parser, NOT), NULL, NULL);
        parser->depth--;
        return negated;
    }
    struct kiln__jinja_node *left = parse_level(parser, level + 1);
    for (int count = 0; (row = accept_operator(parser, level)) != NULL; count++) {
        if (level == COMPARISON && count)
            kiln__jinja_fail(parser->j, KILN_UNSUPPORTED, "kiln compares two values, not three");
        left = make(parser, row->kind, left, parse_level(parser, level + 1), NULL);
    }
    return left;
}

static struct kiln__jinja_node *parse_expression(struct parser *parser)
{
    enter(parser);
    struct kiln__jinja_node *made = parse_level(parser, OR);
    if (accept_name(parser, "if")) {
        struct kiln__jinja_node *condition = parse_level(parser, OR);
        struct kiln__jinja_node *other =
            accept_name(parser, "else") ? parse_expression(parser) : NULL;
        made = make(parser, KILN__NODE_CHOICE, condition, made, other);
    }
    parser->depth--;
    return made;
}

/* ---- statements ---- */

static void end_block(struct parser *parser)
{
    expect(parser, KILN__TOKEN_BLOCK_END, NULL, "the tag's end");
}

/* Whether the tag here has this name; it is read up to behind the name. */
static bool accept_tag(struct parser *parser, const char *name)
{
    const bool found =
        parser->at->kind == KILN__TOKEN_BLOCK && is_token(parser->at + 1, KILN__TOKEN_NAME, name);
    parser->at += found ? 2 : 0;
    return found;
}

static void expect_tag(struct parser *parser, const char *name)
{
    if (!accept_tag(parser, name)) {
        parser->at += parser->at->kind == KILN__TOKEN_BLOCK;
        refuse(parser, name);
    }
    end_block(parser);
}

static struct kiln__jinja_node *parse_else(struct parser *parser)
{
    if (!accept_tag(parser, "else"))
        return NULL;
    end_block(parser);
    return parse_body(parser);
}

/* Behind "if" or "elif"; the last of them reads the end. */
static struct kiln__jinja_node *parse_if(struct parser *parser)
{
    enter(parser);
    struct kiln__jinja_node *condition = parse_expression(parser), *other;
    end_block(parser);
    struct kiln__jinja_node *body = parse_body(parser);
    if (accept_tag(parser, "elif")) {
        other = parse_if(parser);
    } else {
        other = parse_else(parser);
        expect_tag(parser, "endif");
    }
    parser->depth--;
    return make(parser, KILN__NODE_IF, condition, body, other);
}

static struct kiln__jinja_node *parse_for(struct parser *parser)
{
    const struct kiln__jinja_text name = expect_name(parser);
    struct kiln__jinja_text second = {0};
    if (accept_sign(parser, ","))
        second = expect_name(parser);
    expect(parser, KILN__TOKEN_NAME, "in", "\"in\"");
    struct kiln__jinja_node *list = parse_level(parser, OR);
    struct kiln__jinja_node *condition =
        accept_name(parser, "if") ? parse_expression(parser) : NULL;
    end_block(parser);
    parser->loops++;
    struct kiln__jinja_node *body = parse_body(parser);
    parser->loops--;
    struct kiln__jinja_node *other = parse_else(parser);
    expect_tag(parser, "endfor");
    struct kiln__jinja_node *made = make(parser, KILN__NODE_FOR, list, condition, other);
    made->text = name;
    made->other = second;
    made->items = body;
    return deepen(parser, made, body);
}

static struct kiln__jinja_node *parse_set(struct parser *parser)
{
    const struct kiln__jinja_text name = expect_name(parser);
    struct kiln__jinja_text attribute = {0};
    struct kiln__jinja_node *value = NULL, *body = NULL;
    if (accept_sign(parser, "."))
        attribute = expect_name(parser);
    if (accept_sign(parser, "=")) {
        value = parse_expression(parser);
        end_block(parser);
    } else {
        end_block(parser);
        body = parse_body(parser);
        expect_tag(parser, "endset");
    }
    struct kiln__jinja_node *made = make(parser, KILN__NODE_SET, value, NULL, NULL);
    made->text = name;
    made->other = attribute;
    made->items = body;
    return deepen(parser, made, body);
}

static struct kiln__jinja_node *parse_jump(struct parser *parser, enum kiln__jinja_node_kind kind)
{
    struct kiln__jinja_node *made = make(parser, kind, NULL, NULL, NULL);
    if (!parser->loops)
        kiln__jinja_fail(parser->j, KILN_INVALID_ARGUMENT, "no loop is around this");
    end_block(parser);
    return made;
}

static struct kiln__jinja_node *parse_print(struct parser *parser)
{
    struct kiln__jinja_node *made =
        make(parser, KILN__NODE_PRINT, parse_expression(parser), NULL, NULL);
    expect(parser, KILN__TOKEN_PRINT_END, NULL, "the tag's end");
    return made;
}

static struct kiln__jinja_node *parse_data(struct parser *parser)
{
    struct kiln__jinja_node *made = make(parser, KILN__NODE_DATA, NULL, NULL, NULL);
    made->text = parser->at++->text;
    return made;
}

/* NULL: the tag here belongs to what is around. */
static struct kiln__jinja_node *parse_statement(struct parser *parser)
{
    static const char *const ends[] = {"elif", "else", "endif", "endfor", "endset"};
    if (parser->at->kind == KILN__TOKEN_DATA)
        return parse_data(parser);
    if (parser->at->kind == KILN__TOKEN_PRINT) {
        parser->at++;
        return parse_print(parser);
    }
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (is_token(parser->at + 1, KILN__TOKEN_NAME, ends[i]))
            return NULL;
    if (accept_tag(parser, "if"))
        return parse_if(parser);
    if (accept_tag(parser, "for"))
        return parse_for(parser);
    if (accept_tag(parser, "set"))
        return parse_set(parser);
    if (accept_tag(parser, "break"))
        return parse_jump(parser, KILN__NODE_BREAK);
    if (accept_tag(parser, "continue"))
        return parse_jump(parser, KILN__NODE_CONTINUE);
    parser->at++;
    parser->j->place = parser->at->place;
    kiln__jinja_fail(parser->j, KILN_UNSUPPORTED,
                     "kiln knows no \"%.*s\", but if, for, set, break and continue",
                     KILN__JINJA_SAID(parser->at->text));
}

static struct kiln__jinja_node *parse_body(struct parser *parser)
{
    enter(parser);
    struct kiln__jinja_node *body = make(parser, KILN__NODE_BODY, NULL, NULL, NULL),
                            **last = &body->items, *item;
    while (parser->at->kind != KILN__TOKEN_END && (item = parse_statement(parser)) != NULL)
        append(parser, body, &last, item);
    parser->depth--;
    return body;
}

struct kiln__jinja_node *kiln__jinja_parse(struct kiln__jinja *j)
{
    const struct kiln__jinja_tokens tokens = kiln__jinja_lex(j);
    struct parser parser = {.j = j, .at = tokens.items};
    struct kiln__jinja_node *body = parse_body(&parser);
    if (parser.at->kind != KILN__TOKEN_END) {
        parser.at++;
        refuse(&parser, "no end");
    }
    return body;
}
