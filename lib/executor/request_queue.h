/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that wait: a list for each priority, first come first served. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "executor/model.h"

#define KILN__PRIORITIES 3

struct kiln__list {
    kiln_future *first, *last;
};

struct kiln__request_queue {
    struct kiln__list lists[KILN__PRIORITIES]; /* high, normal, low */
    size_t count, rows;
    size_t rows_of[KILN__MOST_LENGTHS]; /* of each length, by number */
    size_t
        most_of[KILN__MOST_LENGTHS]; /* rows of a full batch; 0: whatever is asked for. Set once */
    size_t deadlines;                /* requests that have one */
    int64_t due;                     /* when the first of them has waited for company long enough */
    bool stale;                      /* that may have become later */
};

void kiln__request_queue_push(struct kiln__request_queue *queue, kiln_future *request);

/* Before all others of its priority: it has waited already. */
void kiln__request_queue_push_front(struct kiln__request_queue *queue, kiln_future *request);
void kiln__request_queue_remove(struct kiln__request_queue *queue, kiln_future *request);

/* The next one, or NULL. */
kiln_future *kiln__request_queue_first(const struct kiln__request_queue *queue);

/* Whether there are `enough` rows of a length, by number, or a full batch of fewer. */
bool kiln__request_queue_has(const struct kiln__request_queue *queue, unsigned length,
                             size_t enough);

/* The length, by number, of the next batch where something waits: the first request's, unless it
 * has not enough rows and another one has. */
unsigned kiln__request_queue_next_length(const struct kiln__request_queue *queue, size_t enough);

/* With how many rows more some length may have enough; 0: one has. */
size_t kiln__request_queue_missing_rows(const struct kiln__request_queue *queue, size_t enough);

/* KILN__NEVER: nothing waits. */
int64_t kiln__request_queue_due(struct kiln__request_queue *queue);

void kiln__list_push(struct kiln__list *list, kiln_future *request);
