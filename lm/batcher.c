/* SPDX-License-Identifier: Apache-2.0 */
/* Batchers and their requests: beginning, end, who waits. */
#include "lm/batcher.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lm/error.h"
#include "lm/structure.h"

enum { USUAL_SLOTS = 8, USUAL_QUEUE = 128, MOST_QUEUE = 1 << 20 };

void(kiln_lm_batcher_options_init)(kiln_lm_batcher_options *options, size_t size)
{
    static const kiln_lm_batcher_options own = KILN_LM_BATCHER_OPTIONS_INIT;
    kiln__lm_options_fill(options, size, &own, sizeof own);
}

void(kiln_lm_request_options_init)(kiln_lm_request_options *options, size_t size)
{
    static const kiln_lm_request_options own = KILN_LM_REQUEST_OPTIONS_INIT;
    kiln__lm_options_fill(options, size, &own, sizeof own);
}

int64_t kiln__lm_now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* ---- beginning ---- */

static kiln_status check_options(kiln_lm_batcher_options *own)
{
    static const char call[] = "kiln_lm_batcher_create";
    own->slots = own->slots ? own->slots : USUAL_SLOTS;
    own->max_queue = own->max_queue ? own->max_queue : USUAL_QUEUE;
    if (own->slots < KILN__LM_FEWEST_SLOTS || own->slots > KILN__LM_MOST_SLOTS)
        return kiln__lm_fail(KILN_INVALID_ARGUMENT, "%s: options->slots is %zu, not from %d to %d",
                             call, own->slots, KILN__LM_FEWEST_SLOTS, KILN__LM_MOST_SLOTS);
    if (own->max_queue > MOST_QUEUE)
        return kiln__lm_fail(KILN_INVALID_ARGUMENT, "%s: options->max_queue is %zu", call,
                             own->max_queue);
    return kiln__lm_check_caches(call, own->cache, own->context);
}

static kiln_status make_readers(kiln_lm_batcher *batcher)
{
    const size_t count = batcher->alone ? batcher->caches.slots : 1;
    kiln_lm_session_options options = KILN_LM_SESSION_OPTIONS_INIT;
    options.context = batcher->caches.context;
    options.cache = batcher->caches.type;
    for (size_t i = 0; i < count; i++) {
        const kiln_status status =
            kiln_lm_session_create(batcher->lm, &options, &batcher->readers[i]);
        if (status)
            return status;
        batcher->readers[i]->most_rows = KILN__LM_PART;
    }
    return KILN_OK;
}

static kiln_status make_prefixes(kiln_lm_batcher *batcher, const kiln_lm_batcher_options *own)
{
    const kiln_lm *lm = batcher->lm;
    const kiln_type type = batcher->caches.type;
    const size_t pages = kiln__lm_batcher_count_pages(batcher, own);
    batcher->stats.cache_bytes +=
        (uint64_t)((double)pages * kiln__lm_slot_bytes(lm, type, KILN__LM_PART));
    return kiln__lm_prefixes_make("kiln_lm_batcher_create", lm, type, pages,
                                  &batcher->readers[0]->caches, &batcher->prefixes);
}

static kiln_status batcher_fill(kiln_lm_batcher *batcher, const kiln_lm_batcher_options *own)
{
    kiln_lm *lm = batcher->lm;
    batcher->max_queue = own->max_queue;
    batcher->logits = malloc(own->slots * lm->shape.words * sizeof *batcher->logits);
    if (!batcher->logits)
        return kiln__lm_no_memory("kiln_lm_batcher_create");
    kiln_status status = kiln__lm_batcher_choose_slots(batcher, own);
    if (status)
        return status;
    const size_t slots = batcher->caches.slots;
    if (!batcher->alone)
        status = kiln__lm_caches_make("kiln_lm_batcher_create", lm, &batcher->caches);
    batcher->stats.slots = slots;
    batcher->stats.cache_bytes =
        (uint64_t)((double)(slots + !batcher->alone) *
                   kiln__lm_slot_bytes(lm, batcher->caches.type, batcher->caches.context));
    if (!status)
        status = make_readers(batcher);
    if (!status)
        status = make_prefixes(batcher, own);
    return status || !own->prepare ? status : kiln__lm_batcher_prepare(batcher);
}

