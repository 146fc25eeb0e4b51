/* SPDX-License-Identifier: Apache-2.0 */
/* An OpenCL layer that counts every call, keeps the balance of every object, and makes the
 * N-th call fail. The OpenCL loader puts it between a program and the driver:
 *
 *     OPENCL_LAYERS=/path/kiln-layer.so KILN_LAYER_OUTPUT=counts.txt program
 *
 * Environment, read once when the loader starts the layer:
 *   KILN_LAYER_OUTPUT   file that gets the snapshot when the process exits; "%p" in it becomes the
 *                       process number. Children made by fork alone write nothing.
 *   KILN_LAYER_FAIL     "N", "name" or "name:N": fail the N-th (default first) call that may fail,
 *                       or the N-th call of that name.
 *   KILN_LAYER_FAIL_CODE    the error, default -5 (CL_OUT_OF_RESOURCES)
 *   KILN_LAYER_FAIL_MODE    once (default) or forever: the N-th and all later ones
 *   KILN_LAYER_FAIL_WHERE   call (default), after or event, see enum kiln_layer_where
 *   KILN_LAYER_FAIL_AFTER_CONTEXT=1   no call may fail before the first context exists
 * A setting that makes no sense is named on stderr and the layer refuses to start.
 *
 * Any call may fail except releases and clSetUserEventStatus, after whose failure a caller can do
 * nothing; by name these can be made to fail too.
 *
 * Keys of the snapshot, one "key=value" line each, sorted:
 *   clEnqueueNDRangeKernel ...   calls by name, failed ones included; unused calls have no line
 *   upload.count upload.bytes    the same with download, copy, fill, map: transfers that were
 *                                accepted; images count zero bytes
 *   create_copy.count .bytes     buffers created with CL_MEM_COPY_HOST_PTR
 *   allocated.bytes              sizes of all buffers created, sub-buffers excluded
 *   launches                     kernels enqueued and accepted
 *   source_programs, binary_programs   programs created, by origin (IL and linked count as neither)
 *   alive.context ...            references that the program still holds: created + retained -
 *                                released, for context queue mem program kernel event sampler
 *                                device (sub-devices and retains only); alive is their sum
 *   created.context ...          objects created, retains excluded
 *   eligible, eligible.event     calls that could have failed, and calls that handed out an event
 *   failures, failed             failures injected; the name of the last call that failed, or "-"
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum kiln_layer_mode {
    KILN_LAYER_ONCE,   /* the N-th call only */
    KILN_LAYER_FOREVER /* the N-th call and every later one */
};

enum kiln_layer_where {
    KILN_LAYER_CALL = 1, /* not forwarded; the error is returned */
    KILN_LAYER_AFTER,    /* forwarded, ended, its result released; the error is returned */
    /* The enqueue succeeds, but the command is not done (a map or an unmap is), and its event ends
     * in the error. Only enqueues whose caller asks for an event are counted. Commands that wait
     * for it run, but their events end in CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, or their
     * call does if it blocks. */
    KILN_LAYER_EVENT
};

/* The rest is for the process itself; find it with dlsym in a handle from dlopen of the same path,
 * or through tests/support/layer.h. All of it may be called from any thread. */

/* Whether the loader has started the layer. */
bool kiln_layer_active(void);

/* The value of a key; UINT64_MAX for a key that does not exist. */
uint64_t kiln_layer_count(const char *key);

/* The text of all keys; it belongs to the layer and lasts until the thread's next call. */
const char *kiln_layer_snapshot(void);

/* Set all counts to zero and disarm. What is alive stays counted. */
void kiln_layer_reset(void);

/* Fail the n-th eligible call from now on; n = 0 disarms. `name` NULL: any call.
 * Returns false, and disarms, for an unknown name. */
bool kiln_layer_fail(unsigned long n, const char *name, int code, enum kiln_layer_mode mode,
                     enum kiln_layer_where where);

#ifdef __cplusplus
}
#endif
