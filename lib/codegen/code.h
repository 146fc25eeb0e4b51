/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel's text as a tree of statements, and its one printer.
 *
 * text      = (line | function)*
 * function  = signature statement*
 * statement = line | words | (for | while | if | else | switch | case | block) statement*
 *
 * Generators add statements to the block that is open. kiln__code_print() alone writes braces,
 * semicolons and indentation. Running out of memory is remembered (util/text.h). */
#ifndef KILN_CODEGEN_CODE_H
#define KILN_CODEGEN_CODE_H

#include "util/text.h"
#include "util/vector.h"

enum kiln__code_kind {
    KILN__STATEMENT,
    KILN__LINE, /* of the preprocessor, or of a file of kernels/: stands as it is */
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

/* Add statements, one per line. An expression may be appended to the words that all of these
 * functions give, which are the last node's until another is added. */
struct kiln__text *kiln__code_add(struct kiln__code *code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Add text that stands as it is, from the start of a line. */
struct kiln__text *kiln__code_line(struct kiln__code *code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Open a loop, condition or function: the words are what stands in its parentheses, or the
 * signature. Or one without braces, which the next statement closes. */
struct kiln__text *kiln__code_open(struct kiln__code *code, enum kiln__code_kind kind,
                                   const char *format, ...) __attribute__((format(printf, 3, 4)));
struct kiln__text *kiln__code_single(struct kiln__code *code, enum kiln__code_kind kind,
                                     const char *format, ...) __attribute__((format(printf, 3, 4)));
void kiln__code_block(struct kiln__code *code);
void kiln__code_end(struct kiln__code *code);

/* The loop that comes next is unrolled so many times; 0: as the compiler likes. */
void kiln__code_unroll(struct kiln__code *code, unsigned times);

/* The items of a work-group wait for what the others write to local memory. */
void kiln__code_barrier(struct kiln__code *code);

/* Append the text of the whole tree, and free that. */
void kiln__code_print(struct kiln__code *code, struct kiln__text *text);

#endif
