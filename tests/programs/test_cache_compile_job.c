/* SPDX-License-Identifier: Apache-2.0 */
/* What one process asks another to store, as bytes and back; and processes that do not do it. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../support/cache.h"
#include "../support/missing.h"
#include "programs/compile_job.h"
#include "util/environment.h"

static const struct kiln__compile_job jobs[] = {
    {"-cl-std=CL1.2", "kernel void a() {}", "a", "1-1-1-goffs0-smallgrid"},
    {"", "", "", ""},
    {"-w", "kernel void b() {}", "b", "256-1-1-goffs0"},
};

enum { ERRANDS = sizeof jobs / sizeof *jobs };

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void write_all(struct kiln__text *text)
{
    const struct kiln__compile_job_head head = {"/a folder", 1234567890123, {"a\0key", 5}, true};
    kiln__compile_job_write_head(&head, text);
    for (int i = 0; i < ERRANDS; i++)
        kiln__compile_job_write(&jobs[i], text);
    cr_assert_not(text->failed);
}

/* How many errands can be read; -1: not even the head. */
static int read_all(struct kiln__span rest)
{
    struct kiln__compile_job_head head;
    struct kiln__compile_job job;
    int count = 0;
    if (!kiln__compile_job_read_head(&rest, &head))
        return -1;
    cr_expect_str_eq(head.folder, "/a folder");
    cr_expect(head.limit == 1234567890123 && head.hurry);
    cr_expect(head.shared.length == 5 && !memcmp(head.shared.bytes, "a\0key", 5));
    for (; kiln__compile_job_read(&rest, &job); count++) {
        cr_assert_lt(count, ERRANDS);
        cr_expect_str_eq(job.options, jobs[count].options);
        cr_expect_str_eq(job.source, jobs[count].source);
        cr_expect_str_eq(job.kernel, jobs[count].kernel);
        cr_expect_str_eq(job.variants, jobs[count].variants);
    }
    return count;
}

Test(cache_errand, what_is_written_is_read)
{
    struct kiln__text text = {0};
    write_all(&text);
    cr_expect_eq(read_all((struct kiln__span){text.data, text.length}), ERRANDS);
    kiln__text_free(&text);
}

Test(cache_errand, what_is_cut_off_ends_before_that)
{
    struct kiln__text text = {0};
    write_all(&text);
    for (size_t length = 0; length < text.length; length++) {
        char *part = malloc(length + 1); /* so that a sanitizer sees its end */
        memcpy(part, text.data, length);
        part = realloc(part, length ? length : 1);
        cr_expect_lt(read_all((struct kiln__span){part, length}), ERRANDS);
        free(part);
    }
    kiln__text_free(&text);
}

Test(cache_errand, a_program_that_does_nothing_or_is_missing_answers_nothing)
{
    struct kiln__text text = {0};
    pid_t child;
    write_all(&text);
    setenv("KILN_STORE_PROGRAM", "/bin/true", 1);
    int answers = kiln__compile_job_start(&text, &child);
    cr_assert_geq(answers, 0);
    cr_expect(kiln__compile_job_let_go(child));
    cr_expect_eq(kiln__compile_job_listen(answers, 5), 0);
    close(answers);
    setenv("KILN_STORE_PROGRAM", missing_path("kiln-store"), 1);
    cr_expect_eq(kiln__compile_job_start(&text, &child), -1);
    kiln__text_free(&text);
}

/* Nor does what it has started live on. */
Test(cache_errand, a_program_that_stalls_is_waited_for_a_second_and_killed)
{
    struct kiln__text text = {0};
    pid_t child;
    write_all(&text);
    fake_store_program("sleep 30");
    int answers = kiln__compile_job_start(&text, &child);
    cr_assert_geq(answers, 0);
    double start = seconds();
    cr_expect_not(kiln__compile_job_let_go(child));
    cr_expect_lt(seconds() - start, 10.0);
    cr_expect_eq(kiln__compile_job_listen(answers, 10), 0);
    cr_expect_lt(seconds() - start, 10.0, "somebody still holds its end of the socket");
    cr_expect_lt(waitpid(child, NULL, WNOHANG), 0);
    close(answers);
    fake_end();
    kiln__text_free(&text);
}

Test(cache_errand, one_that_is_silent_is_not_listened_to_for_ever)
{
    struct kiln__text text = {0};
    pid_t child;
    write_all(&text);
    fake_store_program("(printf r; sleep 30) &");
    int answers = kiln__compile_job_start(&text, &child);
    cr_assert_geq(answers, 0);
    cr_expect(kiln__compile_job_let_go(child));
    cr_expect_eq(kiln__compile_job_listen(answers, 10), KILN__JOB_READY);
    double start = seconds();
    cr_expect_eq(kiln__compile_job_listen(answers, 1), 0);
    cr_expect_lt(seconds() - start, 10.0);
    close(answers);
    fake_end();
    kiln__text_free(&text);
}

/* As Khronos's loader does in the first call of OpenCL. */
static void cut_off(const char *variable)
{
    *strchr(getenv(variable), ':') = 0;
}

Test(cache_errand, a_program_finds_the_drivers_that_this_one_found)
{
    struct kiln__text text = {0};
    char said[64];
    pid_t child;
    fake_store_program("echo $OCL_ICD_FILENAMES of $KILN_LATE");
    setenv("OCL_ICD_FILENAMES", "a.so:b.so", 1);
    kiln__environment_keep();
    cut_off("OCL_ICD_FILENAMES");
    setenv("KILN_LATE", "x:y", 1);
    write_all(&text);
    int answers = kiln__compile_job_start(&text, &child);
    cr_assert_geq(answers, 0);
    cr_expect(kiln__compile_job_let_go(child));
    FILE *answer = fdopen(answers, "r");
    cr_assert(answer && fgets(said, sizeof said, answer));
    cr_expect_str_eq(said, "a.so:b.so of x:y\n");
    fclose(answer);
    fake_end();
    kiln__text_free(&text);
}
