/* SPDX-License-Identifier: Apache-2.0 */
/* All entries in one file, and back. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "store/catalog.h"
#include "store/store.h"
#include "util/error.h"
#include "util/log.h"
#include "util/open_file.h"

static const unsigned char header[16] = {0x8b, 'k', 'i', 'l', 'n', 'p', '\n', 0x1a, 1};

static void put_length(unsigned char out[8], uint64_t length)
{
    for (int i = 0; i < 8; i++)
        out[i] = (unsigned char)(length >> 8 * i);
}

static uint64_t get_length(const unsigned char in[8])
{
    uint64_t length = 0;
    for (int i = 0; i < 8; i++)
        length |= (uint64_t)in[i] << 8 * i;
    return length;
}

/* ---- export ---- */

/* An entry that cannot be read would be missing at the other end, and nobody would know. */
static kiln_status add_item(const struct kiln__catalog *catalog, const struct kiln__item *item,
                            struct kiln__writer *writer, uint64_t *count)
{
    struct kiln__entry entry;
    struct kiln__file file;
    unsigned char frame[8];
    kiln_status status = KILN_OK;
    switch (kiln__catalog_read(catalog, item, &file, &entry)) {
    case KILN__FILE_READ:
        put_length(frame, file.length);
        kiln__writer_add(writer, frame, sizeof frame);
        kiln__writer_add(writer, file.bytes, file.length);
        ++*count;
        break;
    case KILN__FILE_TROUBLE:
        status = kiln__fail(NULL, KILN_IO_ERROR, "%s/%s could not be read: %s", catalog->path,
                            item->file, file.why);
        break;
    case KILN__FILE_MISSING:
    case KILN__FILE_REFUSED: break;
    }
    free(file.bytes);
    return status;
}

/* Whether $KILN_CACHE_USED's file, a name a line, has the entry's; NULL: it is about all. */
static bool is_used(const struct kiln__text *used, const struct kiln__item *item)
{
    char line[34];
    if (!used)
        return true;
    snprintf(line, sizeof line, "%.32s\n", item->file);
    return used->data && strstr(used->data, line);
}

static kiln_status add_items(const struct kiln__catalog *catalog, const struct kiln__items *items,
                             const struct kiln__text *used, struct kiln__writer *writer,
                             uint64_t *count)
{
    static const unsigned char end[8];
    kiln_status status = KILN_OK;
    kiln__writer_add(writer, header, sizeof header);
    for (size_t i = 0; i < items->list.count && !status && !writer->error; i++)
        if (is_used(used, &items->list.items[i]))
            status = add_item(catalog, &items->list.items[i], writer, count);
    kiln__writer_add(writer, end, sizeof end);
    return status;
}

static kiln_status write_bundle(const struct kiln__catalog *catalog, const char *file,
                                const struct kiln__text *used, uint64_t *count)
{
    struct kiln__items items;
    struct kiln__writer writer;
    if (catalog->folder < 0)
        return kiln__fail(NULL, KILN_IO_ERROR, "there is no kernel cache %s", catalog->path);
    if (!kiln__folder_list(catalog->folder, &items)) {
        kiln__folder_free(&items);
        return kiln__fail(NULL, KILN_IO_ERROR, "the kernel cache %s cannot be listed: %s",
                          catalog->path, strerror(errno));
    }
    kiln__writer_begin(&writer, AT_FDCWD, file, 0666);
    kiln_status status = add_items(catalog, &items, used, &writer, count);
    kiln__folder_free(&items);
    if (status) {
        kiln__writer_drop(&writer);
        return status;
    }
    if (kiln__writer_commit(&writer))
        return KILN_OK;
    return kiln__fail(NULL, KILN_IO_ERROR, "%s could not be written: %s", file,
                      strerror(writer.error));
}

static kiln_status read_used(const char *path, struct kiln__text *used)
{
    char piece[4096];
    size_t got;
    const char *why;
    FILE *stream = kiln__open_to_read(path, &why);
    if (!stream)
        return kiln__fail(NULL, KILN_IO_ERROR, "%s could not be read: %s", path, why);
    while ((got = fread(piece, 1, sizeof piece, stream)))
        kiln__text_add_bytes(used, piece, got);
    kiln_status status = KILN_OK;
    if (ferror(stream))
        status = kiln__fail(NULL, KILN_IO_ERROR, "%s could not be read: %s", path, strerror(errno));
    else if (used->failed)
        status = kiln__fail(NULL, KILN_OUT_OF_HOST_MEMORY, "no memory for %s", path);
    fclose(stream);
    return status;
}

kiln_status kiln__catalog_export(const char *folder, const char *file, const char *used,
                                 uint64_t *count)
{
    struct kiln__catalog catalog;
    struct kiln__text names = {0};
    *count = 0;
    kiln_status status = kiln__catalog_open(folder, false, &catalog);
    if (!status && !kiln__file_replaceable(file))
        status = kiln__fail(NULL, KILN_IO_ERROR, "%s is not written: it is no regular file", file);
    if (!status && used)
        status = read_used(used, &names);
    if (!status)
        status = write_bundle(&catalog, file, used ? &names : NULL, count);
    kiln__text_free(&names);
    kiln__catalog_close(&catalog);
    return status;
}

