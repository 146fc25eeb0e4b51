/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/bindings.h"

#include <stdint.h>
#include <stdlib.h>

static void drop_wrapper(struct kiln__binding *binding)
{
    if (binding->host && binding->memory)
        clReleaseMemObject(binding->memory);
    if (binding->host)
        binding->memory = NULL;
}

void kiln__bindings_free(struct kiln__bindings *bindings)
{
    for (size_t i = 0; i < bindings->inputs.count; i++)
        drop_wrapper(&bindings->inputs.items[i]);
    for (size_t i = 0; i < bindings->results.count; i++)
        drop_wrapper(&bindings->results.items[i]);
    kiln__vector_free(&bindings->inputs);
    kiln__vector_free(&bindings->results);
    bindings->checked = false;
}

void kiln__bindings_move(struct kiln__bindings *bindings, struct kiln__binding *binding, void *host)
{
    if (binding->host == host)
        return;
    drop_wrapper(binding);
    binding->host = host;
    bindings->checked = false;
}

bool kiln__bindings_overlap(const struct kiln__binding *a, const struct kiln__binding *b)
{
    if (!a->host || !b->host)
        return a->memory && a->memory == b->memory;
    const char *x = a->host, *y = b->host;
    return x < y + b->bytes && y < x + a->bytes;
}

static bool misaligned(const struct kiln__binding *binding)
{
    return binding->host && (uintptr_t)binding->host % binding->item;
}

void kiln__bindings_check(struct kiln__bindings *bindings)
{
    if (bindings->checked)
        return;
    for (size_t i = 0; i < bindings->inputs.count; i++)
        bindings->inputs.items[i].detached = misaligned(&bindings->inputs.items[i]);
    for (size_t i = 0; i < bindings->results.count; i++) {
        struct kiln__binding *result = &bindings->results.items[i];
        result->overlaps = false;
        for (size_t k = 0; k < bindings->inputs.count && !result->overlaps; k++)
            result->overlaps = kiln__bindings_overlap(result, &bindings->inputs.items[k]);
        for (size_t k = 0; k < i && !result->overlaps; k++)
            result->overlaps = kiln__bindings_overlap(result, &bindings->results.items[k]);
        result->detached = result->overlaps || misaligned(result);
    }
    bindings->checked = true;
}
