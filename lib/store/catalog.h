/* SPDX-License-Identifier: Apache-2.0 */
/* The cache as people look after it: what is in it, less of it, all of it in one file. These are
 * the functions of <kiln/cache.h> behind their argument checks. */
#pragma once

#include <limits.h>
#include <stdbool.h>

#include <kiln/cache.h>

#include "store/entry.h"
#include "store/folder.h"
#include "store/store_file.h"

/* An open cache folder. */
struct kiln__catalog {
    int folder; /* -1: it does not exist */
    char path[PATH_MAX];
};

/* Open the folder (NULL: the default place); make it if `create`. A missing one is no error.
 * Errors: IO_ERROR with a sentence: there is no place, or it cannot be trusted or opened. */
kiln_status kiln__catalog_open(const char *folder, bool create, struct kiln__catalog *catalog);
void kiln__catalog_close(struct kiln__catalog *catalog);

/* Read and check one entry. REFUSED: it is of no use; TROUBLE: nobody knows; `file->why` says why.
 * The file's bytes are the caller's in any case; the entry points into them. */
enum kiln__file_state kiln__catalog_read(const struct kiln__catalog *catalog,
                                         const struct kiln__item *item, struct kiln__file *file,
                                         struct kiln__entry *entry);

kiln_status kiln__catalog_list(const char *folder, kiln_cache_visitor visitor, void *user);
kiln_status kiln__catalog_stats(const char *folder, kiln_cache_stats *stats);
kiln_status kiln__catalog_prune(const char *folder, uint64_t limit, uint64_t *removed);

/* In bundle.c. `used` (may be NULL): a file of $KILN_CACHE_USED; only what it names. An import
 * keeps the cache below `limit`: least recently used entries go for it, and of a larger bundle what
 * comes last is left out. bundle = magic[8] format[4] zero[4], (length[8] entry)*, zero[8]
 * (little-endian) */
kiln_status kiln__catalog_export(const char *folder, const char *file, const char *used,
                                 uint64_t *count);
kiln_status kiln__catalog_import(const char *folder, const char *file, uint64_t limit,
                                 uint64_t *count);
