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
 *  @endcode */
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

/** What is trained. Start from KILN_TRAINING_INIT. */
typedef struct kiln_training {
    size_t size;                   /**< sizeof(kiln_training), set by the initialiser */
    kiln_parallel_recorder record; /**< called once for each context */
    kiln_parallel_updater update;  /**< the same, afterwards */
    void *user;                    /**< handed to both */
    size_t gradient_count;         /**< 1 or more */
    const double *shares; /**< of each context in the average, such as its share of the rows: above
                               0; their sum may be anything. NULL: all alike */
} kiln_training;

/** A training of nothing yet. */
#define KILN_TRAINING_INIT                                                                         \
    {                                                                                              \
        sizeof(kiln_training), 0, 0, 0, 0, 0                                                       \
    }

/** Fill a structure as KILN_TRAINING_INIT does. NULL does nothing. Threads: any.
 *  Errors: none. */
KILN_API void kiln_training_init(kiln_training *training, size_t size);
#define kiln_training_init(...) kiln_training_init(__VA_ARGS__, sizeof(kiln_training))

/** Record a training on n contexts (1 to 64, all different), with a thread for each.
 *  Owner: the caller, until kiln_parallel_release(); it holds the contexts. Threads: any.
 *  Errors: INVALID_ARGUMENT, SHAPE_MISMATCH and TYPE_MISMATCH (a gradient that is not as in the
 *  first context, or not f32), those of the callbacks, OUT_OF_DEVICE_MEMORY, OUT_OF_HOST_MEMORY
 *  (threads too), FORKED; *parallel is NULL. */
KILN_API KILN_MUST_CHECK kiln_status kiln_parallel_create(kiln_context *const *contexts, size_t n,
                                                          const kiln_training *training,
                                                          kiln_parallel **parallel);

/** Make one step on all contexts, and wait for it. After an error before the update no weights have
 *  changed, and the step may be tried again; the sentence names the context, and says if the
 *  failure was of the update: weights of the contexts may then differ.
 *  Threads: one at a time. Errors: INVALID_ARGUMENT, FORKED, those of kiln_batch_execute(). */
KILN_API KILN_MUST_CHECK kiln_status kiln_parallel_step(kiln_parallel *parallel);

/** Release it. NULL does nothing. In a child of fork() nothing is freed.
 *  Threads: one, after all other calls on it. Errors: none. */
KILN_API void kiln_parallel_release(kiln_parallel *parallel);

#ifdef __cplusplus
}
#endif

#endif
