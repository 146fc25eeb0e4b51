/* SPDX-License-Identifier: Apache-2.0 */
/* Names of files and folders that are not there, on no machine: below the test's own folder. */
#pragma once

#include <stdio.h>
#include <stdlib.h>

/* The path of nothing that is called `name`; lasts until the next call. */
static inline const char *missing_path(const char *name)
{
    static char path[400];
    const char *below = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/kiln-has-no-such-folder/%s", below && *below ? below : "/tmp",
             name);
    return path;
}
