/* SPDX-License-Identifier: Apache-2.0 */
/* Which tests there are, and which operator each is about. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct test_case {
    char *name;          /* its kind and its folder, such as "node/test_abs" */
    char *folder;        /* with model.onnx */
    char *operator_name; /* or its kind, where it is about no single one */
    bool expanded;       /* that operator's function in its place */
};

struct case_list {
    size_t count;
    struct test_case *cases;
};

/* The tests of FOLDER/KIND/TEST whose names have this part (NULL: all), by name. */
struct case_list find_cases(const char *folder, const char *part);
void free_cases(struct case_list *list);
