/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  Many callers, one busy device: an executor gathers small requests into full batches.
 *
 *  A model says what is computed from rows: it records the operations of a batch of so many rows,
 *  once for each size that batches may have (2, 4, ... rows, up to the largest, of each of a few
 *  lengths if rows have one). Threads submit
 *  requests of some rows each; the executor copies requests that meet into one batch, runs it, and
 *  copies each its own results. A batch goes out when it is full, when its oldest request has
 * waited long enough, and at once when the device is idle. With several contexts each batch goes to
 * the one that will have it done first. Rows must not depend on each other: which of them meet is
 * chance. A row's results have the same bits alone and in whatever company, on one device: batches
 * of all sizes add up in the same orders (kiln_batch_set_batch_invariant()), and none has fewer
 * than two rows.
 *
 *  @code
 *  kiln_executor_create(&context, 1, &model, NULL, &executor);
 *  ... in any thread:
 *  kiln_input x = {pixels, sizeof pixels, KILN_F32};
 *  kiln_output y = {digit, sizeof digit, KILN_I32};
 *  kiln_executor_submit(executor, &x, &y, 1, NULL, &future);
 *  status = kiln_future_wait(future);
 *  kiln_future_release(future);
 *  @endcode */
#ifndef KILN_EXECUTOR_H
#define KILN_EXECUTOR_H

#include <kiln/context.h>
#include <kiln/status.h>
#include <kiln/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Gathers requests into batches, on one or several contexts. */
typedef struct kiln_executor kiln_executor;

/** The end of one request: it comes once, with a status. */
typedef struct kiln_future kiln_future;

/* ---- models ---- */

/** Most inputs, and most outputs, of a model. */
#define KILN_MODEL_MOST 16

/** One row of an input: what a batch of n rows has n of. kiln_model::row_size says how large the
 *  program has it. */
typedef struct kiln_row {
    kiln_type type;                 /**< of its elements */
    size_t rank;                    /**< its dimensions, at most KILN_MAX_RANK - 1; 0: one number */
    size_t dims[KILN_MAX_RANK - 1]; /**< all above 0 */
    uint32_t below; /**< of integers: each element must be from 0 to below - 1, such as a label; a
                         request with another is refused. 0: no bound */
    int sequence;   /**< nonzero: the first dimension is the row's length, which each request says
                         for its rows, and dims[0] the greatest, at most 2^18; the same for all
                         such inputs. See kiln_model_recorder */
} kiln_row;

/** Record the operations of a model for `rows` rows in `batch`, which belongs to context number
 *  `context` of the executor: import the weights from buffers of that context. inputs[i] is
 *  [rows, ...the row of input i]; leave results of shape [rows, ...] in outputs. What the batch is
 *  asked for otherwise, a kiln_export() say, is done by each run and perhaps twice: leave it.
 *
 *  Where inputs are sequences, a batch is for rows up to a length: 8, 16, 32, ..., the greatest; a
 *  lesser one and the greatest, if it is at most 8. Requests travel with those whose rows end in
 * the same one, so that none of 4 or more pays for more than twice its length; inputs[i] is [rows,
 * length, ...] then, and 0 beyond the end of a row. After the inputs come two tensors more: at
 * inputs[input_count] each row's own length, i32 [rows], 0 in rows of nobody; at the next a mask,
 * u8 [rows, length], 1 where the row has an element. An output of shape [rows, length, ...] is a
 * sequence, too: requests get as much of each row as it is long. A row's result has the same bits
 * in all company, but padding enters sums unless the mask keeps it out. Errors of the batch are
 * found without it; another status ends kiln_executor_create(). */
typedef kiln_status (*kiln_model_recorder)(kiln_batch *batch, size_t context, size_t rows,
                                           const kiln_tensor *inputs, kiln_tensor *outputs,
                                           void *user);

