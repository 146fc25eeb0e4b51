/* SPDX-License-Identifier: Apache-2.0 */
/* A growing array: struct { T *items; size_t count, capacity; }. */
#pragma once

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

/* Put an item at the end; false without memory. The item is looked at once it has its place. */
#define kiln__vector_add(vector, ...)                                                              \
    (kiln__vector_push(vector) ? ((vector)->items[(vector)->count - 1] = (__VA_ARGS__), true)      \
                               : false)

/* Room for so many items in all, so that what is pushed need not move; false without memory. */
#define kiln__vector_reserve(vector, most)                                                         \
    kiln__vector_widen((void **)&(vector)->items, &(vector)->capacity, most,                       \
                       sizeof *(vector)->items)

#define kiln__vector_free(vector)                                                                  \
    (free((vector)->items), (vector)->items = NULL, (vector)->count = (vector)->capacity = 0)

/* One piece of memory for many arrays that do not grow any more. While `memory` is NULL nothing
 * moves, and `bytes` says what they take. If it makes `copies`, each gets memory of its own
 * instead, and what was there stays; `failed`: there was none for some, which are empty. */
struct kiln__pack {
    char *memory;
    size_t bytes;
    bool copies, failed;
};

/* Move an array, or a vector, behind those that are in the piece: it is not freed by itself then.
 */
#define kiln__pack_array(pack, array, count)                                                       \
    kiln__pack_move(pack, (void **)(array), (count) * sizeof **(array))
#define kiln__pack_vector(pack, vector)                                                            \
    (kiln__pack_move(pack, (void **)&(vector)->items, (vector)->count * sizeof *(vector)->items),  \
     (pack)->memory || (pack)->copies                                                              \
         ? (void)((vector)->capacity = (vector)->count = (vector)->items ? (vector)->count : 0)    \
         : (void)0)
void kiln__pack_move(struct kiln__pack *pack, void **items, size_t bytes);

bool kiln__vector_grow(void **items, size_t *count, size_t *capacity, size_t size);
bool kiln__vector_widen(void **items, size_t *capacity, size_t most, size_t size);
