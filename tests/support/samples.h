/* SPDX-License-Identifier: Apache-2.0 */
/* Small operations to be recorded beside and behind each other over one matrix: at least one for
 * each kind of node and of group. */
#pragma once

#include <kiln/kiln.h>

/* Rows and columns of the matrix. */
#define SAMPLE_SIZE 8

enum sample_kind {
    SAMPLE_CHEAP, /* a map that is sooner computed again than stored */
    SAMPLE_MAP,
    SAMPLE_REDUCE_ROWS,
    SAMPLE_REDUCE_COLUMNS,
    SAMPLE_REDUCE_ALL,
    SAMPLE_ROWS, /* several reductions and maps over the same rows */
    SAMPLE_PRODUCT,
    SAMPLE_ATTENTION,
    SAMPLE_SCAN,
    SAMPLE_SCATTER,
    SAMPLE_SORT,
    SAMPLE_GATHER,
    SAMPLE_PLACE,
    SAMPLE_VIEW,
    SAMPLE_NUMBER, /* read without memory */
    SAMPLE_KINDS
};

struct sample {
    const char *name;
    enum sample_kind kind;
    kiln_tensor (*record)(kiln_batch *batch, kiln_tensor x); /* x: f32, SAMPLE_SIZE squared */
};

extern const struct sample samples[];
extern const size_t sample_count;

/* The first sample of a kind. */
const struct sample *sample_of(enum sample_kind kind);

/* What a sample made as an operand of the next one: f32, SAMPLE_SIZE squared. */
kiln_tensor sample_square(kiln_batch *batch, kiln_tensor made);
