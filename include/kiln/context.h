/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  A context: one device with its queue, its kernel cache and its buffer pool. */
#ifndef KILN_CONTEXT_H
#define KILN_CONTEXT_H

#include <kiln/device.h>
#include <kiln/status.h>
#include <kiln/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What the disk part of the kernel cache may do. */
typedef enum kiln_cache_mode {
    KILN_CACHE_DEFAULT = 0,   /**< as $KILN_CACHE says ("on", "ro", "off"); else on */
    KILN_CACHE_ON = 1,        /**< read and write */
    KILN_CACHE_READ_ONLY = 2, /**< read, never write */
    KILN_CACHE_OFF = 3        /**< memory only */
} kiln_cache_mode;

/** How kernels are compiled that neither memory nor the disk cache has. */
typedef enum kiln_compile_mode {
    KILN_COMPILE_DEFAULT = 0,    /**< as $KILN_COMPILE says ("together", "alone", "never",
                                      "background", "quick"); else together */
    KILN_COMPILE_TOGETHER = 1,   /**< several of a batch at once, on as many threads as there are
                                      cores where the driver is known to bear that. Where it
                                      compiles one at a time (PoCL, NVIDIA), in further
                                      processes, if there are cores for three and the disk cache can
                                      be written */
    KILN_COMPILE_ALONE = 2,      /**< one after the other, in this thread */
    KILN_COMPILE_NEVER = 3,      /**< not at all: a batch that lacks one is BUILD_FAILED, and the
                                      sentence names the kernel and what it computes. A driver may
                                      still compile what it calls a binary */
    KILN_COMPILE_BACKGROUND = 4, /**< in further processes, while batches that lack many run by
                                      others, which are slow; each changes to its own kernels with
                                      the first run that finds them compiled. On PoCL the others are
                                      the same kernels, not optimised: results have the same bits.
                                      Elsewhere one generic kernel does most: results of the runs
                                      before may differ from later ones in their last bits, by the
                                      order of sums. Together where the disk cache cannot be
                                      written, where runs are compared with the host, and for what
                                      others cannot do or would take long for */
    KILN_COMPILE_QUICK = 5       /**< in the background where results have the same bits then (PoCL);
                                      elsewhere together. Python's contexts do, if nothing else is
                                      asked for */
} kiln_compile_mode;

/** Whether the device works on the host's own memory. */
typedef enum kiln_host_memory {
    KILN_HOST_MEMORY_DEFAULT = 0, /**< as $KILN_HOST_MEMORY says ("shared", "separate");
                                       else as the device says */
    KILN_HOST_MEMORY_SHARED = 1,  /**< uploads and reads use the caller's memory in place */
    KILN_HOST_MEMORY_SEPARATE = 2 /**< uploads and reads are transfers */
} kiln_host_memory;

/** How products of f32 operands are computed; doc/accuracy.md has the errors.
 *
 *  TF32 and F32X3 where a device has tensor cores for f32: wgmma, on NVIDIA's Hopper, or for tf32
 *  mma, from Ampere on. Elsewhere, and for what these do not take, all are plain f32, and so they
 *  are in batch-invariant batches (kiln_batch_set_batch_invariant()).
 *
 *  BF16 and F16 on every device, of products, convolutions and attention, and of their gradients.
 *  Their operands are rounded to the type and stored in it, once for all readers; weights in buffers
 *  are rounded when their content changes. What is computed is computed in f32, sums too, and
 *  nothing else is rounded: results that are asked for, buffers, parameters that are updated
 *  element by element, integers, the factors of a product of depth 1, as angles of positions. Tensor cores take such operands, also in batch-invariant batches; on a CPU less memory
 *  is read, which may save less time than rounding takes. Spectra (kiln/signal.h) stay f32.
 *  F16 holds no more than 65504, beyond which operands are infinite, and of what is below 6e-8
 *  nothing: gradients that small are lost. There is no loss scaling: multiply the loss, and divide
 *  the gradients, or take BF16, which has f32's range. */
