/* SPDX-License-Identifier: Apache-2.0 */
#include "substitute.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Lives until it has ended and the program has let go of it; holds a reference to both events, so
 * that no new event gets the address of `user`. */
struct substitute {
    struct substitute *next;
    cl_command_queue queue;
    cl_event user, real;
    cl_int code;
    int references; /* of the program */
    bool ended;
};

/* Guarded by `lock`, which is never held during an OpenCL call: a driver may run the callback
 * inside the call that registers it. */
static struct substitute *list;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;

static atomic_int living; /* spares programs without substitutes the lock */

static void add(struct substitute *substitute)
{
    pthread_mutex_lock(&lock);
    substitute->next = list;
    list = substitute;
    living++;
    pthread_mutex_unlock(&lock);
}

/* Caller holds `lock`. */
static struct substitute *find(cl_event user)
{
    struct substitute *found = list;
    while (found && found->user != user)
        found = found->next;
    return found;
}

/* Caller holds `lock`. Takes the substitute out if nobody needs it; free it after unlocking. */
static bool take_if_done(struct substitute *substitute)
{
    if (!substitute->ended || substitute->references > 0)
        return false;
    struct substitute **link = &list;
    while (*link != substitute)
        link = &(*link)->next;
    *link = substitute->next;
    living--;
    return true;
}

static void destroy(struct substitute *substitute)
{
    layer__next.clReleaseEvent(substitute->real);
    layer__next.clReleaseEvent(substitute->user);
    free(substitute);
}

static void CL_CALLBACK end(cl_event real, cl_int status, void *data)
{
    struct substitute *substitute = data;
    (void)real;
    layer__next.clSetUserEventStatus(substitute->user, status < 0 ? status : substitute->code);
    pthread_mutex_lock(&lock);
    substitute->ended = true;
    bool done = take_if_done(substitute);
    pthread_cond_broadcast(&ended);
    pthread_mutex_unlock(&lock);
    if (done)
        destroy(substitute);
}

static void change_references(cl_event event, int change)
{
    if (!living)
        return;
    pthread_mutex_lock(&lock);
    struct substitute *substitute = find(event);
    if (substitute)
        substitute->references += change;
    bool done = substitute && take_if_done(substitute);
    pthread_mutex_unlock(&lock);
    if (done)
        destroy(substitute);
}

void layer__event_retained(cl_event event)
{
    change_references(event, 1);
}

void layer__event_released(cl_event event)
{
    change_references(event, -1);
}

static cl_event user_event_for(cl_command_queue queue)
{
    cl_context context;
    cl_int code =
        layer__next.clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof context, &context, NULL);
    cl_event user = code ? NULL : layer__next.clCreateUserEvent(context, &code);
    return code ? NULL : user;
}

cl_event layer__substitute(cl_command_queue queue, cl_event real, cl_int code)
{
    struct substitute *substitute = calloc(1, sizeof *substitute);
    cl_event user = substitute ? user_event_for(queue) : NULL;
    if (!user) {
        free(substitute);
        return real;
    }
    *substitute = (struct substitute){NULL, queue, user, real, code, 1, false};
    layer__next.clRetainEvent(user); /* ours; the program gets the first one */
    add(substitute);
    if (layer__next.clSetEventCallback(real, CL_COMPLETE, end, substitute))
        end(real, code, substitute);
    layer__next.clFlush(queue);
    return user;
}

struct layer__waits layer__waits_open(cl_uint count, const cl_event *events)
{
    struct layer__waits waits = {events, false, NULL};
    if (!living || !count || !events)
        return waits;
    cl_event *copy = malloc(count * sizeof *copy);
    if (!copy)
        return waits;
    memcpy(copy, events, count * sizeof *copy);
    pthread_mutex_lock(&lock);
    for (cl_uint i = 0; i < count; i++) {
        const struct substitute *substitute = find(events[i]);
        if (substitute) {
            copy[i] = substitute->real;
            waits.failing = true;
        }
    }
    pthread_mutex_unlock(&lock);
    waits.events = waits.copy = copy;
    return waits;
}

void layer__waits_close(struct layer__waits *waits)
{
    free(waits->copy);
}

static bool has_unfinished(cl_command_queue queue)
{
    for (const struct substitute *substitute = list; substitute; substitute = substitute->next)
        if (substitute->queue == queue && !substitute->ended)
            return true;
    return false;
}

void layer__settle(cl_command_queue queue)
{
    if (!living)
        return;
    struct timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += 5; /* a driver that loses a callback must not hang the test */
    pthread_mutex_lock(&lock);
    while (has_unfinished(queue) && !pthread_cond_timedwait(&ended, &lock, &limit))
        ;
    pthread_mutex_unlock(&lock);
}
