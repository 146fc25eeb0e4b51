/* SPDX-License-Identifier: Apache-2.0 */
/* The context that each test of a suite has. */
#include "device.h"

kiln_context *context;

void open_device(void)
{
    context = open_context();
}

void close_device(void)
{
    close_context(context);
}