typedef enum kiln_precision {
    KILN_PRECISION_DEFAULT =
        0,                    /**< as $KILN_PRECISION says ("exact", "tf32", "f32x3", "bf16",
                                   "f16"); else exact */
    KILN_PRECISION_EXACT = 1, /**< products and sums in f32 */
    KILN_PRECISION_TF32 = 2,  /**< operands rounded to tf32: f32's range, 11 bits of precision */
    KILN_PRECISION_F32X3 = 3, /**< three products of tf32, of what an operand is in 11 bits and
                                   what is left of it: as exact as plain f32. Of infinities it
                                   makes NaN */
    KILN_PRECISION_BF16 = 4,  /**< operands stored as bf16: f32's range, 8 bits of precision */
    KILN_PRECISION_F16 = 5    /**< operands stored as f16: 6e-8 to 65504, 11 bits of precision */
} kiln_precision;

/** How a context is made. Start from KILN_CONTEXT_OPTIONS_INIT; zero in a field is its default. */
typedef struct kiln_context_options {
    size_t size;                  /**< sizeof(kiln_context_options), set by the initialiser */
    const char *device;           /**< which device, as kiln_device_find() reads it */
    const char *cache_dir;        /**< kernel cache; NULL: $KILN_CACHE_DIR, $XDG_CACHE_HOME/kiln,
                                       ~/.cache/kiln, in this order */
    uint64_t cache_limit;         /**< most bytes on disk; 0: 256 MiB */
    kiln_cache_mode cache;        /**< what the disk cache may do */
    kiln_host_memory host_memory; /**< whether host memory is used in place */
    const char *matmul;           /**< matmul implementation by name; NULL: $KILN_MATMUL, else the
                                       heuristic picks for each product, as it does where the named
                                       one does not fit: im2col, tiled_im2col, dots, skinny, few,
                                       small, packed, rows, clblast, wgmma, mma or tiled; "": none */
    int profile;                  /**< nonzero: keep a span per launch (also if $KILN_TRACE) */
    const char *trace;            /**< write spans here as a Chrome trace when the context is
                                       released; NULL: $KILN_TRACE */
    double validate;              /**< share of runs to compare with the host, 0 to 1;
                                       0: $KILN_VALIDATE, else none */
    uint64_t memory_limit;        /**< most bytes of device memory that the pool may hold, for
                                       intermediates, for what cannot be used in place and for
                                       what is kept of buffers, as packed weights; what is idle or
                                       kept is given back before a run is refused. A batch that
                                       needs more computes values again instead of holding them, or
                                       runs in parts, see kiln_batch_execute(). 0: all that the
                                       device has. Buffers do not count */
    kiln_compile_mode compile;    /**< how kernels are compiled that no cache has */
    kiln_precision precision;     /**< of products of f32 operands, where a batch does not say
                                       otherwise (kiln_batch_set_precision()) */
    double check_values;          /**< share of runs in which the first operation is named that
                                       makes a NaN or an infinity, or has an index out of range,
                                       0 to 1; 0: $KILN_CHECK_VALUES, else none */
} kiln_context_options;

/** Options with every default. */
#define KILN_CONTEXT_OPTIONS_INIT                                                                  \
    {                                                                                              \
        sizeof(kiln_context_options), 0, 0, 0, KILN_CACHE_DEFAULT, KILN_HOST_MEMORY_DEFAULT, 0, 0, \
            0, 0, 0, KILN_COMPILE_DEFAULT, KILN_PRECISION_DEFAULT, 0                               \
    }

/** Fill a structure as KILN_CONTEXT_OPTIONS_INIT does. NULL does nothing. Threads: any.
 *  Errors: none. */
KILN_API void kiln_context_options_init(kiln_context_options *options, size_t size);
#define kiln_context_options_init(...)                                                             \
    kiln_context_options_init(__VA_ARGS__, sizeof(kiln_context_options))

