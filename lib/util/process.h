/* SPDX-License-Identifier: Apache-2.0 */
/* What the system says of a process. */
#pragma once

#include <sys/types.h>

/* The letter of its state in Linux's /proc, as 'R' (runs, or has no processor), 'S' (sleeps) and
 * 'Z' (has ended, or its main thread has); 0: nobody knows. */
char kiln__process_state(pid_t process);
