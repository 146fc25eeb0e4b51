/* SPDX-License-Identifier: Apache-2.0 */
/* A server of an executor on a Unix socket, in one thread: poll() on its sockets and on the
 * futures' descriptors. A client sends questions and gets an answer to each, in their order:
 *
 *     connection = (question pixel*)*         an answer has no digits if its status is an error
 *     back       = (answer digit*)*
 *
 * in the machine's own order of bytes. A client may ask ahead; one that asks for no rows or for too
 * many is hung up on. Where a client does not read its answers, its own questions wait. */
#ifndef EXAMPLES_SERVE_SERVER_H
#define EXAMPLES_SERVE_SERVER_H

#include <stdint.h>

#include <kiln/kiln.h>

enum {
    SERVE_PIXELS = 64,  /* of a row that comes in, each KILN_U8; one KILN_U8 goes out */
    SERVE_ROWS = 16,    /* most of a question */
    SERVE_CLIENTS = 64, /* most at a time; a further one waits, or takes the place of an idle one */
    SERVE_AHEAD = 8     /* most questions of a client under way */
};

struct question {
    uint32_t tag; /* comes back */
    uint32_t rows;
};

struct answer {
    uint32_t tag;
    int32_t status; /* a kiln_status */
    uint32_t rows;
};

struct served {
    uint64_t clients, questions;
    uint64_t refused; /* questions that were answered with an error */
    uint64_t cut_off; /* clients: for a bad question, for others, or for not reading at the end */
};

/* Listen on a socket at `path`, which only this user may connect to; one that a dead server has
 * left there is replaced. Answers a descriptor, or -1 with errno. */
int serve_listen(const char *path);

/* Serve until `stop` is readable, and then whatever is under way. Takes over `listener`. The
 * executor's queue should have room for SERVE_CLIENTS * SERVE_AHEAD requests. */
struct served serve_run(kiln_executor *executor, int listener, int stop);

#endif
