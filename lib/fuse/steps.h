/* SPDX-License-Identifier: Apache-2.0 */
/* A group while it is made: its steps, and a memo of the values that they compute. */
#ifndef KILN_FUSE_STEPS_H
#define KILN_FUSE_STEPS_H

#include "fuse/fuse.h"

struct kiln__builder {
    struct kiln__fuser *fuser;
    struct kiln__group *group;
    bool failed;     /* without memory; what is made from then on is of no use */
    bool joins;      /* the group was there before: what it has already is used again, */
    size_t reusable; /* from this step on */
};

/* A builder belongs to one group: these two are the only ones that make one, so that nothing of a
 * group that was made before stays behind. */

/* A new group, without steps and with an empty memo. */
struct kiln__builder kiln__begin_group(struct kiln__fuser *fuser, enum kiln__group_kind kind);

/* Go on with a group that is there, with an empty memo. Steps before `reusable` do not count. */
struct kiln__builder kiln__join_group(struct kiln__fuser *fuser, struct kiln__group *group,
                                      size_t reusable);

/* The step, or an equal one that can be used again. */
uint16_t kiln__add_step(struct kiln__builder *builder, struct kiln__step step);

/* A load of `index`, and the access for it. `at` and `rank` are those of kiln__access_to(). */
uint16_t kiln__add_load(struct kiln__builder *builder, uint32_t index, const uint32_t *at,
                        uint32_t rank);

/* The step that computes `index` at the group's element, and steps for all that it takes; `root` is
 * computed even if it is in memory. */
uint16_t kiln__compute(struct kiln__builder *builder, uint32_t index, bool root, const uint32_t *at,
                       uint32_t rank);

/* The step of the group whose stored value is what `index` reads; KILN__NO_STEP if it has none, or
 * has it for other elements. */
uint16_t kiln__find_stored(const struct kiln__fuser *fuser, const struct kiln__group *group,
                           uint32_t index, const uint32_t *at, uint32_t rank);

/* Say that the group computes `node`. */
void kiln__note(struct kiln__builder *builder, uint32_t node);
void kiln__add_store(struct kiln__builder *builder, uint32_t node, uint16_t step);

/* The memo: the step that has the value of a node whose dimensions stand as `key` says. */
#define KILN__NO_STEP UINT16_MAX
uint32_t kiln__memo_key(const struct kiln__node *node, const uint32_t *at, uint32_t rank);
void kiln__remember(struct kiln__builder *builder, uint32_t node, uint32_t key, uint16_t step);

/* A new group for the root `index` of any kind (form.c). False without memory. */
bool kiln__form_group(struct kiln__fuser *fuser, uint32_t index);

#endif
