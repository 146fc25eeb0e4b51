/* SPDX-License-Identifier: Apache-2.0 */
/* What generated kernels have in common.
 *
 * kernel   = prelude signature ranges visit
 * visit    = bases (load | apply)* (store | combine)
 *
 * Names in the text: x<k> memory, o<k> offset and s<k>_<d> strides of access k, of a gather also
 * g<k> stride and e<k> extent of its axis; y<k> and q<k>
 * memory and offset of store k, u0_<d> strides of a placed one, or of rows, j<k> and l<k> stride
 * and extent of the axis of one at computed positions; c<k> scalars; v<k> the value of step k; d<d>
 * dimensions; `value` what a product has added up. */
#pragma once

#include "codegen/storage.h"
#include "plan/plan.h"

struct kiln__emit {
    struct kiln__code *code;
    const struct kiln__plan *plan;
    const struct kiln__group *group;
    const struct kiln__launch *launch;
    const struct kiln__variant *variant; /* the launch's */
    bool brief;                          /* for reading: library texts are named, not put in */
    bool checked;                        /* every index into memory is looked at */
    uint8_t along; /* of a product's operand: 1 + the stride that vectors run by */
    char letter;   /* of values; 0: v. A second body beside the first has w, a row's values r */
};

/* Pragmas, macros and functions that the group's operations need. */
void kiln__emit_prelude(const struct kiln__emit *emit);

/* The helpers that the group's operations name, each once for a type (helper_text.c). */
void kiln__emit_helpers(const struct kiln__emit *emit);

/* Whether a word of an expression is one that the prelude defines for each type. */
bool kiln__emit_is_helper(const char *word, size_t length);

/* The type that an elementwise step's expression is about: its last operand's. */
kiln_type kiln__emit_operands_type(const struct kiln__emit *emit, const struct kiln__step *step);

/* The type in which an access has its elements in memory, and a store its. */
kiln_type kiln__emit_access_type(const struct kiln__emit *emit, size_t access);
kiln_type kiln__emit_store_type(const struct kiln__emit *emit, size_t store);

/* Write the parameters of all arguments that have names, with commas between them, one line for
 * each memory. */
void kiln__emit_parameters(const struct kiln__emit *emit, struct kiln__text *text);

/* Define a macro: those of a part of a template's text, with a comma before each, as parameters or
 * as arguments. */
void kiln__emit_section(const struct kiln__emit *emit, const char *define,
                        enum kiln__argument_section part, bool declares);

/* Accesses whose memory is a store's come by that pointer: two restricted ones must not overlap. */
void kiln__emit_in_place_accesses(const struct kiln__emit *emit);

/* Declare `c_<first>` to `c_<end - 1>`, the coordinates of element `of` of the dimensions `first`
 * to `end`. */
void kiln__emit_coordinates(const struct kiln__emit *emit, const char *of, uint32_t first,
                            uint32_t end);

/* "+ c0 * s3_0 + c1 * s3_1": access 3 at those coordinates. */
struct kiln__phrase kiln__emit_dot(size_t access, uint32_t first, uint32_t end);

/* Declare the values of steps `from` to `to` - 1, `width` elements each, with loads at
 * `<base><access>` plus `at` elements along the vector's dimension. */
void kiln__emit_steps(const struct kiln__emit *emit, unsigned from, unsigned to, unsigned width,
                      const char *base, const char *at);

/* The dimension that vectors run over. */
uint32_t kiln__emit_vector_dimension(const struct kiln__emit *emit);

/* Write the value of a GATHER or NUMBER step as an expression (load_gather.c). */
void kiln__emit_gathered(const struct kiln__emit *emit, struct kiln__text *text,
                         const struct kiln__step *step, unsigned width, const char *base,
                         const char *at);
/* Whether all lanes of a vector have the same value of a step. */
bool kiln__emit_is_uniform(const struct kiln__emit *emit, unsigned step);
void kiln__emit_number(const struct kiln__emit *emit, struct kiln__text *text,
                       const struct kiln__step *step, unsigned width, const char *base,
                       const char *at);

/* Write an expression of a table with its operands put in. */
void kiln__emit_expression(struct kiln__text *text, const char *expression, const char *a,
                           const char *b, const char *c, kiln_type type, unsigned width);

/* An accumulator's start, as a constant expression. */
const char *kiln__emit_identity(const struct kiln__reduce_row *row, kiln_type accumulator);

/* Neighbours in memory, as they lie here. */
struct kiln__elements kiln__emit_run(const struct kiln__emit *emit, kiln_type type, unsigned width,
                                     struct kiln__phrase pointer, struct kiln__phrase offset);

/* Before a file of kernels/: what a product's kernel does to elements of operands that it reads
 * (prologue_text.c), and before it stores (epilogue_text.c). */
void kiln__emit_operands(const struct kiln__emit *emit);
void kiln__emit_epilogue(const struct kiln__emit *emit);

/* A whole kernel with a loop inside (loop_text.c). */
void kiln__emit_loop(const struct kiln__emit *emit, const struct kiln__custom *custom);

/* Before kernels/generic.cl: all operations, for groups of any kind (generic_text.c). */
void kiln__emit_generic_prelude(const struct kiln__emit *emit);
void kiln__emit_generic(const struct kiln__emit *emit);

/* "v12": the value of step 12; the letter 0 is v. */
struct kiln__value_name {
    char text[8];
};
struct kiln__value_name kiln__emit_value(char letter, unsigned step);

/* What a checked kernel has beside (checked_text.c): before it, behind its parameters, before its
 * body, and for an access that comes by a store's pointer. Nothing for others. */
void kiln__emit_check_helper(const struct kiln__emit *emit);
void kiln__emit_check_parameters(const struct kiln__emit *emit, struct kiln__text *text);
void kiln__emit_check_memories(const struct kiln__emit *emit);
void kiln__emit_check_alias(const struct kiln__emit *emit, size_t access, unsigned store);

/* An own kernel, behind what loads and stores its narrow types. */
void kiln__emit_custom(const struct kiln__emit *emit);

/* The kernel of a map, reduce or rows group. */
void kiln__emit_nest(const struct kiln__emit *emit);