kiln_status kiln_lm_batcher_create(kiln_lm *lm, const kiln_lm_batcher_options *options,
                                   kiln_lm_batcher **batcher)
{
    static const char call[] = "kiln_lm_batcher_create";
    kiln_lm_batcher_options own = KILN_LM_BATCHER_OPTIONS_INIT;
    if (batcher)
        *batcher = NULL;
    if (!lm || !batcher)
        return kiln__lm_fail(KILN_INVALID_ARGUMENT, "%s: %s is NULL", call, lm ? "batcher" : "lm");
    kiln_status status =
        kiln__lm_read_options(call, "KILN_LM_BATCHER_OPTIONS_INIT", options, &own, sizeof own);
    if (!status)
        status = check_options(&own);
    if (status)
        return status;
    kiln_lm_batcher *made = calloc(1, sizeof *made);
    if (!made)
        return kiln__lm_no_memory(call);
    if (pthread_mutex_init(&made->lock, NULL)) {
        free(made);
        return kiln__lm_no_memory(call);
    }
    atomic_fetch_add(&lm->references, 1);
    made->lm = lm;
    made->references = 1;
    status = batcher_fill(made, &own);
    if (status)
        kiln_lm_batcher_release(made);
    else
        *batcher = made;
    return status;
}

/* ---- end ---- */

/* Unlocks, and frees what the last reference held. */
static void drop_batcher(kiln_lm_batcher *batcher)
{
    const bool is_last = --batcher->references == 0;
    pthread_mutex_unlock(&batcher->lock);
    if (!is_last)
        return;
    pthread_mutex_destroy(&batcher->lock);
    free(batcher);
}

static void close_requests(kiln_lm_batcher *batcher)
{
    kiln_lm_request *request;
    while ((request = kiln__lm_queue_take(batcher))) {
        kiln__lm_request_end(request, KILN_CANCELLED);
        kiln__lm_request_drop(request);
    }
    for (size_t i = 0; i < batcher->caches.slots; i++)
        if ((request = batcher->slots[i])) {
            batcher->slots[i] = NULL;
            kiln__lm_request_end(request, KILN_CANCELLED);
            kiln__lm_request_drop(request);
        }
}

void kiln_lm_batcher_release(kiln_lm_batcher *batcher)
{
    if (!batcher)
        return;
    kiln_lm *lm = batcher->lm;
    for (size_t i = 0; i < KILN__LM_LANES; i++)
        kiln_batch_release(batcher->steps[i]);
    for (size_t i = 0; i < KILN__LM_LENGTHS; i++)
        kiln_batch_release(batcher->moves[i]);
    kiln__lm_prefixes_free(lm, &batcher->prefixes);
    kiln__lm_caches_free(lm, &batcher->caches);
    for (size_t i = 0; i < KILN__LM_MOST_SLOTS; i++)
        kiln_lm_session_release(batcher->readers[i]);
    free(batcher->logits);
    pthread_mutex_lock(&batcher->lock);
    batcher->closed = true;
    close_requests(batcher);
    drop_batcher(batcher);
    kiln_lm_release(lm);
}

/* ---- the queue ---- */

static void put(kiln_lm_request *request, bool first)
{
    struct kiln__lm_queue *queue = &request->batcher->queues[request->rank];
    request->waits = true;
    request->batcher->queued++;
    if (first) {
        request->next = queue->first;
        queue->first = request;
    } else {
        *(queue->first ? &queue->last->next : &queue->first) = request;
    }
    if (!request->next)
        queue->last = request;
}

void kiln__lm_queue_put_first(kiln_lm_request *request)
{
    put(request, true);
}

static void remove_waiting(struct kiln__lm_queue *queue, kiln_lm_request *request)
{
    kiln_lm_request *before = NULL, **link = &queue->first;
    for (; *link != request; link = &before->next)
        before = *link;
    *link = request->next;
    if (queue->last == request)
        queue->last = before;
    request->next = NULL;
    request->waits = false;
    request->batcher->queued--;
}

kiln_lm_request *kiln__lm_queue_take(kiln_lm_batcher *batcher)
{
    for (size_t i = 0; i < KILN__LM_PRIORITIES; i++) {
        kiln_lm_request *request = batcher->queues[i].first;
        if (request) {
            remove_waiting(&batcher->queues[i], request);
            return request;
        }
    }
    return NULL;
}

void kiln__lm_queue_expire(kiln_lm_batcher *batcher, int64_t now)
{
    for (size_t i = 0; i < KILN__LM_PRIORITIES; i++)
        for (kiln_lm_request *request = batcher->queues[i].first, *next; request; request = next) {
            next = request->next;
            if (request->deadline <= now)
                kiln__lm_request_end(request, KILN_TIMED_OUT);
        }
}

/* ---- requests ---- */

