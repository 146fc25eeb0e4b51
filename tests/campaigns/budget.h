/* SPDX-License-Identifier: Apache-2.0 */
/* How many failures a campaign has time for. */
#pragma once

#include <stdbool.h>

/* A campaign's time, spread over its parts. A part of many failures takes on a sample of them,
 * evenly spaced; devices on which a context takes long to make do fewer. */
struct budget {
    bool is_long; /* no limit */
    int parts;    /* still to come */
    double used;  /* of the whole time, from 0 to 1 */
    double until; /* where the part under way should end */
    double cpu, wall;
    unsigned long possible;
};

void budget_begin(struct budget *budget, bool is_long, int parts);

/* At a process's start: its times begin anew. */
void budget_resume(struct budget *budget);

/* How many of the next part's `failures` to take on, if one takes `each` of the whole time. */
unsigned long budget_share(struct budget *budget, unsigned long failures, double each);

/* Whether the part has had its time, after `done` cases. */
bool budget_is_spent(const struct budget *budget, unsigned long done);

/* After something that took time: how much of the whole. */
double budget_note(struct budget *budget);

/* Number `i` of a sample of `count` among `failures`, from 1; `phase` from 0 to 1 shifts it. */
unsigned long budget_sample(unsigned long i, unsigned long count, unsigned long failures,
                            double phase);
