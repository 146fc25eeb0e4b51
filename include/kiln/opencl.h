/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  For programs that use OpenCL themselves: hand objects in, take objects out.
 *  Not part of kiln/kiln.h, because it needs the OpenCL headers. */
#ifndef KILN_OPENCL_H
#define KILN_OPENCL_H

#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 120
#endif
#include <CL/cl.h>

#include <kiln/kiln.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Make a context over OpenCL objects of the caller. `queue` must be in-order; NULL: kiln makes
 *  one. `options` may be NULL; its device is not looked at.
 *  Owner: kiln retains the objects and releases them with the context. Threads: any.
 *  Errors: INVALID_ARGUMENT (device not of the context, queue out of order), DEVICE_ERROR,
 *  FORKED. */
KILN_API KILN_MUST_CHECK kiln_status kiln_context_create_cl(cl_context cl, cl_device_id device,
                                                            cl_command_queue queue,
                                                            const kiln_context_options *options,
                                                            kiln_context **context);

/** The OpenCL objects of a context; any of the three may be NULL.
 *  Owner: the context; retain what is to outlive it. Threads: any. Errors: INVALID_ARGUMENT. */
KILN_API KILN_MUST_CHECK kiln_status kiln_context_cl(const kiln_context *context, cl_context *cl,
                                                     cl_device_id *device, cl_command_queue *queue);

/** Make a buffer over a cl_mem of the same cl_context, without a copy; it must hold the tensor.
 *  Owner: kiln retains `memory`. Threads: any.
 *  Errors: INVALID_ARGUMENT, TOO_LARGE if `memory` is too small, DEVICE_ERROR. */
KILN_API KILN_MUST_CHECK kiln_status kiln_buffer_create_cl(kiln_context *context, cl_mem memory,
                                                           kiln_type type, size_t rank,
                                                           const size_t *dims,
                                                           kiln_buffer **buffer);

/** The cl_mem of a buffer. Owner: the buffer; retain it to keep it longer. Threads: any.
 *  Errors: NULL for NULL, for a buffer without elements, and for one whose content cannot be had
 *  again (kiln_buffer_set_source(); kiln_last_error() has the sentence). */
KILN_API cl_mem kiln_buffer_cl(const kiln_buffer *buffer);

/** The cl_event that completes with a submission: its last command's. An earlier command may have
 *  failed even so; kiln_event_wait() and kiln_event_poll() look at all.
 *  Owner: the event; retain it to keep it longer. Threads: any. Errors: NULL for NULL. */
KILN_API cl_event kiln_event_cl(const kiln_event *event);

#ifdef __cplusplus
}
#endif

#endif
