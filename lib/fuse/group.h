/* SPDX-License-Identifier: Apache-2.0 */
/* A group: the operations that one kernel computes, as a small program.
 *
 * A map group visits every element of its shape: it loads, computes and stores there.
 * A reduce group visits kept dimensions, and for each of their elements all reduced ones: steps
 * before the REDUCED step run for every element, steps after it once for each kept element.
 * A rows group visits each row, which is all reduced elements of a kept one, once per phase:
 * several REDUCED steps and stores of whole rows (loop_nest.h). Rows may well be columns in memory.
 * With SCANNED steps a row is one dimension, and its elements are visited in order: sums are
 * carried from one to the next. A matmul group has steps for each element of its first operand,
 * then for each of the second: of both, the first loads the element itself, and the last is what
 * the PRODUCT behind them multiplies. Their accesses walk the operands' own dimensions. Further
 * steps run once for each element of the product, before the stores. An attention group has an
 * access for each input of its one node, with a step that loads and perhaps one that converts; so
 * has a scatter group, which adds its first access, at the rows that its second says, to what its
 * base group stores. */
#pragma once

#include "fuse/limits.h"
#include "graph/graph.h"
#include "graph/kernel_support.h"
#include "util/verify.h"

enum kiln__group_kind {
    KILN__GROUP_MAP,
    KILN__GROUP_REDUCE,
    KILN__GROUP_ROWS,
    KILN__GROUP_MATMUL,
    KILN__GROUP_ATTENTION,
    KILN__GROUP_ATTENTION_BACKWARD,
    KILN__GROUP_SCATTER,
    KILN__GROUP_SORT,
    KILN__GROUP_CUSTOM,
    KILN__GROUP_KINDS
};

enum kiln__access_kind {
    KILN__ACCESS_MEMORY,
    KILN__ACCESS_NUMBER, /* of an iota: the position is the value */
    KILN__ACCESS_GATHER  /* the value of a step, times `jump`, is added to the position */
};

/* Where a group finds elements of a node in memory: offset and strides in elements, a stride per
 * dimension of the group. */
struct kiln__access {
    uint32_t node;
    enum kiln__access_kind kind;
    int64_t offset;
    int64_t stride[KILN_MAX_RANK];
    /* Along the axis of a gather: stride, and what the index must be below. 0 without one. */
    int64_t jump;
    size_t extent;
};

enum kiln__step_kind {
    KILN__STEP_LOAD,    /* access `index` at the current element */
    KILN__STEP_SCALAR,  /* scalar `index` */
    KILN__STEP_APPLY,   /* elementwise row `op` over args */
    KILN__STEP_CONVERT, /* args[0] to `type` */
    KILN__STEP_NUMBER,  /* position of access `index` */
    KILN__STEP_GATHER,  /* access `index` at the element that args[0] says; if none, what `op`, of
                           enum kiln__gather_name, says */
    KILN__STEP_REDUCED, /* args[0] reduced by the reduction `op` */
    KILN__STEP_SCANNED, /* the sum of args[0] along the row up to here; `op`: enum kiln__scan */
    KILN__STEP_PRODUCT  /* the matrix product of args[0] and args[1] */
};

struct kiln__step {
    enum kiln__step_kind kind : 8;
    uint8_t op;
    kiln_type type : 8; /* of the step's value */
    uint8_t n_args;
    uint16_t index;
    uint16_t args[3]; /* earlier steps */
};

/* Compared and hashed as bytes. */
_Static_assert(sizeof(struct kiln__step) == 4 + 4 * sizeof(uint16_t), "no padding");
_Static_assert(KILN__OP_COUNT <= UINT8_MAX && KILN__REDUCE_COUNT <= UINT8_MAX, "fit `op`");

/* A step's value stored as a node: row-major over what it is of, or, in a map or an attention group
 * with this store alone, where offset and strides put it in the node's memory. */
