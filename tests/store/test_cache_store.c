/* SPDX-License-Identifier: Apache-2.0 */
/* Entries of a store: put and found, so many bytes of them, one writer at a time. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <kiln/cache.h>

#include "stores.h"

TestSuite(cache_store, .init = setup, .fini = teardown, .timeout = 300);

/* ---- get and put ---- */

Test(cache_store, finds_what_was_put)
{
    cr_expect_not(found(store, &key, 1));
    cr_expect(fake_put(store, &key, 1));
    cr_expect(found(store, &key, 1));
    cr_expect_not(found(store, &other, 2));
    cr_expect_eq(kiln__store_puts(store), 1u);
    cr_expect_eq(kiln__store_failures(store), 0u);
}

Test(cache_store, what_is_put_again_replaces)
{
    struct kiln__loaded loaded;
    cr_expect(fake_put(store, &key, 3));
    cr_assert(kiln__store_get(store, &key, &loaded));
    cr_expect(fake_fits(&loaded, 3));
    kiln__store_unload(&loaded);
    cr_expect(fake_put(store, &key, 1));
    cr_expect(found(store, &key, 1));
}

Test(cache_store, files_are_the_users_alone)
{
    char path[512];
    struct stat facts;
    umask(0);
    cr_assert(fake_put(store, &key, 1));
    fake_path(&key, path, sizeof path);
    cr_assert_eq(stat(path, &facts), 0);
    cr_expect_eq(facts.st_mode & 07777, 0600u);
}

Test(cache_store, a_rejected_entry_is_gone_and_counted)
{
    struct kiln__loaded loaded;
    cr_assert(fake_put(store, &key, 1));
    cr_assert(kiln__store_get(store, &key, &loaded));
    kiln__store_reject(store, &key, &loaded, true, "of a whim");
    cr_expect_not(found(store, &key, 1));
    cr_expect_eq(kiln__store_failures(store), 1u);
    kiln__store_unload(&loaded);
}

Test(cache_store, an_entry_that_is_not_at_fault_stays)
{
    struct kiln__loaded loaded;
    cr_assert(fake_put(store, &key, 1));
    cr_assert(kiln__store_get(store, &key, &loaded));
    kiln__store_reject(store, &key, &loaded, false, "for want of memory");
    cr_expect(found(store, &key, 1));
    cr_expect_eq(kiln__store_failures(store), 1u);
    kiln__store_unload(&loaded);
}

Test(cache_store, a_good_entry_in_the_place_of_a_bad_one_stays)
{
    struct kiln__loaded loaded;
    cr_assert(fake_put(store, &key, 1));
    cr_assert(kiln__store_get(store, &key, &loaded));
    cr_assert(fake_put(store, &key, 1), "another process repairs it");
    kiln__store_reject(store, &key, &loaded, true, "bad bytes");
    cr_expect(found(store, &key, 1));
    kiln__store_unload(&loaded);
}

/* No descriptor is left: this process finds nothing, and takes nothing away from others. */
Test(cache_store, an_entry_that_this_process_cannot_open_stays)
{
    struct rlimit usual, none;
    uint64_t removed;
    cr_assert(fake_put(store, &key, 1));
    int folder = open_folder(), free_one = dup(folder);
    getrlimit(RLIMIT_NOFILE, &usual);
    none = usual;
    none.rlim_cur = (rlim_t)free_one;
    close(free_one);
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    bool got = found(store, &key, 1);
    setrlimit(RLIMIT_NOFILE, &usual);
    cr_expect_not(got);
    cr_expect_eq(kiln__store_failures(store), 1u);
    cr_expect(found(store, &key, 1));
    cr_expect_eq(kiln_cache_prune(fake_folder(), UINT64_MAX, &removed), KILN_OK);
    cr_expect_eq(removed, 0u);
    close(folder);
}

Test(cache_store, a_whole_entry_of_another_key_is_not_used)
{
    char from[512], to[512];
    cr_assert(fake_put(store, &other, 2));
    fake_path(&other, from, sizeof from);
    fake_path(&key, to, sizeof to);
    cr_assert_eq(rename(from, to), 0);
    cr_expect_not(found(store, &key, 1));
    cr_expect_eq(kiln__store_failures(store), 1u);
    cr_expect_neq(access(to, F_OK), 0);
}

/* ---- bounded bytes ---- */

static void set_used(const struct kiln__key *of, time_t ago)
{
    char path[512];
    const struct timespec times[2] = {{time(NULL) - ago, 0}, {time(NULL) - ago, 0}};
    fake_path(of, path, sizeof path);
    cr_assert_eq(utimensat(AT_FDCWD, path, times, 0), 0);
}

