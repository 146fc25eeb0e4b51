/* SPDX-License-Identifier: Apache-2.0 */
/* A process with cold caches ends, in every way: it forgets its context or a buffer, it leaves in a
 * hurry, it has handlers of its own. It ends well and in time, what it printed arrives, and its
 * kernels are stored. Each way once; 8 times with the argument "long". */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cold_work.h"
#include "support/cache.h"
#include "support/missing.h"

#define WORD "every word"

static float x[COLD_ELEMENTS], y[COLD_ELEMENTS];

/* ---- the process that ends ---- */

static void sleep_long(void)
{
    nanosleep(&(struct timespec){0, 700000000}, NULL);
}

static kiln_context *use(unsigned kernels)
{
    kiln_context *context;
    if (kiln_context_create(NULL, &context))
        exit(77);
    for (unsigned i = 0; i < kernels; i++) {
        kiln_batch *batch = cold_batch(context, i, x, y);
        if (kiln_batch_execute(batch))
            exit(1);
        kiln_batch_release(batch);
    }
    return context;
}

/* Other libraries have handlers, too: this one runs after the driver's. */
static int forget_context(void)
{
    atexit(sleep_long);
    use(2);
    return 0;
}

/* This one runs before: the storing is in full swing. */
static int forget_and_linger(void)
{
    use(2);
    atexit(sleep_long);
    return 0;
}

static int forget_buffer(void)
{
    kiln_context *context = use(2);
    kiln_buffer *buffer;
    if (kiln_buffer_create(context, KILN_F32, 1, (size_t[]){4}, &buffer))
        return 1;
    kiln_context_release(context);
    return 0;
}

/* What stores begins when the process has ended: who waited for it would wait for ever. */
static int release_soon(void)
{
    kiln_context_release(use(3));
    return 0;
}

static kiln_context *global;

static void release_global(void)
{
    kiln_context_release(global);
}

static int release_in_a_handler(void)
{
    atexit(release_global);
    global = use(2);
    return 0;
}

/* `stores`: how many entries there are soon after the end; here: the process itself stores, and
 * what it has not come to when it ends is not; held: what stores begins after the end. */
static const struct way {
    const char *name;
    unsigned stores;
    bool here, held;
    int (*act)(void);
} ways[] = {
    {"forget_context", 2, false, false, forget_context},
    {"forget_and_linger", 2, false, false, forget_and_linger},
    {"forget_buffer", 2, false, false, forget_buffer},
    {"release_soon", 3, false, true, release_soon},
    {"release_in_a_handler", 2, false, false, release_in_a_handler},
    {"forget_context_here", 0, true, false, forget_context},
    {"forget_and_linger_here", 0, true, false, forget_and_linger},
};

enum { WAYS = sizeof ways / sizeof *ways };

/* ---- the one that looks on ---- */

/* NULL, or what went wrong. */
static const char *run_way(const char *program, const struct way *way)
{
    int ends[2], status;
    char output[64] = "";
    if (pipe2(ends, O_CLOEXEC))
        return "no pipe";
    pid_t child = cold_spawn(program, way->name, ends[1]);
    close(ends[1]);
    ssize_t got = read(ends[0], output, sizeof output - 1);
    /* The end of the output is the process's: what stores has not got it. */
    ssize_t more = read(ends[0], output + 32, 1);
    close(ends[0]);
    if (child < 0 || waitpid(child, &status, 0) != child)
        return "it could not be started";
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        exit(77);
    if (status)
        return WIFSIGNALED(status) ? "a signal ended it" : "it failed";
    if (way->held)
        fake_store_let_go();
    if (got != (ssize_t)strlen(WORD) || more || strcmp(output, WORD))
        return "its output is lost";
    return cold_await(way->stores) ? NULL : "its kernels are not stored";
}

static int watch(const char *program, unsigned rounds)
{
    unsetenv("KILN_CACHE_WAIT");
    unsigned bad = 0;
    for (unsigned i = 0; i < rounds * WAYS; i++) {
        const struct way *way = &ways[i % WAYS];
        double start = cold_seconds();
        cold_folders();
        const char *library = getenv("KILN_STORE_PROGRAM");
        char *kept = library ? strdup(library) : NULL;
        if (way->here)
            setenv("KILN_STORE_PROGRAM", missing_path("kiln-store"), 1);
        if (way->held)
            fake_store_held(NULL);
        const char *wrong = run_way(program, way);
        if (kept)
            setenv("KILN_STORE_PROGRAM", kept, 1);
        free(kept);
        printf("%-24s %.2f s  %s\n", way->name, cold_seconds() - start, wrong ? wrong : "fine");
        bad += wrong != NULL;
    }
    fake_end();
    printf("%u endings, %u of them bad\n", rounds * WAYS, bad);
    return bad != 0;
}

int main(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "";
    for (unsigned i = 0; i < WAYS; i++)
        if (!strcmp(word, ways[i].name)) {
            printf(WORD); /* buffered: stdout is a pipe */
            return ways[i].act();
        }
    return watch(argv[0], strcmp(word, "long") ? 1 : 8);
}
