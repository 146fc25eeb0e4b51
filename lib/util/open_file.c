/* SPDX-License-Identifier: Apache-2.0 */
/* Opens files to read or to append to, without blocking on a named pipe. */
#include "util/open_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* From here on reading and writing wait as usual. */
static bool let_wait(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) >= 0;
}

/* Reading of a pipe that has no writer is at its end at once; of one that has, the first byte may
 * be there. */
static bool has_writer(int fd, int *first)
{
    struct stat facts;
    unsigned char byte;
    if (fstat(fd, &facts) || !S_ISFIFO(facts.st_mode))
        return true;
    ssize_t got = read(fd, &byte, 1);
    if (got == 1)
        *first = byte;
    return got != 0;
}

FILE *kiln__open_to_read(const char *path, const char **why)
{
    int first = EOF, fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool written = fd >= 0 && has_writer(fd, &first);
    FILE *stream = written && let_wait(fd) ? fdopen(fd, "rb") : NULL;
    if (stream && first != EOF)
        ungetc(first, stream);
    if (stream)
        return stream;
    *why = fd >= 0 && !written ? "nobody writes to this pipe" : strerror(errno);
    if (fd >= 0)
        close(fd);
    return NULL;
}

int kiln__open_to_append(const char *path, unsigned mode)
{
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, mode);
    if (fd >= 0 && !let_wait(fd)) {
        int why = errno;
        close(fd);
        errno = why;
        fd = -1;
    }
    return fd;
}

int kiln__file_above_standard(int file)
{
    int moved = file < 0 ? -1 : fcntl(file, F_DUPFD_CLOEXEC, 3);
    int why = errno;
    if (file >= 0)
        close(file);
    errno = why;
    return moved;
}
