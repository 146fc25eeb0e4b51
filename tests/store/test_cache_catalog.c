/* SPDX-License-Identifier: Apache-2.0 */
/* The public functions of <kiln/cache.h>. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <kiln/cache.h>

#include "../support/cache.h"
#include "../support/missing.h"
#include "store/catalog.h"

enum { ENTRIES = 3 };

static struct kiln__key keys[ENTRIES];
static char bundle[400];

/* Three entries, number 2 the least recently used. */
static void setup(void)
{
    struct kiln__disk_store *store = fake_open(0);
    for (int i = 0; i < ENTRIES; i++) {
        char path[512];
        const struct timespec times[2] = {{time(NULL) - 100 * i, 0}, {time(NULL) - 100 * i, 0}};
        fake_key(i, &keys[i]);
        cr_assert(fake_put(store, &keys[i], i));
        fake_path(&keys[i], path, sizeof path);
        cr_assert_eq(utimensat(AT_FDCWD, path, times, 0), 0);
    }
    kiln__store_close(store);
    snprintf(bundle, sizeof bundle, "%s/all.kiln", fake_folder());
    unsetenv("KILN_CACHE");
}

static void teardown(void)
{
    for (int i = 0; i < ENTRIES; i++)
        kiln__key_free(&keys[i]);
    fake_end();
}

TestSuite(cache_catalog, .init = setup, .fini = teardown, .timeout = 300);

static void expect_sentence(const char *part)
{
    cr_expect(strstr(kiln_last_error(), part) != NULL, "\"%s\" has no \"%s\"", kiln_last_error(),
              part);
}

static void damage(int number)
{
    char path[512];
    fake_path(&keys[number], path, sizeof path);
    cr_assert_eq(truncate(path, 200), 0);
}

struct seen {
    int count, stop_at;
    kiln_cache_entry entries[ENTRIES + 1];
};

static int see(const kiln_cache_entry *entry, void *user)
{
    struct seen *seen = user;
    seen->entries[seen->count++] = *entry;
    return seen->count == seen->stop_at;
}

/* ---- list and stats ---- */

Test(cache_catalog, lists_least_recently_used_first)
{
    struct seen seen = {0};
    cr_assert_eq(kiln_cache_list(fake_folder(), see, &seen), KILN_OK);
    cr_assert_eq(seen.count, ENTRIES);
    for (int i = 0; i < ENTRIES; i++) {
        const kiln_cache_entry *entry = &seen.entries[i];
        cr_expect_eq(entry->size, sizeof *entry);
        cr_expect_str_eq(entry->name, keys[ENTRIES - 1 - i].name);
        cr_expect_str_eq(entry->device, "device");
        cr_expect_str_eq(entry->driver, "driver");
        cr_expect_str_eq(entry->kernel, "kernel");
        cr_expect_eq(entry->valid, 1);
        cr_expect_gt(entry->bytes, 256u);
        cr_expect_leq(entry->used, (int64_t)time(NULL));
    }
}

Test(cache_catalog, a_visitor_may_end_the_walk)
{
    struct seen seen = {.stop_at = 2};
    cr_assert_eq(kiln_cache_list(fake_folder(), see, &seen), KILN_OK);
    cr_expect_eq(seen.count, 2);
}

Test(cache_catalog, damaged_and_misnamed_entries_are_listed_as_such)
{
    char from[512], to[512];
    struct seen seen = {0};
    kiln_cache_stats stats;
    damage(0);
    fake_path(&keys[1], from, sizeof from);
    snprintf(to, sizeof to, "%s/0123456789abcdef0123456789abcdef.bin", fake_folder());
    cr_assert_eq(rename(from, to), 0);
    cr_assert_eq(kiln_cache_list(fake_folder(), see, &seen), KILN_OK);
    cr_assert_eq(seen.count, ENTRIES);
    cr_expect_eq(seen.entries[0].valid, 1);
    cr_expect_eq(seen.entries[1].valid, 0);
    cr_expect_eq(seen.entries[2].valid, 0);
    cr_expect_str_eq(seen.entries[2].kernel, "");
    cr_assert_eq(kiln_cache_get_stats(fake_folder(), &stats), KILN_OK);
    cr_expect_str_eq(stats.folder, fake_folder());
    cr_expect_eq(stats.entries, 3u);
    cr_expect_eq(stats.invalid, 2u);
    cr_expect_gt(stats.bytes, 3 * 200u);
}

