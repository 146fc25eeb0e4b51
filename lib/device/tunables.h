/* SPDX-License-Identifier: Apache-2.0 */
/* Which traits `kiln tune` may choose, and among which values: the others are not known to be
 * right. A parameter to be tuned is a field of the traits and a row of the table. */
#ifndef KILN_DEVICE_TUNABLES_H
#define KILN_DEVICE_TUNABLES_H

#include "device/device.h"
#include "util/text.h"

enum { KILN__MOST_CANDIDATES = 7 };

struct kiln__tunable {
    const char *name, *purpose;
    size_t field; /* of the traits: an unsigned */
    enum { KILN__TUNES_ALL, KILN__TUNES_CHUNKED, KILN__TUNES_GROUPED } devices;
    unsigned candidates[KILN__MOST_CANDIDATES + 1]; /* up to the first 0 */
};

/* Row `number` of those that are about the device; NULL: there are no more. */
const struct kiln__tunable *kiln__tunable(const struct kiln__device *device, size_t number);

unsigned kiln__tunable_get(const struct kiln__traits *traits, const struct kiln__tunable *tunable);

/* Whether the device takes this value. */
bool kiln__tunable_takes(const struct kiln__device *device, const struct kiln__tunable *tunable,
                         unsigned value);

/* "name value" or "name=value", up to the end, a comma or the end of the line: put it into
 * `traits`. False: it is none, or not for this device, or not one of the candidates. */
bool kiln__tunable_apply(const struct kiln__device *device, const char *words,
                         struct kiln__traits *traits);

/* Those of the device, "vector (4, 8, 16), chunks (...)". */
void kiln__tunables_list(const struct kiln__device *device, struct kiln__text *text);

#endif
