/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  The disk part of the kernel cache, as `kiln cache` uses it. No device is needed.
 *
 *  A folder that holds other things and is not tagged as a kernel cache (CACHEDIR.TAG) is none:
 *  that is an IO_ERROR of all functions here, and nothing in it is touched. */
#ifndef KILN_CACHE_H
#define KILN_CACHE_H

#include <kiln/status.h>
#include <kiln/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** One entry of the cache. */
typedef struct kiln_cache_entry {
    size_t size;      /**< of the structure, as the library has it */
    char name[40];    /**< file name without its suffix */
    char device[128]; /**< device it was compiled for */
    char driver[128]; /**< driver it was compiled by */
    char kernel[128]; /**< name of its kernel */
    uint64_t bytes;   /**< size of the file */
    int64_t used;     /**< last use, seconds since 1970 */
    int valid;        /**< zero: damaged, foreign, of another format, or not to be read now */
} kiln_cache_entry;

/** The whole cache in numbers. */
typedef struct kiln_cache_stats {
    char folder[4096]; /**< where it is; empty: memory only */
    uint64_t entries;  /**< entries in it */
    uint64_t bytes;    /**< their bytes */
    uint64_t invalid;  /**< of these, those that are not valid */
} kiln_cache_stats;

/** Called for each entry; a nonzero answer ends the walk. The entry is valid during the call. */
typedef int (*kiln_cache_visitor)(const kiln_cache_entry *entry, void *user);

/** Walk over the entries of `folder` (NULL: the default place), least recently used first;
 *  before them those dated ahead of the clock.
 *  Threads: any. Errors: IO_ERROR if there is no such folder, OUT_OF_HOST_MEMORY. */
KILN_API KILN_MUST_CHECK kiln_status kiln_cache_list(const char *folder, kiln_cache_visitor visitor,
                                                     void *user);

/** Count the entries of `folder` (NULL: the default place). A missing one counts as empty.
 *  Owner: the caller's structure is filled. Threads: any. Errors: IO_ERROR. */
KILN_API KILN_MUST_CHECK kiln_status kiln_cache_get_stats(const char *folder,
                                                          kiln_cache_stats *stats, size_t size);
#define kiln_cache_get_stats(...) kiln_cache_get_stats(__VA_ARGS__, sizeof(kiln_cache_stats))

/** Remove invalid entries, stale temporary files and locks, and least recently used entries until
 *  at most `limit` bytes remain. `removed` (may be NULL) receives the number of removed files.
 *  Nothing that is not the cache's own is touched.
 *  Threads: any, and any process. Errors: IO_ERROR. */
KILN_API KILN_MUST_CHECK kiln_status kiln_cache_prune(const char *folder, uint64_t limit,
                                                      uint64_t *removed);

/** Write all valid entries into one file, to ship them with a program. `count` may be NULL.
 *  Threads: any. Errors: IO_ERROR, also if an entry cannot be read for now. */
KILN_API KILN_MUST_CHECK kiln_status kiln_cache_export(const char *folder, const char *file,
                                                       uint64_t *count);

/** Write only the entries that programs have used: those that `used` names, a file that $KILN_CACHE_USED
 *  named while they ran. (`kiln cache export FILE PROGRAM` does all of that.) `count` may be NULL.
 *  Threads: any. Errors: INVALID_ARGUMENT (NULL), OUT_OF_HOST_MEMORY, IO_ERROR. */
KILN_API KILN_MUST_CHECK kiln_status kiln_cache_export_used(const char *folder, const char *file,
                                                            const char *used, uint64_t *count);

/** Add the entries of such a file; each is checked like any entry. `count` may be NULL. The cache
 *  stays below its usual limit of 256 MiB: least recently used entries are removed for those added,
 *  and what does not fit then is left out (TOO_LARGE).
 *  Import only files that you trust as much as a program: entries are machine code.
 *  Threads: any. Errors: IO_ERROR, INVALID_ARGUMENT if the file is none of kiln's. */
KILN_API KILN_MUST_CHECK kiln_status kiln_cache_import(const char *folder, const char *file,
                                                       uint64_t *count);

#ifdef __cplusplus
}
#endif

#endif
