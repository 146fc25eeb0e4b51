/* SPDX-License-Identifier: Apache-2.0 */
/* A table of events that the layer reports as failed, while the driver's own succeed. */
#include "marks.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

/* Lives until the program has let go of the event; holds a reference to it, so that no new event
 * gets its address. */
struct mark {
    struct mark *next;
    cl_event event;
    cl_int code;
    int references; /* of the program */
};

/* Guarded by `lock`, which is never held during an OpenCL call. */
static struct mark *list;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static atomic_int living; /* spares programs without marks the lock */

/* Caller holds `lock`. Where the mark hangs, or the list's end. */
static struct mark **find(cl_event event)
{
    struct mark **link = &list;
    while (*link && (*link)->event != event)
        link = &(*link)->next;
    return link;
}

void layer__mark(cl_event event, cl_int code)
{
    struct mark *mark = malloc(sizeof *mark);
    if (!mark || layer__next.clRetainEvent(event))
        abort(); /* a test that believes in a failure that never comes is worth nothing */
    pthread_mutex_lock(&lock);
    *mark = (struct mark){list, event, code, 1};
    list = mark;
    living++;
    pthread_mutex_unlock(&lock);
}

cl_int layer__mark_of(cl_event event)
{
    if (!living)
        return CL_SUCCESS;
    pthread_mutex_lock(&lock);
    const struct mark *mark = *find(event);
    cl_int code = mark ? mark->code : CL_SUCCESS;
    pthread_mutex_unlock(&lock);
    return code;
}

bool layer__any_marked(cl_uint count, const cl_event *events)
{
    bool found = false;
    for (cl_uint i = 0; events && i < count; i++)
        found |= layer__mark_of(events[i]) != CL_SUCCESS;
    return found;
}

static void change_references(cl_event event, int change)
{
    if (!living)
        return;
    pthread_mutex_lock(&lock);
    struct mark **link = find(event), *mark = *link;
    if (mark)
        mark->references += change;
    bool done = mark && mark->references == 0;
    if (done) {
        *link = mark->next;
        living--;
    }
    pthread_mutex_unlock(&lock);
    if (done) {
        layer__next.clReleaseEvent(event);
        free(mark);
    }
}

void layer__event_retained(cl_event event)
{
    change_references(event, 1);
}

void layer__event_released(cl_event event)
{
    change_references(event, -1);
}
