/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a process, by /proc. */
#include "util/process.h"

#include <stdio.h>
#include <string.h>

char kiln__process_state(pid_t process)
{
    char path[32], text[512] = "";
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)process);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = 0;
    const char *name_end = strrchr(text, ')');
    return name_end && name_end[1] == ' ' ? name_end[2] : 0;
}
