/* SPDX-License-Identifier: Apache-2.0 */
/* From a template's source to tokens; white space around tags goes here. */
#include <string.h>

#include "lm/jinja_parts.h"

struct lexer {
    struct kiln__jinja *j;
    struct kiln__jinja_text source;
    size_t at;
    bool line_starts; /* what ended at `at` ended with a new line */
    struct kiln__jinja_tokens tokens;
};

static char peek(const struct lexer *lexer, size_t ahead)
{
    const size_t at = lexer->at + ahead;
    return at < lexer->source.length ? lexer->source.bytes[at] : '\0';
}

static bool looks_at(const struct lexer *lexer, const char *word)
{
    const size_t length = strlen(word);
    return lexer->source.length - lexer->at >= length &&
           !memcmp(lexer->source.bytes + lexer->at, word, length);
}

static struct kiln__jinja_token *add(struct lexer *lexer, enum kiln__jinja_token_kind kind,
                                     size_t from, size_t to)
{
    struct kiln__jinja_tokens *tokens = &lexer->tokens;
    tokens->items = kiln__jinja_grow(lexer->j, tokens->items, tokens->count, &tokens->capacity,
                                     sizeof *tokens->items);
    struct kiln__jinja_token *token = &tokens->items[tokens->count++];
    *token = (struct kiln__jinja_token){kind, from, kiln__jinja_part(lexer->source, from, to), 0};
    return token;
}

/* ---- between tags ---- */

/* Behind white space. */
static size_t skip_space(const struct lexer *lexer, size_t at)
{
    const struct kiln__jinja_text rest = kiln__jinja_part(lexer->source, at, lexer->source.length);
    return lexer->source.length - kiln__jinja_strip(lexer->j, rest, NULL, true, false).length;
}

/* What stands before a tag, without the space that the tag takes: all of it ("-"), or that in front
 * of a block which begins its line. */
static void add_data(struct lexer *lexer, size_t from, size_t to, char tag, char sign)
{
    struct kiln__jinja_text data = kiln__jinja_part(lexer->source, from, to);
    if (sign == '-') {
        data = kiln__jinja_strip(lexer->j, data, NULL, false, true);
    } else if (sign != '+' && tag != '{') {
        size_t line = data.length;
        while (line && data.bytes[line - 1] != '\n')
            line--;
        const struct kiln__jinja_text last = kiln__jinja_part(data, line, data.length);
        if ((line || lexer->line_starts) &&
            !kiln__jinja_strip(lexer->j, last, NULL, true, false).length)
            data.length = line;
    }
    if (data.length)
        add(lexer, KILN__TOKEN_DATA, from, from + data.length);
}

/* Behind a tag's end, whose sign comes before it. */
static void end_tag(struct lexer *lexer, char tag, char sign)
{
    const size_t begin = lexer->at;
    lexer->at += sign ? 3 : 2;
    if (sign == '-')
        lexer->at = skip_space(lexer, lexer->at);
    else if (sign != '+' && tag != '{' && peek(lexer, 0) == '\n')
        lexer->at++;
    lexer->line_starts = lexer->at > begin && lexer->source.bytes[lexer->at - 1] == '\n';
}

/* Whether the tag ends here, and by which sign: "-%}". */
static bool at_end(const struct lexer *lexer, char tag, char *sign)
{
    const char close[] = {tag == '{' ? '}' : tag, '}', '\0'};
    *sign = '\0';
    if (looks_at(lexer, close))
        return true;
    const char first = peek(lexer, 0);
    if ((first == '-' || (first == '+' && tag != '{')) && peek(lexer, 1) == close[0] &&
        peek(lexer, 2) == '}')
        *sign = first;
    return *sign != '\0';
}

/* ---- within tags ---- */

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static void lex_name(struct lexer *lexer)
{
    const size_t from = lexer->at;
    while (is_letter(peek(lexer, 0)) || is_digit(peek(lexer, 0)))
        lexer->at++;
    add(lexer, KILN__TOKEN_NAME, from, lexer->at);
}

