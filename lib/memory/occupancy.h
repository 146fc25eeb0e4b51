/* SPDX-License-Identifier: Apache-2.0 */
/* Which bytes of the arena are taken at which steps. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kiln__occupancy;

/* Nothing taken, for steps 0 to `steps` - 1. NULL without memory. */
struct kiln__occupancy *kiln__occupancy_create(uint32_t steps);
void kiln__occupancy_free(struct kiln__occupancy *occupied);

/* Take `bytes` bytes during steps `first` to `last`, at the lowest offset that is free in all of
 * them. False without memory. */
bool kiln__occupancy_take(struct kiln__occupancy *occupied, uint32_t first, uint32_t last,
                          size_t bytes, size_t *offset);
