/* SPDX-License-Identifier: Apache-2.0 */
/* What work-groups of sorting kernels do together: BLOCK keys in local memory put in order, and
 * running sums. WG and BLOCK are powers of two. */
#include "sort.h"

/* The first `size` keys of `held`, a power of two: K. E. Batcher's bitonic network with the merges'
 * first step turned around, so that all comparisons put the smaller one in front. In pieces of
 * `piece` keys, a power of two, each in its own order. */
static void order_held(local key *held, int size, int piece)
{
    for (int length = 2; length <= piece; length *= 2)
        for (int apart = length / 2; apart > 0; apart /= 2) {
            barrier(CLK_LOCAL_MEM_FENCE);
            for (int p = get_local_id(0); p < size / 2; p += WG) {
                const int start = p / apart * (2 * apart), from = p % apart;
                const int a = start + from;
                const int b = 2 * apart == length ? start + length - 1 - from : a + apart;
                const key x = held[a], y = held[b];
                if (is_behind(x, y)) {
                    held[a] = y;
                    held[b] = x;
                }
            }
        }
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* What the items before this one add up to; `sums` has WG elements, and the last one the total. */
static uint sum_before(local uint *sums, uint own)
{
    const int item = get_local_id(0);
    uint sum = own;
    barrier(CLK_LOCAL_MEM_FENCE);
    sums[item] = sum;
    for (int apart = 1; apart < WG; apart *= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        const uint other = item >= apart ? sums[item - apart] : 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        sum += other;
        sums[item] = sum;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    return sum - own;
}
