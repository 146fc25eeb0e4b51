/* SPDX-License-Identifier: Apache-2.0 */
/* The cache of prepacked weights: look-up by the launches that make them and the versions of their
 * buffers, eviction. */
#include "runtime/prepacked.h"

#include <stdlib.h>

#include "runtime/runtime.h"

/* Of the pools' limit, what may be kept: one in so many bytes. */
#define PREPACKED_SHARE 4

/* Of a buffer; of more, the one that was looked for longest ago is forgotten. */
#define MOST_OF_A_BUFFER 8

struct kiln__prepacked {
    struct kiln__prepacked *next;           /* of the buffer's */
    struct kiln__prepacked *before, *after; /* of the budget's, if it has memory */
    struct kiln__hash128 key;
    struct kiln__hash128 version; /* of the content that it is, or was to be, made from */
    size_t bytes;
    cl_mem memory; /* NULL: it was made once, and not kept */
    cl_event end;  /* of the run that makes it; NULL: it has ended well */
    bool spared;   /* another run has made its own, and not here */
};

static struct kiln__budget *budget_of(const kiln_buffer *buffer)
{
    return &buffer->stream->runtime->memory;
}

static bool is_equal(const struct kiln__hash128 *a, const struct kiln__hash128 *b)
{
    return a->low == b->low && a->high == b->high;
}

/* No two contents, of one buffer or of two, have the same number (buffer.c). */
static struct kiln__hash128 version_of(const struct kiln__prepacked_use *use)
{
    uint64_t numbers[KILN__MOST_SOURCES];
    for (size_t i = 0; i < use->n_buffers; i++)
        numbers[i] = atomic_load(&use->buffers[i]->version);
    return kiln__hash128(numbers, use->n_buffers * sizeof *numbers);
}

/* Whether nobody can write one of them unseen. */
static bool are_own(const struct kiln__prepacked_use *use)
{
    for (size_t i = 0; i < use->n_buffers; i++)
        if (use->buffers[i]->lent || atomic_load(&use->buffers[i]->shown))
            return false;
    return true;
}

/* ---- memory: under the budget's lock ---- */

/* Where the run before made it, mostly, which lies idle in the pool now. */
static cl_mem prepacked_create(struct kiln__budget *budget, struct kiln__pool *pool,
                               struct kiln__prepacked_use *use, struct kiln__prepacked *kept)
{
    cl_int code;
    if (use->bytes > budget->limit / PREPACKED_SHARE ||
        budget->prepacked_bytes > budget->limit / PREPACKED_SHARE - use->bytes)
        return NULL;
    cl_mem memory = kiln__pool_part_with(pool, &use->bytes);
    kept->spared = !memory;
    if (!memory) {
        uint64_t before = atomic_fetch_add(&budget->bytes, use->bytes);
        if (before <= budget->limit - use->bytes)
            memory = kiln__budget_allocate(budget, use->bytes, &code);
        if (!memory)
            atomic_fetch_sub(&budget->bytes, use->bytes);
    }
    if (memory)
        budget->prepacked_bytes += use->bytes;
    return memory;
}

/* Commands that use it keep the memory until they have ended. */
static void prepacked_release(struct kiln__budget *budget, cl_mem memory, size_t bytes)
{
    kiln__budget_count_release(budget);
    kiln__budget_release_object(budget, memory, bytes);
    budget->prepacked_bytes -= bytes;
    atomic_fetch_sub(&budget->bytes, bytes);
}

static void hang_up(struct kiln__budget *budget, struct kiln__prepacked *kept)
{
    kept->before = NULL;
    kept->after = budget->prepacked;
    if (kept->after)
        kept->after->before = kept;
    budget->prepacked = kept;
}

static void prepacked_empty(struct kiln__budget *budget, struct kiln__prepacked *kept)
{
    if (!kept->memory)
        return;
    prepacked_release(budget, kept->memory, kept->bytes);
    if (kept->end)
        clReleaseEvent(kept->end);
    kept->memory = NULL;
    kept->end = NULL;
    kept->spared = false;
    if (kept->before)
        kept->before->after = kept->after;
    else
        budget->prepacked = kept->after;
    if (kept->after)
        kept->after->before = kept->before;
}

void kiln__prepacked_trim(struct kiln__budget *budget)
{
    pthread_mutex_lock(&budget->keeping);
    while (budget->prepacked)
        prepacked_empty(budget, budget->prepacked);
    pthread_mutex_unlock(&budget->keeping);
}

/* ---- finding: under the budget's lock ---- */

