/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes for look-up and for finding damage (XXH3, libxxhash); they are no defence against an
 * attacker, ownership and mode checks are. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct kiln__hash128 {
    uint64_t low, high;
};

uint64_t kiln__hash64(const void *bytes, size_t length);
struct kiln__hash128 kiln__hash128(const void *bytes, size_t length);

/* 32 lower-case hexadecimal digits and a zero. */
void kiln__hash128_name(struct kiln__hash128 hash, char name[33]);
