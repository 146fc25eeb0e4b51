/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  Loops on the device: a step is recorded once, and the loop takes it many times. What computes
 *  element by element becomes one kernel with the loop inside; anything else is recorded step by
 *  step, or runs again and again, however many steps there are. Each has the same results, and
 *  gradients. */
#ifndef KILN_LOOP_H
#define KILN_LOOP_H

#include <kiln/status.h>
#include <kiln/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A value of the state at the start of a step, to record the step with: of the type and shape that
 *  `initial` has, which is the state before the first step.
 *  Threads: one at a time. Errors (sticky): INVALID_HANDLE. */
KILN_API kiln_tensor kiln_loop_state(kiln_batch *batch, kiln_tensor initial);

/** The part of `xs` that belongs to a step: xs[i] in step i. xs has as many of them along its first
 *  dimension as the loop takes steps.
 *  Threads: one at a time. Errors (sticky): INVALID_HANDLE, SHAPE_MISMATCH (of rank 0). */
KILN_API kiln_tensor kiln_loop_element(kiln_batch *batch, kiln_tensor xs);

/** The number of a step, from 0: an i32 of rank 0. Threads: one at a time. Errors (sticky):
 *  OUT_OF_HOST_MEMORY. */
KILN_API kiln_tensor kiln_loop_step(kiln_batch *batch);

/** A loop over a step that has been recorded. Start from KILN_LOOP_INIT. Arrays are read during the
 *  call alone. */
typedef struct kiln_loop_options {
    size_t size;                 /**< sizeof(kiln_loop_options), set by the initialiser */
    size_t steps;                /**< how many; with `until` at most */
    size_t state_count;          /**< 1 at least */
    const kiln_tensor *states;   /**< of kiln_loop_state(), each once */
    const kiln_tensor *next;     /**< what each state is after the step: of its type and shape */
    size_t element_count;        /**< how many of elements */
    const kiln_tensor *elements; /**< of kiln_loop_element() */
    size_t output_count;         /**< how many of outputs */
    const kiln_tensor *outputs;  /**< what is left of each step */
    kiln_tensor step;            /**< of kiln_loop_step(), or {0} */
    kiln_tensor until; /**< a mask of the state at the start of a step; where it is not 0 the step
                          is not taken, nor any behind it. It depends on neither elements nor the
                          number of the step. Of one element: for all states. Else of as many
                          elements as each state has, and each element ends by itself. {0}: none.
                          There are no outputs then */
    int reverse;       /**< from the last step, of the highest number, to the first */
} kiln_loop_options;

/** A loop of nothing yet. */
#define KILN_LOOP_INIT                                                                             \
    {                                                                                              \
        sizeof(kiln_loop_options), 0, 0, 0, 0, 0, 0, 0, 0, {0}, {0}, 0                             \
    }

/** Fill a structure as KILN_LOOP_INIT does. NULL does nothing. Threads: any. Errors: none. */
KILN_API void kiln_loop_options_init(kiln_loop_options *options, size_t size);
#define kiln_loop_options_init(...) kiln_loop_options_init(__VA_ARGS__, sizeof(kiln_loop_options))

/** Record a loop. last[k] receives state k behind the last step, and stacked[k] output k of all
 *  steps, along a first dimension: that of step i is stacked[k][i]. `stacked` may be NULL where
 *  there are no outputs. Whatever else a step is made of is the same in all of them; random numbers
 *  are, too. Without steps the states are what they were.
 *
 *  One kernel has the loop inside where the step, between states, elements and what it leaves, is
 *  elementwise operations and casts, all of as many elements or of one, and takes at most 9 inputs
 *  and 8 outputs. Otherwise every step is recorded by itself, if that is no more than 4,096
 *  operations. Beyond, and where a step has such a loop inside, one step is planned, and a run of
 *  the batch runs it as often as the loop says: states take two pieces of memory in turn, what
 *  comes before and behind the loop runs by itself, and after each few thousand launches the run
 *  waits for the device, in kiln_batch_submit() too. On CPUs up to 64 short steps are planned
 *  together. Such a batch takes as much memory as it needs (no
 *  micro-batches). Validation and the check of values look at each step as at a run of its own: a
 *  share of runs is a share of steps. Sentences name the step, and the batch ends there.
 *
 *  A condition is looked at in each step by the kernel, which so ends early; of steps that run
 *  again and again by the host, before those of numbers 1, 2, 4 to 64 and then each 64th, or
 *  the first of those planned together behind these. Steps
 *  that are recorded are all computed. What is beyond the end is dropped. A gradient through a
 * kernel keeps the states of some steps, and computes those between anew; with more than 4 states,
 * or 8 states and shared operands, its steps are recorded one by one. So are, for a gradient, those
 * of every other loop: kiln_grad() answers TOO_LARGE beyond 65,536 operations. There what is NaN or
 * infinite in a step beyond the end may reach the gradient. Validation leaves the kernel out, as an
 * own one without a function of the host.
 *
 *  Owner: the tensors belong to the batch. Threads: one at a time. Errors, sticky: INVALID_HANDLE,
 *  INVALID_ARGUMENT (what is no state, element or step; outputs beside `until`), TYPE_MISMATCH,
 *  SHAPE_MISMATCH, TOO_LARGE (2^31 steps), UNSUPPORTED (fields that this library lacks),
 *  OUT_OF_HOST_MEMORY. After one `last` and `stacked` are {0}. */
KILN_API kiln_status kiln_loop(kiln_batch *batch, const kiln_loop_options *options,
                               kiln_tensor *last, kiln_tensor *stacked);

#ifdef __cplusplus
}
#endif

#endif
