/* SPDX-License-Identifier: Apache-2.0 */
/* A context that each test of a suite has: TestSuite(name, .init = open_device, .fini =
 * close_device). */
#pragma once

#include "context.h"

extern kiln_context *context;

void open_device(void);
void close_device(void);
