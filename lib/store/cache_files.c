/* SPDX-License-Identifier: Apache-2.0 */
/* Tests whether a file is one of the cache's own, by its name and its first bytes, before anything
 * removes it. */
#include "store/cache_files.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/entry.h"
#include "store/folder.h"
#include "store/lock.h"
#include "store/store_file.h"
#include "store/tag.h"

/* Skip as many hexadecimal digits as there have to be; NULL: there are others. */
static const char *skip_digits(const char *at, size_t count)
{
    return strspn(at, "0123456789abcdef") == count ? at + count : NULL;
}

/* "-", a number and the suffix that kiln__writer_begin() appends. */
static bool is_temporary_end(const char *at)
{
    const char *end = *at == '-' ? skip_digits(at + 1, 16) : NULL;
    return end && !strcmp(end, KILN__FILE_TEMPORARY);
}

enum kiln__cache_file kiln__cache_file_of(const char *name)
{
    const size_t suffix = strlen(KILN__ENTRY_SUFFIX), tag = strlen(KILN__TAG_FILE);
    if (!strncmp(name, KILN__TAG_FILE, tag)) {
        if (!name[tag])
            return KILN__CACHE_FILE_TAG;
        return is_temporary_end(name + tag) ? KILN__CACHE_FILE_TAG_TEMPORARY
                                            : KILN__CACHE_FILE_NONE;
    }
    const char *end = skip_digits(name, 32);
    if (!end)
        return KILN__CACHE_FILE_NONE;
    if (!strcmp(end, KILN__LOCK_SUFFIX))
        return KILN__CACHE_FILE_LOCK;
    if (strncmp(end, KILN__ENTRY_SUFFIX, suffix))
        return KILN__CACHE_FILE_NONE;
    if (!end[suffix])
        return KILN__CACHE_FILE_ENTRY;
    return is_temporary_end(end + suffix) ? KILN__CACHE_FILE_TEMPORARY : KILN__CACHE_FILE_NONE;
}

/* After a power cut a file may have its length and not its bytes. */
static bool is_zero(const char *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (bytes[i])
            return false;
    return true;
}

static bool starts_well(enum kiln__cache_file kind, const char *start, size_t length)
{
    const size_t known = strlen(KILN__TAG_TEXT);
    switch (kind) {
    case KILN__CACHE_FILE_ENTRY:
        return length >= KILN__ENTRY_MAGIC_BYTES && kiln__entry_has_magic(start, length);
    case KILN__CACHE_FILE_TEMPORARY:
        return kiln__entry_has_magic(start, length) || is_zero(start, length);
    case KILN__CACHE_FILE_TAG: return length >= known && !memcmp(start, KILN__TAG_TEXT, known);
    case KILN__CACHE_FILE_TAG_TEMPORARY:
        return length <= known &&
               (!memcmp(start, KILN__TAG_TEXT, length) || is_zero(start, length));
    default: return false;
    }
}

bool kiln__cache_file_is_one(int fd, enum kiln__cache_file kind)
{
    char start[sizeof KILN__TAG_TEXT + 1]; /* a longer one is noticed */
    struct stat facts;
    if (fstat(fd, &facts))
        return false;
    errno = 0;
    if (!S_ISREG(facts.st_mode) || facts.st_uid != geteuid())
        return false;
    if (kind == KILN__CACHE_FILE_LOCK)
        return facts.st_size == 0;
    ssize_t length = read(fd, start, sizeof start);
    if (length < 0)
        return false;
    errno = 0;
    return starts_well(kind, start, (size_t)length);
}