/** What an executor computes. Start from KILN_MODEL_INIT. */
typedef struct kiln_model {
    size_t size;                /**< sizeof(kiln_model), set by the initialiser */
    kiln_model_recorder record; /**< called during kiln_executor_create(), and never later */
    void *user;                 /**< handed to it */
    size_t input_count;         /**< 1 to KILN_MODEL_MOST */
    const kiln_row *inputs;     /**< a row of each */
    size_t output_count;        /**< 1 to KILN_MODEL_MOST */
    size_t row_size;            /**< sizeof(kiln_row), set by the initialiser */
    kiln_precision precision;   /**< of its batches, as kiln_batch_set_precision() takes it. A row's
                                     result has the same bits in all company by each of them, but
                                     TF32 and F32X3 are plain f32 */
} kiln_model;

/** A model of nothing yet. */
#define KILN_MODEL_INIT                                                                            \
    {                                                                                              \
        sizeof(kiln_model), 0, 0, 0, 0, 0, sizeof(kiln_row), KILN_PRECISION_DEFAULT                \
    }

/** Fill a structure as KILN_MODEL_INIT does. NULL does nothing. Threads: any.
 *  Errors: none. */
KILN_API void kiln_model_init(kiln_model *model, size_t size, size_t row_size);
#define kiln_model_init(...) kiln_model_init(__VA_ARGS__, sizeof(kiln_model), sizeof(kiln_row))

/* ---- executors ---- */

/** How an executor gathers. Start from KILN_EXECUTOR_OPTIONS_INIT, or from one of the other
 *  initialisers; zero in a field is the default. */
typedef struct kiln_executor_options {
    size_t size;          /**< sizeof(kiln_executor_options), set by the initialiser */
    size_t max_batch;     /**< most rows of a batch, and of a request; at most 2^20; 1024 */
    size_t min_batch;     /**< rows that make an idle device begin at once; 1 */
    uint64_t max_wait_us; /**< a request waits for company at most so long, while a device can be
                               had; microseconds, at most an hour; 5000 */
    size_t max_queue;     /**< most requests that wait, at most 2^24 - 1; 128. No batch has more of
                               them: where requests are of one row and there may be more at once,
                               full batches want max_batch here, as the throughput preset has */
    uint64_t retry_us;    /**< a context that failed is tried again after so long, then twice as
                               long, and so on up to 64 times; microseconds; 100000 */
    int prepare;          /**< nonzero: compile everything in kiln_executor_create(), so that no
                               request waits for the compiler */
    int close_lengths;    /**< nonzero: where rows have lengths, batches are for 24, 48, 96, ...
                               as well: less padding for rows that come sorted, less company for
                               those that do not */
    size_t max_elements;  /**< where rows have lengths: most rows of a batch times its length, for
                               time and memory of a batch go by that; a batch for a length has
                               max_batch rows or fewer, and two at least. 0: no bound */
} kiln_executor_options;

/** Every default: a balance of latency and throughput. */
#define KILN_EXECUTOR_OPTIONS_INIT                                                                 \
    {                                                                                              \
        sizeof(kiln_executor_options), 1024, 1, 5000, 128, 0, 0, 0, 0                              \
    }
/** For short waits: 256 rows, 1 ms. */
#define KILN_EXECUTOR_LATENCY_INIT                                                                 \
    {                                                                                              \
        sizeof(kiln_executor_options), 256, 1, 1000, 128, 0, 0, 0, 0                               \
    }
/** For many rows a second: 2048 rows, 10 ms, and as many requests waiting as fill a batch. */
#define KILN_EXECUTOR_THROUGHPUT_INIT                                                              \
    {                                                                                              \
        sizeof(kiln_executor_options), 2048, 1, 10000, 2048, 0, 0, 0, 0                            \
    }

/** Fill a structure as KILN_EXECUTOR_OPTIONS_INIT does. NULL does nothing.
 *  Threads: any. Errors: none. */
KILN_API void kiln_executor_options_init(kiln_executor_options *options, size_t size);
#define kiln_executor_options_init(...)                                                            \
    kiln_executor_options_init(__VA_ARGS__, sizeof(kiln_executor_options))

