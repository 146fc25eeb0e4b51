/* SPDX-License-Identifier: Apache-2.0 */
/* The clGetPlatformInfo and clGetDeviceInfo queries behind kiln_device_info, as tables of fields.
 * */
#include "device/device_query.h"

#include <CL/cl_ext.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIELD(what, field)                                                                         \
    {                                                                                              \
        what, offsetof(kiln_device_info, field), sizeof((kiln_device_info *)0)->field              \
    }

struct field {
    cl_uint what;
    size_t offset, size;
};

static const struct field platform_texts[] = {
    FIELD(CL_PLATFORM_NAME, platform),
    FIELD(CL_PLATFORM_VERSION, platform_version),
};

static const struct field device_texts[] = {
    FIELD(CL_DEVICE_NAME, name),
    FIELD(CL_DEVICE_VENDOR, vendor),
    FIELD(CL_DRIVER_VERSION, driver_version),
    FIELD(CL_DEVICE_OPENCL_C_VERSION, opencl_c_version),
};

/* The fields have the types that OpenCL answers with. */
static const struct field device_numbers[] = {
    FIELD(CL_DEVICE_MAX_COMPUTE_UNITS, compute_units),
    FIELD(CL_DEVICE_MAX_CLOCK_FREQUENCY, clock_mhz),
    FIELD(CL_DEVICE_GLOBAL_MEM_SIZE, memory),
    FIELD(CL_DEVICE_MAX_MEM_ALLOC_SIZE, max_allocation),
    FIELD(CL_DEVICE_GLOBAL_MEM_CACHE_SIZE, cache),
    FIELD(CL_DEVICE_LOCAL_MEM_SIZE, local_memory),
    FIELD(CL_DEVICE_MAX_WORK_GROUP_SIZE, max_work_group),
    FIELD(CL_DEVICE_PREFERRED_VECTOR_WIDTH_FLOAT, preferred_vector_f32),
    FIELD(CL_DEVICE_MEM_BASE_ADDR_ALIGN, base_alignment),
};

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Ask the device, or its platform. A driver that does not know a question is no reason to do
 * without the device: `value` is then left as it was. */
static cl_int ask_platform(const struct kiln__device *device, cl_uint what, size_t size,
                           void *value, size_t *needed)
{
    return clGetPlatformInfo(device->platform, what, size, value, needed);
}

static cl_int ask_device(const struct kiln__device *device, cl_uint what, size_t size, void *value,
                         size_t *needed)
{
    cl_int code = clGetDeviceInfo(device->id, what, size, value, needed);
    return code == CL_INVALID_VALUE ? CL_SUCCESS : code;
}

typedef cl_int (*asker)(const struct kiln__device *, cl_uint, size_t, void *, size_t *);

/* A text of any length in memory of its own, "" if the driver has none. */
static cl_int read_text(const struct kiln__device *device, asker ask, cl_uint what, char **text)
{
    size_t size = 0;
    cl_int code = ask(device, what, 0, NULL, &size);
    if (code)
        return code;
    *text = calloc(1, size + 1);
    if (!*text)
        return CL_OUT_OF_HOST_MEMORY;
    return size ? ask(device, what, size, *text, NULL) : CL_SUCCESS;
}

/* Some drivers pad their names with blanks. */
static void copy_trimmed(char *out, size_t size, const char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    snprintf(out, size, "%s", text);
    for (size_t end = strlen(out); end && isspace((unsigned char)out[end - 1]); end--)
        out[end - 1] = 0;
}

static cl_int read_texts(struct kiln__device *device, asker ask, const struct field *fields,
                         size_t count)
{
    cl_int code = CL_SUCCESS;
    for (size_t i = 0; i < count && !code; i++) {
        char *text = NULL;
        code = read_text(device, ask, fields[i].what, &text);
        if (!code)
            copy_trimmed((char *)&device->info + fields[i].offset, fields[i].size, text);
        free(text);
    }
    return code;
}

