/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a file without trusting it, and writing one that is there whole or not at all. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

enum kiln__file_state {
    KILN__FILE_READ,    /* its bytes are here */
    KILN__FILE_MISSING, /* there is none */
    KILN__FILE_REFUSED, /* there is something, and it is not to be read: the file is to blame */
    KILN__FILE_TROUBLE  /* this process could not read it, which says nothing about the file */
};

/* A file that was read, or looked at. */
struct kiln__file {
    void *bytes; /* the caller's, free() */
    size_t length;
    const char *why; /* it was not read; static text */
    uint64_t device, inode;
};

/* Read a whole file of a folder into memory of the caller's. It has to be a regular file, no link,
 * of one name, of this user, and nobody else may write to it. `most` bounds its length.
 * `touch`: note that it was used, at most once a minute. */
enum kiln__file_state kiln__file_read(int folder, const char *name, uint64_t most, bool touch,
                                      struct kiln__file *file);

/* Whether the open file is the one that has this name, if anything has. */
bool kiln__file_has_name(int folder, const char *name, int fd);

/* Seconds since the file's date. A date well ahead of the clock tells no age, since one of the two
 * clocks was wrong: KILN__FILE_AHEAD, which is older than any age. */
#define KILN__FILE_AHEAD INT64_MAX
int64_t kiln__file_age(const struct timespec *date);

/* Date an open file now, by the clock that ages are told by; a file server may have another. */
void kiln__file_date(int fd);

/* A file being written under a temporary name. The temporary file is locked as long as its writer
 * lives, so that whoever sweeps the folder knows which ones nobody will finish. */
struct kiln__writer {
    int folder; /* AT_FDCWD: `name` is a path */
    int fd;
    int error; /* errno of the first failure; what follows one does nothing */
    const char *name;
    char *temporary;
};

#define KILN__FILE_TEMPORARY ".tmp"

/* Start, add, and at the end commit: fsync, close, rename. Commit answers false, and leaves nothing
 * behind, if anything failed on the way; `error` says what. A `name` outlives its writer. */
void kiln__writer_begin(struct kiln__writer *writer, int folder, const char *name, unsigned mode);
void kiln__writer_add(struct kiln__writer *writer, const void *bytes, size_t length);
bool kiln__writer_commit(struct kiln__writer *writer);

/* Whether a path may be written that way: a file is replaced as a whole, which would turn a device
 * such as /dev/stdout into a file. */
bool kiln__file_replaceable(const char *path);

/* Leave nothing behind instead of a commit. */
void kiln__writer_drop(struct kiln__writer *writer);