/** Fill a structure as KILN_EXECUTOR_LATENCY_INIT does. NULL does nothing.
 *  Threads: any. Errors: none. */
KILN_API void kiln_executor_options_init_latency(kiln_executor_options *options, size_t size);
#define kiln_executor_options_init_latency(...)                                                    \
    kiln_executor_options_init_latency(__VA_ARGS__, sizeof(kiln_executor_options))

/** Fill a structure as KILN_EXECUTOR_THROUGHPUT_INIT does. NULL does nothing.
 *  Threads: any. Errors: none. */
KILN_API void kiln_executor_options_init_throughput(kiln_executor_options *options, size_t size);
#define kiln_executor_options_init_throughput(...)                                                 \
    kiln_executor_options_init_throughput(__VA_ARGS__, sizeof(kiln_executor_options))

/** Make an executor on n contexts (1 to 64, all different), with two threads for each. `options`
 * may be NULL. The model is recorded for each context, each size and twice over, so that one batch
 * is gathered while another runs. Host memory for the rows of each size is kiln_host_alloc()'s (up
 * to 256 MiB a piece): where memory is shared it is used as sizes are met, else it is pinned, about
 *  twice the largest batch's rows and results for each thread.
 *  Owner: the caller, until kiln_executor_release(); it holds the contexts. Threads: any.
 *  Errors: INVALID_ARGUMENT, TOO_LARGE (rows with too many bytes), SHAPE_MISMATCH (an output whose
 *  first dimension is not the rows), those of the model, OUT_OF_HOST_MEMORY (threads too), with
 *  `prepare` those of kiln_batch_prepare(); *executor is NULL. */
KILN_API KILN_MUST_CHECK kiln_status kiln_executor_create(kiln_context *const *contexts, size_t n,
                                                          const kiln_model *model,
                                                          const kiln_executor_options *options,
                                                          kiln_executor **executor);

/** Take another reference, for another thread say. NULL does nothing. Threads: any. Errors: none.
 */
KILN_API void kiln_executor_retain(kiln_executor *executor);

/** Give a reference back. With the last one no request is lost: it waits, as
 *  kiln_executor_shutdown() with KILN_SHUTDOWN_DRAIN does, until all have completed; from a
 * callback it returns at once, and they complete later. Futures live on. NULL does nothing. In a
 * child of fork() nothing is waited for or freed. Threads: any. Errors: none. */
KILN_API void kiln_executor_release(kiln_executor *executor);

/** The rows of the batches that suit a model on a context, for kiln_executor_options::max_batch; at
 *  most `max_batch` (0: 1024), of the greatest length. `max_bytes`: a batch takes so much device
 *  memory at most beside buffers, by its plan (kiln_batch_cost::peak_bytes); the workers of an
 *  executor may have two at once. `max_run_us`: among 2, 4, ... rows up to the largest that fit,
 * the size that has most rows a second, within a twentieth the smallest that does, and runs no
 * longer than that; the smallest if all run longer. 0 is no bound; without max_run_us nothing is
 * measured, and the answer is the largest that fits. The model is recorded for context number 0.
 *
 *  Measuring runs each size some times on rows of zeros. Times are kept by kiln_context_remember(),
 *  for the same model on the same device; a record that cannot be read is logged and measured anew.
 *  Threads: any. Errors: those of kiln_executor_create() and kiln_batch_execute(),
 *  OUT_OF_DEVICE_MEMORY (not even 2 rows fit); *rows is 0. */
KILN_API KILN_MUST_CHECK kiln_status kiln_model_choose_batch(kiln_context *context,
                                                             const kiln_model *model,
                                                             size_t max_batch, uint64_t max_bytes,
                                                             uint64_t max_run_us, size_t *rows);

/** What becomes of requests that still wait when an executor shuts down. */
typedef enum kiln_shutdown {
    KILN_SHUTDOWN_DRAIN = 1, /**< they are run */
    KILN_SHUTDOWN_CANCEL = 2 /**< they complete as CANCELLED; batches that run are finished */
} kiln_shutdown;