static uint64_t folder_bytes(void)
{
    struct kiln__items items;
    int folder = open_folder();
    cr_assert(kiln__folder_list(folder, &items));
    uint64_t bytes = items.bytes;
    kiln__folder_free(&items);
    close(folder);
    return bytes;
}

Test(cache_store, the_least_recently_used_goes_first)
{
    enum { KEYS = 8 };
    struct kiln__key keys[KEYS];
    for (int i = 0; i < KEYS; i++) {
        fake_key(i, &keys[i]);
        cr_assert(fake_put(store, &keys[i], i));
        set_used(&keys[i], 1000 + (i * 5 % KEYS) * 100); /* the oldest is where i * 5 % 8 is 7 */
    }
    cr_expect(found(store, &keys[3], 3)); /* 3 * 5 % 8 is 7: the oldest, but used now */
    uint64_t all = folder_bytes();
    struct kiln__disk_store *small = fake_open(all);
    cr_assert(fake_put(small, &other, 99));
    cr_expect_leq(folder_bytes(), all);
    cr_expect(found(store, &keys[3], 3));
    cr_expect_not(found(store, &keys[6], 6)); /* 6 * 5 % 8 is 6: the second oldest */
    cr_expect(found(store, &keys[0], 0));
    kiln__store_close(small);
    for (int i = 0; i < KEYS; i++)
        kiln__key_free(&keys[i]);
}

Test(cache_store, stays_within_its_limit)
{
    const uint64_t limit = 200000;
    struct kiln__disk_store *small = fake_open(limit);
    for (int i = 0; i < 60; i++) {
        struct kiln__key one;
        fake_key(i, &one);
        cr_expect(fake_put(i % 2 ? small : store, &one, i));
        if (i % 2)
            cr_expect_leq(folder_bytes(), limit);
        kiln__key_free(&one);
    }
    cr_expect_geq(folder_bytes(), limit / 2);
    kiln__store_close(small);
}

Test(cache_store, an_entry_beyond_the_limit_is_not_put)
{
    struct kiln__disk_store *tiny = fake_open(100);
    cr_assert(fake_put(store, &other, 2));
    cr_expect_not(fake_put(tiny, &key, 1));
    cr_expect_eq(kiln__store_failures(tiny), 1u);
    cr_expect(found(store, &other, 2));
    kiln__store_close(tiny);
}

Test(cache_store, use_is_noted_at_most_once_a_minute)
{
    char path[512];
    struct stat before, after;
    cr_assert(fake_put(store, &key, 1));
    fake_path(&key, path, sizeof path);
    set_used(&key, 1);
    stat(path, &before);
    cr_expect(found(store, &key, 1));
    stat(path, &after);
    cr_expect_eq(before.st_mtim.tv_sec, after.st_mtim.tv_sec);
    set_used(&key, 90);
    cr_expect(found(store, &key, 1));
    stat(path, &after);
    cr_expect_geq(after.st_mtim.tv_sec, before.st_mtim.tv_sec);
}

/* A clock was ahead once: nobody knows when those were used, and they must not stay for ever. */
Test(cache_store, entries_dated_ahead_go_first)
{
    enum { KEYS = 6 };
    struct kiln__key keys[KEYS];
    for (int i = 0; i < KEYS; i++) {
        fake_key(10 + i, &keys[i]);
        cr_assert(fake_put(store, &keys[i], 10 + i));
        set_used(&keys[i], i % 2 ? 100 + i : -400000 - i);
    }
    uint64_t all = folder_bytes();
    struct kiln__disk_store *small = fake_open(all);
    cr_assert(fake_put(small, &other, 2));
    cr_expect_leq(folder_bytes(), all);
    cr_expect(found(store, &other, 2), "the new one stays");
    cr_expect_not(found(store, &keys[0], 10), "the first of those ahead goes");
    for (int i = 1; i < KEYS; i += 2)
        cr_expect(found(store, &keys[i], 10 + i));
    kiln__store_close(small);
    for (int i = 0; i < KEYS; i++)
        kiln__key_free(&keys[i]);
}

