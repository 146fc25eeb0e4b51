/* SPDX-License-Identifier: Apache-2.0 */
/* An executor's metrics over HTTP, on this machine alone: /metrics as Prometheus reads them,
 * /metrics.json as an object. */
#ifndef EXAMPLES_SERVE_METRICS_H
#define EXAMPLES_SERVE_METRICS_H

#include <kiln/kiln.h>

struct metrics;

/* Answer at *port of 127.0.0.1; 0: any, which is left there. NULL: the port is taken, or this is
 * built without libmicrohttpd. */
struct metrics *metrics_start(kiln_executor *executor, unsigned *port);
void metrics_stop(struct metrics *metrics);

/* Ask for `path` as a client would. Returns the length of the whole answer, its head too, or 0. */
size_t metrics_fetch(unsigned port, const char *path, char *text, size_t size);

#endif
