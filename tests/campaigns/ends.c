/* SPDX-License-Identifier: Apache-2.0 */
/* Processes with cold caches end, whatever becomes of the program that stores their kernels: it is
 * missing, stalls, is killed, is of another version; and while runs and threads are left that
 * compile. None dies, and none is waited for longer than a second, or a kernel is compiled. A few
 * of each kind; with the arguments "long" and N, N (1,000) of each. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cold_work.h"
#include "support/cache.h"
#include "support/missing.h"

/* Beyond the second: on a machine that has no time a process takes long to be taken down. Who waits
 * for a helper that stalls takes three times as long. */
#define LONGEST_END 100.0
/* And where the driver's compiler is at work, which may take its time there. */
#define LONGEST_COMPILING_END 250.0

static float x[COLD_ELEMENTS], y[COLD_ELEMENTS];

/* ---- the process that ends ---- */

/* From then on the time counts. */
static void say_end(void)
{
    if (write(STDOUT_FILENO, "e", 1) != 1)
        _exit(99);
}

static kiln_context *use(void)
{
    kiln_context *context;
    if (kiln_context_create(NULL, &context))
        exit(77);
    kiln_batch *batch = cold_batch(context, 0, x, y);
    if (kiln_batch_execute(batch))
        exit(1);
    kiln_batch_release(batch);
    return context;
}

static int returns(void)
{
    use();
    say_end();
    return 0;
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
}

/* What stores is in full swing. */
static int returns_later(void)
{
    use();
    nap();
    say_end();
    return 0;
}

static void *exit_here(void *unused)
{
    say_end();
    exit(0);
    return unused;
}

static int exits_in_a_thread(void)
{
    pthread_t thread;
    use();
    if (!pthread_create(&thread, NULL, exit_here, NULL))
        pthread_join(thread, NULL);
    return 1;
}

static int exits_quickly(void)
{
    use();
    say_end();
    quick_exit(0);
}

static int leaves(void)
{
    use();
    say_end();
    _exit(0);
}

static int releases(void)
{
    kiln_context *context = use();
    say_end();
    kiln_context_release(context);
    return 0;
}

static kiln_context *global;

static void release_global(void)
{
    kiln_context_release(global);
}

static int releases_in_a_handler(void)
{
    atexit(release_global);
    global = use();
    say_end();
    return 0;
}

static int has_a_child(void)
{
    int status = 1;
    use();
    pid_t child = fork();
    if (!child)
        exit(0);
    if (waitpid(child, &status, 0) != child || status)
        return 1;
    say_end();
    return 0;
}

/* What was enqueued is compiled while the process ends. */
static int leaves_runs_behind(void)
{
    kiln_context *context;
    if (kiln_context_create(NULL, &context))
        exit(77);
    for (unsigned i = 0; i < 4; i++)
        if (kiln_batch_submit(cold_batch(context, i, x, y), NULL))
            return 1;
    say_end();
    return 0;
}

/* Until the process ends, from when on nothing is compiled and a batch fails. */
static void *compile_on(void *user)
{
    float *own = malloc(sizeof y);
    const unsigned first = 8 * (unsigned)(uintptr_t)user;
    for (unsigned i = 0; own && i < 8; i++) {
        kiln_batch *batch = cold_batch(global, first + i, x, own);
        bool failed = kiln_batch_execute(batch);
        kiln_batch_release(batch);
        if (failed)
            break;
    }
    free(own);
    return NULL;
}

/* As an executor's workers, or an interpreter's threads that nobody waits for. */
static int leaves_threads_behind(void)
{
    pthread_t thread;
    global = use();
    for (uintptr_t i = 1; i <= 3; i++)
        if (pthread_create(&thread, NULL, compile_on, (void *)i))
            return 1;
    nap();
    say_end();
    return 0;
}

/* The main thread alone ends: the others go on. */
static void *finish(void *unused)
{
    const struct timespec half = {.tv_nsec = 500000000};
    nanosleep(&half, NULL);
    kiln_batch *batch = cold_batch(global, 60, x, y);
    kiln_status status = kiln_batch_execute(batch);
    say_end();
    exit(status ? 1 : 0);
    return unused;
}

static int ends_its_main_thread(void)
{
    pthread_t thread;
    global = use();
    if (pthread_create(&thread, NULL, finish, NULL))
        return 1;
    pthread_exit(NULL);
}

