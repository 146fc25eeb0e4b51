/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers found by a hash. Several may have the same one, so who looks compares what it stands for.
 */
#pragma once

#include <stdint.h>

#include "util/vector.h"

struct kiln__index {
    KILN__VECTOR(struct kiln__index_entry {
        uint64_t hash;
        uint32_t number;
        uint32_t next; /* 1 + the next entry of the same bucket; 0: none */
    })
    entries;
    uint32_t *buckets; /* 1 + the first entry; 0: none */
    size_t size;       /* of `buckets`: 0 or a power of two */
};

/* False without memory. */
bool kiln__index_add(struct kiln__index *index, uint64_t hash, uint32_t number);

/* The next number that was added with `hash`, the latest first; false if there is none. `at` is 0
 * before the first. */
bool kiln__index_find(const struct kiln__index *index, uint64_t hash, size_t *at, uint32_t *number);

/* Forget all numbers. */
void kiln__index_clear(struct kiln__index *index);
