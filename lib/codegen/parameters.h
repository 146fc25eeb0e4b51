/* SPDX-License-Identifier: Apache-2.0 */
/* The parameters of a launch's kernel, read from its text: what the compiler will see, not what
 * plan and codegen meant. */
#pragma once

#include "plan/plan.h"
#include "util/text.h"

struct kiln__parameter {
    char name[32];
    char type; /* of a value: 'l' long, 'i' int, 'f' float; 0: another one */
    bool memory, constant, restricted;
    uint8_t item;      /* bytes of an element of memory; 0: of a type that a macro names */
    size_t at, length; /* its declaration, in `text` */
};

struct kiln__parameters {
    struct kiln__text text; /* all of them, as the preprocessor leaves them */
    KILN__VECTOR(struct kiln__parameter) list;
    bool found;  /* the text has the kernel */
    bool failed; /* without memory */
};

/* How many characters of a name, or digits, there are. */
size_t kiln__identifier_length(const char *at);

/* Behind the name in "kernel ... void NAME(": at the parenthesis. NULL if there is none. */
const char *kiln__find_kernel(const char *text, const char *name);

/* Behind the parenthesis that closes the one at `at`; NULL if none does. */
const char *kiln__end_of_list(const char *at);

struct kiln__parameters kiln__parameters_of(const struct kiln__plan *plan,
                                            const struct kiln__launch *launch);
void kiln__parameters_free(struct kiln__parameters *parameters);
