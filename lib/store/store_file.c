/* SPDX-License-Identifier: Apache-2.0 */
/* Checked reading of a file (owner, mode, length), and atomic writing: temporary file, fsync,
 * rename. */
#include "store/store_file.h"

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

/* How far the clocks of two machines that share a folder may be apart. */
#define AHEAD_SECONDS 300

/* A use is noted if the last one is so long ago. */
#define TOUCH_SECONDS 60

/* ---- reading ---- */

/* A file that was replaced a moment ago has no name left, and is as good as it was. */
static const char *store_file_fault(const struct stat *facts, uint64_t most)
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

static enum kiln__file_state store_file_blame(enum kiln__file_state state, const char *why,
                                              struct kiln__file *file)
{
    file->why = why;
    return state;
}

/* All bytes that fstat told of; fewer is an error, more does not matter here. */
static enum kiln__file_state read_all(int fd, struct kiln__file *file)
{
    char *bytes = file->bytes;
    for (size_t done = 0; done < file->length;) {
        ssize_t got = read(fd, bytes + done, file->length - done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return store_file_blame(KILN__FILE_TROUBLE, strerror(errno), file);
        if (got == 0)
            return store_file_blame(KILN__FILE_REFUSED, "it ends early", file);
        done += (size_t)got;
    }
    return KILN__FILE_READ;
}

static enum kiln__file_state read_open(int fd, uint64_t most, bool touch, struct kiln__file *file)
{
    struct stat facts;
    if (fstat(fd, &facts))
        return store_file_blame(KILN__FILE_TROUBLE, strerror(errno), file);
    file->device = facts.st_dev;
    file->inode = facts.st_ino;
    const char *wrong = store_file_fault(&facts, most);
    if (wrong)
        return store_file_blame(KILN__FILE_REFUSED, wrong, file);
    file->length = (size_t)facts.st_size;
    file->bytes = malloc(file->length);
    if (!file->bytes)
        return store_file_blame(KILN__FILE_TROUBLE, "there is no memory for it", file);
    enum kiln__file_state state = read_all(fd, file);
    if (state != KILN__FILE_READ) {
        free(file->bytes);
        file->bytes = NULL;
    } else if (touch && kiln__file_age(&facts.st_mtim) >= TOUCH_SECONDS)
        kiln__file_date(fd); /* the time of last use; nothing else modifies an entry */
    return state;
}

/* Why a file cannot be opened. Its mode is its own fault; that descriptors or memory have run out,
 * that the disk fails or a sandbox forbids it, is not. */
static enum kiln__file_state not_opened(int folder, const char *name, int error,
                                        struct kiln__file *file)
{
    struct stat facts;
    if (error == ENOENT)
        return store_file_blame(KILN__FILE_MISSING, "there is none", file);
    if (fstatat(folder, name, &facts, AT_SYMLINK_NOFOLLOW))
        return store_file_blame(KILN__FILE_TROUBLE, strerror(error), file);
    file->device = facts.st_dev;
    file->inode = facts.st_ino;
    if (S_ISLNK(facts.st_mode))
        return store_file_blame(KILN__FILE_REFUSED, "it is a symbolic link", file);
    if (!S_ISREG(facts.st_mode))
        return store_file_blame(KILN__FILE_REFUSED, "it is no regular file", file);
    bool locked_up = error == EACCES && !(facts.st_mode & S_IRUSR);
    return store_file_blame(locked_up ? KILN__FILE_REFUSED : KILN__FILE_TROUBLE, strerror(error),
                            file);
}

enum kiln__file_state kiln__file_read(int folder, const char *name, uint64_t most, bool touch,
                                      struct kiln__file *file)
{
    *file = (struct kiln__file){0};
    /* NONBLOCK: a FIFO in its place must not make anyone wait. */
    int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return not_opened(folder, name, errno, file);
    enum kiln__file_state state = read_open(fd, most, touch, file);
    close(fd);
    return state;
}

/* ---- dates ---- */

int64_t kiln__file_age(const struct timespec *date)
{
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now))
        return 0;
    int64_t age = (int64_t)now.tv_sec - (int64_t)date->tv_sec;
    if (age < -AHEAD_SECONDS)
        return KILN__FILE_AHEAD;
    return age > 0 ? age : 0;
}

void kiln__file_date(int fd)
{
    struct timespec dates[2];
    if (clock_gettime(CLOCK_REALTIME, &dates[0]))
        return;
    dates[1] = dates[0];
    futimens(fd, dates);
}

bool kiln__file_has_name(int folder, const char *name, int fd)
{
    struct stat open_file, named_file;
    return !fstat(fd, &open_file) && !fstatat(folder, name, &named_file, AT_SYMLINK_NOFOLLOW) &&
           open_file.st_dev == named_file.st_dev && open_file.st_ino == named_file.st_ino;
}

/* ---- writing ---- */

bool kiln__file_replaceable(const char *path)
{
    struct stat facts;
    return lstat(path, &facts) || S_ISREG(facts.st_mode);
}

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

static void store_file_fail(struct kiln__writer *writer, int error)
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
        return store_file_fail(writer, ENOMEM), false;
    writer->fd = openat(writer->folder, writer->temporary,
                        O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (writer->fd >= 0 && claim(writer->fd))
        return false;
    bool again = writer->fd >= 0 || errno == EEXIST;
    if (!again)
        store_file_fail(writer, errno);
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
            store_file_fail(writer, EEXIST);
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
            store_file_fail(writer, put < 0 ? errno : ENOSPC);
            return;
        }
        from += put;
        length -= (size_t)put;
    }
}

/* Without a name the file is gone for others; a failed close cannot be tried again. */
void kiln__writer_drop(struct kiln__writer *writer)
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
    if (!writer->error)
        kiln__file_date(writer->fd);
    if (!writer->error && fsync(writer->fd))
        store_file_fail(writer, errno);
    if (!writer->error && close_checked(writer))
        store_file_fail(writer, errno);
    if (!writer->error && renameat(writer->folder, writer->temporary, writer->folder, writer->name))
        store_file_fail(writer, errno);
    if (!writer->error) {
        free(writer->temporary);
        writer->temporary = NULL;
    }
    kiln__writer_drop(writer);
    return !writer->error;
}
