/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/gate.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include "util/vector.h"

#define PAUSE_NS (200 * INT64_C(1000000))

/* Guards all that follows; not held during a call of OpenCL that can wait.
 * `opened`: the gate did. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t opened = PTHREAD_COND_INITIALIZER;
static unsigned inside;
static bool closed;
static int64_t last_left;
static KILN__VECTOR(cl_command_queue) queues;

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
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
        pthread_cond_wait(&opened, &mutex);
    inside++;
    pthread_mutex_unlock(&mutex);
}

void kiln__gate_leave(void)
{
    pthread_mutex_lock(&mutex);
    last_left = now();
    inside--;
    pthread_mutex_unlock(&mutex);
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

bool kiln__gate_close(bool force)
{
    pthread_mutex_lock(&mutex);
    bool closes = !closed && !inside && (force || now() - last_left >= PAUSE_NS);
    closed |= closes;
    pthread_mutex_unlock(&mutex);
    return closes;
}

/* A queue that is removed meanwhile has been finished by its context. */
cl_int kiln__gate_finish(void)
{
    cl_int code = CL_SUCCESS;
    size_t done = 0;
    cl_command_queue queue;
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
    pthread_cond_broadcast(&opened);
    pthread_mutex_unlock(&mutex);
}
