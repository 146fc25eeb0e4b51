/* SPDX-License-Identifier: Apache-2.0 */
/* Which traits `kiln tune` may choose, and among which values: the others are not known to be
 * right. A parameter to be tuned is a field of the traits and a row of the table. Values are the
 * device's, or those of one work, as lower/workload.h names it: a kind of kernel and its sizes. */
#pragma once

#include <stdint.h>

#include "device/device.h"
#include "util/text.h"
#include "util/vector.h"

enum { KILN__MOST_CANDIDATES = 15 };

struct kiln__tunable {
    const char *name, *purpose;
    size_t field; /* of the traits: an unsigned */
    enum { KILN__TUNES_ALL, KILN__TUNES_CHUNKED, KILN__TUNES_GROUPED } devices;
    bool of_works; /* a rule that knows the sizes is better than one value for all */
    bool reorders; /* changes the order of a sum's additions */
    unsigned candidates[KILN__MOST_CANDIDATES + 1]; /* up to the first 0 */
};

/* Row `number` of those that are about the device; NULL: there are no more. */
const struct kiln__tunable *kiln__tunable(const struct kiln__device *device, size_t number);

unsigned kiln__tunable_get(const struct kiln__traits *traits, const struct kiln__tunable *tunable);

/* Whether the device takes this value. */
bool kiln__tunable_takes(const struct kiln__device *device, const struct kiln__tunable *tunable,
                         unsigned value);

/* "name value" or "name=value", up to the end, a comma or the end of the line: put it into
 * `traits`. A kernel is a number or a name of device/kernels.def. False: it is none, or not for
 * this device, or not one of the candidates. */
bool kiln__tunable_apply(const struct kiln__device *device, const char *words,
                         struct kiln__traits *traits);

/* Values of single works. */
struct kiln__tuned_work {
    uint64_t work; /* hash of its name */
    char words[96];
};
struct kiln__tuning {
    KILN__VECTOR(struct kiln__tuned_work) works;
};

/* Add a line "WORK: name value, name value". Without a sentence: INVALID_ARGUMENT (it is none such,
 * or a value is not for this device), OUT_OF_HOST_MEMORY. */
kiln_status kiln__tuning_add(const struct kiln__device *device, const char *line, size_t length,
                             struct kiln__tuning *tuning);
void kiln__tuning_free(struct kiln__tuning *tuning);

/* Put the values of `work` into `traits`; `alike`: but not those that reorder sums, since equal
 * rows of works of other sizes are to have the same bits. */
void kiln__tuning_apply(const struct kiln__tuning *tuning, const struct kiln__device *device,
                        const char *work, bool alike, struct kiln__traits *traits);

/* Those of the device, "product (3 dots, 4 skinny, ...), tile (1, 2, ...)". */
void kiln__tunables_list(const struct kiln__device *device, struct kiln__text *text);
