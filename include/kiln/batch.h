/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  A batch: operations are recorded, then run together.
 *
 *  Errors are sticky. A call on a batch that has failed does nothing; a recording call then
 *  returns the empty tensor, and submit or execute returns the first error.
 *  A batch belongs to one thread at a time; different batches of one context may be used by
 *  different threads at once. */
#ifndef KILN_BATCH_H
#define KILN_BATCH_H

#include <kiln/context.h>
#include <kiln/status.h>
#include <kiln/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Make an empty batch. Owner: the caller, until kiln_batch_release(); it holds the context.
 *  Threads: any. Errors: NULL without memory or without a context (see kiln_last_error()). */
KILN_API KILN_MUST_CHECK kiln_batch *kiln_batch_create(kiln_context *context);

/** Release a batch. One that is still running is released when it has completed; the host memory
 *  that it borrowed stays borrowed until then. NULL does nothing.
 *  Threads: one at a time. Errors: none. */
KILN_API void kiln_batch_release(kiln_batch *batch);

/** Forget everything recorded, errors too, and start again with the same memory; waits for a run
 *  that is still under way. Tensors recorded before no longer name anything.
 *  Threads: one at a time. Errors: INVALID_ARGUMENT for NULL, DEVICE_ERROR. */
KILN_API KILN_MUST_CHECK kiln_status kiln_batch_reset(kiln_batch *batch);

/** Have this batch, until it is reset, be batch-invariant: it adds up in orders that do not
 *  depend on how large its tensors are otherwise. Of batches of different numbers of rows that are
 *  recorded alike, a row's result has
 *  the same bits in all that have two rows or more, on one device. The kernel of a product is then
 *  chosen among those that add up each element alone, the same way. That costs time where rows are
 *  few, and the product's other operand is transposed or has a few columns. What itself adds up
 *  rows, and random numbers, depend on how many there are.
 *  Threads: one at a time. Errors: INVALID_ARGUMENT for NULL, or the batch's first error. */
KILN_API KILN_MUST_CHECK kiln_status kiln_batch_set_batch_invariant(kiln_batch *batch);

/** From here on, until it is called again or the batch is reset, matrix products that are recorded,
 *  those within other operations too, are computed so, and attention by BF16 and F16;
 *  KILN_PRECISION_DEFAULT is the context's own way. The products of a gradient are as precise as the
 *  product that it is of. Products of i8 are exact in any case but for their sums, and so, but by
 *  BF16 and F16, are those of operands that lie as f16 or bf16.
 *  Threads: one at a time. Errors: INVALID_ARGUMENT for NULL or an unknown value, or the batch's
 *  first error. */
KILN_API KILN_MUST_CHECK kiln_status kiln_batch_set_precision(kiln_batch *batch,
                                                              kiln_precision precision);

/** Have this batch, until it is reset, be independent: its runs do not wait for other batches that
 *  were submitted before, nor do later ones wait for them, unless they have a buffer in common.
 *  Buffers keep their order as ever, and so do the runs of this batch; host memory is the caller's
 * to keep apart. On a device with memory of its own the upload of one such batch, the computation
 * of another and the reading of a third then take place at the same time, and a large buffer that
 * the batch exports can be read as soon as it is complete. Once kiln_context_cl() has handed out
 * the queue, everything runs in that, in order; where memory is the host's there is nothing to
 * gain. Threads: one at a time. Errors: INVALID_ARGUMENT for NULL, or the batch's first error. */
KILN_API KILN_MUST_CHECK kiln_status kiln_batch_set_independent(kiln_batch *batch);

/** The first error of this batch, or KILN_OK. Threads: one at a time. Errors: none. */
KILN_API kiln_status kiln_batch_status(const kiln_batch *batch);

/** The first error's sentence: which call and its number in the recording, which operands, which
 *  shapes: "kiln_add, call 57: shapes [4,8] and [4,7] do not broadcast (a is "layer3.q")". Without
 *  one, the sentence of the last call that ran the batch, prepared it or asked about it, if that
 *  failed; such an error is not kept: the next call may succeed. Else empty.
 *  Owner: the batch. Threads: one at a time. Errors: none. */
KILN_API const char *kiln_batch_error(const kiln_batch *batch);

/** For those who record on behalf of others, such as recorders and bindings: make `sentence` the
 *  batch's error, of a status below 0, as if a call had failed; at most 4095 bytes of it, the
 *  status's own words where there is none. A batch that has an error keeps it. Returns the batch's
 *  status.
 *  Owner: the sentence is copied. Threads: one at a time. Errors: INVALID_ARGUMENT. */
