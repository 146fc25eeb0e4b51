/* SPDX-License-Identifier: Apache-2.0 */
/* Each of two ranks keeps a part of what the optimiser remembers: the training is the same, to the
 * bit, as sums of two are the same in any order; and what is saved does not tell. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "network.h"

static void open_training(bool is_divided)
{
    kiln_mpi_options options = KILN_MPI_OPTIONS_INIT;
    options.bucket_bytes = 1204; /* parts end within them */
    ok(kiln_mpi_create(MPI_COMM_WORLD, &options, &mpi), "kiln_mpi_create");
    open_share(CONTEXTS, 3);
    open_optimizers(is_divided ? kiln_mpi_reducer(mpi) : NULL);
    ok(create(kiln_mpi_reducer(mpi)), "training");
}

static void close_training(void)
{
    close_world();
    kiln_mpi_release(mpi);
    mpi = NULL;
}

static size_t state_bytes(void)
{
    size_t count, sum = 0;
    kiln_buffer *const *state = kiln_optimizer_state(world.optimizers[0], &count);
    for (size_t i = 0; i < count; i++)
        sum += kiln_buffer_bytes(state[i]);
    return sum;
}

/* ---- state that goes to one rank and back ---- */

enum { MOST_STATE = 16 };

static void fill_state(kiln_buffer *const *state, size_t count, const char *content)
{
    for (size_t i = 0; i < count; content += kiln_buffer_bytes(state[i++]))
        ok(kiln_buffer_write(state[i], 0, content, kiln_buffer_bytes(state[i])), "writing state");
}

static void read_state(kiln_buffer *const *state, size_t count, char *content)
{
    for (size_t i = 0; i < count; content += kiln_buffer_bytes(state[i++]))
        ok(kiln_buffer_read(state[i], 0, content, kiln_buffer_bytes(state[i])), "reading state");
}

/* The last rank has the whole, of an optimiser that is not divided. */
static kiln_optimizer *make_whole(void)
{
    kiln_optimizer_options how = KILN_ADAM_INIT;
    kiln_optimizer *whole = NULL;
    if (rank == ranks - 1)
        ok(kiln_optimizer_create(world.contexts[0], &how, 2, world.weights, &whole), "the whole");
    return whole;
}

/* Gathered, it is what `wanted` says; scattered, what it was. */
static void move_state(const float *wanted, float *found)
{
    size_t count, bytes = state_bytes();
    char *before = calloc(3, bytes + 1), *after = before + bytes;
    kiln_optimizer *whole = make_whole();
    kiln_buffer *const *shards = kiln_optimizer_state(world.optimizers[0], &count);
    kiln_buffer *const *wholes = kiln_optimizer_state(whole, &(size_t){0});
    read_state(shards, count, before);
    ok(kiln_mpi_gather(mpi, count, shards, wholes), "kiln_mpi_gather");
    if (whole) {
        read_state(wholes, count, (char *)found);
        expect(!memcmp(found, wanted, (2 * WEIGHTS + 3) * sizeof *found),
               "other state than where it is not divided");
    }
    fill_state(shards, count, after + bytes); /* zeros */
    ok(kiln_mpi_scatter(mpi, count, wholes, shards, ranks - 1), "kiln_mpi_scatter");
    read_state(shards, count, after);
    expect(!memcmp(before, after, bytes), "state that went to one rank came back otherwise");
    kiln_optimizer_release(whole);
    free(before);
}

void sharded(void)
{
    static float wanted[WEIGHTS], found[WEIGHTS], state[2 * WEIGHTS + 3], gathered[2 * WEIGHTS + 3];
    double losses[STEPS], same[STEPS];
    size_t first, kept = kiln_shard_range((size_t)IN * HIDDEN, (size_t)rank, (size_t)ranks, &first);
    open_training(false);
    step_all(losses);
    read_weights(0, wanted);
    expect(state_bytes() == (3 + 2 * WEIGHTS) * sizeof(float), "other bytes of state");
    size_t count;
    kiln_buffer *const *whole = kiln_optimizer_state(world.optimizers[0], &count);
    read_state(whole, count, (char *)state);
    close_training();
    open_training(true);
    expect(state_bytes() == (3 + 2 * (kept + HIDDEN)) * sizeof(float), "other bytes of a part");
    step_all(same);
    read_weights(0, found);
    expect(!memcmp(same, losses, sizeof losses), "other losses than where nothing is divided");
    expect(same[STEPS - 1] < same[0], "nothing is learned");
    expect(!memcmp(wanted, found, sizeof wanted), "other weights");
    expect_equal_weights();
    move_state(state, gathered);
    ok(kiln_parallel_step(world.parallel), "a step after all that");
    expect_equal_weights();
    close_training();
}

/* ---- what is wrong ---- */

void sharding_fails(void)
{
    const bool is_last = rank == ranks - 1;
    open_training(true);
    size_t count;
    kiln_buffer *const *state = kiln_optimizer_state(world.optimizers[0], &count);
    /* An update in one rank. */
    if (is_last)
        fail_next_update();
    else
        ok(kiln_parallel_step(world.parallel), "a step");
    expect_error(kiln_parallel_step(world.parallel), KILN_DEVICE_ERROR, "updating: ");
    expect_error(kiln_parallel_step(world.parallel), KILN_WRONG_STATE, "an update has failed");
    kiln_parallel_release(world.parallel);
    /* State that does not fit, in one rank. */
    kiln_buffer *wholes[MOST_STATE];
    for (size_t i = 0; i < count; i++)
        wholes[i] = world.a[0];
    expect_error(kiln_mpi_gather(mpi, is_last ? 1 : 2, state, state), KILN_SHAPE_MISMATCH,
                 "kiln_mpi_gather: ");
    expect_error(kiln_mpi_gather(mpi, 1, state, rank ? NULL : wholes), KILN_SHAPE_MISMATCH,
                 "kiln_mpi_gather: ");
    expect_error(kiln_mpi_gather(mpi, 1, is_last ? NULL : state, state), KILN_INVALID_ARGUMENT,
                 is_last ? "kiln_mpi_gather: buffer 0 is NULL" : "has failed (INVALID_ARGUMENT)");
    expect_error(kiln_mpi_scatter(mpi, 1, wholes, state, 0), KILN_SHAPE_MISMATCH,
                 "kiln_mpi_scatter: ");
    expect_error(kiln_mpi_scatter(mpi, 1, wholes, state, ranks), KILN_INVALID_ARGUMENT,
                 "kiln_mpi_scatter: root is");
    expect_error(kiln_mpi_gather(NULL, 0, NULL, NULL), KILN_INVALID_ARGUMENT, "mpi is NULL");
    expect_error(kiln_mpi_scatter(NULL, 0, NULL, NULL, 0), KILN_INVALID_ARGUMENT, "mpi is NULL");
    /* Some divide and others do not. */
    for (size_t i = 0; i < CONTEXTS && is_last; i++) {
        kiln_optimizer_release(world.optimizers[i]);
        world.optimizers[i] = NULL;                 /* by hand then */
        world.weights[2 * i] = world.shards[2 * i]; /* create() leaves both out */
    }
    expect_error(create(kiln_mpi_reducer(mpi)), KILN_SHAPE_MISMATCH,
                 "kiln_parallel_create: gradients are of other sizes, or divided otherwise");
    close_training();
}
