/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of a generated kernel. */
#pragma once

#include "codegen/body.h"

typedef void kiln__emitter(struct kiln__body *body);

/* All phases at one row, up to the values of their reductions (reduced_axis.c). */
void kiln__emit_phases(struct kiln__body *body);

/* Open "for (; i + 16 <= count; i += 16)". */
void kiln__emit_strip_loop(const struct kiln__body *body, unsigned elements, const char *count);

/* Declare `count`: as many elements from `from` on as lie along dimension `d` before `to`. */
void kiln__emit_count(const struct kiln__body *body, uint32_t d, bool outer, const char *from,
                      const char *to);

/* A cache line, to which non-temporal stores must be aligned with 16-wide vectors. */
#define KILN__LINE 64

/* A run of `count` kept elements that are neighbours, a strip of totals at a time, and the memory
 * of the strip (strips.c). */
void kiln__emit_strip_totals(struct kiln__body *body);
void kiln__emit_strips(struct kiln__body *body);
void kiln__emit_columns(struct kiln__body *body);

/* A map over square tiles of two dimensions, and the functions that turn their blocks
 * (tiles.c). */
void kiln__emit_tile_transposes(const struct kiln__emit *emit);
void kiln__emit_tiles(struct kiln__body *body);
