/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a cache folder: listing them, bounding their bytes, sweeping what is left over. */
#pragma once

#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "store/store_file.h"
#include "util/vector.h"

#define KILN__ENTRY_SUFFIX ".bin"

/* Walk over the names in a folder, at a position of its own, so that several threads may at once.
 * closedir() ends it. NULL with errno. */
DIR *kiln__folder_walk(int folder);

/* An entry's file, looked at from outside only. */
struct kiln__item {
    char file[48];
    uint64_t bytes;
    struct timespec used;
    bool ahead; /* of the clock: nobody knows when it was used */
};

struct kiln__items {
    KILN__VECTOR(struct kiln__item) list;
    uint64_t bytes;
};

/* All entries, those dated ahead of the clock first, which would never go else; then the least
 * recently used. False with errno: the folder cannot be read, or there is
 * no memory. `items` is to be freed in any case. */
bool kiln__folder_list(int folder, struct kiln__items *items);
void kiln__folder_free(struct kiln__items *items);

/* Remove the first of the items until at most `limit` bytes remain. Returns how many. */
uint64_t kiln__folder_prune(int folder, struct kiln__items *items, uint64_t limit);

/* Remove the cache's own temporary files and locks whose owners are gone; what is not inside as it
 * should be stays. Returns how many. */
uint64_t kiln__folder_sweep(int folder);

/* Remove whatever has this name; a folder only if it is empty. True: the name is free. */
bool kiln__folder_remove(int folder, const char *file);

/* Remove what was found to be bad, and not what another process has put in its place since. True:
 * the bad one is gone. */
bool kiln__folder_remove_bad(int folder, const char *file, const struct kiln__file *bad);
