/* SPDX-License-Identifier: Apache-2.0 */
/* A crash-safe probe. What a driver was not made for may be wrong on the next one, or end the
 * process. It is tried once for each device and driver, and what came of it is noted in the kernel
 * cache; that it is being tried is noted before, so that no second process ends by it. */
#pragma once

#include <stdbool.h>

#include "programs/program.h"

#define KILN__PROBE_WHY 160

/* Times in seconds. */
struct kiln__crash_probe {
    const char *subject; /* one line, as people see it */
    double patience;     /* for another process that is at it: then it is not used for now */
    double life;         /* of a mark: an older one is of a process that has ended by it */
};

enum kiln__probe_outcome {
    KILN__PROBE_RIGHT,
    KILN__PROBE_WRONG, /* told at `warn` when it is found out */
    KILN__PROBE_BUSY   /* nobody knows yet: another process is at it, or it could not be tried */
};

/* `why` says what is wrong, or why it could not be tried. */
typedef enum kiln__probe_outcome (*kiln__probe_function)(void *user, char why[KILN__PROBE_WHY]);

/* From its note, else by trying; without a `trier` it is BUSY then. Where no note can be kept, each
 * call tries. */
enum kiln__probe_outcome kiln__crash_probe(struct kiln__programs *programs,
                                           const struct kiln__crash_probe *probe,
                                           kiln__probe_function trier, void *user);
