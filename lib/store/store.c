/* SPDX-License-Identifier: Apache-2.0 */
/* Get and put of entries, with a lock per key so that one process compiles while others wait. */
#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store/folder.h"
#include "store/location.h"
#include "util/clock.h"
#include "util/environment.h"
#include "util/log.h"
#include "util/open_file.h"

#define POLL_NS 10000000L

struct kiln__disk_store {
    int folder; /* -1: there is none */
    int used;   /* $KILN_CACHE_USED; -1: nobody asks */
    bool writes;
    uint64_t limit;
    atomic_uint_fast64_t puts, failures;
    atomic_bool swept, warned;
};

/* ---- opening ---- */

kiln_cache_mode kiln__store_mode(kiln_cache_mode mode)
{
    static const struct {
        const char *name;
        kiln_cache_mode mode;
    } names[] = {{"on", KILN_CACHE_ON}, {"ro", KILN_CACHE_READ_ONLY}, {"off", KILN_CACHE_OFF}};
    const char *value = kiln__environment("KILN_CACHE");
    if (mode != KILN_CACHE_DEFAULT)
        return mode;
    if (!value)
        return KILN_CACHE_ON;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(value, names[i].name))
            return names[i].mode;
    KILN__LOG(KILN__LOG_ERROR, "KILN_CACHE is \"%s\", not on, ro or off; the cache is on", value);
    return KILN_CACHE_ON;
}

/* A folder that is missing is trouble only for someone who would write there. */
static void open_folder(struct kiln__disk_store *store, const struct kiln__store_options *options)
{
    char path[PATH_MAX];
    const char *why = NULL;
    kiln_cache_mode mode = kiln__store_mode(options->mode);
    if (mode == KILN_CACHE_OFF)
        return;
    if (!kiln__location_find(options->folder, path, sizeof path)) {
        KILN__LOG(KILN__LOG_WARN,
                  "there is no place for a kernel cache (KILN_CACHE_DIR); it is in memory only");
        return;
    }
    store->folder = kiln__location_open(path, mode == KILN_CACHE_ON, &why);
    store->writes = store->folder >= 0 && mode == KILN_CACHE_ON;
    if (store->writes && faccessat(store->folder, ".", W_OK, AT_EACCESS))
        KILN__LOG(KILN__LOG_WARN, "the kernel cache %s is not written to: %s", path,
                  strerror(errno));
    if (store->folder >= 0 || (errno == ENOENT && mode == KILN_CACHE_READ_ONLY))
        return;
    KILN__LOG(KILN__LOG_WARN, "the kernel cache %s is not used: %s", path, why);
    kiln__store_failed(store);
}

/* Once: what comes after the first line that is missing is worth no more words. */
static void say_unwritten(const char *what, const char *why)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&said))
        KILN__LOG(KILN__LOG_WARN, "KILN_CACHE_USED: %s cannot be written: %s", what, why);
}

/* A name a line of each entry that is read or put, by this process and those that store for it. */
static int open_used(void)
{
    const char *path = kiln__environment("KILN_CACHE_USED");
    int used = path ? kiln__open_to_append(path, 0600) : -1;
    if (path && used < 0)
        say_unwritten(path, strerror(errno));
    return used;
}

/* A line is short enough to be written at once or not at all. */
static void note_use(const struct kiln__disk_store *store, const char *name)
{
    char line[34];
    if (store->used < 0)
        return;
    int length = snprintf(line, sizeof line, "%.32s\n", name);
    errno = 0;
    if (write(store->used, line, (size_t)length) != length)
        say_unwritten("a line", errno ? strerror(errno) : "it is full");
}

struct kiln__disk_store *kiln__store_open(const struct kiln__store_options *options)
{
    struct kiln__disk_store *store = calloc(1, sizeof *store);
    if (!store)
        return NULL;
    store->folder = -1;
    store->used = open_used();
    store->limit = options->limit ? options->limit : KILN__STORE_LIMIT;
    open_folder(store, options);
    return store;
}

void kiln__store_close(struct kiln__disk_store *store)
{
    if (!store)
        return;
    if (store->folder >= 0)
        close(store->folder);
    if (store->used >= 0)
        close(store->used);
    free(store);
}

bool kiln__store_reads(const struct kiln__disk_store *store)
{
    return store->folder >= 0;
}

bool kiln__store_writes(const struct kiln__disk_store *store)
{
    return store->writes;
}

/* ---- getting ---- */

static void file_of(const char *name, char file[48])
{
    snprintf(file, 48, "%.32s" KILN__ENTRY_SUFFIX, name);
}

void kiln__store_reject(struct kiln__disk_store *store, const struct kiln__key *key,
                        const struct kiln__loaded *loaded, bool at_fault, const char *why)
{
    char file[48];
    file_of(key->name, file);
    KILN__LOG(KILN__LOG_INFO, "cache entry %s is not used: %s", file, why);
    if (at_fault && store->writes)
        kiln__folder_remove_bad(store->folder, file, &loaded->file);
    kiln__store_failed(store);
}

/* What is wrong with the file's bytes, NULL if it is the entry of this key. */
static const char *look_into(const struct kiln__key *key, struct kiln__loaded *loaded)
{
    const char *why;
    if (!kiln__entry_decode(loaded->file.bytes, loaded->file.length, &loaded->entry, &why))
        return why;
    if (!kiln__entry_has_key(&loaded->entry, key->bytes, key->length))
        return "it belongs to another key";
    return NULL;
}

