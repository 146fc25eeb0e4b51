/* SPDX-License-Identifier: Apache-2.0 */
/* `kiln-store`: compiles kernels again in processes of their own and stores their binaries, as
 * programs/compile_workers.h says. It is started by the library with a queue of jobs for standard
 * input, and says on standard output when there is something to look at. */
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
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device/device_list.h"
#include "programs/build.h"
#include "programs/compile_workers.h"
#include "programs/pocl_folder.h"
#include "programs/store_entry.h"
#include "util/environment.h"

struct worker {
    struct kiln__compile_queue queue;
    struct kiln__device device;
    struct kiln__disk_store *store;
    struct kiln__text shared;
    cl_context context;
    struct kiln__pocl_folder folder;
    const char *variants; /* that PoCL has been told of; NULL: it has not */
    const char *wanted;   /* the variable's value before that; NULL: it was unset */
    unsigned job;
    int answers; /* a descriptor of its own: the driver may print */
};

/* The one who started this may have gone, or have enough to hear already. */
static void say(const struct worker *worker)
{
    send(worker->answers, "r", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* ---- beginning ---- */

static bool map_queue(struct kiln__compile_queue *queue)
{
    struct stat facts;
    if (fstat(STDIN_FILENO, &facts) || facts.st_size <= 0)
        return false;
    size_t length = (size_t)facts.st_size;
    void *bytes = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, STDIN_FILENO, 0);
    return bytes != MAP_FAILED && kiln__compile_queue_open(bytes, length, queue);
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
        found = !worker->shared.failed && worker->shared.length == worker->queue.shared.length &&
                !memcmp(worker->shared.data, worker->queue.shared.bytes, worker->shared.length);
    }
    kiln__device_list_free(&list);
    return found;
}

