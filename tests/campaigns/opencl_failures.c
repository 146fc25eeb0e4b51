/* SPDX-License-Identifier: Apache-2.0 */
/* Every OpenCL call fails in turn: instead of being made, after it was made, or in the event that
 * it hands out; with three codes; once or for good. Each time an error has to come back with a
 * sentence, or the right result; all objects have to be released; and the context has to run the
 * next batch. A command whose event fails is not done, so that a result cannot be right by chance.
 * A child does the work, so that a crash or a hang is a finding and not the end.
 *
 *     opencl_failures        a sample of the calls, in each place with one code
 *     opencl_failures long   with all codes, once and for good; also through CLBlast
 *     opencl_failures long PART
 *     opencl_failures CASE   one case as findings name it, such as shared/call/once/-5/17 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../support/cache.h"
#include "../support/layer.h"
#include "budget.h"
#include "opencl_work.h"

enum { NOT_RUN = 77, PATIENCE_S = 120, PATIENCE_SLOW_S = 600, NAMES = 64 };

/* Failures that may go by without a word, because the result is right without the call; that it is
 * right is looked at in each case. */
static const struct {
    const char *work, *call; /* NULL: in any part */
    bool in_event;           /* also in its event */
    const char *reason;
} spared[] = {
    {NULL, "clCreateProgramWithBinary", false, "the program is compiled from source"},
    {NULL, "clBuildProgram", false, "of a binary: the program is compiled from source"},
    {NULL, "clCreateBuffer", false, "the pool tries again; transfers do without staging memory"},
    {NULL, "clEnqueueMapBuffer", false, "of staging memory: transfers do without"},
    {NULL, "clRetainMemObject", false, "the argument is set again next time"},
    {NULL, "clGetPlatformIDs", false, "the device of a foreign context has no number"},
    {NULL, "clGetPlatformInfo", false, "the device is left out, or has another key in the cache"},
    {NULL, "clGetDeviceIDs", false, "the platform is left out"},
    {NULL, "clGetDeviceInfo", false, "the device is left out, or has another key in the cache"},
    {NULL, "clEnqueueMarkerWithWaitList", true, "of a finish, and clFinish follows"},
    {NULL, "clGetEventInfo", false, "the end of the process does not wait for the launch"},
    {NULL, "clRetainEvent", false, "the program is not stored on disk; a span is missing"},
    {"compile", "clWaitForEvents", false, "the program is not stored on disk"},
    {"compile", "clGetProgramInfo", false, "the same"},
    {"compile", "clRetainCommandQueue", false, "the same"},
    {"compile", "clFinish", false, "the same"},
    {"create", "clFinish", false, "of a release"},
    {"interop", "clFinish", false, "of a release"},
    {"create", "clWaitForEvents", false, "of a finish, and clFinish follows"},
    {"interop", "clWaitForEvents", false, "the same"},
    {"empty", "clWaitForEvents", false, "the same"},
    {"serve-separate", "clCreateCommandQueue", false, "of memory for rows: pageable, or freed"},
    {"executor-separate", "clCreateCommandQueue", false, "the same"},
    {"executor-separate", "clWaitForEvents", false, "of a finish when the rows are freed"},
    {"executor-separate", "clFinish", false, "the same"},
    {"executor-separate", "clEnqueueUnmapMemObject", false, "of rows that are freed"},
};

struct way {
    enum kiln_layer_where where;
    enum kiln_layer_mode mode;
    int code;
};

/* What the child leaves behind; the parent reads it when the child has ended. */
static struct shared {
    /* the case under way */
    int way, work;
    unsigned long call;
    unsigned long calls, events, sample; /* of the work under way; the sample's place */
    struct budget budget;
    double each; /* of it, that one case of the work takes */
    bool done;
    int cases, errors, results, wrong, speechless, swallowed, unusable, leaks, crashes, hangs;
    struct {
        char name[48];
        int count;
    } quiet[NAMES]; /* failures that went by, by call */
} * shared;

static struct way ways[32];
static int way_count;
static bool is_long, is_single;
static const char *only; /* this part; NULL: all */

/* ---- ways to fail ---- */

static const char *const wheres[] = {
    [KILN_LAYER_CALL] = "call", [KILN_LAYER_AFTER] = "after", [KILN_LAYER_EVENT] = "event"};
static const char *const modes[] = {[KILN_LAYER_ONCE] = "once", [KILN_LAYER_FOREVER] = "forever"};

static void list_ways(void)
{
    static const struct way short_ways[] = {
        {KILN_LAYER_CALL, KILN_LAYER_ONCE, -5},
        {KILN_LAYER_AFTER, KILN_LAYER_ONCE, -4},
        {KILN_LAYER_EVENT, KILN_LAYER_ONCE, -6},
        {KILN_LAYER_CALL, KILN_LAYER_FOREVER, -6},
    };
    if (!is_long) {
        memcpy(ways, short_ways, sizeof short_ways);
        way_count = sizeof short_ways / sizeof *short_ways;
        return;
    }
    for (int where = KILN_LAYER_CALL; where <= KILN_LAYER_EVENT; where++)
        for (int mode = KILN_LAYER_ONCE; mode <= KILN_LAYER_FOREVER; mode++)
            for (int code = -4; code >= -6; code--)
                ways[way_count++] =
                    (struct way){(enum kiln_layer_where)where, (enum kiln_layer_mode)mode, code};
}