void kiln__lm_request_end(kiln_lm_request *request, kiln_status status)
{
    kiln_lm_batcher_stats *stats = &request->batcher->stats;
    if (request->ended)
        return;
    request->ended = true;
    request->status = status;
    if (request->waits) { /* its caller has it still */
        remove_waiting(&request->batcher->queues[request->rank], request);
        request->references--;
    }
    switch (status) {
    case KILN_OK:
        stats->completed++;
        kiln__histogram_add(&request->batcher->total, kiln__lm_now() - request->submitted);
        break;
    case KILN_CANCELLED: stats->cancelled++; break;
    case KILN_TIMED_OUT: stats->timed_out++; break;
    default: stats->failed++; request->sentence = strdup(kiln_last_error());
    }
}

static void free_request(kiln_lm_request *request)
{
    free(request->text);
    free(request->logprobs);
    free(request->sentence);
    free(request);
}

void kiln__lm_request_drop(kiln_lm_request *request)
{
    if (--request->references)
        return;
    request->batcher->references--; /* not the last one: who has the lock holds one */
    free_request(request);
}

static kiln_status check_request(const kiln_lm_batcher *batcher, const int32_t *tokens,
                                 size_t count, const kiln_lm_request_options *own)
{
    static const char call[] = "kiln_lm_batcher_submit";
    const size_t words = batcher->lm->shape.words, context = batcher->caches.context;
    if (!tokens || !count)
        return kiln__lm_fail(KILN_INVALID_ARGUMENT, "%s: there are no tokens to go on from", call);
    for (size_t i = 0; i < count; i++)
        if (tokens[i] < 0 || (size_t)tokens[i] >= words)
            return kiln__lm_fail(KILN_INVALID_ARGUMENT,
                                 "%s: token %zu is %d, and the model has %zu", call, i,
                                 (int)tokens[i], words);
    if (count >= context)
        return kiln__lm_fail(KILN_TOO_LARGE,
                             "%s: %zu tokens leave no room for an answer in the context of %zu",
                             call, count, context);
    if ((unsigned)own->priority > KILN_PRIORITY_LOW)
        return kiln__lm_fail(KILN_INVALID_ARGUMENT, "%s: options->priority is %d", call,
                             (int)own->priority);
    if (own->logprobs > words)
        return kiln__lm_fail(KILN_INVALID_ARGUMENT,
                             "%s: options->logprobs is %zu, and the model has %zu tokens", call,
                             own->logprobs, words);
    return kiln__lm_check_sampling(call, own->temperature, own->top_p, own->min_p);
}

static kiln_lm_request *make_request(kiln_lm_batcher *batcher, const int32_t *tokens, size_t count,
                                     const kiln_lm_request_options *own)
{
    static const unsigned ranks[] = {
        [KILN_PRIORITY_HIGH] = 0, [KILN_PRIORITY_NORMAL] = 1, [KILN_PRIORITY_LOW] = 2};
    const size_t room = batcher->caches.context - count;
    kiln_lm_request *request = calloc(1, sizeof *request);
    if (!request)
        return NULL;
    request->most = count + (own->max_tokens && own->max_tokens < room ? own->max_tokens : room);
    request->text = malloc(request->most * sizeof *request->text);
    request->kept = own->logprobs;
    if (own->logprobs)
        request->logprobs =
            calloc(request->most - count + 1, own->logprobs * sizeof *request->logprobs);
    if (!request->text || (own->logprobs && !request->logprobs)) {
        free_request(request);
        return NULL;
    }
    memcpy(request->text, tokens, count * sizeof *tokens);
    request->batcher = batcher;
    request->prompt = request->length = count;
    request->references = 2;
    request->sampling =
        (struct kiln__sampling){own->temperature, own->top_k, own->top_p, own->min_p};
    request->seed = own->seed;
    request->rank = ranks[own->priority];
    request->submitted = kiln__lm_now();
    const uint64_t longest = (uint64_t)(INT64_MAX - request->submitted) / 1000;
    request->deadline = own->deadline_us && own->deadline_us < longest
                            ? request->submitted + (int64_t)own->deadline_us * 1000
                            : INT64_MAX;
    return request;
}

/* Under the lock. */
static kiln_status enqueue(kiln_lm_batcher *batcher, kiln_lm_request *request)
{
    if (batcher->queued >= batcher->max_queue)
        return kiln__lm_fail(KILN_BUSY, "kiln_lm_batcher_submit: %zu requests wait already",
                             batcher->queued);
    batcher->references++;
    batcher->stats.requests++;
    put(request, false);
    return KILN_OK;
}

