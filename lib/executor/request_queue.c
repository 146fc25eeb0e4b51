/* SPDX-License-Identifier: Apache-2.0 */
/* Linked lists of waiting requests by priority, with counts of rows for each sequence length. */
#include "executor/future.h"

void kiln__list_push(struct kiln__list *list, kiln_future *request)
{
    request->next = NULL;
    request->previous = list->last;
    if (list->last)
        list->last->next = request;
    else
        list->first = request;
    list->last = request;
}

static void push_front(struct kiln__list *list, kiln_future *request)
{
    request->previous = NULL;
    request->next = list->first;
    if (list->first)
        list->first->previous = request;
    else
        list->last = request;
    list->first = request;
}

static void list_remove(struct kiln__list *list, kiln_future *request)
{
    if (request->previous)
        request->previous->next = request->next;
    else
        list->first = request->next;
    if (request->next)
        request->next->previous = request->previous;
    else
        list->last = request->previous;
    request->next = request->previous = NULL;
}

static void count_in(struct kiln__request_queue *queue, const kiln_future *request)
{
    if (!queue->count || request->due < queue->due)
        queue->due = request->due;
    queue->count++;
    queue->rows += request->rows;
    queue->rows_of[request->length_number] += request->rows;
    queue->deadlines += request->deadline != KILN__NEVER;
}

void kiln__request_queue_push(struct kiln__request_queue *queue, kiln_future *request)
{
    count_in(queue, request);
    kiln__list_push(&queue->lists[request->priority], request);
}

void kiln__request_queue_push_front(struct kiln__request_queue *queue, kiln_future *request)
{
    count_in(queue, request);
    push_front(&queue->lists[request->priority], request);
}

void kiln__request_queue_remove(struct kiln__request_queue *queue, kiln_future *request)
{
    queue->count--;
    queue->rows -= request->rows;
    queue->rows_of[request->length_number] -= request->rows;
    queue->deadlines -= request->deadline != KILN__NEVER;
    queue->stale = true;
    list_remove(&queue->lists[request->priority], request);
}

kiln_future *kiln__request_queue_first(const struct kiln__request_queue *queue)
{
    for (unsigned i = 0; i < KILN__PRIORITIES; i++)
        if (queue->lists[i].first)
            return queue->lists[i].first;
    return NULL;
}

static size_t enough_of(const struct kiln__request_queue *queue, unsigned length, size_t enough)
{
    const size_t most = queue->most_of[length];
    return most && most < enough ? most : enough;
}

bool kiln__request_queue_has(const struct kiln__request_queue *queue, unsigned length,
                             size_t enough)
{
    return queue->rows_of[length] >= enough_of(queue, length, enough);
}

unsigned kiln__request_queue_next_length(const struct kiln__request_queue *queue, size_t enough)
{
    unsigned first = kiln__request_queue_first(queue)->length_number;
    if (kiln__request_queue_has(queue, first, enough) || queue->rows_of[first] == queue->rows)
        return first;
    for (unsigned i = 0; i < KILN__MOST_LENGTHS; i++)
        if (kiln__request_queue_has(queue, i, enough))
            return i;
    return first;
}

size_t kiln__request_queue_missing_rows(const struct kiln__request_queue *queue, size_t enough)
{
    size_t least = enough;
    for (unsigned i = 0; least && i < KILN__MOST_LENGTHS; i++) {
        const size_t wanted = enough_of(queue, i, enough), rows = queue->rows_of[i];
        const size_t lack = rows < wanted ? wanted - rows : 0;
        least = lack < least ? lack : least;
    }
    return least;
}

/* Without deadlines the first of a list is the one that has waited longest. */
static int64_t find_due(const struct kiln__request_queue *queue)
{
    int64_t due = KILN__NEVER;
    for (unsigned i = 0; i < KILN__PRIORITIES; i++)
        for (const kiln_future *r = queue->lists[i].first; r; r = queue->deadlines ? r->next : NULL)
            due = r->due < due ? r->due : due;
    return due;
}

int64_t kiln__request_queue_due(struct kiln__request_queue *queue)
{
    if (queue->stale)
        queue->due = find_due(queue);
    queue->stale = false;
    return queue->count ? queue->due : KILN__NEVER;
}
