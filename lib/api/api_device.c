/* SPDX-License-Identifier: Apache-2.0 */
/* Public functions that count, describe and find devices. */
#include <kiln/device.h>

#include "device/device.h"
#include "device/device_list.h"
#include "util/structure.h"

kiln_status kiln_device_count(size_t *count)
{
    KILN__RETURN_IF_NULL(NULL, __func__, count);
    struct kiln__device_list list;
    kiln_status status = kiln__device_list(&list, NULL);
    *count = list.devices.count;
    kiln__device_list_free(&list);
    return status;
}

kiln_status(kiln_device_describe)(size_t index, kiln_device_info *info, size_t size)
{
    KILN__RETURN_IF_NULL(NULL, __func__, info);
    struct kiln__device_list list;
    kiln_status status = kiln__device_list(&list, NULL);
    if (status)
        return status;
    if (index < list.devices.count)
        kiln__structure_fill(info, size, &list.devices.items[index].info, sizeof *info);
    else
        status = kiln__fail(NULL, KILN_INVALID_ARGUMENT,
                            "kiln_device_describe: no device %zu, there are %zu", index,
                            list.devices.count);
    kiln__device_list_free(&list);
    return status;
}

kiln_status kiln_device_find(const char *choice, size_t *index)
{
    KILN__RETURN_IF_NULL(NULL, __func__, index);
    struct kiln__device device;
    kiln_status status = kiln__device_choose(choice, &device, NULL);
    if (!status)
        *index = device.info.index;
    return status;
}
