/* SPDX-License-Identifier: Apache-2.0 */
/* Every allocation of kiln fails in turn, once or for good, while it does what it does with a
 * device. Each time an error has to come back with a sentence, or the right result; what was
 * allocated has to be freed; and the context has to run the next batch.
 *
 *     allocations               a sample in each part
 *     allocations long          each one everywhere, once and for good
 *     allocations [long] PART   one part
 *
 * The linker sends the allocations of kiln's own code here (--wrap), those of the driver not. */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../support/cache.h"
#include "budget.h"
#include "opencl_work.h"

enum { PATIENCE_S = 120, PATIENCE_COLD_S = 600, NOT_RUN = 77 };

static atomic_ulong made, limit; /* limit 0: none fails */
static atomic_bool for_good, hit;
static bool is_long;
static atomic_long held; /* blocks */

static const int deadly[] = {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGALRM};
static const char *current; /* part */

static struct budget budget;
static unsigned long in_work; /* allocations */
static int cases, errors, results, wrong, speechless, misnamed, unusable, leaks;

/* ---- in place of the library's ---- */

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void __real_free(void *memory);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
char *__wrap_strdup(const char *text);
void __wrap_free(void *memory);

static bool fails(void)
{
    unsigned long number = atomic_fetch_add(&made, 1) + 1;
    unsigned long at = atomic_load(&limit);
    bool failing = at && (for_good ? number >= at : number == at);
    if (failing)
        hit = true;
    return failing;
}

static void *counted(void *memory)
{
    if (memory)
        atomic_fetch_add(&held, 1);
    return memory;
}

/* Nothing is found there that lay there before, and so was right. */
void *__wrap_malloc(size_t size)
{
    void *memory = fails() ? NULL : counted(__real_malloc(size));
    return memory ? memset(memory, 0xa5, size) : NULL;
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails() ? NULL : counted(__real_calloc(count, size));
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return fails() ? NULL : counted(__real_aligned_alloc(alignment, size));
}

void *__wrap_realloc(void *memory, size_t size)
{
    if (fails())
        return NULL;
    return memory ? __real_realloc(memory, size) : counted(__real_realloc(memory, size));
}

char *__wrap_strdup(const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = __wrap_malloc(size);
    return copy ? memcpy(copy, text, size) : NULL;
}

void __wrap_free(void *memory)
{
    if (memory)
        atomic_fetch_sub(&held, 1);
    __real_free(memory);
}

static void arm(unsigned long number)
{
    made = 0;
    hit = false;
    limit = number;
}

/* ---- the campaign ---- */

static void finding(int *count, bool found, const char *what, const struct work *work,
                    unsigned long number)
{
    if (!found)
        return;
    ++*count;
    printf("%s: %s, allocation %lu %s: %s\n", what, work->name, number,
           for_good ? "and all later ones" : "once", kiln_last_error());
}

static void run_case(const struct work *work, const char *folder, unsigned long number)
{
    struct trial trial = {.work = work, .folder = folder, .once = !for_good};
    long before = held;
    work_begin(&trial);
    if (trial.failed || trial.wrong)
        exit(NOT_RUN);
    arm(number);
    work->act(&trial);
    in_work = number ? in_work : made;
    bool reached = hit;
    arm(0);
    struct trial after = trial;
    after.failed = after.wrong = after.speechless = false;
    work_verify(&after);
    work_end(&after);
    cases += reached;
    errors += reached && trial.failed;
    results += reached && !trial.failed && !trial.wrong;
    finding(&wrong, trial.wrong, "wrong result", work, number);
    finding(&speechless, trial.speechless, "error without a sentence", work, number);
    finding(&misnamed, trial.failed && trial.status != KILN_OUT_OF_HOST_MEMORY,
            kiln_status_name(trial.status), work, number);
    finding(&unusable, after.failed || after.wrong, "unusable afterwards", work, number);
    finding(&leaks, held != before, "not freed", work, number);
}

/* Name the case of a crash or a hang, then end as it would have ended. */
static void give_name(int number)
{
    char text[128];
    int length = snprintf(text, sizeof text, "signal %d: %s, allocation %lu %s\n", number, current,
                          limit, for_good ? "and all later ones" : "once");
    signal(number, SIG_DFL);
    if (write(STDOUT_FILENO, text, (size_t)length) == length)
        raise(number);
}

static bool is_asked_for(const struct work *work, int argc, char **argv)
{
    const char *name = argc > 1 ? argv[argc - 1] : "long";
    return !strcmp(name, "long") ? !work->slow : !strcmp(name, work->name);
}

static void run_work(const struct work *work)
{
    char folder[300];
    snprintf(folder, sizeof folder, "%s/%s", fake_folder(), work->cold ? "cold" : "warm");
    current = work->name;
    alarm(PATIENCE_COLD_S); /* every kernel is compiled */
    run_case(work, folder, 0);
    budget_note(&budget);
    run_case(work, folder, 0); /* as many allocations as the cases have, and as much time */
    unsigned long count = budget_share(&budget, in_work, budget_note(&budget));
    for (unsigned long i = 0; i < count && !budget_is_spent(&budget, i); i++) {
        alarm(PATIENCE_S);
        run_case(work, folder, budget_sample(i, count, in_work, 0.5));
        budget_note(&budget);
    }
}

int main(int argc, char **argv)
{
    char pocl[300];
    snprintf(pocl, sizeof pocl, "%s/pocl", fake_folder());
    if (!mkdir(pocl, 0700))
        setenv("POCL_CACHE_DIR", pocl, 1);
    size_t devices = 0;
    if (kiln_device_count(&devices) || !devices) {
        puts("no OpenCL device here");
        fake_end();
        return NOT_RUN;
    }
    for (size_t i = 0; i < sizeof deadly / sizeof *deadly; i++)
        signal(deadly[i], give_name);
    setvbuf(stdout, NULL, _IOLBF, 0);
    is_long = campaign_is_long(argc, argv);
    budget_begin(&budget, is_long || argc > 1, work_count);
    for (int i = 0; i < work_count; i++)
        for (int mode = 0; mode < (is_long ? 2 : 1); mode++) {
            for_good = mode;
            if (is_asked_for(&works[i], argc, argv))
                run_work(&works[i]);
        }
    printf("%d allocations failed, of %lu: %d errors returned, %d right results without them; %d "
           "wrong "
           "results, %d errors without a sentence, %d that are not OUT_OF_HOST_MEMORY, %d contexts "
           "of no use "
           "afterwards, %d leaks\n",
           cases, budget.possible, errors, results, wrong, speechless, misnamed, unusable, leaks);
    fake_end();
    return wrong || speechless || misnamed || unusable || leaks || !cases;
}