KILN_API kiln_status kiln_batch_fail(kiln_batch *batch, kiln_status status, const char *sentence);

/** Call a tensor by a name of the caller's, such as "layer3.q": errors, explanations, traces,
 *  profiles and validation say it with what they tell of the tensor, and a kernel that computes
 *  several is told by all their names. What the tensor's call has recorded beside, and has no name
 *  of its own, shares it. Names are at most 200 bytes of UTF-8 (others are shown as '?') and no
 * part of a batch's structure: they cost no planning. A later name replaces an earlier one; NULL or
 * "" takes it away. Answers `tensor`, so that a call may stand around another one. Owner: the name
 * is copied. Threads: one at a time. Errors (sticky): INVALID_HANDLE, OUT_OF_HOST_MEMORY. */
KILN_API kiln_tensor kiln_name(kiln_batch *batch, kiln_tensor tensor, const char *name);

/** Call everything that is recorded from now on so, as a layer or a model's node, where kiln_name()
 *  does not say otherwise; NULL or "" ends that.
 *  Owner: the name is copied. Threads: one at a time. Errors (sticky): OUT_OF_HOST_MEMORY. */
KILN_API kiln_status kiln_name_calls(kiln_batch *batch, const char *name);

/* ---- values that enter a batch ---- */

/** A tensor from host memory: dims[0] * ... * dims[rank - 1] elements, row-major. Rank 0 is a
 *  scalar; dims may be NULL then. The content is read when the batch runs, each time it runs.
 *  Owner: `data` is borrowed until the last run has completed. Threads: one at a time.
 *  Errors (sticky): INVALID_ARGUMENT, TOO_LARGE, OUT_OF_HOST_MEMORY. */
KILN_API kiln_tensor kiln_upload(kiln_batch *batch, kiln_type type, size_t rank, const size_t *dims,
                                 const void *data);

/** A tensor from a buffer of the same context; its content is the one before this batch runs.
 *  Importing a buffer again gives the same tensor.
 *  Owner: the batch holds the buffer. Threads: one at a time.
 *  Errors (sticky): INVALID_ARGUMENT for NULL or another context's buffer. */
KILN_API kiln_tensor kiln_import(kiln_batch *batch, kiln_buffer *buffer);

/** A scalar constant of the given type; it broadcasts against anything. An f32 is rounded to the
 *  nearest one, which is infinite beyond 3.4e38.
 *  Threads: one at a time.
 *  Errors (sticky): INVALID_ARGUMENT if an integer type cannot hold the value. */
KILN_API kiln_tensor kiln_constant(kiln_batch *batch, kiln_type type, double value);

/** A constant of a shape: every element is `value`. No memory is filled where it is only read.
 *  Threads: one at a time.
 *  Errors (sticky): INVALID_ARGUMENT if an integer type cannot hold the value, TOO_LARGE. */
KILN_API kiln_tensor kiln_fill(kiln_batch *batch, kiln_type type, size_t rank, const size_t *dims,
                               double value);

/* ---- results that leave a batch ---- */

/** Ask for a result: its elements, row-major, are written to `data` by each run. `bytes` must be
 *  its exact size. Reading one tensor twice, to two places, is allowed. The batch's reads are
 *  numbered in the order of these calls, from 0.
 *  Owner: `data` is borrowed until the last run has completed. Threads: one at a time.
 *  Errors (sticky): INVALID_HANDLE, INVALID_ARGUMENT (NULL, wrong size). */
KILN_API kiln_status kiln_read(kiln_batch *batch, kiln_tensor tensor, void *data, size_t bytes);

/** Ask for a result to be left in a buffer of the same type and shape. A buffer takes one result of
 *  a batch, and may be imported by this very batch: imports see its content before the run. An
 *  elementwise update of it then happens in place, without further memory, unless something still
 *  needs the old content later; else the result is copied there at the end of the run.
 *  A run that fails may have left its result in some of the batch's buffers and not in others, and
 *  in a buffer whose result several kernels put together, in parts of it. The rest is as it was
 *  before. Where a command failed on the device and those after it ran on (the sentence names it),
 *  a buffer that the run was to write may also hold what they made of a missing operand: write it
 *  anew before it is used. What must survive that is to be copied first.
 *  Owner: the batch holds the buffer. Threads: one at a time.
 *  Errors (sticky): INVALID_HANDLE, INVALID_ARGUMENT (NULL, or a second result for the buffer),
 *  SHAPE_MISMATCH, TYPE_MISMATCH. */
KILN_API kiln_status kiln_export(kiln_batch *batch, kiln_tensor tensor, kiln_buffer *buffer);

