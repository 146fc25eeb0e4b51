/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors: opened without waiting, as a pipe that nobody writes to would be waited for without
 * end; and kept apart from the standard ones. */
#pragma once

#include <stdio.h>

/* A file to be read, also a pipe that somebody writes to. NULL with *why, which is static or
 * strerror()'s. */
FILE *kiln__open_to_read(const char *path, const char **why);

/* A descriptor that appends; the file is made if there is none. -1 with errno, which is ENXIO for a
 * pipe that nobody reads. */
int kiln__open_to_append(const char *path, unsigned mode);

/* The same file under a number above 2, since a program may have closed 0, 1 and 2 and still write
 * to them; `file` is closed. -1 for -1, and with errno. */
int kiln__file_above_standard(int file);
