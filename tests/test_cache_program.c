/* SPDX-License-Identifier: Apache-2.0 */
/* Programs over a real driver: compiled once per machine, whatever happens to the disk. Each
 * process of these tests is a child with a driver cache of its own, so that only kiln's cache can
 * help. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <criterion/criterion.h>
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cache/directory.h"
#include "cache/entry.h"
#include "cache/file.h"
#include "cache/folder.h"
#include "cache/program.h"

enum { KERNELS = 3, ITEMS = 64 };

/* What a child process hands back through shared memory. */
struct outcome {
    struct kiln__programs_stats stats;
    bool fits;    /* results are right */
    bool skipped; /* no device */
    int failures;
};

struct setup {
    cl_context context;
    cl_command_queue queue;
    struct kiln__device device;
    struct kiln__programs *programs;
};

static char folder[64];
static struct outcome *shared; /* one for each of a few children */

static void make_folder(void)
{
    strcpy(folder, "/tmp/kiln-programs.XXXXXX");
    cr_assert(mkdtemp(folder) != NULL);
    shared =
        mmap(NULL, 16 * sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert(shared != MAP_FAILED);
}

static void remove_folder(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command))
        fprintf(stderr, "%s is left over\n", folder);
}

TestSuite(cache_program, .init = make_folder, .fini = remove_folder, .timeout = 120);

static bool start(struct setup *setup, kiln_cache_mode mode)
{
    char pocl[96], cache[80];
    const struct kiln__programs_options options = {cache, 0, mode};
    snprintf(cache, sizeof cache, "%s/kiln", folder);
    snprintf(pocl, sizeof pocl, "%s/pocl.%ld", folder, (long)getpid());
    mkdir(pocl, 0700);
    setenv("POCL_CACHE_DIR", pocl, 1);
    memset(setup, 0, sizeof *setup);
    if (kiln__device_choose(NULL, &setup->device, NULL))
        return false;
    setup->context = clCreateContext(NULL, 1, &setup->device.id, NULL, NULL, NULL);
    setup->queue = clCreateCommandQueue(setup->context, setup->device.id, 0, NULL);
    return setup->context && setup->queue &&
           !kiln__programs_create(setup->context, &setup->device, &options, &setup->programs, NULL);
}

static void stop(struct setup *setup)
{
    kiln__programs_destroy(setup->programs);
    clReleaseCommandQueue(setup->queue);
    clReleaseContext(setup->context);
}

/* Kernel `number` writes its number plus the item's. */
static kiln_status get(struct setup *setup, int number, struct kiln__program **program,
                       struct kiln__error *error)
{
    char source[160], name[16];
    snprintf(source, sizeof source,
             "__kernel void fill(__global int *out) { out[get_global_id(0)] = "
             "(int)get_global_id(0) + %d; }",
             number * 1000);
    snprintf(name, sizeof name, "fill %d", number);
    return kiln__programs_get(setup->programs, name, strlen(name), source, NULL, "fill", program,
                              error);
}

/* Launch it, hand the event over, and look at the result. */
static bool launch(struct setup *setup, struct kiln__program *program, int number)
{
    const size_t items = ITEMS, group = 1;
    int out[ITEMS];
    cl_event event = NULL;
    cl_mem buffer = clCreateBuffer(setup->context, CL_MEM_READ_WRITE, sizeof out, NULL, NULL);
    cl_kernel kernel = clCreateKernel(kiln__program_cl(program), "fill", NULL);
    bool wants = kiln__program_wants_launch(setup->programs, program);
    bool good =
        !clSetKernelArg(kernel, 0, sizeof buffer, &buffer) &&
        !clEnqueueNDRangeKernel(setup->queue, kernel, 1, NULL, &items, &group, 0, NULL, &event);
    clFlush(setup->queue);
    if (wants)
        kiln__program_launched(setup->programs, program, event);
    good = good &&
           !clEnqueueReadBuffer(setup->queue, buffer, CL_TRUE, 0, sizeof out, out, 0, NULL, NULL);
    for (int i = 0; good && i < ITEMS; i++)
        good = out[i] == number * 1000 + i;
    if (event)
        clReleaseEvent(event);
    clReleaseKernel(kernel);
    clReleaseMemObject(buffer);
    return good;
}

