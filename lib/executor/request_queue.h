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
    size_t deadlines;                   /* requests that have one */
    int64_t due; /* when the first of them has waited for company long enough */
    bool stale;  /* that may have become later */
};

void kiln__request_queue_push(struct kiln__request_queue *queue, kiln_future *request);

/* Before all others of its priority: it has waited already. */
void kiln__request_queue_push_front(struct kiln__request_queue *queue, kiln_future *request);
void kiln__request_queue_remove(struct kiln__request_queue *queue, kiln_future *request);

/* The next one, or NULL. */
kiln_future *kiln__request_queue_first(const struct kiln__request_queue *queue);

/* The length, by number, of the next batch where something waits: the first request's, unless it
 * has less than `enough` rows and another one has not. */
unsigned kiln__request_queue_lead(const struct kiln__request_queue *queue, size_t enough);

/* The most rows of one length. */
size_t kiln__request_queue_most(const struct kiln__request_queue *queue);

/* KILN__NEVER: nothing waits. */
int64_t kiln__request_queue_due(struct kiln__request_queue *queue);

void kiln__list_push(struct kiln__list *list, kiln_future *request);