bool kiln__store_get(struct kiln__disk_store *store, const struct kiln__key *key,
                     struct kiln__loaded *loaded)
{
    char file[48];
    *loaded = (struct kiln__loaded){0};
    if (store->folder < 0)
        return false;
    file_of(key->name, file);
    enum kiln__file_state state =
        kiln__file_read(store->folder, file, KILN__STORE_LONGEST, store->writes, &loaded->file);
    if (state == KILN__FILE_MISSING)
        return false;
    const char *why = state == KILN__FILE_READ ? look_into(key, loaded) : loaded->file.why;
    if (!why) {
        note_use(store, key->name);
        return true;
    }
    kiln__store_reject(store, key, loaded, state != KILN__FILE_TROUBLE, why);
    kiln__store_unload(loaded);
    return false;
}

void kiln__store_unload(struct kiln__loaded *loaded)
{
    free(loaded->file.bytes);
    *loaded = (struct kiln__loaded){0};
}

/* Who gains the lock looks once more: the one who had it may have put the entry. */
static enum kiln__store_answer look_locked(struct kiln__disk_store *store,
                                           const struct kiln__key *key, struct kiln__loaded *loaded,
                                           struct kiln__lock *lock)
{
    if (!kiln__store_get(store, key, loaded))
        return KILN__STORE_LOCKED;
    kiln__lock_release(lock);
    return KILN__STORE_FOUND;
}

enum kiln__store_answer kiln__store_get_or_lock(struct kiln__disk_store *store,
                                                const struct kiln__key *key, unsigned wait_ms,
                                                struct kiln__loaded *loaded,
                                                struct kiln__lock *lock)
{
    const int64_t until = kiln__now() + wait_ms * KILN__MS;
    *lock = (struct kiln__lock)KILN__LOCK_NONE;
    for (;;) {
        if (kiln__store_get(store, key, loaded))
            return KILN__STORE_FOUND;
        enum kiln__lock_state state =
            store->writes ? kiln__lock_try(store->folder, key->name, lock) : KILN__LOCK_IMPOSSIBLE;
        if (state == KILN__LOCK_TAKEN)
            return look_locked(store, key, loaded, lock);
        if (state == KILN__LOCK_IMPOSSIBLE || kiln__now() >= until)
            return KILN__STORE_UNLOCKED;
        kiln__sleep(POLL_NS);
    }
}

/* ---- putting ---- */

/* After each put. Everything is counted anew, because other processes put as well: next to a
 * compilation it takes no time. Pruned is somewhat below the limit, so that not every put prunes. A
 * process that puts for the first time sweeps what others left behind. */
static void store_tidy(struct kiln__disk_store *store)
{
    struct kiln__items items;
    uint64_t swept = 0, pruned = 0;
    if (!atomic_exchange(&store->swept, true))
        swept = kiln__folder_sweep(store->folder);
    if (kiln__folder_list(store->folder, &items) && items.bytes > store->limit)
        pruned = kiln__folder_prune(store->folder, &items, store->limit - store->limit / 8);
    kiln__folder_free(&items);
    if (swept || pruned)
        KILN__LOG(KILN__LOG_INFO,
                  "removed from the kernel cache: %" PRIu64 " files that were left over, %" PRIu64
                  " entries beyond its limit",
                  swept, pruned);
}

/* 0 or an errno. */
static int write_entry(struct kiln__disk_store *store, const char *file,
                       const struct kiln__text *bytes)
{
    struct kiln__writer writer;
    if (bytes->failed)
        return ENOMEM;
    if (bytes->length > store->limit || bytes->length > KILN__STORE_LONGEST)
        return EFBIG;
    kiln__writer_begin(&writer, store->folder, file, 0600);
    kiln__writer_add(&writer, bytes->data, bytes->length);
    if (kiln__writer_commit(&writer))
        return 0;
    /* A folder in the entry's place cannot be renamed over; an empty one can be removed. */
    if (writer.error == EISDIR)
        kiln__folder_remove(store->folder, file);
    return writer.error;
}

bool kiln__store_put(struct kiln__disk_store *store, const struct kiln__entry *entry)
{
    const struct kiln__span *key = &entry->sections[KILN__ENTRY_KEY];
    struct kiln__text bytes = {0};
    char name[33], file[48];
    if (!store->writes)
        return false;
    kiln__entry_name(key->bytes, key->length, name);
    file_of(name, file);
    kiln__entry_encode(entry, &bytes);
    int error = write_entry(store, file, &bytes);
    kiln__text_free(&bytes);
    if (error) {
        bool first = !atomic_exchange(&store->warned, true);
        KILN__LOG(first ? KILN__LOG_WARN : KILN__LOG_INFO,
                  "cache entry %s could not be written: %s", file, strerror(error));
        kiln__store_failed(store);
        return false;
    }
    atomic_fetch_add(&store->puts, 1);
    note_use(store, name);
    store_tidy(store);
    return true;
}

/* ---- counting ---- */

void kiln__store_failed(struct kiln__disk_store *store)
{
    atomic_fetch_add(&store->failures, 1);
}

uint64_t kiln__store_puts(const struct kiln__disk_store *store)
{
    return atomic_load(&store->puts);
}

uint64_t kiln__store_failures(const struct kiln__disk_store *store)
{
    return atomic_load(&store->failures);
}
