/* SPDX-License-Identifier: Apache-2.0 */
/* A stand-in for what kiln's tests use of Criterion, for tools that Criterion's sandbox cannot run
 * under: ThreadSanitizer, Oclgrind. One process per test, forked from a single-threaded parent. */
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

struct plain_options {
    void (*init)(void);
    void (*fini)(void);
    double timeout; /* seconds; 0: none */
    bool disabled;
    int signal;    /* that the test must end with */
    int exit_code; /* that the test must end with */
    const char *description;
};

struct plain_test {
    const char *suite, *name;
    void (*run)(void);
    struct plain_options options;
    struct plain_test *next;
};

struct plain_suite {
    const char *name;
    struct plain_options options;
    struct plain_suite *next;
};

void plain_add_test(struct plain_test *test);
void plain_add_suite(struct plain_suite *suite);

/* Print what failed; end the test unless it is only expected to hold. */
void plain_failed(bool fatal, const char *file, int line, const char *condition, const char *format,
                  ...) __attribute__((format(printf, 5, 6)));
void plain_skip(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

#define Test(suite_, name_, ...)                                                                   \
    static void plain_run_##suite_##_##name_(void);                                                \
    __attribute__((constructor)) static void plain_add_##suite_##_##name_(void)                    \
    {                                                                                              \
        static struct plain_test test = {                                                          \
            #suite_, #name_, plain_run_##suite_##_##name_, {__VA_ARGS__}, NULL};                   \
        plain_add_test(&test);                                                                     \
    }                                                                                              \
    static void plain_run_##suite_##_##name_(void)

#define TestSuite(name_, ...)                                                                      \
    __attribute__((constructor)) static void plain_suite_##name_(void)                             \
    {                                                                                              \
        static struct plain_suite suite = {#name_, {__VA_ARGS__}, NULL};                           \
        plain_add_suite(&suite);                                                                   \
    }                                                                                              \
    struct plain_suite

/* The blank keeps an absent message from being an empty format. */
#define PLAIN_CHECK(fatal, condition, text, ...)                                                   \
    ((condition) ? (void)0 : plain_failed(fatal, __FILE__, __LINE__, text, " " __VA_ARGS__))

#define PLAIN_EQUAL(a, op, b) (a) op(b), #a " " #op " " #b
#define PLAIN_STRINGS(a, op, b) strcmp(a, b) op 0, #a " " #op " " #b
#define PLAIN_BYTES(a, op, b, n) memcmp(a, b, n) op 0, #a " " #op " " #b
#define PLAIN_IS_NEAR(a, b, e) fabs((double)(a) - (double)(b)) <= (double)(e)
#define PLAIN_NEAR(a, b, e) PLAIN_IS_NEAR(a, b, e), #a " is near " #b
#define PLAIN_EXPAND(fatal, ...) PLAIN_CHECK(fatal, __VA_ARGS__)

#define cr_assert(c, ...) PLAIN_CHECK(true, c, #c, __VA_ARGS__)
#define cr_assert_not(c, ...) PLAIN_CHECK(true, !(c), "not " #c, __VA_ARGS__)
#define cr_assert_null(p, ...) PLAIN_CHECK(true, !(p), #p " is NULL", __VA_ARGS__)
#define cr_assert_not_null(p, ...) PLAIN_CHECK(true, (p) != NULL, #p " is not NULL", __VA_ARGS__)
#define cr_assert_eq(a, b, ...) PLAIN_EXPAND(true, PLAIN_EQUAL(a, ==, b), __VA_ARGS__)
#define cr_assert_neq(a, b, ...) PLAIN_EXPAND(true, PLAIN_EQUAL(a, !=, b), __VA_ARGS__)
#define cr_assert_lt(a, b, ...) PLAIN_EXPAND(true, PLAIN_EQUAL(a, <, b), __VA_ARGS__)
#define cr_assert_leq(a, b, ...) PLAIN_EXPAND(true, PLAIN_EQUAL(a, <=, b), __VA_ARGS__)
#define cr_assert_gt(a, b, ...) PLAIN_EXPAND(true, PLAIN_EQUAL(a, >, b), __VA_ARGS__)
#define cr_assert_geq(a, b, ...) PLAIN_EXPAND(true, PLAIN_EQUAL(a, >=, b), __VA_ARGS__)
#define cr_assert_str_eq(a, b, ...) PLAIN_EXPAND(true, PLAIN_STRINGS(a, ==, b), __VA_ARGS__)
#define cr_assert_str_empty(a, ...) PLAIN_CHECK(true, !*(a), #a " is empty", __VA_ARGS__)
#define cr_assert_str_not_empty(a, ...) PLAIN_CHECK(true, *(a), #a " is not empty", __VA_ARGS__)
#define cr_assert_str_neq(a, b, ...) PLAIN_EXPAND(true, PLAIN_STRINGS(a, !=, b), __VA_ARGS__)
#define cr_assert_arr_eq(a, b, n, ...) PLAIN_EXPAND(true, PLAIN_BYTES(a, ==, b, n), __VA_ARGS__)
#define cr_assert_arr_neq(a, b, n, ...) PLAIN_EXPAND(true, PLAIN_BYTES(a, !=, b, n), __VA_ARGS__)
#define cr_assert_float_neq(a, b, e, ...)                                                          \
    PLAIN_CHECK(true, !(PLAIN_IS_NEAR(a, b, e)), #a " is not near " #b, __VA_ARGS__)
#define cr_assert_float_eq(a, b, e, ...) PLAIN_EXPAND(true, PLAIN_NEAR(a, b, e), __VA_ARGS__)
#define cr_assert_fail(...) PLAIN_CHECK(true, false, "failed", __VA_ARGS__)
#define cr_fatal(...) PLAIN_CHECK(true, false, "failed", __VA_ARGS__)

#define cr_expect(c, ...) PLAIN_CHECK(false, c, #c, __VA_ARGS__)
#define cr_expect_not(c, ...) PLAIN_CHECK(false, !(c), "not " #c, __VA_ARGS__)
#define cr_expect_null(p, ...) PLAIN_CHECK(false, !(p), #p " is NULL", __VA_ARGS__)
#define cr_expect_not_null(p, ...) PLAIN_CHECK(false, (p) != NULL, #p " is not NULL", __VA_ARGS__)
#define cr_expect_eq(a, b, ...) PLAIN_EXPAND(false, PLAIN_EQUAL(a, ==, b), __VA_ARGS__)
#define cr_expect_neq(a, b, ...) PLAIN_EXPAND(false, PLAIN_EQUAL(a, !=, b), __VA_ARGS__)
#define cr_expect_lt(a, b, ...) PLAIN_EXPAND(false, PLAIN_EQUAL(a, <, b), __VA_ARGS__)
#define cr_expect_leq(a, b, ...) PLAIN_EXPAND(false, PLAIN_EQUAL(a, <=, b), __VA_ARGS__)
#define cr_expect_gt(a, b, ...) PLAIN_EXPAND(false, PLAIN_EQUAL(a, >, b), __VA_ARGS__)
#define cr_expect_geq(a, b, ...) PLAIN_EXPAND(false, PLAIN_EQUAL(a, >=, b), __VA_ARGS__)
#define cr_expect_str_eq(a, b, ...) PLAIN_EXPAND(false, PLAIN_STRINGS(a, ==, b), __VA_ARGS__)
#define cr_expect_str_empty(a, ...) PLAIN_CHECK(false, !*(a), #a " is empty", __VA_ARGS__)
#define cr_expect_str_not_empty(a, ...) PLAIN_CHECK(false, *(a), #a " is not empty", __VA_ARGS__)
#define cr_expect_str_neq(a, b, ...) PLAIN_EXPAND(false, PLAIN_STRINGS(a, !=, b), __VA_ARGS__)
#define cr_expect_arr_eq(a, b, n, ...) PLAIN_EXPAND(false, PLAIN_BYTES(a, ==, b, n), __VA_ARGS__)
#define cr_expect_arr_neq(a, b, n, ...) PLAIN_EXPAND(false, PLAIN_BYTES(a, !=, b, n), __VA_ARGS__)
#define cr_expect_float_neq(a, b, e, ...)                                                          \
    PLAIN_CHECK(false, !(PLAIN_IS_NEAR(a, b, e)), #a " is not near " #b, __VA_ARGS__)
#define cr_expect_float_eq(a, b, e, ...) PLAIN_EXPAND(false, PLAIN_NEAR(a, b, e), __VA_ARGS__)
#define cr_expect_fail(...) PLAIN_CHECK(false, false, "failed", __VA_ARGS__)

#define cr_skip_test(...) plain_skip(" " __VA_ARGS__)
#define cr_skip(...) plain_skip(" " __VA_ARGS__)
#define cr_log_info(...) (fprintf(stderr, __VA_ARGS__), fputc('\n', stderr))
#define cr_log_warn(...) (fprintf(stderr, __VA_ARGS__), fputc('\n', stderr))
