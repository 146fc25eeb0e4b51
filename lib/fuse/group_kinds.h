/* SPDX-License-Identifier: Apache-2.0 */
/* What there is to say about a kind of group. A new kind is its name in group.h, a row of
 * group_kinds.c, and its lowering (lower/plan_make.c). */
#pragma once

#include "fuse/join.h"

#define KILN__WAYS 2

struct kiln__group_verifier;
typedef const char *kiln__group_check(const struct kiln__group_verifier *verifier);

struct kiln__group_traits {
    const char *name;

    /* What later stages ask, through the functions of group.h. */
    bool reduces;
    bool phased;      /* visits what it reduces once per phase */
    uint8_t operands; /* the first inputs of its root that it reads as they are, an access each */

    /* How one begins. */
    enum kiln__kind root; /* the kind of node; UPLOAD: others, or none */
    void (*begin)(struct kiln__builder *builder, uint32_t index);
    /* What an operand's layout must be to be read from where it is; NULL: any that strides say. */
    bool (*suits)(const struct kiln__layout *layout, const struct kiln__shape *shape);
    enum kiln__why result, operand; /* why the root, and an operand that does not suit, is stored */

    /* In which ways others join: the first that suits counts. None: a kernel for a single node. */
    kiln__join_way *joins[KILN__WAYS];

    /* What its verifier checks beyond what holds for all. */
    kiln__group_check *check;
};

extern const struct kiln__group_traits kiln__group_traits[KILN__GROUP_KINDS];

/* The kind of group that a root begins. */
enum kiln__group_kind kiln__group_kind_of(const struct kiln__node *root);

/* How one begins (group_begin.c). */
void kiln__group_begin_map(struct kiln__builder *builder, uint32_t index);
void kiln__group_begin_reduce(struct kiln__builder *builder, uint32_t index);
void kiln__group_begin_scan(struct kiln__builder *builder, uint32_t index);
void kiln__group_begin_product(struct kiln__builder *builder, uint32_t index);
void kiln__group_begin_whole(struct kiln__builder *builder, uint32_t index);

/* What the verifier checks of one kind alone (verify_kinds.c). */
kiln__group_check kiln__group_check_reduce, kiln__group_check_rows, kiln__group_check_product,
    kiln__group_check_whole;
