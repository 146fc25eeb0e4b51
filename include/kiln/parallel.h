/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  Training on several devices at once, data-parallel: each context has the same weights and
 *  derives the loss of its own share of the rows; the gradients are averaged over the contexts,
 *  through host memory, and each context updates its weights with the averages.
 *
 *  Each gradient travels as soon as it is complete, while the device derives the others: on devices
 *  with memory of their own the averages are mostly there when the derivation ends.
 *
 *  @code
 *  kiln_parallel_create(contexts, 2, &training, &parallel);
 *  for each step:
 *      ... fill the memory that record() uploads from ...
 *      status = kiln_parallel_step(parallel);
 *  kiln_parallel_release(parallel);
 *  @endcode
 *
 *  Several processes train together through a reducer, as libkiln-mpi has one (kiln/mpi.h). */
#ifndef KILN_PARALLEL_H
#define KILN_PARALLEL_H

#include <kiln/status.h>
#include <kiln/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A training step on several contexts. */
typedef struct kiln_parallel kiln_parallel;

/** Record in `batch` the loss of the share of context number `context`, and leave its derivatives
 *  in gradients, which are f32 and of the same shapes in all contexts: import the weights from
 *  buffers of that context, upload its rows, kiln_read() the loss, as the mean over its rows.
 *  Gradients travel from the last to the first: leave them in the order of the layers. The batch
 *  lives as long as the kiln_parallel, and between two steps kiln_rebind_upload() may move its
 *  uploads. A status other than KILN_OK ends kiln_parallel_create(). */
typedef kiln_status (*kiln_parallel_recorder)(kiln_batch *batch, size_t context,
                                              kiln_tensor *gradients, void *user);

/** Record in `batch` how the weights of context number `context` change, from the averages: they
 *  are the same bits in all contexts. */
typedef kiln_status (*kiln_parallel_updater)(kiln_batch *batch, size_t context,
                                             const kiln_tensor *gradients, void *user);

/** What adds up the gradients of several processes that make the same steps, each with a
 *  kiln_parallel of its own. Start from KILN_REDUCER_INIT.
 *
 *  The gradients of a process, weighted by shares and added up over its contexts, lie in one array
 *  of pinned host memory, the last gradient first. They are handed over from its beginning on, in
 *  pieces, while the device derives the rest. Every process hands over the same pieces in the same
 *  order, also after an error of its own.
 *
 *  The functions answer KILN_OK, or an error whose sentence is kiln_last_error() then
 *  (kiln_error_set()). All but `join` are called by one thread of the kiln_parallel. */
typedef struct kiln_reducer {
    size_t size;  /**< sizeof(kiln_reducer), set by the initialiser */
    void *user;   /**< handed to all */
    size_t piece; /**< numbers in a piece, the last one apart; 0: 2^20 */
    /** Called by kiln_parallel_create() at its end, which `own` is the answer of so far. All
     *  processes agree as in `agree`, on how many numbers their gradients have, and on `layout`,
     *  which tells of what sizes these are and which are divided. *shares is the sum of this
     *  process's shares, and becomes that of all. */
    kiln_status (*join)(void *user, kiln_status own, size_t numbers, uint32_t layout,
                        double *shares);
    /** Begin to replace the numbers of a piece by their sums over the processes, which are the same
     *  bits in all. They are the reducer's until `wait` has answered for them. */
    kiln_status (*begin)(void *user, float *values, size_t count);
    /** Wait for the oldest piece that has not been waited for. After an error the memory of pieces
     *  may be in use for ever: it is never freed, and holds its context. */
    kiln_status (*wait)(void *user);
    /** Called before the update and after it: KILN_OK if `own` is that in all processes, else an
     *  error in all, `own` if it is one. */
    kiln_status (*agree)(void *user, kiln_status own);

    /* What follows is for shards (kiln_training); without it there are none. */
    size_t process;   /**< which process this is, from 0 on */
    size_t processes; /**< of how many */
    /** The same as `begin` for a whole gradient, of which this process needs the sums of its
     *  kiln_shard_range() alone: they stand at the beginning then, and anything behind them. */
    kiln_status (*begin_shard)(void *user, float *values, size_t elements);
    /** Begin to fill `values`, elements of so many bytes, 1 to 4, with what each process has there
     *  in its kiln_shard_range(). They are waited for in the order of all pieces. */
    kiln_status (*begin_gather)(void *user, void *values, size_t elements, size_t bytes);
} kiln_reducer;

/** A reducer without functions yet. */
#define KILN_REDUCER_INIT                                                                          \
    {                                                                                              \
        sizeof(kiln_reducer), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0                                         \
    }

/** Fill a structure as KILN_REDUCER_INIT does. NULL does nothing. Threads: any.
 *  Errors: none. */
