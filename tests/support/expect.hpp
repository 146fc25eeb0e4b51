/* SPDX-License-Identifier: Apache-2.0 */
/* Tests in C++ without a framework: what is wrong is printed and counted. */
#ifndef KILN_TESTS_SUPPORT_EXPECT_HPP
#define KILN_TESTS_SUPPORT_EXPECT_HPP

#include <cstdio>

#include <kiln/kiln.hpp>

static int faults;

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            std::printf("%s:%d: %s; %s\n", __FILE__, __LINE__, #condition, kiln_last_error());     \
            faults++;                                                                              \
        }                                                                                          \
    } while (0)

#endif