/** Take no further requests, and return when all have completed and callbacks in the executor's
 *  threads have returned; from such a callback, at once. A second call may turn drain into cancel.
 *  Threads: any. Errors: INVALID_ARGUMENT, FORKED. */
KILN_API KILN_MUST_CHECK kiln_status kiln_executor_shutdown(kiln_executor *executor,
                                                            kiln_shutdown how);

/* ---- requests ---- */

/** Rows that go in. This structure never grows: what is to be said of a request more stands in
 *  kiln_request_options. */
typedef struct kiln_input {
    const void *data; /**< row-major */
    size_t bytes;     /**< exactly what the rows have */
    kiln_type type;   /**< as the model's */
} kiln_input;

/** Where results go. This structure never grows. */
typedef struct kiln_output {
    void *data;     /**< row-major */
    size_t bytes;   /**< exactly what the rows have */
    kiln_type type; /**< as the model's */
} kiln_output;

/** Which request is first when several wait. One of a lower priority waits as long as those of
 *  higher priority fill the batches. */
typedef enum kiln_priority {
    KILN_PRIORITY_NORMAL = 0,
    KILN_PRIORITY_HIGH = 1,
    KILN_PRIORITY_LOW = 2
} kiln_priority;

/** What a submission does when the queue is full. */
typedef enum kiln_when_full {
    KILN_WHEN_FULL_WAIT = 0, /**< wait for room */
    KILN_WHEN_FULL_FAIL = 1  /**< answer BUSY at once, as every submission from a callback does */
} kiln_when_full;

/** How one request travels. Start from KILN_REQUEST_OPTIONS_INIT. */
typedef struct kiln_request_options {
    size_t size;            /**< sizeof(kiln_request_options), set by the initialiser */
    kiln_priority priority; /**< among those that wait */
    uint64_t deadline_us;   /**< if it has not begun to run so long after the submission, it ends as
                                 TIMED_OUT; it waits for company half as long at most.
                                 Microseconds, at most an hour; 0: none */
    kiln_when_full when_full; /**< wait or fail */
    uint64_t room_us; /**< wait for room so long at most, and answer TIMED_OUT; microseconds,
                           at most an hour; 0: as long as it takes, or to the deadline */
    size_t length;    /**< of each of its rows, where the model has sequences; 0: the greatest */
} kiln_request_options;

/** Options with every default. */
#define KILN_REQUEST_OPTIONS_INIT                                                                  \
    {                                                                                              \
        sizeof(kiln_request_options), KILN_PRIORITY_NORMAL, 0, KILN_WHEN_FULL_WAIT, 0, 0           \
    }

/** Fill a structure as KILN_REQUEST_OPTIONS_INIT does. NULL does nothing. Threads: any.
 *  Errors: none. */
KILN_API void kiln_request_options_init(kiln_request_options *options, size_t size);
#define kiln_request_options_init(...)                                                             \
    kiln_request_options_init(__VA_ARGS__, sizeof(kiln_request_options))

/** Submit `rows` rows: an array of the model's inputs, one of its outputs. `options` may be NULL.
 *  Everything that can be checked is checked here, so that a request never spoils its neighbours.
 *  Owner: the caller owns *future, until kiln_future_release(); the rows' memory, inputs too, is
 *  borrowed until the request completes, the two arrays only for the call. Threads: any.
 *  Errors: INVALID_ARGUMENT (NULL, no rows, bytes that do not fit, an element that is not below its
 *  bound, a length where the model has none), TYPE_MISMATCH, TOO_LARGE (more
 * rows than a batch has, longer ones than the model has), BUSY, TIMED_OUT, WRONG_STATE (shut down),
 * OUT_OF_HOST_MEMORY, FORKED; *future is NULL. */
KILN_API KILN_MUST_CHECK kiln_status kiln_executor_submit(kiln_executor *executor,
                                                          const kiln_input *inputs,
                                                          const kiln_output *outputs, size_t rows,
                                                          const kiln_request_options *options,
                                                          kiln_future **future);

