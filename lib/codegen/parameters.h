/* SPDX-License-Identifier: Apache-2.0 */
/* The parameters of a launch's kernel, read from its text: what the compiler will see, not what
 * plan and codegen meant. */
#pragma once

#include "plan/plan.h"

struct kiln__parameter {
    char name[32];
    char type; /* of a value: 'l' long, 'i' int, 'f' float; 0: another one */
    bool memory, constant, restricted;
    uint8_t item; /* bytes of an element of memory; 0: of a type that a macro names */
};

struct kiln__parameters {
    KILN__VECTOR(struct kiln__parameter) list;
    bool found;  /* the text has the kernel */
    bool failed; /* without memory */
};

/* How many characters of a name, or digits, there are. */
size_t kiln__identifier_length(const char *at);

/* Free with kiln__vector_free(&list). */
struct kiln__parameters kiln__parameters_of(const struct kiln__plan *plan,
                                            const struct kiln__launch *launch);
