/* SPDX-License-Identifier: Apache-2.0 */
/* The tree of a kernel's statements, whose nodes lie in the order of the text, and the walk that
 * prints it. */
#include "util/code.h"

#include <assert.h>
#include <stdarg.h>
#include <string.h>

/* ---- building ---- */

static void code_push(struct kiln__code *code, enum kiln__code_kind kind, bool single)
{
    if (!kiln__vector_add(&code->nodes,
                          (struct kiln__code_node){kind, single, code->words.length, code->open}))
        code->words.failed = true;
}

static void code_close(struct kiln__code *code)
{
    const struct kiln__code_node *open = &code->nodes.items[code->open - 1];
    size_t parent = open->parent;
    code_push(code, KILN__END, open->single);
    code->open = parent;
}

/* Those that have one statement, and have it, are over. */
static void code_close_singles(struct kiln__code *code)
{
    while (code->open && code->nodes.items[code->open - 1].single && code->nodes.count > code->open)
        code_close(code);
}

struct kiln__text *kiln__code_node(struct kiln__code *code, enum kiln__code_kind kind, bool single,
                                   const char *format, ...)
{
    va_list arguments;
    code_close_singles(code);
    code_push(code, kind, single);
    va_start(arguments, format);
    kiln__text_vadd(&code->words, format, arguments);
    va_end(arguments);
    if (kind > KILN__VERBATIM)
        code->open = code->nodes.count;
    return &code->words;
}

void kiln__code_end(struct kiln__code *code)
{
    code_close_singles(code);
    assert(code->open || code->words.failed);
    if (code->open)
        code_close(code);
}

void kiln__code_unroll(struct kiln__code *code, unsigned times)
{
    kiln__code_line(code, "#pragma unroll");
    if (times)
        kiln__text_add(&code->words, " %u", times);
}

/* ---- printing ---- */

/* What stands around a node's words, and what opens its block. */
static const struct {
    const char *before, *after, *brace;
} frames[] = {
    [KILN__STATEMENT] = {"", ";", ""},
    [KILN__VERBATIM] = {"", "", ""},
    [KILN__FUNCTION] = {"", "", "\n{"},
    [KILN__BLOCK] = {"", "", "{"},
    [KILN__FOR] = {"for (", ")", " {"},
    [KILN__WHILE] = {"while (", ")", " {"},
    [KILN__IF] = {"if (", ")", " {"},
    [KILN__ELSE] = {"else", "", " {"},
    [KILN__SWITCH] = {"switch (", ")", " {"},
    [KILN__CASE] = {"case ", ":", " {"},
    [KILN__END] = {"", "", "}"},
};
enum { INDENT = 4 };

/* Lines of words: each a statement, or parameters, which are further in than the function. Files of
 * kernels/ are long and stand as they are. */
static void print_words(enum kiln__code_kind kind, const char *words, size_t length, int depth,
                        struct kiln__text *text)
{
    const int in = INDENT * (depth + (kind == KILN__FUNCTION));
    const char *line;
    while (kind != KILN__VERBATIM && (line = memchr(words, '\n', length))) {
        size_t part = (size_t)(line - words);
        kiln__text_add_bytes(text, words, part);
        kiln__text_add(text, "%s\n%*s", frames[kind].after, in, "");
        words += part + 1;
        length -= part + 1;
    }
    kiln__text_add_bytes(text, words, length);
    kiln__text_add(text, "%s", frames[kind].after);
}

static void print_node(const struct kiln__code_node *node, const char *words, size_t length,
                       int depth, struct kiln__text *text)
{
    const enum kiln__code_kind kind = node->kind;
    if (kind == KILN__END && node->single)
        return;
    kiln__text_add(text, "%*s%s", kind == KILN__VERBATIM ? 0 : INDENT * depth, "",
                   frames[kind].before);
    print_words(kind, words, length, depth, text);
    kiln__text_add(text, "%s\n", node->single ? "" : frames[kind].brace);
}

void kiln__code_print(struct kiln__code *code, struct kiln__text *text)
{
    code_close_singles(code);
    assert(code->open == 0 || code->words.failed);
    const size_t count = code->words.failed ? 0 : code->nodes.count;
    int depth = 0;
    for (size_t i = 0; i < count; i++) {
        const struct kiln__code_node *node = &code->nodes.items[i];
        size_t end = i + 1 < count ? node[1].words : code->words.length, length = end - node->words;
        const char *words = code->words.data + node->words;
        length -= length && words[length - 1] == '\n';
        depth -= node->kind == KILN__END;
        print_node(node, words, length, depth, text);
        depth += node->kind > KILN__VERBATIM && node->kind < KILN__END;
    }
    text->failed = text->failed || code->words.failed;
    kiln__text_free(&code->words);
    kiln__vector_free(&code->nodes);
}
