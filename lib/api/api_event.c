/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a submission, to wait for, ask about or be told of. */
#include <stdlib.h>

#include <kiln/opencl.h>

#include "session/context.h"

static kiln_status check_event(const kiln_event *event, const char *call)
{
    KILN__RETURN_IF_NULL(NULL, call, event);
    return kiln__runtime_check_process(&event->context->runtime, NULL);
}

kiln_status kiln_event_wait(kiln_event *event)
{
    kiln_status status = check_event(event, "kiln_event_wait");
    return status ? status : kiln__run_await(event->run, "kiln_event_wait", NULL);
}

kiln_status kiln_event_poll(kiln_event *event)
{
    kiln_status status = check_event(event, "kiln_event_poll");
    return status ? status : kiln__run_poll(event->run, "kiln_event_poll", NULL);
}

struct notice {
    kiln_event_callback callback;
    void *user;
    struct kiln__run *run; /* NULL: its last command is all there is to look at */
};

static void CL_CALLBACK api_event_deliver(cl_event event, cl_int state, void *user)
{
    struct notice notice = *(struct notice *)user;
    kiln_status earlier = notice.run ? kiln__run_poll(notice.run, "kiln", NULL) : KILN_OK;
    bool failed = state < 0 || earlier == KILN_DEVICE_ERROR;
    (void)event;
    free(user);
    kiln__run_release(notice.run);
    notice.callback(failed ? KILN_DEVICE_ERROR : KILN_OK, notice.user);
}

kiln_status kiln_event_notify(kiln_event *event, kiln_event_callback callback, void *user)
{
    kiln_status status = check_event(event, "kiln_event_notify");
    if (status)
        return status;
    KILN__RETURN_IF_NULL(NULL, __func__, callback);
    struct notice *notice = malloc(sizeof *notice);
    if (!notice)
        return kiln__fail(NULL, KILN_OUT_OF_HOST_MEMORY, "kiln_event_notify: no memory");
    cl_event end = kiln__run_end(event->run); /* may be one more */
    *notice =
        (struct notice){callback, user, kiln__run_has_one_event(event->run) ? NULL : event->run};
    if (notice->run)
        kiln__run_retain(notice->run);
    cl_int code = clSetEventCallback(end, CL_COMPLETE, api_event_deliver, notice);
    if (!code)
        return KILN_OK;
    kiln__run_release(notice->run);
    free(notice);
    return kiln__cl_fail(NULL, "kiln_event_notify: clSetEventCallback", code);
}

void kiln_event_release(kiln_event *event)
{
    if (!event || atomic_fetch_sub(&event->references, 1) != 1)
        return;
    kiln_context *context = event->context;
    if (!kiln__runtime_check_process(&context->runtime, NULL)) {
        kiln__runs_add(event->run);
        kiln__run_release(event->run);
    }
    free(event);
    kiln_context_release(context);
}

cl_event kiln_event_cl(const kiln_event *event)
{
    return event ? kiln__run_end(event->run) : NULL;
}
