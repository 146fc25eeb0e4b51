/* SPDX-License-Identifier: Apache-2.0 */
/* The Philox4x32-10 counter-based random generator (Salmon et al. 2011) on the host. */
#include "ops/philox.h"

void kiln__philox(const uint32_t counter[4], const uint32_t key[2], uint32_t words[4])
{
    uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]};
    uint32_t k[2] = {key[0], key[1]};
    for (int round = 0; round < 10; round++) {
        uint64_t first = UINT64_C(0xD2511F53) * c[0], second = UINT64_C(0xCD9E8D57) * c[2];
        c[0] = (uint32_t)(second >> 32) ^ c[1] ^ k[0];
        c[1] = (uint32_t)second;
        c[2] = (uint32_t)(first >> 32) ^ c[3] ^ k[1];
        c[3] = (uint32_t)first;
        k[0] += 0x9E3779B9;
        k[1] += 0xBB67AE85;
    }
    for (int i = 0; i < 4; i++)
        words[i] = c[i];
}
