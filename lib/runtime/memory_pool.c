/* SPDX-License-Identifier: Apache-2.0 */
/* The pool's blocks: search for an idle one, release of idle ones, and the turn that large arenas
 * take. */
#include "runtime/memory_pool.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "util/vector.h"

/* Smaller ones are rounded up to this. */
#define SMALLEST 4096

/* What is idle and as large as this serves any request of so much, and makes room for a larger one:
 * runs of many shapes, one after the other, share what the largest takes. */
#define LARGE ((size_t)1 << 20)

/* Of the device's memory, what may lie idle: one in so many bytes. */
#define IDLE_SHARE 8

struct block {
    cl_mem memory;
    size_t bytes;
    bool idle;
};

struct kiln__pool {
    cl_command_queue queue;
    struct kiln__budget *budget;
    struct kiln__pool *next; /* of the budget's */
    pthread_mutex_t lock; /* guards what follows; no OpenCL call that can wait is made under it */
    KILN__VECTOR(struct block) blocks;
    uint64_t idle;
    bool is_taken; /* the turn */
    cl_mem turn;   /* what was taken with it; NULL: it is being taken */
    pthread_cond_t ended;
};

struct kiln__pool *kiln__pool_create(cl_command_queue queue, struct kiln__budget *budget)
{
    struct kiln__pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return NULL;
    pool->queue = queue;
    pool->budget = budget;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->ended, NULL);
    pool->next = atomic_load(&budget->pools);
    while (!atomic_compare_exchange_weak(&budget->pools, &pool->next, pool))
        continue;
    return pool;
}

