/* SPDX-License-Identifier: Apache-2.0 */
/* The works of a plan (lower/workload.h), each once. */
#pragma once

#include "plan/plan.h"

struct kiln__plan_workload {
    uint64_t hash; /* of its name */
    char *name;
    unsigned count; /* of kernels, in one run */
};
struct kiln__plan_workloads {
    struct kiln__plan_workload *items;
    size_t count, capacity;
};

/* Without memory some are missing. */
void kiln__plan_workloads_of(const struct kiln__plan *plan, struct kiln__plan_workloads *works);
void kiln__plan_workloads_free(struct kiln__plan_workloads *works);

/* "NAME # count", a line. */
void kiln__plan_workload_write(const struct kiln__plan_workload *work, struct kiln__text *text);

/* To the end of a file, in one piece; what goes wrong is logged. */
void kiln__plan_workloads_append(const char *path, const struct kiln__text *text);
