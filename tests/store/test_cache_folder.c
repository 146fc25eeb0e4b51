/* SPDX-License-Identifier: Apache-2.0 */
/* A store's folder: where it is, whose, in which modes it is used, and what is swept from it. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kiln/cache.h>
#include <kiln/status.h>

#include "../support/missing.h"
#include "store/location.h"
#include "stores.h"

TestSuite(cache_folder, .init = setup, .fini = teardown, .timeout = 300);

/* ---- modes and places ---- */

Test(cache_folder, read_only_reads_and_leaves_everything_as_it_is)
{
    char path[512];
    cr_assert(fake_put(store, &key, 1));
    fake_path(&key, path, sizeof path);
    struct kiln__disk_store *reader = open_as(fake_folder(), KILN_CACHE_READ_ONLY);
    cr_expect_not(kiln__store_writes(reader));
    cr_expect(found(reader, &key, 1));
    cr_expect_not(fake_put(reader, &other, 2));
    cr_assert_eq(truncate(path, 100), 0);
    cr_expect_not(found(reader, &key, 1));
    cr_expect_eq(access(path, F_OK), 0);
    cr_expect_eq(kiln__store_failures(reader), 1u);
    kiln__store_close(reader);
}

Test(cache_folder, off_is_off)
{
    cr_assert(fake_put(store, &key, 1));
    struct kiln__disk_store *off = open_as(fake_folder(), KILN_CACHE_OFF);
    cr_expect_not(found(off, &key, 1));
    cr_expect_not(fake_put(off, &key, 1));
    cr_expect_eq(kiln__store_failures(off), 0u);
    kiln__store_close(off);
}

Test(cache_folder, the_environment_chooses_the_mode)
{
    static const struct {
        const char *value;
        kiln_cache_mode mode;
    } cases[] = {{"on", KILN_CACHE_ON},
                 {"ro", KILN_CACHE_READ_ONLY},
                 {"off", KILN_CACHE_OFF},
                 {"", KILN_CACHE_ON},
                 {"perhaps", KILN_CACHE_ON}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        setenv("KILN_CACHE", cases[i].value, 1);
        cr_expect_eq(kiln__store_mode(KILN_CACHE_DEFAULT), cases[i].mode, "%s", cases[i].value);
        cr_expect_eq(kiln__store_mode(KILN_CACHE_OFF), KILN_CACHE_OFF);
    }
}

Test(cache_folder, places_are_tried_in_order)
{
    char path[64];
    setenv("KILN_CACHE_DIR", "/one///", 1);
    setenv("XDG_CACHE_HOME", "/two", 1);
    setenv("HOME", "/three", 1);
    cr_assert(kiln__location_find("/zero", path, sizeof path));
    cr_expect_str_eq(path, "/zero");
    cr_assert(kiln__location_find(NULL, path, sizeof path));
    cr_expect_str_eq(path, "/one");
    setenv("KILN_CACHE_DIR", "", 1);
    cr_assert(kiln__location_find("", path, sizeof path));
    cr_expect_str_eq(path, "/two/kiln");
    setenv("XDG_CACHE_HOME", "two", 1);
    cr_assert(kiln__location_find(NULL, path, sizeof path));
    cr_expect_str_eq(path, "/three/.cache/kiln");
    cr_expect_not(kiln__location_find(NULL, path, 18), "one byte too few");
    unsetenv("HOME");
    cr_expect_not(kiln__location_find(NULL, path, sizeof path));
}

Test(cache_folder, makes_its_folder_and_what_leads_to_it)
{
    char path[400];
    struct stat facts;
    umask(0);
    snprintf(path, sizeof path, "%s/a/b/c", fake_folder());
    struct kiln__disk_store *reader = open_as(path, KILN_CACHE_READ_ONLY);
    cr_expect_neq(access(path, F_OK), 0);
    cr_expect_eq(kiln__store_failures(reader), 0u, "nothing to read is no trouble");
    struct kiln__disk_store *writer = open_as(path, KILN_CACHE_ON);
    cr_expect(fake_put(writer, &key, 1));
    for (int i = 0; i < 3; i++, *strrchr(path, '/') = 0) {
        cr_assert_eq(stat(path, &facts), 0);
        cr_expect_eq(facts.st_mode & 07777, 0700u, "%s", path);
    }
    kiln__store_close(reader);
    kiln__store_close(writer);
}