Test(cache_catalog, a_missing_folder_is_empty_and_has_no_list)
{
    struct seen seen = {0};
    kiln_cache_stats stats;
    uint64_t removed = 7;
    const char *missing = missing_path("kiln");
    char sentence[500];
    cr_expect_eq(kiln_cache_list(missing, see, &seen), KILN_IO_ERROR);
    snprintf(sentence, sizeof sentence, "there is no kernel cache %s", missing);
    expect_sentence(sentence);
    cr_expect_eq(kiln_cache_export(missing, bundle, NULL), KILN_IO_ERROR);
    cr_assert_eq(kiln_cache_get_stats(missing, &stats), KILN_OK);
    cr_expect_str_eq(stats.folder, missing);
    cr_expect_eq(stats.entries, 0u);
    cr_expect_eq(kiln_cache_prune(missing, 0, &removed), KILN_OK);
    cr_expect_eq(removed, 0u);
}

Test(cache_catalog, memory_only_has_no_folder)
{
    kiln_cache_stats stats;
    setenv("KILN_CACHE_DIR", fake_folder(), 1);
    cr_assert_eq(kiln_cache_get_stats(NULL, &stats), KILN_OK);
    cr_expect_eq(stats.entries, 3u);
    setenv("KILN_CACHE", "off", 1);
    cr_assert_eq(kiln_cache_get_stats(NULL, &stats), KILN_OK);
    cr_expect_str_eq(stats.folder, "");
    unsetenv("KILN_CACHE");
    unsetenv("KILN_CACHE_DIR");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    cr_assert_eq(kiln_cache_get_stats(NULL, &stats), KILN_OK);
    cr_expect_str_eq(stats.folder, "");
    cr_expect_eq(kiln_cache_prune(NULL, 0, NULL), KILN_IO_ERROR);
    expect_sentence("there is no place for the kernel cache");
}

Test(cache_catalog, a_folder_that_others_write_to_is_an_error)
{
    kiln_cache_stats stats;
    cr_assert_eq(chmod(fake_folder(), 0777), 0);
    cr_expect_eq(kiln_cache_get_stats(fake_folder(), &stats), KILN_IO_ERROR);
    expect_sentence("other users may write to it");
    cr_expect_eq(kiln_cache_import(fake_folder(), bundle, NULL), KILN_IO_ERROR);
}

Test(cache_catalog, null_is_an_error)
{
    cr_expect_eq(kiln_cache_list(NULL, NULL, NULL), KILN_INVALID_ARGUMENT);
    expect_sentence("kiln_cache_list: visitor is NULL");
    cr_expect_eq(kiln_cache_get_stats(NULL, NULL), KILN_INVALID_ARGUMENT);
    cr_expect_eq(kiln_cache_export(NULL, NULL, NULL), KILN_INVALID_ARGUMENT);
    cr_expect_eq(kiln_cache_export_used(NULL, NULL, "x", NULL), KILN_INVALID_ARGUMENT);
    cr_expect_eq(kiln_cache_export_used(NULL, "x", NULL, NULL), KILN_INVALID_ARGUMENT);
    cr_expect_eq(kiln_cache_import(NULL, NULL, NULL), KILN_INVALID_ARGUMENT);
}

/* ---- prune ---- */

Test(cache_catalog, prune_takes_the_useless_then_the_oldest)
{
    kiln_cache_stats stats;
    struct seen seen = {0};
    uint64_t removed;
    damage(0); /* the most recently used */
    cr_assert_eq(kiln_cache_prune(fake_folder(), UINT64_MAX, &removed), KILN_OK);
    cr_expect_eq(removed, 1u);
    cr_assert_eq(kiln_cache_get_stats(fake_folder(), &stats), KILN_OK);
    cr_expect_eq(stats.entries, 2u);
    cr_expect_eq(stats.invalid, 0u);
    cr_assert_eq(kiln_cache_prune(fake_folder(), stats.bytes - 1, &removed), KILN_OK);
    cr_expect_eq(removed, 1u);
    cr_assert_eq(kiln_cache_list(fake_folder(), see, &seen), KILN_OK);
    cr_assert_eq(seen.count, 1);
    cr_expect_str_eq(seen.entries[0].name, keys[1].name);
    cr_assert_eq(kiln_cache_prune(fake_folder(), 0, NULL), KILN_OK);
    cr_assert_eq(kiln_cache_get_stats(fake_folder(), &stats), KILN_OK);
    cr_expect_eq(stats.entries, 0u);
}

