/* SPDX-License-Identifier: Apache-2.0 */
/* How long the rows are that one kernel goes over: fusion goes by it, and rewriting, which puts
 * operations where fusion joins them. */
#pragma once

#include "graph/shape.h"

/* Longer rows are reduced in segments, side by side, by kernels of their own. It is a row's length
 * alone that decides, so that a row's bits do not depend on how many others there are. */
#define KILN__LONGEST_ROW (1 << 17)

/* The same of rows whose neighbours in memory are in other rows, at most 16 work-items to one
 * (lower/axis_mapping.c). A softmax over 4,096 in 16 columns took 1.4 times what segments did on an
 * H200, in 1,024 columns 1.1 times on PoCL; over 1,024 half the time and 0.95 of it. */
#define KILN__LONGEST_COLUMN (1 << 11)

/* The same of rows that lie in pieces, as those of a batch normalisation. Over 8 times 16,384
 * elements, 16 of them, it took 3.3 times what segments did on an H200; over 32 times 1,024 as
 * long. (PoCL: 0.25 and 0.25.) */
#define KILN__LONGEST_SCATTERED_ROW (1 << 15)

/* A map goes on with what reduces it only over rows that are worth a loop of their own (a vector of
 * 16), and short enough for one work-item even if there is a single one (32 KiB of f32, a first
 * cache). */
#define KILN__SHORTEST_MAPPED_ROW 16
#define KILN__LONGEST_MAPPED_ROW (1 << 13)

/* Whether rows along these dimensions of a shape are its last ones; dimensions of 1 do not matter.
 */
bool kiln__axes_are_innermost(const struct kiln__shape *shape, uint64_t axes);

/* The first three limits: which of them holds for these rows. */
size_t kiln__longest_row(const struct kiln__shape *shape, uint64_t axes);
