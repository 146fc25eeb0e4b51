/* SPDX-License-Identifier: Apache-2.0 */
/* Accounting of device memory against the limit, and creation of buffers that the driver has
 * touched before they count. */
#include "runtime/budget.h"

#include <inttypes.h>

#include "runtime/memory_pool.h"
#include "runtime/pages.h"

/* Smaller pieces are found to be missing when they are used. */
#define TOUCHED ((size_t)1 << 20)
/* What is let go waits for so many objects, or bytes: each time all queues have to end. */
#define MOST_ENDED 64
#define MOST_ENDED_BYTES ((uint64_t)64 << 20)

void kiln__budget_begin(struct kiln__budget *budget, cl_context context, uint64_t device_memory,
                        uint64_t limit)
{
    pthread_rwlockattr_t attributes;
    pthread_rwlockattr_init(&attributes);
#ifdef __GLIBC__ /* else runs that keep coming would keep one out that has to be alone */
    pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
#endif
    pthread_rwlock_init(&budget->turns, &attributes);
    pthread_rwlockattr_destroy(&attributes);
    pthread_mutex_init(&budget->keeping, NULL);
    pthread_mutex_init(&budget->reserving, NULL);
    budget->context = context;
    budget->touches = NULL;
    budget->pages = budget->idle_release = false;
    budget->prepacked = NULL;
    budget->prepacked_bytes = 0;
    pthread_mutex_init(&budget->ending, NULL);
    budget->ended.items = NULL;
    budget->ended.count = budget->ended.capacity = 0;
    budget->ended_bytes = 0;
    atomic_init(&budget->ended_enough, false);
    budget->device_memory = device_memory;
    budget->limit = limit && limit < device_memory ? limit : device_memory;
    atomic_init(&budget->bytes, 0);
    atomic_init(&budget->buffers, 0);
    atomic_init(&budget->releases, 0);
    atomic_init(&budget->pools, NULL);
}

/* ---- the end of memory ---- */

static bool is_last(cl_mem memory)
{
    cl_uint references = 0;
    return clGetMemObjectInfo(memory, CL_MEM_REFERENCE_COUNT, sizeof references, &references,
                              NULL) ||
           references <= 1;
}

static bool put_off(struct kiln__budget *budget, cl_mem memory, size_t bytes)
{
    pthread_mutex_lock(&budget->ending);
    cl_mem *place = kiln__vector_push(&budget->ended);
    if (place) {
        *place = memory;
        budget->ended_bytes += bytes;
        if (budget->ended.count >= MOST_ENDED || budget->ended_bytes >= MOST_ENDED_BYTES)
            atomic_store(&budget->ended_enough, true);
    }
    pthread_mutex_unlock(&budget->ending);
    return place;
}

void kiln__budget_release_object(struct kiln__budget *budget, cl_mem memory, size_t bytes)
{
    if (!budget->idle_release || !is_last(memory) || !put_off(budget, memory, bytes))
        clReleaseMemObject(memory);
}

static void release_ended(struct kiln__budget *budget)
{
    pthread_mutex_lock(&budget->ending);
    for (size_t i = 0; i < budget->ended.count; i++)
        clReleaseMemObject(budget->ended.items[i]);
    budget->ended.count = 0;
    budget->ended_bytes = 0;
    atomic_store(&budget->ended_enough, false);
    pthread_mutex_unlock(&budget->ending);
}

static void finish_all(struct kiln__budget *budget)
{
    for (struct kiln__pool *pool = atomic_load(&budget->pools); pool; pool = kiln__pool_next(pool))
        kiln__pool_finish(pool);
}

static void release_alone(struct kiln__budget *budget)
{
    if (!budget->idle_release)
        return;
    pthread_rwlock_wrlock(&budget->turns);
    finish_all(budget);
    release_ended(budget);
    pthread_rwlock_unlock(&budget->turns);
}

/* ---- turns ---- */

void kiln__budget_end(struct kiln__budget *budget)
{
    release_ended(budget);
    kiln__vector_free(&budget->ended);
    pthread_rwlock_destroy(&budget->turns);
    pthread_mutex_destroy(&budget->keeping);
    pthread_mutex_destroy(&budget->reserving);
    pthread_mutex_destroy(&budget->ending);
}

void kiln__budget_enter(struct kiln__budget *budget, bool alone)
{
    if (atomic_load_explicit(&budget->ended_enough, memory_order_relaxed))
        release_alone(budget);
    if (alone)
        pthread_rwlock_wrlock(&budget->turns);
    else
        pthread_rwlock_rdlock(&budget->turns);
}

void kiln__budget_leave(struct kiln__budget *budget)
{
    pthread_rwlock_unlock(&budget->turns);
}

/* ---- memory ---- */

struct room {
    uint64_t pools, buffers; /* that they hold */
    uint64_t free;           /* for who asks */
};

