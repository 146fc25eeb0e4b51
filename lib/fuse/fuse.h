/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of fusion share. They read in this order:
 *
 *   group.h                     what a group is: the program of one kernel
 *   group_kinds.h, .c           the kinds of groups, a row of traits each
 *   limits.h                    limits and costs
 *   fuse.c                      the chain of what follows
 *   materialise.c               which values go to memory, and why
 *   prologue.c                  which ones a product computes as it reads its operands
 *   layout.h, .c                where in memory their elements are found
 *   group_begin.c               a group for a value that goes to memory, its root
 *   steps.c                     the steps of a group, and what they read
 *   join_reshaped.c             the same behind a reshape
 *   join.c, join_rows.c         or else the earlier group that a root joins
 *   transposed_store.c          results that are stored in another order at once
 *   donation.c                  parts that go into the memory of what is below them
 *   loop_nest.h, .c             what a group of steps computes, as a loop nest
 *   group_text.c                groups as text
 *   verify_groups.h, verify*.c  what later stages rely on */
#pragma once

#include "fuse/group.h"
#include "fuse/layout.h"

/* Of a pointwise node: its users, and what computing it in registers takes. */
struct kiln__size {
    uint32_t users, steps, loads, cost;
    uint32_t large_loads; /* of as many elements as it has */
    uint64_t axes;        /* that a reduction of it drops; 0: none reads it */
};

struct kiln__fuser {
    struct kiln__fusion *fusion;
    struct kiln__layout *layouts; /* per node */
    struct kiln__size *sizes;     /* per node */
    bool *for_products;           /* per node: nobody else uses it, but for movements of it */
    bool *prologue;               /* per node: products compute it as they read it */
    KILN__VECTOR(struct kiln__memo {
        uint32_t node;
        uint32_t key; /* where its dimensions stand in the group */
        uint16_t step;
    })
    memo; /* of one group */
};

const struct kiln__node *kiln__fuse_node(const struct kiln__fuser *fuser, uint32_t index);

/* Decide which values go to memory (materialise.c). */
void kiln__fuse_materialise(struct kiln__fuser *fuser);

/* The node is computed where it is used: in no memory, as far as is decided. */
bool kiln__fuse_in_registers(const struct kiln__fuser *fuser, uint32_t index);

/* Whether the value, which is not in memory, is rounded to a narrow type, and computed with from
 * there on: in memory it is as narrow. */
bool kiln__fuse_is_widened(const struct kiln__fuser *fuser, uint32_t index);

/* Whether the pointwise node `index`, which only products use, is worth computing where they read
 * it: its layout is then the one that it would have in memory (prologue.c). */
bool kiln__fuse_may_be_prologue(const struct kiln__fuser *fuser, uint32_t index);

/* Whether the pointwise node `index` may be computed in a kernel that carries sums along rows,
 * before or after them (materialise.c). */
bool kiln__fuse_suits_scan(const struct kiln__fuser *fuser, uint32_t index);

/* Whether operand `k` of the product `index` can be computed as it is read: from such a node and
 * movements of it, or from memory of a narrower type. */
bool kiln__fuse_operand_suits(struct kiln__fuser *fuser, uint32_t index, unsigned k);

/* These four answer false without memory.
 * A new group for the root `index` (group_begin.c). */
bool kiln__fuse_begin(struct kiln__fuser *fuser, uint32_t index);
/* Have the root join an earlier group, *number; KILN__NO_GROUP if there is none (join.c). */
bool kiln__fuse_join(struct kiln__fuser *fuser, uint32_t index, uint32_t *number);
/* Let kernels compute a second node beside their own (multi_output.c). False without memory. */
bool kiln__fuse_multi_output(struct kiln__fuser *fuser);

/* Results that are only copied to another order are stored in it (transposed_store.c). */
bool kiln__fuse_store_transposed(struct kiln__fuser *fuser);
/* Parts that can go straight into the memory of their base do (donation.c). */
bool kiln__fuse_donate(struct kiln__fuser *fuser);

/* ---- reshapes between a group and a root (join_reshaped.c) ---- */

/* Of a root whose dimensions are not the group's, as behind a reshape: its elements are those of
 * some of the group's dimensions, in the same order. */
