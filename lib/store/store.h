/* SPDX-License-Identifier: Apache-2.0 */
/* The disk part of the cache, as programs use it: entries by key, one compilation among processes.
 *
 * Whatever is wrong is a miss, the trouble counted, and nobody fails. An entry that is at fault is
 * removed; one that this process could not read or use, for want of memory say, stays for others.
 * All functions may be called from any thread. */
#pragma once

#include <stdint.h>

#include <kiln/context.h>

#include "store/entry.h"
#include "store/key.h"
#include "store/lock.h"
#include "store/store_file.h"

#define KILN__STORE_LIMIT ((uint64_t)256 << 20)    /* bytes in all, unless told otherwise */
#define KILN__STORE_LONGEST ((uint64_t)1024 << 20) /* bytes of one entry */

struct kiln__disk_store;

struct kiln__store_options {
    const char *folder; /* NULL: the default place */
    uint64_t limit;     /* most bytes on disk; 0: KILN__STORE_LIMIT */
    kiln_cache_mode mode;
};

/* An entry in memory. */
struct kiln__loaded {
    struct kiln__file file;
    struct kiln__entry entry; /* points into its bytes */
};

enum kiln__store_answer {
    KILN__STORE_FOUND,
    KILN__STORE_LOCKED,  /* a miss that is the caller's to fill: it puts, then releases the lock */
    KILN__STORE_UNLOCKED /* a miss that nobody is kept from filling */
};

/* NULL: out of memory. A folder that cannot be used makes a store that has and takes nothing. */
struct kiln__disk_store *kiln__store_open(const struct kiln__store_options *options);
void kiln__store_close(struct kiln__disk_store *store);

/* Whether there is a folder, and whether entries can be put there. */
bool kiln__store_reads(const struct kiln__disk_store *store);
bool kiln__store_writes(const struct kiln__disk_store *store);

/* The entry of a key: checked, of this very key. Owner: the caller, kiln__store_unload(). */
bool kiln__store_get(struct kiln__disk_store *store, const struct kiln__key *key,
                     struct kiln__loaded *loaded);
void kiln__store_unload(struct kiln__loaded *loaded);

/* The same; on a miss take the key's lock, and while another process has it wait for its entry, up
 * to `wait_ms` in all. */
enum kiln__store_answer kiln__store_get_or_lock(struct kiln__disk_store *store,
                                                const struct kiln__key *key, unsigned wait_ms,
                                                struct kiln__loaded *loaded,
                                                struct kiln__lock *lock);

/* Add or replace an entry; prune where that goes over the limit. False: counted as a failure. */
bool kiln__store_put(struct kiln__disk_store *store, const struct kiln__entry *entry);

/* What was loaded could not be used: say why, and count it as a failure. Remove the entry if it is
 * at fault. */
void kiln__store_reject(struct kiln__disk_store *store, const struct kiln__key *key,
                        const struct kiln__loaded *loaded, bool at_fault, const char *why);

/* Count a failure that happened outside. */
void kiln__store_failed(struct kiln__disk_store *store);

uint64_t kiln__store_puts(const struct kiln__disk_store *store);
uint64_t kiln__store_failures(const struct kiln__disk_store *store);

/* What $KILN_CACHE makes of KILN_CACHE_DEFAULT; other modes stay. */
kiln_cache_mode kiln__store_mode(kiln_cache_mode mode);
