/* SPDX-License-Identifier: Apache-2.0 */
/* A graph that computes some rows of what another one computes: where every row of the requested
 * results depends on the same rows of the inputs, and on values that have no rows. */
#ifndef KILN_GRAPH_CUT_H
#define KILN_GRAPH_CUT_H

#include "graph/graph.h"

/* What input number i of the part is. */
struct kiln__cut_input {
    uint64_t binding; /* the input of the whole graph that it stands for */
    bool rows;        /* some of its rows, else all of it */
    size_t numbers;   /* not 0: none of the graph's, but one i32: so many for each row before the
                         part, which is what numbers of elements begin with there */
};

struct kiln__cut {
    struct kiln__graph graph;
    KILN__VECTOR(struct kiln__cut_input) inputs;
    KILN__VECTOR(uint32_t) of; /* per node of `graph`: the node of the whole that it stands for */
    uint32_t wrong;            /* the node that cannot be had by rows, if it is IMPOSSIBLE */
};

enum kiln__cut_answer { KILN__CUT_DONE, KILN__CUT_IMPOSSIBLE, KILN__CUT_NO_MEMORY };

/* How many rows all requested results have, several elements of the first dimension perhaps being
 * one; 0: there is one without. */
size_t kiln__cut_rows(const struct kiln__graph *graph);

/* The graph for `part` of the `rows` rows; its requests are those of `graph`, by rows. It adds up
 * alike. To be freed whatever the answer. */
enum kiln__cut_answer kiln__cut_make(const struct kiln__graph *graph, size_t rows, size_t part,
                                     struct kiln__cut *cut);
void kiln__cut_free(struct kiln__cut *cut);

#endif
