/* SPDX-License-Identifier: Apache-2.0 */
/* The tree of a kernel's statements, whose nodes lie in the order of the text, and the walk that
 * prints it. */
#include "codegen/code.h"

#include <assert.h>
#include <stdarg.h>
#include <string.h>

/* ---- building ---- */

static void code_push(struct kiln__code *code, enum kiln__code_kind kind, bool single, size_t words)
{
    struct kiln__code_node *node = kiln__vector_push(&code->nodes);
    if (node)
        *node = (struct kiln__code_node){kind, single, words, code->open};
    else
        code->words.failed = true;
}

static void code_close(struct kiln__code *code, size_t words)
{
    const struct kiln__code_node *open = &code->nodes.items[code->open - 1];
    size_t parent = open->parent;
    code_push(code, KILN__END, open->single, words);
    code->open = parent;
}

/* Those that have one statement, and have it, are over. */
static void code_close_singles(struct kiln__code *code, size_t words)
{
    while (code->open && code->nodes.items[code->open - 1].single && code->nodes.count > code->open)
        code_close(code, words);
}

static void code_begin(struct kiln__code *code, enum kiln__code_kind kind, bool single,
                       size_t words)
{
    code_close_singles(code, words);
    code_push(code, kind, single, words);
}

/* Behind the words that have just been added from `from` on, which are those of a statement: one
 * more for each of their lines. */
static void code_split(struct kiln__code *code, size_t from)
{
    const char *line = code->words.failed ? NULL : strchr(code->words.data + from, '\n');
    for (; line; line = strchr(line + 1, '\n'))
        code_begin(code, KILN__STATEMENT, false, (size_t)(line + 1 - code->words.data));
}

#define CODE_WORDS(code, format)                                                                   \
    do {                                                                                           \
        va_list arguments;                                                                         \
        va_start(arguments, format);                                                               \
        kiln__text_vadd(&(code)->words, format, arguments);                                        \
        va_end(arguments);                                                                         \
    } while (0)

struct kiln__text *kiln__code_add(struct kiln__code *code, const char *format, ...)
{
    size_t from = code->words.length;
    code_begin(code, KILN__STATEMENT, false, from);
    CODE_WORDS(code, format);
    code_split(code, from);
    return &code->words;
}

struct kiln__text *kiln__code_line(struct kiln__code *code, const char *format, ...)
{
    code_begin(code, KILN__LINE, false, code->words.length);
    CODE_WORDS(code, format);
    return &code->words;
}

static void code_open(struct kiln__code *code, enum kiln__code_kind kind, bool single)
{
    code_begin(code, kind, single, code->words.length);
    code->open = code->nodes.count;
}

struct kiln__text *kiln__code_open(struct kiln__code *code, enum kiln__code_kind kind,
                                   const char *format, ...)
{
    code_open(code, kind, false);
    CODE_WORDS(code, format);
    return &code->words;
}

struct kiln__text *kiln__code_single(struct kiln__code *code, enum kiln__code_kind kind,
                                     const char *format, ...)
{
    code_open(code, kind, true);
    CODE_WORDS(code, format);
    return &code->words;
}

void kiln__code_block(struct kiln__code *code)
{
    code_open(code, KILN__BLOCK, false);
}

void kiln__code_end(struct kiln__code *code)
{
    code_close_singles(code, code->words.length);
    assert(code->open || code->words.failed);
    if (code->open)
        code_close(code, code->words.length);
}

void kiln__code_unroll(struct kiln__code *code, unsigned times)
{
    kiln__code_line(code, "#pragma unroll");
    if (times)
        kiln__text_add(&code->words, " %u", times);
}

void kiln__code_barrier(struct kiln__code *code)
{
    kiln__code_add(code, "barrier(CLK_LOCAL_MEM_FENCE)");
}

/* ---- printing ---- */

/* What stands around a node's words, and what opens its block. */
static const struct {
    const char *before, *after, *brace;
} frames[] = {
    [KILN__STATEMENT] = {"", ";", ""},
    [KILN__LINE] = {"", "", ""},
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

/* A signature's lines: those of its parameters are further in. */
static void print_signature(const char *words, size_t length, struct kiln__text *text)
{
    int open = 0;
    for (size_t i = 0; i < length; i++) {
        open += (words[i] == '(') - (words[i] == ')');
        kiln__text_add_bytes(text, words + i, 1);
        if (words[i] == '\n' && open)
            kiln__text_add(text, "%*s", INDENT, "");
    }
}

static void print_node(const struct kiln__code_node *node, const char *words, size_t length,
                       int depth, struct kiln__text *text)
{
    if (node->kind == KILN__END && node->single)
        return;
    if (node->kind != KILN__LINE && depth)
        kiln__text_add(text, "%*s", INDENT * depth, "");
    kiln__text_add(text, "%s", frames[node->kind].before);
    if (node->kind == KILN__FUNCTION)
        print_signature(words, length, text);
    else
        kiln__text_add_bytes(text, words, length);
    kiln__text_add(text, "%s%s\n", frames[node->kind].after,
                   node->single ? "" : frames[node->kind].brace);
}

void kiln__code_print(struct kiln__code *code, struct kiln__text *text)
{
    code_close_singles(code, code->words.length);
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
        depth += node->kind > KILN__LINE && node->kind < KILN__END;
    }
    text->failed = text->failed || code->words.failed;
    kiln__text_free(&code->words);
    kiln__vector_free(&code->nodes);
}
