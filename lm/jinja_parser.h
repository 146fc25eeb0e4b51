/* SPDX-License-Identifier: Apache-2.0 */
/* What reading expressions and statements of templates has in common. */
#ifndef KILN_LM_JINJA_PARSER_H
#define KILN_LM_JINJA_PARSER_H

#include "lm/jinja_parts.h"

struct kiln__parser {
    struct kiln__jinja *j;
    const struct kiln__jinja_token *at;
    int depth, loops; /* around what is read */
};

/* Whether a token is this one; `word` NULL: any of the kind. */
bool kiln__parser_is_token(const struct kiln__jinja_token *token, enum kiln__jinja_token_kind kind,
                           const char *word);

/* Read the token here if it is this one. */
bool kiln__parser_accept_sign(struct kiln__parser *parser, const char *word);
bool kiln__parser_accept_name(struct kiln__parser *parser, const char *word);

/* Read it, or end the run with a sentence of what was `wanted`. */
void kiln__parser_expect(struct kiln__parser *parser, enum kiln__jinja_token_kind kind,
                         const char *word, const char *wanted);
struct kiln__jinja_text kiln__parser_expect_name(struct kiln__parser *parser);
_Noreturn void kiln__parser_refuse(struct kiln__parser *parser, const char *wanted);

/* A node of these; put one behind the last of another's items; one that has another below it. */
struct kiln__jinja_node *kiln__parser_make(struct kiln__parser *parser,
                                           enum kiln__jinja_node_kind kind,
                                           struct kiln__jinja_node *a, struct kiln__jinja_node *b,
                                           struct kiln__jinja_node *c);
void kiln__parser_append(struct kiln__parser *parser, struct kiln__jinja_node *to,
                         struct kiln__jinja_node ***last, struct kiln__jinja_node *item);
struct kiln__jinja_node *kiln__parser_deepen(struct kiln__parser *parser,
                                             struct kiln__jinja_node *made,
                                             struct kiln__jinja_node *below);

/* One thing deeper, within bounds; who leaves it counts `depth` down. */
void kiln__parser_enter(struct kiln__parser *parser);

/* With "a if b else c", and without. */
struct kiln__jinja_node *kiln__parse_expression(struct kiln__parser *parser);
struct kiln__jinja_node *kiln__parse_or(struct kiln__parser *parser);

#endif
