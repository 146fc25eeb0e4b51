/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of bench/growth. */
#pragma once

#include <stdbool.h>

/* A row of batches whose shapes grow one after the other, 3,000 of them, `brief`: 1,000. */
void growth_measure_shapes(bool brief);
