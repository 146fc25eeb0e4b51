/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the driver's compiler and the end of the process apart.
 *
 * A compiler's statics are made when it is used for the first time, and so are taken down before
 * any exit handler of kiln's runs. A thread that compiles then dies, and the process with it.
 * Destructors of thread-local objects run before all exit handlers: so one of the main thread
 * stops what compiles. From then on no other thread begins to; what is being compiled is waited
 * for.
 */
#pragma once

#include <stdbool.h>

#include "device/opencl.h"

/* Have the end of the process stop what compiles: on the main thread, once. Loading the library
 * does it as well. */
void kiln__compiler_guard_exit(void);

/* Around each call that compiles, or makes the driver do it later. Threads: any. False: the process
 * ends, and nothing may be compiled any more. */
bool kiln__compiler_enter(void);
void kiln__compiler_leave(void);

/* Between the two: before a launch in `queue`, whose end is `event`, the driver compiles for it. */
void kiln__compiler_launched(cl_command_queue queue, cl_event event);

/* The queue has ended. */
void kiln__compiler_forget(cl_command_queue queue);
