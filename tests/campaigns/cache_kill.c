/* SPDX-License-Identifier: Apache-2.0 */
/* Race and kill: eight processes use forty entries of one folder that is too small for them, and
 * one after another is killed at random. Nobody may ever see a wrong or a broken entry, nobody may
 * hang, and a sweep leaves nothing behind. 200 kills; 10,000 with the argument "long". */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../support/cache.h"
#include "store/folder.h"

enum { PROCESSES = 8, KEYS = 40, HANG_MS = 120000 };

#define LIMIT ((uint64_t)900 << 10)

/* Shared by all processes. */
static struct {
    atomic_ullong hits, puts, wrong, broken;
    atomic_ullong done[PROCESSES]; /* uses of an entry */
    /* Who holds the lock of a key: a life of a process; 0: nobody. A killed one's stays. */
    atomic_ullong holders[KEYS], lives[PROCESSES];
    atomic_ullong doubles;
} * shared;

static unsigned long long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (unsigned long long)now.tv_sec * 1000 + (unsigned long long)now.tv_nsec / 1000000;
}

static void pause_us(uint64_t us)
{
    nanosleep(&(struct timespec){(time_t)(us / 1000000), (long)(us % 1000000) * 1000}, NULL);
}

/* A life's number tells the process: life * PROCESSES + process. */
static void note_holder(int number, unsigned long long life)
{
    unsigned long long before = atomic_exchange(&shared->holders[number], life);
    if (before && atomic_load(&shared->lives[before % PROCESSES]) == before)
        atomic_fetch_add(&shared->doubles, 1);
}

/* As a program does: use the entry, else make it. */
static void use(struct kiln__disk_store *store, const struct kiln__key *key, int number,
                unsigned long long life, uint64_t *random)
{
    struct kiln__loaded loaded;
    struct kiln__lock lock;
    switch (kiln__store_get_or_lock(store, key, 100, &loaded, &lock)) {
    case KILN__STORE_FOUND:
        atomic_fetch_add(fake_fits(&loaded, number) ? &shared->hits : &shared->wrong, 1);
        kiln__store_unload(&loaded);
        break;
    case KILN__STORE_LOCKED:
        note_holder(number, life);
        pause_us(fake_random(random) % 2000); /* "compiles" */
        atomic_fetch_add(&shared->puts, fake_put(store, key, number));
        atomic_store(&shared->holders[number], 0);
        kiln__lock_release(&lock);
        break;
    case KILN__STORE_UNLOCKED: atomic_fetch_add(&shared->puts, fake_put(store, key, number)); break;
    }
}

/* Someone clears the cache, entry by entry, or sweeps it. */
static void disturb(int folder, const struct kiln__key *key, uint64_t *random)
{
    char file[48];
    snprintf(file, sizeof file, "%s" KILN__ENTRY_SUFFIX, key->name);
    if (fake_random(random) % 3 == 0)
        kiln__folder_remove(folder, file);
    if (fake_random(random) % 50 == 0)
        kiln__folder_sweep(folder);
}

/* Only what is broken counts as a failure here: no disk is full, and nothing else is wrong. */
static void work(int process, const struct kiln__key *keys)
{
    uint64_t random = (uint64_t)getpid() << 32 ^ now_ms();
    unsigned long long life = atomic_load(&shared->lives[process]);
    struct kiln__disk_store *store = fake_open(LIMIT);
    int folder = open(fake_folder(), O_RDONLY | O_DIRECTORY);
    for (uint64_t failures = 0;;) {
        int number = (int)(fake_random(&random) % KEYS);
        use(store, &keys[number], number, life, &random);
        disturb(folder, &keys[number], &random);
        atomic_fetch_add(&shared->done[process], 1);
        uint64_t all = kiln__store_failures(store);
        atomic_fetch_add(&shared->broken, all - failures);
        failures = all;
    }
}

static pid_t spawn(int process, const struct kiln__key *keys)
{
    atomic_fetch_add(&shared->lives[process], PROCESSES);
    pid_t child = fork();
    if (child == 0)
        work(process, keys);
    if (child < 0) {
        perror("fork");
        exit(99);
    }
    return child;
}

/* Its life ends first, so that whoever gets its locks is not taken for a second holder. */
static void end(int process, pid_t child)
{
    atomic_fetch_add(&shared->lives[process], PROCESSES);
    kill(child, SIGKILL);
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
        ;
}

/* Each goes on, however late it is where nine processes and others share a processor. */
static int count_hangs(void)
{
    int hangs = 0;
    for (int i = 0; i < PROCESSES; i++) {
        unsigned long long before = atomic_load(&shared->done[i]);
        int naps = 0;
        while (atomic_load(&shared->done[i]) == before && naps++ < HANG_MS)
            pause_us(1000);
        hangs += naps > HANG_MS;
    }
    return hangs;
}

/* 0 hangs is what counts, not how many. */
static int run(int kills, const struct kiln__key *keys)
{
    uint64_t random = now_ms();
    pid_t children[PROCESSES];
    int hangs = 0;
    for (int i = 0; i < PROCESSES; i++)
        children[i] = spawn(i, keys);
    for (int i = 0; i < kills; i++) {
        int victim = (int)(fake_random(&random) % PROCESSES);
        pause_us(fake_random(&random) % 30000);
        if (i % 20 == 0)
            hangs += count_hangs();
        end(victim, children[victim]);
        children[victim] = spawn(victim, keys);
    }
    hangs += count_hangs();
    for (int i = 0; i < PROCESSES; i++)
        end(i, children[i]);
    return hangs;
}

/* Entries that are there at the end and are not what they should be. */
static int count_wrong(const struct kiln__key *keys, int *there)
{
    struct kiln__disk_store *store = fake_open(LIMIT);
    struct kiln__loaded loaded;
    int wrong = 0;
    for (int i = 0; i < KEYS; i++)
        if (kiln__store_get(store, &keys[i], &loaded)) {
            ++*there;
            wrong += !fake_fits(&loaded, i);
            kiln__store_unload(&loaded);
        }
    wrong += (int)kiln__store_failures(store);
    kiln__store_close(store);
    return wrong;
}

int main(int argc, char **argv)
{
    int kills = campaign_is_long(argc, argv) ? 10000 : 200, there = 0;
    struct kiln__key keys[KEYS];
    fake_folder();
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 99;
    for (unsigned i = 0; i < PROCESSES; i++)
        atomic_store(&shared->lives[i], i);
    for (int i = 0; i < KEYS; i++)
        fake_key(i, &keys[i]);
    int hangs = run(kills, keys);
    int before = fake_leftovers();
    int folder = open(fake_folder(), O_RDONLY | O_DIRECTORY);
    kiln__folder_sweep(folder);
    close(folder);
    int after = fake_leftovers();
    unsigned long long wrong = atomic_load(&shared->wrong), broken = atomic_load(&shared->broken),
                       doubles = atomic_load(&shared->doubles);
    broken += (unsigned)count_wrong(keys, &there);
    printf("%d kills, %llu hits, %llu puts, %d of %d entries at the end: %llu wrong results, "
           "%llu broken entries, %llu double holders, %d hangs, %d left over after the sweep (%d "
           "before)\n",
           kills, atomic_load(&shared->hits), atomic_load(&shared->puts), there, KEYS, wrong,
           broken, doubles, hangs, after, before);
    for (int i = 0; i < KEYS; i++)
        kiln__key_free(&keys[i]);
    fake_end();
    bool worked = atomic_load(&shared->hits) > 0 && atomic_load(&shared->puts) > 0 && there > 0;
    return wrong || broken || doubles || hangs || after || !worked;
}