kiln_status kiln_lm_batcher_submit(kiln_lm_batcher *batcher, const int32_t *tokens, size_t count,
                                   const kiln_lm_request_options *options,
                                   kiln_lm_request **request)
{
    static const char call[] = "kiln_lm_batcher_submit";
    kiln_lm_request_options own = KILN_LM_REQUEST_OPTIONS_INIT;
    if (request)
        *request = NULL;
    if (!batcher || !request)
        return kiln__lm_fail(KILN_INVALID_ARGUMENT, "%s: %s is NULL", call,
                             batcher ? "request" : "batcher");
    kiln_lm_request *made = NULL;
    kiln_status status =
        kiln__lm_read_options(call, "KILN_LM_REQUEST_OPTIONS_INIT", options, &own, sizeof own);
    if (!status)
        status = check_request(batcher, tokens, count, &own);
    if (!status && !(made = make_request(batcher, tokens, count, &own)))
        status = kiln__lm_no_memory(call);
    pthread_mutex_lock(&batcher->lock);
    if (!status)
        status = enqueue(batcher, made);
    batcher->stats.refused += status != KILN_OK;
    pthread_mutex_unlock(&batcher->lock);
    if (!status)
        *request = made;
    else if (made)
        free_request(made);
    return status;
}

size_t kiln_lm_request_read(kiln_lm_request *request, size_t from, int32_t *tokens, size_t most)
{
    if (!request || !tokens)
        return 0;
    pthread_mutex_lock(&request->batcher->lock);
    const size_t there = request->length - request->prompt;
    const size_t left = from < there ? there - from : 0, count = left < most ? left : most;
    if (count)
        memcpy(tokens, request->text + request->prompt + from, count * sizeof *tokens);
    pthread_mutex_unlock(&request->batcher->lock);
    return count;
}

/* Once a request has ended, nothing changes its status. */
kiln_status kiln_lm_request_poll(kiln_lm_request *request)
{
    if (!request)
        return kiln__lm_fail(KILN_INVALID_ARGUMENT, "kiln_lm_request_poll: request is NULL");
    pthread_mutex_lock(&request->batcher->lock);
    const bool ended = request->ended;
    pthread_mutex_unlock(&request->batcher->lock);
    if (!ended)
        return KILN_NOT_READY;
    switch (request->status) {
    case KILN_OK: return KILN_OK;
    case KILN_CANCELLED:
        return kiln__lm_fail(KILN_CANCELLED, "kiln_lm_request_poll: it was cancelled");
    case KILN_TIMED_OUT:
        return kiln__lm_fail(KILN_TIMED_OUT, "kiln_lm_request_poll: its deadline passed");
    default: return kiln_error_set(request->status, request->sentence);
    }
}

void kiln_lm_request_cancel(kiln_lm_request *request)
{
    if (!request)
        return;
    pthread_mutex_lock(&request->batcher->lock);
    kiln__lm_request_end(request, KILN_CANCELLED);
    pthread_mutex_unlock(&request->batcher->lock);
}

void kiln_lm_request_release(kiln_lm_request *request)
{
    if (!request)
        return;
    kiln_lm_batcher *batcher = request->batcher;
    pthread_mutex_lock(&batcher->lock);
    kiln__lm_request_end(request, KILN_CANCELLED);
    batcher->references++; /* while the request gives its own back */
    kiln__lm_request_drop(request);
    drop_batcher(batcher);
}

/* ---- metrics ---- */

kiln_status(kiln_lm_batcher_get_stats)(kiln_lm_batcher *batcher, kiln_lm_batcher_stats *stats,
                                       size_t size)
{
    if (!batcher || !stats)
        return kiln__lm_fail(KILN_INVALID_ARGUMENT, "kiln_lm_batcher_get_stats: %s is NULL",
                             batcher ? "stats" : "batcher");
    pthread_mutex_lock(&batcher->lock);
    kiln_lm_batcher_stats own = batcher->stats;
    own.queued = batcher->queued;
    for (size_t i = 0; i < batcher->caches.slots; i++)
        own.running += batcher->slots[i] && !batcher->slots[i]->ended;
    own.fill = batcher->lanes_run ? (double)batcher->texts_run / (double)batcher->lanes_run : 0;
    own.first = kiln__histogram_read(&batcher->first);
    own.step = kiln__histogram_read(&batcher->step);
    own.total = kiln__histogram_read(&batcher->total);
    pthread_mutex_unlock(&batcher->lock);
    kiln__lm_structure_fill(stats, size, &own, sizeof own);
    return KILN_OK;
}
