/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs as bytes and back; worker processes that do them, die, stall, or are none. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "programs/compile_workers.h"
#include "programs/program_state.h"
#include "support/cache.h"
#include "support/fill.h"
#include "support/missing.h"
#include "util/clock.h"
#include "util/environment.h"

#define SOURCE(name) "__kernel void " name "(__global int *x) { x[get_global_id(0)] = 1; }"

/* The last one has the first one's program. */
static const struct kiln__compile_job jobs[] = {
    {"-cl-std=CL1.2", SOURCE("a"), "a", "1-1-1-goffs0-smallgrid"},
    {"-w", SOURCE("b"), "b", "256-1-1-goffs0"},
    {"", SOURCE("c"), "c", "8-1-1-goffs0"},
    {"-cl-std=CL1.2", SOURCE("a"), "a", "2-1-1-goffs0"},
};

enum { ADDED = sizeof jobs / sizeof *jobs, JOBS = ADDED - 1 };

static void add_all(struct kiln__compile_jobs *to)
{
    for (unsigned i = 0; i < ADDED; i++)
        cr_expect_eq(kiln__compile_jobs_add(to, &jobs[i]), i % JOBS);
}

/* ---- as bytes ---- */

static struct kiln__compile_head *share_all(size_t *length)
{
    struct kiln__compile_jobs all = {0};
    const struct kiln__text key = {.data = (char *)"a\0key", .length = 5};
    struct kiln__compile_head *head;
    add_all(&all);
    int file =
        kiln__compile_jobs_share(&all, "/a folder", &key, 1234567890123, true, &head, length);
    cr_assert_geq(file, 3);
    close(file);
    kiln__compile_jobs_free(&all);
    return head;
}

/* How many jobs can be read; -1: not even what is before them. */
static int read_all(void *bytes, size_t length)
{
    struct kiln__compile_queue queue;
    struct kiln__compile_job job;
    int count = 0;
    if (!kiln__compile_queue_open(bytes, length, &queue))
        return -1;
    cr_expect_str_eq(queue.folder, "/a folder");
    cr_expect(queue.head->limit == 1234567890123 && queue.head->urgent);
    cr_expect_eq(queue.head->jobs, (unsigned)JOBS);
    cr_expect(queue.shared.length == 5 && !memcmp(queue.shared.bytes, "a\0key", 5));
    for (; kiln__compile_queue_read(&queue, &job); count++) {
        cr_assert_lt(count, JOBS);
        cr_expect_str_eq(job.options, jobs[count].options);
        cr_expect_str_eq(job.source, jobs[count].source);
        cr_expect_str_eq(job.kernel, jobs[count].kernel);
        cr_expect_str_eq(job.variants,
                         count ? jobs[count].variants : "1-1-1-goffs0-smallgrid,2-1-1-goffs0");
    }
    return count;
}

Test(compile_queue, what_is_written_is_read_and_one_program_is_one_job)
{
    size_t length;
    struct kiln__compile_head *head = share_all(&length);
    cr_expect_eq(read_all(head, length), JOBS);
    munmap(head, length);
}

Test(compile_queue, what_is_cut_off_ends_before_that)
{
    size_t whole;
    struct kiln__compile_head *head = share_all(&whole);
    for (size_t length = 0; length < whole; length++) {
        void *part = malloc(length ? length : 1); /* so that a sanitizer sees its end */
        memcpy(part, head, length);
        cr_expect_lt(read_all(part, length), JOBS);
        free(part);
    }
    munmap(head, whole);
}

/* ---- workers ---- */

/* Seconds, on a machine that has other work; what takes longer here lasts two minutes or for ever.
 */
#define SOON 100.0

static struct fill here;

static void begin(void)
{
    fill_folder();
}

static void end(void)
{
    fill_end();
    fake_end();
}

TestSuite(compile_workers, .init = begin, .fini = end, .timeout = 300);

static bool start_workers(struct kiln__compile_workers *workers, unsigned count)
{
    *workers = (struct kiln__compile_workers){.programs = NULL};
    add_all(&workers->jobs);
    return kiln__compile_workers_start(workers, here.programs, count, true);
}

static void start_here(void)
{
    fake_folder();
    if (!fill_start(&here, KILN_CACHE_ON))
        cr_skip("no OpenCL device here");
}

static void stop_here(struct kiln__compile_workers *workers)
{
    kiln__compile_workers_free(workers);
    fill_stop(&here);
}

static void await_end(struct kiln__compile_workers *workers)
{
    while (kiln__compile_workers_listen(workers, true))
        continue;
}

static void expect_outcomes(const struct kiln__compile_workers *workers,
                            enum kiln__compile_outcome first, enum kiln__compile_outcome others)
{
    for (unsigned i = 0; i < JOBS; i++)
        cr_expect_eq(kiln__compile_workers_outcome(workers, i), i ? others : first);
}