/** @page validation Validation
 *  For finding wrong numbers: kiln_context_options::validate, or KILN_VALIDATE=1 in the
 *  environment. A run that is compared waits for its end, also when it is submitted. First the
 * batch runs on copies of its operands, with kernels that check every index into memory: one that
 * is outside is told with its kernel and the element, and the batch itself does not run then. (That
 *  is so of generated kernels; those of matrix products, attention and scatters are
 *  not checked.) Then the batch runs as it is, and its requested results are compared with the
 *  host's evaluation of the batch in double precision, within the errors that the tables of
 *  operations allow. Then it runs once more with every value kept, and each operation is compared
 *  with the host's result from the device's own operands. A kernel that takes all steps of a
 *  recurrent layer is one operation, within some times what roundings make of its states on the host.
 *  What is off is reported as WRONG_RESULT by the call that ran the batch: the first such
 *  operation, its element, both values and the bound; in the log too. Where each operation alone is
 *  right, it is the result, and the kernel that computes it with the operations that it fuses.
 *
 *  It takes some 16 bytes of host memory for every element of every value, device memory for all
 *  values at once (where they do not fit into half of it, only the requested results are compared),
 *  and the time of plain loops on one core: a thousand times that of a run, and more. A share such
 *  as 0.01 compares the first of each hundred runs. kiln_context_get_stats() counts the other runs
 *  too. */

/** @page values Who made the first NaN
 *  kiln_context_options::check_values, or KILN_CHECK_VALUES=1 in the environment. Before a run the
 *  batch runs once on copies of its operands, with every value kept, and the first operation is
 *  named, with its name (kiln_name()), its call and its shape, that makes a NaN of operands without
 *  one, an infinity of finite operands, or that has an index which its dimension has not: by
 *  BAD_VALUE of the call that would have run the batch, and in the log. The batch itself does not
 *  run then, so that parameters in buffers keep what they have. A NaN or an infinity that a call
 *  makes and itself puts another value for is none; an infinity that a program makes on purpose, as
 *  for a mask, is better a constant. A label that is no class is told by the loss' call.
 *  A run that is looked at takes as long as one with every value kept and read, device memory for
 *  all values at once (where they do not fit into half of it, nothing is looked at, which the log
 *  tells), and host memory for as much. Of a batch that runs in parts so many rows are looked at
 *  together as fit, all of them before the first part runs; the sentence tells which rows, and
 *  counts elements from the first of these. Where parts add up over rows nothing is looked at. */

/** What a context has done so far. Counts; bytes where the name says so. */
typedef struct kiln_context_stats {
    uint64_t uploads;             /**< transfers from host to device */
    uint64_t upload_bytes;        /**< their bytes */
    uint64_t downloads;           /**< transfers from device to host */
    uint64_t download_bytes;      /**< their bytes */
    uint64_t launches;            /**< kernels enqueued */
    uint64_t batches;             /**< batches submitted */
    uint64_t plans_made;          /**< batches that had to be planned */
    uint64_t plans_reused;        /**< batches that found their plan */
    uint64_t kernels_compiled;    /**< programs built from source */
    uint64_t kernels_from_disk;   /**< programs built from a binary of the disk cache */
    uint64_t kernels_from_memory; /**< look-ups answered by this context */
    uint64_t cache_stores;        /**< entries written to disk */
    uint64_t cache_failures;      /**< entries rejected, unreadable or not writable */
    uint64_t buffers_live;        /**< buffers not yet released */
    uint64_t buffer_bytes;        /**< their bytes */
    uint64_t pool_bytes;          /**< device memory that the pool holds, in use or idle */
    uint64_t cache_pending;       /**< kernels that are to be stored still */
    double compile_seconds;       /**< time that building programs from source took */
    uint64_t host_bytes;          /**< memory of kiln_host_alloc() that is not freed */
    uint64_t evicted_bytes;       /**< of buffer_bytes, those that have no memory for now */
} kiln_context_stats;

