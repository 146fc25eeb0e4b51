/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "util/hash.h"
#include "util/text.h"

/* ---- reading ---- */

/* A file that was replaced a moment ago has no name left, and is as good as it was. */
static const char *fault(const struct stat *facts, uint64_t most)
{
    if (!S_ISREG(facts->st_mode))
        return "it is no regular file";
    if (facts->st_uid != geteuid())
        return "it belongs to another user";
    if (facts->st_mode & (S_IWGRP | S_IWOTH))
        return "other users may write to it";
    if (facts->st_nlink > 1)
        return "it has several names";
    if (facts->st_size <= 0 || (uint64_t)facts->st_size > most)
        return "its length is not plausible";
    return NULL;
}

/* All bytes that fstat told of; fewer is an error, more does not matter here. */
static const char *read_all(int fd, char *bytes, size_t length)
{
    for (size_t done = 0; done < length;) {
        ssize_t got = read(fd, bytes + done, length - done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return strerror(errno);
        if (got == 0)
            return "it ends early";
        done += (size_t)got;
    }
    return NULL;
}

/* The time of last use is the time of last modification; nothing else modifies an entry. */
static void touch_file(int fd, const struct stat *facts)
{
    struct timespec now;
    if (!clock_gettime(CLOCK_REALTIME, &now) && now.tv_sec - facts->st_mtim.tv_sec >= 60)
        futimens(fd, NULL);
}

static const char *read_open(int fd, uint64_t most, bool touch, void **bytes, size_t *length)
{
    struct stat facts;
    if (fstat(fd, &facts))
        return strerror(errno);
    const char *wrong = fault(&facts, most);
    if (wrong)
        return wrong;
    *length = (size_t)facts.st_size;
    *bytes = malloc(*length);
    if (!*bytes)
        return "there is no memory for it";
    wrong = read_all(fd, *bytes, *length);
    if (wrong) {
        free(*bytes);
        *bytes = NULL;
    } else if (touch)
        touch_file(fd, &facts);
    return wrong;
}

enum kiln__file_state kiln__file_read(int folder, const char *name, uint64_t most, bool touch,
                                      void **bytes, size_t *length, const char **why)
{
    *bytes = NULL;
    /* NONBLOCK: a FIFO in its place must not make anyone wait. */
    int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (fd < 0) {
        *why = errno == ELOOP ? "it is a symbolic link" : strerror(errno);
        return errno == ENOENT ? KILN__FILE_MISSING : KILN__FILE_REFUSED;
    }
    *why = read_open(fd, most, touch, bytes, length);
    close(fd);
    return *why ? KILN__FILE_REFUSED : KILN__FILE_READ;
}

bool kiln__file_has_name(int folder, const char *name, int fd)
{
    struct stat open_file, named_file;
    return !fstat(fd, &open_file) && !fstatat(folder, name, &named_file, AT_SYMLINK_NOFOLLOW) &&
           open_file.st_dev == named_file.st_dev && open_file.st_ino == named_file.st_ino;
}

/* ---- writing ---- */

static uint64_t random_number(void)
{
    static atomic_uint_fast64_t calls;
    struct {
        uint64_t call;
        struct timespec now;
        pid_t pid;
        const void *stack;
    } seed;
    uint64_t number;
    if (getrandom(&number, sizeof number, GRND_NONBLOCK) == sizeof number)
        return number;
    memset(&seed, 0, sizeof seed);
    seed.call = atomic_fetch_add(&calls, 1);
    seed.pid = getpid();
    seed.stack = &number;
    clock_gettime(CLOCK_MONOTONIC, &seed.now);
    return kiln__hash64(&seed, sizeof seed);
}

static void fail(struct kiln__writer *writer, int error)
{
    if (!writer->error)
        writer->error = error ? error : EIO;
}

/* Lock the new file. False: somebody swept it between its creation and here. A file system without
 * locks is no reason to do without: there a sweep leaves young files alone. */
static bool claim(int fd)
{
    struct stat facts;
    if (flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
        return false;
    return !fstat(fd, &facts) && facts.st_nlink > 0;
}

/* Answers whether another name is worth a try. */
static bool open_temporary(struct kiln__writer *writer, unsigned mode)
{
    struct kiln__text name = {0};
    kiln__text_add(&name, "%s-%016llx" KILN__FILE_TEMPORARY, writer->name,
                   (unsigned long long)random_number());
    writer->temporary = kiln__text_take(&name);
    if (!writer->temporary)
        return fail(writer, ENOMEM), false;
    writer->fd = openat(writer->folder, writer->temporary,
                        O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (writer->fd >= 0 && claim(writer->fd))
        return false;
    bool again = writer->fd >= 0 || errno == EEXIST;
    if (!again)
        fail(writer, errno);
    if (writer->fd >= 0) {
        unlinkat(writer->folder, writer->temporary, 0);
        close(writer->fd);
        writer->fd = -1;
    }
    free(writer->temporary);
    writer->temporary = NULL;
    return again;
}

void kiln__writer_begin(struct kiln__writer *writer, int folder, const char *name, unsigned mode)
{
    *writer = (struct kiln__writer){.folder = folder, .fd = -1, .name = name};
    for (int tries = 0; open_temporary(writer, mode); tries++)
        if (tries == 8) {
            fail(writer, EEXIST);
            return;
        }
}

void kiln__writer_add(struct kiln__writer *writer, const void *bytes, size_t length)
{
    const char *from = bytes;
    while (length && !writer->error) {
        ssize_t put = write(writer->fd, from, length);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0) {
            fail(writer, put < 0 ? errno : ENOSPC);
            return;
        }
        from += put;
        length -= (size_t)put;
    }
}

/* Without a name the file is gone for others; a failed close cannot be tried again. */
static void finish(struct kiln__writer *writer)
{
    if (writer->temporary)
        unlinkat(writer->folder, writer->temporary, 0);
    if (writer->fd >= 0)
        close(writer->fd);
    free(writer->temporary);
    writer->fd = -1;
    writer->temporary = NULL;
}

/* Some file systems tell only at close what went wrong, so it comes before the rename. Another
 * descriptor of the same open file keeps the lock until after it. */
static int close_checked(struct kiln__writer *writer)
{
    int fd = writer->fd;
    writer->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    return close(fd);
}

bool kiln__writer_commit(struct kiln__writer *writer)
{
    if (!writer->error && fsync(writer->fd))
        fail(writer, errno);
    if (!writer->error && close_checked(writer))
        fail(writer, errno);
    if (!writer->error && renameat(writer->folder, writer->temporary, writer->folder, writer->name))
        fail(writer, errno);
    if (!writer->error) {
        free(writer->temporary);
        writer->temporary = NULL;
    }
    finish(writer);
    return !writer->error;
}