Test(compile_workers, they_share_what_is_to_be_stored)
{
    struct kiln__compile_workers workers;
    struct kiln__programs_stats stats;
    start_here();
    cr_assert(start_workers(&workers, 2));
    await_end(&workers);
    expect_outcomes(&workers, KILN__JOB_STORED, KILN__JOB_STORED);
    cr_expect_eq(workers.stored, (unsigned)JOBS);
    kiln__programs_get_stats(here.programs, &stats);
    cr_expect_eq(stats.stores, (uint64_t)JOBS);
    kiln__compile_workers_free(&workers);
    cr_assert(start_workers(&workers, JOBS));
    await_end(&workers);
    expect_outcomes(&workers, KILN__JOB_PRESENT, KILN__JOB_PRESENT);
    stop_here(&workers);
}

/* Entries that name a variant of a kernel. */
static int count_entries(const char *variant)
{
    char command[400], *end;
    char counted[16] = "";
    snprintf(command, sizeof command, "grep -laF -e '/%s/' '%s'/kiln/*.bin | wc -l", variant,
             fill_folder());
    FILE *found = popen(command, "r");
    cr_assert(found && fgets(counted, sizeof counted, found));
    pclose(found);
    return (int)strtol(counted, &end, 10);
}

/* One after the other in one process, which compiles nothing for any local size. */
Test(compile_workers, a_binary_has_the_variants_of_its_own_launches_alone)
{
    struct kiln__compile_workers workers;
    start_here();
    if (!here.device.traits->late_binary)
        cr_skip("this device's binaries have no variants");
    cr_assert(start_workers(&workers, 1));
    await_end(&workers);
    expect_outcomes(&workers, KILN__JOB_STORED, KILN__JOB_STORED);
    cr_expect_eq(count_entries("a/1-1-1-goffs0-smallgrid"), 1);
    cr_expect_eq(count_entries("a/2-1-1-goffs0"), 1);
    cr_expect_eq(count_entries("b/256-1-1-goffs0"), 1);
    cr_expect_eq(count_entries("c/8-1-1-goffs0"), 1);
    cr_expect_eq(count_entries("b/1-1-1-goffs0-smallgrid"), 0);
    cr_expect_eq(count_entries("0-0-0"), 0);
    stop_here(&workers);
}

/* Of `source`, and then one that is stored. */
static void run_quick(struct kiln__compile_workers *workers, const char *source)
{
    struct kiln__text options = {0};
    *workers = (struct kiln__compile_workers){.programs = NULL};
    kiln__program_options(here.programs, here.device.traits->quick_options, &options);
    kiln__compile_jobs_add(&workers->jobs, &(struct kiln__compile_job){options.data, source, "q",
                                                                       "1-1-1-goffs0-smallgrid"});
    kiln__compile_jobs_add(&workers->jobs, &jobs[1]);
    kiln__text_free(&options);
    cr_assert(kiln__compile_workers_start(workers, here.programs, 1, true));
    await_end(workers);
    cr_expect_eq(kiln__compile_workers_outcome(workers, 1), KILN__JOB_STORED);
    cr_expect_eq(workers->stored, 1u);
    cr_expect_eq(fill_files(".bin"), 1);
}

/* Its launch finds compiled what is in the driver's cache, under the name that it looks for.
 * Workers have folders of their own there. */
static int count_variant(const char *variant)
{
    char command[400], *end;
    char counted[16] = "";
    snprintf(command, sizeof command,
             "find '%s' -name 'kiln-[0-9]*' -prune -o -path '*/q/%s/q.so' -print | wc -l",
             getenv("POCL_CACHE_DIR"), variant);
    FILE *found = popen(command, "r");
    cr_assert(found && fgets(counted, sizeof counted, found));
    pclose(found);
    return (int)strtol(counted, &end, 10);
}

static int count_compiled(void)
{
    return count_variant("1-1-1-goffs0-smallgrid");
}

static void launch_quick(const char *source)
{
    struct kiln__text options = {0};
    struct kiln__program *program;
    struct kiln__error error = {0};
    cl_int code, value = 0;
    kiln__text_add(&options, "%s", here.device.traits->quick_options);
    cr_assert_eq(
        kiln__programs_get(here.programs, "q", 1, source, options.data, "q", &program, &error),
        KILN_OK, "%s", error.text);
    kiln__text_free(&options);
    cl_kernel kernel = clCreateKernel(program->cl, "q", &code);
    cr_assert_eq(code, CL_SUCCESS);
    cl_mem x = clCreateBuffer(here.context, CL_MEM_READ_WRITE, sizeof value, NULL, NULL);
    clSetKernelArg(kernel, 0, sizeof x, &x);
    cr_expect_eq(clEnqueueNDRangeKernel(here.queue, kernel, 1, NULL, (size_t[]){1}, (size_t[]){1},
                                        0, NULL, NULL),
                 CL_SUCCESS);
    clEnqueueReadBuffer(here.queue, x, CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL);
    cr_expect_eq(value, 1);
    clReleaseMemObject(x);
    clReleaseKernel(kernel);
}