static void print_case(const char *what)
{
    const struct way *way = &ways[shared->way];
    printf("%s: %s/%s/%s/%d/%lu", what, works[shared->work].name, wheres[way->where],
           modes[way->mode], way->code, shared->call);
}

/* ---- one case, in the child ---- */

static void failed_call(char *name, size_t size)
{
    const char *line = strstr(layer_snapshot(), "\nfailed=");
    snprintf(name, size, "%.*s", line ? (int)strcspn(line + 8, "\n") : 0, line ? line + 8 : "");
}

static void note_quiet(const char *call)
{
    int i = 0;
    while (i < NAMES - 1 && *shared->quiet[i].name && strcmp(shared->quiet[i].name, call))
        i++;
    snprintf(shared->quiet[i].name, sizeof shared->quiet[i].name, "%s", call);
    shared->quiet[i].count++;
}

static bool is_spared(const char *work, const char *call)
{
    const struct way *way = &ways[shared->way];
    /* For good, a binary that was refused is stored anew in any part. */
    bool anywhere = way->mode == KILN_LAYER_FOREVER;
    for (size_t i = 0; i < sizeof spared / sizeof *spared; i++)
        if (!strcmp(spared[i].call, call) &&
            (!spared[i].work || !strcmp(spared[i].work, work) || anywhere) &&
            (way->where != KILN_LAYER_EVENT || spared[i].in_event))
            return true;
    return false;
}

static void finding(int *count, bool found, const char *what, const char *call)
{
    bool about_error = count == &shared->unusable || count == &shared->speechless;
    if (!found)
        return;
    ++*count;
    print_case(what);
    printf(" (%s)%s%s\n", call, about_error ? ": " : "", about_error ? kiln_last_error() : "");
    fflush(stdout);
}

static void judge(const struct trial *trial, const char *call)
{
    bool quiet = !trial->failed && !trial->work->silent && !trial->work->reruns;
    shared->errors += trial->failed;
    shared->results += !trial->failed && !trial->wrong;
    finding(&shared->wrong, trial->wrong, "wrong result", call);
    finding(&shared->speechless, trial->speechless, "error without a sentence", call);
    finding(&shared->swallowed, quiet && !is_spared(trial->work->name, call), "failure swallowed",
            call);
    if (quiet)
        note_quiet(call);
}

/* A command failed on the device, and those after it ran on. */
static bool ran_on(const char *error)
{
    return strstr(error, "in an earlier run") || strstr(error, " of the batch, ");
}

static void run_case(struct trial *trial)
{
    const struct way *way = &ways[shared->way];
    char call[48];
    work_begin(trial);
    if (trial->failed || trial->wrong) {
        print_case("could not start");
        printf(": %s\n", kiln_last_error());
        exit(99);
    }
    layer_reset();
    layer_fail(shared->call, NULL, way->code, way->mode, way->where);
    trial->work->act(trial);
    bool hit = layer_failures() > 0;
    failed_call(call, sizeof call);
    layer_reset();
    if (trial->context && !trial->work->silent) /* a failure that nobody waited for is told now */
        trial_good(trial, kiln_context_finish(trial->context));
    if (hit)
        judge(trial, call);
    struct trial after = *trial;
    after.failed = after.wrong = after.speechless = false;
    after.late = trial->failed && ran_on(kiln_last_error());
    work_verify(&after);
    finding(&shared->unusable, after.failed || after.wrong, "unusable afterwards", call);
    work_end(&after);
    finding(&shared->leaks, layer_count("alive") != 0, "left alive", call);
    shared->cases += hit;
}

/* Twice without a failure: first, so that every kernel is in the caches of kiln and of the driver,
 * then to count the calls. */
static void warm_up(const struct work *work, const char *folder)
{
    for (int round = 0; round < 2; round++) {
        struct trial trial = {.work = work, .folder = folder};
        alarm(PATIENCE_SLOW_S);
        work_begin(&trial);
        layer_reset();
        work->act(&trial);
        shared->calls = layer_count("eligible");
        shared->events = layer_count("eligible.event");
        work_verify(&trial);
        work_end(&trial);
        shared->each = budget_note(&shared->budget);
    }
}