struct kiln__store {
    uint32_t node;
    uint16_t step;
    bool full;      /* of all that is visited: where something is reduced, of whole rows */
    bool placed;    /* offset and strides count */
    int64_t offset; /* in elements, as the strides */
    int64_t stride[KILN_MAX_RANK];
    /* Of a placed one at positions that are computed: 1 + the step whose value, times `jump`, is
     * added to where an element goes, if it is below `extent`; else nothing is stored. 0: none. */
    uint16_t position;
    int64_t jump;
    size_t extent;
};

struct kiln__group {
    enum kiln__group_kind kind;
    uint32_t base_group; /* brings there what the placed store, or the scatter, goes over; none:
                            KILN__NO_GROUP */
    uint32_t kept;       /* dimensions before the reduced ones: all, where none is reduced */
    uint64_t axes;       /* the reduced ones, as values of the same rank number them: there they
                            need not be the last (kiln__group_order) */
    size_t reduced;      /* elements that go into one result: 1 where nothing is reduced */
    /* Steps from here on run once per result, and use none before it: REDUCED, PRODUCT, or 0. */
    uint16_t reduced_step;
    struct kiln__shape shape;
    KILN__VECTOR(struct kiln__step) steps;
    KILN__VECTOR(struct kiln__access) accesses;
    KILN__VECTOR(double) scalars;
    KILN__VECTOR(struct kiln__store) stores;
    KILN__VECTOR(uint32_t) nodes; /* every node that it computes, for explanations */
};

#define KILN__NO_GROUP UINT32_MAX

/* Nodes of a group that is not made of steps: one, or more beside it (fuse/multi_output.c), in the
 * order of their stores. */
#define KILN__MOST_WHOLE KILN_CUSTOM_OUTPUTS

/* Operands of a product. */
#define KILN__OPERANDS 2

/* An operand of a matmul group, or of one of a single node. */
struct kiln__operand {
    uint16_t first, value; /* its steps; the last is what is multiplied */
    uint16_t access, end;  /* its accesses; the first is of the operand's own elements */
};

/* Why a value is materialised: begins or joins a group as a root. In the words of explanations, of
 * those that are stored. */
#define KILN__WHYS(WHY)                                                                            \
    WHY(INLINE, "computed where it is used") /* it is not */                                       \
    WHY(BECAUSE_INPUT, "an input")                                                                 \
    WHY(BECAUSE_ASKED, "asked for")                                                                \
    WHY(BECAUSE_REDUCTION, "a reduction")                                                          \
    WHY(BECAUSE_PRODUCT, "a matrix product")                                                       \
    WHY(BECAUSE_OPERAND, "an operand of a matrix product")                                         \
    WHY(BECAUSE_ATTENTION, "an attention, or an operand of one")                                   \
    WHY(BECAUSE_SCAN, "running sums, or what they add up")                                         \
    WHY(BECAUSE_SHARED, "used by several operations")                                              \
    WHY(BECAUSE_REPEATED, "repeated by a broadcast, computed once")                                \
    WHY(BECAUSE_MOVED, "moved in a way that strides cannot say")                                   \
    WHY(BECAUSE_LARGE, "the kernel would grow too large")                                          \
    WHY(BECAUSE_INSERTED, "parts are put into it")                                                 \
    WHY(BECAUSE_GATHERED, "read at positions that are computed")                                   \
    WHY(BECAUSE_SCATTERED, "a scatter, or an operand of one")                                      \
    WHY(BECAUSE_SORTED, "an order, or what is put in order")                                       \
    WHY(BECAUSE_CUSTOM, "of an own kernel, or an operand of one")                                  \
    WHY(BECAUSE_REMATERIALISED, "computed more than once, for want of memory")

enum kiln__why {
#define KILN__WHY(name, text) KILN__##name,
    KILN__WHYS(KILN__WHY)
#undef KILN__WHY
};
const char *kiln__fusion_why(enum kiln__why why);