Test(cache_store, an_entry_dated_ahead_gets_its_date_when_it_is_used)
{
    char path[512];
    struct stat facts;
    cr_assert(fake_put(store, &key, 1));
    fake_path(&key, path, sizeof path);
    set_used(&key, -86400 * 365);
    const time_t before = time(NULL);
    cr_expect(found(store, &key, 1));
    cr_assert_eq(stat(path, &facts), 0);
    cr_expect_geq(facts.st_mtim.tv_sec, before - 1); /* files are dated by a coarser clock */
    cr_expect_leq(facts.st_mtim.tv_sec, time(NULL));
}

/* As on a full disk: the limit on file sizes makes writes fail half way. */
Test(cache_store, a_put_that_fails_half_way_leaves_nothing)
{
    const struct rlimit small = {1000, RLIM_INFINITY};
    struct rlimit usual;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &usual);
    cr_assert(fake_put(store, &other, 2));
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
    bool put = fake_put(store, &key, 1);
    setrlimit(RLIMIT_FSIZE, &usual);
    cr_expect_not(put);
    cr_expect_eq(kiln__store_failures(store), 1u);
    cr_expect_eq(fake_leftovers(), 0);
    cr_expect_not(found(store, &key, 1));
    cr_expect(found(store, &other, 2));
}

/* ---- one writer ---- */

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

Test(cache_store, who_comes_second_waits_no_longer_than_told)
{
    struct kiln__loaded loaded;
    struct kiln__lock first, second;
    cr_assert_eq(kiln__store_get_or_lock(store, &key, 0, &loaded, &first), KILN__STORE_LOCKED);
    double start = seconds();
    cr_expect_eq(kiln__store_get_or_lock(store, &key, 200, &loaded, &second), KILN__STORE_UNLOCKED);
    double waited = seconds() - start;
    cr_expect(waited >= 0.19 && waited < 100, "%g s", waited);
    cr_expect_eq(second.fd, -1);
    cr_expect_eq(kiln__store_get_or_lock(store, &other, 0, &loaded, &second), KILN__STORE_LOCKED);
    kiln__lock_release(&first);
    kiln__lock_release(&second);
    kiln__lock_release(&second);
    cr_expect_eq(fake_leftovers(), 0);
}

static void *put_soon(void *user)
{
    nanosleep(&(struct timespec){.tv_nsec = 100 * 1000000}, NULL);
    fake_put(store, &key, 1);
    kiln__lock_release(user);
    return NULL;
}

Test(cache_store, who_comes_second_gets_what_the_first_put)
{
    pthread_t thread;
    struct kiln__loaded loaded;
    struct kiln__lock first, second;
    cr_assert_eq(kiln__store_get_or_lock(store, &key, 0, &loaded, &first), KILN__STORE_LOCKED);
    cr_assert_eq(pthread_create(&thread, NULL, put_soon, &first), 0);
    cr_assert_eq(kiln__store_get_or_lock(store, &key, 20000, &loaded, &second), KILN__STORE_FOUND);
    cr_expect(fake_fits(&loaded, 1));
    kiln__store_unload(&loaded);
    pthread_join(thread, NULL);
    cr_expect_eq(fake_leftovers(), 0);
}

Test(cache_store, a_lock_dies_with_its_holder)
{
    struct kiln__loaded loaded;
    struct kiln__lock lock;
    pid_t child = fork();
    if (child == 0) {
        kiln__store_get_or_lock(store, &key, 0, &loaded, &lock);
        raise(SIGKILL);
    }
    cr_assert_eq(waitpid(child, NULL, 0), child);
    cr_expect_eq(fake_leftovers(), 1);
    cr_assert_eq(kiln__store_get_or_lock(store, &key, 0, &loaded, &lock), KILN__STORE_LOCKED);
    kiln__lock_release(&lock);
    cr_expect_eq(fake_leftovers(), 0);
}

/* Held for more than half a minute: its holder does something else than compile. */
Test(cache_store, nobody_waits_for_an_old_lock)
{
    char path[512];
    struct kiln__loaded loaded;
    struct kiln__lock first, second;
    const struct timespec times[2] = {{time(NULL) - 60, 0}, {time(NULL) - 60, 0}};
    cr_assert_eq(kiln__store_get_or_lock(store, &key, 0, &loaded, &first), KILN__STORE_LOCKED);
    snprintf(path, sizeof path, "%s/%s", fake_folder(), first.name);
    cr_assert_eq(utimensat(AT_FDCWD, path, times, 0), 0);
    double start = seconds();
    cr_expect_eq(kiln__store_get_or_lock(store, &key, 1000000, &loaded, &second),
                 KILN__STORE_UNLOCKED);
    cr_expect_lt(seconds() - start, 100.0);
    kiln__lock_release(&first);
}
