/* SPDX-License-Identifier: Apache-2.0 */
/* Expressions of elements, read from the left by recursive descent.
 *
 *   choice   = binary ["?" choice ":" choice | "if" binary "else" choice]
 *   binary   = unary {operator unary}             operators bind as the table says
 *   unary    = ("-" | "+" | "~" | "!") unary | power
 *   power    = primary ["**" unary]
 *   primary  = number | name | name "(" choice {"," choice} ")" | "(" choice ")" */
#include "nn/expression.h"

#include <kiln/custom.h>
#include <kiln/movement.h>
#include <kiln/operations.h>

#include <stdlib.h>
#include <string.h>

#include "record/call.h"
#include "util/format.h"
#include "util/text.h"

#define MOST_DEPTH 100 /* of what is inside of each other */

struct reader {
    struct kiln__expression e;
    const char *at;
    unsigned depth;
    const char *names; /* given; NULL: as they come */
    struct kiln__text *found;
    const kiln_tensor *operands;
};

/* Of ASCII, whatever the locale. */
static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static size_t word_length(const char *text)
{
    size_t length = 0;
    while (is_letter(text[length]) || (length && is_digit(text[length])))
        length++;
    return length;
}

bool kiln__expression_fail(struct kiln__expression *e, const char *place, const char *format, ...)
{
    va_list arguments;
    struct kiln__phrase what = {0}, text;
    va_start(arguments, format);
    kiln__vformat(what.text, sizeof what.text, format, arguments);
    va_end(arguments);
    text = kiln__phrase("%.80s%s", e->text, strlen(e->text) > 80 ? "..." : "");
    kiln__phrase_clean(&what);
    kiln__phrase_clean(&text);
    if (!e->error->status)
        kiln__fail(e->error, KILN_INVALID_ARGUMENT, "%s: column %zu of \"%s\": %s", e->call,
                   (size_t)(place - e->text) + 1, text.text, what.text);
    return false;
}

#define REFUSE(reader, place, ...) kiln__expression_fail(&(reader)->e, place, __VA_ARGS__)

/* ---- words ---- */

static void skip_blanks(struct reader *r)
{
    while (is_blank(*r->at))
        r->at++;
}

static bool takes(struct reader *r, const char *token)
{
    skip_blanks(r);
    if (strncmp(r->at, token, strlen(token)) != 0)
        return false;
    r->at += strlen(token);
    return true;
}

static bool is_word(const char *at, const char *word)
{
    return word_length(at) == strlen(word) && !strncmp(at, word, strlen(word));
}

static bool takes_word(struct reader *r, const char *word)
{
    skip_blanks(r);
    if (!is_word(r->at, word))
        return false;
    r->at += strlen(word);
    return true;
}

/* What stands at a place, for sentences. */
static struct kiln__phrase what_is_at(const char *at)
{
    size_t length = word_length(at);
    if (!*at)
        return kiln__phrase("the end");
    return kiln__phrase("\"%.*s\"", !length ? 1 : length < 64 ? (int)length : 64, at);
}

/* Which of the words of `names` it is; how many there are if it is none. */
static size_t find_name(const char *names, const char *name, size_t length)
{
    size_t number = 0;
    while (names && *names) {
        const size_t blanks = strspn(names, " "), here = strcspn(names + blanks, " ");
        names += blanks;
        if (here == length && !strncmp(names, name, length))
            return number;
        number += here > 0;
        names += here;
    }
    return number;
}

static size_t count_names(const char *names)
{
    return find_name(names, "", 0);
}

static struct kiln__phrase nth_name(const char *names, size_t number)
{
    for (;;) {
        names += strspn(names, " ");
        const size_t length = strcspn(names, " ");
        if (!number--)
            return kiln__phrase("%.*s", length < 64 ? (int)length : 64, names);
        names += length;
    }
}

/* ---- what is inside ---- */

static bool read_choice(struct reader *r, struct kiln__value *result);
static bool read_unary(struct reader *r, struct kiln__value *result);

static bool read_number(struct reader *r, struct kiln__value *result)
{
    const char *start = r->at, *at = start;
    char *end;
    while (is_digit(*at))
        at++;
    *result = (struct kiln__value){.is_number = true, .is_whole = true};
    result->number = kiln__parse_double(start, &end);
    if (*at == '.' || *at == 'e' || *at == 'E')
        result->is_whole = false;
    else
        end = (char *)at; /* "0x" begins a name */
    r->at = end;
    if (!result->is_whole && (*r->at == 'f' || *r->at == 'F'))
        r->at++; /* as C writes a float */
    if (word_length(r->at) || *r->at == '.')
        return REFUSE(r, start, "this is no number");
    if (result->is_whole && result->number >= KILN__MOST_WHOLE)
        return REFUSE(r, start, "a whole number beyond 2^53");
    return true;
}

