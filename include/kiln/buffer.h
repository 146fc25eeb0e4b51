/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  Device memory that outlives batches: weights, tables, state; host memory that travels fast. */
#ifndef KILN_BUFFER_H
#define KILN_BUFFER_H

#include <kiln/status.h>
#include <kiln/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Make a buffer for a tensor of this type and shape, row-major; its content is undefined.
 *  Owner: the caller, until kiln_buffer_release(); it holds the context. Threads: any.
 *  Errors: INVALID_ARGUMENT, TOO_LARGE (more elements than can be counted), OUT_OF_DEVICE_MEMORY
 *  (more than the device has or gives at once); *buffer is NULL. */
KILN_API KILN_MUST_CHECK kiln_status kiln_buffer_create(kiln_context *context, kiln_type type,
                                                        size_t rank, const size_t *dims,
                                                        kiln_buffer **buffer);

/** Take another reference. NULL does nothing. Threads: any. Errors: none. */
KILN_API void kiln_buffer_retain(kiln_buffer *buffer);

/** Give a reference back. Batches that import the buffer hold their own. NULL does nothing.
 *  Threads: any. Errors: none. */
KILN_API void kiln_buffer_release(kiln_buffer *buffer);

/** Copy `bytes` bytes of host memory to byte `offset` of the buffer; returns when `data` may be
 *  reused. Threads: any; ordered with the batches of its context by submission.
 *  Errors: INVALID_ARGUMENT (range beyond the end, NULL, mapped), DEVICE_ERROR, FORKED. */
KILN_API KILN_MUST_CHECK kiln_status kiln_buffer_write(kiln_buffer *buffer, size_t offset,
                                                       const void *data, size_t bytes);

/** Copy `bytes` bytes from byte `offset` of the buffer to host memory, and wait for them.
 *  Threads: any. Errors: as kiln_buffer_write(); DEVICE_ERROR also where a submission before it
 *  failed whose event told nobody. */
KILN_API KILN_MUST_CHECK kiln_status kiln_buffer_read(kiln_buffer *buffer, size_t offset,
                                                      void *data, size_t bytes);

/** Map the whole buffer into host memory for reading and writing, after all work submitted so
 *  far. No batch may use the buffer until it is unmapped.
 *  Owner: the buffer; the pointer is valid until kiln_buffer_unmap(). Threads: any.
 *  Errors: INVALID_ARGUMENT (NULL, a buffer without elements), WRONG_STATE if mapped already,
 *  DEVICE_ERROR, FORKED; *data is NULL. */
KILN_API KILN_MUST_CHECK kiln_status kiln_buffer_map(kiln_buffer *buffer, void **data);

/** End a mapping: what was written is seen by later batches.
 *  Threads: any. Errors: WRONG_STATE if not mapped, DEVICE_ERROR. */
KILN_API KILN_MUST_CHECK kiln_status kiln_buffer_unmap(kiln_buffer *buffer);

/** Copies `bytes` bytes of a buffer's content, from byte `offset` on, to `data`: whole elements,
 * one after the other from the first, or OK is not the answer. Called by any thread that runs a
 * batch or reads the buffer, by one at a time; it must not call kiln for the buffer's context. */
typedef kiln_status (*kiln_buffer_reader)(void *user, size_t offset, void *data, size_t bytes);

/** Say where the buffer's content, which it has already, can be had again, as from the file that it
 *  was read from. Where runs need only what was made of the buffer and is kept, such as a product's
 *  packed weights, its device memory is then given up after a few of them
 *  (kiln_context_stats::evicted_bytes), and filled by `read` again when somebody asks for it: a
 *  batch that reads the buffer itself, kiln_buffer_read(), kiln_buffer_cl(). What fails then fails
 *  with what `read` has answered, or for want of memory, and can be tried again. Writing the buffer
 *  ends this. `end` may be NULL; it is called once, when the buffer is released for the last time.
 *  Owner: `user` is the caller's until then. Threads: one that alone has the buffer, before any
 *  batch has. Errors: INVALID_ARGUMENT (NULL), WRONG_STATE (somebody else has the buffer, or it has
 *  a source); `end` is not called then. */
KILN_API KILN_MUST_CHECK kiln_status kiln_buffer_set_source(kiln_buffer *buffer,
                                                            kiln_buffer_reader read,
                                                            void (*end)(void *user), void *user);

/** Bytes of the buffer's content; 0 for NULL. Threads: any. Errors: none. */
KILN_API size_t kiln_buffer_bytes(const kiln_buffer *buffer);

/** Type, rank and dimensions (KILN_MAX_RANK places) of a buffer; any of the three may be NULL.
 *  Threads: any. Errors: INVALID_ARGUMENT. */
KILN_API KILN_MUST_CHECK kiln_status kiln_buffer_shape(const kiln_buffer *buffer, kiln_type *type,
                                                       size_t *rank, size_t *dims);

/* ---- host memory ---- */

/** Host memory that the device reads and writes at full speed: what is uploaded from it or read
 * into it, in a batch or a buffer, wherever in it that begins, is not copied on the way. On a
 * device with memory of its own it is pinned: it takes long to make and is no other program's, so
 * keep it, and make no more than the machine can spare. Where memory is shared it is plain aligned
 * memory. Owner: the caller, until kiln_host_free(); it holds the context. Aligned to 64 bytes,
 * content undefined; no bytes are one. Threads: any. Errors: INVALID_ARGUMENT, OUT_OF_HOST_MEMORY,
 * DEVICE_ERROR, FORKED; *memory is NULL. */
KILN_API KILN_MUST_CHECK kiln_status kiln_host_alloc(kiln_context *context, size_t bytes,
                                                     void **memory);

/** Free memory of kiln_host_alloc() of this context, after the last run that uses it has completed.
 *  NULL does nothing. Where a failing device leaves open whether runs still use it, it is freed
 * with the context instead. Threads: any, not only the one that made it. Errors: INVALID_ARGUMENT
 * (no context, or not the beginning of such memory). */
KILN_API kiln_status kiln_host_free(kiln_context *context, void *memory);

#ifdef __cplusplus
}
#endif

#endif
