/* SPDX-License-Identifier: Apache-2.0 */
/* A process-wide lock: launches share it, fetching a binary holds it alone with all queues
 * finished. */
#include "programs/fetch_interlock.h"

#include <pthread.h>

#include "util/vector.h"

/* Guards all that follows; not held during a call of OpenCL that can wait.
 * `changed`: the gate was opened, or nobody is inside any more. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static unsigned inside;
static bool closed;
static KILN__VECTOR(cl_command_queue) queues;

bool kiln__interlock_add_queue(cl_command_queue queue)
{
    pthread_mutex_lock(&mutex);
    cl_command_queue *place = kiln__vector_push(&queues);
    if (place)
        *place = queue;
    pthread_mutex_unlock(&mutex);
    return place;
}

void kiln__interlock_remove_queue(cl_command_queue queue)
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

void kiln__interlock_enter(void)
{
    pthread_mutex_lock(&mutex);
    while (closed)
        pthread_cond_wait(&changed, &mutex);
    inside++;
    pthread_mutex_unlock(&mutex);
}

void kiln__interlock_leave(void)
{
    pthread_mutex_lock(&mutex);
    if (!--inside)
        pthread_cond_broadcast(&changed);
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

void kiln__interlock_close(void)
{
    pthread_mutex_lock(&mutex);
    while (closed || inside)
        pthread_cond_wait(&changed, &mutex);
    closed = true;
    pthread_mutex_unlock(&mutex);
}

/* A queue that is removed meanwhile has been finished by its context. */
cl_int kiln__interlock_finish(void)
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

void kiln__interlock_open(void)
{
    pthread_mutex_lock(&mutex);
    closed = false;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}
