/* SPDX-License-Identifier: Apache-2.0 */
/* Statements of templates, from tokens to nodes:
 *
 *   body       = (DATA | "{{" expression "}}" | "{%" statement "%}")*
 *   statement  = "if" expression body ("elif" expression body)* ("else" body)? "endif"
 *              | "for" name ("," name)? "in" or ("if" expression)? body ("else" body)? "endfor"
 *              | "set" name ("." name)? ("=" expression | body "endset") | "break" | "continue" */
#include "lm/jinja_parser.h"

static struct kiln__jinja_node *parse_body(struct kiln__parser *parser);

static void end_block(struct kiln__parser *parser)
{
    kiln__parser_expect(parser, KILN__TOKEN_BLOCK_END, NULL, "the tag's end");
}

/* Whether the tag here has this name; it is read up to behind the name. */
static bool accept_tag(struct kiln__parser *parser, const char *name)
{
    const bool found = parser->at->kind == KILN__TOKEN_BLOCK &&
                       kiln__parser_is_token(parser->at + 1, KILN__TOKEN_NAME, name);
    parser->at += found ? 2 : 0;
    return found;
}

static void expect_tag(struct kiln__parser *parser, const char *name)
{
    if (!accept_tag(parser, name)) {
        parser->at += parser->at->kind == KILN__TOKEN_BLOCK;
        kiln__parser_refuse(parser, name);
    }
    end_block(parser);
}

static struct kiln__jinja_node *parse_else(struct kiln__parser *parser)
{
    if (!accept_tag(parser, "else"))
        return NULL;
    end_block(parser);
    return parse_body(parser);
}

/* Behind "if" or "elif"; the last of them reads the end. */
static struct kiln__jinja_node *parse_if(struct kiln__parser *parser)
{
    kiln__parser_enter(parser);
    struct kiln__jinja_node *condition = kiln__parse_expression(parser), *other;
    end_block(parser);
    struct kiln__jinja_node *body = parse_body(parser);
    if (accept_tag(parser, "elif")) {
        other = parse_if(parser);
    } else {
        other = parse_else(parser);
        expect_tag(parser, "endif");
    }
    parser->depth--;
    return kiln__parser_make(parser, KILN__NODE_IF, condition, body, other);
}

static struct kiln__jinja_node *parse_for(struct kiln__parser *parser)
{
    const struct kiln__jinja_text name = kiln__parser_expect_name(parser);
    struct kiln__jinja_text second = {0};
    if (kiln__parser_accept_sign(parser, ","))
        second = kiln__parser_expect_name(parser);
    kiln__parser_expect(parser, KILN__TOKEN_NAME, "in", "\"in\"");
    struct kiln__jinja_node *list = kiln__parse_or(parser);
    struct kiln__jinja_node *condition =
        kiln__parser_accept_name(parser, "if") ? kiln__parse_expression(parser) : NULL;
    end_block(parser);
    parser->loops++;
    struct kiln__jinja_node *body = parse_body(parser);
    parser->loops--;
    struct kiln__jinja_node *other = parse_else(parser);
    expect_tag(parser, "endfor");
    struct kiln__jinja_node *made =
        kiln__parser_make(parser, KILN__NODE_FOR, list, condition, other);
    made->text = name;
    made->other = second;
    made->items = body;
    return kiln__parser_deepen(parser, made, body);
}

static struct kiln__jinja_node *parse_set(struct kiln__parser *parser)
{
    const struct kiln__jinja_text name = kiln__parser_expect_name(parser);
    struct kiln__jinja_text attribute = {0};
    struct kiln__jinja_node *value = NULL, *body = NULL;
    if (kiln__parser_accept_sign(parser, "."))
        attribute = kiln__parser_expect_name(parser);
    if (kiln__parser_accept_sign(parser, "=")) {
        value = kiln__parse_expression(parser);
        end_block(parser);
    } else {
        end_block(parser);
        body = parse_body(parser);
        expect_tag(parser, "endset");
    }
    struct kiln__jinja_node *made = kiln__parser_make(parser, KILN__NODE_SET, value, NULL, NULL);
    made->text = name;
    made->other = attribute;
    made->items = body;
    return kiln__parser_deepen(parser, made, body);
}

static struct kiln__jinja_node *parse_jump(struct kiln__parser *parser,
                                           enum kiln__jinja_node_kind kind)
{
    struct kiln__jinja_node *made = kiln__parser_make(parser, kind, NULL, NULL, NULL);
    if (!parser->loops)
        kiln__jinja_fail(parser->j, KILN_INVALID_ARGUMENT, "no loop is around this");
    end_block(parser);
    return made;
}

static struct kiln__jinja_node *parse_print(struct kiln__parser *parser)
{
    struct kiln__jinja_node *made =
        kiln__parser_make(parser, KILN__NODE_PRINT, kiln__parse_expression(parser), NULL, NULL);
    kiln__parser_expect(parser, KILN__TOKEN_PRINT_END, NULL, "the tag's end");
    return made;
}

static struct kiln__jinja_node *parse_data(struct kiln__parser *parser)
{
    struct kiln__jinja_node *made = kiln__parser_make(parser, KILN__NODE_DATA, NULL, NULL, NULL);
    made->text = parser->at++->text;
    return made;
}

/* NULL: the tag here belongs to what is around. */
static struct kiln__jinja_node *parse_statement(struct kiln__parser *parser)
{
    static const char *const ends[] = {"elif", "else", "endif", "endfor", "endset"};
    if (parser->at->kind == KILN__TOKEN_DATA)
        return parse_data(parser);
    if (parser->at->kind == KILN__TOKEN_PRINT) {
        parser->at++;
        return parse_print(parser);
    }
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (kiln__parser_is_token(parser->at + 1, KILN__TOKEN_NAME, ends[i]))
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

static struct kiln__jinja_node *parse_body(struct kiln__parser *parser)
{
    kiln__parser_enter(parser);
    struct kiln__jinja_node *body = kiln__parser_make(parser, KILN__NODE_BODY, NULL, NULL, NULL),
                            **last = &body->items, *item;
    while (parser->at->kind != KILN__TOKEN_END && (item = parse_statement(parser)) != NULL)
        kiln__parser_append(parser, body, &last, item);
    parser->depth--;
    return body;
}

struct kiln__jinja_node *kiln__jinja_parse(struct kiln__jinja *j)
{
    const struct kiln__jinja_tokens tokens = kiln__jinja_lex(j);
    struct kiln__parser parser = {.j = j, .at = tokens.items};
    struct kiln__jinja_node *body = parse_body(&parser);
    if (parser.at->kind != KILN__TOKEN_END) {
        parser.at++;
        kiln__parser_refuse(&parser, "no end");
    }
    return body;
}
