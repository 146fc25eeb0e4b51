/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/place.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/tag.h"
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

/* Without a slash at the end, which would follow a link. */
static bool set_path(const char *folder, const char *below, char *path, size_t size)
{
    int length = snprintf(path, size, "%s%s", folder, below);
    if (length < 0 || (size_t)length >= size)
        return false;
    while (length > 1 && path[length - 1] == '/')
        path[--length] = 0;
    return true;
}

bool kiln__place_find(const char *wanted, char *path, size_t size)
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

/* Make the folders that lead to the last component, then that one. What exists stays as it is. */
static void make_folders(const char *path)
{
    char part[PATH_MAX];
    size_t length = strlen(path);
    if (length >= sizeof part)
        return;
    memcpy(part, path, length + 1);
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(part, 0700);
        *slash = '/';
    }
    mkdir(part, 0700);
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

int kiln__place_open(const char *path, bool create, const char **why)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int fd = open(path, flags);
    if (fd < 0 && errno == ENOENT && create) {
        make_folders(path);
        fd = open(path, flags);
    }
    if (fd < 0) {
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
