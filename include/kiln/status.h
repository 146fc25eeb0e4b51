/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  What a call may answer, and the sentence that goes with it. */
#ifndef KILN_STATUS_H
#define KILN_STATUS_H

#include <kiln/export.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @page errors How calls tell errors
 *  By what they return, all of kiln alike:
 *  - **kiln_status**: 0 is success, below 0 an error. kiln_last_error() has its sentence. Where
 * such a call leaves something in `*result`, that is NULL or 0 after an error.
 *  - **kiln_tensor**, of calls that record an operation: errors are sticky. The batch keeps its
 * first one (kiln_batch_status(), kiln_batch_error()); this call and all later ones on the batch do
 *    nothing and return the empty tensor, whose id is 0, which all take as an operand; running the
 *    batch returns the error. So a program may record a whole model and look once. Recording calls
 *    with other results (kiln_read(), kiln_export(), kiln_grad(), ...) return the batch's status:
 *    looking at it is allowed, not needed.
 *  - **a pointer, a number, a text**: NULL, 0, or a text that says so; kiln_last_error() has the
 *    sentence where the comment names an error.
 *  - **nothing**, of calls that release, retain or fill in defaults: they cannot fail, and NULL
 * does nothing. Asking (kiln_tensor_shape(), kiln_batch_get_cost(), ...) never makes a batch fail.
 */

/** Every status: name, value (part of the binary interface), meaning. */
#define KILN_STATUS_MAP(X)                                                                         \
    X(OK, 0, "success")                                                                            \
    X(NOT_READY, 1, "the work has not completed yet")                                              \
    X(INVALID_ARGUMENT, -1, "an argument is not valid")                                            \
    X(INVALID_HANDLE, -2, "a handle names nothing in this batch")                                  \
    X(SHAPE_MISMATCH, -3, "shapes do not fit together")                                            \
    X(TYPE_MISMATCH, -4, "data types do not fit together")                                         \
    X(TOO_LARGE, -5, "a size is beyond what can be addressed")                                     \
    X(OUT_OF_HOST_MEMORY, -6, "the host is out of memory")                                         \
    X(OUT_OF_DEVICE_MEMORY, -7, "the device is out of memory")                                     \
    X(NO_DEVICE, -8, "no OpenCL device fits")                                                      \
    X(DEVICE_ERROR, -9, "an OpenCL call failed")                                                   \
    X(BUILD_FAILED, -10, "a kernel could not be compiled")                                         \
    X(UNSUPPORTED, -11, "the device or this build cannot do that")                                 \
    X(IO_ERROR, -12, "a file could not be read or written")                                        \
    X(WRONG_STATE, -13, "the object is not in a state that allows the call")                       \
    X(FORKED, -14, "the context was made before a fork and cannot be used in the child")           \
    X(WRONG_RESULT, -15, "the device computed what the host did not")                              \
    X(CANCELLED, -16, "the request was cancelled")                                                 \
    X(TIMED_OUT, -17, "the time for it is over")                                                   \
    X(BUSY, -18, "the queue is full")                                                              \
    X(BAD_VALUE, -19, "a value is NaN, infinite or an index out of range")

/** The status of a call: zero is success, below zero is an error. */
typedef enum kiln_status {
#define KILN_STATUS_ENUM(name, value, text) KILN_##name = (value),
    KILN_STATUS_MAP(KILN_STATUS_ENUM)
#undef KILN_STATUS_ENUM
} kiln_status;

/** The name of a status, such as "SHAPE_MISMATCH"; "UNKNOWN" for a value that is none.
 *  Owner: static text. Threads: any. Errors: none. */
KILN_API const char *kiln_status_name(kiln_status status);

/** The meaning of a status in a few words.
 *  Owner: static text. Threads: any. Errors: none. */
KILN_API const char *kiln_status_text(kiln_status status);

/** The sentence of the last call of this thread that failed: which call, which operand, which
 *  shapes. Empty before the first failure. A batch keeps its own first error beside this.
 *  Owner: kiln; valid until the thread's next failing call. Threads: each has its own.
 *  Errors: none. */
KILN_API const char *kiln_last_error(void);

/** For libraries on top of kiln: make `sentence` this thread's kiln_last_error(), at most 4095
 *  bytes of it, and return `status`. NULL is an empty sentence. It may be kiln_last_error() itself.
 *  Owner: the sentence is copied. Threads: any. Errors: none. */
KILN_API kiln_status kiln_error_set(kiln_status status, const char *sentence);

#ifdef __cplusplus
}
#endif

#endif
