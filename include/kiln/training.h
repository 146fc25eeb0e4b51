/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  What makes a network train: losses, optimisers, clipping. Gradients are in kiln/gradient.h,
 *  dropout in kiln/random.h.
 *
 *  A training step is one batch: import the parameters, compute the loss, its gradients, and let
 *  kiln_optimizer_step() update the parameters in their buffers. The same batch is executed again
 *  for each step, with new data in its uploads; nothing is planned or compiled again.
 *
 *  A step that fails may have updated some parameters, and what the optimiser remembers of them,
 *  and not others; each element holds its old value or its new one. To go on exactly, write back
 *  copies of the parameters and of kiln_optimizer_state(). */
#ifndef KILN_TRAINING_H
#define KILN_TRAINING_H

#include <kiln/status.h>
#include <kiln/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- losses ---- */

/* For all of them: f32 throughout, labels apart; the result is a scalar that belongs to the batch,
 * NaN of no elements, the empty tensor after an error; shapes do not broadcast. One thread at a
 * time. Errors (sticky): INVALID_HANDLE, TYPE_MISMATCH, SHAPE_MISMATCH, TOO_LARGE,
 * OUT_OF_HOST_MEMORY. */

/** The mean of (x - target)^2. */
KILN_API kiln_tensor kiln_mean_squared_error(kiln_batch *batch, kiln_tensor x, kiln_tensor target);

/** The mean over rows of logsumexp(logits) - logits[label]: minus the logarithm of the probability
 *  that softmax gives to the label. logits are [..., classes], labels integers of the shape before
 *  `classes`. No probability is computed, so that none underflows. A label that is no class makes
 *  the loss NaN. */
KILN_API kiln_tensor kiln_cross_entropy(kiln_batch *batch, kiln_tensor logits, kiln_tensor labels);

/** What is made of the losses of all rows. */
typedef enum kiln_loss_reduction {
    KILN_REDUCTION_MEAN = 0, /**< the sum divided by that of the weights */
    KILN_REDUCTION_SUM = 1,
    KILN_REDUCTION_NONE = 2 /**< nothing: the result has the labels' shape */
} kiln_loss_reduction;

/** What cross-entropy counts. Start from KILN_CROSS_ENTROPY_INIT. */
typedef struct kiln_cross_entropy_options {
    size_t size; /**< sizeof(kiln_cross_entropy_options), set by the initialiser */
    kiln_loss_reduction reduction; /**< mean */
    kiln_tensor class_weights;     /**< f32 [classes]: a row counts as its label's; {0}: all 1 */
    double label_smoothing; /**< this share, from 0 to 1, of the label's 1 goes to all classes
                                 evenly (Szegedy et al. 2016); 0 */
    int ignores;            /**< nonzero: rows with ignored_label count nothing */
    int32_t ignored_label;  /**< it need not be a class */
    int log_probabilities;  /**< nonzero: what is given are logarithms of probabilities already */
} kiln_cross_entropy_options;

/** Options of kiln_cross_entropy(). */
#define KILN_CROSS_ENTROPY_INIT                                                                    \
    {                                                                                              \
        sizeof(kiln_cross_entropy_options), KILN_REDUCTION_MEAN, {0}, 0, 0, 0, 0                   \
    }

/** Fill a structure as KILN_CROSS_ENTROPY_INIT does. NULL does nothing. Threads: any.
 *  Errors: none. */
KILN_API void kiln_cross_entropy_options_init(kiln_cross_entropy_options *options, size_t size);
#define kiln_cross_entropy_options_init(...)                                                       \
    kiln_cross_entropy_options_init(__VA_ARGS__, sizeof(kiln_cross_entropy_options))

/** kiln_cross_entropy() with options, which may be NULL. The mean is NaN where the weights of all
 *  rows add up to 0. Errors: INVALID_ARGUMENT also for options that make no sense. */
KILN_API kiln_tensor kiln_cross_entropy_with(kiln_batch *batch, kiln_tensor logits,
                                             kiln_tensor labels,
                                             const kiln_cross_entropy_options *options);

