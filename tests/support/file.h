/* SPDX-License-Identifier: Apache-2.0 */
/* Files that a test makes. */
#pragma once

#include <stddef.h>

/* Of this process, in $TMPDIR. */
void temporary_path(char path[512], const char *name);

/* A file of these bytes, new. */
void put_file(const char *path, const void *bytes, size_t count);
