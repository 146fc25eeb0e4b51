/* SPDX-License-Identifier: Apache-2.0 */
/* Parsing of KILN_DEVICE (a number, a type, a part of a name) and the ranking of devices for the
 * default. */
#include "device/device_choice.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "device/device_query.h"
#include "device/traits.h"
#include "util/environment.h"
#include "util/text.h"

/* Types in the order in which a device is taken where none is named. */
static const kiln_device_type type_order[] = {KILN_DEVICE_GPU, KILN_DEVICE_ACCELERATOR,
                                              KILN_DEVICE_CPU, KILN_DEVICE_OTHER};

#define TYPES (sizeof type_order / sizeof *type_order)

static size_t type_place(kiln_device_type type)
{
    size_t place = 0;
    while (place + 1 < TYPES && type_order[place] != type)
        place++;
    return place;
}

/* What is real before what is simulated, then by type, then by speed on paper. */
static bool better(const kiln_device_info *a, const kiln_device_info *b)
{
    if (kiln__device_rank(a) != kiln__device_rank(b))
        return kiln__device_rank(a) > kiln__device_rank(b);
    if (type_place(a->type) != type_place(b->type))
        return type_place(a->type) < type_place(b->type);
    return (uint64_t)a->compute_units * a->clock_mhz > (uint64_t)b->compute_units * b->clock_mhz;
}

static bool contains(const char *text, const char *part)
{
    size_t length = strlen(part);
    for (; *text; text++)
        if (!strncasecmp(text, part, length))
            return true;
    return false;
}

static bool is_number(const char *text)
{
    return *text && strspn(text, "0123456789") == strlen(text);
}

/* The type that a choice names, or 0. */
static kiln_device_type named_type(const char *choice)
{
    for (size_t i = 0; i < TYPES; i++)
        if (!strcasecmp(choice, kiln_device_type_name(type_order[i])))
            return type_order[i];
    return (kiln_device_type)0;
}

/* Software that calls itself a GPU is none to someone who asks for one. The name of the traits
 * counts as well, because PoCL calls itself "Portable Computing Language". */
static bool matches(const struct kiln__device *device, const char *choice)
{
    const kiln_device_info *info = &device->info;
    kiln_device_type type = named_type(choice);
    if (!*choice)
        return true;
    if (is_number(choice))
        return strtoull(choice, NULL, 10) == info->index;
    if (type)
        return info->type == type &&
               (type != KILN_DEVICE_GPU || kiln__device_rank(info) == KILN__RANK_REAL);
    return contains(info->name, choice) || contains(info->platform, choice) ||
           contains(device->traits->name, choice);
}

const struct kiln__device *kiln__device_pick(const struct kiln__device_list *list,
                                             const char *choice)
{
    const struct kiln__device *best = NULL;
    for (size_t i = 0; i < list->devices.count; i++) {
        const struct kiln__device *device = &list->devices.items[i];
        if (matches(device, choice) && (!best || better(&device->info, &best->info)))
            best = device;
    }
    return best;
}

static kiln_status no_device(const struct kiln__device_list *list, const char *choice,
                             const char *origin, struct kiln__error *error)
{
    if (!list->devices.count && *list->skipped)
        return kiln__fail(error, KILN_NO_DEVICE, "no OpenCL device can be used: %s", list->skipped);
    if (!list->devices.count)
        return kiln__fail(error, KILN_NO_DEVICE,
                          "no OpenCL device was found: no OpenCL driver is installed, or none "
                          "that finds a device (for CPUs install pocl-opencl-icd)");
    struct kiln__text found = {0};
    for (size_t i = 0; i < list->devices.count; i++) {
        const kiln_device_info *info = &list->devices.items[i].info;
        kiln__text_add(&found, "%s%zu: %s (%s, %s)", i ? "; " : "", i, info->name, info->platform,
                       kiln_device_type_name(info->type));
    }
    kiln_status status =
        kiln__fail(error, KILN_NO_DEVICE, "no OpenCL device fits \"%.64s\"%s; found: %s", choice,
                   origin, found.data ? found.data : "(no memory to list them)");
    kiln__text_free(&found);
    return status;
}

kiln_status kiln__device_choose(const char *choice, struct kiln__device *device,
                                struct kiln__error *error)
{
    const char *origin = "";
    if (!choice || !*choice) {
        choice = kiln__environment("KILN_DEVICE");
        origin = " of $KILN_DEVICE";
    }
    if (!choice)
        choice = "";
    struct kiln__device_list list;
    kiln_status status = kiln__device_list(&list, error);
    if (status)
        return status;
    const struct kiln__device *best = kiln__device_pick(&list, choice);
    if (best)
        *device = *best;
    else
        status = no_device(&list, choice, origin, error);
    kiln__device_list_free(&list);
    return status;
}

static size_t index_of(cl_device_id id)
{
    struct kiln__device_list list;
    size_t index = SIZE_MAX;
    if (kiln__device_list(&list, NULL))
        return index;
    for (size_t i = 0; i < list.devices.count; i++)
        if (list.devices.items[i].id == id)
            index = i;
    kiln__device_list_free(&list);
    return index;
}

kiln_status kiln__device_from_cl(cl_device_id id, struct kiln__device *device,
                                 struct kiln__error *error)
{
    *device = (struct kiln__device){.id = id};
    if (!id)
        return kiln__fail(error, KILN_INVALID_ARGUMENT, "the OpenCL device is NULL");
    cl_int code =
        clGetDeviceInfo(id, CL_DEVICE_PLATFORM, sizeof device->platform, &device->platform, NULL);
    if (code == CL_INVALID_DEVICE)
        return kiln__fail(error, KILN_INVALID_ARGUMENT, "the OpenCL device is not valid");
    if (code)
        return kiln__cl_fail(error, "clGetDeviceInfo", code);
    code = kiln__device_read(device);
    if (code)
        return kiln__cl_fail(error, "clGetDeviceInfo", code);
    device->info.index = index_of(id);
    return KILN_OK;
}