/** Run any number of rows now, spread over all contexts, and wait for them: they are cut into equal
 *  pieces that each are a batch, of a size by which the last is expected to be done soonest, and
 * each context takes pieces as it has done others, so that the rows are shared by measured speed. A
 * piece of a context that fails runs elsewhere. `options` may be NULL; the deadline is each
 * piece's. Owner: memory is borrowed for the call. Threads: any but callbacks of an executor,
 * several at once. Errors: those of kiln_executor_submit() but for TOO_LARGE rows, those of
 * kiln_future_wait(); WRONG_STATE also in a callback. Some of the outputs may have been written
 * then. */
KILN_API KILN_MUST_CHECK kiln_status kiln_executor_run(kiln_executor *executor,
                                                       const kiln_input *inputs,
                                                       const kiln_output *outputs, size_t rows,
                                                       const kiln_request_options *options);

/** Wait until the request has completed, and answer how. Its callback may not have returned yet.
 *  Threads: any, several at once. Errors: those of kiln_batch_execute(), CANCELLED, TIMED_OUT
 *  (its deadline); INVALID_ARGUMENT, FORKED, WRONG_STATE (in a callback, before it has completed).
 */
KILN_API KILN_MUST_CHECK kiln_status kiln_future_wait(kiln_future *future);

/** Wait so many microseconds at most; NOT_READY if it has not completed by then.
 *  Threads: any. Errors: as kiln_future_wait(). */
KILN_API KILN_MUST_CHECK kiln_status kiln_future_wait_for(kiln_future *future, uint64_t timeout_us);

/** NOT_READY, or how the request completed. Threads: any. Errors: as kiln_future_wait(). */
KILN_API KILN_MUST_CHECK kiln_status kiln_future_poll(kiln_future *future);

/** Called once, when a request has completed: in a thread of the executor, in the one that cancels,
 *  finds the deadline passed or shuts down, or in the one that asks for the callback too late. */
typedef void (*kiln_future_callback)(kiln_status status, void *user);

/** Have `callback` called with `user` when the request has completed; at once if it has. It may
 *  submit and release; while it runs, others wait. A future has one callback for good: a second is
 *  WRONG_STATE and never called, also where the first has been.
 *  Threads: any. Errors: INVALID_ARGUMENT, WRONG_STATE, FORKED. */
KILN_API KILN_MUST_CHECK kiln_status kiln_future_notify(kiln_future *future,
                                                        kiln_future_callback callback, void *user);

/** An eventfd, for poll() and epoll: readable once the request has completed.
 *  Owner: the future, which closes it when it is released. Threads: any.
 *  Errors: INVALID_ARGUMENT, IO_ERROR (no descriptor left), FORKED; *descriptor is -1. */
KILN_API KILN_MUST_CHECK kiln_status kiln_future_descriptor(kiln_future *future, int *descriptor);

/** Cancel a request that still waits: it completes as CANCELLED before this returns.
 *  Threads: any. Errors: INVALID_ARGUMENT, WRONG_STATE if it runs or has completed, FORKED. */
KILN_API KILN_MUST_CHECK kiln_status kiln_future_cancel(kiln_future *future);

/** Release a future; the request goes on, and its memory stays borrowed until it has completed.
 * NULL does nothing. In a child of fork() nothing is freed. Threads: one, after all other calls on
 * it. Errors: none. */
KILN_API void kiln_future_release(kiln_future *future);

/* ---- metrics ---- */

/** Seconds, from a histogram whose steps are at most 1/16 apart. All 0 without a count. This
 *  structure never grows. */
typedef struct kiln_latency {
    uint64_t count; /**< how many */
    double mean;    /**< of all */
    double p50;     /**< half took no longer */
    double p90;     /**< 90 of 100 */
    double p99;     /**< 99 of 100 */
    double p999;    /**< 999 of 1000 */
    double most;    /**< the longest */
} kiln_latency;

