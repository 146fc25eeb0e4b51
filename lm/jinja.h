/* SPDX-License-Identifier: Apache-2.0 */
/* Chat templates: the part of Jinja that they are written in, as Hugging Face's transformers run it
 * (blocks trimmed on both sides).
 *
 *   statements   for (with if and else), break, continue, if, set
 *   expressions  literals, names, attributes, indices, slices, calls, filters, tests, a if b else
 * c, and, or, not, in, comparisons, + - * // % ~ calls        the tables of jinja_calls.c
 *
 * Anything else is refused by its name, where it is met: a filter that is unknown in a branch that
 * is not taken does no harm. Memory, steps and depth have bounds, and a template sees nothing but
 * what it is given. */
#ifndef KILN_LM_JINJA_H
#define KILN_LM_JINJA_H

#include <kiln/lm.h>
#include <stdbool.h>

/* Bytes; no zero ends them. */
struct kiln__jinja_text {
    const char *bytes;
    const char *given; /* of each byte, whether it comes from a message; NULL: of none */
    size_t length;
};

struct kiln__jinja_request {
    const char *call, *source;
    struct kiln__jinja_text begin, end; /* texts of these tokens */
    const kiln_lm_message *messages;
    size_t count;
    bool answer;  /* the beginning of one comes last */
    int thinking; /* 1, -1: enable_thinking is true or false; 0: not defined */
};

/* What the template makes of it, which is to be freed: `bytes`, which a zero ends, and `given`.
 * Errors: UNSUPPORTED (what this subset has not), INVALID_ARGUMENT (the template is damaged, or
 * refuses the messages), TOO_LARGE, OUT_OF_HOST_MEMORY. Threads: any. */
kiln_status kiln__jinja_render(const struct kiln__jinja_request *request, char **bytes,
                               char **given, size_t *length);

#endif
