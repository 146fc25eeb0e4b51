/* SPDX-License-Identifier: Apache-2.0 */
/* XXH3 hashes of 64 and 128 bits. */
#include "util/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <xxhash.h>

uint64_t kiln__hash64(const void *bytes, size_t length)
{
    return XXH3_64bits(bytes, length);
}

struct kiln__hash128 kiln__hash128(const void *bytes, size_t length)
{
    XXH128_hash_t hash = XXH3_128bits(bytes, length);
    return (struct kiln__hash128){hash.low64, hash.high64};
}

void kiln__hash128_name(struct kiln__hash128 hash, char name[33])
{
    snprintf(name, 33, "%016" PRIx64 "%016" PRIx64, hash.high, hash.low);
}