/** What an executor has done so far, and what it is at. */
typedef struct kiln_executor_stats {
    uint64_t requests;         /**< taken by kiln_executor_submit() */
    uint64_t refused;          /**< not taken */
    uint64_t completed;        /**< requests that went well */
    uint64_t failed;           /**< that a device failed */
    uint64_t cancelled;        /**< by their caller or by a shutdown */
    uint64_t timed_out;        /**< whose deadline passed */
    uint64_t rerun;            /**< that ran elsewhere after a context failed */
    uint64_t rows;             /**< in batches that went well */
    uint64_t padding;          /**< rows beyond these that such batches were filled up with */
    uint64_t batches;          /**< that went well */
    uint64_t failed_batches;   /**< that did not */
    uint64_t flushed_full;     /**< batches that went out because they, or the queue, were full */
    uint64_t flushed_wait;     /**< because a request had waited long enough */
    uint64_t flushed_idle;     /**< because a device was idle */
    uint64_t flushed_shutdown; /**< because of a shutdown */
    uint64_t queued;           /**< requests that wait now */
    uint64_t queued_rows;      /**< their rows */
    uint64_t running;          /**< requests in batches now */
    double fill;               /**< rows of batches over what full ones would have had, 0 to 1 */
    double padding_share;      /**< of the elements of rows that batches computed, those that are
                                    nobody's: rows to fill up and ends of sequences, 0 to 1 */
    kiln_latency wait;         /**< requests: from submission to the batch's start */
    kiln_latency run;          /**< batches: copying in and running */
    kiln_latency total;        /**< requests: from submission to completion */
} kiln_executor_stats;

/** The same of one context of an executor. */
typedef struct kiln_executor_context_stats {
    char device[128];       /**< its device's name */
    uint64_t batches;       /**< that went well */
    uint64_t rows;          /**< in them */
    uint64_t failures;      /**< batches that failed */
    uint64_t running;       /**< batches now */
    int in_service;         /**< zero: it failed, and is to be tried again */
    double seconds_per_row; /**< lately, of the size that ran last; 0: nothing measured */
    double utilisation;     /**< share of the time since the start with a batch under way, 0 to 1 */

    /* Of the context, whoever else uses it; 0 once the executor has shut down. */
    uint64_t pool_bytes;       /**< device memory that its pool holds, in use or idle */
    uint64_t plans_reused;     /**< batches that found their plan */
    uint64_t cache_hits;       /**< kernels found, in memory or on disk */
    uint64_t kernels_compiled; /**< those that were not */
} kiln_executor_context_stats;

/** Fill `stats`. Threads: any. Errors: INVALID_ARGUMENT, FORKED. */
KILN_API KILN_MUST_CHECK kiln_status kiln_executor_get_stats(kiln_executor *executor,
                                                             kiln_executor_stats *stats,
                                                             size_t size);
#define kiln_executor_get_stats(...)                                                               \
    kiln_executor_get_stats(__VA_ARGS__, sizeof(kiln_executor_stats))

/** Fill `stats` for context number `index`. Threads: any. Errors: INVALID_ARGUMENT, FORKED. */
KILN_API KILN_MUST_CHECK kiln_status kiln_executor_get_context_stats(
    kiln_executor *executor, size_t index, kiln_executor_context_stats *stats, size_t size);
#define kiln_executor_get_context_stats(...)                                                       \
    kiln_executor_get_context_stats(__VA_ARGS__, sizeof(kiln_executor_context_stats))

/** How metrics are written. */
typedef enum kiln_metrics_format {
    KILN_METRICS_JSON = 1,      /**< one object */
    KILN_METRICS_PROMETHEUS = 2 /**< text exposition format 0.0.4 */
} kiln_metrics_format;

/** The metrics of an executor and its contexts as text. Owner: the caller frees *text with
 *  kiln_free(). Threads: any. Errors: INVALID_ARGUMENT, OUT_OF_HOST_MEMORY, FORKED; *text is NULL.
 */
KILN_API KILN_MUST_CHECK kiln_status kiln_executor_metrics(kiln_executor *executor,
                                                           kiln_metrics_format format, char **text);

#ifdef __cplusplus
}
#endif

#endif
