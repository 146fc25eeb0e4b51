/* SPDX-License-Identifier: Apache-2.0 */
/* This program's own open, read, write, malloc and so on: they do what the system's do, but for the
 * one that is to fail. What a program defines counts before the C library's. */
#pragma once

#include <stdbool.h>

enum faulty_kind {
    FAULTY_ERROR, /* the call is not made; errno is `error` */
    FAULTY_SHORT, /* reads and writes do half; other calls fail with EINTR where that can be */
    FAULTY_KILL_BEFORE, /* the process ends by SIGKILL, with the call not made */
    FAULTY_KILL_AFTER   /* the same, with the call made */
};

struct faulty_plan {
    int call; /* which one, from 1; 0: none */
    bool for_good;
    enum faulty_kind kind;
    int error;
};

/* Count calls from 0 again, and fail by plan; NULL: count no more. */
void faulty_arm(const struct faulty_plan *plan);

/* Calls since then, and how many of them were made to fail. */
int faulty_calls(void);
int faulty_hits(void);

/* Files renamed before what was written to them was synced, since the program began. */
int faulty_unsynced(void);
