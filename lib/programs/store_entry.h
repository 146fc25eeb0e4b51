/* SPDX-License-Identifier: Apache-2.0 */
/* A program's binary, or something else that belongs to a device, into the store. */
#pragma once

#include "device/device.h"
#include "store/key.h"
#include "store/store.h"

/* Fetch the binary; `kernel` is how people know it. Owner of the bytes: the caller, free().
 * False, said in the log and counted by the store: it could not be had. */
bool kiln__store_entry_fetch(struct kiln__disk_store *store, const struct kiln__device *device,
                             cl_program program, const char *kernel, void **bytes, size_t *length);

/* Fetch the binary and put it under its key. False: it could not be had or written. */
bool kiln__store_entry_binary(struct kiln__disk_store *store, const struct kiln__device *device,
                              cl_program program, const struct kiln__key *key, const char *kernel);

/* Put other bytes that belong to a device. False: they could not be written, which the store says
 * and counts. */
bool kiln__store_entry_bytes(struct kiln__disk_store *store, const kiln_device_info *info,
                             const struct kiln__key *key, const char *kernel,
                             const struct kiln__span *payload);
