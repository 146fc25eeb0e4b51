/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products by CLBlast. */
#pragma once

#include "device/device.h"
#include "plan/launch.h"

/* Enqueue a CLBlast launch, with the parameters that the device's traits say; `memory` is per slot.
 * The event (may be NULL) is that of its last kernel, which is the end of all of them on an
 * in-order queue. Errors: DEVICE_ERROR, UNSUPPORTED in a build without CLBlast. */
kiln_status kiln__clblast_enqueue(const struct kiln__device *device, cl_command_queue queue,
                                  const struct kiln__launch *launch, const cl_mem *memory,
                                  cl_event *event, struct kiln__error *error);

/* CLBlast keeps programs for each OpenCL context that it has worked in. A runtime counts itself in
 * before its first product and out at its end; with the last one CLBlast lets go of all. */
void kiln__clblast_begin(void);
void kiln__clblast_end(void);