/** The mean of -target * log(p) - (1 - target) * log(1 - p), p = sigmoid(logits), accurate where p
 *  is next to 0 or 1; targets from 0 to 1. */
KILN_API kiln_tensor kiln_binary_cross_entropy(kiln_batch *batch, kiln_tensor logits,
                                               kiln_tensor target);

/* ---- optimisers ---- */

/** How parameters p follow their gradients g, with learning rate r and weight decay d. */
typedef enum kiln_optimizer_method {
    /** Gradient descent: h = g + d * p; with momentum u: v = u * v + h, then p -= r * v, or with
     *  Nesterov's momentum p -= r * (h + u * v) (I. Sutskever and others, ICML 2013). */
    KILN_SGD = 1,
    /** Adam (D. Kingma and J. Ba, ICLR 2015); h = g + d * p stands for the gradient. */
    KILN_ADAM = 2,
    /** Adam with decoupled decay, p -= r * d * p (I. Loshchilov and F. Hutter, ICLR 2019). */
    KILN_ADAMW = 3
} kiln_optimizer_method;

/** How an optimiser works. Start from KILN_SGD_INIT, KILN_ADAM_INIT or KILN_ADAMW_INIT. */
typedef struct kiln_optimizer_options {
    size_t size;                  /**< sizeof(kiln_optimizer_options), set by the initialiser */
    kiln_optimizer_method method; /**< set by the initialiser */
    double learning_rate;         /**< 0 or more; SGD 0.01, Adam 0.001 */
    double weight_decay;          /**< 0 or more; AdamW 0.01, else 0 */
    double momentum;              /**< SGD: from 0 to below 1 */
    int nesterov;                 /**< SGD: nonzero: Nesterov's momentum, which must be above 0 */
    double beta1;                 /**< Adam: how much of the mean stays, from 0 to below 1; 0.9 */
    double beta2;                 /**< Adam: the same of the mean square; 0.999 */
    double epsilon;               /**< Adam: added to the root of the mean square; 1e-8 */
} kiln_optimizer_options;

/** Options of plain gradient descent. */
#define KILN_SGD_INIT                                                                              \
    {                                                                                              \
        sizeof(kiln_optimizer_options), KILN_SGD, 0.01, 0, 0, 0, 0, 0, 0                           \
    }
/** Options of Adam. */
#define KILN_ADAM_INIT                                                                             \
    {                                                                                              \
        sizeof(kiln_optimizer_options), KILN_ADAM, 0.001, 0, 0, 0, 0.9, 0.999, 1e-8                \
    }
/** Options of AdamW. */
#define KILN_ADAMW_INIT                                                                            \
    {                                                                                              \
        sizeof(kiln_optimizer_options), KILN_ADAMW, 0.001, 0.01, 0, 0, 0.9, 0.999, 1e-8            \
    }

/** Fill a structure as the method's initialiser does; with zeros for no method. NULL does nothing.
 *  Threads: any. Errors: none. */
KILN_API void kiln_optimizer_options_init(kiln_optimizer_method method,
                                          kiln_optimizer_options *options, size_t size);
#define kiln_optimizer_options_init(...)                                                           \
    kiln_optimizer_options_init(__VA_ARGS__, sizeof(kiln_optimizer_options))

/** Parameters with what their method remembers about them, on the device. */
typedef struct kiln_optimizer kiln_optimizer;

/** Make an optimiser of n parameters: buffers of `context` of floating types, all different. It has
 *  seen no step: its own buffers, f32 and of as many elements as the parameters once (momentum) or
 *  twice (Adam), hold zeros. For a parameter stored in a narrower type than f32 there is one buffer
 *  more, with what rounding took from it: the two together are the parameter in f32, which each
 *  step goes on from. Beyond the type's range (65,504 for f16) the parameter stays at its largest
 *  number, and the rest is in that buffer. Who writes such a parameter later zeros that buffer,
 * too. Owner: the caller, until kiln_optimizer_release(); it holds the parameters. Threads: any.
 *  Errors: INVALID_ARGUMENT (NULL, an option out of range, a buffer of another context, the same
 *  buffer twice), TYPE_MISMATCH, OUT_OF_HOST_MEMORY, OUT_OF_DEVICE_MEMORY, DEVICE_ERROR, FORKED;
 *  *optimizer is NULL. */