static bool read_call(struct reader *r, const char *name, size_t length, struct kiln__value *result)
{
    struct kiln__value arguments[KILN__MOST_ARGUMENTS] = {{.number = 0}};
    unsigned count = 0;
    if (!takes(r, ")")) {
        do {
            if (count == KILN__MOST_ARGUMENTS)
                return REFUSE(r, r->at, "%.*s() takes no further argument", (int)length, name);
            if (!read_choice(r, &arguments[count++]))
                return false;
        } while (takes(r, ","));
        if (!takes(r, ")"))
            return REFUSE(r, r->at, "a \")\" is missing before %s", what_is_at(r->at).text);
    }
    r->e.where = name;
    return kiln__value_call(&r->e, name, length, count, arguments, result);
}

static bool read_name(struct reader *r, struct kiln__value *result)
{
    const char *name = r->at;
    const size_t length = word_length(name);
    r->at += length;
    if (takes(r, "("))
        return read_call(r, name, length, result);
    const char *known = r->names ? r->names : r->found->data;
    size_t number = find_name(known, name, length);
    if (number == count_names(known)) {
        if (r->names)
            return REFUSE(r, name, "%.*s is none of the names \"%s\"", (int)length, name, r->names);
        kiln__text_add(r->found, "%s%.*s", number ? " " : "", (int)length, name);
    }
    *result = (struct kiln__value){.tensor = kiln__none};
    if (r->e.batch)
        result->tensor = r->operands[number];
    return true;
}

static bool read_primary(struct reader *r, struct kiln__value *result)
{
    skip_blanks(r);
    if (is_digit(*r->at) || (*r->at == '.' && is_digit(r->at[1])))
        return read_number(r, result);
    if (word_length(r->at) && !is_word(r->at, "if") && !is_word(r->at, "else"))
        return read_name(r, result);
    if (!takes(r, "("))
        return REFUSE(r, r->at, "a name, a number or a \"(\" is missing before %s",
                      what_is_at(r->at).text);
    if (!read_choice(r, result))
        return false;
    return takes(r, ")") ||
           REFUSE(r, r->at, "a \")\" is missing before %s", what_is_at(r->at).text);
}

static bool read_power(struct reader *r, struct kiln__value *result)
{
    struct kiln__value operands[2];
    if (!read_primary(r, result))
        return false;
    skip_blanks(r);
    const char *where = r->at;
    if (!takes(r, "**"))
        return true;
    operands[0] = *result;
    if (!read_unary(r, &operands[1]))
        return false;
    r->e.where = where;
    return kiln__value_binary(&r->e, KILN__POWER, operands, result);
}

static bool read_unary_inside(struct reader *r, struct kiln__value *result)
{
    skip_blanks(r);
    const char *where = r->at;
    const enum kiln__operator op = *where == '-'                      ? KILN__NEGATIVE
                                   : *where == '~'                    ? KILN__BIT_NOT
                                   : *where == '!' && where[1] != '=' ? KILN__NOT
                                                                      : KILN__NO_OPERATOR;
    if (*where == '+') {
        r->at++;
        return read_unary(r, result);
    }
    if (!op)
        return read_power(r, result);
    struct kiln__value operand;
    r->at++;
    if (!read_unary(r, &operand))
        return false;
    r->e.where = where;
    return kiln__value_unary(&r->e, op, operand, result);
}

static bool read_unary(struct reader *r, struct kiln__value *result)
{
    if (r->depth == MOST_DEPTH)
        return REFUSE(r, r->at, "more than %d parentheses and signs inside of each other",
                      MOST_DEPTH);
    r->depth++;
    const bool done = read_unary_inside(r, result);
    r->depth--;
    return done;
}

/* ---- operators ---- */

#define COMPARES 3

/* Longer ones first where one begins another. */
static const struct {
    const char *text;
    unsigned level; /* the higher, the more tightly it binds */
    enum kiln__operator op;
} operators[] = {
    /* clang-format off */
    {"||", 1, KILN__EITHER},
    {"&&", 2, KILN__BOTH},
    {"<<", 7, KILN__SHIFT_LEFT},
    {">>", 7, KILN__SHIFT_RIGHT},
    {"<=", COMPARES, KILN__LESS_EQUAL},
    {">=", COMPARES, KILN__GREATER_EQUAL},
    {"==", COMPARES, KILN__EQUAL},
    {"!=", COMPARES, KILN__NOT_EQUAL},
    {"<", COMPARES, KILN__LESS},
    {">", COMPARES, KILN__GREATER},
    {"|", 4, KILN__BIT_OR},
    {"^", 5, KILN__BIT_XOR},
    {"&", 6, KILN__BIT_AND},
    {"+", 8, KILN__PLUS},
    {"-", 8, KILN__MINUS},
    {"//", 9, KILN__DIVIDED_DOWN},
    {"*", 9, KILN__TIMES},
    {"/", 9, KILN__DIVIDED},
    {"%", 9, KILN__REMAINDER},
    /* clang-format on */
};
#define OPERATORS (sizeof operators / sizeof *operators)

/* The operator that comes next; OPERATORS: none does. */
static size_t next_operator(struct reader *r)
{
    size_t i = 0;
    skip_blanks(r);
    while (i < OPERATORS && strncmp(r->at, operators[i].text, strlen(operators[i].text)) != 0)
        i++;
    return i;
}

