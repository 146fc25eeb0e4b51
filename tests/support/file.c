/* SPDX-License-Identifier: Apache-2.0 */
/* Temporary files of tests: their paths and contents. */
#include "support/file.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void temporary_path(char path[512], const char *name)
{
    const char *folder = getenv("TMPDIR");
    snprintf(path, 512, "%s/%s-%d", folder ? folder : "/tmp", name, (int)getpid());
}

void put_file(const char *path, const void *bytes, size_t count)
{
    unlink(path); /* some file systems bring one that is written over to the disk at once */
    FILE *file = fopen(path, "wb");
    cr_assert(file && fwrite(bytes, 1, count, file) == count && !fclose(file));
}
