/* SPDX-License-Identifier: Apache-2.0 */
/* Enumeration of OpenCL platforms and devices; devices that fail to answer are left out with a
 * warning. */
#include "device/device_list.h"

#include <CL/cl_ext.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "device/device_query.h"
#include "util/environment.h"
#include "util/log.h"

static void skip(struct kiln__device_list *list, const char *what, const char *call, cl_int code)
{
    const char *name = kiln__cl_name(code);
    KILN__LOG(KILN__LOG_INFO, "%s is left out: %s answered %s (%d)", what, call, name, (int)code);
    if (!*list->skipped)
        snprintf(list->skipped, sizeof list->skipped, "%s is left out: %s answered %s (%d)", what,
                 call, name, (int)code);
}

static kiln_status out_of_memory(struct kiln__error *error)
{
    return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "no memory for the list of devices");
}

static kiln_status add_device(struct kiln__device_list *list, cl_platform_id platform,
                              cl_device_id id, struct kiln__error *error)
{
    struct kiln__device device = {.platform = platform, .id = id};
    cl_int code = kiln__device_read(&device);
    if (code == CL_OUT_OF_HOST_MEMORY)
        return out_of_memory(error);
    if (code) {
        skip(list, "an OpenCL device", "clGetDeviceInfo", code);
        return KILN_OK;
    }
    device.info.index = list->devices.count;
    return kiln__vector_add(&list->devices, device) ? KILN_OK : out_of_memory(error);
}

/* A platform may have no devices; Mesa's Clover often has none. */
static kiln_status add_platform(struct kiln__device_list *list, cl_platform_id platform,
                                struct kiln__error *error)
{
    cl_uint count = 0;
    cl_int code = clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, NULL, &count);
    if (code == CL_DEVICE_NOT_FOUND || (!code && !count))
        return KILN_OK;
    if (code) {
        skip(list, "an OpenCL platform", "clGetDeviceIDs", code);
        return KILN_OK;
    }
    cl_device_id *ids = calloc(count, sizeof *ids);
    if (!ids)
        return out_of_memory(error);
    kiln_status status = KILN_OK;
    code = clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, count, ids, NULL);
    if (code)
        skip(list, "an OpenCL platform", "clGetDeviceIDs", code);
    for (cl_uint i = 0; i < count && !code && !status; i++)
        status = add_device(list, platform, ids[i], error);
    free(ids);
    return status;
}

static kiln_status add_platforms(struct kiln__device_list *list, cl_uint count,
                                 struct kiln__error *error)
{
    cl_platform_id *platforms = calloc(count, sizeof *platforms);
    if (!platforms)
        return out_of_memory(error);
    kiln_status status = KILN_OK;
    cl_int code = clGetPlatformIDs(count, platforms, NULL);
    if (code)
        status = kiln__cl_fail(error, "clGetPlatformIDs", code);
    for (cl_uint i = 0; i < count && !status; i++)
        status = add_platform(list, platforms[i], error);
    free(platforms);
    return status;
}

/* The process that first looked for devices, 0 before. */
static atomic_int first_process;

kiln_status kiln__device_check_process(struct kiln__error *error)
{
    int process = atomic_load(&first_process);
    if (process == 0 || process == (int)getpid())
        return KILN_OK;
    return kiln__fail(error, KILN_FORKED,
                      "OpenCL was used before a fork, and does not work in the child; fork before "
                      "the first call, or let the child exec");
}

kiln_status kiln__device_list(struct kiln__device_list *list, struct kiln__error *error)
{
    int nobody = 0;
    *list = (struct kiln__device_list){0};
    atomic_compare_exchange_strong(&first_process, &nobody, (int)getpid());
    kiln__environment_keep();
    cl_uint count = 0;
    cl_int code = clGetPlatformIDs(0, NULL, &count);
    if (code == CL_PLATFORM_NOT_FOUND_KHR || (!code && !count))
        return KILN_OK;
    if (code)
        return kiln__cl_fail(error, "clGetPlatformIDs", code);
    kiln_status status = add_platforms(list, count, error);
    if (status)
        kiln__device_list_free(list);
    return status;
}

void kiln__device_list_free(struct kiln__device_list *list)
{
    kiln__vector_free(&list->devices);
}
