/* SPDX-License-Identifier: Apache-2.0 */
/* Names and statuses of OpenCL error codes, markers, and finishing of queues. */
#include "device/opencl.h"

#include <CL/cl_ext.h>

#define NAME(code)                                                                                 \
    {                                                                                              \
        code, #code                                                                                \
    }

static const struct {
    cl_int code;
    const char *name;
} names[] = {
    NAME(CL_SUCCESS),
    NAME(CL_DEVICE_NOT_FOUND),
    NAME(CL_DEVICE_NOT_AVAILABLE),
    NAME(CL_COMPILER_NOT_AVAILABLE),
    NAME(CL_MEM_OBJECT_ALLOCATION_FAILURE),
    NAME(CL_OUT_OF_RESOURCES),
    NAME(CL_OUT_OF_HOST_MEMORY),
    NAME(CL_PROFILING_INFO_NOT_AVAILABLE),
    NAME(CL_MEM_COPY_OVERLAP),
    NAME(CL_IMAGE_FORMAT_MISMATCH),
    NAME(CL_IMAGE_FORMAT_NOT_SUPPORTED),
    NAME(CL_BUILD_PROGRAM_FAILURE),
    NAME(CL_MAP_FAILURE),
    NAME(CL_MISALIGNED_SUB_BUFFER_OFFSET),
    NAME(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST),
    NAME(CL_COMPILE_PROGRAM_FAILURE),
    NAME(CL_LINKER_NOT_AVAILABLE),
    NAME(CL_LINK_PROGRAM_FAILURE),
    NAME(CL_DEVICE_PARTITION_FAILED),
    NAME(CL_KERNEL_ARG_INFO_NOT_AVAILABLE),
    NAME(CL_INVALID_VALUE),
    NAME(CL_INVALID_DEVICE_TYPE),
    NAME(CL_INVALID_PLATFORM),
    NAME(CL_INVALID_DEVICE),
    NAME(CL_INVALID_CONTEXT),
    NAME(CL_INVALID_QUEUE_PROPERTIES),
    NAME(CL_INVALID_COMMAND_QUEUE),
    NAME(CL_INVALID_HOST_PTR),
    NAME(CL_INVALID_MEM_OBJECT),
    NAME(CL_INVALID_IMAGE_FORMAT_DESCRIPTOR),
    NAME(CL_INVALID_IMAGE_SIZE),
    NAME(CL_INVALID_SAMPLER),
    NAME(CL_INVALID_BINARY),
    NAME(CL_INVALID_BUILD_OPTIONS),
    NAME(CL_INVALID_PROGRAM),
    NAME(CL_INVALID_PROGRAM_EXECUTABLE),
    NAME(CL_INVALID_KERNEL_NAME),
    NAME(CL_INVALID_KERNEL_DEFINITION),
    NAME(CL_INVALID_KERNEL),
    NAME(CL_INVALID_ARG_INDEX),
    NAME(CL_INVALID_ARG_VALUE),
    NAME(CL_INVALID_ARG_SIZE),
    NAME(CL_INVALID_KERNEL_ARGS),
    NAME(CL_INVALID_WORK_DIMENSION),
    NAME(CL_INVALID_WORK_GROUP_SIZE),
    NAME(CL_INVALID_WORK_ITEM_SIZE),
    NAME(CL_INVALID_GLOBAL_OFFSET),
    NAME(CL_INVALID_EVENT_WAIT_LIST),
    NAME(CL_INVALID_EVENT),
    NAME(CL_INVALID_OPERATION),
    NAME(CL_INVALID_GL_OBJECT),
    NAME(CL_INVALID_BUFFER_SIZE),
    NAME(CL_INVALID_MIP_LEVEL),
    NAME(CL_INVALID_GLOBAL_WORK_SIZE),
    NAME(CL_INVALID_PROPERTY),
    NAME(CL_INVALID_IMAGE_DESCRIPTOR),
    NAME(CL_INVALID_COMPILER_OPTIONS),
    NAME(CL_INVALID_LINKER_OPTIONS),
    NAME(CL_INVALID_DEVICE_PARTITION_COUNT),
    NAME(CL_PLATFORM_NOT_FOUND_KHR),
};

/* What an error amounts to; every other one is DEVICE_ERROR. */
static const struct {
    cl_int code;
    kiln_status status;
} statuses[] = {
    {CL_SUCCESS, KILN_OK},
    {CL_OUT_OF_HOST_MEMORY, KILN_OUT_OF_HOST_MEMORY},
    {CL_MEM_OBJECT_ALLOCATION_FAILURE, KILN_OUT_OF_DEVICE_MEMORY},
    {CL_OUT_OF_RESOURCES, KILN_OUT_OF_DEVICE_MEMORY},
    {CL_INVALID_BUFFER_SIZE, KILN_OUT_OF_DEVICE_MEMORY},
};

const char *kiln__cl_name(cl_int code)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].code == code)
            return names[i].name;
    return "an unknown OpenCL error";
}

kiln_status kiln__cl_status(cl_int code)
{
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        if (statuses[i].code == code)
            return statuses[i].status;
    return KILN_DEVICE_ERROR;
}

kiln_status kiln__cl_fail(struct kiln__error *error, const char *call, cl_int code)
{
    return kiln__fail(error, kiln__cl_status(code), "%s answered %s (%d)", call,
                      kiln__cl_name(code), (int)code);
}

kiln_status kiln__cl_mark(cl_command_queue queue, cl_event *end, struct kiln__error *error)
{
    cl_int code = clEnqueueMarkerWithWaitList(queue, 0, NULL, end);
    return code ? kiln__cl_fail(error, "clEnqueueMarkerWithWaitList", code) : KILN_OK;
}

cl_int kiln__cl_finish(cl_command_queue queue)
{
    cl_event end;
    cl_int waited = CL_SUCCESS;
    if (!clEnqueueMarkerWithWaitList(queue, 0, NULL, &end)) {
        waited = clWaitForEvents(1, &end);
        clReleaseEvent(end);
    }
    cl_int code = clFinish(queue);
    /* A command that failed has ended, too. */
    return code || waited == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST ? code : waited;
}
