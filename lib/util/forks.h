/* SPDX-License-Identifier: Apache-2.0 */
/* Whether this still is the process that made something. A child counts its fork when it begins: to
 * ask for the process's number is a call of the system, 0.3 us in a virtual machine, every time. */
#pragma once

#include <stdbool.h>

/* Have forks counted from now on, if they are not already. False without memory. */
bool kiln__forks_watch(void);

/* Another number in each child of fork(), once they are watched. */
unsigned kiln__forks(void);
