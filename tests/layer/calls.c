/* SPDX-License-Identifier: Apache-2.0 */
/* A wrapper for every row of calls.def: ask whether the call fails, forward it, note what came of
 * it. Parameters named `errcode_ret` and `event` are pointed at variables of the wrapper, so that
 * a result can be taken back before the caller sees it. */
#include "calls.h"

#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "counts.h"
#include "failure.h"
#include "marks.h"

cl_icd_dispatch layer__next;

#define NOTHING (void)0

static uint64_t volume(const size_t *region)
{
    return (uint64_t)region[0] * region[1] * region[2];
}

static void note_buffer(cl_mem_flags flags, size_t size)
{
    layer__tallied(LAYER__TALLY_allocated, size);
    if (flags & CL_MEM_COPY_HOST_PTR)
        layer__moved(LAYER__create_copy, size);
}

/* Whoever is told that a transfer failed may free its memory at once, so let the transfer end
 * first; but not for ever, because it may wait for a user event. */
static void let_end(cl_command_queue queue, cl_event event)
{
    cl_int status = CL_QUEUED;
    layer__next.clFlush(queue);
    for (int tries = 0; tries < 60000 && status > CL_COMPLETE; tries++) {
        if (tries)
            usleep(1000);
        if (layer__next.clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status,
                                       &status, NULL))
            return;
    }
}

/* What the caller of an accepted enqueue gets: the event, perhaps marked, or the error. */
static cl_int hand_out(struct layer__verdict verdict, cl_command_queue queue, cl_event made,
                       cl_event *wanted)
{
    if (verdict.where == KILN_LAYER_AFTER) {
        if (made) {
            let_end(queue, made);
            layer__next.clReleaseEvent(made);
        }
        return verdict.code;
    }
    if (wanted) {
        *wanted = made;
        if (verdict.where == KILN_LAYER_EVENT)
            layer__mark(made, verdict.code);
        layer__created(LAYER__KIND_event, 1);
    }
    return CL_SUCCESS;
}