void kiln__pool_destroy(struct kiln__pool *pool)
{
    if (!pool)
        return;
    for (size_t i = 0; i < pool->blocks.count; i++)
        clReleaseMemObject(pool->blocks.items[i].memory);
    kiln__vector_free(&pool->blocks);
    pthread_cond_destroy(&pool->ended);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

size_t kiln__pool_rounded(size_t bytes)
{
    size_t power = SMALLEST;
    if (bytes <= power)
        return power;
    while (power <= bytes / 2)
        power *= 2;
    size_t eighth = power / 8, more = (eighth - bytes % eighth) % eighth;
    return bytes <= SIZE_MAX - more ? bytes + more : bytes;
}

/* The smallest idle block of at least `bytes` and at most `most`, which is none any more. */
static struct block *find_idle(struct kiln__pool *pool, size_t bytes, size_t most)
{
    struct block *found = NULL;
    for (size_t i = pool->blocks.count; i-- > 0;) {
        struct block *block = &pool->blocks.items[i];
        if (block->idle && block->bytes >= bytes && block->bytes <= most &&
            (!found || block->bytes < found->bytes))
            found = block;
    }
    if (found) {
        found->idle = false;
        pool->idle -= found->bytes;
    }
    return found;
}

/* Release idle blocks of `least` to `most` bytes, the oldest first, until at most `keep` bytes are
 * idle. */
static void release_idle(struct kiln__pool *pool, uint64_t keep, size_t least, size_t most)
{
    size_t kept = 0;
    for (size_t i = 0; i < pool->blocks.count; i++) {
        struct block block = pool->blocks.items[i];
        if (!block.idle || block.bytes < least || block.bytes > most || pool->idle <= keep) {
            pool->blocks.items[kept++] = block;
            continue;
        }
        pool->idle -= block.bytes;
        kiln__budget_release(pool->budget, true, block.memory, block.bytes);
    }
    pool->blocks.count = kept;
}

/* Where no idle block is large enough: from then on it serves who took a smaller one, too. */
static kiln_status add_block(struct kiln__pool *pool, size_t asked, size_t rounded, cl_mem *memory,
                             struct kiln__error *error)
{
    pthread_mutex_lock(&pool->lock);
    if (rounded >= LARGE)
        release_idle(pool, 0, LARGE, rounded);
    pthread_mutex_unlock(&pool->lock);
    kiln_status status = kiln__budget_create(pool->budget, true, asked, rounded, memory, error);
    if (status)
        return status;
    pthread_mutex_lock(&pool->lock);
    struct block *block = kiln__vector_push(&pool->blocks);
    if (block)
        *block = (struct block){.memory = *memory, .bytes = rounded};
    pthread_mutex_unlock(&pool->lock);
    if (block)
        return KILN_OK;
    kiln__budget_release(pool->budget, true, *memory, rounded);
    *memory = NULL;
    return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory for the buffer pool");
}

kiln_status kiln__pool_take(struct kiln__pool *pool, size_t bytes, cl_mem *memory,
                            struct kiln__error *error)
{
    size_t bin = kiln__pool_rounded(bytes);
    struct kiln__error first = {0}, second = {0};
    pthread_mutex_lock(&pool->lock);
    const struct block *block = find_idle(pool, bytes, bin < LARGE ? bin : SIZE_MAX);
    *memory = block ? block->memory : NULL;
    pthread_mutex_unlock(&pool->lock);
    if (*memory || !add_block(pool, bytes, bin, memory, &first))
        return KILN_OK;
    kiln__budget_make_room(pool->budget, false);
    if (!add_block(pool, bytes, bin, memory, &second))
        return KILN_OK;
    struct kiln__error last = {0};
    kiln_status status = add_block(pool, bytes, bytes, memory, &last);
    return status ? kiln__fail(error, status, "kiln: %s", last.text) : KILN_OK;
}

static void end_turn(struct kiln__pool *pool)
{
    pool->turn = NULL;
    pool->is_taken = false;
    pthread_cond_signal(&pool->ended);
}

kiln_status kiln__pool_take_turn(struct kiln__pool *pool, size_t bytes, cl_mem *memory,
                                 struct kiln__error *error)
{
    bool large = bytes >= LARGE;
    pthread_mutex_lock(&pool->lock);
    while (large && pool->is_taken)
        pthread_cond_wait(&pool->ended, &pool->lock);
    pool->is_taken |= large;
    pthread_mutex_unlock(&pool->lock);
    kiln_status status = kiln__pool_take(pool, bytes, memory, error);
    if (!large)
        return status;
    pthread_mutex_lock(&pool->lock);
    if (status)
        end_turn(pool);
    else
        pool->turn = *memory;
    pthread_mutex_unlock(&pool->lock);
    return status;
}

cl_mem kiln__pool_part_with(struct kiln__pool *pool, size_t *bytes)
{
    cl_mem memory = NULL;
    pthread_mutex_lock(&pool->lock);
    struct block *block = find_idle(pool, *bytes, kiln__pool_rounded(*bytes));
    if (block) {
        memory = block->memory;
        *bytes = block->bytes;
        struct block *end = pool->blocks.items + pool->blocks.count--;
        memmove(block, block + 1, (size_t)(end - block - 1) * sizeof *block);
    }
    pthread_mutex_unlock(&pool->lock);
    return memory;
}

void kiln__pool_give(struct kiln__pool *pool, cl_mem memory)
{
    if (!memory)
        return;
    pthread_mutex_lock(&pool->lock);
    for (size_t i = pool->blocks.count; i-- > 0;) {
        struct block *block = &pool->blocks.items[i];
        if (block->memory != memory)
            continue;
        block->idle = true;
        pool->idle += block->bytes;
        break;
    }
    if (memory == pool->turn)
        end_turn(pool);
    if (pool->idle > pool->budget->device_memory / IDLE_SHARE)
        release_idle(pool, pool->budget->device_memory / IDLE_SHARE, 0, SIZE_MAX);
    pthread_mutex_unlock(&pool->lock);
}

struct kiln__pool *kiln__pool_next(const struct kiln__pool *pool)
{
    return pool->next;
}

void kiln__pool_finish(struct kiln__pool *pool)
{
    kiln__cl_finish(pool->queue);
}

void kiln__pool_trim(struct kiln__pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    release_idle(pool, 0, 0, SIZE_MAX);
    pthread_mutex_unlock(&pool->lock);
}
