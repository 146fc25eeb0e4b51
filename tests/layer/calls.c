/* SPDX-License-Identifier: Apache-2.0 */
/* A wrapper for every row of calls.def: ask whether the call fails, forward it, note what came of
 * it. Parameters named `errcode_ret` and `event` are pointed at variables of the wrapper, so that
 * a result can be taken back before the caller sees it. */
#include "calls.h"

#include <stdbool.h>
#include <unistd.h>

#include "counts.h"
#include "failure.h"
#include "substitute.h"

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
    for (int tries = 0; tries < 1000 && status > CL_COMPLETE; tries++) {
        if (tries)
            usleep(1000);
        if (layer__next.clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status,
                                       &status, NULL))
            return;
    }
}

/* What the caller of an accepted enqueue gets: the event, a substitute, or the error. */
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
        bool fails = verdict.where == KILN_LAYER_EVENT;
        *wanted = fails ? layer__substitute(queue, made, verdict.code) : made;
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

#define ENQUEUE_OF(blocks, name, parameters, arguments, note)                                      \
    static cl_int CL_API_CALL wrapped_##name parameters                                            \
    {                                                                                              \
        struct layer__verdict verdict =                                                            \
            layer__judge(LAYER__##name, event ? LAYER__EVENT : LAYER__ANY);                        \
        if (verdict.where == KILN_LAYER_CALL)                                                      \
            return verdict.code;                                                                   \
        cl_event made = NULL, *wanted = event;                                                     \
        struct layer__waits real = layer__waits_open(wait_count, waits);                           \
        waits = real.events;                                                                       \
        event = wanted || verdict.where ? &made : NULL;                                            \
        cl_int code = layer__next.name arguments;                                                  \
        layer__waits_close(&real);                                                                 \
        if (code != CL_SUCCESS)                                                                    \
            return code;                                                                           \
        note;                                                                                      \
        return hand_out(inherit(verdict, real.failing, blocks), queue, made, wanted);              \
    }
#define ENQUEUE(...) ENQUEUE_OF(false, __VA_ARGS__)
#define TRANSFER(...) ENQUEUE_OF(blocking, __VA_ARGS__)

#define MAP(name, parameters, arguments, note)                                                     \
    static void *CL_API_CALL wrapped_##name parameters                                             \
    {                                                                                              \
        struct layer__verdict verdict =                                                            \
            layer__judge(LAYER__##name, event ? LAYER__EVENT : LAYER__ANY);                        \
        cl_int code = verdict.code, *wanted_code = errcode_ret;                                    \
        cl_event made = NULL, *wanted = event;                                                     \
        void *address = NULL;                                                                      \
        struct layer__waits real = layer__waits_open(wait_count, waits);                           \
        waits = real.events;                                                                       \
        event = wanted || verdict.where ? &made : NULL;                                            \
        errcode_ret = &code;                                                                       \
        if (verdict.where != KILN_LAYER_CALL)                                                      \
            address = layer__next.name arguments;                                                  \
        layer__waits_close(&real);                                                                 \
        if (address) {                                                                             \
            note;                                                                                  \
            code = hand_out(inherit(verdict, real.failing, blocking), queue, made, wanted);        \
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
    struct layer__waits real = layer__waits_open(wait_count, waits);
    cl_int code = layer__next.clEnqueueWaitForEvents(queue, wait_count, real.events);
    layer__waits_close(&real);
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
