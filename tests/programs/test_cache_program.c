/* SPDX-License-Identifier: Apache-2.0 */
/* Programs within one process: threads, launches, errors, a fork. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../support/cache.h"
#include "../support/fill.h"
#include "../support/layer.h"
#include "../support/missing.h"
#include "programs/fetch_interlock.h"
#include "util/text.h"

static void begin(void)
{
    fill_folder();
}

TestSuite(cache_program, .init = begin, .fini = fill_end, .timeout = 300);

static struct fill here;

static void start_here(void)
{
    if (!fill_start(&here, KILN_CACHE_ON))
        cr_skip("no OpenCL device here");
}

static void *ask(void *user)
{
    struct kiln__program **program = user;
    fill_get(&here, 7, program, NULL);
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
    fill_stop(&here);
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
    cr_expect_eq(fill_files(".lock"), 0);
    fill_stop(&here);
}

/* As a driver's does whose cache several processes write. One that says why is no better later. */
Test(cache_program, a_build_that_fails_without_a_word_is_tried_once_more)
{
    static const char *const texts[] = {"__kernel void once() {}", "__kernel void ever() {}",
                                        "__kernel void bad() { nonsense; }"};
    static const char *const names[] = {"once", "ever", "bad"};
    struct kiln__program *program;
    start_here();
    if (!layer_available())
        cr_skip("run with OPENCL_LAYERS=.../kiln-layer.so");
    for (int i = 0; i < 3; i++) {
        struct kiln__error error = {0};
        layer_reset();
        if (i < 2)
            layer_fail(1, "clBuildProgram", CL_BUILD_PROGRAM_FAILURE,
                       i ? KILN_LAYER_FOREVER : KILN_LAYER_ONCE, KILN_LAYER_CALL);
        kiln_status status = kiln__programs_get(here.programs, names[i], 4, texts[i], "", names[i],
                                                &program, &error);
        cr_expect_eq(status, i ? KILN_BUILD_FAILED : KILN_OK, "%s", names[i]);
        cr_expect_eq(layer_count("clBuildProgram"), i < 2 ? 2u : 1u, "%s", names[i]);
    }
    layer_reset();
    fill_stop(&here);
}

/* A binary here is no text, and not what an edit looks for. */
Test(cache_program, a_program_whose_edits_do_not_match_is_a_failed_build)
{
    static const char source[] = "//edit 2 \"//!no such text\" \"\"\n__kernel void odd() {}\n";
    struct kiln__program *program;
    struct kiln__error error = {0};
    start_here();
    cr_expect_eq(kiln__programs_get(here.programs, "odd", 3, source, NULL, "odd", &program, &error),
                 KILN_BUILD_FAILED);
    cr_expect_null(program);
    cr_expect_str_eq(error.text, "kernel odd cannot be edited: "
                                 "\"//!no such text\" is there 0 times, not 2");
    cr_expect_eq(fill_files(".lock"), 0);
    fill_stop(&here);
}

/* What comes before the first error does not push it out of the sentence. */
Test(cache_program, the_first_error_is_what_is_said)
{
    struct kiln__text source = {0};
    struct kiln__program *program;
    struct kiln__error error = {0};
    start_here();
    for (int i = 0; i < 20; i++)
        kiln__text_add(&source, "#warning a warning that takes some room in the log of this\n");
    kiln__text_add(&source, "__kernel void bad() { nonsense; }");
    cr_expect_eq(
        kiln__programs_get(here.programs, "bad", 3, source.data, NULL, "bad", &program, &error),
        KILN_BUILD_FAILED);
    cr_expect(strstr(error.text, "nonsense") != NULL, "%s", error.text);
    kiln__text_free(&source);
    fill_stop(&here);
}

Test(cache_program, a_binary_is_stored_after_a_launch_and_not_before)
{
    struct kiln__program *program;
    struct kiln__programs_stats stats;
    start_here();
    cr_assert_eq(fill_get(&here, 1, &program, NULL), KILN_OK);
    kiln__programs_sync(here.programs);
    kiln__programs_get_stats(here.programs, &stats);
    bool late = here.device.traits->late_binary;
    cr_expect_eq(stats.stores, late ? 0u : 1u);
    cr_expect_eq(stats.pending, 0u);
    cr_expect_eq(fill_files(".lock"), 0);
    for (int i = 0; i < 2; i++) {
        cr_expect(fill_launch(&here, program, 1));
        kiln__programs_sync(here.programs);
        kiln__programs_get_stats(here.programs, &stats);
        cr_expect_eq(stats.stores, 1u);
        cr_expect_eq(stats.failures, 0u);
        cr_expect_eq(fill_files(".bin"), 1);
    }
    fill_stop(&here);
}

/* Somebody enqueues all the time: the gate is never free to be closed. */
Test(cache_program, a_busy_process_stores_all_the_same)
{
    struct kiln__program *program;
    struct kiln__programs_stats stats;
    start_here();
    cr_assert_eq(fill_get(&here, 1, &program, NULL), KILN_OK);
    kiln__interlock_enter();
    cr_expect(fill_launch(&here, program, 1));
    kiln__programs_sync(here.programs);
    kiln__programs_get_stats(here.programs, &stats);
    cr_expect_eq(stats.stores, 1u);
    kiln__interlock_leave();
    fill_stop(&here);
}

