/* SPDX-License-Identifier: Apache-2.0 */
/* Listing of a cache folder, eviction of the least recently used entries, removal of stale
 * temporary files. */
#include "store/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/cache_files.h"
#include "store/lock.h"

/* Where locks do not work, a temporary file this old has no writer any more. */
#define OLD_SECONDS 3600

DIR *kiln__folder_walk(int folder)
{
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *walk = fd < 0 ? NULL : fdopendir(fd);
    if (fd >= 0 && !walk)
        close(fd);
    return walk;
}

static int by_use(const void *a, const void *b)
{
    const struct kiln__item *x = a, *y = b;
    if (x->ahead != y->ahead)
        return x->ahead ? -1 : 1;
    if (x->used.tv_sec != y->used.tv_sec)
        return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
    if (x->used.tv_nsec != y->used.tv_nsec)
        return x->used.tv_nsec < y->used.tv_nsec ? -1 : 1;
    return strcmp(x->file, y->file);
}

static bool add_item(int folder, const char *name, struct kiln__items *items)
{
    struct stat facts;
    if (kiln__cache_file_of(name) != KILN__CACHE_FILE_ENTRY ||
        fstatat(folder, name, &facts, AT_SYMLINK_NOFOLLOW))
        return true; /* none of ours, or just removed by someone else */
    struct kiln__item *item = kiln__vector_push(&items->list);
    if (!item)
        return false;
    snprintf(item->file, sizeof item->file, "%.47s", name);
    item->bytes = (uint64_t)facts.st_size;
    item->used = facts.st_mtim;
    item->ahead = kiln__file_age(&facts.st_mtim) == KILN__FILE_AHEAD;
    items->bytes += item->bytes;
    return true;
}

bool kiln__folder_list(int folder, struct kiln__items *items)
{
    *items = (struct kiln__items){0};
    DIR *walk = kiln__folder_walk(folder);
    if (!walk)
        return false;
    bool good = true;
    struct dirent *found;
    errno = 0;
    while (good && (found = readdir(walk))) {
        good = add_item(folder, found->d_name, items);
        errno = good ? 0 : ENOMEM;
    }
    int error = errno;
    closedir(walk);
    errno = error;
    if (items->list.count)
        qsort(items->list.items, items->list.count, sizeof *items->list.items, by_use);
    return !error;
}

void kiln__folder_free(struct kiln__items *items)
{
    kiln__vector_free(&items->list);
}

bool kiln__folder_remove(int folder, const char *file)
{
    if (!unlinkat(folder, file, 0) || errno == ENOENT)
        return true;
    return !unlinkat(folder, file, AT_REMOVEDIR);
}

bool kiln__folder_remove_bad(int folder, const char *file, const struct kiln__file *bad)
{
    struct stat facts;
    if (fstatat(folder, file, &facts, AT_SYMLINK_NOFOLLOW))
        return errno == ENOENT;
    return facts.st_dev == bad->device && facts.st_ino == bad->inode &&
           kiln__folder_remove(folder, file);
}

/* Two that prune at once remove the same ones: an entry that is gone already counts as removed. */
uint64_t kiln__folder_prune(int folder, struct kiln__items *items, uint64_t limit)
{
    uint64_t removed = 0;
    for (size_t i = 0; i < items->list.count && items->bytes > limit; i++) {
        struct kiln__item *item = &items->list.items[i];
        if (!item->bytes || !kiln__folder_remove(folder, item->file))
            continue;
        items->bytes -= item->bytes;
        item->bytes = 0;
        removed++;
    }
    return removed;
}

/* A writer holds a lock on its file as long as it lives. The file is removed under that lock, so
 * that a writer that comes late to its own file notices. */
static bool is_abandoned(int fd)
{
    struct stat facts;
    return !flock(fd, LOCK_EX | LOCK_NB) || (errno != EWOULDBLOCK && !fstat(fd, &facts) &&
                                             kiln__file_age(&facts.st_mtim) > OLD_SECONDS);
}

static bool sweep_temporary(int folder, const char *name, enum kiln__cache_file kind)
{
    int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return false;
    bool swept = is_abandoned(fd) && kiln__cache_file_is_one(fd, kind) &&
                 kiln__file_has_name(folder, name, fd) && !unlinkat(folder, name, 0);
    close(fd);
    return swept;
}

static bool sweep_name(int folder, const char *name)
{
    enum kiln__cache_file kind = kiln__cache_file_of(name);
    switch (kind) {
    case KILN__CACHE_FILE_LOCK: return kiln__lock_sweep(folder, name);
    case KILN__CACHE_FILE_TEMPORARY:
    case KILN__CACHE_FILE_TAG_TEMPORARY: return sweep_temporary(folder, name, kind);
    default: return false;
    }
}

uint64_t kiln__folder_sweep(int folder)
{
    DIR *walk = kiln__folder_walk(folder);
    struct dirent *found;
    uint64_t swept = 0;
    while (walk && (found = readdir(walk)))
        swept += sweep_name(folder, found->d_name);
    if (walk)
        closedir(walk);
    return swept;
}
