/* SPDX-License-Identifier: Apache-2.0 */
/* An interlock of launches and the fetching of binaries, on devices whose binary is complete only
 * after the first launch: PoCL 3.1 ends the process with a failed assertion (found->ref_count > 0)
 * when a program's binary is fetched while one of its kernels runs. One gate for the whole process,
 * since PoCL's own table of kernels is one for all contexts. */
#pragma once

#include "device/opencl.h"

/* A queue that the interlock guards, from its making to its end. False without memory. */
bool kiln__interlock_add_queue(cl_command_queue queue);
void kiln__interlock_remove_queue(cl_command_queue queue);

/* Around enqueuing. Waits while it is closed. */
void kiln__interlock_enter(void);
void kiln__interlock_leave(void);

/* Keep new launches out, as soon as nobody is just about one and nobody else keeps them out. */
void kiln__interlock_close(void);

/* With the interlock closed: wait for all that was launched. Where a queue could not be finished
 * its error comes back, and kernels may be running. */
cl_int kiln__interlock_finish(void);

void kiln__interlock_open(void);
