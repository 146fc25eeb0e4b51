/* SPDX-License-Identifier: Apache-2.0 */
/* A scatter, as the rows of the catalogue that do one take it (scatter_cpu.c, scatter_gpu.c). Its
 * result holds the base already. */
#pragma once

#include "lower/matmul.h"
#include "lower/select.h"

/* The values as [outer, count, inner], the result as [outer, extent, inner]. */
struct kiln__scattering {
    const struct kiln__device *device;
    uint32_t group;
    kiln_type type;         /* that it computes in and stores */
    kiln_scatter_mode mode; /* what becomes of an element that a value comes to */
    size_t outer, count, extent, inner;
};

/* Whether numbers of one column are added up whose sums are the same in any order. */
bool kiln__scatter_adds_integers(const struct kiln__scattering *scatter);

/* A launch of a kernel in one dimension, of one work-group of so many; its options have `more`
 * behind those of types and mode. */
struct kiln__launch kiln__scatter_launch(const struct kiln__plan *plan,
                                         const struct kiln__scattering *scatter, const char *file,
                                         const char *kernel, size_t local, const char *more);

/* Append arguments: memory and where it begins there, of the values, the indices, the result, and
 * working memory of items of so many bytes. */
void kiln__scatter_add_values(const struct kiln__plan *plan, const struct kiln__scattering *scatter,
                              struct kiln__launch *launch);
void kiln__scatter_add_indices(const struct kiln__plan *plan,
                               const struct kiln__scattering *scatter, struct kiln__launch *launch);
void kiln__scatter_add_result(const struct kiln__plan *plan, const struct kiln__scattering *scatter,
                              struct kiln__launch *launch);
void kiln__scatter_add_room(uint32_t slot, size_t item, struct kiln__launch *launch);

/* Of the indices, the values, and where those go, read and written once each. */
uint64_t kiln__scatter_bytes(const struct kiln__plan *plan, const struct kiln__scattering *scatter);

/* A power of two, at least 1, of shares in the rows, so that there are as many work-items or
 * work-groups as are wanted, with `others` for each share. Each goes over all indices, so that more
 * than enough of them are a loss. */
size_t kiln__scatter_classes(const struct kiln__scattering *scatter, size_t wanted, size_t others);

/* Append the arguments of kernels/scatter.cl and kernels/scatter_gpu.cl, whose range is there, and
 * the launch. */
void kiln__scatter_walk(struct kiln__plan *plan, const struct kiln__scattering *scatter,
                        struct kiln__launch *launch);
