/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/gate.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include "util/vector.h"

#define PAUSE_NS (200 * INT64_C(1000000))
#define PATIENCE_NS (10 * INT64_C(1000000000))

/* Guards all that follows; not held during a call of OpenCL that can wait.
 * `changed`: the gate opened, the last one left, or there is a hurry. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static unsigned inside, hurries;
static bool closed;
static int64_t last_left;
static KILN__VECTOR(cl_command_queue) queues;

static int64_t now(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

bool kiln__gate_add_queue(cl_command_queue queue)
{
    pthread_mutex_lock(&mutex);
    cl_command_queue *place = kiln__vector_push(&queues);
    if (place)
        *place = queue;
    pthread_mutex_unlock(&mutex);
    return place;
}

void kiln__gate_remove_queue(cl_command_queue queue)
{
    pthread_mutex_lock(&mutex);
    for (size_t i = 0; i < queues.count; i++)
        if (queues.items[i] == queue) {
            queues.items[i] = queues.items[--queues.count];
            break;
        }
    if (queues.count == 0)
        kiln__vector_free(&queues);
    pthread_mutex_unlock(&mutex);
}

void kiln__gate_enter(void)
{
    pthread_mutex_lock(&mutex);
    while (closed)
        pthread_cond_wait(&changed, &mutex);
    inside++;
    pthread_mutex_unlock(&mutex);
}

void kiln__gate_leave(void)
{
    pthread_mutex_lock(&mutex);
    last_left = now(CLOCK_MONOTONIC);
    if (--inside == 0)
        pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

/* The mutex is held. */
static void wait_for_pause(void)
{
    int64_t start = now(CLOCK_MONOTONIC);
    while (!hurries) {
        int64_t time = now(CLOCK_MONOTONIC);
        int64_t left = inside ? PAUSE_NS : last_left + PAUSE_NS - time;
        if (left <= 0 || time - start > PATIENCE_NS)
            return;
        int64_t until = now(CLOCK_REALTIME) + left;
        struct timespec end = {until / INT64_C(1000000000), until % INT64_C(1000000000)};
        pthread_cond_timedwait(&changed, &mutex, &end);
    }
}

/* The next queue to finish, retained, or NULL: `*done` of them are. */
static cl_int next_queue(size_t *done, cl_command_queue *queue)
{
    pthread_mutex_lock(&mutex);
    *queue = *done < queues.count ? queues.items[(*done)++] : NULL;
    cl_int code = *queue ? clRetainCommandQueue(*queue) : CL_SUCCESS;
    pthread_mutex_unlock(&mutex);
    return code;
}

cl_int kiln__gate_close(void)
{
    cl_int code = CL_SUCCESS;
    size_t done = 0;
    cl_command_queue queue;
    pthread_mutex_lock(&mutex);
    wait_for_pause();
    while (closed)
        pthread_cond_wait(&changed, &mutex);
    closed = true;
    while (inside)
        pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
    /* A queue that is removed meanwhile has been finished by its context. */
    while (!(code = next_queue(&done, &queue)) && queue) {
        code = clFinish(queue);
        clReleaseCommandQueue(queue);
        if (code)
            break;
    }
    return code;
}

void kiln__gate_open(void)
{
    pthread_mutex_lock(&mutex);
    closed = false;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

void kiln__gate_hurry(bool hurry)
{
    pthread_mutex_lock(&mutex);
    hurries += hurry ? 1 : -1u;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}
