/* SPDX-License-Identifier: Apache-2.0 */
/* A clock that moves: by seconds, hours and years, to and fro, while a small cache is used; and
 * entries that somebody dated at random. A new entry has to stay when it is put, what is used all
 * the time has to stay (as far as the limit has room for it), and the limit has to hold. "long"
 * takes minutes.
 *
 * The program's own clock_gettime() counts before the C library's. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <kiln/cache.h>

#include "../support/cache.h"

enum { KEYS = 60, FAVOURITES = 3 };

static const uint64_t limit = 800000; /* some 24 entries */
static int64_t offset;                /* of the clock, in seconds */
static uint64_t seed = 1;
static struct kiln__key keys[KEYS];
static int stored, pushed_out, uses, forgotten, beyond, moves, dated;

/* By the linker's --wrap=fsync: nothing here is to outlive a power cut, and thousands of files are
 * written. */
int __wrap_fsync(int fd);

int __wrap_fsync(int fd)
{
    (void)fd;
    return 0;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (clock == CLOCK_REALTIME)
        now->tv_sec += offset;
    return failed;
}

static bool is_there(struct kiln__disk_store *store, int number)
{
    struct kiln__loaded loaded;
    if (!kiln__store_get(store, &keys[number], &loaded))
        return false;
    bool fits = fake_fits(&loaded, number);
    kiln__store_unload(&loaded);
    return fits;
}

/* As a program does: from the cache, else made and put. Answers whether it was there. */
static bool use(struct kiln__disk_store *store, int number)
{
    kiln_cache_stats stats;
    if (is_there(store, number))
        return true;
    stored += fake_put(store, &keys[number], number);
    pushed_out += !is_there(store, number);
    beyond += kiln_cache_get_stats(fake_folder(), &stats) || stats.bytes > limit;
    return false;
}

/* Years ahead and back again are what a machine without a battery does. */
static void move_clock(void)
{
    static const int64_t ways[] = {30, 3600, 86400, 30 * 86400, 3 * 365 * 86400};
    int64_t way = ways[fake_random(&seed) % (sizeof ways / sizeof *ways)];
    bool back = fake_random(&seed) % 2;
    if (offset > 10 * 365 * 86400LL || offset < -10 * 365 * 86400LL)
        offset = 0;
    else
        offset += back ? -way : way;
    moves++;
}

static void date_entry(int number, int64_t ahead)
{
    char path[512];
    struct timespec dates[2];
    clock_gettime(CLOCK_REALTIME, &dates[0]);
    dates[0].tv_sec += ahead;
    dates[1] = dates[0];
    fake_path(&keys[number], path, sizeof path);
    dated += !utimensat(AT_FDCWD, path, dates, 0);
}

/* Some entries at random, or all that there are by a clock that is years ahead. */
static void date_entries(int round)
{
    for (int i = 0; round % 3 == 0 && i < KEYS; i += 2)
        date_entry(i, (int64_t)(fake_random(&seed) % 8000000) - 4000000);
    for (int i = 0; round % 5 == 0 && i < KEYS; i++)
        date_entry(i, 5 * 365 * 86400);
}

/* The favourites are used once per turn, and a new kernel comes with each. */
static void take_turns(struct kiln__disk_store *store, int turns)
{
    for (int turn = 0; turn < turns; turn++) {
        for (int i = 0; i < FAVOURITES; i++, uses++)
            forgotten += !use(store, i) && turn;
        use(store, FAVOURITES + (int)(fake_random(&seed) % (KEYS - FAVOURITES)));
        offset += 61; /* a use is noted once a minute */
    }
}

int main(int argc, char **argv)
{
    const int rounds = campaign_is_long(argc, argv) ? 3000 : 25;
    struct kiln__disk_store *store = fake_open(limit);
    for (int i = 0; i < KEYS; i++)
        fake_key(i, &keys[i]);
    for (int round = 0; round < rounds; round++) {
        move_clock();
        date_entries(round);
        take_turns(store, 12);
    }
    printf("%d puts and %d uses while the clock moved %d times and %d entries got other dates: %d "
           "pushed out at once, %d in use forgotten, %d times beyond the limit\n",
           stored, uses, moves, dated, pushed_out, forgotten, beyond);
    kiln__store_close(store);
    for (int i = 0; i < KEYS; i++)
        kiln__key_free(&keys[i]);
    fake_end();
    return pushed_out || forgotten || beyond || stored < rounds || !dated;
}
