/* SPDX-License-Identifier: Apache-2.0 */
/* What products on chunked devices have in common (matmul_cpu_tiles.c): tiles of sums that fit the
 * registers, how work-items share them, and arguments of kernels/matmul_cpu_*.cl. */
#pragma once

#include "lower/matmul.h"

/* Sums that fit the registers of a vector width. */
struct kiln__cpu_tiles {
    int64_t vector, packed_rows, packed_vectors, small_rows, small_vectors;
    int64_t narrow_rows; /* small, one vector wide */
    double pace;         /* of packed ones: what a column takes */
};

/* The device's, and those of panels for a result of `n` columns, of which the last panel may have
 * few: they depend on nothing else, since panels are kept for products of any number of rows. */
const struct kiln__cpu_tiles *kiln__cpu_tiles(const struct kiln__device *device);
const struct kiln__cpu_tiles *kiln__cpu_panels(const struct kiln__device *device, int64_t n);

/* Lines of k that are added up before others: for all products, whatever else is chosen for them,
 * so that this decides the order in which they add up. */
int64_t kiln__cpu_depth_block(const struct kiln__device *device);

/* Floats from a copied row of a to the next one. */
int64_t kiln__cpu_row_stride(const struct kiln__device *device);

/* Compute units, and work-items for each of them. */
int64_t kiln__cpu_compute_units(const struct kiln__device *device);
int64_t kiln__cpu_items_per_unit(const struct kiln__device *device, int64_t usual);
#define KILN__CPU_ITEMS 2 /* so that a late unit leaves less behind */

/* How an item walks its part: `panels` of b at once, `lines` of a copied at once. */
struct kiln__cpu_order {
    int64_t tile, vectors, panels, lines;
    bool packs; /* b itself */
};

/* How many rows and panels an item has. */
void kiln__cpu_share_tiles(const struct kiln__product *product, int64_t panels,
                           const struct kiln__cpu_order *walk, int64_t *rows, int64_t *item_panels);

/* Rows of a that are copied at once. */
int64_t kiln__cpu_copied_rows(const struct kiln__product *product, int64_t tile);

/* Append the memory of three; a matrix's offset and all strides, as most kernels take an operand;
 * its offset, and the two strides that a kernel takes. */
void kiln__cpu_add_memory(struct kiln__launch *launch, uint32_t x, uint32_t y, uint32_t z);
void kiln__cpu_add_matrix(struct kiln__launch *launch, const struct kiln__matrix *x);
void kiln__cpu_add_strides(struct kiln__launch *launch, const struct kiln__matrix *x, int64_t first,
                           int64_t second);

/* Working memory as a matrix at its start. */
struct kiln__matrix kiln__cpu_scratch(struct kiln__plan *plan, int64_t floats);
