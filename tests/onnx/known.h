/* SPDX-License-Identifier: Apache-2.0 */
/* What is known not to pass, a row each (tests/onnx/known-failures):
 *   fails PATTERN REASON        is wrong; passing is a failure too, until its row goes
 *   unsupported PATTERN REASON  is refused in words
 * PATTERN is of tests' names, as a shell has it of files', or the operator that tests are about. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct known_row {
    bool fails;
    bool used; /* a test is as it says */
    char pattern[120], reason[200];
};

struct known_list {
    size_t count;
    struct known_row *rows;
};

/* Whether the file could be read; what was wrong is printed. */
bool read_known(const char *path, struct known_list *known);

/* The row about this test, NULL without one. */
struct known_row *find_known(const struct known_list *known, const char *name,
                             const char *operator_name, bool fails);
