/* SPDX-License-Identifier: Apache-2.0 */
/* What the ranks of tests train: a network of two products, some rows in each context of each rank.
 */
#pragma once

#include <kiln/kiln.h>
#include <kiln/mpi.h>

/* The first of two weights is large enough to be divided, the other is not. */
enum { ROWS = 24, IN = 6, HIDDEN = 700, STEPS = 4, CONTEXTS = 2, WEIGHTS = IN * HIDDEN + HIDDEN };

extern int rank, ranks;
extern kiln_mpi *mpi;

/* Ends all ranks, with a sentence, unless it is so. */
void expect(int well, const char *what);
void ok(kiln_status status, const char *what);
void expect_error(kiln_status status, kiln_status wanted, const char *part);

extern struct world {
    size_t count, rows[CONTEXTS], first[CONTEXTS];
    double shares[CONTEXTS];
    kiln_context *contexts[CONTEXTS];
    kiln_buffer *a[CONTEXTS], *b[CONTEXTS];
    float losses[CONTEXTS];
    /* Of two weights in each context; without optimisers they are updated by hand. */
    kiln_optimizer *optimizers[CONTEXTS];
    kiln_buffer *weights[2 * CONTEXTS], *shards[2 * CONTEXTS];
    kiln_status answer; /* of the recorder */
    kiln_parallel *parallel;
} world;
extern float x[ROWS * IN];

/* `count` contexts have the rows from `first` up to `end`, the first context most of them. */
void open_world(size_t count, size_t first, size_t end, unsigned seed);

/* The same of this rank's share of all rows. */
void open_share(size_t count, unsigned seed);

/* An optimiser in each context, of the whole weights (NULL) or of what the reducer leaves to this
 * rank. */
void open_optimizers(const kiln_reducer *reducer);
kiln_status create(const kiln_reducer *reducer);
void close_world(void);

/* The losses over all rows of all ranks, before each step. */
void step_all(double *losses);

void read_weights(size_t context, float *weights);
void expect_equal_weights(void);

/* Make a step; in the next one the last kernel of this rank, which is of the update, fails. */
void fail_next_update(void);

/* Optimiser's state in parts. */
void sharded(void);
void sharding_fails(void);

/* The next of this rank's calls of that name fails, as MPI has it: the handler of its communicator
 * is called, too. */
enum call { NO_CALL, IALLREDUCE, COMM_IDUP };
extern _Atomic enum call failing;
