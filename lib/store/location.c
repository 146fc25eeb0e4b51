/* SPDX-License-Identifier: Apache-2.0 */
/* Search for the cache folder (KILN_CACHE_DIR, XDG_CACHE_HOME, HOME), and checks of its owner and
 * mode. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* O_PATH */
#endif
#include "store/location.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/tag.h"
#include "util/environment.h"

/* In the order in which they count. */
static const struct place {
    const char *variable, *below;
    bool absolute; /* a relative one does not count (XDG base directory specification) */
} places[] = {
    {"KILN_CACHE_DIR", "", false},
    {"XDG_CACHE_HOME", "/kiln", true},
    {"HOME", "/.cache/kiln", true},
};

/* Whether a path ends in a slash or a dot behind one: both would follow a link. */
static bool goes_on(const char *path, int length)
{
    return length > 1 &&
           (path[length - 1] == '/' || (path[length - 1] == '.' && path[length - 2] == '/'));
}

static bool set_path(const char *folder, const char *below, char *path, size_t size)
{
    int length = snprintf(path, size, "%s%s", folder, below);
    if (length < 0 || (size_t)length >= size)
        return false;
    while (goes_on(path, length))
        path[--length] = 0;
    return true;
}

bool kiln__location_find(const char *wanted, char *path, size_t size)
{
    if (wanted && *wanted)
        return set_path(wanted, "", path, size);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const char *value = kiln__environment(places[i].variable);
        if (value && (*value == '/' || !places[i].absolute))
            return set_path(value, places[i].below, path, size);
    }
    return false;
}

/* A folder below another, made if it is missing; but not in one of another user (root's is fine,
 * such as /tmp): what root made in somebody's home, he could not use any more. */
static int make_below(int above, const char *name, const char **why)
{
    struct stat facts;
    int fd = openat(above, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 || errno != ENOENT)
        return fd;
    if (fstat(above, &facts))
        return -1;
    if (facts.st_uid != geteuid() && facts.st_uid != 0) {
        *why = "it is missing, and the folder that it would be in belongs to another user";
        errno = EACCES;
        return -1;
    }
    if (mkdirat(above, name, 0700) && errno != EEXIST)
        return -1;
    return openat(above, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* Make what is missing of a path. False with errno, and perhaps with the reason. */
static bool make_folders(const char *path, const char **why)
{
    char parts[PATH_MAX], *place = NULL;
    snprintf(parts, sizeof parts, "%s", path);
    int at = open(*path == '/' ? "/" : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (char *part = strtok_r(parts, "/", &place); at >= 0 && part;
         part = strtok_r(NULL, "/", &place)) {
        int next = make_below(at, part, why), error = errno;
        close(at);
        errno = error;
        at = next;
    }
    if (at >= 0)
        close(at);
    return at >= 0;
}

static const char *folder_fault(int fd)
{
    struct stat facts;
    if (fstat(fd, &facts))
        return strerror(errno);
    if (facts.st_uid != geteuid())
        return "it belongs to another user";
    if (facts.st_mode & (S_IWGRP | S_IWOTH))
        return "other users may write to it";
    return NULL;
}

int kiln__location_open(const char *path, bool create, const char **why)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int fd = open(path, flags);
    *why = NULL;
    if (fd < 0 && errno == ENOENT && create && make_folders(path, why))
        fd = open(path, flags);
    if (fd < 0) {
        if (!*why)
            *why = errno == ENOTDIR || errno == ELOOP ? "it is not a folder" : strerror(errno);
        return -1;
    }
    *why = folder_fault(fd);
    if (!*why)
        *why = kiln__tag_check(fd, create);
    if (!*why)
        return fd;
    close(fd);
    errno = EACCES;
    return -1;
}
