/* SPDX-License-Identifier: Apache-2.0 */
/* The partition of a graph that is computed some rows at a time. Values that have rows are computed
 * by them. A sum over rows is complete when all parts have added theirs, so that what is computed
 * from it comes in a later *phase*: once more through all parts, which compute anew what they need
 * of values that have rows. What has none is computed from sums at the end. */
#pragma once

#include "graph/graph.h"

struct kiln__partition {
    const struct kiln__graph *graph;
    size_t rows;
    uint8_t *possible; /* per node: a bit for each dimension along which it can be had by rows */
    uint8_t *marked;   /* per node: those along which it depends on rows of inputs */
    uint8_t *sum; /* per node: what kiln__batch_axis_sum() says; 0: it is computed as others are */
    uint32_t *level; /* per node: the first phase in which it, of a sum its addends, can be had */
    uint32_t *sums;  /* the nodes of sums that are needed, ascending: a sum's number is its place */
    size_t n_sums;
    uint32_t phases;
};

/* Whether something is a sum over rows if `with_sums`; else sums are computed whole, from all of
 * their operands. False without memory; to be freed then, too. */
bool kiln__partition_make(const struct kiln__graph *graph, size_t rows, bool with_sums,
                          struct kiln__partition *partition);
void kiln__partition_free(struct kiln__partition *partition);

/* The dimension along which a result is delivered by rows; -1: it is delivered at the end. */
int kiln__partition_axis(const struct kiln__partition *partition, uint32_t node);

/* Bytes of what is computed by rows: the more, the less memory a few rows take. */
double kiln__partition_bytes(const struct kiln__partition *partition);

/* The numbers of rows of inputs by which most is computed, best first; 0: no more. False without
 * memory. */
#define KILN__MOST_TRIED 3
bool kiln__partition_rows(const struct kiln__graph *graph, size_t tried[KILN__MOST_TRIED]);

/* Whether any result is delivered by rows; `whole`: all are, along their first dimensions. */
bool kiln__partition_delivers(const struct kiln__partition *partition, bool whole);

/* The phase in which a result is delivered by rows; phases: at the end. */
uint32_t kiln__partition_phase(const struct kiln__partition *partition, size_t result);
