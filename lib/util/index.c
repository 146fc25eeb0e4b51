/* SPDX-License-Identifier: Apache-2.0 */
/* A hash index from hashes to entry numbers, with chains for collisions. */
#include "util/index.h"

#include <stdlib.h>

static uint32_t *bucket_of(const struct kiln__index *index, uint64_t hash)
{
    return &index->buckets[hash * UINT64_C(0x9E3779B97F4A7C15) >> 32 & (index->size - 1)];
}

static void link_entry(struct kiln__index *index, size_t entry)
{
    uint32_t *bucket = bucket_of(index, index->entries.items[entry].hash);
    index->entries.items[entry].next = *bucket;
    *bucket = (uint32_t)(entry + 1);
}

static bool index_grow(struct kiln__index *index)
{
    size_t size = index->size ? 2 * index->size : 16;
    uint32_t *buckets = calloc(size, sizeof *buckets);
    if (!buckets)
        return false;
    free(index->buckets);
    index->buckets = buckets;
    index->size = size;
    for (size_t i = 0; i < index->entries.count; i++)
        link_entry(index, i);
    return true;
}

bool kiln__index_add(struct kiln__index *index, uint64_t hash, uint32_t number)
{
    if (index->entries.count >= index->size && !index_grow(index))
        return false;
    if (!kiln__vector_add(&index->entries,
                          (struct kiln__index_entry){.hash = hash, .number = number}))
        return false;
    link_entry(index, index->entries.count - 1);
    return true;
}

bool kiln__index_find(const struct kiln__index *index, uint64_t hash, size_t *at, uint32_t *number)
{
    size_t entry = *at           ? index->entries.items[*at - 1].next
                   : index->size ? *bucket_of(index, hash)
                                 : 0;
    while (entry && index->entries.items[entry - 1].hash != hash)
        entry = index->entries.items[entry - 1].next;
    *at = entry;
    if (entry)
        *number = index->entries.items[entry - 1].number;
    return entry;
}

void kiln__index_clear(struct kiln__index *index)
{
    kiln__vector_free(&index->entries);
    free(index->buckets);
    *index = (struct kiln__index){0};
}