static cl_int read_numbers(struct kiln__device *device)
{
    cl_int code = CL_SUCCESS;
    for (size_t i = 0; i < COUNT(device_numbers) && !code; i++) {
        const struct field *field = &device_numbers[i];
        code = ask_device(device, field->what, field->size, (char *)&device->info + field->offset,
                          NULL);
    }
    device->info.base_alignment /= 8; /* told in bits */
    if (!device->info.compute_units)
        device->info.compute_units = 1;
    if (!device->info.max_work_group)
        device->info.max_work_group = 1;
    return code;
}

/* A device that says it is of several types (a simulator) counts as the plainest of them. */
static cl_int read_type(struct kiln__device *device)
{
    cl_device_type type = 0;
    cl_int code = ask_device(device, CL_DEVICE_TYPE, sizeof type, &type, NULL);
    device->info.type = type & CL_DEVICE_TYPE_CPU           ? KILN_DEVICE_CPU
                        : type & CL_DEVICE_TYPE_GPU         ? KILN_DEVICE_GPU
                        : type & CL_DEVICE_TYPE_ACCELERATOR ? KILN_DEVICE_ACCELERATOR
                                                            : KILN_DEVICE_OTHER;
    return code;
}

static bool lists(const char *extensions, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = extensions; (at = strstr(at, name)); at += length)
        if ((at == extensions || at[-1] == ' ') && (!at[length] || at[length] == ' '))
            return true;
    return false;
}

static cl_int read_features(struct kiln__device *device)
{
    kiln_device_info *info = &device->info;
    char *extensions = NULL;
    cl_int code = read_text(device, ask_device, CL_DEVICE_EXTENSIONS, &extensions);
    if (!code) {
        info->has_f16 = lists(extensions, "cl_khr_fp16");
        info->has_f64 = lists(extensions, "cl_khr_fp64");
        info->has_subgroups =
            lists(extensions, "cl_khr_subgroups") || lists(extensions, "cl_intel_subgroups");
    }
    free(extensions);
    info->has_inline_ptx = info->type == KILN_DEVICE_GPU &&
                           !strncmp(info->vendor, "NVIDIA", strlen("NVIDIA")) &&
                           !strncmp(info->platform, "NVIDIA", strlen("NVIDIA"));
    return code;
}

static cl_int read_ptx_level(struct kiln__device *device)
{
    cl_uint major = 0, minor = 0;
    cl_int code =
        ask_device(device, CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV, sizeof major, &major, NULL);
    if (!code)
        code =
            ask_device(device, CL_DEVICE_COMPUTE_CAPABILITY_MINOR_NV, sizeof minor, &minor, NULL);
    device->ptx_level = code ? 0 : major * 10 + minor;
    return code;
}

/* Newer drivers may no longer answer the question: then a CPU shares the host's memory. */
static cl_int read_sharing(struct kiln__device *device)
{
    cl_bool shares = device->info.type == KILN_DEVICE_CPU;
    cl_int code = ask_device(device, CL_DEVICE_HOST_UNIFIED_MEMORY, sizeof shares, &shares, NULL);
    device->info.shares_host_memory = shares != CL_FALSE;
    return code;
}

cl_int kiln__device_read(struct kiln__device *device)
{
    memset(&device->info, 0, sizeof device->info);
    device->ptx_level = 0;
    cl_int code = read_type(device);
    if (!code)
        code = read_texts(device, ask_platform, platform_texts, COUNT(platform_texts));
    if (!code)
        code = read_texts(device, ask_device, device_texts, COUNT(device_texts));
    if (!code)
        code = read_numbers(device);
    if (!code)
        code = read_sharing(device);
    if (!code)
        code = read_features(device);
    if (!code && device->info.has_inline_ptx)
        code = read_ptx_level(device);
    device->traits = kiln__traits_for(&device->info);
    /* A driver that gives memory at its first use gives any amount in one piece, whatever it says:
     * 120 GiB on an H200 where it says 35. */
    if (device->traits->lazy_memory)
        device->info.max_allocation = device->info.memory;
    return code;
}

const char *kiln_device_type_name(kiln_device_type type)
{
    static const char *const names[] = {
        [KILN_DEVICE_CPU] = "cpu",
        [KILN_DEVICE_GPU] = "gpu",
        [KILN_DEVICE_ACCELERATOR] = "accelerator",
        [KILN_DEVICE_OTHER] = "other",
    };
    return (size_t)type < COUNT(names) && names[type] ? names[type] : "other";
}
