/* SPDX-License-Identifier: Apache-2.0 */
/* Growth of arrays of any element type, and many of them in one piece. */
#include "util/vector.h"

#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 16 /* as malloc() has it */
#define LARGE 64     /* bytes of an item */

bool kiln__vector_widen(void **items, size_t *capacity, size_t most, size_t size)
{
    void *grown = most > *capacity ? realloc(*items, most * size) : *items;
    if (most > *capacity && grown) {
        *items = grown;
        *capacity = most;
    }
    return most <= *capacity;
}

/* Most arrays of large items have a few. */
static size_t first_capacity(size_t size)
{
    return size > LARGE ? 4 : 16;
}

bool kiln__vector_grow(void **items, size_t *count, size_t *capacity, size_t size)
{
    if (*count == *capacity &&
        !kiln__vector_widen(items, capacity, *capacity ? *capacity * 2 : first_capacity(size),
                            size))
        return false;
    memset((char *)*items + *count * size, 0, size);
    (*count)++;
    return true;
}

void kiln__pack_move(struct kiln__pack *pack, void **items, size_t bytes)
{
    const size_t aligned = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    void *place = !bytes         ? NULL
                  : pack->copies ? malloc(bytes)
                  : pack->memory ? pack->memory + pack->bytes
                                 : NULL;
    if (place)
        memcpy(place, *items, bytes);
    if (pack->memory)
        free(*items);
    if (pack->memory || pack->copies)
        *items = place;
    pack->failed = pack->failed || (pack->copies && bytes && !place);
    pack->bytes += aligned;
}
