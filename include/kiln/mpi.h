/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  Training by the ranks of an MPI communicator, one or several devices in each: libkiln-mpi, a
 *  library of its own (pkg-config: kiln-mpi). It is a reducer for kiln_parallel (kiln/parallel.h).
 *
 *  @code
 *  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
 *  status = kiln_mpi_create(MPI_COMM_WORLD, NULL, &mpi);
 *  status = kiln_mpi_broadcast(mpi, n, weights, 0);
 *  training.reducer = kiln_mpi_reducer(mpi);
 *  status = kiln_parallel_create(contexts, 1, &training, &parallel);
 *  for each step, in every rank:
 *      status = kiln_parallel_step(parallel);
 *  kiln_parallel_release(parallel);
 *  kiln_mpi_release(mpi);
 *  MPI_Finalize();
 *  @endcode
 *
 *  A thread of the library calls MPI while others wait or record. MPI_THREAD_SERIALIZED is enough
 *  if the program itself calls MPI only between the calls of kiln that all ranks make; else it
 *  takes MPI_THREAD_MULTIPLE.
 *
 *  A rank that fails tells the others: before the update all may make the step again, after it none
 *  (kiln_parallel_step()). All MPI calls but one go to a copy of the communicator that returns
 *  errors, so that the handler of MPI_COMM_WORLD, which ends processes, is not asked.
 *
 *  A rank that dies is another matter: neither Open MPI 4.1 nor MPICH 4.0 tells the others, on one
 *  machine or over TCP, nor can they go on without it. Their mpirun ends all other ranks at once
 *  (Open MPI's does not with --enable-recovery). Where nobody does, the others find TIMED_OUT after
 *  timeout_s. No call on the kiln_mpi succeeds from then on, and MPI_Finalize() may wait for ever:
 *  save what is to be saved, then call MPI_Abort(). */
#ifndef KILN_MPI_H
#define KILN_MPI_H

#include <mpi.h>

#include <kiln/parallel.h>
#include <kiln/status.h>
#include <kiln/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The ranks of a communicator, as they compute together. */
typedef struct kiln_mpi kiln_mpi;

/** How ranks work together. Start from KILN_MPI_OPTIONS_INIT; zero in a field is its default. */
typedef struct kiln_mpi_options {
    size_t size;         /**< sizeof(kiln_mpi_options), set by the initialiser */
    size_t bucket_bytes; /**< of gradients that travel at once, 4 to 2^30, the same in all ranks;
                              0: 4 MiB */
    unsigned timeout_s;  /**< seconds that a rank waits for the others in one exchange; 0: 600 */
    int aborts; /**< nonzero: a rank that has waited so long, or whose MPI fails, writes the
                     sentence to stderr and calls MPI_Abort() */
} kiln_mpi_options;

/** Options with every default. */
#define KILN_MPI_OPTIONS_INIT                                                                      \
    {                                                                                              \
        sizeof(kiln_mpi_options), 0, 0, 0                                                          \
    }

/** Options with every default, for callers without macros. NULL does nothing.
 *  Threads: any. Errors: none. */
KILN_API void kiln_mpi_options_init(kiln_mpi_options *options, size_t size);
#define kiln_mpi_options_init(...) kiln_mpi_options_init(__VA_ARGS__, sizeof(kiln_mpi_options))

/** Let the ranks of a communicator work together; all of them call it. `options` may be NULL.
 *  Owner: the caller, until kiln_mpi_release(); it works on a copy of the communicator.
 *  Threads: one at a time. Errors: INVALID_ARGUMENT, WRONG_STATE (MPI is not initialised, ended, or
 *  has less than MPI_THREAD_SERIALIZED), SHAPE_MISMATCH (other buckets in another rank), TIMED_OUT,
 *  IO_ERROR (MPI fails, in its own words), OUT_OF_HOST_MEMORY; *mpi is NULL. */
KILN_API KILN_MUST_CHECK kiln_status kiln_mpi_create(MPI_Comm comm, const kiln_mpi_options *options,
                                                     kiln_mpi **mpi);

/** What adds up gradients over the ranks, for kiln_training::reducer. One kiln_parallel at a time
 *  is made or makes a step. Its errors are those of kiln_mpi_broadcast().
 *  Owner: mpi. Threads: any. Errors: NULL for NULL. */
KILN_API const kiln_reducer *kiln_mpi_reducer(const kiln_mpi *mpi);

/** Give the content of rank `root`'s buffers to those of all ranks, as weights and an optimiser's
 *  state before the first step; all of them call it, with as many bytes in all. Types and shapes
 *  are not compared. Threads: one at a time.
 *  Errors, the same in all ranks or those of another one: INVALID_ARGUMENT, SHAPE_MISMATCH (other
 *  sizes in another rank), those of kiln_buffer_read() and kiln_buffer_write(), OUT_OF_HOST_MEMORY,
 *  TIMED_OUT (a rank has ended or does not answer), IO_ERROR (MPI fails). */
KILN_API KILN_MUST_CHECK kiln_status kiln_mpi_broadcast(kiln_mpi *mpi, size_t n,
                                                        kiln_buffer *const *buffers, int root);

/** Put together what ranks keep a part of where weights are divided (kiln_training::shards), such as
 *  the state of an optimiser of the shards, to save it: wholes[i] gets the elements of all ranks'
 *  shards[i]. Those of as many elements as their whole are copied from the rank's own. A whole has
 *  as many elements as the parameter, as the state of an optimiser of the weights themselves.
 *  All ranks call it; `wholes` may be NULL in all but one. Threads: one at a time.
 *  Errors: those of kiln_mpi_broadcast(), SHAPE_MISMATCH also for shards that are not of
 *  kiln_shard_range(), or of blocks, in all ranks. */
KILN_API KILN_MUST_CHECK kiln_status kiln_mpi_gather(kiln_mpi *mpi, size_t n,
                                                     kiln_buffer *const *shards,
                                                     kiln_buffer *const *wholes);

/** The other way round, to go on from what was saved, by any number of ranks: shards[i] of each rank
 *  gets its part of rank `root`'s wholes[i]. `wholes` is read in no other rank.
 *  Threads and errors: as kiln_mpi_gather(). */
KILN_API KILN_MUST_CHECK kiln_status kiln_mpi_scatter(kiln_mpi *mpi, size_t n,
                                                      kiln_buffer *const *wholes,
                                                      kiln_buffer *const *shards, int root);

/** Release it; all ranks call it, after the kiln_parallel and before MPI_Finalize(). NULL does
 *  nothing. Threads: one, after all other calls on it. Errors: none. */
KILN_API void kiln_mpi_release(kiln_mpi *mpi);

#ifdef __cplusplus
}
#endif

#endif
