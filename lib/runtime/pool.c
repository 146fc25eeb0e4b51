/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/pool.h"

#include <inttypes.h>
#include <stdlib.h>

#include "util/vector.h"

/* Smaller ones are rounded up to this. */
#define SMALLEST 4096

/* Of the device's memory, what may lie idle: one in so many bytes. */
#define IDLE_SHARE 8

struct block {
    cl_mem memory;
    size_t bytes;
    bool idle;
};

struct kiln__pool {
    cl_context context;
    cl_command_queue queue;
    struct kiln__budget *budget;
    struct kiln__pool *next; /* of the budget's */
    pthread_mutex_t lock; /* guards what follows; no OpenCL call that can wait is made under it */
    KILN__VECTOR(struct block) blocks;
    uint64_t idle;
};

void kiln__budget_begin(struct kiln__budget *budget, uint64_t device_memory, uint64_t limit)
{
    pthread_rwlockattr_t attributes;
    pthread_rwlockattr_init(&attributes);
#ifdef __GLIBC__ /* else runs that keep coming would keep one out that has to be alone */
    pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
#endif
    pthread_rwlock_init(&budget->turns, &attributes);
    pthread_rwlockattr_destroy(&attributes);
    pthread_mutex_init(&budget->keeping, NULL);
    budget->kept = NULL;
    budget->kept_bytes = 0;
    budget->device_memory = device_memory;
    budget->limit = limit && limit < device_memory ? limit : device_memory;
    atomic_init(&budget->bytes, 0);
    atomic_init(&budget->pools, NULL);
}

void kiln__budget_end(struct kiln__budget *budget)
{
    pthread_rwlock_destroy(&budget->turns);
    pthread_mutex_destroy(&budget->keeping);
}

void kiln__budget_enter(struct kiln__budget *budget, bool alone)
{
    if (alone)
        pthread_rwlock_wrlock(&budget->turns);
    else
        pthread_rwlock_rdlock(&budget->turns);
}

void kiln__budget_leave(struct kiln__budget *budget)
{
    pthread_rwlock_unlock(&budget->turns);
}

struct kiln__pool *kiln__pool_create(cl_context context, cl_command_queue queue,
                                     struct kiln__budget *budget)
{
    struct kiln__pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return NULL;
    pool->context = context;
    pool->queue = queue;
    pool->budget = budget;
    pthread_mutex_init(&pool->lock, NULL);
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
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

static size_t bin_of(size_t bytes)
{
    size_t power = SMALLEST;
    if (bytes <= power)
        return power;
    while (power <= bytes / 2)
        power *= 2;
    size_t quarter = power / 4;
    return (bytes + quarter - 1) / quarter * quarter;
}

/* An idle block of exactly this bin. */
static cl_mem find_idle(struct kiln__pool *pool, size_t bytes)
{
    for (size_t i = pool->blocks.count; i-- > 0;) {
        struct block *block = &pool->blocks.items[i];
        if (!block->idle || block->bytes != bytes)
            continue;
        block->idle = false;
        pool->idle -= bytes;
        return block->memory;
    }
    return NULL;
}

/* Release idle blocks, the oldest first, until at most `keep` bytes are idle. */
static void release_idle(struct kiln__pool *pool, uint64_t keep)
{
    size_t kept = 0;
    for (size_t i = 0; i < pool->blocks.count; i++) {
        struct block block = pool->blocks.items[i];
        if (!block.idle || pool->idle <= keep) {
            pool->blocks.items[kept++] = block;
            continue;
        }
        clReleaseMemObject(block.memory);
        pool->idle -= block.bytes;
        atomic_fetch_sub(&pool->budget->bytes, block.bytes);
    }
    pool->blocks.count = kept;
}

/* Some drivers promise any amount and fail at the first use, so what cannot be is refused here. */
static kiln_status create(struct kiln__pool *pool, size_t asked, size_t rounded, cl_mem *memory,
                          struct kiln__error *error)
{
    struct kiln__budget *budget = pool->budget;
    cl_int code = CL_INVALID_BUFFER_SIZE;
    uint64_t before = atomic_fetch_add(&budget->bytes, rounded);
    *memory = NULL;
    if (rounded <= budget->limit && before <= budget->limit - rounded)
        *memory = clCreateBuffer(pool->context, CL_MEM_READ_WRITE, rounded, NULL, &code);
    if (!code)
        return KILN_OK;
    atomic_fetch_sub(&budget->bytes, rounded);
    bool limited = budget->limit < budget->device_memory;
    return kiln__fail(
        error, limited ? KILN_OUT_OF_DEVICE_MEMORY : kiln__cl_status(code),
        "kiln: no %zu bytes of device memory (%s); the %s has %" PRIu64 ", the pool holds %" PRIu64,
        asked, kiln__cl_name(code), limited ? "pool's limit" : "device", budget->limit, before);
}

static kiln_status add_block(struct kiln__pool *pool, size_t asked, size_t rounded, cl_mem *memory,
                             struct kiln__error *error)
{
    kiln_status status = create(pool, asked, rounded, memory, error);
    if (status)
        return status;
    pthread_mutex_lock(&pool->lock);
    struct block *block = kiln__vector_push(&pool->blocks);
    if (block)
        *block = (struct block){.memory = *memory, .bytes = rounded};
    pthread_mutex_unlock(&pool->lock);
    if (block)
        return KILN_OK;
    clReleaseMemObject(*memory);
    atomic_fetch_sub(&pool->budget->bytes, rounded);
    *memory = NULL;
    return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory for the buffer pool");
}

static void finish(struct kiln__budget *budget)
{
    for (struct kiln__pool *pool = atomic_load(&budget->pools); pool; pool = pool->next)
        kiln__cl_finish(pool->queue);
}

kiln_status kiln__pool_take(struct kiln__pool *pool, size_t bytes, cl_mem *memory,
                            struct kiln__error *error)
{
    size_t bin = bin_of(bytes);
    struct kiln__error first = {0};
    pthread_mutex_lock(&pool->lock);
    *memory = find_idle(pool, bin);
    pthread_mutex_unlock(&pool->lock);
    if (*memory || !add_block(pool, bytes, bin, memory, &first))
        return KILN_OK;
    finish(pool->budget);
    kiln__budget_trim(pool->budget);
    return add_block(pool, bytes, bin, memory, error);
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
    if (pool->idle > pool->budget->device_memory / IDLE_SHARE)
        release_idle(pool, pool->budget->device_memory / IDLE_SHARE);
    pthread_mutex_unlock(&pool->lock);
}

void kiln__budget_trim(struct kiln__budget *budget)
{
    kiln__kept_trim(budget);
    for (struct kiln__pool *pool = atomic_load(&budget->pools); pool; pool = pool->next) {
        pthread_mutex_lock(&pool->lock);
        release_idle(pool, 0);
        pthread_mutex_unlock(&pool->lock);
    }
}
