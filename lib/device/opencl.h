/* SPDX-License-Identifier: Apache-2.0 */
/* The OpenCL headers as kiln uses them, errors of OpenCL calls in words, and the end of what a
 * queue has got. */
#pragma once

/* The 1.2 interface is the baseline; newer calls are looked up at run time. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include <stdbool.h>

#include "util/error.h"

/* "CL_OUT_OF_RESOURCES" and so on; "an unknown OpenCL error" for others. */
const char *kiln__cl_name(cl_int code);

/* The status that an OpenCL error amounts to: OUT_OF_DEVICE_MEMORY (also for more than the device
 * gives at once, CL_INVALID_BUFFER_SIZE), OUT_OF_HOST_MEMORY or DEVICE_ERROR. */
kiln_status kiln__cl_status(cl_int code);

/* clFinish(), but also on Mesa's rusticl, whose clFinish() does not wait for what was flushed. */
cl_int kiln__cl_finish(cl_command_queue queue);

/* Record "<call> answered CL_... (-5)". Returns the status of the error that stands. */
kiln_status kiln__cl_fail(struct kiln__error *error, const char *call, cl_int code);

/* An event for the end of all that was enqueued so far, in *end; none after an error. To be of use
 * to another queue it still has to be flushed. Errors: as of kiln__cl_status(). */
kiln_status kiln__cl_mark(cl_command_queue queue, cl_event *end, struct kiln__error *error);