/** Make a context. `options` may be NULL. An option or an environment variable with a value that
 *  nobody knows is INVALID_ARGUMENT, and the sentence lists the known ones; a trace, or a file for
 *  $KILN_EXPLAIN, that cannot be written is IO_ERROR. What cannot be written later is logged as an
 *  error, and runs go on. ($KILN_LOG takes an unknown value for "error", and says so.)
 *  Owner: the caller, until kiln_context_release(). Threads: any; the context itself may be used
 *  by many threads at once. Errors: NO_DEVICE, DEVICE_ERROR, OUT_OF_HOST_MEMORY,
 *  INVALID_ARGUMENT, IO_ERROR, FORKED in a child of a process that has used a device (drivers do
 * not survive a fork); kiln_last_error() has the sentence and *context is NULL. */
KILN_API KILN_MUST_CHECK kiln_status kiln_context_create(const kiln_context_options *options,
                                                         kiln_context **context);

/** Take another reference. NULL does nothing. Threads: any. Errors: none. */
KILN_API void kiln_context_retain(kiln_context *context);

/** Give a reference back; batches, buffers and events hold their own. With the last one the queue
 *  is finished, kernels that are still to be stored are waited for, a second at most, and the trace
 *  is written. What is left then goes on in a process of its own where it can; KILN_LOG=info says
 *  so. A process that ends without that waits no longer either. NULL does nothing.
 *  Threads: any. Errors: none. */
KILN_API void kiln_context_release(kiln_context *context);

/** Wait until everything submitted so far has completed.
 *  Threads: any. Errors: FORKED, DEVICE_ERROR, also where a submission failed whose event told
 *  nobody. */
KILN_API KILN_MUST_CHECK kiln_status kiln_context_finish(kiln_context *context);

/** The device of this context. Owner: the caller's structure is filled. Threads: any.
 *  Errors: INVALID_ARGUMENT. */
KILN_API KILN_MUST_CHECK kiln_status kiln_context_device(const kiln_context *context,
                                                         kiln_device_info *info, size_t size);
#define kiln_context_device(...) kiln_context_device(__VA_ARGS__, sizeof(kiln_device_info))

/** Counters since the context was made. Owner: the caller's structure is filled. Threads: any.
 *  Errors: INVALID_ARGUMENT. */
KILN_API KILN_MUST_CHECK kiln_status kiln_context_get_stats(const kiln_context *context,
                                                            kiln_context_stats *stats, size_t size);
#define kiln_context_get_stats(...) kiln_context_get_stats(__VA_ARGS__, sizeof(kiln_context_stats))

/** Wait until kernels compiled so far are in the disk cache, or could not be stored (that happens
 *  in the background, after their first launch, and nothing waits for it), and those that other
 *  processes compile behind batches are there: the next run of such a batch has them. On drivers that compile
 *  when a kernel is launched, as PoCL, the program kiln-store does it; where that cannot be
 * started, this call does, and kernels that no such call waits for are not stored. Threads: any.
 * Errors: INVALID_ARGUMENT, FORKED. */
KILN_API KILN_MUST_CHECK kiln_status kiln_context_sync_cache(kiln_context *context);

/** Give idle memory of the buffer pool, and what is kept of buffers, back to the device. Threads:
 * any. Errors: INVALID_ARGUMENT, FORKED. */
KILN_API KILN_MUST_CHECK kiln_status kiln_context_trim(kiln_context *context);

/** A parameter of kernels' schedules that `kiln tune` chooses for a device. */
typedef struct kiln_tunable {
    const char *name;        /**< static */
    const char *purpose;     /**< in a few words, static */
    unsigned value;          /**< in this context */
    unsigned usual;          /**< without a record; 0: a rule of each kernel's */
    int of_works;            /**< better chosen for single works than for the device */
    size_t count;            /**< of candidates */
    unsigned candidates[16]; /**< which values it may have on this device */
} kiln_tunable;