static void lex_number(struct lexer *lexer)
{
    const size_t from = lexer->at;
    int64_t number = 0;
    for (; is_digit(peek(lexer, 0)); lexer->at++)
        if (__builtin_mul_overflow(number, 10, &number) ||
            __builtin_add_overflow(number, peek(lexer, 0) - '0', &number))
            kiln__jinja_fail(lexer->j, KILN_UNSUPPORTED, "a number of more than 63 bits");
    if (is_letter(peek(lexer, 0)) || (peek(lexer, 0) == '.' && is_digit(peek(lexer, 1))))
        kiln__jinja_fail(lexer->j, KILN_UNSUPPORTED, "kiln knows whole numbers alone, not \"%.*s\"",
                         (int)(lexer->at - from + 2), lexer->source.bytes + from);
    add(lexer, KILN__TOKEN_WHOLE, from, lexer->at)->whole = number;
}

static size_t put_point(char *to, uint32_t point)
{
    static const unsigned char heads[] = {0, 0, 0xc0, 0xe0, 0xf0};
    const size_t length = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    for (size_t i = length; i-- > 1; point >>= 6)
        to[i] = (char)(0x80 | (point & 0x3f));
    to[0] = (char)(length == 1 ? point : heads[length] | point);
    return length;
}

/* \x41, \u00e9, \U0001f600: digits behind the letter at a place; 0: there are too few of them. */
static size_t read_escape(struct kiln__jinja_text text, size_t at, size_t digits, uint32_t *point)
{
    *point = 0;
    if (digits >= text.length - at)
        return 0;
    for (size_t i = 1; i <= digits; i++) {
        const char c = text.bytes[at + i];
        const char lower = (char)(c | 0x20);
        if (!is_digit(c) && !(lower >= 'a' && lower <= 'f'))
            return 0;
        *point = *point << 4 | (uint32_t)(is_digit(c) ? c - '0' : lower - 'a' + 10);
    }
    return *point < 0x110000 ? digits : 0;
}

/* What a text between quotes says, as Python reads it. */
static struct kiln__jinja_text unescape(struct lexer *lexer, struct kiln__jinja_text text)
{
    static const char names[] = "ntrabfv\\'\"", values[] = "\n\t\r\a\b\f\v\\'\"";
    char *to = kiln__jinja_take(lexer->j, text.length + 1);
    size_t count = 0;
    for (size_t i = 0; i < text.length; i++) {
        const char c = text.bytes[i];
        const char next = i + 1 < text.length ? text.bytes[i + 1] : '\0';
        const char *name = c == '\\' && next ? strchr(names, next) : NULL;
        const size_t wide = next == 'x' ? 2 : next == 'u' ? 4 : next == 'U' ? 8 : 0;
        uint32_t point;
        if (name) {
            to[count++] = values[name - names];
            i++;
        } else if (c == '\\' && wide) {
            const size_t digits = read_escape(text, i + 1, wide, &point);
            if (!digits)
                kiln__jinja_fail(lexer->j, KILN_INVALID_ARGUMENT, "\"\\%c\" without its digits",
                                 next);
            count += put_point(to + count, point); /* shorter than the escape */
            i += 1 + digits;
        } else if (c == '\\' && next == '\n') {
            i++;
        } else {
            to[count++] = c;
        }
    }
    return (struct kiln__jinja_text){to, NULL, count};
}

static void lex_text(struct lexer *lexer)
{
    const char quote = peek(lexer, 0);
    const size_t from = lexer->at++;
    while (lexer->at < lexer->source.length && peek(lexer, 0) != quote)
        lexer->at += peek(lexer, 0) == '\\' ? 2 : 1;
    if (lexer->at >= lexer->source.length)
        kiln__jinja_fail(lexer->j, KILN_INVALID_ARGUMENT, "a text has no end");
    struct kiln__jinja_token *token = add(lexer, KILN__TOKEN_TEXT, from + 1, lexer->at++);
    const struct kiln__jinja_text text = token->text;
    token->text = unescape(lexer, text);
}

