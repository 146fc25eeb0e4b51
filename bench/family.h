/* SPDX-License-Identifier: Apache-2.0 */
/* The processes that came from this one, in whatever group or session they are now. */
#pragma once

#include <sys/types.h>

/* From now on a process whose parent has ended stays one of this family. */
void family_adopt(void);

/* Stop all of them that are not stopped yet, but for `except` (0: none) and what came from it.
 * Without /proc none is found. */
void family_freeze(pid_t except);

/* Let go on what the last call has stopped. */
void family_thaw(void);
