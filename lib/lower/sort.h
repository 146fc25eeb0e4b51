/* SPDX-License-Identifier: Apache-2.0 */
/* A sort, as the rows of the catalogue that do one take it (sort_cpu.c, sort_gpu.c). */
#pragma once

#include "lower/matmul.h"
#include "lower/select.h"

/* The positions of the first `kept` elements of each line of `extent`, in order. */
struct kiln__sorting {
    const struct kiln__traits *traits;
    uint32_t group;
    uint32_t values, result; /* slots */
    int64_t offset;          /* of the values, in elements */
    kiln_type type;          /* that they are stored in */
    bool descending;
    size_t lines, extent, kept;
    size_t key;      /* bytes of what stands for an element, its position included */
    unsigned low;    /* the first bit of it that differs between elements, */
    unsigned digits; /* and digits of 8 bits from there on (kernels/sort.h) */
    bool keyed;      /* keys are there, and the values are not read */
};

/* So many parts of each line that there are `wanted` of all lines; no part has fewer than `least`
 * elements, and there is one of each line at least. */
size_t kiln__sort_runs(const struct kiln__sorting *sort, size_t wanted, size_t least);

/* A launch of a kernel in one dimension, of one work-group of so many; its options have `more`
 * behind those of keys. */
struct kiln__launch kiln__sort_launch(const struct kiln__plan *plan,
                                      const struct kiln__sorting *sort, const char *file,
                                      const char *kernel, size_t local, const char *more);

/* Append arguments: a slot's memory and where it begins there, in elements of so many bytes; the
 * values. */
void kiln__sort_add(uint32_t slot, size_t item, struct kiln__launch *launch);
void kiln__sort_add_values(const struct kiln__sorting *sort, struct kiln__launch *launch);

/* What a launch does that takes the first few of lines (kernels/sort_cpu_lines.cl,
 * kernels/sort_gpu_first.cl): of each part of a line, or of those that are listed. */
struct kiln__sort_few {
    size_t parts, listed;
    uint32_t from, to; /* slots of positions */
    uint64_t bytes;    /* that it moves */
};
typedef void kiln__sort_lower_few(struct kiln__plan *plan, const struct kiln__sorting *sort,
                                  const struct kiln__sort_few *few);

/* Of parts, if there are several, and then of what these have left. */
void kiln__sort_by_runs(struct kiln__plan *plan, const struct kiln__sorting *sort, size_t parts,
                        kiln__sort_lower_few *lower);

/* What launches do that put keys in the order of one digit (kernels/sort_cpu_digits.cl,
 * kernels/sort_gpu_digits.cl). */
struct kiln__sort_pass {
    unsigned shift; /* of the digit */
    bool first, last;
    uint32_t from, to, counts; /* slots: keys, of the first pass values; the last one's result */
    size_t parts;              /* of a line */
    uint64_t read, written;    /* bytes: of `from` and `to` */
};
typedef void kiln__sort_lower_pass(struct kiln__plan *plan, const struct kiln__sorting *sort,
                                   const struct kiln__sort_pass *pass);

/* On devices with work-groups: put `count` keys of 64 bits in working memory in the order of so
 * many digits of their upper halves; equal ones stay in their order. `keys` is where launches of
 * the group have put them. Returns where they are then. */
uint32_t kiln__sort_keys(struct kiln__plan *plan, uint32_t group, uint32_t keys, size_t count,
                         size_t digits);

/* One digit after the other; `counts` are of all parts. */
void kiln__sort_by_digits(struct kiln__plan *plan, const struct kiln__sorting *sort, size_t parts,
                          size_t counts, kiln__sort_lower_pass *lower);