/* Near the longest path that there can be, and with a dot and slashes at the end. */
Test(cache_folder, a_long_path_works_for_programs_and_tools)
{
    char path[4096], link_path[300];
    kiln_cache_stats stats;
    size_t length = (size_t)snprintf(path, sizeof path, "%s", fake_folder());
    while (length < 3900)
        length += (size_t)snprintf(path + length, sizeof path - length, "/%0100d", 0);
    struct kiln__disk_store *opened = open_as(path, KILN_CACHE_ON);
    cr_expect(fake_put(opened, &key, 1));
    cr_expect_eq(kiln_cache_get_stats(path, &stats), KILN_OK, "%s", kiln_last_error());
    cr_expect_str_eq(stats.folder, path);
    cr_expect_eq(stats.entries, 1u);
    cr_expect_eq(kiln_cache_prune(path, 0, NULL), KILN_OK);
    kiln__store_close(opened);
    snprintf(link_path, sizeof link_path, "%s/link", fake_folder());
    cr_assert_eq(symlink(fake_folder(), link_path), 0);
    static const char *const ends[] = {"", "/", "/.", "/./", "//./."};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        strcpy(strstr(link_path, "/link") + 5, ends[i]);
        opened = open_as(link_path, KILN_CACHE_ON);
        cr_expect_not(kiln__store_writes(opened), "%s", link_path);
        kiln__store_close(opened);
    }
}

/* As root with the environment of somebody else: what root made there, he could not use. */
Test(cache_folder, nothing_is_made_in_another_users_folder)
{
    char path[300];
    if (geteuid())
        cr_skip("only root can give a folder away");
    cr_assert_eq(chown(fake_folder(), 65534, (gid_t)-1), 0);
    setenv("HOME", fake_folder(), 1);
    unsetenv("KILN_CACHE_DIR");
    unsetenv("XDG_CACHE_HOME");
    struct kiln__disk_store *opened = open_as(NULL, KILN_CACHE_ON);
    cr_expect_not(kiln__store_writes(opened));
    cr_expect_eq(kiln__store_failures(opened), 1u);
    snprintf(path, sizeof path, "%s/.cache", fake_folder());
    cr_expect_neq(access(path, F_OK), 0);
    kiln__store_close(opened);
}

Test(cache_folder, a_folder_that_cannot_be_made_is_counted)
{
    struct kiln__disk_store *nowhere = open_as("/proc/no/such/folder", KILN_CACHE_ON);
    cr_expect_not(fake_put(nowhere, &key, 1));
    cr_expect_not(found(nowhere, &key, 1));
    cr_expect_eq(kiln__store_failures(nowhere), 1u);
    kiln__store_close(nowhere);
}

/* ---- sweeping ---- */

#define HEX "0123456789abcdef"
#define TEMPORARY_1 HEX HEX ".bin-" HEX ".tmp"
#define TEMPORARY_2 HEX HEX ".bin-0000000000000000.tmp"

static void make_file(const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", fake_folder(), name);
    FILE *file = fopen(path, "wx");
    cr_assert_not_null(file, "%s", path);
    fputs(text, file);
    cr_assert_eq(fclose(file), 0);
}

static bool is_there(int folder, const char *name)
{
    return !faccessat(folder, name, F_OK, AT_SYMLINK_NOFOLLOW);
}

