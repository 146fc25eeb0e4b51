/* SPDX-License-Identifier: Apache-2.0 */
/* Writing of program binaries and device notes as entries of the disk store. */
#include "programs/store_entry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/build.h"
#include "util/log.h"

static struct kiln__span text_span(const char *text)
{
    return (struct kiln__span){text, strlen(text) + 1};
}

bool kiln__store_entry_bytes(struct kiln__disk_store *store, const kiln_device_info *info,
                             const struct kiln__key *key, const char *kernel,
                             const struct kiln__span *payload)
{
    char driver[sizeof info->platform + sizeof info->driver_version + 1];
    snprintf(driver, sizeof driver, "%s %s", info->platform, info->driver_version);
    struct kiln__entry entry = {{
        [KILN__ENTRY_KEY] = {key->bytes, key->length},
        [KILN__ENTRY_DEVICE] = text_span(info->name),
        [KILN__ENTRY_DRIVER] = text_span(driver),
        [KILN__ENTRY_KERNEL] = text_span(kernel),
        [KILN__ENTRY_PAYLOAD] = *payload,
    }};
    return kiln__store_put(store, &entry);
}

bool kiln__store_entry_fetch(struct kiln__disk_store *store, const struct kiln__device *device,
                             cl_program program, const char *kernel, void **bytes, size_t *length)
{
    cl_int code = kiln__build_fetch(program, device, bytes, length);
    if (!code)
        return true;
    KILN__LOG(KILN__LOG_INFO, "the binary of %s cannot be had: %s", kernel, kiln__cl_name(code));
    kiln__store_failed(store);
    return false;
}

bool kiln__store_entry_binary(struct kiln__disk_store *store, const struct kiln__device *device,
                              cl_program program, const struct kiln__key *key, const char *kernel)
{
    void *binary = NULL;
    size_t length = 0;
    if (!kiln__store_entry_fetch(store, device, program, kernel, &binary, &length))
        return false;
    bool put = kiln__store_entry_bytes(store, &device->info, key, kernel,
                                       &(struct kiln__span){binary, length});
    free(binary);
    return put;
}
