/* SPDX-License-Identifier: Apache-2.0 */
/* The names that a batch gives, by the launches that compute what they name: of a plan, which knows
 * none, and of the labels of one batch that runs it. */
#pragma once

#include "plan/plan.h"

struct kiln__names {
    const struct kiln__plan *plan;
    const struct kiln__labels *labels;
    uint32_t *first; /* per node of the plan: 1 + the first recorded node that it stands for */
    uint32_t *next;  /* per recorded node: 1 + the next one; 0: none. NULL: nothing is named */
};

/* Most names that are told of one launch. */
#define KILN__MOST_NAMES 16

/* To be freed. Without labels, and without memory, no launch has a name. */
void kiln__names_make(const struct kiln__plan *plan, const struct kiln__labels *labels,
                      struct kiln__names *names);
void kiln__names_free(struct kiln__names *names);

/* How many names a launch has, and these, each once, as long as the labels stay as they are. */
size_t kiln__names_of(const struct kiln__names *names, uint32_t launch,
                      const char *found[KILN__MOST_NAMES]);

/* Append them, with `between` between two, behind `before`; nothing where there are none. */
void kiln__names_append(const struct kiln__names *names, uint32_t launch, const char *before,
                        const char *between, struct kiln__text *text);

/* The same of what lies in a slot. */
void kiln__names_append_slot(const struct kiln__names *names, uint32_t slot, const char *between,
                             struct kiln__text *text);
