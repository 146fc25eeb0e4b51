/* SPDX-License-Identifier: Apache-2.0 */
/* The machine on which groups are interpreted: a memory for each node. Groups compute in it
 * (interpret_groups.c); plans say where memories are and when groups run (interpret_plan.c). */
#pragma once

#include "plan/plan.h"

/* Where a node is: `step` cells per element, as many as it has bytes where memory is shared. */
struct memory {
    double *cells;
    size_t step, count;
    const double *seen; /* what a launch before this one found in them; or NULL */
};

/* What a group stores, until its last launch. */
struct pending {
    KILN__VECTOR(struct write {
        struct memory *memory;
        size_t number;
        double value;
    })
    writes;
    double *seen[KILN__MOST_ACCESSES]; /* per access: what it read, once a launch has done so */
    size_t launches;                   /* still to come */
    bool begun;
};

struct machine {
    const struct kiln__fusion *fusion;
    struct memory *memory;   /* per node */
    bool backwards;          /* elements are visited from the last one on */
    struct pending *pending; /* where stores wait; NULL: they do not */
    char wrong[200];         /* the first thing that must not be; empty: nothing */
};

const struct kiln__node *interpret_node(const struct machine *machine, uint32_t index);

/* Note the first thing that must not be. */
void interpret_complain(struct machine *machine, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* `count` values that are NaN; the caller frees. */
double *interpret_room(size_t count);

/* Element `number` of a node in memory. */
double interpret_fetch(struct machine *machine, uint32_t node, int64_t number);
void interpret_put(struct machine *machine, uint32_t node, int64_t number, double value);

/* What has waited is stored. */
void interpret_commit_all(struct pending *pending);

/* ---- blocks of a run ---- */

struct heap {
    KILN__VECTOR(double *) blocks;
};

/* `values`, which are freed with the heap. */
double *interpret_keep(struct heap *heap, double *values);
void interpret_free_heap(struct heap *heap);

/* What is at `data`, an input of the node's type and shape; the caller frees. */
double *interpret_input(const struct kiln__node *node, const void *data);

/* Of each request room for its elements, in the heap; the caller frees the list alone. */
double **interpret_results(const struct kiln__graph *graph, struct heap *heap);
