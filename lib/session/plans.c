/* SPDX-License-Identifier: Apache-2.0 */
#include "session/plans.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/prepare.h"
#include "session/compile.h"
#include "session/explain.h"
#include "util/environment.h"
#include "util/hash.h"
#include "util/log.h"

/* Beyond this many the least recently used plan that nobody has borrowed goes. */
#define MOST_PLANS 256

/* Sets of kernels that wait for the next batch of the same structure. */
#define MOST_IDLE 4

struct kiln__known_plan {
    uint64_t hash;
    struct kiln__text key; /* nodes and requests, as bytes */
    struct kiln__plan plan;
    unsigned borrowers;
    uint64_t used;
    struct kiln__ready *idle[MOST_IDLE];
    unsigned idle_count;
};

struct kiln__plans {
    struct kiln__runtime *runtime;
    struct kiln__plan_options options;
    pthread_mutex_t lock; /* guards what follows; planning and compiling happen outside */
    KILN__VECTOR(struct kiln__known_plan *) known;
    uint64_t clock;
};

struct kiln__plans *kiln__plans_create(struct kiln__runtime *runtime, const char *matmul)
{
    struct kiln__plans *plans = calloc(1, sizeof *plans);
    if (!plans)
        return NULL;
    plans->runtime = runtime;
    plans->options.device = &runtime->device;
    plans->options.shared = runtime->host_mode != KILN__HOST_SEPARATE;
    plans->options.matmul = matmul;
    pthread_mutex_init(&plans->lock, NULL);
    return plans;
}

static void free_known(struct kiln__known_plan *known)
{
    for (unsigned i = 0; i < known->idle_count; i++)
        kiln__ready_destroy(known->idle[i]);
    kiln__plan_free(&known->plan);
    kiln__text_free(&known->key);
    free(known);
}

void kiln__plans_destroy(struct kiln__plans *plans)
{
    if (!plans)
        return;
    for (size_t i = 0; i < plans->known.count; i++)
        free_known(plans->known.items[i]);
    kiln__vector_free(&plans->known);
    pthread_mutex_destroy(&plans->lock);
    free(plans);
}

/* ---- finding ---- */

static void make_key(const struct kiln__graph *graph, struct kiln__text *key)
{
    uint64_t count = graph->nodes.count;
    kiln__text_add_bytes(key, &count, sizeof count);
    kiln__text_add_bytes(key, graph->nodes.items, count * sizeof *graph->nodes.items);
    kiln__text_add_bytes(key, graph->requests.items,
                         graph->requests.count * sizeof *graph->requests.items);
}

/* Under the lock. */
static struct kiln__known_plan *find(struct kiln__plans *plans, uint64_t hash,
                                     const struct kiln__text *key)
{
    for (size_t i = 0; i < plans->known.count; i++) {
        struct kiln__known_plan *known = plans->known.items[i];
        if (known->hash != hash || known->key.length != key->length ||
            memcmp(known->key.data, key->data, key->length))
            continue;
        known->borrowers++;
        known->used = ++plans->clock;
        return known;
    }
    return NULL;
}

/* Under the lock: make room for one more. */
static void evict(struct kiln__plans *plans)
{
    size_t oldest = SIZE_MAX;
    if (plans->known.count < MOST_PLANS)
        return;
    for (size_t i = 0; i < plans->known.count; i++)
        if (!plans->known.items[i]->borrowers &&
            (oldest == SIZE_MAX || plans->known.items[i]->used < plans->known.items[oldest]->used))
            oldest = i;
    if (oldest == SIZE_MAX)
        return;
    free_known(plans->known.items[oldest]);
    plans->known.items[oldest] = plans->known.items[--plans->known.count];
}

/* ---- making ---- */

/* $KILN_EXPLAIN names a file that every new plan is explained in; "-" is standard error. The
 * context could write there when it was made: what goes wrong later is logged, and the run goes on.
 */
static void explain_new(struct kiln__plans *plans, const struct kiln__graph *graph)
{
    const char *path = kiln__environment("KILN_EXPLAIN");
    struct kiln__text text = {0};
    if (!path || kiln__plans_explain(plans, graph, &text, NULL))
        return;
    FILE *file = strcmp(path, "-") ? fopen(path, "a") : stderr;
    bool written = file && fprintf(file, "%s\n", text.data ? text.data : "") >= 0;
    if (file && file != stderr)
        written = fclose(file) == 0 && written;
    if (!written)
        KILN__LOG(KILN__LOG_ERROR, "cannot write explanations to %s: %s", path, strerror(errno));
    kiln__text_free(&text);
}