Test(cache_catalog, prune_sweeps)
{
    char path[512];
    uint64_t removed;
    snprintf(path, sizeof path, "%s/0123456789abcdef0123456789abcdef.bin-0123456789abcdef.tmp",
             fake_folder());
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    cr_assert(fd >= 0);
    close(fd);
    cr_assert_eq(kiln_cache_prune(fake_folder(), UINT64_MAX, &removed), KILN_OK);
    cr_expect_eq(removed, 1u);
    cr_expect_eq(fake_leftovers(), 0);
}

/* ---- export and import ---- */

static uint64_t export_all(void)
{
    uint64_t count = 0;
    cr_assert_eq(kiln_cache_export(fake_folder(), bundle, &count), KILN_OK);
    return count;
}

/* The folder after an import, as a store sees it. */
static int entries_in(const char *folder)
{
    const struct kiln__store_options options = {folder, 0, KILN_CACHE_ON};
    struct kiln__disk_store *store = kiln__store_open(&options);
    int count = 0;
    for (int i = 0; i < ENTRIES; i++) {
        struct kiln__loaded loaded;
        if (kiln__store_get(store, &keys[i], &loaded)) {
            count += fake_fits(&loaded, i);
            kiln__store_unload(&loaded);
        }
    }
    kiln__store_close(store);
    return count;
}

Test(cache_catalog, what_is_exported_can_be_imported)
{
    char elsewhere[512];
    uint64_t count;
    damage(1);
    cr_expect_eq(export_all(), 2u, "the damaged one stays behind");
    snprintf(elsewhere, sizeof elsewhere, "%s/else/where", fake_folder());
    cr_assert_eq(kiln_cache_import(elsewhere, bundle, &count), KILN_OK);
    cr_expect_eq(count, 2u);
    cr_expect_eq(entries_in(elsewhere), 2);
    cr_expect_eq(fake_leftovers(), 0);
}

/* The bundle's bytes, changed by the caller and written back. */
static unsigned char *read_bundle(size_t *length)
{
    struct stat facts;
    FILE *stream = fopen(bundle, "rb");
    cr_assert(stream && !fstat(fileno(stream), &facts));
    unsigned char *bytes = malloc((size_t)facts.st_size);
    *length = fread(bytes, 1, (size_t)facts.st_size, stream);
    cr_assert_eq(*length, (size_t)facts.st_size);
    fclose(stream);
    return bytes;
}

static kiln_status import_bytes(const unsigned char *bytes, size_t length, uint64_t *count)
{
    FILE *stream = fopen(bundle, "wb");
    cr_assert(stream && fwrite(bytes, 1, length, stream) == length && !fclose(stream));
    return kiln_cache_import(fake_folder(), bundle, count);
}

Test(cache_catalog, a_damaged_entry_of_an_import_is_left_out)
{
    size_t length;
    uint64_t count;
    export_all();
    cr_assert_eq(kiln_cache_prune(fake_folder(), 0, NULL), KILN_OK);
    unsigned char *bytes = read_bundle(&length);
    bytes[300] ^= 1;
    cr_expect_eq(import_bytes(bytes, length, &count), KILN_INVALID_ARGUMENT);
    expect_sentence("1 entries of");
    cr_expect_eq(count, 2u);
    cr_expect_eq(entries_in(fake_folder()), 2);
    free(bytes);
}

Test(cache_catalog, an_import_that_ends_early_says_so)
{
    size_t length;
    uint64_t count;
    export_all();
    unsigned char *bytes = read_bundle(&length);
    static const char *const sentences[] = {"is no export of a kernel cache", "ends early"};
    const size_t cuts[] = {0, 10, 16, 20, 24, 100, length / 2, length - 8, length - 1};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        cr_expect_eq(import_bytes(bytes, cuts[i], &count), KILN_INVALID_ARGUMENT, "%zu", cuts[i]);
        expect_sentence(sentences[cuts[i] >= 16]);
    }
    cr_expect_eq(count, ENTRIES, "what came whole before the end is kept");
    cr_expect_eq(import_bytes(bytes, length, &count), KILN_OK);
    free(bytes);
}

