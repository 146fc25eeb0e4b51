/* SPDX-License-Identifier: Apache-2.0 */
/* Which launches have their arguments packed, and where each is then.
 *
 * On an H200 an argument that is memory costs the thread that enqueues 0.3 to 0.45 us, a number
 * 0.06, a vector of 16 numbers nothing that can be measured (bench/results). Only kernels
 * of files name a memory once: in a generated text a restricted pointer for each lets the compiler
 * move loads before stores. */
#include "plan/packing.h"

/* Fewer numbers cost no more than a vector. */
#define FEWEST_NUMBERS 3

bool kiln__slots_share_memory(const struct kiln__plan *plan, uint32_t a, uint32_t b)
{
    return a == b || (plan->slots.items[a].storage == KILN__STORAGE_ARENA &&
                      plan->slots.items[b].storage == KILN__STORAGE_ARENA);
}

/* Kernels that the program brought along, and generic ones and joined ones with a table, have lists
 * of their own. */
static bool may_pack(const struct kiln__plan *plan, const struct kiln__launch *launch)
{
    const bool own = launch->source == KILN__SOURCE_NEST || launch->source == KILN__SOURCE_TEMPLATE;
    return plan->options.device->traits->dear_arguments && own && !launch->variant.generic &&
           !launch->table.count && launch->arguments.count <= KILN__MOST_PACKED;
}

/* The earlier argument whose memory argument `k` has, too; k: there is none. */
static size_t find_shared(const struct kiln__plan *plan, const struct kiln__launch *launch,
                          size_t k)
{
    const struct kiln__argument *arguments = launch->arguments.items;
    size_t i = launch->source == KILN__SOURCE_TEMPLATE ? 0 : k;
    while (i < k && (arguments[i].kind != KILN__ARGUMENT_MEMORY ||
                     !kiln__slots_share_memory(plan, arguments[i].slot, arguments[k].slot)))
        i++;
    return i;
}

bool kiln__packing_of(const struct kiln__plan *plan, const struct kiln__launch *launch,
                      struct kiln__packing *packing)
{
    unsigned numbers = 0;
    *packing = (struct kiln__packing){.memories = 0};
    if (!may_pack(plan, launch))
        return false;
    for (size_t k = 0; k < launch->arguments.count; k++) {
        if (launch->arguments.items[k].kind != KILN__ARGUMENT_MEMORY) {
            packing->place[k] = (uint8_t)numbers++;
            continue;
        }
        const size_t same = find_shared(plan, launch, k);
        packing->place[k] = same < k ? packing->place[same] : (uint8_t)packing->memories++;
        packing->shared[packing->place[k]]++;
    }
    packing->vectors = (numbers + KILN__PACKED_LANES - 1) / KILN__PACKED_LANES;
    const size_t bytes =
        (packing->vectors * (size_t)KILN__PACKED_LANES + packing->memories) * sizeof(int64_t);
    return numbers >= FEWEST_NUMBERS && packing->vectors <= KILN__MOST_VECTORS &&
           bytes <= KILN__PACKED_BYTES;
}
