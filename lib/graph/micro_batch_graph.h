/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs that compute together, some rows at a time, what another one computes as a whole: of each
 * phase (graph/partition.h) one that says where its sums begin and one for some rows, which adds
 * theirs; and one for what is left at the end. */
#pragma once

#include "graph/partition.h"

enum kiln__micro_batch_kind {
    KILN__MICRO_BATCH_BEGIN,
    KILN__MICRO_BATCH_ROWS,
    KILN__MICRO_BATCH_END
};

/* Which graph it is. */
struct kiln__micro_batch_what {
    enum kiln__micro_batch_kind kind;
    uint32_t phase; /* not of END */
    size_t part;    /* of ROWS: how many */
};

/* What input number i of the graph is. */
struct kiln__micro_batch_input {
    uint64_t binding; /* the input of the whole graph that it stands for */
    bool rows;        /* some of its rows, else all of it */
    size_t numbers;   /* not 0: none of the graph's, but one i32: so many for each row before the
                         part, which is what numbers of elements begin with there */
    uint32_t sum;     /* not 0: none of the graph's, but 1 + the number of a sum, as it is by now */
};

/* What its result number i is. */
struct kiln__micro_batch_result {
    uint64_t binding; /* the result of the whole graph */
    bool rows;        /* some of its rows, else all of it */
    uint32_t sum;     /* not 0: none of these, but 1 + the number of a sum */
};

struct kiln__micro_batch_graph {
    struct kiln__graph graph;
    KILN__VECTOR(struct kiln__micro_batch_input) inputs;
    KILN__VECTOR(struct kiln__micro_batch_result) results;
    KILN__VECTOR(uint32_t) of; /* per node of `graph`: the node of the whole that it stands for */
    uint32_t wrong; /* the node that prevents micro-batches: one row of it needs all rows of the
                       largest operand; KILN__MICRO_BATCH_FINE if there is none */
};
#define KILN__MICRO_BATCH_FINE UINT32_MAX

/* How many rows all requested results have, several elements of the first dimension perhaps being
 * one; 0: there is one without. */
size_t kiln__micro_batch_rows(const struct kiln__graph *graph);

/* The graph has no results if there is nothing for it to do. ROWS and END add up alike where a
 * result of the whole is delivered by rows. False without memory; to be freed then, too. */
bool kiln__micro_batch_graph_make(const struct kiln__partition *partition,
                                  const struct kiln__micro_batch_what *what,
                                  struct kiln__micro_batch_graph *cut);
void kiln__micro_batch_graph_free(struct kiln__micro_batch_graph *cut);