static struct room find_room(const struct kiln__budget *budget, bool pool)
{
    struct room room = {.pools = atomic_load(&budget->bytes),
                        .buffers = atomic_load(&budget->buffers)};
    uint64_t held = room.pools + room.buffers;
    room.free = held < budget->device_memory ? budget->device_memory - held : 0;
    uint64_t allowed = room.pools < budget->limit ? budget->limit - room.pools : 0;
    if (pool && room.free > allowed)
        room.free = allowed;
    return room;
}

static bool budget_reserve(struct kiln__budget *budget, bool pool, size_t bytes, struct room *room)
{
    pthread_mutex_lock(&budget->reserving);
    *room = find_room(budget, pool);
    bool fits = bytes <= room->free;
    if (fits)
        atomic_fetch_add(pool ? &budget->bytes : &budget->buffers, bytes);
    pthread_mutex_unlock(&budget->reserving);
    return fits;
}

static void unreserve(struct kiln__budget *budget, bool pool, size_t bytes)
{
    atomic_fetch_sub(pool ? &budget->bytes : &budget->buffers, bytes);
}

/* A driver that gives memory at its first use is made to give it now, 20 GB on an H200 in 0.7 ms.
 * Until it has, nobody may use the memory: NVIDIA's crashes where two queues move the same. */
static cl_int budget_touch(cl_command_queue queue, cl_mem memory)
{
    cl_int code = clEnqueueMigrateMemObjects(
        queue, 1, &memory, CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED, 0, NULL, NULL);
    return code ? code : kiln__cl_finish(queue);
}

cl_mem kiln__budget_allocate(const struct kiln__budget *budget, size_t bytes, cl_int *code)
{
    return budget->pages ? kiln__pages_create(budget->context, bytes, code)
                         : clCreateBuffer(budget->context, CL_MEM_READ_WRITE, bytes, NULL, code);
}

static cl_mem budget_create(const struct kiln__budget *budget, size_t bytes, cl_int *code)
{
    cl_mem memory = kiln__budget_allocate(budget, bytes, code);
    if (*code)
        return NULL;
    if (budget->touches && bytes >= TOUCHED)
        *code = budget_touch(budget->touches, memory);
    if (!*code)
        return memory;
    clReleaseMemObject(memory);
    return NULL;
}

kiln_status kiln__budget_create(struct kiln__budget *budget, bool pool, size_t asked, size_t bytes,
                                cl_mem *memory, struct kiln__error *error)
{
    struct room room;
    cl_int code = CL_MEM_OBJECT_ALLOCATION_FAILURE;
    bool reserved = budget_reserve(budget, pool, bytes, &room);
    *memory = NULL;
    if (reserved)
        *memory = budget_create(budget, bytes, &code);
    if (!code)
        return KILN_OK;
    if (reserved)
        unreserve(budget, pool, bytes);
    bool limited = pool && budget->limit < budget->device_memory;
    return kiln__fail(error, kiln__cl_status(code),
                      "no %zu bytes of device memory (%s); the %s has %" PRIu64
                      ", the pool holds %" PRIu64 ", buffers %" PRIu64 ", free are %" PRIu64,
                      asked, kiln__cl_name(code), limited ? "pool's limit" : "device",
                      limited ? budget->limit : budget->device_memory, room.pools, room.buffers,
                      room.free);
}

void kiln__budget_count_release(struct kiln__budget *budget)
{
    atomic_fetch_add(&budget->releases, 1);
}

void kiln__budget_release(struct kiln__budget *budget, bool pool, cl_mem memory, size_t bytes)
{
    if (!memory)
        return;
    kiln__budget_count_release(budget);
    kiln__budget_release_object(budget, memory, bytes);
    unreserve(budget, pool, bytes);
}

kiln_status kiln__budget_create_buffer(struct kiln__budget *budget, size_t bytes, cl_mem *memory,
                                       struct kiln__error *error)
{
    struct kiln__error first = {0};
    if (atomic_load(&budget->ended_enough))
        release_alone(budget);
    if (!kiln__budget_create(budget, false, bytes, bytes, memory, &first))
        return KILN_OK;
    kiln__budget_enter(budget, true);
    kiln__budget_make_room(budget, true);
    kiln_status status = kiln__budget_create(budget, false, bytes, bytes, memory, error);
    kiln__budget_leave(budget);
    return status;
}

static void trim_all(struct kiln__budget *budget)
{
    kiln__prepacked_trim(budget);
    for (struct kiln__pool *pool = atomic_load(&budget->pools); pool; pool = kiln__pool_next(pool))
        kiln__pool_trim(pool);
}

void kiln__budget_make_room(struct kiln__budget *budget, bool alone)
{
    finish_all(budget);
    trim_all(budget);
    if (alone)
        release_ended(budget);
}

void kiln__budget_trim(struct kiln__budget *budget)
{
    trim_all(budget);
    release_alone(budget);
}
