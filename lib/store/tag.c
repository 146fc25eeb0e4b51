/* SPDX-License-Identifier: Apache-2.0 */
/* Reading and writing of CACHEDIR.TAG; a folder without it, and with foreign files, is never used
 * as a cache. */
#include "store/tag.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/cache_files.h"
#include "store/folder.h"
#include "store/store_file.h"

static const char other_tag[] = "its " KILN__TAG_FILE " is that of another program";
static const char other_files[] =
    "it holds files that are no cache's, and no " KILN__TAG_FILE " of kiln's";

/* Whether the file is what its name says; one that is gone meanwhile is. False: see
 * kiln__cache_file_is_one(). */
static bool look_inside(int folder, const char *name, enum kiln__cache_file kind)
{
    int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (fd < 0) {
        int error = errno;
        errno = error == ELOOP || error == ENXIO ? 0 : error; /* a link, a socket: not ours */
        return error == ENOENT;
    }
    bool good = kiln__cache_file_is_one(fd, kind);
    int error = errno;
    close(fd);
    errno = error;
    return good;
}

/* NULL: nothing in the folder is anyone else's. Names are not enough: others call files by
 * hexadecimal digits, too. */
static const char *find_foreign(int folder)
{
    const char *why = NULL;
    struct dirent *found;
    DIR *walk = kiln__folder_walk(folder);
    if (!walk)
        return strerror(errno);
    while (!why && (errno = 0, found = readdir(walk))) {
        enum kiln__cache_file kind = kiln__cache_file_of(found->d_name);
        if (!strcmp(found->d_name, ".") || !strcmp(found->d_name, ".."))
            continue;
        errno = 0;
        if (kind == KILN__CACHE_FILE_NONE || !look_inside(folder, found->d_name, kind))
            why = errno ? strerror(errno) : other_files;
    }
    if (!why && errno)
        why = strerror(errno);
    closedir(walk);
    return why;
}

/* Several may do so at once: each puts the same text in its place, whole. Where it cannot be
 * written, the folder is looked through again the next time. */
static void write_tag(int folder)
{
    struct kiln__writer writer;
    kiln__writer_begin(&writer, folder, KILN__TAG_FILE, 0600);
    kiln__writer_add(&writer, KILN__TAG_TEXT, strlen(KILN__TAG_TEXT));
    kiln__writer_commit(&writer);
}

const char *kiln__tag_check(int folder, bool write)
{
    struct stat facts;
    if (fstatat(folder, KILN__TAG_FILE, &facts, AT_SYMLINK_NOFOLLOW)) {
        const char *why = errno == ENOENT ? find_foreign(folder) : strerror(errno);
        if (!why && write)
            write_tag(folder);
        return why;
    }
    errno = 0;
    if (look_inside(folder, KILN__TAG_FILE, KILN__CACHE_FILE_TAG))
        return NULL;
    return errno ? strerror(errno) : other_tag;
}