/* ---- import ---- */

struct import {
    const struct kiln__catalog *catalog;
    const char *file; /* for sentences */
    FILE *stream;
    uint64_t limit, bytes, untidy; /* untidy: bytes since the cache was pruned */
    uint64_t added, damaged, left_out;
};

static kiln_status ends_early(const struct import *import)
{
    if (ferror(import->stream))
        return kiln__fail(NULL, KILN_IO_ERROR, "%s could not be read: %s", import->file,
                          strerror(errno));
    return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s ends early", import->file);
}

/* Those just added are the most recently used ones. */
static void bundle_tidy(struct import *import)
{
    struct kiln__items items;
    if (kiln__folder_list(import->catalog->folder, &items))
        kiln__folder_prune(import->catalog->folder, &items, import->limit);
    kiln__folder_free(&items);
    import->untidy = 0;
}

static kiln_status write_entry(struct import *import, const char *name, const void *bytes,
                               size_t length)
{
    struct kiln__writer writer;
    char file[48];
    snprintf(file, sizeof file, "%s" KILN__ENTRY_SUFFIX, name);
    kiln__writer_begin(&writer, import->catalog->folder, file, 0600);
    kiln__writer_add(&writer, bytes, length);
    if (!kiln__writer_commit(&writer))
        return kiln__fail(NULL, KILN_IO_ERROR, "the kernel cache %s cannot be written: %s",
                          import->catalog->path, strerror(writer.error));
    import->added++;
    import->bytes += length;
    import->untidy += length;
    if (import->untidy > import->limit / 8)
        bundle_tidy(import);
    return KILN_OK;
}

static kiln_status add_entry(struct import *import, const void *bytes, size_t length)
{
    struct kiln__entry entry;
    char name[33];
    const char *why;
    if (!kiln__entry_decode(bytes, length, &entry, &why)) {
        KILN__LOG(KILN__LOG_INFO, "an entry of %s is left out: %s", import->file, why);
        import->damaged++;
        return KILN_OK;
    }
    if (length > import->limit - import->bytes) {
        import->left_out++;
        return KILN_OK;
    }
    const struct kiln__span *key = &entry.sections[KILN__ENTRY_KEY];
    kiln__entry_name(key->bytes, key->length, name);
    return write_entry(import, name, bytes, length);
}

/* In pieces, so that a length that lies does not make anyone reserve what it says. */
static kiln_status read_entry(struct import *import, uint64_t length)
{
    char piece[65536];
    struct kiln__text bytes = {0};
    kiln_status status = KILN_OK;
    for (uint64_t left = length; left && !status && !bytes.failed;) {
        size_t want = left < sizeof piece ? (size_t)left : sizeof piece;
        if (fread(piece, 1, want, import->stream) != want)
            status = ends_early(import);
        kiln__text_add_bytes(&bytes, piece, want);
        left -= want;
    }
    if (!status && bytes.failed)
        status =
            kiln__fail(NULL, KILN_OUT_OF_HOST_MEMORY, "no memory for an entry of %s", import->file);
    if (!status)
        status = add_entry(import, bytes.data, bytes.length);
    kiln__text_free(&bytes);
    return status;
}

static kiln_status read_entries(struct import *import)
{
    unsigned char start[sizeof header], frame[8];
    if (fread(start, sizeof start, 1, import->stream) != 1 || memcmp(start, header, sizeof header))
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s is no export of a kernel cache",
                          import->file);
    for (;;) {
        if (fread(frame, sizeof frame, 1, import->stream) != 1)
            return ends_early(import);
        uint64_t length = get_length(frame);
        if (!length)
            break;
        if (length > KILN__STORE_LONGEST)
            return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s is damaged", import->file);
        kiln_status status = read_entry(import, length);
        if (status)
            return status;
    }
    if (fgetc(import->stream) != EOF)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s goes on behind its end", import->file);
    return KILN_OK;
}

static kiln_status read_bundle(struct import *import)
{
    kiln_status status = read_entries(import);
    bundle_tidy(import);
    if (!status && import->damaged)
        status = kiln__fail(NULL, KILN_INVALID_ARGUMENT,
                            "%llu entries of %s are damaged and were left out",
                            (unsigned long long)import->damaged, import->file);
    if (!status && import->left_out)
        status = kiln__fail(NULL, KILN_TOO_LARGE,
                            "%llu entries of %s were left out: the kernel cache is limited to %llu "
                            "bytes",
                            (unsigned long long)import->left_out, import->file,
                            (unsigned long long)import->limit);
    return status;
}

kiln_status kiln__catalog_import(const char *folder, const char *file, uint64_t limit,
                                 uint64_t *count)
{
    struct kiln__catalog catalog;
    struct import import = {.catalog = &catalog, .file = file, .limit = limit};
    *count = 0;
    const char *why;
    import.stream = kiln__open_to_read(file, &why);
    if (!import.stream)
        return kiln__fail(NULL, KILN_IO_ERROR, "%s could not be read: %s", file, why);
    kiln_status status = kiln__catalog_open(folder, true, &catalog);
    if (!status)
        status = read_bundle(&import);
    *count = import.added;
    kiln__catalog_close(&catalog);
    fclose(import.stream);
    return status;
}