struct kiln__fusion {
    struct kiln__graph graph; /* after rewriting; requests name materialised nodes */
    bool narrow_operands;     /* as in struct kiln__kernel_support */
    enum kiln__why *why;      /* per node */
    bool *stored;             /* per node: some kernel writes it to memory */
    uint32_t *group_of;       /* per node: group that completes it as a root */
    uint32_t *donated_to; /* per node: the place that takes over its memory; or KILN__NO_DONATION */
    KILN__VECTOR(struct kiln__group) groups; /* in the order in which they run */
    uint64_t saved_bytes;                    /* memory traffic of values that were never stored */
};

#define KILN__NO_DONATION UINT32_MAX

/* Cut `graph`, which is taken over, into groups, for kernels with this `support`. False without
 * memory. */
bool kiln__fuse(struct kiln__graph *graph, const struct kiln__kernel_support *support,
                struct kiln__fusion *fusion);

void kiln__fusion_free(struct kiln__fusion *fusion);

/* Move what it consists of into one piece of memory, now that it is complete. */
void kiln__fusion_pack(struct kiln__fusion *fusion, struct kiln__pack *pack);

/* Check what plan and codegen rely on (verify_groups.c). Returns NULL, or says what is wrong with
 * which group in `text`. */
const char *kiln__fusion_verify(const struct kiln__fusion *fusion, char text[KILN__WRONG]);

/* ---- what depends on a group's kind, from its traits (group_kinds.h) ---- */

/* "map", "reduce", ... */
const char *kiln__group_name(const struct kiln__group *group);

/* Whether its kernel is made from its steps; others are kernels of kernels/ for a single node. */
bool kiln__group_is_of_steps(const struct kiln__group *group);

/* Whether dimensions from `kept` on are reduced. */
bool kiln__group_reduces(const struct kiln__group *group);

/* Where the dimensions of a value of the group's rank stand in the group: kept ones first. */
void kiln__group_order(const struct kiln__group *group, uint32_t at[KILN_MAX_RANK]);

/* The shape of such a value that has all the group's elements. */
struct kiln__shape kiln__group_visited(const struct kiln__group *group);

/* Whether neighbours of such a value, if it is row-major, are in different rows. */
bool kiln__group_is_of_columns(const struct kiln__group *group);

/* Whether each result is complete once the step `reduced_step` is, and nothing is read again. */
bool kiln__group_reads_once(const struct kiln__group *group);

/* The first SCANNED step; NULL: nothing is carried along the rows. All go the same way. */
const struct kiln__step *kiln__group_scan(const struct kiln__group *group);

/* The step that segments of a row have totals of: the scan, or what a reduce group is for. */
unsigned kiln__group_total(const struct kiln__group *group);

/* Inputs, from the first, of the node that began the group that are walked over shapes of their
 * own: of products, and of kernels for a single node, which have an access for each. */
unsigned kiln__group_operands(const struct kiln__group *group, const struct kiln__node *began);

/* The node that began the group; NULL: of a kind that none begins alone. */
const struct kiln__node *kiln__group_root(const struct kiln__graph *graph,
                                          const struct kiln__group *group);

/* The dimensions that an access walks: the group's, or those of the input that a kernel for a
 * single node, or a product, takes as it is. */
const struct kiln__shape *kiln__group_access_shape(const struct kiln__graph *graph,
                                                   const struct kiln__group *group, size_t access);

/* Whether a matmul group does more to what it has multiplied than to store it. */
bool kiln__group_has_epilogue(const struct kiln__group *group);

/* The store of `node` goes; a group without a store is never launched. */
void kiln__group_remove_store(struct kiln__group *group, uint32_t node);

/* Operand `k` of a matmul group, or of one of a single node. */
struct kiln__operand kiln__group_operand(const struct kiln__group *group, unsigned k);

/* How many accesses both operands of a matmul group have: they are the first. */
size_t kiln__group_operand_accesses(const struct kiln__group *group);

/* A group as text: its kind, its steps, its stores. */
void kiln__group_dump(const struct kiln__group *group, struct kiln__text *text);