KILN_API void kiln_reducer_init(kiln_reducer *reducer, size_t size);
#define kiln_reducer_init(...) kiln_reducer_init(__VA_ARGS__, sizeof(kiln_reducer))

/** What is trained. Start from KILN_TRAINING_INIT. */
typedef struct kiln_training {
    size_t size;                   /**< sizeof(kiln_training), set by the initialiser */
    kiln_parallel_recorder record; /**< called once for each context */
    kiln_parallel_updater update;  /**< the same, afterwards */
    void *user;                    /**< handed to both */
    size_t gradient_count;         /**< 1 or more */
    const double *shares; /**< of each context in the average, such as its share of the rows: above
                               0; their sum may be anything. NULL: all alike */
    const kiln_reducer *reducer; /**< what adds up with other processes: shares are then parts of
                                      the sum over all of them. NULL: there is this one alone */
    /** What the gradients are derivatives by, those of one context after those of another; held.
     *  NULL: every process updates all weights. Else `update` changes `shards` alone, as many and
     *  in the same order, of kiln_shard_create(), which kiln_parallel_create() fills from the
     *  weights: gradients are flat there and as long as the shards, and what an optimiser of the
     *  shards remembers is divided as they are. After it all weights get all shards. What looks at
     *  gradients together sees this process's share alone: kiln_clip_by_norm() is refused there. */
    kiln_buffer *const *weights;
    kiln_buffer *const *shards; /**< what `update` changes of the weights; NULL without them */
} kiln_training;

/** A training of nothing yet. */
#define KILN_TRAINING_INIT                                                                         \
    {                                                                                              \
        sizeof(kiln_training), 0, 0, 0, 0, 0, 0, 0, 0                                              \
    }

/** Fill a structure as KILN_TRAINING_INIT does. NULL does nothing. Threads: any.
 *  Errors: none. */
KILN_API void kiln_training_init(kiln_training *training, size_t size);
#define kiln_training_init(...) kiln_training_init(__VA_ARGS__, sizeof(kiln_training))

/** How many of a parameter's elements process number `process` of `processes` updates where weights
 *  are divided; *first, which may be NULL, is the first of them. They lie next to each other, and
 *  those of all processes make up the whole. Parameters of fewer than 2^12 elements, or of more than
 *  2^31 - 1, are not divided: each process has all of them. Threads: any. Errors: none. */
KILN_API size_t kiln_shard_range(size_t elements, size_t process, size_t processes, size_t *first);

/** Make what this process updates of `weights`, a buffer of `context`: one of as many elements as
 *  kiln_shard_range() says, of the same type, whose content is not set yet; or `weights` itself,
 *  held once more, if it is not divided. A `reducer` that cannot divide, or NULL, divides nothing.
 *  Owner: the caller, kiln_buffer_release(). Threads: any.
 *  Errors: INVALID_ARGUMENT, those of kiln_buffer_create(); *shard is NULL. */
KILN_API KILN_MUST_CHECK kiln_status kiln_shard_create(kiln_context *context,
                                                       const kiln_reducer *reducer,
                                                       kiln_buffer *weights, kiln_buffer **shard);

/** Record a training on n contexts (1 to 64, all different), with a thread for each.
 *  Owner: the caller, until kiln_parallel_release(); it holds the contexts. Threads: any.
 *  With a reducer all processes call it, and all succeed or none.
 *  Errors: INVALID_ARGUMENT, SHAPE_MISMATCH and TYPE_MISMATCH (a gradient that is not as in the
 *  first context, or not f32; weights and shards that do not fit it), those of the callbacks and of the reducer, OUT_OF_DEVICE_MEMORY,
 *  OUT_OF_HOST_MEMORY (threads too), FORKED; *parallel is NULL. */
KILN_API KILN_MUST_CHECK kiln_status kiln_parallel_create(kiln_context *const *contexts, size_t n,
                                                          const kiln_training *training,
                                                          kiln_parallel **parallel);

/** Make one step on all contexts, and wait for it; with a reducer all processes call it. After an
 *  error before the update no weights have changed, in no process, and the step may be tried again.
 *  The sentence names the context, and says "updating" if the failure was of the update, in any
 *  process: weights of the contexts may then differ, and no further step is made. Restore weights
 *  and optimisers in all contexts, as from a file, then create another kiln_parallel.
 *  Threads: one at a time. Errors: INVALID_ARGUMENT, FORKED, WRONG_STATE (an update has failed
 *  before), those of kiln_batch_execute() and of the reducer. */
KILN_API KILN_MUST_CHECK kiln_status kiln_parallel_step(kiln_parallel *parallel);

/** Release it. NULL does nothing. In a child of fork() nothing is freed.
 *  Threads: one, after all other calls on it. Errors: none. */
KILN_API void kiln_parallel_release(kiln_parallel *parallel);

#ifdef __cplusplus
}
#endif

#endif