Test(compile_workers, a_quick_kernel_is_left_to_the_driver_and_not_stored)
{
    struct kiln__compile_workers workers;
    start_here();
    if (!here.device.traits->quick_options)
        cr_skip("this device's kernels are compiled in one way");
    run_quick(&workers, SOURCE("q"));
    cr_expect_eq(kiln__compile_workers_outcome(&workers, 0), KILN__JOB_PRESENT);
    cr_expect_eq(count_compiled(), 1);
    cr_expect_eq(count_variant("0-0-0"), 0);
    launch_quick(SOURCE("q"));
    cr_expect_eq(count_compiled(), 1);
    stop_here(&workers);
}

Test(compile_workers, a_quick_kernel_that_fails_keeps_no_other_back)
{
    struct kiln__compile_workers workers;
    start_here();
    if (!here.device.traits->quick_options)
        cr_skip("this device's kernels are compiled in one way");
    run_quick(&workers, "__kernel void q(");
    cr_expect_eq(kiln__compile_workers_outcome(&workers, 0), KILN__JOB_FAILED);
    cr_expect_eq(count_compiled(), 0);
    stop_here(&workers);
}

/* kiln-store takes a job and is killed, the first time or each time. */
static void fake_death(bool always)
{
    char script[800];
    const char *store = getenv("KILN_STORE_PROGRAM");
    snprintf(script, sizeof script,
             "taken=$(($(od -An -tu1 -N1 /proc/self/fd/0)))\n"
             "if [ %s -o \"$taken\" -eq 0 ]; then\n"
             "  printf \"\\\\$(printf %%o $((taken + 1)))\" 1<>/proc/self/fd/0\n"
             "  exit 1\n"
             "fi\n"
             "exec '%s'",
             always ? "1 -eq 1" : "1 -eq 0", store && *store ? store : "kiln-store");
    fake_store_program(script);
}

Test(compile_workers, one_that_dies_takes_its_job_along_and_another_does_the_rest)
{
    struct kiln__compile_workers workers;
    start_here();
    fake_death(false);
    cr_assert(start_workers(&workers, 1));
    await_end(&workers);
    expect_outcomes(&workers, KILN__JOB_OPEN, KILN__JOB_STORED);
    cr_expect(kiln__compile_workers_begun(&workers));
    stop_here(&workers);
}

Test(compile_workers, where_each_dies_there_is_an_end)
{
    struct kiln__compile_workers workers;
    start_here();
    fake_death(true);
    cr_assert(start_workers(&workers, 1));
    await_end(&workers);
    expect_outcomes(&workers, KILN__JOB_OPEN, KILN__JOB_OPEN);
    cr_expect_eq(atomic_load(&workers.head->next), (unsigned)JOBS);
    stop_here(&workers);
}

static int count_files(void)
{
    int count = 0;
    DIR *walk = opendir("/proc/self/fd");
    cr_assert(walk);
    while (readdir(walk))
        count++;
    closedir(walk);
    return count;
}

/* However they end, started again or not. */
Test(compile_workers, no_file_is_left_open)
{
    static const char *const scripts[] = {"exit 0", "stay", "(printf r; stay) &"};
    struct kiln__compile_workers workers;
    start_here();
    int before = count_files();
    for (unsigned i = 0; i < sizeof scripts / sizeof *scripts + 1; i++) {
        if (i)
            fake_store_program(scripts[i - 1]);
        else
            fake_death(true);
        if (start_workers(&workers, 1) && i != 3)
            await_end(&workers);
        kiln__compile_workers_free(&workers);
        cr_expect_eq(count_files(), before, "way %u", i);
    }
    fill_stop(&here);
}

/* A program may have closed 0, 1 and 2, and print. */
Test(compile_workers, files_are_none_of_the_standard_ones)
{
    struct kiln__compile_workers workers;
    start_here();
    int before = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 10);
    close(STDIN_FILENO);
    cr_assert(start_workers(&workers, 1));
    cr_expect_gt(workers.file, STDERR_FILENO);
    cr_expect_gt(workers.answers, STDERR_FILENO);
    cr_expect_lt(fcntl(STDIN_FILENO, F_GETFD), 0);
    await_end(&workers);
    expect_outcomes(&workers, KILN__JOB_STORED, KILN__JOB_STORED);
    dup2(before, STDIN_FILENO);
    close(before);
    stop_here(&workers);
}