Test(cache_folder, a_sweep_takes_what_nobody_holds)
{
    struct kiln__lock held;
    int folder = open_folder();
    make_file(TEMPORARY_1, "\x8bkiln\r");
    make_file(TEMPORARY_2, "");
    make_file("fedcba9876543210" HEX ".lock", "");
    int writer = openat(folder, TEMPORARY_2, O_WRONLY | O_CLOEXEC);
    cr_assert_eq(flock(writer, LOCK_EX | LOCK_NB), 0);
    cr_assert_eq(kiln__lock_try(folder, HEX HEX, &held), KILN__LOCK_TAKEN);
    cr_expect_eq(kiln__folder_sweep(folder), 2u);
    cr_expect(is_there(folder, TEMPORARY_2));
    cr_expect(is_there(folder, HEX HEX ".lock"));
    close(writer);
    kiln__lock_release(&held);
    cr_expect_eq(kiln__folder_sweep(folder), 1u);
    cr_expect_eq(fake_leftovers(), 0);
    close(folder);
}

/* What people and other programs keep in a folder; the last ones nearly as kiln would call them. */
static const char *const foreign[][2] = {
    {"Cargo.lock", ""},
    {"poetry.lock", ""},
    {"draft.tmp", ""},
    {"x-0123456789abcdef.tmp", ""},
    {HEX HEX ".lock2", ""},
    {"0" HEX HEX ".lock", ""},
    {"." HEX HEX ".lock", ""},
    {"0123456789ABCDEF" HEX ".lock", ""},
    {HEX HEX ".bin-" HEX "0.tmp", ""},
    {HEX HEX ".lock", "locked by editor"},
    {HEX HEX ".bin-" HEX ".tmp", "a letter"},
    {HEX HEX ".tmp", ""},
    {"CACHEDIR.TAG-" HEX ".tmp", "Signature: of a painter"},
    {"CACHEDIR.TAG2", ""},
};
enum { FOREIGN = sizeof foreign / sizeof *foreign };

static void expect_foreign(int folder)
{
    for (int i = 0; i < FOREIGN; i++)
        cr_expect(is_there(folder, foreign[i][0]), "%s is gone", foreign[i][0]);
}

Test(cache_folder, what_is_not_kilns_stays)
{
    uint64_t removed;
    struct kiln__lock lock;
    int folder = open_folder();
    for (int i = 0; i < FOREIGN; i++)
        make_file(foreign[i][0], foreign[i][1]);
    cr_expect(fake_put(store, &key, 1), "the folder has been kiln's before");
    cr_expect_eq(kiln__folder_sweep(folder), 0u);
    cr_expect_eq(kiln__lock_try(folder, HEX HEX, &lock), KILN__LOCK_IMPOSSIBLE);
    cr_expect_eq(kiln_cache_prune(fake_folder(), 0, &removed), KILN_OK);
    cr_expect_eq(removed, 1u);
    expect_foreign(folder);
    close(folder);
}

Test(cache_folder, what_is_swept_is_counted)
{
    uint64_t removed;
    make_file(TEMPORARY_1, "\x8bkiln\r\n\x1a and half an entry");
    make_file(HEX HEX ".lock", "");
    make_file("CACHEDIR.TAG-" HEX ".tmp", "Signature: 8a477f597d28d1");
    cr_assert(kiln_cache_prune(fake_folder(), UINT64_MAX, &removed) == KILN_OK);
    cr_expect_eq(removed, 3u);
    cr_expect_eq(fake_leftovers(), 0);
}

/* ---- whose folder it is ---- */

static void remove_tag(void)
{
    int folder = open_folder();
    cr_assert_eq(unlinkat(folder, "CACHEDIR.TAG", 0), 0);
    close(folder);
}

static bool is_used(kiln_cache_mode mode)
{
    struct kiln__disk_store *opened = open_as(fake_folder(), mode);
    bool used = mode == KILN_CACHE_ON ? kiln__store_writes(opened) : found(opened, &key, 1);
    cr_expect_eq(kiln__store_failures(opened), used ? 0u : 1u);
    kiln__store_close(opened);
    return used;
}

