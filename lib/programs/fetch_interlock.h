/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps launches and the fetching of binaries apart, on devices whose binary is complete only after
 * the first launch: PoCL 3.1 ends the process with a failed assertion (found->ref_count > 0) when a
 * program's binary is fetched while one of its kernels runs. One gate for the whole process, since
 * PoCL's own table of kernels is one for all contexts. */
#ifndef KILN_PROGRAMS_FETCH_INTERLOCK_H
#define KILN_PROGRAMS_FETCH_INTERLOCK_H

#include "device/opencl.h"

/* A queue that passes the gate, from its making to its end. False without memory. */
bool kiln__gate_add_queue(cl_command_queue queue);
void kiln__gate_remove_queue(cl_command_queue queue);

/* Around enqueuing. Waits while the gate is closed. */
void kiln__gate_enter(void);
void kiln__gate_leave(void);

/* Keep new launches out, as soon as nobody is just about one and nobody else keeps them out. */
void kiln__gate_close(void);

/* With the gate closed: wait for all that was launched. Where a queue could not be finished its
 * error comes back, and kernels may be running. */
cl_int kiln__gate_finish(void);

void kiln__gate_open(void);

#endif
