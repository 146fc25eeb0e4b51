/* SPDX-License-Identifier: Apache-2.0 */
/* The invariant: only the holder of a file's lock removes the file, and whoever gains a lock checks
 * that the file still has its name. So two that hold "the same" lock cannot be. */
#include "store/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/cache_files.h"
#include "store/store_file.h"

/* A lock held for longer belongs to someone who compiled and then forgot to run. */
#define LONGEST_SECONDS 30

static enum kiln__lock_state gain(int fd)
{
    if (!flock(fd, LOCK_EX | LOCK_NB))
        return KILN__LOCK_TAKEN;
    return errno == EWOULDBLOCK || errno == EINTR ? KILN__LOCK_BUSY : KILN__LOCK_IMPOSSIBLE;
}

static bool held_too_long(int fd)
{
    struct stat facts;
    return !fstat(fd, &facts) && kiln__file_age(&facts.st_mtim) > LONGEST_SECONDS;
}

static enum kiln__lock_state try_file(int folder, const char *name, int fd)
{
    if (!kiln__cache_file_is_one(fd, KILN__CACHE_FILE_LOCK))
        return KILN__LOCK_IMPOSSIBLE; /* a file of somebody else's: releasing would remove it */
    enum kiln__lock_state state = gain(fd);
    if (state == KILN__LOCK_BUSY && held_too_long(fd))
        return KILN__LOCK_IMPOSSIBLE;
    if (state != KILN__LOCK_TAKEN)
        return state;
    if (!kiln__file_has_name(folder, name, fd))
        return KILN__LOCK_BUSY; /* its holder has just gone: the next try makes a new file */
    kiln__file_date(fd);
    return KILN__LOCK_TAKEN;
}

enum kiln__lock_state kiln__lock_try(int folder, const char *name, struct kiln__lock *lock)
{
    *lock = (struct kiln__lock){.folder = folder, .fd = -1};
    snprintf(lock->name, sizeof lock->name, "%s" KILN__LOCK_SUFFIX, name);
    int fd = openat(folder, lock->name,
                    O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY, 0600);
    if (fd < 0)
        return KILN__LOCK_IMPOSSIBLE;
    enum kiln__lock_state state = try_file(folder, lock->name, fd);
    if (state == KILN__LOCK_TAKEN)
        lock->fd = fd;
    else
        close(fd);
    return state;
}

/* Unlocked by hand: a child that was forked meanwhile holds the same open file. */
void kiln__lock_release(struct kiln__lock *lock)
{
    if (lock->fd < 0)
        return;
    unlinkat(lock->folder, lock->name, 0);
    flock(lock->fd, LOCK_UN);
    close(lock->fd);
    lock->fd = -1;
}

bool kiln__lock_sweep(int folder, const char *file)
{
    int fd = openat(folder, file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return false;
    bool swept = kiln__cache_file_is_one(fd, KILN__CACHE_FILE_LOCK) &&
                 gain(fd) == KILN__LOCK_TAKEN && kiln__file_has_name(folder, file, fd) &&
                 !unlinkat(folder, file, 0);
    close(fd);
    return swept;
}
