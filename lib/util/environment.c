/* SPDX-License-Identifier: Apache-2.0 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* secure_getenv */
#endif
#include "util/environment.h"

#include <stddef.h>
#include <stdlib.h>

const char *kiln__environment(const char *name)
{
    const char *value = secure_getenv(name);
    return value && *value ? value : NULL;
}
