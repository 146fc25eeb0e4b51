/* SPDX-License-Identifier: Apache-2.0 */
/* Which bytes of the arena are taken at which steps. */
#ifndef KILN_MEMORY_OCCUPANCY_H
#define KILN_MEMORY_OCCUPANCY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kiln__occupied;

/* Nothing taken, for steps 0 to `steps` - 1. NULL without memory. */
struct kiln__occupied *kiln__occupied_create(uint32_t steps);
void kiln__occupied_free(struct kiln__occupied *occupied);

/* Take `bytes` bytes during steps `first` to `last`, at the lowest offset that is free in all of
 * them. False without memory. */
bool kiln__occupied_take(struct kiln__occupied *occupied, uint32_t first, uint32_t last,
                         size_t bytes, size_t *offset);

#endif
