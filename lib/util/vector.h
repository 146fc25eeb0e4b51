/* SPDX-License-Identifier: Apache-2.0 */
/* A growing array: struct { T *items; size_t count, capacity; }. */
#ifndef KILN_UTIL_VECTOR_H
#define KILN_UTIL_VECTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#define KILN__VECTOR(type)                                                                         \
    struct {                                                                                       \
        type *items;                                                                               \
        size_t count, capacity;                                                                    \
    }

/* A pointer to a new zeroed item at the end, or NULL without memory. */
#define kiln__vector_push(vector)                                                                  \
    (kiln__vector_grow((void **)&(vector)->items, &(vector)->count, &(vector)->capacity,           \
                       sizeof *(vector)->items)                                                    \
         ? &(vector)->items[(vector)->count - 1]                                                   \
         : NULL)

#define kiln__vector_free(vector)                                                                  \
    (free((vector)->items), (vector)->items = NULL, (vector)->count = (vector)->capacity = 0)

/* Give back the room that no item is in; the bytes that are left. */
#define kiln__vector_trim(vector)                                                                  \
    kiln__vector_shrink((void **)&(vector)->items, (vector)->count, &(vector)->capacity,           \
                        sizeof *(vector)->items)

bool kiln__vector_grow(void **items, size_t *count, size_t *capacity, size_t size);
size_t kiln__vector_shrink(void **items, size_t count, size_t *capacity, size_t size);

#endif
