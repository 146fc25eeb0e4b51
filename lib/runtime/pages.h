/* SPDX-License-Identifier: Apache-2.0 */
/* Large memory in large pages: a read of many megabytes looks up an address for each page, and the
 * system gives large ones only to who asks. */
#pragma once

#include <stddef.h>

#include "device/opencl.h"

/* The host's, for free(), at a multiple of `alignment` or more, a power of two. NULL: there is
 * none.
 */
void *kiln__pages_alloc(size_t bytes, size_t alignment);

/* A device's that works in the host's memory (live_host_pointers). NULL with the driver's answer in
 * *code. */
cl_mem kiln__pages_create(cl_context context, size_t bytes, cl_int *code);