Test(cache_catalog, an_import_that_goes_on_behind_its_end_says_so)
{
    size_t length;
    uint64_t count;
    export_all();
    unsigned char *bytes = read_bundle(&length), *longer = calloc(1, length + 1);
    memcpy(longer, bytes, length);
    cr_expect_eq(import_bytes(longer, length + 1, &count), KILN_INVALID_ARGUMENT);
    expect_sentence("goes on behind its end");
    free(longer);
    free(bytes);
}

/* What was there goes first, then what comes last stays out. */
Test(cache_catalog, an_import_obeys_the_limit)
{
    kiln_cache_stats stats;
    struct stat facts;
    uint64_t count;
    export_all();
    cr_assert_eq(kiln_cache_prune(fake_folder(), 0, NULL), KILN_OK);
    struct kiln__disk_store *store = fake_open(0);
    for (int i = 0; i < 5; i++) {
        struct kiln__key key;
        fake_key(100 + i, &key);
        cr_assert(fake_put(store, &key, 100 + i));
        kiln__key_free(&key);
    }
    kiln__store_close(store);
    cr_assert_eq(stat(bundle, &facts), 0);
    const uint64_t room = (uint64_t)facts.st_size;
    cr_expect_eq(kiln__catalog_import(fake_folder(), bundle, room, &count), KILN_OK);
    cr_expect_eq(count, ENTRIES);
    cr_expect_eq(entries_in(fake_folder()), ENTRIES);
    cr_expect_eq(kiln_cache_get_stats(fake_folder(), &stats), KILN_OK);
    cr_expect_leq(stats.bytes, room);
    cr_expect_eq(kiln__catalog_import(fake_folder(), bundle, room / 2, &count), KILN_TOO_LARGE);
    expect_sentence("were left out: the kernel cache is limited to");
    cr_expect(count < ENTRIES);
    cr_expect_eq(kiln_cache_get_stats(fake_folder(), &stats), KILN_OK);
    cr_expect_leq(stats.bytes, room / 2);
}

/* A length that lies must not make kiln reserve what it says. */
Test(cache_catalog, a_length_that_lies_is_an_error)
{
    size_t length;
    uint64_t count;
    export_all();
    unsigned char *bytes = read_bundle(&length);
    bytes[16 + 7] = 0x7f;
    cr_expect_eq(import_bytes(bytes, length, &count), KILN_INVALID_ARGUMENT);
    expect_sentence("is damaged");
    bytes[16 + 7] = 0;
    bytes[16 + 3] = 0x3f; /* less than an entry may have, more than there is */
    cr_expect_eq(import_bytes(bytes, length, &count), KILN_INVALID_ARGUMENT);
    expect_sentence("ends early");
    free(bytes);
}

Test(cache_catalog, only_regular_files_are_exported_to)
{
    char path[512];
    snprintf(path, sizeof path, "%s/fifo", fake_folder());
    cr_assert_eq(mkfifo(path, 0600), 0);
    cr_expect_eq(kiln_cache_export(fake_folder(), path, NULL), KILN_IO_ERROR);
    expect_sentence("fifo is not written: it is no regular file");
    cr_expect_eq(kiln_cache_import(fake_folder(), path, NULL), KILN_IO_ERROR);
    expect_sentence("fifo could not be read: nobody writes to this pipe");
    cr_expect_eq(kiln_cache_export_used(fake_folder(), "/tmp/none", path, NULL), KILN_IO_ERROR);
    expect_sentence("fifo could not be read: nobody writes to this pipe");
    snprintf(path, sizeof path, "%s/no/such/folder", fake_folder());
    cr_expect_eq(kiln_cache_export(fake_folder(), path, NULL), KILN_IO_ERROR);
    expect_sentence("could not be written");
    cr_expect_eq(kiln_cache_import(fake_folder(), path, NULL), KILN_IO_ERROR);
    expect_sentence("could not be read");
}
