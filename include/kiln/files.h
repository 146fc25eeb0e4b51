/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  Arrays in host memory, and files of them: numpy's .npy.
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

/** Elements in host memory, row-major and without gaps. */
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
 *  Threads: any. Errors: INVALID_ARGUMENT, TOO_LARGE (more elements than can be counted), IO_ERROR,
 *  OUT_OF_HOST_MEMORY; what the path named before is then as it was. */
KILN_API KILN_MUST_CHECK kiln_status kiln_npy_write(const char *path, const kiln_array *array);

#ifdef __cplusplus
}
#endif

#endif
