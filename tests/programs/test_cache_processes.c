/* SPDX-License-Identifier: Apache-2.0 */
/* Programs of several processes: compiled once per machine, whatever happens to the disk. Each
 * process is a child with a driver cache of its own. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../support/fill.h"
#include "../support/layer.h"
#include "store/entry.h"
#include "store/folder.h"
#include "store/location.h"
#include "store/store_file.h"

enum { KERNELS = 3 };

/* What a child process hands back through shared memory. */
struct outcome {
    struct kiln__programs_stats stats;
    bool fits;    /* results are right */
    bool skipped; /* no device */
    bool rusticl;
};

static struct outcome *shared; /* one for each of a few children */

static void begin(void)
{
    fill_folder();
    shared =
        mmap(NULL, 16 * sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert(shared != MAP_FAILED);
}

TestSuite(cache_processes, .init = begin, .fini = fill_end, .timeout = 300);

/* All kernels once, as a program would. */
static void use_all(struct outcome *outcome, kiln_cache_mode mode)
{
    struct fill fill;
    outcome->skipped = !fill_start(&fill, mode);
    if (outcome->skipped)
        return;
    outcome->rusticl = !strcmp(fill.device.info.platform, "rusticl");
    outcome->fits = true;
    for (int number = 0; number < KERNELS; number++) {
        struct kiln__program *program;
        if (fill_get(&fill, number, &program, NULL) || !fill_launch(&fill, program, number))
            outcome->fits = false;
    }
    kiln__programs_sync(fill.programs);
    kiln__programs_get_stats(fill.programs, &outcome->stats);
    fill_stop(&fill);
}

static pid_t run_child(struct outcome *outcome, kiln_cache_mode mode)
{
    memset(outcome, 0, sizeof *outcome);
    pid_t child = fork();
    if (child == 0) {
        use_all(outcome, mode);
        _exit(0);
    }
    return child;
}

static void wait_child(pid_t child)
{
    int status = -1;
    cr_assert(child > 0 && waitpid(child, &status, 0) == child);
    cr_assert_eq(status, 0, "a child ended with %#x", (unsigned)status);
}

static const struct outcome *in_a_process(kiln_cache_mode mode)
{
    wait_child(run_child(&shared[0], mode));
    if (shared[0].skipped)
        cr_skip("no OpenCL device here");
    cr_assert(shared[0].fits);
    return &shared[0];
}

static void expect_counts(const struct kiln__programs_stats *stats, unsigned compiled,
                          unsigned from_disk, unsigned stores, unsigned failures)
{
    cr_expect_eq(stats->compiled, compiled);
    cr_expect_eq(stats->from_disk, from_disk);
    cr_expect_eq(stats->stores, stores);
    cr_expect_eq(stats->failures, failures);
}

Test(cache_processes, a_second_process_compiles_nothing)
{
    expect_counts(&in_a_process(KILN_CACHE_ON)->stats, KERNELS, 0, KERNELS, 0);
    cr_expect_eq(fill_files(".bin"), KERNELS);
    cr_expect_eq(fill_files(".lock"), 0);
    cr_expect_eq(fill_files(".tmp"), 0);
    expect_counts(&in_a_process(KILN_CACHE_ON)->stats, 0, KERNELS, 0, 0);
}

Test(cache_processes, read_only_reads_and_off_does_neither)
{
    expect_counts(&in_a_process(KILN_CACHE_READ_ONLY)->stats, KERNELS, 0, 0, 0);
    expect_counts(&in_a_process(KILN_CACHE_OFF)->stats, KERNELS, 0, 0, 0);
    cr_expect_eq(fill_files(".bin"), 0);
    expect_counts(&in_a_process(KILN_CACHE_ON)->stats, KERNELS, 0, KERNELS, 0);
    expect_counts(&in_a_process(KILN_CACHE_READ_ONLY)->stats, 0, KERNELS, 0, 0);
    expect_counts(&in_a_process(KILN_CACHE_OFF)->stats, KERNELS, 0, 0, 0);
}

/* The entry as it was, but with other bytes for the driver: only the driver can find out. */
static void replace_payload(int at, const char *file)
{
    const char *why;
    struct kiln__file old;
    struct kiln__entry entry;
    struct kiln__text changed = {0};
    struct kiln__writer writer;
    cr_assert_eq(kiln__file_read(at, file, 1 << 30, false, &old), KILN__FILE_READ);
    cr_assert(kiln__entry_decode(old.bytes, old.length, &entry, &why));
    entry.sections[KILN__ENTRY_PAYLOAD] = (struct kiln__span){"no binary", 9};
    kiln__entry_encode(&entry, &changed);
    kiln__writer_begin(&writer, at, file, 0600);
    kiln__writer_add(&writer, changed.data, changed.length);
    cr_assert(kiln__writer_commit(&writer));
    kiln__text_free(&changed);
    free(old.bytes);
}

/* Asks for a kernel while the driver has no memory, and ends before it has launched it. */
static pid_t run_troubled(void)
{
    pid_t child = fork();
    if (child == 0) {
        struct fill fill;
        struct kiln__program *program;
        shared[0].skipped =
            !fill_start(&fill, KILN_CACHE_ON) ||
            !layer_fail_next("clCreateProgramWithBinary", CL_OUT_OF_HOST_MEMORY, KILN_LAYER_CALL);
        if (!shared[0].skipped)
            fill_get(&fill, 0, &program, NULL);
        _exit(0);
    }
    return child;
}

/* It says nothing about the entries, which are good for all others. */
Test(cache_processes, the_drivers_trouble_takes_no_entry_away)
{
    in_a_process(KILN_CACHE_ON);
    wait_child(run_troubled());
    if (shared[0].skipped)
        cr_skip("run with the counting layer");
    cr_expect_eq(fill_files(".bin"), KERNELS);
}

Test(cache_processes, what_the_driver_refuses_is_replaced)
{
    if (in_a_process(KILN_CACHE_ON)->rusticl)
        cr_skip("rusticl ends a process that hands it a binary that is none");
    char path[300];
    const char *why;
    struct kiln__items items;
    snprintf(path, sizeof path, "%s/kiln", fill_folder());
    int at = kiln__location_open(path, false, &why);
    cr_assert(at >= 0 && kiln__folder_list(at, &items));
    for (size_t i = 0; i < items.list.count; i++)
        replace_payload(at, items.list.items[i].file);
    kiln__folder_free(&items);
    close(at);
    expect_counts(&in_a_process(KILN_CACHE_ON)->stats, KERNELS, 0, KERNELS, KERNELS);
    expect_counts(&in_a_process(KILN_CACHE_ON)->stats, 0, KERNELS, 0, 0);
}

Test(cache_processes, processes_that_miss_together_all_get_it_right)
{
    enum { CHILDREN = 4 };
    pid_t children[CHILDREN];
    for (int i = 0; i < CHILDREN; i++)
        children[i] = run_child(&shared[i], KILN_CACHE_ON);
    for (int i = 0; i < CHILDREN; i++) {
        wait_child(children[i]);
        if (shared[i].skipped)
            cr_skip("no OpenCL device here");
        cr_expect(shared[i].fits);
        cr_expect_eq(shared[i].stats.compiled + shared[i].stats.from_disk, KERNELS);
        cr_expect_eq(shared[i].stats.failures, 0u);
    }
    cr_expect_eq(fill_files(".bin"), KERNELS);
    cr_expect_eq(fill_files(".lock"), 0);
}

static void wait_until(atomic_int *what, int value)
{
    while (atomic_load(what) < value)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* Compiles, and launches only when another one has it. */
static void come_first(struct outcome *outcome, atomic_int *step)
{
    struct fill fill;
    struct kiln__program *program = NULL;
    outcome->skipped = !fill_start(&fill, KILN_CACHE_ON);
    outcome->fits = !outcome->skipped && !fill_get(&fill, 1, &program, NULL);
    atomic_store(step, 1);
    if (!outcome->fits)
        return;
    wait_until(step, 2);
    outcome->fits = fill_launch(&fill, program, 1);
    kiln__programs_get_stats(fill.programs, &outcome->stats);
    fill_stop(&fill);
}

static void come_second(struct outcome *outcome, atomic_int *step)
{
    struct fill fill;
    struct kiln__program *program;
    outcome->skipped = !fill_start(&fill, KILN_CACHE_ON);
    wait_until(step, 1);
    if (!outcome->skipped)
        outcome->fits = !fill_get(&fill, 1, &program, NULL);
    atomic_store(step, 2);
    if (outcome->skipped)
        return;
    outcome->fits = outcome->fits && fill_launch(&fill, program, 1);
    kiln__programs_get_stats(fill.programs, &outcome->stats);
    fill_stop(&fill);
}

/* The first one launches only when the second one has the program: who waited for the entry would
 * wait in vain. */
Test(cache_processes, who_comes_second_does_not_wait_for_the_first_to_store)
{
    static void (*const roles[])(struct outcome *, atomic_int *) = {come_first, come_second};
    atomic_int *step = (atomic_int *)&shared[8];
    pid_t children[2];
    for (int i = 0; i < 2; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            roles[i](&shared[i], step);
            _exit(0);
        }
    }
    wait_child(children[0]);
    wait_child(children[1]);
    if (shared[0].skipped)
        cr_skip("no OpenCL device here");
    cr_expect(shared[0].fits && shared[1].fits);
    cr_expect_eq(shared[1].stats.compiled + shared[1].stats.from_disk, 1u);
    cr_expect_eq(shared[0].stats.failures + shared[1].stats.failures, 0u);
}
