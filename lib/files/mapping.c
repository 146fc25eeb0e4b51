/* SPDX-License-Identifier: Apache-2.0 */
/* Private mappings of whole files with a reference count, for buffers that use file pages in place.
 * */
#include "files/mapping.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static kiln_status mapping_map(int fd, struct kiln__mapping *mapping, struct kiln__error *error)
{
    struct stat facts;
    if (fstat(fd, &facts))
        return kiln__fail(error, KILN_IO_ERROR, "%s", strerror(errno));
    if (!S_ISREG(facts.st_mode))
        return kiln__fail(error, KILN_IO_ERROR, "it is no regular file");
    if ((uintmax_t)facts.st_size > PTRDIFF_MAX)
        return kiln__fail(error, KILN_IO_ERROR, "it is longer than this machine's memory");
    mapping->length = (size_t)facts.st_size;
    if (!mapping->length)
        return KILN_OK;
    mapping->bytes =
        mmap(NULL, mapping->length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
    if (mapping->bytes != MAP_FAILED)
        return KILN_OK;
    mapping->bytes = NULL;
    return kiln__fail(error, errno == ENOMEM ? KILN_OUT_OF_HOST_MEMORY : KILN_IO_ERROR, "%s",
                      strerror(errno));
}

kiln_status kiln__mapping_open(const char *path, struct kiln__mapping **result,
                               struct kiln__error *error)
{
    struct kiln__mapping *mapping = calloc(1, sizeof *mapping);
    *result = NULL;
    if (!mapping)
        return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "no memory");
    atomic_init(&mapping->references, 1);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe's end is not waited for */
    kiln_status status = fd < 0 ? kiln__fail(error, KILN_IO_ERROR, "%s", strerror(errno))
                                : mapping_map(fd, mapping, error);
    if (fd >= 0)
        close(fd);
    if (status)
        free(mapping);
    else
        *result = mapping;
    return status;
}

void kiln__mapping_retain(struct kiln__mapping *mapping)
{
    atomic_fetch_add(&mapping->references, 1);
}

void kiln__mapping_release(struct kiln__mapping *mapping)
{
    if (!mapping || atomic_fetch_sub(&mapping->references, 1) != 1)
        return;
    if (mapping->bytes)
        munmap(mapping->bytes, mapping->length);
    free(mapping);
}
