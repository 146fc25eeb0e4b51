/* SPDX-License-Identifier: Apache-2.0 */
/* secure_getenv() behind one function, and the environment that child processes get. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* secure_getenv, environ */
#endif
#include "util/environment.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DRIVERS "OCL_ICD_FILENAMES="

const char *kiln__environment(const char *name)
{
    const char *value = secure_getenv(name);
    return value && *value ? value : NULL;
}

static char *drivers; /* the whole setting; NULL: there is none */

static void keep_drivers(void)
{
    for (char **setting = environ; setting && *setting && !drivers; setting++)
        if (!strncmp(*setting, DRIVERS, strlen(DRIVERS)))
            drivers = strdup(*setting);
}

void kiln__environment_keep(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, keep_drivers);
}

char **kiln__environment_of_child(void)
{
    size_t count = 0;
    kiln__environment_keep();
    while (environ && environ[count])
        count++;
    char **all = calloc(count + 1, sizeof *all);
    for (size_t i = 0; all && i < count; i++)
        all[i] = drivers && !strncmp(environ[i], DRIVERS, strlen(DRIVERS)) ? drivers : environ[i];
    return all;
}
