/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  Buffers in files: safetensors, as most published weights are; arrays in host memory, and files
 *  of them: numpy's .npy.
 *
 *  A file that is written appears whole under its name or not at all: it is written beside it,
 *  brought to the disk and renamed. A file that is read is not trusted: one that is damaged, or was
 *  made to do harm, is an error with a sentence that names the file. */
#ifndef KILN_FILES_H
#define KILN_FILES_H

#include <kiln/status.h>
#include <kiln/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- buffers: safetensors ---- */

/** Write n buffers under their names, as any reader of safetensors takes them: first waits for what
 *  was submitted before. Parameters and what kiln_optimizer_state() gives are all that training has
 *  to remember. A file that buffers were loaded from may be written: what they hold stays.
 *  Threads: any; no batch may write the buffers meanwhile.
 *  Errors: INVALID_ARGUMENT (NULL, a name twice, one that is no UTF-8 or "__metadata__"),
 *  UNSUPPORTED (a type of blocks), TOO_LARGE (a header of more than 100,000,000 bytes), IO_ERROR,
 *  OUT_OF_HOST_MEMORY, and as kiln_buffer_read(); what the path named before is then as it was. */
KILN_API KILN_MUST_CHECK kiln_status kiln_save(const char *path, size_t n, const char *const *names,
                                               kiln_buffer *const *buffers);

/** Make buffers[i] of the tensor names[i] of a safetensors file, with its type and shape, i below
 * n. F64 becomes f32, rounded to nearest; I16 and U16 become i32, U32 and U64 i64.
 *
 *  Where the device works on the host's memory the file is mapped: nothing is copied, its pages
 * come from the disk as they are used and are shared with other processes; what is written into
 * such a buffer stays in this process. The mapping ends with the last such buffer. Until then the
 * file may be replaced or removed (kiln_save() replaces), but whoever cuts it short kills the
 * process. Owner: the caller, until kiln_buffer_release() of each; they hold the context. Threads:
 * any. Errors: INVALID_ARGUMENT (NULL, a name that the file has not), IO_ERROR (not there,
 * damaged), UNSUPPORTED (another type, more than KILN_MAX_RANK dimensions), TOO_LARGE,
 *  OUT_OF_HOST_MEMORY, and as kiln_buffer_create() and kiln_buffer_write(); all buffers are NULL.
 */
KILN_API KILN_MUST_CHECK kiln_status kiln_load(kiln_context *context, const char *path, size_t n,
                                               const char *const *names, kiln_buffer **buffers);

/** Write the tensor names[i] of a safetensors file into buffers[i], i below n. All must have their
 *  types and shapes, else nothing is written.
 *  Threads: any; ordered with the batches of their contexts by submission.
 *  Errors: SHAPE_MISMATCH, TYPE_MISMATCH, else as kiln_load(). */
KILN_API KILN_MUST_CHECK kiln_status kiln_load_into(const char *path, size_t n,
                                                    const char *const *names,
                                                    kiln_buffer *const *buffers);

/** A tensor in a file. */
typedef struct kiln_saved {
    const char *name;           /**< as the file has it */
    const char *stored;         /**< what the file calls its type, such as "BF16" */
    kiln_type type;             /**< that it is loaded as; 0: kiln has none for it */
    size_t rank;                /**< dimensions */
    size_t dims[KILN_MAX_RANK]; /**< the first `rank` count */
} kiln_saved;

/** What a safetensors file has, by name, without its content.
 *  Owner: the caller frees *tensors, and with it all words, with kiln_free(). Threads: any.
 *  Errors: INVALID_ARGUMENT, IO_ERROR, UNSUPPORTED (more than KILN_MAX_RANK dimensions), TOO_LARGE,
 *  OUT_OF_HOST_MEMORY; *tensors is NULL and *count 0. */
KILN_API KILN_MUST_CHECK kiln_status kiln_saved_list(const char *path, kiln_saved **tensors,
                                                     size_t *count, size_t size);
#define kiln_saved_list(...) kiln_saved_list(__VA_ARGS__, sizeof(kiln_saved))

/* ---- arrays: .npy ---- */

/** Elements in host memory, row-major and without gaps. This structure never grows. */
typedef struct kiln_array {
    kiln_type type;             /**< of the elements */
    size_t rank;                /**< dimensions; 0 is a single element */
    size_t dims[KILN_MAX_RANK]; /**< the first `rank` count */
    void *data;                 /**< the elements; may be NULL where there are none */
} kiln_array;

/** Read an array that numpy.save() wrote (formats 1.0, 2.0 and 3.0, either order of bytes; what
 *  numpy has in Fortran's order is brought into row-major). kiln's own types stay as they are
 *  (float32, float16, int32, int64, int8, uint8, bool). float64 becomes f32, rounded to nearest;
 *  int16 and uint16 become i32, uint32 and uint64 i64. What follows the array is not looked at.
 *  Owner: the caller frees array->data with kiln_free(). Threads: any.
 *  Errors: INVALID_ARGUMENT, IO_ERROR (not there, cut short, damaged), UNSUPPORTED (another type,
 *  more than KILN_MAX_RANK dimensions), TOO_LARGE (a uint64 that i64 has not, more elements than
 *  can be counted), OUT_OF_HOST_MEMORY; *array is all zeros. */
KILN_API KILN_MUST_CHECK kiln_status kiln_npy_read(const char *path, kiln_array *array);

/** Write an array as numpy.load() reads it. bf16, which numpy has not, is written as float32 of the
 *  same values; all other types are numpy's of the same size.
 *  Threads: any. Errors: INVALID_ARGUMENT, UNSUPPORTED (a type of blocks), TOO_LARGE (more
 *  elements than can be counted), IO_ERROR, OUT_OF_HOST_MEMORY; what the path named before is
 *  then as it was. */
KILN_API KILN_MUST_CHECK kiln_status kiln_npy_write(const char *path, const kiln_array *array);

#ifdef __cplusplus
}
#endif

#endif