struct kiln__reshaped {
    bool used;              /* false: the root's dimensions are the group's */
    struct kiln__shape own; /* of the root */
    struct kiln__shape over;
    uint32_t at[KILN_MAX_RANK]; /* where the dimensions of `over` stand in the group */
};

/* Of a root of `shape`, to all that the group visits, if it is `full`, or to its results. False if
 * these are not as many elements, or none. */
bool kiln__fuse_reshape(const struct kiln__group *group, const struct kiln__shape *shape, bool full,
                        struct kiln__reshaped *reshaped);

/* Let an access over the root's dimensions be one over the group's. False if no strides say it. */
bool kiln__fuse_reshape_access(const struct kiln__reshaped *reshaped, struct kiln__access *access);

/* ---- a group while it is made (steps.c) ---- */

struct kiln__builder {
    struct kiln__fuser *fuser;
    struct kiln__group *group;
    const struct kiln__reshaped *reshaped; /* of the root that joins; or NULL */
    bool failed;     /* without memory; what is made from then on is of no use */
    bool joins;      /* the group was there before: what it has already is used again, */
    size_t reusable; /* from this step on */
};

/* A builder belongs to one group: these two are the only ones that make one, so that nothing of a
 * group that was made before stays behind. */

/* A new group over `shape`, without steps and with an empty memo. */
struct kiln__builder kiln__fuse_new_group(struct kiln__fuser *fuser, enum kiln__group_kind kind,
                                          const struct kiln__shape *shape);

/* Go on with a group that is there, with an empty memo, from where its results are. */
struct kiln__builder kiln__fuse_resume(struct kiln__fuser *fuser, struct kiln__group *group);

#define KILN__NO_STEP UINT16_MAX

/* The step, or an equal one that can be used again. */
uint16_t kiln__fuse_add_step(struct kiln__builder *builder, struct kiln__step step);

/* A load of `index` as it is, with an access of its own. */
uint16_t kiln__fuse_load(struct kiln__builder *builder, uint32_t index);

/* The same of the first inputs of the root `index`, if it has a kernel for a single node. */
void kiln__fuse_load_operands(struct kiln__builder *builder, uint32_t index);

/* The step that computes `index` at the group's element, and steps for all that it takes; a `root`
 * is computed even if it is in memory. Its dimensions stand at the group's dimensions `at`, aligned
 * at the last of `rank`, as broadcasting has it. */
uint16_t kiln__fuse_compute(struct kiln__builder *builder, uint32_t index, bool root,
                            const uint32_t *at, uint32_t rank);

/* The steps that a product takes for an element of its operand `index`; the last one (prologue.c).
 */
uint16_t kiln__fuse_operand(struct kiln__builder *builder, uint32_t index);

/* The step of the REDUCE or SCAN node `index`, which goes over the rows of its input. */
uint16_t kiln__fuse_reduce(struct kiln__builder *builder, uint32_t index, const uint32_t *at);

/* Say that the group computes `node`. */
void kiln__fuse_add_node(struct kiln__builder *builder, uint32_t node);
void kiln__fuse_add_store(struct kiln__builder *builder, uint32_t node, uint16_t step);

/* Each dimension of the operand is the group's of the same number: `at` of one of full rank. */
extern const uint32_t kiln__fuse_straight[KILN_MAX_RANK];

/* Where the dimensions of a value of `rank` stand in the group: as kiln__group_order() says of one
 * of the group's rank; those of one of a lower rank are the first. */
void kiln__fuse_value_dimensions(const struct kiln__group *group, uint32_t rank,
                                 uint32_t at[KILN_MAX_RANK]);

/* Where such a load finds `index`. */
struct kiln__access kiln__fuse_access(const struct kiln__fuser *fuser, uint32_t index,
                                      const uint32_t *at, uint32_t rank);
bool kiln__fuse_same_access(const struct kiln__access *a, const struct kiln__access *b);

/* The step of the group whose stored value is what such a load reads; KILN__NO_STEP if it has none,
 * or has it for other elements. */
uint16_t kiln__fuse_find_stored(const struct kiln__group *group, const struct kiln__access *wanted);
