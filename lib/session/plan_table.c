/* SPDX-License-Identifier: Apache-2.0 */
/* Hash table of plans with a least-recently-used list, bounded by number and bytes. */
#include "session/plan_table.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_SIZE 64

/* ---- buckets ---- */

static struct kiln__plan_entry **bucket_of(const struct kiln__plan_table *table, uint64_t hash)
{
    return &table->buckets[hash & (table->size - 1)];
}

static void plan_table_put(struct kiln__plan_table *table, struct kiln__plan_entry *entry)
{
    struct kiln__plan_entry **bucket = bucket_of(table, entry->hash);
    entry->next = *bucket;
    *bucket = entry;
}

static void take_out(struct kiln__plan_table *table, struct kiln__plan_entry *entry)
{
    struct kiln__plan_entry **at = bucket_of(table, entry->hash);
    while (*at != entry)
        at = &(*at)->next;
    *at = entry->next;
    entry->next = NULL;
    table->count--;
}

/* Without memory for more buckets those that there are hold longer lists. */
static bool plan_table_grow(struct kiln__plan_table *table)
{
    struct kiln__plan_table old = *table;
    size_t size = old.size ? 2 * old.size : FIRST_SIZE;
    struct kiln__plan_entry **buckets = calloc(size, sizeof *buckets);
    if (!buckets)
        return old.size;
    table->buckets = buckets;
    table->size = size;
    for (size_t i = 0; i < old.size; i++)
        while (old.buckets[i]) {
            struct kiln__plan_entry *entry = old.buckets[i];
            old.buckets[i] = entry->next;
            plan_table_put(table, entry);
        }
    free(old.buckets);
    return true;
}

/* ---- those that nobody has ---- */

static void plan_table_keep(struct kiln__plan_table *table, struct kiln__plan_entry *entry)
{
    entry->earlier = table->newest;
    entry->later = NULL;
    *(table->newest ? &table->newest->later : &table->oldest) = entry;
    table->newest = entry;
    table->kept++;
    table->kept_bytes += entry->bytes;
}

static void drop_kept(struct kiln__plan_table *table, struct kiln__plan_entry *entry)
{
    *(entry->earlier ? &entry->earlier->later : &table->oldest) = entry->later;
    *(entry->later ? &entry->later->earlier : &table->newest) = entry->earlier;
    entry->earlier = entry->later = NULL;
    table->kept--;
    table->kept_bytes -= entry->bytes;
}

/* One that nobody has leaves the table for a list. */
static void drop(struct kiln__plan_table *table, struct kiln__plan_entry *entry,
                 struct kiln__plan_entry **list)
{
    drop_kept(table, entry);
    take_out(table, entry);
    entry->next = *list;
    *list = entry;
}

/* ---- what is asked ---- */

struct kiln__plan_entry *kiln__plan_table_find(struct kiln__plan_table *table, uint64_t hash,
                                               const struct kiln__text *key)
{
    struct kiln__plan_entry *entry = table->size ? *bucket_of(table, hash) : NULL;
    while (entry && (entry->hash != hash || entry->key.length != key->length ||
                     memcmp(entry->key.data, key->data, key->length) != 0))
        entry = entry->next;
    if (entry && !entry->leases++)
        drop_kept(table, entry);
    return entry;
}

bool kiln__plan_table_add(struct kiln__plan_table *table, struct kiln__plan_entry *entry)
{
    if (table->count == table->size && !plan_table_grow(table))
        return false;
    plan_table_put(table, entry);
    table->count++;
    entry->leases = 1;
    return true;
}

struct kiln__plan_entry *kiln__plan_table_return(struct kiln__plan_table *table,
                                                 struct kiln__plan_entry *entry)
{
    struct kiln__plan_entry *surplus = NULL;
    if (--entry->leases)
        return NULL;
    if (!entry->key.data)
        return entry;
    plan_table_keep(table, entry);
    while (table->kept > KILN__MOST_PLANS ||
           (table->kept_bytes > KILN__MOST_PLAN_BYTES && table->kept > 1))
        drop(table, table->oldest, &surplus);
    return surplus;
}

void kiln__plan_table_forget(struct kiln__plan_table *table, struct kiln__plan_entry *entry)
{
    if (!entry->key.data)
        return;
    take_out(table, entry);
    kiln__text_free(&entry->key);
}

struct kiln__plan_entry *kiln__plan_table_forget_all(struct kiln__plan_table *table)
{
    struct kiln__plan_entry *list = NULL;
    while (table->oldest)
        drop(table, table->oldest, &list);
    for (size_t i = 0; i < table->size; i++)
        while (table->buckets[i])
            kiln__plan_table_forget(table, table->buckets[i]);
    return list;
}

bool kiln__plan_table_any(const struct kiln__plan_table *table,
                          bool (*is)(const struct kiln__plan_entry *entry))
{
    for (size_t i = 0; i < table->size; i++)
        for (const struct kiln__plan_entry *entry = table->buckets[i]; entry; entry = entry->next)
            if (is(entry))
                return true;
    return false;
}

void kiln__plan_table_free(struct kiln__plan_table *table)
{
    free(table->buckets);
    *table = (struct kiln__plan_table){0};
}
