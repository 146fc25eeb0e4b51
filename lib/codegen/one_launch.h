/* SPDX-License-Identifier: Apache-2.0 */
/* What one_launch.c, which joins launches, and one_launch_text.c, which writes their text, share.
 */
#pragma once

#include "plan/plan.h"

/* Of a record of the table, before the arguments. */
enum {
    KILN__RECORD_LENGTH,
    KILN__RECORD_FUNCTION,
    KILN__RECORD_ITEMS,
    KILN__RECORD_WIDE,
    KILN__RECORD_HIGH,
    KILN__RECORD_ARGUMENTS
};

/* Whether phases are done beside each other, by work-groups of their own. */
bool kiln__phases_share_groups(const struct kiln__plan *plan);

/* Whether an argument takes two numbers of its record. */
bool kiln__phase_is_long(const struct kiln__launch *phase, const struct kiln__argument *argument);

/* Launches of one name are one function. */
void kiln__phase_name(const struct kiln__plan *plan, uint32_t launch, struct kiln__text *name);
