/* SPDX-License-Identifier: Apache-2.0 */
/* Plans by the structure of batches. Those that nobody has borrowed are kept, up to a number and to
 * the memory that they take; the least recently used go first. Whatever is asked takes as long
 * among a thousand plans as among two. */
#pragma once

#include "plan/plan.h"
#include "record/batch.h"
#include "util/text.h"

/* Beyond this many, or so many bytes, plans that nobody has go. */
#define KILN__MOST_PLANS 256
#define KILN__MOST_PLAN_BYTES ((size_t)64 << 20)

/* Executables that wait for the next batch of the same structure. */
#define KILN__MOST_IDLE 4

struct kiln__idle {
    struct kiln__executable *items[KILN__MOST_IDLE];
    unsigned count;
};

struct kiln__plan_entry {
    uint64_t hash;
    struct kiln__text key; /* the graph, as bytes; of those that are not found any more: empty */
    struct kiln__plan plan;
    size_t bytes; /* that plan and key take; may change while it is borrowed */
    struct kiln__idle idle[KILN__TIERS];
    /* What it runs by before its own; NULL: it has no such, or nobody has looked. */
    struct kiln__background *background[KILN__TIERS];
    bool looked;
    /* The table's own: */
    unsigned leases;
    struct kiln__plan_entry *next;            /* in its bucket, or among those to be freed */
    struct kiln__plan_entry *earlier, *later; /* kept: in the order in which they were last used */
};

struct kiln__plan_table {                     /* all zero: empty; used by one thread at a time */
    struct kiln__plan_entry **buckets;        /* of entries that are found */
    size_t size;                              /* so many: 0 or a power of two */
    size_t count;                             /* entries in them */
    struct kiln__plan_entry *oldest, *newest; /* those that are kept */
    size_t kept, kept_bytes;
};

/* Borrow the entry of `key`; NULL: there is none. */
struct kiln__plan_entry *kiln__plan_table_find(struct kiln__plan_table *table, uint64_t hash,
                                               const struct kiln__text *key);

/* Enter one, with its hash and key, which none has yet, and borrow it. False without memory. */
bool kiln__plan_table_add(struct kiln__plan_table *table, struct kiln__plan_entry *entry);

/* Give it back. What is no longer kept comes back as a list by `next`, for the caller to free. */
struct kiln__plan_entry *kiln__plan_table_return(struct kiln__plan_table *table,
                                                 struct kiln__plan_entry *entry);

/* The borrowed entry is not found from now on, and not kept. */
void kiln__plan_table_forget(struct kiln__plan_table *table, struct kiln__plan_entry *entry);

/* The same of all; those that nobody has come back as a list. */
struct kiln__plan_entry *kiln__plan_table_forget_all(struct kiln__plan_table *table);

/* Whether any that is found `is`. */
bool kiln__plan_table_any(const struct kiln__plan_table *table,
                          bool (*is)(const struct kiln__plan_entry *entry));

/* The memory of an empty table. */
void kiln__plan_table_free(struct kiln__plan_table *table);
