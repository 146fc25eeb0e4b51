/* SPDX-License-Identifier: Apache-2.0 */
/* The runner of the stand-in for Criterion:
 *   PROGRAM [--list] [--filter PATTERN] [--tap] [--no-fork]
 * PATTERN is a shell pattern for suite/test. Speaks TAP. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* FNM_EXTMATCH */
#endif
#include "criterion/criterion.h"

#include <fnmatch.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FAILED = 1, SKIPPED = 77 };

static struct plain_test *tests;
static struct plain_suite *suites;
static bool some_expectation_failed;

void plain_add_test(struct plain_test *test)
{
    struct plain_test **end = &tests;
    while (*end)
        end = &(*end)->next;
    *end = test;
}

void plain_add_suite(struct plain_suite *suite)
{
    suite->next = suites;
    suites = suite;
}

/* Through exit(), so that tools report what they found. */
static void end_test(int code) __attribute__((noreturn));
static void end_test(int code)
{
    fflush(stdout);
    exit(code);
}

void plain_failed(bool fatal, const char *file, int line, const char *condition, const char *format,
                  ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("# %s:%d: %s:", file, line, condition);
    vprintf(format, arguments);
    putchar('\n');
    va_end(arguments);
    some_expectation_failed = true;
    if (fatal)
        end_test(FAILED);
}

void plain_skip(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("# skipped:");
    vprintf(format, arguments);
    putchar('\n');
    va_end(arguments);
    end_test(SKIPPED);
}

static struct plain_options options_of(const struct plain_test *test)
{
    struct plain_options options = test->options;
    for (struct plain_suite *suite = suites; suite; suite = suite->next) {
        if (strcmp(suite->name, test->suite))
            continue;
        options.init = options.init ? options.init : suite->options.init;
        options.fini = options.fini ? options.fini : suite->options.fini;
        options.timeout = options.timeout > 0 ? options.timeout : suite->options.timeout;
        options.disabled = options.disabled || suite->options.disabled;
    }
    return options;
}

static void run_here(const struct plain_test *test, const struct plain_options *options)
{
    if (options->timeout > 0)
        alarm((unsigned)ceil(options->timeout));
    if (options->init)
        options->init();
    test->run();
    if (options->fini)
        options->fini();
    end_test(some_expectation_failed ? FAILED : 0);
}

static bool ended_as_it_should(int status, const struct plain_options *options)
{
    if (options->signal)
        return WIFSIGNALED(status) && WTERMSIG(status) == options->signal;
    return WIFEXITED(status) && WEXITSTATUS(status) == options->exit_code;
}

/* True unless the test failed. */
static bool run(const struct plain_test *test, bool no_fork)
{
    struct plain_options options = options_of(test);
    if (options.disabled) {
        printf("ok - %s::%s # SKIP disabled\n", test->suite, test->name);
        return true;
    }
    if (no_fork)
        run_here(test, &options);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        run_here(test, &options);
    int status = -1;
    bool waited = child > 0 && waitpid(child, &status, 0) == child;
    if (waited && WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED) {
        printf("ok - %s::%s # SKIP\n", test->suite, test->name);
        return true;
    }
    bool good = waited && ended_as_it_should(status, &options);
    if (!good)
        printf("# wait status %#x\n", (unsigned)status);
    printf("%s - %s::%s\n", good ? "ok" : "not ok", test->suite, test->name);
    return good;
}

static bool wanted(const struct plain_test *test, const char *pattern)
{
    char name[512];
    snprintf(name, sizeof name, "%s/%s", test->suite, test->name);
    return !pattern || !fnmatch(pattern, name, FNM_EXTMATCH);
}

static void list(const char *pattern)
{
    for (struct plain_test *test = tests; test; test = test->next)
        if (wanted(test, pattern) && !options_of(test).disabled)
            printf("%s/%s\n", test->suite, test->name);
}

int main(int argc, char **argv)
{
    const char *pattern = NULL;
    bool only_list = false, no_fork = false;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--filter") && i + 1 < argc)
            pattern = argv[++i];
        only_list |= !strcmp(argv[i], "--list");
        no_fork |= !strcmp(argv[i], "--no-fork");
    }
    if (only_list) {
        list(pattern);
        return 0;
    }
    int count = 0, failed = 0;
    for (struct plain_test *test = tests; test; test = test->next)
        count += wanted(test, pattern);
    printf("1..%d\n", count);
    for (struct plain_test *test = tests; test; test = test->next)
        if (wanted(test, pattern))
            failed += !run(test, no_fork);
    return failed ? 1 : 0;
}
