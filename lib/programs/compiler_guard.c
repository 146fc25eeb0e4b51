/* SPDX-License-Identifier: Apache-2.0 */
/* Ends of a process: what still compiles is waited for within bounds, and nothing begins to. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "programs/compiler_guard.h"

#include <pthread.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/process.h"
#include "util/vector.h"

#define LONGEST_STILL_NS (1000 * KILN__MS)    /* while nothing is compiled and nothing changes */
#define MOST_COMPILE_NS (10000 * KILN__MS)    /* of work for one kernel, and of time; */
#define LONGEST_COMPILE_NS (60000 * KILN__MS) /* of time, on a machine that has none */
#define LONGEST_DOUBT_NS (200 * KILN__MS)     /* until a main thread that ends alone has gone */

/* A command whose kernel the driver may have to compile. */
struct launch {
    cl_command_queue queue;
    cl_event event;
};

/* Guards what follows. Nothing that can wait is called with it. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static unsigned inside; /* threads that compile */
static KILN__VECTOR(struct launch) launches;
static pid_t ending; /* the process that ends; a child of fork has a number of its own */

static bool is_main_thread(void)
{
    return syscall(SYS_gettid) == getpid();
}

/* ---- launches ---- */

/* CL_QUEUED, CL_SUBMITTED, CL_RUNNING, CL_COMPLETE, or an error below 0. */
static cl_int state_of(const struct launch *launch)
{
    cl_int state = CL_COMPLETE;
    if (clGetEventInfo(launch->event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state,
                       NULL))
        return CL_COMPLETE;
    return state;
}

/* Drops what is compiled, and what is in `queue`. */
static void sweep(cl_command_queue queue)
{
    size_t kept = 0;
    for (size_t i = 0; i < launches.count; i++) {
        const struct launch launch = launches.items[i];
        if (launch.queue != queue && state_of(&launch) > CL_RUNNING)
            launches.items[kept++] = launch;
        else
            clReleaseEvent(launch.event);
    }
    launches.count = kept;
    if (!kept)
        kiln__vector_free(&launches);
}

void kiln__compiler_launched(cl_command_queue queue, cl_event event)
{
    pthread_mutex_lock(&mutex);
    sweep(NULL);
    struct launch *launch = kiln__vector_push(&launches);
    if (launch && clRetainEvent(event))
        launches.count--;
    else if (launch)
        *launch = (struct launch){queue, event};
    pthread_mutex_unlock(&mutex);
}

void kiln__compiler_forget(cl_command_queue queue)
{
    pthread_mutex_lock(&mutex);
    sweep(queue);
    pthread_mutex_unlock(&mutex);
}

/* ---- the end ---- */

/* What keeps the end waiting. */
struct work {
    size_t left;   /* threads and launches */
    bool compiles; /* one is at it, or has the compiler before it */
};

static struct work compiler_guard_look(void)
{
    pthread_mutex_lock(&mutex);
    sweep(NULL);
    struct work work = {inside + launches.count, inside > 0};
    for (size_t i = 0; i < launches.count; i++)
        work.compiles |= state_of(&launches.items[i]) == CL_SUBMITTED;
    pthread_mutex_unlock(&mutex);
    return work;
}

/* When there was a change last: what had been waited, and what processors had worked. */
struct change {
    int64_t waited, worked;
};

/* A launch that waits for a command that takes long, or never ends, is not compiled yet. What
 * compiles may have to wait for a processor: its work counts. Other threads of the process may work
 * meanwhile, on many processors, so that the time counts as well. */
static bool is_stuck(const struct work *work, const struct change *last, int64_t waited)
{
    const int64_t still = waited - last->waited;
    if (!work->compiles)
        return still > LONGEST_STILL_NS;
    return still > LONGEST_COMPILE_NS ||
           (still > MOST_COMPILE_NS && kiln__process_time() - last->worked > MOST_COMPILE_NS);
}

static void await_compiler(void)
{
    struct change last = {0, kiln__process_time()};
    int64_t waited = 0;
    size_t before = 0;
    struct work work;
    while ((work = compiler_guard_look()).left) {
        if (work.left != before)
            last = (struct change){waited, kiln__process_time()};
        before = work.left;
        if (is_stuck(&work, &last, waited))
            return;
        waited += kiln__poll_sleep();
    }
}

static void stop_compiling(void *process)
{
    if ((pid_t)(intptr_t)process != getpid())
        return;
    pthread_mutex_lock(&mutex);
    ending = getpid();
    pthread_mutex_unlock(&mutex);
    await_compiler();
}

/* glibc's and others', for C++; not declared anywhere. */
extern int __cxa_thread_atexit_impl(void (*destroy)(void *), void *object, void *library)
    __attribute__((weak));
extern void *__dso_handle __attribute__((visibility("hidden")));

__attribute__((constructor)) void kiln__compiler_guard_exit(void)
{
    static pid_t guarded; /* the main thread's alone */
    pid_t process = getpid();
    if (!is_main_thread() || guarded == process || !__cxa_thread_atexit_impl)
        return;
    if (!__cxa_thread_atexit_impl(stop_compiling, (void *)(intptr_t)process, &__dso_handle))
        guarded = process;
}

/* ---- from outside ---- */

/* A main thread may end alone, by pthread_exit(): its process is a zombie with threads. */
static bool main_thread_has_gone(void)
{
    return kiln__process_state(getpid()) == 'Z';
}

static bool compiler_guard_enter(void)
{
    pthread_mutex_lock(&mutex);
    bool may = ending != getpid() || is_main_thread();
    inside += may;
    pthread_mutex_unlock(&mutex);
    return may;
}

static void go_on(void)
{
    pthread_mutex_lock(&mutex);
    ending = 0;
    pthread_mutex_unlock(&mutex);
}

bool kiln__compiler_enter(void)
{
    int64_t waited = 0;
    while (!compiler_guard_enter()) {
        if (main_thread_has_gone())
            go_on();
        else if (waited > LONGEST_DOUBT_NS)
            return false;
        waited += kiln__poll_sleep();
    }
    return true;
}

void kiln__compiler_leave(void)
{
    pthread_mutex_lock(&mutex);
    inside--;
    pthread_mutex_unlock(&mutex);
}
