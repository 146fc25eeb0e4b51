/* SPDX-License-Identifier: Apache-2.0 */
/* Tests in onnx's own form, run with libkiln-onnx:
 *   run_nodes [-j PROCESSES] [-k KNOWN] [-t PART] [-v] FOLDER
 * FOLDER/KIND/TEST has model.onnx, test_data_set_N/input_N.pb and output_N.pb. Each process has one
 * context and takes the next test; where one dies, that test has failed and another goes on. What
 * does not pass has to be in KNOWN, and all that is there must fail. Exit status: 0, 1 where that
 * is not so, 2 without tests, 77 without a device. */
#include <glob.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kiln/kiln.h>
#include <kiln/onnx.h>

#include "cases.h"
#include "known.h"
#include "tensors.h"

enum { MOST_VALUES = 64, MOST_PROCESSES = 64, SECONDS = 120, NO_DEVICE = 77 };

enum outcome { NOT_RUN, PASSED, FAILED, UNSUPPORTED };

struct result {
    enum outcome outcome;
    bool other_type; /* passed with values of a type that is near the wanted one */
    char reason[REASON];
};

/* What the processes share. */
struct shared {
    atomic_size_t next;
    size_t at[MOST_PROCESSES];
    struct result results[];
};

static struct case_list cases;
static struct shared *shared;

/* ---- one test ---- */

struct run {
    kiln_onnx_model *model;
    size_t n_inputs, n_outputs;
    kiln_array inputs[MOST_VALUES], outputs[MOST_VALUES];
    struct tolerance tolerance;
    struct result *result;
};

static bool conclude(struct run *run, kiln_status status)
{
    if (status) {
        run->result->outcome = status == KILN_UNSUPPORTED ? UNSUPPORTED : FAILED;
        snprintf(run->result->reason, REASON, "%s", kiln_last_error());
    }
    return !status;
}

static bool fail(struct run *run)
{
    run->result->outcome = FAILED;
    return false;
}

static Onnx__TensorProto *read_value(struct run *run, const char *folder, const char *kind,
                                     size_t i)
{
    char path[8192];
    snprintf(path, sizeof path, "%s/%s_%zu.pb", folder, kind, i);
    Onnx__TensorProto *tensor = read_tensor(path, run->result->reason);
    run->result->other_type |= tensor && !is_same_type(tensor->data_type);
    return tensor;
}

static bool read_inputs(struct run *run, const char *folder)
{
    for (size_t i = 0; i < run->n_inputs; i++) {
        Onnx__TensorProto *tensor = read_value(run, folder, "input", i);
        bool good = tensor && array_of_tensor(tensor, &run->inputs[i], run->result->reason);
        if (tensor)
            onnx__tensor_proto__free_unpacked(tensor, NULL);
        if (!good)
            return fail(run);
    }
    return true;
}

static bool compare_outputs(struct run *run, const char *folder)
{
    char reason[REASON];
    for (size_t i = 0; i < run->n_outputs; i++) {
        Onnx__TensorProto *tensor = read_value(run, folder, "output", i);
        bool good = tensor && array_is(&run->outputs[i], tensor, run->tolerance, reason);
        if (tensor && !good)
            snprintf(run->result->reason, REASON, "output %zu: %.*s", i, REASON - 40, reason);
        if (tensor)
            onnx__tensor_proto__free_unpacked(tensor, NULL);
        if (!good)
            return fail(run);
    }
    return true;
}

static void free_arrays(struct run *run)
{
    for (size_t i = 0; i < MOST_VALUES; i++) {
        free(run->inputs[i].data);
        kiln_free(run->outputs[i].data);
        run->inputs[i].data = run->outputs[i].data = NULL;
    }
}

static bool run_data_set(struct run *run, const char *folder)
{
    bool good = read_inputs(run, folder) &&
                conclude(run, kiln_model_run(run->model, run->inputs, run->outputs)) &&
                compare_outputs(run, folder);
    free_arrays(run);
    return good;
}

/* A whole network may be further off than an operator; its folder says how far. */
static struct tolerance read_tolerance(const char *folder)
{
    struct tolerance tolerance = {1e-3, 1e-7};
    char path[8192];
    snprintf(path, sizeof path, "%s/tolerance", folder);
    FILE *file = fopen(path, "r");
    if (file && fscanf(file, "%lf %lf", &tolerance.relative, &tolerance.absolute) != 2)
        tolerance = (struct tolerance){0};
    if (file)
        fclose(file);
    return tolerance;
}

