/* SPDX-License-Identifier: Apache-2.0 */
/* Growth and shrinking of arrays of any element type. */
#include "util/vector.h"

#include <stdlib.h>
#include <string.h>

bool kiln__vector_grow(void **items, size_t *count, size_t *capacity, size_t size)
{
    if (*count == *capacity) {
        size_t more = *capacity ? *capacity * 2 : 16;
        void *grown = realloc(*items, more * size);
        if (!grown)
            return false;
        *items = grown;
        *capacity = more;
    }
    memset((char *)*items + *count * size, 0, size);
    (*count)++;
    return true;
}

size_t kiln__vector_shrink(void **items, size_t count, size_t *capacity, size_t size)
{
    void *fitting = count && count < *capacity ? realloc(*items, count * size) : NULL;
    if (!count)
        free(*items);
    if (!count || fitting) {
        *items = fitting;
        *capacity = count;
    }
    return *capacity * size;
}
