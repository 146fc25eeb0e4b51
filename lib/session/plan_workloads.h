/* SPDX-License-Identifier: Apache-2.0 */
/* The works of a plan (lower/workload.h), each once. */
#ifndef KILN_SESSION_PLAN_WORKLOADS_H
#define KILN_SESSION_PLAN_WORKLOADS_H

#include "plan/plan.h"

struct kiln__work {
    uint64_t hash; /* of its name */
    char *name;
    unsigned count; /* of kernels, in one run */
};
struct kiln__works {
    struct kiln__work *items;
    size_t count, capacity;
};

/* Without memory some are missing. */
void kiln__works_of(const struct kiln__plan *plan, struct kiln__works *works);
void kiln__works_free(struct kiln__works *works);

/* "NAME # count", a line. */
void kiln__work_write(const struct kiln__work *work, struct kiln__text *text);

/* To the end of a file, in one piece; what goes wrong is logged. */
void kiln__works_append(const char *path, const struct kiln__text *text);

#endif