/* Who looks in passing starts none. */
Test(compile_workers, without_anybody_who_waits_none_is_started_again)
{
    struct kiln__compile_workers workers;
    start_here();
    fake_death(false);
    cr_assert(start_workers(&workers, 1));
    while (kiln__compile_workers_listen(&workers, false))
        usleep(1000);
    expect_outcomes(&workers, KILN__JOB_OPEN, KILN__JOB_OPEN);
    cr_expect_eq(kiln__compile_workers_begun(&workers), 1);
    stop_here(&workers);
}

Test(compile_workers, a_program_that_does_nothing_or_is_missing_is_not_started_again)
{
    struct kiln__compile_workers workers;
    start_here();
    setenv("KILN_STORE_PROGRAM", "/bin/true", 1);
    cr_assert(start_workers(&workers, 1));
    await_end(&workers);
    cr_expect_eq(kiln__compile_workers_begun(&workers), 0);
    kiln__compile_workers_free(&workers);
    setenv("KILN_STORE_PROGRAM", missing_path("kiln-store"), 1);
    cr_expect_not(start_workers(&workers, 1));
    cr_expect_not(kiln__compile_workers_listen(&workers, true));
    stop_here(&workers);
}

/* Nor does what it has started live on, nor is there a child to wait for. */
Test(compile_workers, a_program_that_stalls_is_waited_for_a_second_and_killed)
{
    struct kiln__compile_workers workers;
    start_here();
    fake_store_program("stay");
    double start = fill_seconds();
    cr_expect_not(start_workers(&workers, 1));
    cr_expect_not(kiln__compile_workers_listen(&workers, true));
    cr_expect_lt(fill_seconds() - start, SOON);
    cr_expect_lt(waitpid(-1, NULL, WNOHANG), 0);
    stop_here(&workers);
}

Test(compile_workers, one_that_is_silent_is_not_listened_to_for_ever)
{
    struct kiln__compile_workers workers;
    start_here();
    fake_store_program("(printf r; stay) &");
    cr_assert(start_workers(&workers, 1));
    while (!workers.heard)
        cr_assert(kiln__compile_workers_listen(&workers, true));
    double start = fill_seconds();
    workers.heard_at -= (KILN__JOB_SILENCE - 1) * 1000 * KILN__MS;
    await_end(&workers);
    cr_expect_lt(fill_seconds() - start, SOON);
    stop_here(&workers);
}

/* One look reads some of what a program says, so that one that does not stop talking holds nobody.
 */
Test(compile_workers, one_that_talks_is_not_listened_to_to_the_end)
{
    enum { MUCH = 50000 };
    struct kiln__compile_workers workers;
    int waiting = 0;
    start_here();
    fake_store_program("(head -c 50000 /dev/zero; stay) &");
    cr_assert(start_workers(&workers, 1));
    while (waiting < MUCH) {
        cr_assert_eq(ioctl(workers.answers, FIONREAD, &waiting), 0);
        kiln__sleep(KILN__MS);
    }
    cr_assert_eq(waiting, MUCH);
    cr_expect(kiln__compile_workers_listen(&workers, false));
    cr_assert_eq(ioctl(workers.answers, FIONREAD, &waiting), 0);
    cr_expect_gt(waiting, 0);
    cr_expect_lt(waiting, MUCH);
    stop_here(&workers);
}

static void *listen_to_all(void *user)
{
    await_end(user);
    return NULL;
}

Test(compile_workers, another_thread_may_stop_who_listens)
{
    struct kiln__compile_workers workers;
    pthread_t thread;
    start_here();
    fake_store_program("(printf r; stay) &");
    cr_assert(start_workers(&workers, 1));
    double start = fill_seconds();
    cr_assert_eq(pthread_create(&thread, NULL, listen_to_all, &workers), 0);
    kiln__sleep(100 * KILN__MS);
    kiln__compile_workers_stop(&workers);
    pthread_join(thread, NULL);
    cr_expect_lt(fill_seconds() - start, SOON);
    stop_here(&workers);
}

/* As Khronos's loader does in the first call of OpenCL. */
static void cut_off(const char *variable)
{
    char *end = strchr(getenv(variable), ':');
    if (end)
        *end = 0;
}

Test(compile_workers, a_program_finds_the_drivers_that_this_one_found)
{
    struct kiln__compile_workers workers;
    char said[64] = "";
    setenv("OCL_ICD_FILENAMES", "a.so:b.so", 1);
    kiln__environment_keep();
    start_here();
    cut_off("OCL_ICD_FILENAMES");
    fake_store_program("echo $OCL_ICD_FILENAMES of $KILN_LATE");
    setenv("KILN_LATE", "x:y", 1);
    cr_assert(start_workers(&workers, 1));
    cr_assert_gt(read(workers.answers, said, sizeof said - 1), 0);
    cr_expect_str_eq(said, "a.so:b.so of x:y\n");
    stop_here(&workers);
}
