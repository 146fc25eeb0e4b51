/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of steps without a kernel of their own: kernels/generic.cl computes any of them by a table
 * that says what to do. It is slow, but one program for all, so that a batch can run while its own
 * kernels are still being compiled.
 *
 *   table = head dims phase* step* access* store*
 *
 * Of an attention the items are elements of its result, and its inputs are the first accesses;
 * MASK is the mask's type, 0 without one, and LENGTHS the access to lengths, 0 without such. A
 * phase visits `VISITS` elements of an item's row, computes steps `FROM` to `TO` - 1 at each, and
 * reduces them to the step `REDUCED`, or stores. All fields are ints; the names below are macros of
 * the kernel's text too (codegen/generic_text.c). */
#pragma once

#include "lower/lower.h"

#define KILN__GENERIC_HEAD(X)                                                                      \
    X(ITEMS)                                                                                       \
    X(RANK)                                                                                        \
    X(KEPT)                                                                                        \
    X(STORES)                                                                                      \
    X(PHASES)                                                                                      \
    X(PLAIN)                                                                                       \
    X(ATTENDS)                                                                                     \
    X(KEYS)                                                                                        \
    X(DEPTH)                                                                                       \
    X(SCALE)                                                                                       \
    X(DIAGONAL)                                                                                    \
    X(MASK)                                                                                        \
    X(LENGTHS)                                                                                     \
    X(DIMS_AT)                                                                                     \
    X(PHASES_AT)                                                                                   \
    X(STEPS_AT)                                                                                    \
    X(ACCESSES_AT)                                                                                 \
    X(STORES_AT)

#define KILN__GENERIC_PHASE(X) X(REDUCED) X(FROM) X(TO) X(VISITS)

/* VALUE: bits of a scalar, of what a reduction begins with, of what a gather finds beyond its
 * data. SECOND: a step of a product's second operand, which has its own place. */
#define KILN__GENERIC_STEP(X) X(KIND) X(KEY_) X(TYPE) X(VALUE) X(INDEX) X(A) X(B) X(C) X(SECOND)

/* Strides follow, of accesses and of stores. */
#define KILN__GENERIC_ACCESS(X) X(MEMORY) X(OFFSET) X(JUMP) X(EXTENT) X(STRIDES)
#define KILN__GENERIC_STORE(X) X(INTO) X(START) X(OF) X(AS) X(FULL) X(STEPS_OF)

#define KILN__GENERIC_NAME(name) KILN__GENERIC_##name,
enum { KILN__GENERIC_HEAD(KILN__GENERIC_NAME) KILN__GENERIC_HEAD_INTS };
enum { KILN__GENERIC_PHASE(KILN__GENERIC_NAME) KILN__GENERIC_PHASE_INTS };
enum { KILN__GENERIC_STEP(KILN__GENERIC_NAME) KILN__GENERIC_STEP_INTS };
enum { KILN__GENERIC_ACCESS(KILN__GENERIC_NAME) KILN__GENERIC_ACCESS_FIELDS };
enum { KILN__GENERIC_STORE(KILN__GENERIC_NAME) KILN__GENERIC_STORE_FIELDS };
#undef KILN__GENERIC_NAME
enum {
    KILN__GENERIC_ACCESS_INTS = KILN__GENERIC_STRIDES + KILN_MAX_RANK,
    KILN__GENERIC_STORE_INTS = KILN__GENERIC_STEPS_OF + KILN_MAX_RANK
};

/* What its kernel has room for. */
enum { KILN__GENERIC_MEMORIES = 16, KILN__GENERIC_MOST_STEPS = 96 };

/* What a key is made of an operation, or a reduction, and the type that it is computed in: of 32 at
 * most. */
#define KILN__GENERIC_KEY(op, type) ((op)*32 + (int)(type))

/* Of a conversion, from the type that it is computed in. */
#define KILN__GENERIC_CONVERT(to, from, saturates)                                                 \
    KILN__GENERIC_KEY((int)(to) + 32 * ((saturates) != 0), from)

/* Whether the kernel has this elementwise operation. */
bool kiln__generic_has(unsigned op);

/* Steps that the generic kernel would take for the group, one after another; 0: it cannot compute
 * it. */
uint64_t kiln__generic_work(const struct kiln__plan *plan, uint32_t index);

/* Whether the plan has the group computed so. */
bool kiln__plan_is_generic(const struct kiln__plan *plan, uint32_t group);

kiln__lower kiln__lower_generic;