/* One work failing in one way. */
static void run_way(const struct work *work, const char *folder)
{
    const struct way *way = &ways[shared->way];
    unsigned long calls = way->where == KILN_LAYER_EVENT ? shared->events : shared->calls;
    unsigned long count = is_single ? 1 : budget_share(&shared->budget, calls, shared->each);
    for (; shared->sample < count && !budget_is_spent(&shared->budget, shared->sample);
         shared->sample++) {
        struct trial trial = {.work = work,
                              .folder = folder,
                              .once = way->mode == KILN_LAYER_ONCE,
                              .returns = way->where == KILN_LAYER_AFTER};
        if (!is_single)
            shared->call =
                budget_sample(shared->sample, count, calls, shared->way / (double)way_count);
        alarm(work->slow ? PATIENCE_SLOW_S : PATIENCE_S);
        run_case(&trial);
        alarm(0);
        budget_note(&shared->budget);
        if (layer_count("alive") == 0 || is_single)
            continue;
        fflush(stdout); /* what is left alive would be found again: another child goes on */
        _exit(0);
    }
    shared->sample = 0;
}

/* A slow part is left to the long form, and even there fails in one way only. */
static bool is_due(const struct work *work)
{
    const struct way *way = &ways[shared->way];
    bool is_first =
        way->where == KILN_LAYER_CALL && way->mode == KILN_LAYER_ONCE && way->code == -5;
    return !work->slow || is_single || (is_long && is_first);
}

static void run_all(void)
{
    if (!layer_available())
        _exit(NOT_RUN);
    budget_resume(&shared->budget);
    for (; shared->work < work_count; shared->work++, shared->way = 0) {
        char folder[300];
        const struct work *work = &works[shared->work];
        bool warm = false;
        snprintf(folder, sizeof folder, "%s/%s", fake_folder(), work->cold ? "cold" : "warm");
        for (; shared->way < way_count; shared->way++) {
            if (!is_due(work) || (only && strcmp(only, work->name)))
                continue;
            if (!warm)
                warm_up(work, folder);
            warm = true;
            run_way(work, folder);
        }
        if (is_single)
            break;
    }
    shared->done = true;
}

/* ---- children ---- */

/* Answers its exit status; a crash or a hang is noted. */
static int run_child(void)
{
    int status = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        run_all();
        fflush(stdout);
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child)
        exit(99);
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    bool hung = WTERMSIG(status) == SIGALRM;
    ++*(hung ? &shared->hangs : &shared->crashes);
    print_case(hung ? "hung" : "crashed");
    printf(" by signal %d\n", WTERMSIG(status));
    return 0;
}

static bool read_case(const char *text)
{
    char work[32], where[32], mode[32];
    if (sscanf(text, "%31[^/]/%31[^/]/%31[^/]/%d/%lu", work, where, mode, &ways[0].code,
               &shared->call) != 5)
        return false;
    ways[0].where = !strcmp(where, "call")    ? KILN_LAYER_CALL
                    : !strcmp(where, "after") ? KILN_LAYER_AFTER
                                              : KILN_LAYER_EVENT;
    ways[0].mode = !strcmp(mode, "once") ? KILN_LAYER_ONCE : KILN_LAYER_FOREVER;
    while (shared->work < work_count - 1 && strcmp(works[shared->work].name, work))
        shared->work++;
    way_count = 1;
    return is_single = true;
}

static void prepare(void)
{
    char pocl[300];
    const char *layer = getenv("KILN_TEST_LAYER");
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        exit(99);
    if (layer)
        setenv("OPENCL_LAYERS", layer, 0);
    snprintf(pocl, sizeof pocl, "%s/pocl", fake_folder());
    if (!mkdir(pocl, 0700))
        setenv("POCL_CACHE_DIR", pocl, 1);
    setenv("KILN_COMPILE", "alone", 1); /* calls come in an order that is the same each time */
}

static int report(void)
{
    for (int i = 0; is_long && i < NAMES && *shared->quiet[i].name; i++)
        printf("went by, with the right result: %s, %d times\n", shared->quiet[i].name,
               shared->quiet[i].count);
    printf("%d calls failed, of %lu: %d errors returned, %d right results without them; %d wrong "
           "results, "
           "%d errors without a sentence, %d failures swallowed, %d contexts of no use afterwards, "
           "%d leaks, %d crashes, %d hangs\n",
           shared->cases, shared->budget.possible, shared->errors, shared->results, shared->wrong,
           shared->speechless, shared->swallowed, shared->unusable, shared->leaks, shared->crashes,
           shared->hangs);
    return shared->wrong || shared->speechless || shared->swallowed || shared->unusable ||
           shared->leaks || shared->crashes || shared->hangs || (!is_single && !shared->cases);
}

int main(int argc, char **argv)
{
    int status = 0;
    is_long = campaign_is_long(argc, argv);
    only = is_long ? argv[2] : NULL; /* or NULL */
    prepare();
    if (argc < 2 || is_long || !read_case(argv[1]))
        list_ways();
    budget_begin(&shared->budget, is_long, work_count * way_count);
    do {
        status = run_child();
        shared->sample++; /* a case that crashed or hung is not tried again */
    } while (!shared->done && !is_single && !status);
    if (status == NOT_RUN)
        puts("the OpenCL layer is not there: set KILN_TEST_LAYER");
    else if (!status)
        status = report();
    fake_end();
    return status;
}
