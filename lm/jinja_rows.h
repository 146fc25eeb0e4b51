/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of what templates may call. Values are bound to a row's parameters by place or by name; what
 * was not given is undefined. */
#ifndef KILN_LM_JINJA_ROWS_H
#define KILN_LM_JINJA_ROWS_H

#include "lm/jinja_parts.h"

enum { KILN__JINJA_PARAMETERS = 3 };

struct kiln__jinja_row {
    const char *name;
    const char *parameters[KILN__JINJA_PARAMETERS];
    struct kiln__jinja_value (*call)(struct kiln__jinja *j, struct kiln__jinja_value self,
                                     const struct kiln__jinja_value *given);
};

/* Calls the row of a name; without one the run ends. `what` is for the sentence: "a filter". */
struct kiln__jinja_value kiln__jinja_call(struct kiln__jinja *j, const char *what,
                                          const struct kiln__jinja_row *rows, size_t count,
                                          struct kiln__jinja_text name,
                                          struct kiln__jinja_value self,
                                          const struct kiln__jinja_arguments *arguments);

bool kiln__jinja_is_given(struct kiln__jinja_value argument);

/* What an argument has to be; else the run ends. */
struct kiln__jinja_text kiln__jinja_need_text(struct kiln__jinja *j,
                                              struct kiln__jinja_value argument);
int64_t kiln__jinja_need_whole(struct kiln__jinja *j, struct kiln__jinja_value argument);

#endif
