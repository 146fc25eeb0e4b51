/* SPDX-License-Identifier: Apache-2.0 */
/* Loops over tiles that the nearest cache keeps. */
#ifndef KILN_CODEGEN_TILES_H
#define KILN_CODEGEN_TILES_H

#include "codegen/body.h"

/* A cache line, to which non-temporal stores must be aligned with 16-wide vectors. */
#define KILN__LINE 64

/* A run of `count` kept elements that are neighbours, a strip of totals at a time, and the memory
 * of the strip (strips.c). */
void kiln__emit_strip_totals(struct kiln__body *body);
void kiln__emit_strips(struct kiln__body *body);
void kiln__emit_columns(struct kiln__body *body);

/* A map over square tiles of two dimensions, and the functions that turn their blocks
 * (tiles.c). */
void kiln__emit_turns(const struct kiln__emit *emit);
void kiln__emit_tiles(struct kiln__body *body);

#endif
