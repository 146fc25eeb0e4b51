/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that launches move between memory and the device's units, at least: each element that a
 * launch reads counts once, and each that it writes. */
#pragma once

#include "plan/plan.h"

/* Of all that a group reads and stores, in however many launches. */
uint64_t kiln__group_bytes(const struct kiln__plan *plan, const struct kiln__group *group);

/* What those accesses read for which reads[i]: elements that several of them read count once. */
uint64_t kiln__group_bytes_read(const struct kiln__plan *plan, const struct kiln__group *group,
                                const bool *reads);

/* Once all launches are there: `bytes` of each for which lowering has not said it. False without
 * memory. */
bool kiln__plan_count_bytes(struct kiln__plan *plan);
