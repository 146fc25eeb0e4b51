/* SPDX-License-Identifier: Apache-2.0 */
/* The full key of a program: everything that shapes its binary, in one string.
 *
 * A key is compared in full; its hash only names the file. Each value stands behind its length, so
 * that no value can be taken for another. */
#pragma once

#include "device/device.h"
#include "util/text.h"

struct kiln__key {
    char *bytes;
    size_t length;
    char name[33]; /* of the entry's file */
};

/* Append what the keys of all programs of a device share: kiln's version and format, the platform,
 * the device, its driver, and the host as far as it shapes code. A device without an id (tests) is
 * described by its info alone. */
void kiln__key_begin(const struct kiln__device *device, struct kiln__text *shared);

/* The key of one program. False: out of memory. Owner: the caller; kiln__key_free(). */
bool kiln__key_make(const struct kiln__text *shared, const char *options, const char *source,
                    struct kiln__key *key);
void kiln__key_free(struct kiln__key *key);
