/* SPDX-License-Identifier: Apache-2.0 */
/* Short launches behind a product's are done by that one's last work-groups, once all of them have
 * stored their results: the norm behind a layer's product, the updates of a cache. A launch of its
 * own takes a GPU's host 5 to 7 us. As in "threadFenceReduction" of NVIDIA's samples, work-groups
 * count themselves when they are done (kernels/last_groups.cl). */
#pragma once

#include "plan/plan.h"

/* Among the plan's joined launches, those made here have a product's source and arguments, and
 * behind these BEHIND_PARAMETERS; others are kernels of their own (codegen/one_launch.h). */
static inline bool kiln__launch_has_behind(const struct kiln__launch *launch)
{
    return launch->phases.count && launch->source == KILN__SOURCE_TEMPLATE;
}

/* Join what can be. False: no memory. */
bool kiln__join_last_groups(struct kiln__plan *plan);

/* Launch `k` of the phases, from 1 on, as a function that work-groups of the product's size call.
 * It shares its arguments with the plan's; not to be freed. */
struct kiln__launch kiln__launch_behind(const struct kiln__plan *plan,
                                        const struct kiln__launch *joined, size_t k);

/* The name and the text of such a launch, which stands before the product's file
 * (last_groups_text.c). */
void kiln__last_groups_name(const struct kiln__plan *plan, const struct kiln__launch *joined,
                            struct kiln__text *name);
void kiln__last_groups_source(const struct kiln__plan *plan, const struct kiln__launch *joined,
                              bool brief, struct kiln__text *source);