#define STATUS_OF(chance, name, parameters, arguments, note)                                       \
    static cl_int CL_API_CALL wrapped_##name parameters                                            \
    {                                                                                              \
        struct layer__verdict verdict = layer__judge(LAYER__##name, chance);                       \
        if (verdict.where == KILN_LAYER_CALL)                                                      \
            return verdict.code;                                                                   \
        cl_int code = layer__next.name arguments;                                                  \
        if (code == CL_SUCCESS)                                                                    \
            note;                                                                                  \
        return verdict.where ? verdict.code : code;                                                \
    }
#define STATUS(...) STATUS_OF(LAYER__ANY, __VA_ARGS__)
#define SPARED(...) STATUS_OF(LAYER__NAMED, __VA_ARGS__)
#define RELEASE(name, kind, note)                                                                  \
    SPARED(name, (type_##kind object), (object), (layer__released(LAYER__KIND_##kind), note))

#define QUERY(name, type)                                                                          \
    STATUS(name, (type object, cl_uint what, size_t size, void *value, size_t *size_ret),          \
           (object, what, size, value, size_ret), NOTHING)
#define QUERY2(name, type, of_type)                                                                \
    STATUS(name,                                                                                   \
           (type object, of_type of, cl_uint what, size_t size, void *value, size_t *size_ret),    \
           (object, of, what, size, value, size_ret), NOTHING)

#define RETAIN(name, kind, note)                                                                   \
    static cl_int CL_API_CALL wrapped_##name(type_##kind object)                                   \
    {                                                                                              \
        struct layer__verdict verdict = layer__judge(LAYER__##name, LAYER__ANY);                   \
        if (verdict.where == KILN_LAYER_CALL)                                                      \
            return verdict.code;                                                                   \
        cl_int code = layer__next.name(object);                                                    \
        if (code == CL_SUCCESS && verdict.where) {                                                 \
            undo_##kind(object);                                                                   \
        } else if (code == CL_SUCCESS) {                                                           \
            layer__retained(LAYER__KIND_##kind);                                                   \
            note;                                                                                  \
        }                                                                                          \
        return verdict.where ? verdict.code : code;                                                \
    }

#define CREATE(name, kind, parameters, arguments, note)                                            \
    static type_##kind CL_API_CALL wrapped_##name parameters                                       \
    {                                                                                              \
        struct layer__verdict verdict = layer__judge(LAYER__##name, LAYER__ANY);                   \
        cl_int code = verdict.code, *wanted = errcode_ret;                                         \
        type_##kind object = NULL;                                                                 \
        errcode_ret = &code;                                                                       \
        if (verdict.where != KILN_LAYER_CALL)                                                      \
            object = layer__next.name arguments;                                                   \
        if (object && verdict.where) {                                                             \
            undo_##kind(object);                                                                   \
            object = NULL;                                                                         \
            code = verdict.code;                                                                   \
        } else if (object) {                                                                       \
            layer__created(LAYER__KIND_##kind, 1);                                                 \
            note;                                                                                  \
        }                                                                                          \
        if (wanted)                                                                                \
            *wanted = code;                                                                        \
        return object;                                                                             \
    }

/* A command that waits for a failing event fails with it. */
static struct layer__verdict inherit(struct layer__verdict verdict, bool failing, bool blocking)
{
    if (failing && !verdict.where) {
        verdict.where = blocking ? KILN_LAYER_AFTER : KILN_LAYER_EVENT;
        verdict.code = CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
    }
    return verdict;
}

/* A command whose event is to fail is not done: a marker takes its place. */
#define ENQUEUE_OF(blocks, drops, name, parameters, arguments, note)                               \
    static cl_int CL_API_CALL wrapped_##name parameters                                            \
    {                                                                                              \
        struct layer__verdict verdict =                                                            \
            layer__judge(LAYER__##name, event ? LAYER__EVENT : LAYER__ANY);                        \
        if (verdict.where == KILN_LAYER_CALL)                                                      \
            return verdict.code;                                                                   \
        cl_event made = NULL, *wanted = event;                                                     \
        bool failing = layer__any_marked(wait_count, waits);                                       \
        bool dropped = drops && verdict.where == KILN_LAYER_EVENT;                                 \
        event = wanted || verdict.where ? &made : NULL;                                            \
        cl_int code =                                                                              \
            dropped ? layer__next.clEnqueueMarkerWithWaitList(queue, wait_count, waits, event)     \
                    : layer__next.name arguments;                                                  \
        if (code != CL_SUCCESS)                                                                    \
            return code;                                                                           \
        if (!dropped)                                                                              \
            note;                                                                                  \
        return hand_out(inherit(verdict, failing, blocks), queue, made, wanted);                   \
    }
#define ENQUEUE(...) ENQUEUE_OF(false, true, __VA_ARGS__)
#define UNMAP(...) ENQUEUE_OF(false, false, __VA_ARGS__)
#define TRANSFER(...) ENQUEUE_OF(blocking, true, __VA_ARGS__)

#define MAP(name, parameters, arguments, note)                                                     \
    static void *CL_API_CALL wrapped_##name parameters                                             \
    {                                                                                              \
        struct layer__verdict verdict =                                                            \
            layer__judge(LAYER__##name, event ? LAYER__EVENT : LAYER__ANY);                        \
        cl_int code = verdict.code, *wanted_code = errcode_ret;                                    \
        cl_event made = NULL, *wanted = event;                                                     \
        void *address = NULL;                                                                      \
        bool failing = layer__any_marked(wait_count, waits);                                       \
        event = wanted || verdict.where ? &made : NULL;                                            \
        errcode_ret = &code;                                                                       \
        if (verdict.where != KILN_LAYER_CALL)                                                      \
            address = layer__next.name arguments;                                                  \
        if (address) {                                                                             \
            note;                                                                                  \
            code = hand_out(inherit(verdict, failing, blocking), queue, made, wanted);             \
        }                                                                                          \
        if (address && code != CL_SUCCESS) {                                                       \
            layer__next.clEnqueueUnmapMemObject(queue, memory, address, 0, NULL, NULL);            \
            address = NULL;                                                                        \
        }                                                                                          \
        if (wanted_code)                                                                           \
            *wanted_code = code;                                                                   \
        return address;                                                                            \
    }

#define OTHER(...)

#define KIND(kind, type, release)                                                                  \
    typedef type type_##kind;                                                                      \
    static void undo_##kind(type object)                                                           \
    {                                                                                              \
        layer__next.release(object);                                                               \
    }
LAYER__KINDS(KIND)
#undef KIND

#define CALL(shape, name, ...) shape(name, __VA_ARGS__)
#include "calls.def"
#undef CALL

static cl_int CL_API_CALL wrapped_clCreateKernelsInProgram(cl_program program, cl_uint room,
                                                           cl_kernel *kernels, cl_uint *found)
{
    struct layer__verdict verdict = layer__judge(LAYER__clCreateKernelsInProgram, LAYER__ANY);
    cl_uint made = 0;
    if (verdict.where == KILN_LAYER_CALL)
        return verdict.code;
    cl_int code = layer__next.clCreateKernelsInProgram(program, room, kernels, &made);
    if (code != CL_SUCCESS)
        return code;
    if (found)
        *found = made;
    if (!verdict.where && kernels)
        layer__created(LAYER__KIND_kernel, made);
    for (cl_uint i = 0; verdict.where && kernels && i < made; i++)
        undo_kernel(kernels[i]);
    return verdict.code;
}

static cl_int CL_API_CALL wrapped_clCreateSubDevices(cl_device_id device,
                                                     const cl_device_partition_property *properties,
                                                     cl_uint room, cl_device_id *devices,
                                                     cl_uint *found)
{
    struct layer__verdict verdict = layer__judge(LAYER__clCreateSubDevices, LAYER__ANY);
    cl_uint made = 0;
    if (verdict.where == KILN_LAYER_CALL)
        return verdict.code;
    cl_int code = layer__next.clCreateSubDevices(device, properties, room, devices, &made);
    if (code != CL_SUCCESS)
        return code;
    if (found)
        *found = made;
    if (!verdict.where && devices)
        layer__created(LAYER__KIND_device, made);
    for (cl_uint i = 0; verdict.where && devices && i < made; i++)
        undo_device(devices[i]);
    return verdict.code;
}

/* The two commands of OpenCL 1.0 whose parameters are unlike the others'. */
static cl_int CL_API_CALL wrapped_clEnqueueMarker(cl_command_queue queue, cl_event *event)
{
    struct layer__verdict verdict = layer__judge(LAYER__clEnqueueMarker, LAYER__EVENT);
    cl_event made = NULL;
    if (verdict.where == KILN_LAYER_CALL)
        return verdict.code;
    cl_int code = layer__next.clEnqueueMarker(queue, event || verdict.where ? &made : NULL);
    return code ? code : hand_out(verdict, queue, made, event);
}

static cl_int CL_API_CALL wrapped_clEnqueueWaitForEvents(cl_command_queue queue, cl_uint wait_count,
                                                         const cl_event *waits)
{
    struct layer__verdict verdict = layer__judge(LAYER__clEnqueueWaitForEvents, LAYER__ANY);
    if (verdict.where == KILN_LAYER_CALL)
        return verdict.code;
    cl_int code = layer__next.clEnqueueWaitForEvents(queue, wait_count, waits);
    return verdict.where ? verdict.code : code;
}

/* ---- how a command ended ---- */

static cl_int CL_API_CALL wrapped_clWaitForEvents(cl_uint wait_count, const cl_event *waits)
{
    struct layer__verdict verdict = layer__judge(LAYER__clWaitForEvents, LAYER__ANY);
    if (verdict.where == KILN_LAYER_CALL)
        return verdict.code;
    cl_int code = layer__next.clWaitForEvents(wait_count, waits);
    if (!code && layer__any_marked(wait_count, waits))
        code = CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
    return verdict.where ? verdict.code : code;
}

static cl_int CL_API_CALL wrapped_clGetEventInfo(cl_event event, cl_event_info what, size_t size,
                                                 void *value, size_t *size_ret)
{
    struct layer__verdict verdict = layer__judge(LAYER__clGetEventInfo, LAYER__ANY);
    if (verdict.where == KILN_LAYER_CALL)
        return verdict.code;
    cl_int code = layer__next.clGetEventInfo(event, what, size, value, size_ret);
    if (!code && value && what == CL_EVENT_COMMAND_EXECUTION_STATUS) {
        cl_int *status = value;
        if (*status == CL_COMPLETE)
            *status = layer__mark_of(event);
    }
    return verdict.where ? verdict.code : code;
}

struct callback {
    void(CL_CALLBACK *notify)(cl_event, cl_int, void *);
    void *user_data;
    cl_int code;
};

static void CL_CALLBACK tell_failure(cl_event event, cl_int status, void *data)
{
    struct callback callback = *(struct callback *)data;
    free(data);
    callback.notify(event, status == CL_COMPLETE ? callback.code : status, callback.user_data);
}

static cl_int CL_API_CALL wrapped_clSetEventCallback(cl_event event, cl_int status,
                                                     void(CL_CALLBACK *notify)(cl_event, cl_int,
                                                                               void *),
                                                     void *user_data)
{
    struct layer__verdict verdict = layer__judge(LAYER__clSetEventCallback, LAYER__ANY);
    cl_int mark = layer__mark_of(event);
    struct callback *callback = mark ? malloc(sizeof *callback) : NULL;
    if (verdict.where == KILN_LAYER_CALL || (mark && !callback)) {
        free(callback);
        return verdict.where ? verdict.code : CL_OUT_OF_HOST_MEMORY;
    }
    if (callback)
        *callback = (struct callback){notify, user_data, mark};
    cl_int code = callback ? layer__next.clSetEventCallback(event, status, tell_failure, callback)
                           : layer__next.clSetEventCallback(event, status, notify, user_data);
    if (code)
        free(callback);
    return verdict.where ? verdict.code : code;
}

/* These two answer NULL for every error. */
static void *CL_API_CALL wrapped_clGetExtensionFunctionAddress(const char *name)
{
    if (layer__judge(LAYER__clGetExtensionFunctionAddress, LAYER__ANY).where)
        return NULL;
    return layer__next.clGetExtensionFunctionAddress(name);
}

static void *CL_API_CALL wrapped_clGetExtensionFunctionAddressForPlatform(cl_platform_id platform,
                                                                          const char *name)
{
    if (layer__judge(LAYER__clGetExtensionFunctionAddressForPlatform, LAYER__ANY).where)
        return NULL;
    return layer__next.clGetExtensionFunctionAddressForPlatform(platform, name);
}

void layer__install(cl_icd_dispatch *table)
{
#define CALL(shape, name, ...)                                                                     \
    if (layer__next.name)                                                                          \
        table->name = wrapped_##name;
#include "calls.def"
#undef CALL
}