/* Answers how a bracket changes how deep the tag is in brackets. */
static int lex_sign(struct lexer *lexer)
{
    static const char *const wide[] = {"==", "!=", "<=", ">=", "//", "**"};
    static const char single[] = "+-*/%~<>=.:|,()[]{}";
    const char c = peek(lexer, 0);
    size_t length = c && strchr(single, c) ? 1 : 0;
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        if (looks_at(lexer, wide[i]))
            length = 2;
    if (!length)
        kiln__jinja_fail(lexer->j, KILN_UNSUPPORTED, "kiln knows no \"%.*s\" in a tag",
                         (int)(kiln__jinja_step(lexer->source, lexer->at) - lexer->at),
                         lexer->source.bytes + lexer->at);
    add(lexer, KILN__TOKEN_SIGN, lexer->at, lexer->at + length);
    lexer->at += length;
    return strchr("([{", c) ? 1 : strchr(")]}", c) ? -1 : 0;
}

/* A tag behind its beginning. */
static void lex_tag(struct lexer *lexer, char tag)
{
    const size_t begin = lexer->at;
    int brackets = 0;
    char sign;
    for (;;) {
        lexer->at = skip_space(lexer, lexer->at);
        lexer->j->place = lexer->at;
        if (lexer->at >= lexer->source.length) {
            lexer->j->place = begin;
            kiln__jinja_fail(lexer->j, KILN_INVALID_ARGUMENT, "a tag has no end");
        }
        if (!brackets && at_end(lexer, tag, &sign))
            break;
        const char c = peek(lexer, 0);
        if (is_letter(c))
            lex_name(lexer);
        else if (is_digit(c))
            lex_number(lexer);
        else if (c == '"' || c == '\'')
            lex_text(lexer);
        else
            brackets += lex_sign(lexer);
    }
    add(lexer, tag == '{' ? KILN__TOKEN_PRINT_END : KILN__TOKEN_BLOCK_END, lexer->at,
        lexer->at + 2);
    end_tag(lexer, tag, sign);
}

static void skip_comment(struct lexer *lexer)
{
    const size_t begin = lexer->at;
    char sign;
    while (lexer->at < lexer->source.length && !at_end(lexer, '#', &sign))
        lexer->at++;
    if (lexer->at >= lexer->source.length) {
        lexer->j->place = begin;
        kiln__jinja_fail(lexer->j, KILN_INVALID_ARGUMENT, "a comment has no end");
    }
    end_tag(lexer, '#', sign);
}

/* What is in it would not be read as tags. */
static void refuse_raw(const struct lexer *lexer)
{
    const size_t word = skip_space(lexer, lexer->at);
    const struct kiln__jinja_text rest =
        kiln__jinja_part(lexer->source, word, lexer->source.length);
    if (rest.length > 3 && !memcmp(rest.bytes, "raw", 3) && !is_letter(rest.bytes[3]) &&
        !is_digit(rest.bytes[3]))
        kiln__jinja_fail(lexer->j, KILN_UNSUPPORTED, "kiln knows no \"raw\"");
}

struct kiln__jinja_tokens kiln__jinja_lex(struct kiln__jinja *j)
{
    struct lexer lexer = {.j = j, .source = j->source, .line_starts = true};
    size_t from = 0;
    while (lexer.at < lexer.source.length) {
        const char tag = peek(&lexer, 0) == '{' ? peek(&lexer, 1) : '\0';
        if (tag != '{' && tag != '%' && tag != '#') {
            lexer.at++;
            continue;
        }
        const char third = peek(&lexer, 2), sign = third == '-' || third == '+' ? third : '\0';
        j->place = lexer.at;
        add_data(&lexer, from, lexer.at, tag, sign);
        if (tag != '#')
            add(&lexer, tag == '{' ? KILN__TOKEN_PRINT : KILN__TOKEN_BLOCK, lexer.at, lexer.at + 2);
        lexer.at += sign ? 3 : 2;
        if (tag == '%')
            refuse_raw(&lexer);
        if (tag == '#')
            skip_comment(&lexer);
        else
            lex_tag(&lexer, tag);
        from = lexer.at;
    }
    if (from < lexer.source.length)
        add(&lexer, KILN__TOKEN_DATA, from, lexer.source.length);
    add(&lexer, KILN__TOKEN_END, lexer.source.length, lexer.source.length);
    return lexer.tokens;
}