/* What operators of this level or higher join. */
static bool read_binary(struct reader *r, unsigned level, struct kiln__value *result)
{
    bool compared = false;
    if (!read_unary(r, result))
        return false;
    for (size_t i; (i = next_operator(r)) < OPERATORS && operators[i].level >= level;) {
        struct kiln__value operands[2] = {*result};
        const char *where = r->at;
        if (compared && operators[i].level == COMPARES)
            return REFUSE(r, where, "a comparison of a comparison: put one in parentheses");
        compared = operators[i].level == COMPARES;
        r->at += strlen(operators[i].text);
        if (!read_binary(r, operators[i].level + 1, &operands[1]))
            return false;
        r->e.where = where;
        if (!kiln__value_binary(&r->e, operators[i].op, operands, result))
            return false;
    }
    return true;
}

static bool read_choice(struct reader *r, struct kiln__value *result)
{
    struct kiln__value operands[3]; /* condition, value, other value */
    struct kiln__value first;
    if (!read_binary(r, 0, &first))
        return false;
    skip_blanks(r);
    const char *where = r->at;
    if (takes(r, "?")) {
        operands[0] = first;
        if (!read_choice(r, &operands[1]))
            return false;
        if (!takes(r, ":"))
            return REFUSE(r, r->at, "the \":\" of the \"?\" is missing before %s",
                          what_is_at(r->at).text);
    } else if (takes_word(r, "if")) {
        operands[1] = first;
        if (!read_binary(r, 0, &operands[0]))
            return false;
        if (!takes_word(r, "else"))
            return REFUSE(r, r->at, "the \"else\" of the \"if\" is missing before %s",
                          what_is_at(r->at).text);
    } else {
        *result = first;
        return true;
    }
    /* Where choices follow each other, each is inside of the one before. */
    if (r->depth == MOST_DEPTH)
        return REFUSE(r, r->at, "more than %d choices inside of each other", MOST_DEPTH);
    r->depth++;
    if (!read_choice(r, &operands[2]))
        return false;
    r->depth--;
    r->e.where = where;
    return kiln__value_choose(&r->e, operands, result);
}

/* ---- the calls ---- */

static bool read_all(struct reader *r, struct kiln__value *result)
{
    r->at = r->e.text;
    r->depth = 0;
    if (!read_choice(r, result))
        return false;
    skip_blanks(r);
    return !*r->at || REFUSE(r, r->at, "an operator is missing before %s", what_is_at(r->at).text);
}

/* Look at the text, whose names are put into `found`. */
static bool look(const char *call, const char *text, const char *names, struct kiln__text *found,
                 struct kiln__error *error)
{
    struct reader r = {
        .e = {.call = call, .text = text, .error = error}, .names = names, .found = found};
    struct kiln__value value;
    if (!text)
        kiln__fail(error, KILN_INVALID_ARGUMENT, "%s: text is NULL", call);
    else if (read_all(&r, &value) && found->failed)
        kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "%s: no memory for the names", call);
    return !error->status;
}

kiln_status kiln_elementwise_names(const char *text, char **names)
{
    struct kiln__text found = {0};
    struct kiln__error error = {0};
    if (names)
        *names = NULL;
    else
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: names is NULL", __func__);
    kiln__text_add(&found, "%s", "");
    if (look(__func__, text, NULL, &found, &error) && !(*names = kiln__text_take(&found)))
        kiln__fail(&error, KILN_OUT_OF_HOST_MEMORY, "%s: no memory for the names", __func__);
    kiln__text_free(&found);
    return error.status;
}

static kiln_tensor record(struct reader *r, size_t n)
{
    struct kiln__value value;
    kiln_batch *batch = r->e.batch;
    const char *names = r->names ? r->names : r->found->data;
    const size_t wanted = count_names(names);
    if (n != wanted || (n && !r->operands)) {
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT,
                   "kiln_elementwise: \"%.80s\" is of %zu operands (%.80s), not of %zu", r->e.text,
                   wanted, names ? names : "", r->operands ? n : 0);
        return kiln__none;
    }
    for (size_t i = 0; i < n; i++) {
        const struct kiln__phrase name = nth_name(names, i);
        if (!kiln__batch_node(batch, r->operands[i], r->e.call, name.text))
            return kiln__none;
    }
    if (!read_all(r, &value))
        return kiln__none;
    return kiln__value_tensor(&r->e, value);
}

kiln_tensor kiln_elementwise(kiln_batch *batch, const char *text, const char *names, size_t n,
                             const kiln_tensor *operands)
{
    KILN__CALL(batch);
    if (!kiln__batch_is_open(batch, __func__))
        return kiln__none;
    struct kiln__text found = {0};
    kiln_tensor result = kiln__none;
    kiln__text_add(&found, "%s", "");
    if (look(__func__, text, names, &found, &batch->error)) {
        struct reader r = {
            .e = {.call = __func__, .text = text, .batch = batch, .error = &batch->error},
            .names = names,
            .found = &found,
            .operands = operands};
        result = record(&r, n);
    }
    kiln__text_free(&found);
    return batch->error.status ? kiln__none : result;
}