static bool begin(struct worker *worker)
{
    const struct kiln__store_options store = {worker->queue.folder, worker->queue.head->limit,
                                              KILN_CACHE_ON};
    if (worker->queue.head->late_binary)
        kiln__pocl_folder_open(&worker->folder);
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

#define VARIANTS "POCL_BINARY_SPECIALIZE_WG"

/* PoCL reads a variable once in a process. For other variants the same program takes this one's
 * place, with the environment that this one began with, and goes on with the job. */
static void start_over(struct worker *worker)
{
    char number[16];
    char *const arguments[] = {(char *)"kiln-store", number, NULL};
    snprintf(number, sizeof number, "%u", worker->job);
    kiln__pocl_folder_close(&worker->folder);
    if (worker->wanted)
        setenv(VARIANTS, worker->wanted, 1);
    else
        unsetenv(VARIANTS);
    char **environment = kiln__environment_of_child();
    dup2(worker->answers, STDOUT_FILENO);
    if (environment)
        execve("/proc/self/exe", arguments, environment);
    _exit(1); /* whoever waits starts others */
}

/* PoCL compiles the variants that are named when it is asked for a binary: no launch is needed.
 * NULL: it failed. */
static cl_program build(struct worker *worker, const struct kiln__compile_job *job)
{
    cl_program program = NULL;
    const bool told = worker->queue.head->late_binary && worker->variants;
    if (told && strcmp(worker->variants, job->variants) != 0)
        start_over(worker);
    worker->variants = job->variants;
    if (!setenv(VARIANTS, job->variants, 1))
        kiln__build_source(worker->context, &worker->device, job->source, job->options, job->kernel,
                           &program, NULL);
    return program;
}

/* Have it compile them. */
static bool complete(struct worker *worker, cl_program program)
{
    void *binary = NULL;
    size_t length;
    const bool done = !kiln__build_fetch(program, &worker->device, &binary, &length);
    free(binary);
    return done;
}

/* With semicolons between. "": not known. Owner: the caller. */
static char *list_kernels(cl_program program)
{
    size_t size = 0;
    if (clGetProgramInfo(program, CL_PROGRAM_KERNEL_NAMES, 0, NULL, &size))
        size = 0;
    char *kernels = calloc(1, size + 1);
    if (kernels && size && clGetProgramInfo(program, CL_PROGRAM_KERNEL_NAMES, size, kernels, NULL))
        *kernels = 0;
    return kernels;
}

/* In the driver's cache are those variants, and not the one that a binary would have besides. */
static bool build_variants(struct worker *worker, const struct kiln__compile_job *job)
{
    cl_program program = build(worker, job);
    kiln__pocl_folder_find(&worker->folder);
    char *kernels = program ? list_kernels(program) : NULL;
    bool built = kernels;
    if (built) {
        kiln__pocl_folder_stand_in(&worker->folder, kernels);
        built = complete(worker, program);
        built = kiln__pocl_folder_withdraw(&worker->folder, kernels) && built;
    }
    free(kernels);
    if (program)
        clReleaseProgram(program);
    return built;
}

/* For the driver's own cache alone, which the asker shares. */
static enum kiln__compile_outcome build_quick(struct worker *worker,
                                              const struct kiln__compile_job *job)
{
    if (!build_variants(worker, job))
        return KILN__JOB_FAILED;
    kiln__pocl_folder_share(&worker->folder);
    return KILN__JOB_PRESENT;
}

/* Building it once more takes some milliseconds: the driver's cache has it. */
static enum kiln__compile_outcome
store_new(struct worker *worker, const struct kiln__compile_job *job, const struct kiln__key *key)
{
    if (worker->folder.lock >= 0 && !build_variants(worker, job))
        return KILN__JOB_FAILED;
    cl_program program = build(worker, job);
    if (!program)
        return KILN__JOB_FAILED;
    bool kept = kiln__store_entry_binary(worker->store, &worker->device, program, key, job->kernel);
    clReleaseProgram(program);
    return kept ? KILN__JOB_STORED : KILN__JOB_FAILED;
}

/* What has not ended then hangs, and SIGALRM ends the process. */
static void begin_job(const struct worker *worker)
{
    alarm(worker->queue.head->urgent ? KILN__JOB_SECONDS : KILN__JOB_PATIENT_SECONDS);
}

static enum kiln__compile_outcome run(struct worker *worker, const struct kiln__compile_job *job)
{
    struct kiln__key key;
    begin_job(worker);
    if (kiln__program_is_quick(&worker->device, job->options))
        return build_quick(worker, job);
    if (!kiln__key_make(&worker->shared, job->options, job->source, &key))
        return KILN__JOB_FAILED;
    enum kiln__compile_outcome outcome =
        is_present(worker, &key) ? KILN__JOB_PRESENT : store_new(worker, job, &key);
    kiln__key_free(&key);
    return outcome;
}

/* From its own on, all that no other worker takes. */
static void run_jobs(struct worker *worker)
{
    struct kiln__compile_head *head = worker->queue.head;
    struct kiln__compile_job job;
    for (unsigned i = 0; worker->job < head->jobs && kiln__compile_queue_read(&worker->queue, &job);
         i++)
        if (i == worker->job) {
            atomic_store(&head->outcomes[i], (unsigned char)run(worker, &job));
            say(worker);
            worker->job = atomic_fetch_add(&head->next, 1);
        }
}

/* Out of everybody's way: no child of the asker's, no core file, the lowest priority, and one such
 * process at a time for a cache, unless somebody waits. */
static void stand_back(struct worker *worker)
{
    const struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    unsetenv("OPENCL_LAYERS"); /* they are about the asker's calls */
    const char *wanted = getenv(VARIANTS);
    worker->wanted = wanted ? strdup(wanted) : NULL;
    worker->answers = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    dup2(STDERR_FILENO, STDOUT_FILENO);
    begin_job(worker);
    if (worker->queue.head->urgent)
        return;
    setpriority(PRIO_PROCESS, 0, 19);
    int folder = open(worker->queue.folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder >= 0)
        flock(folder, LOCK_EX); /* until the end; without locks on folders there is no turn */
}

/* `job`: that it has taken already; NULL: none. */
static int work(struct worker *worker, const char *job)
{
    signal(SIGPIPE, SIG_IGN);
    stand_back(worker);
    const bool begun = begin(worker);
    if (begun) {
        say(worker);
        worker->job =
            job ? (unsigned)strtoul(job, NULL, 10) : atomic_fetch_add(&worker->queue.head->next, 1);
        run_jobs(worker);
    }
    kiln__pocl_folder_close(&worker->folder);
    return !begun;
}

int main(int argc, char **argv)
{
    struct worker worker = {.folder.lock = -1};
    if (!map_queue(&worker.queue)) {
        fputs("kiln-store is started by libkiln, which says what to store\n", stderr);
        return 2;
    }
    if (argc > 1) /* see start_over() */
        _exit(work(&worker, argv[1]));
    for (unsigned i = 0; i < worker.queue.head->workers; i++)
        if (fork() == 0)
            _exit(work(&worker, NULL)); /* the driver is not taken down: it ends with the process */
    _exit(0);
}
