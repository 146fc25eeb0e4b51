/* SPDX-License-Identifier: Apache-2.0 */
/* How a kernel takes its arguments where each costs the host time (traits: dear_arguments): numbers
 * in vectors of 16 behind the memory, and memory that several parameters name only once. What is
 * here says where they are, codegen/packed_text.c writes the text, runtime/executable.c sets them.
 */
#pragma once

#include "plan/plan.h"

/* Numbers of a vector, each of 64 bits. */
#define KILN__PACKED_LANES 16

/* Arguments of a launch that is packed at most; and its vectors, with which there are 32 memories
 * in the 1,024 bytes that OpenCL promises. With fewer there are more. */
#define KILN__MOST_PACKED 128
#define KILN__MOST_VECTORS 6
#define KILN__PACKED_BYTES 1024

struct kiln__packing {
    unsigned memories; /* parameters that are memory; vectors are behind them */
    unsigned vectors;
    uint8_t place[KILN__MOST_PACKED];  /* per argument: its memory's position, or its number among
                                          numbers */
    uint8_t shared[KILN__MOST_PACKED]; /* per position: how many arguments it is */
};

/* Whether runs of the plan have the same memory for both slots. */
bool kiln__slots_share_memory(const struct kiln__plan *plan, uint32_t a, uint32_t b);

/* False: the kernel takes an argument for each of the launch's, in their order. */
bool kiln__packing_of(const struct kiln__plan *plan, const struct kiln__launch *launch,
                      struct kiln__packing *packing);