/* Moved to the front of the buffer's; NULL without memory. */
static struct kiln__prepacked *prepacked_find(struct kiln__budget *budget,
                                              const struct kiln__prepacked_use *use)
{
    kiln_buffer *buffer = use->buffers[0];
    struct kiln__prepacked **place = &buffer->prepacked, *kept = *place;
    size_t count = 1;
    while (kept && !is_equal(&kept->key, &use->key) && (kept->next || count < MOST_OF_A_BUFFER)) {
        place = &kept->next;
        kept = *place;
        count++;
    }
    if (kept)
        *place = kept->next;
    else
        kept = calloc(1, sizeof *kept);
    if (!kept)
        return NULL;
    if (!is_equal(&kept->key, &use->key)) {
        prepacked_empty(budget, kept);
        *kept = (struct kiln__prepacked){.key = use->key};
    }
    kept->next = buffer->prepacked;
    buffer->prepacked = kept;
    return kept;
}

/* What runs that were enqueued before it was there have made their own in, one where the other had:
 * nobody will ask for that piece. */
static void release_spare(struct kiln__budget *budget, struct kiln__pool *pool, size_t bytes)
{
    cl_mem spare = kiln__pool_part_with(pool, &bytes);
    kiln__budget_release(budget, true, spare, bytes);
}

/* Whether it can be used without waiting for it. */
static bool is_ready(struct kiln__budget *budget, struct kiln__pool *pool,
                     struct kiln__prepacked *kept)
{
    cl_int state = CL_COMPLETE;
    if (kept->end &&
        clGetEventInfo(kept->end, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL))
        state = CL_OUT_OF_RESOURCES;
    if (state < 0)
        prepacked_empty(budget, kept);
    kept->spared |= state == CL_QUEUED || state == CL_SUBMITTED || state == CL_RUNNING;
    if (state != CL_COMPLETE)
        return false;
    if (kept->end)
        clReleaseEvent(kept->end);
    if (kept->end && kept->spared)
        release_spare(budget, pool, kept->bytes);
    kept->end = NULL;
    return !clRetainMemObject(kept->memory);
}

/* ---- a run ---- */

void kiln__prepacked_take(struct kiln__prepacked_use *use, struct kiln__pool *pool)
{
    struct kiln__budget *budget = budget_of(use->buffers[0]);
    use->state = KILN__PREPACKED_NOT;
    use->memory = NULL;
    use->version = version_of(use);
    if (!are_own(use))
        return;
    pthread_mutex_lock(&budget->keeping);
    struct kiln__prepacked *kept = prepacked_find(budget, use);
    if (kept && !is_equal(&kept->version, &use->version)) {
        prepacked_empty(budget, kept);
        kept->version = use->version;
    } else if (kept && kept->memory && is_ready(budget, pool, kept)) {
        use->state = KILN__PREPACKED_READY;
        use->memory = kept->memory;
    } else if (kept && !kept->memory) {
        use->memory = prepacked_create(budget, pool, use, kept);
        use->state = use->memory ? KILN__PREPACKED_NEW : KILN__PREPACKED_NOT;
    }
    pthread_mutex_unlock(&budget->keeping);
}

bool kiln__prepacked_holds(const struct kiln__prepacked_use *use)
{
    if (use->state != KILN__PREPACKED_READY)
        return true;
    struct kiln__hash128 version = version_of(use);
    return is_equal(&version, &use->version) && are_own(use);
}

void kiln__prepacked_offer(struct kiln__prepacked_use *use, cl_event end)
{
    struct kiln__budget *budget = budget_of(use->buffers[0]);
    if (use->state != KILN__PREPACKED_NEW)
        return;
    pthread_mutex_lock(&budget->keeping);
    use->version = version_of(use);
    struct kiln__prepacked *kept = prepacked_find(budget, use);
    if (kept && !is_equal(&kept->version, &use->version))
        prepacked_empty(budget, kept);
    if (kept && !kept->memory && end && !clRetainEvent(end)) {
        kept->version = use->version;
        kept->bytes = use->bytes;
        kept->memory = use->memory;
        kept->end = end;
        hang_up(budget, kept);
        use->memory = NULL;
    }
    pthread_mutex_unlock(&budget->keeping);
}

void kiln__prepacked_give(struct kiln__prepacked_use *use)
{
    if (!use->memory)
        return;
    struct kiln__budget *budget = budget_of(use->buffers[0]);
    pthread_mutex_lock(&budget->keeping);
    if (use->state == KILN__PREPACKED_NEW)
        prepacked_release(budget, use->memory, use->bytes);
    else
        kiln__budget_release_object(budget, use->memory, use->bytes);
    pthread_mutex_unlock(&budget->keeping);
    use->memory = NULL;
}

void kiln__prepacked_drop(kiln_buffer *buffer)
{
    struct kiln__budget *budget = budget_of(buffer);
    pthread_mutex_lock(&budget->keeping);
    while (buffer->prepacked) {
        struct kiln__prepacked *kept = buffer->prepacked;
        buffer->prepacked = kept->next;
        prepacked_empty(budget, kept);
        free(kept);
    }
    pthread_mutex_unlock(&budget->keeping);
}