/** Take an upload's content from elsewhere in later runs, at no planning cost.
 *  Owner: `data` is borrowed as by kiln_upload(). Threads: one at a time.
 *  Errors (sticky): INVALID_HANDLE if the tensor is no upload, INVALID_ARGUMENT for NULL. */
KILN_API kiln_status kiln_rebind_upload(kiln_batch *batch, kiln_tensor tensor, const void *data);

/** How many results were asked for with kiln_read(): the number that the next one gets.
 *  Threads: one at a time. Errors: none; 0 for NULL. */
KILN_API size_t kiln_batch_read_count(const kiln_batch *batch);

/** Have later runs write what kiln_read() number `read` asked for elsewhere, at no planning cost.
 *  Other reads of the same tensor stay where they are. `bytes` must be the result's exact size.
 *  Owner: `data` is borrowed as by kiln_read(). Threads: one at a time.
 *  Errors (sticky): INVALID_ARGUMENT (no such read, wrong size, NULL). */
KILN_API kiln_status kiln_rebind_read(kiln_batch *batch, size_t read, void *data, size_t bytes);

/* ---- running ---- */

/** Run the batch and wait until every requested result is in place. May be called again: the
 *  same operations run on the inputs' content of that moment. A batch in which nothing was recorded
 *  completes after what came before it; one that records something and asks for no result, most
 *  likely a forgotten kiln_read(), is INVALID_ARGUMENT.
 *  Threads: one at a time. Errors: the batch's first error, INVALID_ARGUMENT, OUT_OF_DEVICE_MEMORY,
 *  BUILD_FAILED, DEVICE_ERROR, FORKED, WRONG_RESULT (see kiln_context_options::validate). An error
 *  of a run is not sticky: the batch may be run again, but see kiln_export() about buffers that it
 *  updates.
 *
 *  A batch that needs more device memory at once than there may be (kiln_context_options, or the
 *  device's) holds less of it: what only results are made of is computed as soon as it can be, and
 *  values that are needed again only later, as a network's activations are by its gradients, are
 *  computed once more then, by the same kernels: the results have the same bits, and the run takes
 *  at most about three times as long. kiln_batch_get_cost() tells what such a run needs. Sums over rows,
 *  scatters and sorts are not computed again. Where that is not enough it runs in parts, a few rows of its inputs (elements of the first dimension, or equal
 *  groups of them) at a time. If all its results have as many rows, and each row depends on the same
 *  rows of operands and on values that have none, such as weights, the parts add up as by
 *  kiln_batch_set_batch_invariant(): the results have the bits of a batch of that kind that runs as
 *  a whole.
 *  Else sums over the rows (reductions but for positions, products, scatters), as a loss and the
 *  gradients of weights are, are added up part by part, in memory that counts as the rest does; what
 *  depends on a complete sum comes after it, for which the rows are computed once more, from the
 *  inputs. The sums' order is another one then, so that last bits may differ from those of the
 *  whole, and with another limit; with the same one on the same device they are the same in every
 *  run. OUT_OF_DEVICE_MEMORY says which value cannot be had so: sorted or summed up along the rows,
 *  for instance, or used by each row as a whole, and too large.
 *
 *  In parts a result by rows may go over the very operand, a buffer that is updated for instance,
 *  whose rows its own are made from, if nothing later reads that one, and where nothing is added up
 *  over rows if these divide into equal parts; results without rows, as updated weights, over any
 *  operand. What runs in parts is not compared with the host; other threads that use its buffers
 *  meanwhile may find some rows done and others not.
 *
 *  DEVICE_ERROR is also the answer, once, if this run went well and an earlier one failed that
 *  nobody waited for: it was submitted without an event, or its event was released unasked. */
KILN_API kiln_status kiln_batch_execute(kiln_batch *batch);

/** Run the batch and return at once. `event` may be NULL; the batch can then be waited for with
 *  kiln_context_finish(). It may be submitted again before it has completed: runs follow each
 *  other. A failure that no event told comes from the next call of the context that waits:
 *  kiln_batch_execute(), kiln_context_finish(), kiln_buffer_read() or kiln_buffer_map().
 *  Owner: the caller owns *event, until kiln_event_release(). Threads: one at a time.
 *  Errors: as kiln_batch_execute(); *event is NULL. */
KILN_API KILN_MUST_CHECK kiln_status kiln_batch_submit(kiln_batch *batch, kiln_event **event);