static void run_loaded(struct run *run, const struct test_case *test)
{
    char pattern[4096];
    glob_t found = {0};
    run->n_inputs = kiln_model_inputs(run->model, NULL);
    run->n_outputs = kiln_model_outputs(run->model, NULL);
    run->tolerance = read_tolerance(test->folder);
    snprintf(pattern, sizeof pattern, "%s/test_data_set_*", test->folder);
    bool good = run->n_inputs <= MOST_VALUES && run->n_outputs <= MOST_VALUES &&
                !glob(pattern, 0, NULL, &found);
    if (!good) {
        snprintf(run->result->reason, REASON, "no data, or too many values");
        fail(run);
    }
    for (size_t i = 0; good && i < found.gl_pathc; i++)
        good = run_data_set(run, found.gl_pathv[i]);
    if (good)
        run->result->outcome = PASSED;
    globfree(&found);
}

static void run_case(kiln_context *context, const struct test_case *test, struct result *result)
{
    char path[8192];
    struct run run = {.result = result};
    snprintf(path, sizeof path, "%s/model.onnx", test->folder);
    if (conclude(&run, kiln_model_load(context, path, NULL, &run.model)))
        run_loaded(&run, test);
    kiln_model_release(run.model);
}

/* ---- processes ---- */

static void work(size_t process)
{
    kiln_context *context;
    kiln_status status = kiln_context_create(NULL, &context);
    if (status) {
        fprintf(stderr, "%s\n", kiln_last_error());
        _exit(status == KILN_NO_DEVICE ? NO_DEVICE : 1);
    }
    size_t i;
    while ((i = shared->at[process] = atomic_fetch_add(&shared->next, 1)) < cases.count) {
        alarm(SECONDS);
        run_case(context, &cases.cases[i], &shared->results[i]);
    }
    kiln_context_release(context);
    _exit(0);
}

static void note_death(size_t process, int status)
{
    size_t i = shared->at[process];
    if (i >= cases.count)
        return;
    shared->results[i].outcome = FAILED;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        snprintf(shared->results[i].reason, REASON, "took longer than %d s", SECONDS);
    else
        snprintf(shared->results[i].reason, REASON, "ended the process: %s",
                 WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "exit");
}

static pid_t start(size_t process)
{
    fflush(NULL);
    pid_t pid = fork();
    if (!pid)
        work(process);
    return pid;
}

/* Whether there is a device. */
static bool run_all(size_t processes)
{
    pid_t pids[MOST_PROCESSES];
    int status;
    pid_t ended;
    bool device = true;
    for (size_t p = 0; p < processes; p++)
        pids[p] = start(p);
    while ((ended = wait(&status)) > 0) {
        device = device && !(WIFEXITED(status) && WEXITSTATUS(status) == NO_DEVICE);
        for (size_t p = 0; device && status && p < processes; p++)
            if (pids[p] == ended) {
                note_death(p, status);
                pids[p] = start(p);
            }
    }
    return device;
}

/* ---- the report ---- */

struct tally {
    size_t plain[UNSUPPORTED + 1], expanded[UNSUPPORTED + 1];
    size_t other_type;
    size_t as_known[UNSUPPORTED + 1], surprises;
};

/* Why the test's outcome is not as it should be; NULL if it is. */
static const char *surprise_of(const struct test_case *test, const struct result *result,
                               const struct known_list *known)
{
    struct known_row *fails = find_known(known, test->name, test->operator_name, true);
    struct known_row *refused = find_known(known, test->name, test->operator_name, false);
    if (result->outcome == PASSED)
        return fails ? "passes, and is known to fail: take its row away" : NULL;
    struct known_row *row = result->outcome == UNSUPPORTED ? refused : fails;
    if (row)
        row->used = true;
    return row ? NULL : result->reason;
}

static void tell(const struct test_case *test, const struct result *result, const char *surprise,
                 bool verbose)
{
    static const char *const words[] = {"not run", "passed", "failed", "not supported"};
    if (surprise)
        printf("not ok - %s (%s, %s): %s\n", test->name, test->operator_name,
               words[result->outcome], surprise);
    else if (verbose)
        printf("ok - %s (%s, %s) %s\n", test->name, test->operator_name, words[result->outcome],
               result->reason);
}

