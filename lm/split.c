/* SPDX-License-Identifier: Apache-2.0 */
/* Regular expressions of pre-tokenizers, by hand:
 *
 * gpt-2    's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 * llama-3  (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|
 *          ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
 *
 * The first alternative that fits is taken. Bytes that are not UTF-8 are of no class. */
#include "lm/split.h"

#include <stdint.h>
#include <string.h>

#include "lm/unicode.h"

#define ANY SIZE_MAX

static const struct kiln__split_rule rules[] = {
    {"gpt-2", false, false, ANY, false},         {"smollm", false, true, ANY, false},
    {"llama-bpe", true, false, 3, true},         {"llama3", true, false, 3, true},
    {"llama-v3", true, false, 3, true},          {"qwen2", true, false, 1, false},
    {"deepseek-r1-qwen", true, false, 1, false}, {"roberta-bpe", false, false, ANY, false},
};

const struct kiln__split_rule *kiln__split_rule(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (strlen(rules[i].name) == length && !memcmp(rules[i].name, name, length))
            return &rules[i];
    return NULL;
}

const char *kiln__split_names(void)
{
    return "gpt-2, smollm, llama-bpe, llama3, llama-v3, qwen2, deepseek-r1-qwen, "
           "roberta-bpe";
}

/* ---- parts of patterns ---- */

/* The class of the character at a place, and its length; 0 at the end. */
static enum kiln__class class_at(const char *at, const char *end, size_t *length)
{
    int32_t point;
    *length = 0;
    if (at == end)
        return 0;
    *length = kiln__unicode_next(at, (size_t)(end - at), &point);
    return kiln__unicode_class(point);
}

/* Behind the characters of some classes, `most` at most. */
static const char *skip(const char *at, const char *end, unsigned classes, size_t most)
{
    size_t length;
    for (; most && class_at(at, end, &length) & classes; most--)
        at += length;
    return at;
}

static const char *skip_newlines(const char *at, const char *end)
{
    while (at < end && (*at == '\r' || *at == '\n'))
        at++;
    return at;
}

/* Behind an ending such as 'll, or NULL. Ignoring case, the long s counts as an s. */
static const char *skip_ending(const char *at, const char *end, bool any_case)
{
    static const char *const endings[] = {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        const char *behind = at, *letter = endings[i];
        for (; *letter && behind < end; letter++) {
            const bool upper = any_case && *behind >= 'A' && *behind <= 'Z';
            if ((upper ? *behind + ('a' - 'A') : *behind) != *letter)
                break;
            behind++;
        }
        if (!*letter)
            return behind;
    }
    if (any_case && end - at >= 3 && !memcmp(at, "'\xc5\xbf", 3))
        return at + 3;
    return NULL;
}

/* \s+(?!\S)|\s+ : white space but for its last character, which goes with what is behind it. */
static const char *skip_spaces(const char *at, const char *end)
{
    const char *behind = at, *last = at;
    size_t length;
    while (class_at(behind, end, &length) == KILN__SPACE) {
        last = behind;
        behind += length;
    }
    return behind == end || last == at ? behind : last;
}

/* \s*[\r\n]+ : white space up to its last new line, or NULL. */
static const char *skip_lines(const char *at, const char *end)
{
    const char *found = NULL;
    size_t length;
    while (class_at(at, end, &length) == KILN__SPACE) {
        const bool is_end = *at == '\r' || *at == '\n';
        at += length;
        if (is_end)
            found = at;
    }
    return found;
}

/* ---- patterns ---- */

static const char *skip_gpt2(const char *at, const char *end)
{
    static const unsigned kinds[] = {KILN__LETTER, KILN__NUMBER, KILN__OTHER};
    const char *behind = skip_ending(at, end, false);
    const char *word = at + (*at == ' ');
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && !behind; i++) {
        const char *run = skip(word, end, kinds[i], ANY);
        behind = run > word ? run : NULL;
    }
    return behind ? behind : skip_spaces(at, end);
}

static const char *skip_wide(const char *at, const char *end, size_t most_digits)
{
    size_t length;
    const enum kiln__class first = class_at(at, end, &length);
    const char *behind = skip_ending(at, end, true);
    if (behind)
        return behind;
    const bool leads = first & (KILN__SPACE | KILN__OTHER) && *at != '\r' && *at != '\n';
    const char *word = at + (leads ? length : 0);
    behind = skip(word, end, KILN__LETTER, ANY);
    if (behind > word)
        return behind;
    if (first == KILN__NUMBER)
        return skip(at, end, KILN__NUMBER, most_digits);
    word = at + (*at == ' ');
    behind = skip(word, end, KILN__OTHER, ANY);
    if (behind > word)
        return skip_newlines(behind, end);
    behind = skip_lines(at, end);
    return behind ? behind : skip_spaces(at, end);
}

/* ---- a text ---- */

struct kiln__split kiln__split_begin(const struct kiln__split_rule *rule, const char *text,
                                     size_t bytes)
{
    return (struct kiln__split){rule, text, text, text + bytes};
}

size_t kiln__split_next(struct kiln__split *split, const char **piece)
{
    const struct kiln__split_rule *rule = split->rule;
    const char *at = split->at;
    *piece = at;
    if (at == split->end)
        return 0;
    if (at == split->part) { /* a digit, or what is up to the next one */
        const char *digit = rule->digits ? skip(at, split->end, KILN__NUMBER, 1) : at;
        const unsigned others = KILN__LETTER | KILN__SPACE | KILN__OTHER;
        split->part = digit > at     ? digit
                      : rule->digits ? skip(at, split->end, others, ANY)
                                     : split->end;
    }
    split->at =
        rule->wide ? skip_wide(at, split->part, rule->most_digits) : skip_gpt2(at, split->part);
    return (size_t)(split->at - at);
}
