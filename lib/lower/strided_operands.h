/* SPDX-License-Identifier: Apache-2.0 */
/* Where kernels for single nodes of matrices find their operands and their results: the last two
 * dimensions by strides, the leading ones as few runs, which all walk with a stride of their own.
 * Offsets and strides count elements. */
#pragma once

#include "lower/matmul.h"

struct kiln__strided_operand {
    uint32_t slot;
    uint8_t item; /* bytes */
    int64_t offset, row, column, run[KILN_MAX_RANK];
};

struct kiln__strided_operands {
    uint32_t inputs, results, count;
    int64_t size[KILN_MAX_RANK]; /* of `count` runs, innermost first */
    struct kiln__strided_operand input[KILN__MOST_INPUTS], out[KILN__MOST_WHOLE];
};

/* Those of a group that is not made of steps, whose accesses are its nodes' inputs. */
struct kiln__strided_operands kiln__strided_operands_of(const struct kiln__plan *plan,
                                                        const struct kiln__group *group);

/* Whether input `i` has `rows` rows of neighbours of this type, as it lies in memory, that start at
 * multiples of so many elements. Of a single row no stride is known, and none is used. */
bool kiln__strided_operands_have_rows(const struct kiln__plan *plan,
                                      const struct kiln__group *group,
                                      const struct kiln__strided_operands *operands, unsigned i,
                                      size_t rows, kiln_type type, int64_t elements);

/* Whether all rows of all results start at even elements. */
bool kiln__strided_operands_have_even_results(const struct kiln__strided_operands *operands);

/* The arguments of input `i`: its offset, the strides of rows and columns. */
void kiln__strided_operands_add(struct kiln__launch *launch,
                                const struct kiln__strided_operands *operands, unsigned i);

/* Those of each run: its size, the strides of the first `inputs` inputs, that of the first result,
 * and those of the inputs behind them. */
void kiln__strided_operands_add_runs(struct kiln__launch *launch,
                                     const struct kiln__strided_operands *operands,
                                     uint32_t inputs);