static int by_operator(const void *a, const void *b)
{
    return strcmp(cases.cases[*(const size_t *)a].operator_name,
                  cases.cases[*(const size_t *)b].operator_name);
}

static void print_row(const char *name, const struct tally *tally)
{
    printf("%-36s", name);
    for (int i = PASSED; i <= UNSUPPORTED; i++)
        printf(" %6zu", tally->plain[i]);
    printf("   ");
    for (int i = PASSED; i <= UNSUPPORTED; i++)
        printf(" %6zu", tally->expanded[i]);
    printf("\n");
}

static void count(struct tally *tally, size_t i)
{
    size_t *counts = cases.cases[i].expanded ? tally->expanded : tally->plain;
    counts[shared->results[i].outcome]++;
}

static void print_table(void)
{
    size_t *order = malloc(cases.count * sizeof *order);
    struct tally row = {0};
    for (size_t i = 0; order && i < cases.count; i++)
        order[i] = i;
    if (!order)
        return;
    qsort(order, cases.count, sizeof *order, by_operator);
    printf("%-36s %6s %6s %6s    its function in its place\n", "", "passed", "failed", "not");
    for (size_t i = 0; i < cases.count; i++) {
        count(&row, order[i]);
        if (i + 1 == cases.count || by_operator(&order[i], &order[i + 1])) {
            print_row(cases.cases[order[i]].operator_name, &row);
            row = (struct tally){0};
        }
    }
    free(order);
}

static struct tally report(struct known_list *known, bool verbose)
{
    struct tally all = {0};
    for (size_t i = 0; i < cases.count; i++) {
        const struct result *result = &shared->results[i];
        const char *surprise = surprise_of(&cases.cases[i], result, known);
        tell(&cases.cases[i], result, surprise, verbose);
        count(&all, i);
        *(surprise ? &all.surprises : &all.as_known[result->outcome]) += 1;
        all.other_type += result->outcome == PASSED && result->other_type;
    }
    return all;
}

static void print_totals(const struct tally *all, const struct known_list *known)
{
    size_t total[UNSUPPORTED + 1];
    for (int i = 0; i <= UNSUPPORTED; i++)
        total[i] = all->plain[i] + all->expanded[i];
    print_row("all", all);
    for (size_t i = 0; i < known->count; i++)
        if (!known->rows[i].used)
            printf("no test is as known-failures says: %s %s\n",
                   known->rows[i].fails ? "fails" : "unsupported", known->rows[i].pattern);
    printf("%zu passed (%zu with numbers of a type near theirs, such as f32 for f64), %zu failed, "
           "%zu not supported\n",
           total[PASSED], all->other_type, total[FAILED], total[UNSUPPORTED]);
    printf("# TOTAL: %zu\n# PASS:  %zu\n# SKIP:  %zu\n# XFAIL: %zu\n# FAIL:  %zu\n", cases.count,
           all->as_known[PASSED], all->as_known[UNSUPPORTED], all->as_known[FAILED],
           all->surprises);
}

static int usage(void)
{
    fprintf(stderr, "usage: run_nodes [-j PROCESSES] [-k KNOWN] [-t PART] [-v] FOLDER\n");
    return 2;
}

int main(int argc, char **argv)
{
    struct known_list known = {0};
    const char *part = NULL;
    size_t processes = 1;
    bool verbose = false;
    int option;
    while ((option = getopt(argc, argv, "j:k:t:v")) != -1) {
        if (option == 'k' && !read_known(optarg, &known))
            return 2;
        part = option == 't' ? optarg : part;
        processes = option == 'j' ? strtoul(optarg, NULL, 10) : processes;
        verbose |= option == 'v';
        if (option == '?')
            return usage();
    }
    if (optind + 1 != argc || !processes || processes > MOST_PROCESSES)
        return usage();
    cases = find_cases(argv[optind], part);
    shared = mmap(NULL, sizeof *shared + cases.count * sizeof *shared->results,
                  PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!cases.count || shared == MAP_FAILED) {
        fprintf(stderr, "no tests in %s\n", argv[optind]);
        return 2;
    }
    if (!run_all(processes))
        return NO_DEVICE;
    struct tally all = report(&known, verbose);
    print_table();
    print_totals(&all, &known);
    free(known.rows);
    free_cases(&cases);
    return all.surprises ? 1 : 0;
}
