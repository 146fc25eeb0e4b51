/* SPDX-License-Identifier: Apache-2.0 */
/* `kiln-store`: compiles kernels again in a process of its own and stores their binaries, as
 * programs/compile_job.h says. It is started by the library, reads its errands from standard input
 * and answers on standard output. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device/device_list.h"
#include "programs/build.h"
#include "programs/compile_job.h"
#include "programs/store_entry.h"

static int answers; /* a descriptor of its own: the driver may print */

struct worker {
    struct kiln__compile_job_head head;
    struct kiln__device device;
    struct kiln__disk_store *store;
    struct kiln__text shared;
    cl_context context;
};

/* The one who started this may have gone. */
static void answer(enum kiln__compile_job_answer what)
{
    char byte = (char)what;
    if (write(answers, &byte, 1) != 1)
        return;
}

/* ---- beginning ---- */

static bool read_all(struct kiln__span *all)
{
    struct stat facts;
    if (fstat(STDIN_FILENO, &facts) || facts.st_size <= 0)
        return false;
    size_t length = (size_t)facts.st_size;
    char *bytes = malloc(length);
    *all = (struct kiln__span){bytes, length};
    return bytes && pread(STDIN_FILENO, bytes, length, 0) == facts.st_size;
}

/* The device whose keys begin as the asker's do: the same driver in the same version, and kiln's.
 */
static bool find_device(struct worker *worker)
{
    struct kiln__device_list list;
    bool found = false;
    if (kiln__device_list(&list, NULL))
        return false;
    for (size_t i = 0; i < list.devices.count && !found; i++) {
        worker->device = list.devices.items[i];
        kiln__text_free(&worker->shared);
        kiln__key_begin(&worker->device, &worker->shared);
        found = !worker->shared.failed && worker->shared.length == worker->head.shared.length &&
                !memcmp(worker->shared.data, worker->head.shared.bytes, worker->shared.length);
    }
    kiln__device_list_free(&list);
    return found;
}

static bool begin(struct worker *worker)
{
    const struct kiln__store_options store = {worker->head.folder, worker->head.limit,
                                              KILN_CACHE_ON};
    worker->store = kiln__store_open(&store);
    if (!worker->store || !kiln__store_writes(worker->store) || !find_device(worker))
        return false;
    worker->context = clCreateContext(NULL, 1, &worker->device.id, NULL, NULL, NULL);
    return worker->context;
}

/* ---- working ---- */

static bool is_present(struct worker *worker, const struct kiln__key *key)
{
    struct kiln__loaded loaded;
    bool present = kiln__store_get(worker->store, key, &loaded);
    if (present)
        kiln__store_unload(&loaded);
    return present;
}

/* Two kernels of one source are two errands for one binary: the first one is for both. */
static bool name_variants(const struct kiln__compile_job *job, struct kiln__span rest)
{
    struct kiln__text variants = {0};
    struct kiln__compile_job other;
    kiln__text_add(&variants, "%s", job->variants);
    while (kiln__compile_job_read(&rest, &other))
        if (!strcmp(other.options, job->options) && !strcmp(other.source, job->source) &&
            strcmp(other.variants, job->variants))
            kiln__text_add(&variants, ",%s", other.variants);
    bool named = variants.data && !setenv("POCL_BINARY_SPECIALIZE_WG", variants.data, 1);
    kiln__text_free(&variants);
    return named;
}

/* PoCL compiles the variants that are named when it is asked for a binary: no launch is needed. */
static enum kiln__compile_job_answer store_new(struct worker *worker,
                                               const struct kiln__compile_job *job,
                                               const struct kiln__key *key, struct kiln__span rest)
{
    cl_program program;
    if (!name_variants(job, rest))
        return KILN__JOB_FAILED;
    if (kiln__build_source(worker->context, &worker->device, job->source, job->options, job->kernel,
                           &program, NULL))
        return KILN__JOB_FAILED;
    bool kept = kiln__store_entry_binary(worker->store, &worker->device, program, key, job->kernel);
    clReleaseProgram(program);
    return kept ? KILN__JOB_STORED : KILN__JOB_FAILED;
}

static void run(struct worker *worker, const struct kiln__compile_job *job, struct kiln__span rest)
{
    struct kiln__key key;
    alarm(KILN__JOB_SECONDS); /* then something hangs, and SIGALRM ends the process */
    if (!kiln__key_make(&worker->shared, job->options, job->source, &key)) {
        answer(KILN__JOB_FAILED);
        return;
    }
    answer(is_present(worker, &key) ? KILN__JOB_PRESENT : store_new(worker, job, &key, rest));
    kiln__key_free(&key);
}

/* Out of everybody's way: no child of the asker's, no core file, the lowest priority, and one such
 * process at a time for a cache, unless somebody waits. */
static void stand_back(const struct kiln__compile_job_head *head)
{
    const struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    unsetenv("OPENCL_LAYERS"); /* they are about the asker's calls */
    answers = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    dup2(STDERR_FILENO, STDOUT_FILENO);
    if (head->hurry)
        return;
    setpriority(PRIO_PROCESS, 0, 19);
    alarm(KILN__JOB_SECONDS);
    int folder = open(head->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder >= 0)
        flock(folder, LOCK_EX); /* until the end; without locks on folders there is no turn */
}

int main(void)
{
    struct worker worker = {0};
    struct kiln__span all;
    struct kiln__compile_job job;
    if (!read_all(&all) || !kiln__compile_job_read_head(&all, &worker.head)) {
        fputs("kiln-store is started by libkiln, which says what to store\n", stderr);
        return 2;
    }
    if (fork() != 0)
        _exit(0);
    signal(SIGPIPE, SIG_IGN);
    stand_back(&worker.head);
    if (!begin(&worker))
        return 1;
    answer(KILN__JOB_READY);
    while (kiln__compile_job_read(&all, &job))
        run(&worker, &job, all);
    /* The driver is not taken down: it ends with the process. */
    _exit(0);
}
