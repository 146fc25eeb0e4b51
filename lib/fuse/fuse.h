/* SPDX-License-Identifier: Apache-2.0 */
/* What the two halves of fusion share: deciding what goes to memory (fuse.c) and forming the
 * kernels that put it there (groups.c). */
#ifndef KILN_FUSE_FUSE_H
#define KILN_FUSE_FUSE_H

#include "fuse/group.h"
#include "fuse/layout.h"

/* Of a pointwise node: its users, and what computing it in registers takes. */
struct kiln__size {
    uint32_t users, steps, loads, cost;
    bool reads_as_many; /* loads as many elements as it has */
};

struct kiln__fuser {
    struct kiln__fusion *fusion;
    struct kiln__layout *layouts; /* per node */
    struct kiln__size *sizes;     /* per node */
    KILN__VECTOR(struct kiln__memo {
        uint32_t node;
        uint32_t key; /* where its dimensions stand in the group */
        uint16_t step;
    })
    memo; /* of one group */
};

const struct kiln__node *kiln__fuser_node(const struct kiln__fuser *fuser, uint32_t index);

/* Puts every root into a group. False without memory. */
bool kiln__form_groups(struct kiln__fuser *fuser);

#define KILN__NO_GROUP UINT32_MAX

/* The earlier group that the root `index` can join (company.c), or KILN__NO_GROUP. */
uint32_t kiln__find_company(const struct kiln__fuser *fuser, uint32_t index);

/* Dimensions that stand where they are: `at` of an operand of full rank. */
extern const uint32_t kiln__straight[KILN_MAX_RANK];

/* Parts that can go straight into the memory of their base do (places.c). False without memory.
 */
bool kiln__settle_places(struct kiln__fuser *fuser);

/* Load `node` at the group's element: its dimensions stand at the group's dimensions `at`, aligned
 * at the last of `rank`, as broadcasting has it. */
struct kiln__access kiln__access_to(const struct kiln__fuser *fuser, uint32_t index,
                                    const uint32_t *at, uint32_t rank);
bool kiln__same_access(const struct kiln__access *a, const struct kiln__access *b);

#endif
