/* SPDX-License-Identifier: Apache-2.0 */
/* The one place that reads the environment: whoever starts a program that has more rights than
 * he has (set-user-id, set-group-id, file capabilities) chooses it, and must not choose with it
 * which files that program reads and writes. */
#pragma once

/* The value of a variable. NULL: it is unset or empty, or the program has more rights than its
 * caller; then no variable counts. Owner: the environment. */
const char *kiln__environment(const char *name);

/* To be called before the process's first call of OpenCL, in which Khronos's loader cuts
 * OCL_ICD_FILENAMES off at its first ':', where it stands: what it says before that is kept, once.
 */
void kiln__environment_keep(void);

/* The environment, with what was kept, for a process that is to find the same drivers. NULL: there
 * is no memory. Owner: the caller of the array, not of what it points to. */
char **kiln__environment_of_child(void);