/* A thread that compiled would die at an end of the process. */
static void expect_stored_when_waited_for(void)
{
    struct kiln__program *program;
    struct kiln__programs_stats stats;
    start_here();
    for (int number = 0; number < 2; number++) {
        cr_assert_eq(fill_get(&here, number, &program, NULL), KILN_OK);
        cr_expect(fill_launch(&here, program, number));
    }
    if (here.device.traits->late_binary) {
        nanosleep(&(struct timespec){.tv_sec = 2}, NULL);
        kiln__programs_get_stats(here.programs, &stats);
        cr_expect_eq(stats.stores, 0u);
        cr_expect_eq(stats.pending, 2u);
    }
    kiln__programs_sync(here.programs);
    kiln__programs_get_stats(here.programs, &stats);
    cr_expect_eq(stats.stores, 2u);
    cr_expect_eq(stats.failures, 0u);
    cr_expect_eq(stats.pending, 0u);
    fill_stop(&here);
}

Test(cache_program, without_a_process_of_its_own_who_waits_stores)
{
    setenv("KILN_STORE_PROGRAM", missing_path("kiln-store"), 1);
    expect_stored_when_waited_for();
}

Test(cache_program, a_process_that_cannot_begin_is_as_good_as_none)
{
    fake_store_program("exit 1");
    expect_stored_when_waited_for();
    fake_end();
}

/* It takes the first of two programs along, if they were given together; others cannot begin. */
Test(cache_program, what_a_dead_process_had_not_begun_is_stored_by_who_waits)
{
    struct kiln__program *programs[2];
    struct kiln__programs_stats stats;
    fake_store_program("set -- $(od -An -tu4 -N8 /proc/self/fd/0)\n"
                       "[ \"$1 $2\" != '0 2' ] || printf '\\1' 1<>/proc/self/fd/0\n"
                       "exit 1");
    start_here();
    for (int number = 0; number < 2; number++)
        cr_assert_eq(fill_get(&here, number, &programs[number], NULL), KILN_OK);
    for (int number = 0; number < 2; number++)
        cr_expect(fill_launch(&here, programs[number], number));
    kiln__programs_sync(here.programs);
    kiln__programs_get_stats(here.programs, &stats);
    cr_expect_leq(stats.failures, 1u);
    cr_expect_eq(stats.stores + stats.failures, 2u);
    fill_stop(&here);
    fake_end();
}

Test(cache_program, a_process_that_stalls_holds_nobody_up)
{
    struct kiln__program *program;
    unsetenv("KILN_CACHE_WAIT");
    fake_store_program("stay");
    start_here();
    cr_assert_eq(fill_get(&here, 1, &program, NULL), KILN_OK);
    cr_expect(fill_launch(&here, program, 1));
    double start = fill_seconds();
    fill_stop(&here);
    cr_expect_lt(fill_seconds() - start, 100.0); /* else two minutes */
    fake_end();
}

Test(cache_program, what_was_never_launched_leaves_nothing)
{
    struct kiln__program *program;
    start_here();
    cr_assert_eq(fill_get(&here, 1, &program, NULL), KILN_OK);
    bool late = here.device.traits->late_binary;
    fill_stop(&here);
    cr_expect_eq(fill_files(".bin"), late ? 0 : 1);
    cr_expect_eq(fill_files(".lock"), 0);
}

Test(cache_program, a_child_of_fork_is_told_at_once)
{
    struct kiln__program *program;
    start_here();
    cr_assert_eq(fill_get(&here, 1, &program, NULL), KILN_OK);
    cr_assert(fill_launch(&here, program, 1));
    pid_t child = fork();
    if (child == 0) {
        double start = fill_seconds();
        bool good = fill_get(&here, 2, &program, NULL) == KILN_FORKED;
        kiln__programs_sync(here.programs);
        kiln__programs_destroy(here.programs);
        _exit(!good || fill_seconds() - start > 200); /* else it waits for ever */
    }
    int status = -1;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_expect_eq(status, 0);
    /* The child took nothing along. */
    cr_expect_eq(fill_get(&here, 2, &program, NULL), KILN_OK);
    cr_expect(fill_launch(&here, program, 2));
    fill_stop(&here);
    cr_expect_eq(fill_files(".bin"), 2);
}

Test(cache_program, a_folder_that_cannot_be_used_costs_only_time)
{
    char path[300];
    struct kiln__program *program;
    struct kiln__programs_stats stats;
    snprintf(path, sizeof path, "%s/kiln", fill_folder());
    mkdir(path, 0777);
    chmod(path, 0777);
    start_here();
    cr_assert_eq(fill_get(&here, 1, &program, NULL), KILN_OK);
    cr_expect(fill_launch(&here, program, 1));
    kiln__programs_get_stats(here.programs, &stats);
    cr_expect_eq(stats.compiled, 1u);
    cr_expect_eq(stats.stores, 0u);
    cr_expect_eq(stats.failures, 1u);
    cr_expect_eq(fill_files(".bin"), 0);
    fill_stop(&here);
}
