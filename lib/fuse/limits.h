/* SPDX-License-Identifier: Apache-2.0 */
/* Every limit and cost that fusion goes by, and where each comes from. Costs are those
 * of ops/elementwise.def: rough additions. "Judged": by what it is for, not by a measurement. */
#pragma once

#include <stdint.h>

#include "graph/row_limits.h"

/* ---- what is computed again rather than stored ---- */

/* Up to this cost, with one load at most that is as large, for each of its users. A load that
 * misses the caches takes as long as some ten additions; the cheapest function of the table
 * costs 8. */
#define KILN__CHEAP 8

/* Up to this cost for each repetition of a broadcast: there may be thousands. Judged. */
#define KILN__CHEAP_REPEATED 2

/* From this cost on a rows group keeps what several phases use, a map computes two vectors side by
 * side, and no kernel that carries sums along rows computes it before or after them: functions, not
 * arithmetic. Beside running sums of 4,096 times 4,096 two functions took PoCL 17 ms, in maps of
 * their own 9. */
#define KILN__COSTLY 8

/* What a product may compute for each element of an operand as it reads it, rather than a kernel
 * before it: casts, a scale, one or two cheap rows, from few loads. A tile of 64 by 64 multiplies
 * each of its 128 elements of one k 64 times. Judged. */
#define KILN__CHEAP_OPERAND 4
#define KILN__MOST_OPERAND_LOADS 3

/* Of the first operand that a product computes as it reads it: with 8 rows, 784 deep and 512 wide,
 * it took 1.34 times what storing the operand first did, with 60 rows 1.03 (PoCL, AVX-512). */
#define KILN__FEWEST_ROWS 16

/* From these on a product is one for a library (lower/matmul_gpu.c), which takes memory as it is:
 * edges of its result, and what its operands have in common. Beside so many multiplications a
 * kernel before it is nothing. */
#define KILN__LIBRARY_EDGE 2048
#define KILN__LIBRARY_DEPTH 512

/* ---- what one kernel holds ---- */

/* Steps and loads of one root. Judged: texts of some 100 lines, loads that fit a CPU's 32 vector
 * registers with room for values. */
#define KILN__MOST_ROOT_STEPS 96
#define KILN__MOST_ROOT_LOADS 20

/* Steps of a group that roots join. Judged: a root of the largest kind and a few that share. */
#define KILN__MOST_GROUP_STEPS 160

/* Loads and stores of a group: OpenCL promises 1,024 bytes of arguments, and an access takes a
 * pointer, an offset and mostly a stride, 24 bytes. Kernels of products have 20 arguments more. */
#define KILN__MOST_GROUP_BUFFERS 28
#define KILN__MOST_PRODUCT_BUFFERS 16

/* Reductions of a rows group: each has accumulators in registers, 4 to 8 vectors of them, and an
 * array in local memory, of which OpenCL promises 32 KiB: 12 times 256 lanes times 8 bytes. */
#define KILN__MOST_GROUP_REDUCTIONS 12

/* ---- which groups a root looks at ---- */

/* The last ones, so that fusing takes time that grows with the nodes, not with their square. */
#define KILN__LOOK_BACK 8

/* ---- what later stages have room for, above the limits before ---- */

/* Arrays by access: of launches, their forms and iteration domains. */
#define KILN__MOST_ACCESSES 32

/* Arrays by step: phases of a rows group. */
#define KILN__MOST_STEPS 192

/* Forms count stores from 1, in a byte. */
#define KILN__MOST_STORES (UINT8_MAX - 1)
