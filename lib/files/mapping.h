/* SPDX-License-Identifier: Apache-2.0 */
/* A whole file in memory, as long as somebody holds it. What is written there stays this process's:
 * the file does not change. */
#pragma once

#include <stdatomic.h>
#include <stddef.h>

#include <kiln/status.h>

#include "util/error.h"

struct kiln__mapping {
    atomic_int references;
    char *bytes; /* NULL: the file is empty */
    size_t length;
};

/* Errors: IO_ERROR, OUT_OF_HOST_MEMORY; *result is NULL. The sentence is without call and path. */
kiln_status kiln__mapping_open(const char *path, struct kiln__mapping **result,
                               struct kiln__error *error);

void kiln__mapping_retain(struct kiln__mapping *mapping);

/* NULL does nothing. Threads: any, a driver's too. */
void kiln__mapping_release(struct kiln__mapping *mapping);
