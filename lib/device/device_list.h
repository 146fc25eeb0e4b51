/* SPDX-License-Identifier: Apache-2.0 */
/* All devices of this machine, in the order in which their drivers are installed. */
#pragma once

#include "device/device.h"
#include "util/vector.h"

struct kiln__device_list {
    KILN__VECTOR(struct kiln__device) devices;
    char skipped[256]; /* what was left out first, and why; empty: nothing was */
};

/* List the devices; a platform or device that does not answer is left out, noted and logged. No
 * driver at all is an empty list. The list is made anew each time: it takes microseconds once the
 * drivers are loaded, and nothing has to be kept in step with them.
 * Errors: OUT_OF_HOST_MEMORY, DEVICE_ERROR; the list is then empty. */
kiln_status kiln__device_list(struct kiln__device_list *list, struct kiln__error *error);
void kiln__device_list_free(struct kiln__device_list *list);