/* Two threads may make the same plan at once; the second one's is dropped. */
static kiln_status add_known(struct kiln__plans *plans, const struct kiln__graph *graph,
                             uint64_t hash, struct kiln__text *key,
                             struct kiln__known_plan **result, struct kiln__error *error)
{
    struct kiln__known_plan *known = calloc(1, sizeof *known);
    if (!known)
        return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to plan the batch");
    kiln_status status = kiln__compile_plan(graph, &plans->options, NULL, &known->plan, error);
    if (status) {
        free(known);
        return status;
    }
    explain_new(plans, graph);
    atomic_fetch_add(&plans->runtime->counters.plans_made, 1);
    pthread_mutex_lock(&plans->lock);
    *result = find(plans, hash, key);
    if (!*result) {
        evict(plans);
        struct kiln__known_plan **place = kiln__vector_push(&plans->known);
        if (place) {
            known->hash = hash;
            known->key = *key;
            known->borrowers = 1;
            known->used = ++plans->clock;
            *key = (struct kiln__text){0};
            *place = *result = known;
        }
    }
    pthread_mutex_unlock(&plans->lock);
    if (*result != known)
        free_known(known);
    return *result ? KILN_OK
                   : kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory for a plan");
}

/* ---- lending ---- */

/* `threads`: see kiln__prepare(); NULL: nothing is prepared. */
static kiln_status borrow(struct kiln__plans *plans, const struct kiln__graph *graph, bool checked,
                          const unsigned *threads, struct kiln__loan *loan,
                          struct kiln__error *error)
{
    struct kiln__text key = {0};
    kiln_status status = KILN_OK;
    *loan = (struct kiln__loan){.checked = checked};
    make_key(graph, &key);
    if (key.failed)
        return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to plan the batch");
    uint64_t hash = kiln__hash64(key.data, key.length);
    pthread_mutex_lock(&plans->lock);
    loan->known = find(plans, hash, &key);
    if (loan->known && loan->known->idle_count && !checked)
        loan->ready = loan->known->idle[--loan->known->idle_count];
    pthread_mutex_unlock(&plans->lock);
    if (loan->known)
        atomic_fetch_add(&plans->runtime->counters.plans_reused, 1);
    else
        status = add_known(plans, graph, hash, &key, &loan->known, error);
    kiln__text_free(&key);
    if (!status && !loan->ready && threads)
        status = kiln__prepare(plans->runtime, &loan->known->plan, *threads, error);
    if (!status && !loan->ready)
        status =
            kiln__ready_create(plans->runtime, &loan->known->plan, checked, &loan->ready, error);
    if (!status)
        loan->plan = &loan->known->plan;
    else if (loan->known)
        kiln__plans_return(plans, loan);
    return status;
}

kiln_status kiln__plans_borrow(struct kiln__plans *plans, const struct kiln__graph *graph,
                               bool checked, struct kiln__loan *loan, struct kiln__error *error)
{
    return borrow(plans, graph, checked, NULL, loan, error);
}

kiln_status kiln__plans_prepare(struct kiln__plans *plans, const struct kiln__graph *graph,
                                unsigned threads, struct kiln__loan *loan,
                                struct kiln__error *error)
{
    return borrow(plans, graph, false, &threads, loan, error);
}

void kiln__plans_return(struct kiln__plans *plans, struct kiln__loan *loan)
{
    struct kiln__known_plan *known = loan->known;
    if (!known)
        return;
    if (loan->ready)
        kiln__ready_rest(loan->ready);
    pthread_mutex_lock(&plans->lock);
    if (loan->ready && !loan->checked && known->idle_count < MOST_IDLE) {
        known->idle[known->idle_count++] = loan->ready;
        loan->ready = NULL;
    }
    pthread_mutex_unlock(&plans->lock);
    kiln__ready_destroy(loan->ready); /* before the plan, which it looks at, may go */
    pthread_mutex_lock(&plans->lock);
    known->borrowers--;
    pthread_mutex_unlock(&plans->lock);
    *loan = (struct kiln__loan){0};
}

kiln_status kiln__plans_explain(struct kiln__plans *plans, const struct kiln__graph *graph,
                                struct kiln__text *text, struct kiln__error *error)
{
    struct kiln__plan plan;
    struct kiln__text log = {0};
    kiln_status status = kiln__compile_plan(graph, &plans->options, &log, &plan, error);
    if (status) {
        kiln__text_free(&log);
        return status;
    }
    kiln__explain(graph, &log, &plan, text);
    kiln__text_free(&log);
    kiln__plan_free(&plan);
    return text->failed
               ? kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory for the explanation")
               : KILN_OK;
}