static bool has_tag(void)
{
    char start[64] = "", path[512];
    snprintf(path, sizeof path, "%s/CACHEDIR.TAG", fake_folder());
    FILE *file = fopen(path, "r");
    if (!file)
        return false;
    cr_expect_not_null(fgets(start, sizeof start, file));
    fclose(file);
    return !strcmp(start, "Signature: 8a477f597d28d172789f06886806bc55\n");
}

Test(cache_folder, an_empty_folder_becomes_a_cache)
{
    cr_expect(has_tag());
    remove_tag();
    cr_expect(is_used(KILN_CACHE_ON));
    cr_expect(has_tag());
}

Test(cache_folder, a_cache_without_a_tag_is_adopted)
{
    cr_assert(fake_put(store, &key, 1));
    make_file(TEMPORARY_1, "");
    make_file(HEX HEX ".lock", "");
    remove_tag();
    cr_expect(is_used(KILN_CACHE_READ_ONLY));
    cr_expect_not(has_tag(), "who only reads writes nothing");
    cr_expect(is_used(KILN_CACHE_ON));
    cr_expect(has_tag());
}

/* With each of them alone, as with KILN_CACHE_DIR=. in a folder of someone's work. */
Test(cache_folder, a_folder_of_other_things_is_no_cache)
{
    static const char *const more[][2] = {
        {HEX HEX ".bin", "a firmware by its checksum"},
        {HEX HEX ".bin", ""},
        {"CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55\n# of cargo\n"},
        {"CACHEDIR.TAG", ""},
        {"src", ""},
    };
    kiln_cache_stats stats;
    int folder = open_folder();
    remove_tag();
    for (int i = 0; i < FOREIGN + 5; i++) {
        const char *const *file = i < FOREIGN ? foreign[i] : more[i - FOREIGN];
        make_file(file[0], file[1]);
        cr_expect_not(is_used(KILN_CACHE_ON), "%s", file[0]);
        cr_expect_not(is_used(KILN_CACHE_READ_ONLY), "%s", file[0]);
        cr_expect_eq(kiln_cache_prune(fake_folder(), 0, NULL), KILN_IO_ERROR);
        cr_expect_eq(kiln_cache_get_stats(fake_folder(), &stats), KILN_IO_ERROR);
        cr_expect_not_null(strstr(kiln_last_error(), "CACHEDIR.TAG"), "%s", kiln_last_error());
        cr_expect_eq(unlinkat(folder, file[0], 0), 0, "%s is gone", file[0]);
    }
    cr_expect_eq(symlinkat(missing_path("entry"), folder, HEX HEX ".bin"), 0);
    cr_expect_not(is_used(KILN_CACHE_ON));
    cr_expect(is_there(folder, HEX HEX ".bin"));
    close(folder);
}

enum { OPENERS = 16 };

static void *open_at_once(void *user)
{
    *(struct kiln__disk_store **)user = fake_open(0);
    return NULL;
}

Test(cache_folder, a_new_folder_may_be_opened_by_many_at_once)
{
    pthread_t threads[OPENERS];
    struct kiln__disk_store *stores[OPENERS];
    for (int round = 0; round < 10; round++) {
        remove_tag();
        for (int i = 0; i < OPENERS; i++)
            cr_assert_eq(pthread_create(&threads[i], NULL, open_at_once, &stores[i]), 0);
        for (int i = 0; i < OPENERS; i++) {
            pthread_join(threads[i], NULL);
            cr_expect(kiln__store_writes(stores[i]));
            kiln__store_close(stores[i]);
        }
        cr_expect(has_tag());
        cr_expect_eq(fake_leftovers(), 0);
    }
}

Test(cache_folder, the_first_put_sweeps)
{
    make_file(TEMPORARY_1, "");
    cr_expect(fake_put(store, &key, 1));
    cr_expect_eq(fake_leftovers(), 0);
    make_file(TEMPORARY_1, "");
    cr_expect(fake_put(store, &key, 1));
    cr_expect_eq(fake_leftovers(), 1);
}
