/* SPDX-License-Identifier: Apache-2.0 */
/* Clients of the digits' server, each a thread with a connection: they ask for the digits of the
 * test, one a question and some ahead, again and again. */
#ifndef EXAMPLES_SERVE_LOAD_H
#define EXAMPLES_SERVE_LOAD_H

#include "digits_data.h"

struct load {
    const char *path; /* of the server's socket */
    unsigned clients; /* 1 to 64 */
    unsigned rounds;  /* how often each digit is asked for */
    const uint8_t *pixels, *labels;
    size_t rows;
};

struct load_result {
    size_t answered, failed;  /* failed: an error, or no connection */
    size_t right;             /* rows that were read right each time */
    size_t wavering;          /* right at times: there should be none */
    double seconds, p50, p99; /* p50, p99: of a question */
};

/* Returns 0, or -1 without memory or threads. */
int load_run(const struct load *load, struct load_result *result);

#endif
