/* SPDX-License-Identifier: Apache-2.0 */
/* Listing, statistics, pruning, clearing, export and import of a cache folder. */
#include "store/catalog.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store/location.h"
#include "store/store.h"
#include "util/error.h"
#include "util/log.h"

kiln_status kiln__catalog_open(const char *folder, bool create, struct kiln__catalog *catalog)
{
    const char *why = NULL;
    catalog->folder = -1;
    if (!kiln__location_find(folder, catalog->path, sizeof catalog->path)) {
        *catalog->path = 0;
        return kiln__fail(NULL, KILN_IO_ERROR,
                          "there is no place for the kernel cache: KILN_CACHE_DIR, XDG_CACHE_HOME "
                          "and HOME are unset, or the path is too long");
    }
    catalog->folder = kiln__location_open(catalog->path, create, &why);
    if (catalog->folder >= 0 || (errno == ENOENT && !create))
        return KILN_OK;
    return kiln__fail(NULL, KILN_IO_ERROR, "the kernel cache %s cannot be used: %s", catalog->path,
                      why);
}

void kiln__catalog_close(struct kiln__catalog *catalog)
{
    if (catalog->folder >= 0)
        close(catalog->folder);
    catalog->folder = -1;
}

enum kiln__file_state kiln__catalog_read(const struct kiln__catalog *catalog,
                                         const struct kiln__item *item, struct kiln__file *file,
                                         struct kiln__entry *entry)
{
    char name[33];
    enum kiln__file_state state =
        kiln__file_read(catalog->folder, item->file, KILN__STORE_LONGEST, false, file);
    if (state != KILN__FILE_READ)
        return state;
    if (!kiln__entry_decode(file->bytes, file->length, entry, &file->why))
        return KILN__FILE_REFUSED;
    const struct kiln__span *key = &entry->sections[KILN__ENTRY_KEY];
    kiln__entry_name(key->bytes, key->length, name);
    if (!strncmp(name, item->file, strlen(name)))
        return KILN__FILE_READ;
    file->why = "it is filed under the name of another key";
    return KILN__FILE_REFUSED;
}

static kiln_status list_items(const struct kiln__catalog *catalog, struct kiln__items *items)
{
    *items = (struct kiln__items){0};
    if (catalog->folder < 0 || kiln__folder_list(catalog->folder, items))
        return KILN_OK;
    kiln_status status = errno == ENOMEM ? KILN_OUT_OF_HOST_MEMORY : KILN_IO_ERROR;
    return kiln__fail(NULL, status, "the kernel cache %s cannot be listed: %s", catalog->path,
                      strerror(errno));
}

/* ---- list ---- */

static void catalog_describe(const struct kiln__catalog *catalog, const struct kiln__item *item,
                             kiln_cache_entry *out)
{
    struct kiln__entry entry;
    struct kiln__file file;
    *out = (kiln_cache_entry){.size = sizeof *out, .bytes = item->bytes, .used = item->used.tv_sec};
    snprintf(out->name, sizeof out->name, "%.32s", item->file);
    out->valid = kiln__catalog_read(catalog, item, &file, &entry) == KILN__FILE_READ;
    if (out->valid) {
        const char *device = kiln__entry_text(&entry, KILN__ENTRY_DEVICE);
        const char *driver = kiln__entry_text(&entry, KILN__ENTRY_DRIVER);
        const char *kernel = kiln__entry_text(&entry, KILN__ENTRY_KERNEL);
        snprintf(out->device, sizeof out->device, "%s", device);
        snprintf(out->driver, sizeof out->driver, "%s", driver);
        snprintf(out->kernel, sizeof out->kernel, "%s", kernel);
    } else
        KILN__LOG(KILN__LOG_INFO, "cache entry %s is of no use: %s", item->file, file.why);
    free(file.bytes);
}

kiln_status kiln__catalog_list(const char *folder, kiln_cache_visitor visitor, void *user)
{
    struct kiln__catalog catalog;
    struct kiln__items items;
    kiln_cache_entry entry;
    kiln_status status = kiln__catalog_open(folder, false, &catalog);
    if (status)
        return status;
    if (catalog.folder < 0)
        return kiln__fail(NULL, KILN_IO_ERROR, "there is no kernel cache %s", catalog.path);
    status = list_items(&catalog, &items);
    for (size_t i = 0; !status && i < items.list.count; i++) {
        catalog_describe(&catalog, &items.list.items[i], &entry);
        if (visitor(&entry, user))
            break;
    }
    kiln__folder_free(&items);
    kiln__catalog_close(&catalog);
    return status;
}

/* ---- stats ---- */

static void count_items(const struct kiln__catalog *catalog, const struct kiln__items *items,
                        kiln_cache_stats *stats)
{
    stats->entries = items->list.count;
    stats->bytes = items->bytes;
    for (size_t i = 0; i < items->list.count; i++) {
        struct kiln__entry entry;
        struct kiln__file file;
        stats->invalid +=
            kiln__catalog_read(catalog, &items->list.items[i], &file, &entry) != KILN__FILE_READ;
        free(file.bytes);
    }
}

kiln_status kiln__catalog_stats(const char *folder, kiln_cache_stats *stats)
{
    struct kiln__catalog catalog;
    struct kiln__items items;
    char path[sizeof catalog.path];
    *stats = (kiln_cache_stats){0};
    if (!folder && (kiln__store_mode(KILN_CACHE_DEFAULT) == KILN_CACHE_OFF ||
                    !kiln__location_find(NULL, path, sizeof path)))
        return KILN_OK; /* memory only */
    kiln_status status = kiln__catalog_open(folder, false, &catalog);
    if (status)
        return status;
    snprintf(stats->folder, sizeof stats->folder, "%s", catalog.path);
    status = list_items(&catalog, &items);
    count_items(&catalog, &items, stats);
    kiln__folder_free(&items);
    kiln__catalog_close(&catalog);
    return status;
}

/* ---- prune ---- */

/* What is left of the items are those that are of use, or could not be read for now. */
static uint64_t remove_useless(const struct kiln__catalog *catalog, struct kiln__items *items)
{
    uint64_t removed = 0;
    size_t kept = 0;
    for (size_t i = 0; i < items->list.count; i++) {
        struct kiln__item item = items->list.items[i];
        struct kiln__entry entry;
        struct kiln__file file;
        enum kiln__file_state state = kiln__catalog_read(catalog, &item, &file, &entry);
        free(file.bytes);
        if (state == KILN__FILE_MISSING)
            items->bytes -= item.bytes;
        else if (state == KILN__FILE_REFUSED &&
                 kiln__folder_remove_bad(catalog->folder, item.file, &file)) {
            removed++;
            items->bytes -= item.bytes;
        } else
            items->list.items[kept++] = item;
    }
    items->list.count = kept;
    return removed;
}

kiln_status kiln__catalog_prune(const char *folder, uint64_t limit, uint64_t *removed)
{
    struct kiln__catalog catalog;
    struct kiln__items items;
    *removed = 0;
    kiln_status status = kiln__catalog_open(folder, false, &catalog);
    if (status || catalog.folder < 0)
        return status;
    status = list_items(&catalog, &items);
    if (!status) {
        *removed = remove_useless(&catalog, &items);
        *removed += kiln__folder_sweep(catalog.folder);
        *removed += kiln__folder_prune(catalog.folder, &items, limit);
        if (items.bytes > limit)
            status = kiln__fail(NULL, KILN_IO_ERROR,
                                "entries of the kernel cache %s cannot be removed", catalog.path);
    }
    kiln__folder_free(&items);
    kiln__catalog_close(&catalog);
    return status;
}