/* All kernels once, as a program would. */
static void use_all(struct outcome *outcome, kiln_cache_mode mode)
{
    struct setup setup;
    outcome->skipped = !start(&setup, mode);
    if (outcome->skipped)
        return;
    outcome->fits = true;
    for (int number = 0; number < KERNELS; number++) {
        struct kiln__program *program;
        if (get(&setup, number, &program, NULL) || !launch(&setup, program, number))
            outcome->fits = false;
    }
    kiln__programs_sync(setup.programs);
    kiln__programs_get_stats(setup.programs, &outcome->stats);
    stop(&setup);
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

/* Files in the cache that end so. */
static int files_with(const char *suffix)
{
    char path[80];
    int count = 0;
    snprintf(path, sizeof path, "%s/kiln", folder);
    DIR *walk = opendir(path);
    for (struct dirent *found; walk && (found = readdir(walk));)
        count += strlen(found->d_name) > strlen(suffix) &&
                 !strcmp(found->d_name + strlen(found->d_name) - strlen(suffix), suffix);
    if (walk)
        closedir(walk);
    return count;
}

Test(cache_program, a_second_process_compiles_nothing)
{
    expect_counts(&in_a_process(KILN_CACHE_ON)->stats, KERNELS, 0, KERNELS, 0);
    cr_expect_eq(files_with(".bin"), KERNELS);
    cr_expect_eq(files_with(".lock"), 0);
    cr_expect_eq(files_with(".tmp"), 0);
    expect_counts(&in_a_process(KILN_CACHE_ON)->stats, 0, KERNELS, 0, 0);
}

Test(cache_program, read_only_reads_and_off_does_neither)
{
    expect_counts(&in_a_process(KILN_CACHE_READ_ONLY)->stats, KERNELS, 0, 0, 0);
    expect_counts(&in_a_process(KILN_CACHE_OFF)->stats, KERNELS, 0, 0, 0);
    cr_expect_eq(files_with(".bin"), 0);
    expect_counts(&in_a_process(KILN_CACHE_ON)->stats, KERNELS, 0, KERNELS, 0);
    expect_counts(&in_a_process(KILN_CACHE_READ_ONLY)->stats, 0, KERNELS, 0, 0);
    expect_counts(&in_a_process(KILN_CACHE_OFF)->stats, KERNELS, 0, 0, 0);
}

/* The entry as it was, but with other bytes for the driver: only the driver can find out. */
static void replace_payload(int at, const char *file)
{
    void *bytes;
    size_t length;
    const char *why;
    struct kiln__entry entry;
    struct kiln__text changed = {0};
    struct kiln__writer writer;
    cr_assert_eq(kiln__file_read(at, file, 1 << 30, false, &bytes, &length, &why), KILN__FILE_READ);
    cr_assert(kiln__entry_decode(bytes, length, &entry, &why));
    entry.sections[KILN__ENTRY_PAYLOAD] = (struct kiln__span){"no binary", 9};
    kiln__entry_encode(&entry, &changed);
    kiln__writer_begin(&writer, at, file, 0600);
    kiln__writer_add(&writer, changed.data, changed.length);
    cr_assert(kiln__writer_commit(&writer));
    kiln__text_free(&changed);
    free(bytes);
}

Test(cache_program, what_the_driver_refuses_is_replaced)
{
    in_a_process(KILN_CACHE_ON);
    char path[80];
    const char *why;
    struct kiln__items items;
    snprintf(path, sizeof path, "%s/kiln", folder);
    int at = kiln__directory_open(path, false, &why);
    cr_assert(at >= 0 && kiln__folder_list(at, &items));
    for (size_t i = 0; i < items.list.count; i++)
        replace_payload(at, items.list.items[i].file);
    kiln__folder_free(&items);
    close(at);
    expect_counts(&in_a_process(KILN_CACHE_ON)->stats, KERNELS, 0, KERNELS, KERNELS);
    expect_counts(&in_a_process(KILN_CACHE_ON)->stats, 0, KERNELS, 0, 0);
}

Test(cache_program, processes_that_miss_together_compile_once)
{
    enum { CHILDREN = 4 };
    pid_t children[CHILDREN];
    uint64_t compiled = 0, loaded = 0;
    for (int i = 0; i < CHILDREN; i++)
        children[i] = run_child(&shared[i], KILN_CACHE_ON);
    for (int i = 0; i < CHILDREN; i++) {
        wait_child(children[i]);
        if (shared[i].skipped)
            cr_skip("no OpenCL device here");
        cr_expect(shared[i].fits);
        compiled += shared[i].stats.compiled;
        loaded += shared[i].stats.from_disk;
    }
    cr_expect_eq(compiled + loaded, CHILDREN * KERNELS);
    /* On a busy machine a wait may run out; without waiting it is 12. */
    cr_expect_leq(compiled, KERNELS + 2, "%d programs compiled", (int)compiled);
    cr_expect_eq(files_with(".lock"), 0);
}

/* ---- within one process ---- */

static struct setup here;

static void start_here(void)
{
    if (!start(&here, KILN_CACHE_ON))
        cr_skip("no OpenCL device here");
}

static void *ask(void *user)
{
    struct kiln__program **program = user;
    get(&here, 7, program, NULL);
    return NULL;
}

Test(cache_program, threads_that_ask_together_compile_once)
{
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    struct kiln__program *programs[THREADS];
    struct kiln__programs_stats stats;
    start_here();
    for (int i = 0; i < THREADS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, ask, &programs[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        cr_expect(programs[i] && programs[i] == programs[0]);
    }
    kiln__programs_get_stats(here.programs, &stats);
    cr_expect_eq(stats.compiled, 1u);
    cr_expect_eq(stats.from_memory, (uint64_t)THREADS - 1);
    cr_expect_eq(kiln__programs_find(here.programs, "fill 7", 6), programs[0]);
    cr_expect_null(kiln__programs_find(here.programs, "fill 8", 6));
    stop(&here);
}

Test(cache_program, a_failed_build_says_what_the_compiler_said)
{
    struct kiln__program *program;
    struct kiln__error error = {0};
    start_here();
    for (int i = 0; i < 2; i++) {
        error = (struct kiln__error){0};
        kiln_status status =
            kiln__programs_get(here.programs, "bad", 3, "__kernel void bad() { nonsense; }", "",
                               "bad", &program, &error);
        cr_expect_eq(status, KILN_BUILD_FAILED);
        cr_expect_null(program);
        cr_expect_eq(strncmp(error.text, "kernel bad could not be compiled: ", 34), 0);
        cr_expect(strstr(error.text, "nonsense") != NULL, "%s", error.text);
        cr_expect_str_eq(kiln_last_error(), error.text);
    }
    cr_expect_eq(files_with(".lock"), 0);
    stop(&here);
}

Test(cache_program, a_binary_is_stored_after_a_launch_and_not_before)
{
    struct kiln__program *program;
    struct kiln__programs_stats stats;
    start_here();
    cr_assert_eq(get(&here, 1, &program, NULL), KILN_OK);
    kiln__programs_sync(here.programs);
    kiln__programs_get_stats(here.programs, &stats);
    if (!here.device.traits->late_binary) {
        cr_expect_eq(stats.stores, 1u);
        cr_expect_not(kiln__program_wants_launch(here.programs, program));
        stop(&here);
        return;
    }
    cr_expect_eq(stats.stores, 0u);
    cr_expect_eq(files_with(".lock"), 1);
    /* A launch that failed leaves the wish; one that is asked for twice is granted once. */
    cr_expect(kiln__program_wants_launch(here.programs, program));
    cr_expect_not(kiln__program_wants_launch(here.programs, program));
    kiln__program_launched(here.programs, program, NULL);
    cr_expect(launch(&here, program, 1));
    kiln__programs_sync(here.programs);
    kiln__programs_get_stats(here.programs, &stats);
    cr_expect_eq(stats.stores, 1u);
    cr_expect_not(kiln__program_wants_launch(here.programs, program));
    cr_expect_eq(files_with(".lock"), 0);
    stop(&here);
}

Test(cache_program, a_launch_that_ends_in_an_error_is_none)
{
    struct kiln__program *program;
    struct kiln__programs_stats stats;
    start_here();
    cr_assert_eq(get(&here, 1, &program, NULL), KILN_OK);
    if (!here.device.traits->late_binary)
        cr_skip("this device's binaries need no launch");
    cl_event event = clCreateUserEvent(here.context, NULL);
    cr_assert(kiln__program_wants_launch(here.programs, program));
    kiln__program_launched(here.programs, program, event);
    clSetUserEventStatus(event, CL_OUT_OF_RESOURCES);
    clReleaseEvent(event);
    kiln__programs_sync(here.programs);
    kiln__programs_get_stats(here.programs, &stats);
    cr_expect_eq(stats.stores, 0u);
    cr_expect(launch(&here, program, 1));
    kiln__programs_sync(here.programs);
    kiln__programs_get_stats(here.programs, &stats);
    cr_expect_eq(stats.stores, 1u);
    stop(&here);
}

Test(cache_program, what_was_never_launched_leaves_nothing)
{
    struct kiln__program *program;
    start_here();
    cr_assert_eq(get(&here, 1, &program, NULL), KILN_OK);
    bool late = here.device.traits->late_binary;
    stop(&here);
    cr_expect_eq(files_with(".bin"), late ? 0 : 1);
    cr_expect_eq(files_with(".lock"), 0);
}

Test(cache_program, a_child_of_fork_is_told_at_once)
{
    struct kiln__program *program;
    start_here();
    cr_assert_eq(get(&here, 1, &program, NULL), KILN_OK);
    cr_assert(launch(&here, program, 1));
    pid_t child = fork();
    if (child == 0) {
        struct timespec begin, end;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        bool good = get(&here, 2, &program, NULL) == KILN_FORKED;
        kiln__programs_sync(here.programs);
        kiln__programs_destroy(here.programs);
        clock_gettime(CLOCK_MONOTONIC, &end);
        double ms = (double)(end.tv_sec - begin.tv_sec) * 1e3 +
                    (double)(end.tv_nsec - begin.tv_nsec) * 1e-6;
        _exit(!good || ms > 100);
    }
    wait_child(child);
    /* The child took nothing along. */
    cr_expect_eq(get(&here, 2, &program, NULL), KILN_OK);
    cr_expect(launch(&here, program, 2));
    stop(&here);
    cr_expect_eq(files_with(".bin"), 2);
}

Test(cache_program, a_folder_that_cannot_be_used_costs_only_time)
{
    char path[80];
    struct kiln__program *program;
    struct kiln__programs_stats stats;
    snprintf(path, sizeof path, "%s/kiln", folder);
    mkdir(path, 0777);
    chmod(path, 0777);
    start_here();
    cr_assert_eq(get(&here, 1, &program, NULL), KILN_OK);
    cr_expect_not(kiln__program_wants_launch(here.programs, program));
    cr_expect(launch(&here, program, 1));
    kiln__programs_get_stats(here.programs, &stats);
    expect_counts(&stats, 1, 0, 0, 1);
    cr_expect_eq(files_with(".bin"), 0);
    stop(&here);
}
