/* SPDX-License-Identifier: Apache-2.0 */
/* What one OpenCL device says of itself. */
#pragma once

#include "device/device.h"

/* Fill everything of `device` but info.index from its id and platform. Answers the first OpenCL
 * error that makes the device unusable; sets no error sentence, because a list skips such ones. */
cl_int kiln__device_read(struct kiln__device *device);
