/* SPDX-License-Identifier: Apache-2.0 */
/* Interposed system calls and allocation, of which the n-th fails or ends the process. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "faulty_io.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct faulty_plan plan;
static int calls, hits;
static bool armed;
static bool dirty; /* something was written and not synced; one file is written at a time */
static int unsynced;

void faulty_arm(const struct faulty_plan *next)
{
    armed = next != NULL;
    if (next) {
        plan = *next;
        calls = hits = 0;
    }
}

int faulty_calls(void)
{
    return calls;
}

int faulty_hits(void)
{
    return hits;
}

int faulty_unsynced(void)
{
    return unsynced;
}

static void die(void)
{
    syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
}

/* Whether this call is the one. */
static bool strikes(void)
{
    if (!armed)
        return false;
    calls++;
    if (!plan.call || (plan.for_good ? calls < plan.call : calls != plan.call))
        return false;
    hits++;
    if (plan.kind == FAULTY_KILL_BEFORE)
        die();
    return true;
}

/* Failing calls answer `failed`; `made` is the system's own. */
#define FAULTY(failed, made)                                                                       \
    do {                                                                                           \
        bool struck = strikes();                                                                   \
        if (struck && plan.kind == FAULTY_ERROR) {                                                 \
            errno = plan.error;                                                                    \
            return failed;                                                                         \
        }                                                                                          \
        long answer = (made);                                                                      \
        if (struck && plan.kind == FAULTY_KILL_AFTER)                                              \
            die();                                                                                 \
        return (__typeof__(failed))answer;                                                         \
    } while (0)

static bool halves(void)
{
    return armed && plan.kind == FAULTY_SHORT && plan.call &&
           (plan.for_good ? calls + 1 >= plan.call : calls + 1 == plan.call);
}

int open(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    FAULTY(-1, syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

int openat(int folder, const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    FAULTY(-1, syscall(SYS_openat, folder, path, flags, mode));
}

ssize_t read(int fd, void *bytes, size_t length)
{
    if (halves() && length > 1)
        length /= 2;
    FAULTY((ssize_t)-1, syscall(SYS_read, fd, bytes, length));
}

ssize_t write(int fd, const void *bytes, size_t length)
{
    if (halves() && length > 1)
        length /= 2;
    dirty = true;
    FAULTY((ssize_t)-1, syscall(SYS_write, fd, bytes, length));
}

int fsync(int fd)
{
    dirty = false;
    FAULTY(-1, syscall(SYS_fsync, fd));
}

/* The descriptor is gone in any case. */
int close(int fd)
{
    bool struck = strikes();
    long answer = syscall(SYS_close, fd);
    if (struck && plan.kind == FAULTY_KILL_AFTER)
        die();
    if (struck && plan.kind == FAULTY_ERROR) {
        errno = plan.error;
        return -1;
    }
    return (int)answer;
}

int renameat(int from_folder, const char *from, int to_folder, const char *to)
{
    unsynced += dirty;
    FAULTY(-1, syscall(SYS_renameat2, from_folder, from, to_folder, to, 0));
}

int unlinkat(int folder, const char *path, int flags)
{
    FAULTY(-1, syscall(SYS_unlinkat, folder, path, flags));
}

int mkdirat(int folder, const char *path, mode_t mode)
{
    FAULTY(-1, syscall(SYS_mkdirat, folder, path, mode));
}

int flock(int fd, int operation)
{
    FAULTY(-1, syscall(SYS_flock, fd, operation));
}

int futimens(int fd, const struct timespec times[2])
{
    FAULTY(-1, syscall(SYS_utimensat, fd, NULL, times, 0));
}

/* Of kiln's own code, by the linker's --wrap=malloc. */
void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);

void *__wrap_malloc(size_t size)
{
    if (strikes() && plan.kind == FAULTY_ERROR) {
        errno = ENOMEM;
        return NULL;
    }
    return __real_malloc(size);
}

ssize_t getrandom(void *bytes, size_t length, unsigned flags)
{
    FAULTY((ssize_t)-1, syscall(SYS_getrandom, bytes, length, flags));
}

#ifdef SYS_newfstatat
int fstat(int fd, struct stat *facts)
{
    FAULTY(-1, syscall(SYS_newfstatat, fd, "", facts, AT_EMPTY_PATH));
}

int fstatat(int folder, const char *path, struct stat *facts, int flags)
{
    FAULTY(-1, syscall(SYS_newfstatat, folder, path, facts, flags));
}
#endif
