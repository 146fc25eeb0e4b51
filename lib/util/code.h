/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel's text as a tree of statements, and its one printer.
 *
 * text      = (line | function)*
 * function  = signature statement*
 * statement = line | words | (for | while | if | else | switch | case | block) statement*
 *
 * Generators add statements to the block that is open. kiln__code_print() alone writes braces,
 * semicolons and indentation. Running out of memory is remembered (util/text.h). */
#pragma once

#include "util/text.h"
#include "util/vector.h"

enum kiln__code_kind {
    KILN__STATEMENT,
    KILN__VERBATIM, /* of the preprocessor, or of a file of kernels/: stands as it is */
    KILN__FUNCTION,
    KILN__BLOCK,
    KILN__FOR,
    KILN__WHILE,
    KILN__IF,
    KILN__ELSE,
    KILN__SWITCH,
    KILN__CASE,
    KILN__END
};

struct kiln__code_node {
    enum kiln__code_kind kind;
    bool single;   /* has one statement and no braces */
    size_t words;  /* where its words begin; they end where the next node's begin */
    size_t parent; /* 1 + the node whose block it is in; 0: none */
};

struct kiln__code {
    struct kiln__text words;                    /* of all nodes, one behind the other */
    KILN__VECTOR(struct kiln__code_node) nodes; /* each before what its block holds and its end */
    size_t open;                                /* 1 + the node whose block is open; 0: none */
};

/* Add a node, and open its block if it has one; or, with `single`, a block without braces, which
 * the next statement closes. Words of a statement with several lines are several statements. An
 * expression may be appended to the words that are given, which are the last node's until another
 * is added. */
struct kiln__text *kiln__code_node(struct kiln__code *code, enum kiln__code_kind kind, bool single,
                                   const char *format, ...) __attribute__((format(printf, 4, 5)));
void kiln__code_end(struct kiln__code *code);

/* The words: statements, one per line; what stands as it is, from the start of a line; a signature;
 * what stands in the parentheses. */
#define kiln__code_add(code, ...) kiln__code_node(code, KILN__STATEMENT, false, __VA_ARGS__)
#define kiln__code_line(code, ...) kiln__code_node(code, KILN__VERBATIM, false, __VA_ARGS__)
#define kiln__code_function(code, ...) kiln__code_node(code, KILN__FUNCTION, false, __VA_ARGS__)
#define kiln__code_for(code, ...) kiln__code_node(code, KILN__FOR, false, __VA_ARGS__)
#define kiln__code_while(code, ...) kiln__code_node(code, KILN__WHILE, false, __VA_ARGS__)
#define kiln__code_if(code, ...) kiln__code_node(code, KILN__IF, false, __VA_ARGS__)
#define kiln__code_switch(code, ...) kiln__code_node(code, KILN__SWITCH, false, __VA_ARGS__)
#define kiln__code_case(code, ...) kiln__code_node(code, KILN__CASE, false, __VA_ARGS__)
#define kiln__code_single(code, kind, ...) kiln__code_node(code, kind, true, __VA_ARGS__)
#define kiln__code_block(code) kiln__code_node(code, KILN__BLOCK, false, "%s", "")

/* "if (words) break;", or another way to leave. */
#define kiln__code_leave(code, way, ...)                                                           \
    (kiln__code_single(code, KILN__IF, __VA_ARGS__), kiln__code_add(code, way))

/* The items of a work-group wait for what the others write to local memory. */
#define kiln__code_barrier(code) kiln__code_add(code, "barrier(CLK_LOCAL_MEM_FENCE)")

/* The loop that comes next is unrolled so many times; 0: as the compiler likes. */
void kiln__code_unroll(struct kiln__code *code, unsigned times);

/* Append the text of the whole tree, and free that. */
void kiln__code_print(struct kiln__code *code, struct kiln__text *text);