/** Make everything for the first run but the run: plan the batch, compile its kernels side by side
 *  on `threads` threads (0: as many as there are cores), and store them in the disk cache. The
 *  batch is left as it was, and its first run finds its kernels. Where a driver compiles in one
 *  thread at a time (PoCL) further processes compile, if the disk cache can be written.
 *  Threads: one at a time. Errors: the batch's first error, BUILD_FAILED, DEVICE_ERROR,
 *  OUT_OF_HOST_MEMORY, FORKED. */
KILN_API KILN_MUST_CHECK kiln_status kiln_batch_prepare(kiln_batch *batch, unsigned threads);

/** Called once, from a thread of the OpenCL driver, when a submission has completed or failed. */
typedef void (*kiln_event_callback)(kiln_status status, void *user);

/** Wait for a submission. Threads: any. Errors: DEVICE_ERROR if a command of it failed. */
KILN_API KILN_MUST_CHECK kiln_status kiln_event_wait(kiln_event *event);

/** KILN_OK when the submission has completed, KILN_NOT_READY before, an error if it failed.
 *  Threads: any. */
KILN_API KILN_MUST_CHECK kiln_status kiln_event_poll(kiln_event *event);

/** Have `callback` called with `user` when the submission has completed; at once if it has. It
 *  must not call into kiln beyond kiln_event_*, nor block.
 *  Threads: any. Errors: INVALID_ARGUMENT, DEVICE_ERROR. */
KILN_API KILN_MUST_CHECK kiln_status kiln_event_notify(kiln_event *event,
                                                       kiln_event_callback callback, void *user);

/** Release an event; the submission goes on. NULL does nothing. Threads: any. Errors: none. */
KILN_API void kiln_event_release(kiln_event *event);

/* ---- asking ---- */

/** Type, rank and dimensions (KILN_MAX_RANK places) of a tensor; any of the three may be NULL.
 *  Threads: one at a time. Errors: INVALID_HANDLE, INVALID_ARGUMENT; not sticky. */
KILN_API KILN_MUST_CHECK kiln_status kiln_tensor_shape(const kiln_batch *batch, kiln_tensor tensor,
                                                       kiln_type *type, size_t *rank, size_t *dims);

/** How many operations are recorded, inputs and constants not counted. Threads: one at a time. */
KILN_API size_t kiln_batch_operation_count(const kiln_batch *batch);

/** How many inputs and requested results the batch has. Threads: one at a time. */
KILN_API size_t kiln_batch_buffer_count(const kiln_batch *batch);

/** What one run will cost, known before it: plans the batch if it is not yet planned. */
typedef struct kiln_batch_cost {
    size_t launches;         /**< kernels enqueued */
    size_t uploads;          /**< transfers to the device */
    size_t downloads;        /**< transfers from the device */
    uint64_t peak_bytes;     /**< most device memory beyond imported and exported buffers */
    uint64_t unshared_bytes; /**< the same if no two intermediates shared memory */
    uint64_t saved_bytes;    /**< memory traffic that fusion saves in each run */
} kiln_batch_cost;

/** Fill `cost`. Threads: one at a time. Errors: the batch's first error, INVALID_ARGUMENT. */
KILN_API KILN_MUST_CHECK kiln_status kiln_batch_get_cost(kiln_batch *batch, kiln_batch_cost *cost,
                                                         size_t size);
#define kiln_batch_get_cost(...) kiln_batch_get_cost(__VA_ARGS__, sizeof(kiln_batch_cost))

/** Explain the batch in text: graph, passes, groups, memory plan, kernel text; what was fused,
 *  dropped, why not, and the bytes saved. Plans the batch if it is not yet planned.
 *  Owner: the caller frees *text with kiln_free(). Threads: one at a time.
 *  Errors: the batch's first error, OUT_OF_HOST_MEMORY; *text is NULL. */
KILN_API KILN_MUST_CHECK kiln_status kiln_batch_explain(kiln_batch *batch, char **text);

/** List the batch's works, which are its kernels by kind and sizes, a line "product 513x777x1031 nt
 *  # 2" for each with how many kernels it is. `kiln tune` takes such lines. The same goes to the
 *  file that $KILN_RECORD_SHAPES names, for each work once in a context.
 *  Owner: the caller frees *text with kiln_free(). Threads: one at a time.
 *  Errors: the batch's first error, OUT_OF_HOST_MEMORY; *text is NULL. */
KILN_API KILN_MUST_CHECK kiln_status kiln_batch_list_works(kiln_batch *batch, char **text);

/** Free memory that kiln handed out. NULL does nothing. Threads: any. Errors: none. */
KILN_API void kiln_free(void *memory);

#ifdef __cplusplus
}
#endif

#endif
