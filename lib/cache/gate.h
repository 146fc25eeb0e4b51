/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps launches and the fetching of binaries apart, on devices whose binary is complete only after
 * the first launch: PoCL 3.1 ends the process with a failed assertion (found->ref_count > 0) when a
 * program's binary is fetched while one of its kernels runs. One gate for the whole process, since
 * PoCL's own table of kernels is one for all contexts. */
#ifndef KILN_CACHE_GATE_H
#define KILN_CACHE_GATE_H

#include "device/opencl.h"

/* A queue that passes the gate, from its making to its end. False without memory. */
bool kiln__gate_add_queue(cl_command_queue queue);
void kiln__gate_remove_queue(cl_command_queue queue);

/* Around enqueuing. Waits while the gate is closed. */
void kiln__gate_enter(void);
void kiln__gate_leave(void);

/* Wait for a pause in the launches, keep new ones out and finish those under way. A pause is short,
 * and after some seconds of work without one, or in a hurry, none is waited for. Where a queue
 * could not be finished its error comes back, and launches may be under way; the gate is closed
 * then too. */
cl_int kiln__gate_close(void);
void kiln__gate_open(void);

/* While somebody waits for what goes on behind the gate. */
void kiln__gate_hurry(bool hurry);

#endif
