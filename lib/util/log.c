/* SPDX-License-Identifier: Apache-2.0 */
/* The log on standard error, by the level in KILN_LOG. */
#include "util/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "util/environment.h"
#include "util/format.h"

static const char *const level_names[] = {"", "error", "warn", "info", "debug"};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int wanted;

static void read_environment(void)
{
    const char *value = kiln__environment("KILN_LOG");
    for (int level = KILN__LOG_ERROR; value && level <= KILN__LOG_DEBUG; level++)
        if (!strcmp(value, level_names[level]))
            wanted = level;
    if (!value || wanted)
        return;
    wanted = KILN__LOG_ERROR;
    kiln__log(KILN__LOG_ERROR,
              "KILN_LOG is \"%s\", not error, warn, info or debug; it counts as error", value);
}

int kiln__log_wants(enum kiln__log_level level)
{
    pthread_once(&once, read_environment);
    return (int)level <= wanted;
}

void kiln__log(enum kiln__log_level level, const char *format, ...)
{
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    kiln__vformat(line, sizeof line, format, arguments);
    va_end(arguments);
    fprintf(stderr, "kiln: %s: %s\n", level_names[level], line);
}
