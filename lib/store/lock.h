/* SPDX-License-Identifier: Apache-2.0 */
/* Locks between processes, one file each. They die with their holder, and their files go with them
 * or at the next sweep. Nobody waits in here. */
#pragma once

#include <stdbool.h>

#define KILN__LOCK_SUFFIX ".lock"

struct kiln__lock {
    int folder;
    int fd; /* -1: not held */
    char name[48];
};

#define KILN__LOCK_NONE                                                                            \
    {                                                                                              \
        -1, -1, ""                                                                                 \
    }

enum kiln__lock_state {
    KILN__LOCK_TAKEN,
    KILN__LOCK_BUSY,      /* someone else has it */
    KILN__LOCK_IMPOSSIBLE /* locks do not work here, or its holder is not to be waited for */
};

/* Try to take the lock of `name` (an entry's). */
enum kiln__lock_state kiln__lock_try(int folder, const char *name, struct kiln__lock *lock);

/* Give it back and remove its file. A lock that is not held is left alone. */
void kiln__lock_release(struct kiln__lock *lock);

/* Remove a lock's file that nobody holds, if it is one: empty. True if it did. */
bool kiln__lock_sweep(int folder, const char *file);
