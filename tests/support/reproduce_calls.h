/* SPDX-License-Identifier: Apache-2.0 */
/* The C call that records a node. */
#pragma once

#include "record/batch.h"

struct printer {
    const kiln_batch *batch;
    struct kiln__text *text;
    bool *needed; /* per node */
};

const struct kiln__node *reproduce_node(const struct printer *printer, uint32_t index);

/* Print `value`: as a C number, and as one of the type. */
void reproduce_number(struct printer *printer, double value);
void reproduce_value(struct printer *printer, kiln_type type, double value);

/* Print ", RANK, (size_t[]){...}". */
void reproduce_dims(struct printer *printer, const struct kiln__shape *shape);

/* "KILN_F32". */
const char *reproduce_type(const struct kiln__node *node);

/* Whether programs cannot record the operation, which makes the words of random numbers: its value
 * stands in, as an upload of an array `wordsN`. */
bool reproduce_stands_in(const struct kiln__node *node);

/* Whether it has the first few positions alone: the call leaves them in a variable `first`. */
bool reproduce_sorts_few(const struct printer *printer, const struct kiln__node *node);

/* Print the call, without its result and semicolon. Uploads are of arrays `dataN`. */
void reproduce_call(struct printer *printer, const struct kiln__node *node);
