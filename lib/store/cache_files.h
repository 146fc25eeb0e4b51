/* SPDX-License-Identifier: Apache-2.0 */
/* Which files of a folder are cache files: by the whole name, and by what is inside. A folder
 * may hold anything besides (a user's lock files, say), and that is never touched. */
#pragma once

#include <stdbool.h>

/* NAME is 32 hexadecimal digits, NUMBER is 16 of them. */
enum kiln__cache_file {
    KILN__CACHE_FILE_NONE,      /* somebody else's */
    KILN__CACHE_FILE_ENTRY,     /* NAME.bin */
    KILN__CACHE_FILE_LOCK,      /* NAME.lock */
    KILN__CACHE_FILE_TEMPORARY, /* NAME.bin-NUMBER.tmp: an entry that is being written */
    KILN__CACHE_FILE_TAG,       /* CACHEDIR.TAG: see store/tag.h */
    KILN__CACHE_FILE_TAG_TEMPORARY
};

enum kiln__cache_file kiln__cache_file_of(const char *name);

/* Whether an open file, not read yet, is what its name says: a regular file of this user, a lock
 * empty, an entry with an entry's start; of a temporary file as much of it as there is. False with
 * errno 0: it is not. False with another errno: it could not be looked at. */
bool kiln__cache_file_is_one(int fd, enum kiln__cache_file kind);
