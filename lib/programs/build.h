/* SPDX-License-Identifier: Apache-2.0 */
/* OpenCL programs: from source, from a binary, and back to a binary. */
#pragma once

#include "device/device.h"

/* Compile, and edit what has come of it where the source says so (programs/edit.h). `kernel` is how
 * the error calls it. Owner of the program: the caller. Errors: BUILD_FAILED with the compiler's
 * words (all of them in the log at debug), UNSUPPORTED without a compiler, DEVICE_ERROR,
 * OUT_OF_HOST_MEMORY, OUT_OF_DEVICE_MEMORY. */
kiln_status kiln__build_source(cl_context context, const struct kiln__device *device,
                               const char *source, const char *options, const char *kernel,
                               cl_program *program, struct kiln__error *error);

/* Make a program from what kiln__build_fetch() gave. Answers an OpenCL error and sets none of
 * kiln's: the caller has the source. */
cl_int kiln__build_binary(cl_context context, const struct kiln__device *device, const void *bytes,
                          size_t length, const char *options, cl_program *program);

/* The program's binary for the device. Owner: the caller, free(). */
cl_int kiln__build_fetch(cl_program program, const struct kiln__device *device, void **bytes,
                         size_t *length);
