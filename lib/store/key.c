/* SPDX-License-Identifier: Apache-2.0 */
/* Serialisation of a program's key: kiln, device, driver, options, source, each value behind its
 * length. */
#include "store/key.h"

#include <CL/cl_ext.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/version.h>

#include "store/entry.h"
#include "store/host_identity.h"
#include "util/hash.h"
#include "util/kernel_texts.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static void key_add(struct kiln__text *text, const char *label, const char *value)
{
    kiln__text_add(text, "%s %zu:%s\n", label, strlen(value), value);
}

static void add_kiln(struct kiln__text *text)
{
    const unsigned one = 1;
    bool little = *(const unsigned char *)&one == 1;
    kiln__text_add(text, "kiln %s, format %d, %zu bits, %s-endian\n", KILN_VERSION,
                   KILN__ENTRY_FORMAT, sizeof(void *) * 8, little ? "little" : "big");
}

static void add_info(const kiln_device_info *info, struct kiln__text *text)
{
    key_add(text, "platform", info->platform);
    key_add(text, "platform version", info->platform_version);
    key_add(text, "device", info->name);
    key_add(text, "vendor", info->vendor);
    key_add(text, "driver", info->driver_version);
    key_add(text, "opencl c", info->opencl_c_version);
}

/* The driver's answers in full: a kiln_device_info cuts long ones off, and has not all of them. */
static const cl_platform_info platform_questions[] = {CL_PLATFORM_VERSION};
static const cl_device_info device_questions[] = {
    CL_DEVICE_VERSION,
    CL_DEVICE_EXTENSIONS,
    CL_DEVICE_VENDOR_ID,
    CL_DEVICE_ADDRESS_BITS,
    CL_DEVICE_ENDIAN_LITTLE,
    CL_DEVICE_SINGLE_FP_CONFIG,
    CL_DEVICE_MAX_WORK_GROUP_SIZE,
    CL_DEVICE_LOCAL_MEM_SIZE,
    CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV,
    CL_DEVICE_COMPUTE_CAPABILITY_MINOR_NV,
};

/* A question that the driver does not know has an empty answer. */
static void add_answer(const struct kiln__device *device, bool platform, cl_uint question,
                       struct kiln__text *text)
{
    unsigned char answer[8192];
    size_t size = 0;
    cl_int code = platform
                      ? clGetPlatformInfo(device->platform, question, sizeof answer, answer, &size)
                      : clGetDeviceInfo(device->id, question, sizeof answer, answer, &size);
    size = code || size > sizeof answer ? 0 : size;
    kiln__text_add(text, "answer %x %zu:", (unsigned)question, size);
    kiln__text_add_bytes(text, answer, size);
    kiln__text_add(text, "\n");
}

/* What programs find declared where the compiler's own declarations are left out. */
static void add_builtins(struct kiln__text *text)
{
    const char *file = kiln__kernel_text("builtins");
    kiln__text_add(text, "builtins %016llx\n",
                   (unsigned long long)kiln__hash64(file, strlen(file)));
}

void kiln__key_begin(const struct kiln__device *device, struct kiln__text *shared)
{
    add_kiln(shared);
    add_info(&device->info, shared);
    for (size_t i = 0; device->platform && i < COUNT(platform_questions); i++)
        add_answer(device, true, platform_questions[i], shared);
    for (size_t i = 0; device->id && i < COUNT(device_questions); i++)
        add_answer(device, false, device_questions[i], shared);
    if (device->traits && device->traits->bare_option)
        add_builtins(shared);
    kiln__host_describe(device->info.type == KILN_DEVICE_CPU, shared);
}

bool kiln__key_make(const struct kiln__text *shared, const char *options, const char *source,
                    struct kiln__key *key)
{
    struct kiln__text text = {0};
    kiln__text_add_bytes(&text, shared->data, shared->length);
    key_add(&text, "options", options);
    key_add(&text, "source", source);
    text.failed |= shared->failed;
    if (text.failed) {
        kiln__text_free(&text);
        *key = (struct kiln__key){0};
        return false;
    }
    key->length = text.length;
    key->bytes = kiln__text_take(&text);
    kiln__entry_name(key->bytes, key->length, key->name);
    return true;
}

void kiln__key_free(struct kiln__key *key)
{
    free(key->bytes);
    *key = (struct kiln__key){0};
}