static const struct way {
    const char *name;
    int (*act)(void);
    bool compiles; /* at the end */
} ways[] = {
    {"returns", returns, false},
    {"releases", releases, false},
    {"exits_in_a_thread", exits_in_a_thread, false},
    {"returns_later", returns_later, false},
    {"has_a_child", has_a_child, false},
    {"releases_in_a_handler", releases_in_a_handler, false},
    {"exits_quickly", exits_quickly, false},
    {"leaves", leaves, false},
    {"leaves_runs_behind", leaves_runs_behind, true},
    {"leaves_threads_behind", leaves_threads_behind, true},
    {"ends_its_main_thread", ends_its_main_thread, false},
};

enum { WAYS = sizeof ways / sizeof *ways };

/* ---- what stores ---- */

/* A script that takes its place; $KILN_STORE is kiln-store itself. NULL: nothing does. */
static const struct helper {
    const char *name, *script;
} helpers[] = {
    {"kiln-store", "exec \"$KILN_STORE\""},
    {"missing", NULL},
    {"stalled before it begins", "stay"},
    {"stalled when it has begun", "{ printf r; stay; } &"},
    {"killed", "\"$KILN_STORE\"; { sleep 0.2; kill -9 -$$; } &"},
    {"of another version", "{ sleep 0.05; exit 1; } &"},
    {"slow", "sleep 0.3; exec \"$KILN_STORE\""},
    {"talking nonsense", "printf 'nonsense' &"},
};

enum { HELPERS = sizeof helpers / sizeof *helpers };

static void choose_helper(const struct helper *helper)
{
    if (helper->script)
        fake_store_program(helper->script);
    else
        setenv("KILN_STORE_PROGRAM", missing_path("kiln-store"), 1);
}

/* ---- the one that looks on ---- */

static struct seen {
    unsigned ends, died, late;
    double longest;
} seen[HELPERS];

static void end_once(const char *program, const struct way *way, const struct helper *helper,
                     struct seen *of)
{
    int ends[2], status = -1;
    char word = 0;
    if (pipe2(ends, O_CLOEXEC))
        exit(99);
    pid_t child = cold_spawn(program, way->name, ends[1]);
    close(ends[1]);
    ssize_t got = read(ends[0], &word, 1);
    double start = cold_seconds();
    if (child < 0 || waitpid(child, &status, 0) != child)
        exit(99);
    double took = cold_seconds() - start;
    close(ends[0]);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        exit(77);
    of->ends++;
    of->longest = took > of->longest ? took : of->longest;
    if (status || got != 1) {
        of->died++;
        printf("%s, kiln-store %s: status %d\n", way->name, helper->name, status);
    } else if (took > (way->compiles ? LONGEST_COMPILING_END : LONGEST_END)) {
        of->late++;
        printf("%s, kiln-store %s: the end took %.2f s\n", way->name, helper->name, took);
    }
}

static void remove_folders(void)
{
    char command[700];
    snprintf(command, sizeof command, "rm -rf '%s' '%s' 2>/dev/null", getenv("KILN_CACHE_DIR"),
             getenv("POCL_CACHE_DIR"));
    if (system(command))
        return; /* what stores may still be writing there */
}

static bool tell(void)
{
    struct seen all = {0};
    for (unsigned i = 0; i < HELPERS; i++) {
        printf("kiln-store %-26s %4u ends, %u died, %u late, the longest %.2f s\n", helpers[i].name,
               seen[i].ends, seen[i].died, seen[i].late, seen[i].longest);
        all.ends += seen[i].ends;
        all.died += seen[i].died;
        all.late += seen[i].late;
    }
    printf("%u ends, %u died, %u late\n", all.ends, all.died, all.late);
    fflush(stdout);
    return !all.died && !all.late;
}

/* Helpers and ways are paired anew in each round: their numbers share no divisor. */
static bool watch(const char *program, unsigned rounds)
{
    const char *named = getenv("KILN_STORE_PROGRAM");
    setenv("KILN_STORE", named ? named : "kiln-store", 1);
    unsetenv("KILN_CACHE_WAIT");
    for (unsigned i = 0; i < rounds; i++) {
        for (unsigned k = 0; k < HELPERS; k++) {
            cold_folders();
            choose_helper(&helpers[k]);
            end_once(program, &ways[(i * HELPERS + k) % WAYS], &helpers[k], &seen[k]);
            remove_folders();
        }
        if ((i + 1) % 25 == 0)
            tell();
    }
    fake_end();
    return tell();
}

int main(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "";
    for (unsigned i = 0; i < WAYS; i++)
        if (!strcmp(word, ways[i].name))
            return ways[i].act();
    unsigned rounds = argc > 2 ? (unsigned)atoi(argv[2]) : 1000;
    return !watch(argv[0], campaign_is_long(argc, argv) ? rounds : 2);
}
