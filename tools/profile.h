/* SPDX-License-Identifier: Apache-2.0 */
/* What `kiln profile` knows of a program's run: its launches and transfers, alike ones together. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct kiln__profile_row {
    const char *name, *what, *shapes; /* the last two empty for transfers */
    json_t *names;                    /* that the program gave: the keys, first come first */
    uint64_t count;
    double seconds; /* of all */
    double operations, bytes;
};

/* What the device reaches; 0: not known. */
struct kiln__peaks {
    double operations, bytes; /* a second */
};

struct kiln__profile {
    char device[128];
    size_t count;
    struct kiln__profile_row *rows; /* longest first; their texts are the trace's */
    double seconds;                 /* of all rows */
    double span;                    /* from the first one's begin to the last one's end */
    struct kiln__peaks peaks;
    json_t *trace;
};

/* Read a trace that kiln wrote; `by_name`: what the program calls otherwise has a row of its own.
 * Says what is wrong, and answers false. */
bool kiln__profile_read(const char *path, bool by_name, struct kiln__profile *profile);
void kiln__profile_free(struct kiln__profile *profile);

/* What kiln reaches on the device that a context opens, if that is the profile's: measured once,
 * then remembered. */
void kiln__profile_find_peaks(struct kiln__profile *profile);

/* Share of the nearer peak that a row has reached, 0 to 1; below 0: nothing to compare. */
double kiln__profile_share(const struct kiln__profile *profile,
                           const struct kiln__profile_row *row);

/* Bars, the longest row first. */
void kiln__profile_draw(const struct kiln__profile *profile, size_t most, FILE *file);
