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

#define RUN 16 /* items of which one adds up */
#define RUNS ((WG + RUN - 1) / RUN)
#define SUMS (WG + RUNS)

/* What the items before this one add up to; `sums` has SUMS elements. */
static uint sum_before(local uint *sums, uint own)
{
    const int item = get_local_id(0);
    local uint *totals = sums + WG;
    barrier(CLK_LOCAL_MEM_FENCE);
    sums[item] = own;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item < RUNS) {
        uint sum = 0;
        for (int i = item * RUN; i < min(WG, (item + 1) * RUN); i++) {
            const uint next = sums[i];
            sums[i] = sum;
            sum += next;
        }
        totals[item] = sum;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    uint before = sums[item];
    for (int r = 0; r < item / RUN; r++)
        before += totals[r];
    return before;
}
