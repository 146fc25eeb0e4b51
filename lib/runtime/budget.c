/* SPDX-License-Identifier: Apache-2.0 */
/* Accounting of device memory against the limit, and creation of buffers that the driver has
 * touched before they count. */
#include "runtime/budget.h"

#include <inttypes.h>

#include "runtime/memory_pool.h"
#include "runtime/pages.h"

/* Smaller pieces are found to be missing when they are used. */
#define TOUCHED ((size_t)1 << 20)

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
    budget->pages = false;
    budget->kept = NULL;
    budget->kept_bytes = 0;
    budget->device_memory = device_memory;
    budget->limit = limit && limit < device_memory ? limit : device_memory;
    atomic_init(&budget->bytes, 0);
    atomic_init(&budget->buffers, 0);
    atomic_init(&budget->releases, 0);
    atomic_init(&budget->pools, NULL);
}

void kiln__budget_end(struct kiln__budget *budget)
{
    pthread_rwlock_destroy(&budget->turns);
    pthread_mutex_destroy(&budget->keeping);
    pthread_mutex_destroy(&budget->reserving);
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
    clReleaseMemObject(memory);
    unreserve(budget, pool, bytes);
}

kiln_status kiln__budget_create_buffer(struct kiln__budget *budget, size_t bytes, cl_mem *memory,
                                       struct kiln__error *error)
{
    struct kiln__error first = {0};
    if (!kiln__budget_create(budget, false, bytes, bytes, memory, &first))
        return KILN_OK;
    kiln__budget_enter(budget, true);
    kiln__budget_make_room(budget);
    kiln_status status = kiln__budget_create(budget, false, bytes, bytes, memory, error);
    kiln__budget_leave(budget);
    return status;
}

void kiln__budget_make_room(struct kiln__budget *budget)
{
    for (struct kiln__pool *pool = atomic_load(&budget->pools); pool; pool = kiln__pool_next(pool))
        kiln__pool_finish(pool);
    kiln__budget_trim(budget);
}

void kiln__budget_trim(struct kiln__budget *budget)
{
    kiln__prepacked_trim(budget);
    for (struct kiln__pool *pool = atomic_load(&budget->pools); pool; pool = kiln__pool_next(pool))
        kiln__pool_trim(pool);
}