KILN_API KILN_MUST_CHECK kiln_status kiln_optimizer_create(kiln_context *context,
                                                           const kiln_optimizer_options *options,
                                                           size_t n, kiln_buffer *const *parameters,
                                                           kiln_optimizer **optimizer);

/** Release an optimiser; batches that it is recorded in keep what they need. NULL does nothing.
 *  Threads: one at a time. Errors: none. */
KILN_API void kiln_optimizer_release(kiln_optimizer *optimizer);

/** Record one step: each run of the batch updates the parameters and what the optimiser remembers,
 *  in place and in one kernel per parameter. gradients[i] has the shape of parameter i. What else
 *  the batch computes from the parameters' imports sees them before the step, so that a batch takes
 *  one step.
 *  Owner: the batch holds the buffers. Threads: one at a time.
 *  Errors (sticky): INVALID_ARGUMENT (NULL, another context's optimiser, a parameter that the batch
 *  exports to already), INVALID_HANDLE, TYPE_MISMATCH, SHAPE_MISMATCH, OUT_OF_HOST_MEMORY. */
KILN_API kiln_status kiln_optimizer_step(kiln_batch *batch, kiln_optimizer *optimizer,
                                         const kiln_tensor *gradients);

/** Another learning rate for the batches submitted from now on, at no planning cost.
 *  Threads: any. Errors: INVALID_ARGUMENT (NULL, below 0, not finite), DEVICE_ERROR, FORKED. */
KILN_API kiln_status kiln_optimizer_set_learning_rate(kiln_optimizer *optimizer, double rate);

/** The buffers of an optimiser's own state, to save training and go on later: the learning rate,
 *  what corrects Adam's means, then those of each parameter, its remainder last. *count is how
 *  many.
 *  Owner: the optimiser. Threads: any. Errors: NULL, and *count 0, for NULL. */
KILN_API kiln_buffer *const *kiln_optimizer_state(const kiln_optimizer *optimizer, size_t *count);

/** Names for these buffers in a file (kiln_save()), as many and in their order: "optimizer.X" for
 * what all parameters share, "NAME.optimizer.X" for what belongs to the parameter that
 * parameters[i] names, i as in kiln_optimizer_create(). Owner: the caller frees *names, and with it
 * all words, with kiln_free(). Threads: any. Errors: INVALID_ARGUMENT, OUT_OF_HOST_MEMORY; *names
 * is NULL. */
KILN_API KILN_MUST_CHECK kiln_status kiln_optimizer_state_names(const kiln_optimizer *optimizer,
                                                                const char *const *parameters,
                                                                const char ***names);

/** Scale n gradients down so that their common norm, the root of the sum of all squares, is at most
 *  max_norm: clipped[i] = gradients[i] * min(1, max_norm / (norm + 1e-6)) (R. Pascanu and others,
 *  ICML 2013). `clipped` may be `gradients`. A NaN in one makes all NaN.
 *  Returns the norm before, a scalar: the empty tensor after an error, as each of `clipped` then.
 *  Owner: the results belong to the batch. Threads: one at a time.
 *  Errors (sticky): INVALID_ARGUMENT (NULL, max_norm not above 0), INVALID_HANDLE, TYPE_MISMATCH,
 *  OUT_OF_HOST_MEMORY, UNSUPPORTED (in an update by parts of gradients, kiln_training.weights). */
KILN_API kiln_tensor kiln_clip_by_norm(kiln_batch *batch, size_t n, const kiln_tensor *gradients,
                                       double max_norm, kiln_tensor *clipped);

#ifdef __cplusplus
}
#endif

#endif
