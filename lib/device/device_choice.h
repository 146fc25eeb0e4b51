/* SPDX-License-Identifier: Apache-2.0 */
/* Which of several devices a choice means. */
#pragma once

#include "device/device_list.h"

/* The best device of those that fit `choice` ("": all fit), or NULL. Nothing is asked of OpenCL. */
const struct kiln__device *kiln__device_pick(const struct kiln__device_list *list,
                                             const char *choice);