/** What kiln_context_remember() keeps the record of tuned parameters as: lines "name value" for the
 *  device, lines "WORK: name value, name value" for a work as kiln_batch_list_works() names it, and
 *  lines that start with # and do not count. A context reads it when it is made, unless $KILN_TUNE
 *  says "off" or lists parameters of its own, such as "vector=8,chunks=4". Other values may change
 *  the last bits of sums: the device's for all batches of the context alike; those of a work for
 *  that work, but not in batch-invariant batches (kiln_batch_set_batch_invariant()), where values
 *  that would do so do not count. */
#define KILN_TUNED "tuned parameters"

/** Parameter `number`, from 0, of those that this context's device has. Beyond the last one
 *  tunable->name is NULL.
 *  Owner: the caller's structure is filled. Threads: any. Errors: INVALID_ARGUMENT. */
KILN_API KILN_MUST_CHECK kiln_status kiln_context_get_tunable(const kiln_context *context,
                                                              size_t number, kiln_tunable *tunable,
                                                              size_t size);
#define kiln_context_get_tunable(...) kiln_context_get_tunable(__VA_ARGS__, sizeof(kiln_tunable))

/** Go by `record`, a text as KILN_TUNED is one, instead of what was kept or said before; "" has
 *  only the usual values. Batches that were not run before are planned by it. Lines that are not
 *  understood do not count. Threads: no other may use the context or its batches meanwhile.
 *  Errors: INVALID_ARGUMENT (NULL, or a line that is not understood: the first is named),
 *  OUT_OF_HOST_MEMORY. */
KILN_API KILN_MUST_CHECK kiln_status kiln_context_tune(kiln_context *context, const char *record);

/** Which type pays on this device as storage of the operands of matrix products: f32 or a narrower
 *  floating one. Products of weights by few rows and by many are measured with each type, after
 *  their results have been checked. A narrower type pays where it takes at most nine tenths of the
 *  time of f32, in the geometric mean of the products, and does so in three rounds of four; of
 *  several that do, the answer is the fastest. That says nothing of accuracy, nor of the small
 * range of f16.
 *
 *  The first call measures. It takes some seconds, most of them to compile kernels, and an eighth
 * of the device's memory at most, never more than 700 MiB, which it gives back. It is better made
 *  while the device does nothing else; a second thread that asks waits for the first. Its runs are
 *  counted in kiln_context_stats. The context keeps the answer, and so does the disk cache, for
 *  contexts of the same kiln on the same device and driver: where it cannot be written, each
 * context measures again. Threads: any. Errors: INVALID_ARGUMENT, FORKED, WRONG_RESULT if a product
 * of f32 is wrong, and those of kiln_batch_execute(); *type is KILN_F32 then, and the next call
 * measures again. */
KILN_API KILN_MUST_CHECK kiln_status kiln_context_best_precision(kiln_context *context,
                                                                 kiln_type *type);

/** Keep a text about `subject` for programs to come, on the same device with the same driver and
 *  kiln: what was measured, say. It takes the place of an earlier one, and lies in the disk cache,
 *  where `kiln cache list` shows the subject; where that cannot be written nothing is kept.
 *  Threads: any. Errors: INVALID_ARGUMENT (NULL), TOO_LARGE (64 KiB and more), FORKED. */
KILN_API KILN_MUST_CHECK kiln_status kiln_context_remember(kiln_context *context,
                                                           const char *subject, const char *text);

/** What was kept about `subject`, or NULL in *text; what is damaged is removed, and logged.
 *  Owner: the caller frees *text with kiln_free(). Threads: any.
 *  Errors: INVALID_ARGUMENT (NULL), OUT_OF_HOST_MEMORY, FORKED; *text is NULL. */
KILN_API KILN_MUST_CHECK kiln_status kiln_context_recall(kiln_context *context, const char *subject,
                                                         char **text);

#ifdef __cplusplus
}
#endif

#endif
