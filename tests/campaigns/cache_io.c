/* SPDX-License-Identifier: Apache-2.0 */
/* Every I/O call of the cache, and every malloc, fails in turn, and the process is killed at every
 * one. What comes out has to be right or a miss; afterwards the cache works as if nothing had been.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../support/cache.h"
#include "faulty_io.h"
#include "store/folder.h"

enum { THERE = 1, MISSING = 2, MOST_CALLS = 1000 };

static struct kiln__key there, missing;
static int runs, hits, wrong, left, unusable, lost;

static bool fits(struct kiln__disk_store *store, const struct kiln__key *key, int number,
                 bool *found)
{
    struct kiln__loaded loaded;
    *found = kiln__store_get(store, key, &loaded);
    bool good = !*found || fake_fits(&loaded, number);
    if (*found)
        kiln__store_unload(&loaded);
    return good;
}

/* What a process does with the cache: find one entry, make another. False: a wrong result. */
static bool use(void)
{
    bool found, good;
    struct kiln__loaded loaded;
    struct kiln__lock lock;
    struct kiln__disk_store *store = fake_open(0);
    good = fits(store, &there, THERE, &found);
    switch (kiln__store_get_or_lock(store, &missing, 0, &loaded, &lock)) {
    case KILN__STORE_FOUND:
        good = good && fake_fits(&loaded, MISSING);
        kiln__store_unload(&loaded);
        break;
    case KILN__STORE_LOCKED:
        fake_put(store, &missing, MISSING);
        kiln__lock_release(&lock);
        break;
    case KILN__STORE_UNLOCKED: fake_put(store, &missing, MISSING); break;
    }
    good = good && fits(store, &missing, MISSING, &found);
    kiln__store_close(store);
    return good;
}

/* One entry is there, and nothing else. */
static void prepare(void)
{
    char path[512];
    struct kiln__disk_store *store = fake_open(0);
    fake_path(&missing, path, sizeof path);
    unlink(path);
    if (!fake_put(store, &there, THERE))
        exit(99);
    kiln__store_close(store);
}

static void check_after(void)
{
    bool found;
    struct kiln__disk_store *store = fake_open(0);
    int folder = open(fake_folder(), O_RDONLY | O_DIRECTORY);
    kiln__folder_sweep(folder);
    close(folder);
    left += fake_leftovers();
    wrong += !fits(store, &there, THERE, &found);
    lost += !found; /* it was good, and others share it */
    wrong += !fits(store, &missing, MISSING, &found);
    wrong += kiln__store_failures(store) != 0; /* what is there is whole */
    bool usable = fake_put(store, &there, THERE) && fits(store, &there, THERE, &found) && found &&
                  fake_put(store, &missing, MISSING) && fits(store, &missing, MISSING, &found) &&
                  found;
    unusable += !usable;
    kiln__store_close(store);
}

/* In a child, for the kills. Answers whether the call was reached. */
static bool run_killed(const struct faulty_plan *plan)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        faulty_arm(plan);
        use();
        faulty_arm(NULL);
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child)
        exit(99);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

static bool run_failing(const struct faulty_plan *plan)
{
    faulty_arm(plan);
    bool good = use();
    faulty_arm(NULL);
    wrong += !good;
    hits += faulty_hits();
    return faulty_hits() > 0;
}

/* The n-th call for every n that there is. */
static void fail_in_turn(struct faulty_plan plan)
{
    bool kills = plan.kind == FAULTY_KILL_BEFORE || plan.kind == FAULTY_KILL_AFTER, reached = true;
    for (plan.call = 1; reached && plan.call < MOST_CALLS; plan.call++) {
        prepare();
        reached = kills ? run_killed(&plan) : run_failing(&plan);
        hits += kills && reached;
        runs++;
        check_after();
    }
}

/* Without the wrapper: no descriptor left, then one, then two and so on. */
static void starve(void)
{
    struct rlimit usual, few;
    getrlimit(RLIMIT_NOFILE, &usual);
    few = usual;
    for (few.rlim_cur = 3; few.rlim_cur < 12; few.rlim_cur++) {
        prepare();
        setrlimit(RLIMIT_NOFILE, &few);
        wrong += !use();
        setrlimit(RLIMIT_NOFILE, &usual);
        runs++;
        check_after();
    }
}

int main(void)
{
    static const int errors[] = {ENOSPC, EIO, EACCES, EROFS, EMFILE, ENFILE, ENOMEM, EINTR};
    fake_key(THERE, &there);
    fake_key(MISSING, &missing);
    for (int for_good = 0; for_good < 2; for_good++) {
        for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
            if (!for_good || errors[i] != EINTR) /* for good it would be no interruption */
                fail_in_turn((struct faulty_plan){0, for_good, FAULTY_ERROR, errors[i]});
        fail_in_turn((struct faulty_plan){0, for_good, FAULTY_SHORT, 0});
    }
    fail_in_turn((struct faulty_plan){0, false, FAULTY_KILL_BEFORE, 0});
    fail_in_turn((struct faulty_plan){0, false, FAULTY_KILL_AFTER, 0});
    starve();
    printf("%d runs with %d failed calls: %d wrong, %d good entries lost, %d left over after the "
           "sweep, %d caches of no use, %d renamed before they were synced\n",
           runs, hits, wrong, lost, left, unusable, faulty_unsynced());
    kiln__key_free(&there);
    kiln__key_free(&missing);
    fake_end();
    return wrong || lost || left || unusable || faulty_unsynced() || hits < 100;
}
