/* SPDX-License-Identifier: Apache-2.0 */
/* A tree over the steps, each node of which stands for a range of them, its children for the halves
 * (a segment tree). What is taken during some steps is noted at the few nodes that make up these
 * steps (`all`), and at each of them and every node above (`any`). Touching ranges of bytes become
 * one, so that lists stay short where memory is packed densely. */
#include "memory/occupancy.h"

#include <stdlib.h>
#include <string.h>

#include "util/vector.h"

struct range {
    size_t from, to;
};

/* Ascending, with room between any two. */
struct ranges {
    KILN__VECTOR(struct range) list;
};

struct kiln__occupancy {
    uint32_t leaves;    /* a power of two; node 1 is the root, 2 i and 2 i + 1 the halves of i */
    struct ranges *all; /* per node: taken during all of its steps, and noted here for that */
    struct ranges *any; /* per node: taken during one of its steps, unless a node above has it */
    KILN__VECTOR(const struct ranges *) asked; /* scratch of one search */
};

struct kiln__occupancy *kiln__occupancy_create(uint32_t steps)
{
    struct kiln__occupancy *occupied = calloc(1, sizeof *occupied);
    if (!occupied)
        return NULL;
    occupied->leaves = 1;
    while (occupied->leaves < steps)
        occupied->leaves *= 2;
    occupied->all = calloc(2 * (size_t)occupied->leaves, sizeof *occupied->all);
    occupied->any = calloc(2 * (size_t)occupied->leaves, sizeof *occupied->any);
    if (occupied->all && occupied->any)
        return occupied;
    kiln__occupancy_free(occupied);
    return NULL;
}

static void free_lists(struct ranges *lists, size_t count)
{
    for (size_t i = 0; lists && i < count; i++)
        kiln__vector_free(&lists[i].list);
    free(lists);
}

void kiln__occupancy_free(struct kiln__occupancy *occupied)
{
    if (!occupied)
        return;
    free_lists(occupied->all, 2 * (size_t)occupied->leaves);
    free_lists(occupied->any, 2 * (size_t)occupied->leaves);
    kiln__vector_free(&occupied->asked);
    free(occupied);
}

/* ---- ranges of bytes ---- */

/* The first range that ends at `at` or behind it. */
static size_t find_end(const struct ranges *ranges, size_t at)
{
    size_t low = 0, high = ranges->list.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (ranges->list.items[middle].to < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool add_range(struct ranges *ranges, struct range added)
{
    size_t at = find_end(ranges, added.from), merged = at;
    for (; merged < ranges->list.count && ranges->list.items[merged].from <= added.to; merged++) {
        const struct range *other = &ranges->list.items[merged];
        added.from = other->from < added.from ? other->from : added.from;
        added.to = other->to > added.to ? other->to : added.to;
    }
    size_t behind = ranges->list.count - merged;
    struct range *last = merged == at ? kiln__vector_push(&ranges->list) : NULL;
    if (merged == at && !last)
        return false;
    struct range *place = &ranges->list.items[at];
    memmove(place + 1, place + (merged - at), behind * sizeof *place);
    ranges->list.count = at + 1 + behind;
    *place = added;
    return true;
}

/* ---- the tree ---- */

/* A node and the steps that it stands for; steps `first` to `last` are looked for. */
struct visit {
    uint32_t node, from, to; /* to: the step behind */
    uint32_t first, last;
};

static bool is_within(const struct visit *visit)
{
    return visit->first <= visit->from && visit->to - 1 <= visit->last;
}

/* Of the two halves, those that have some of the steps. */
static unsigned halves(const struct visit *visit, struct visit half[2])
{
    uint32_t middle = visit->from + (visit->to - visit->from) / 2;
    unsigned count = 0;
    if (visit->first < middle)
        half[count++] =
            (struct visit){2 * visit->node, visit->from, middle, visit->first, visit->last};
    if (visit->last >= middle)
        half[count++] =
            (struct visit){2 * visit->node + 1, middle, visit->to, visit->first, visit->last};
    return count;
}

/* Collect the lists of all that is taken during the steps. */
static bool occupancy_collect(struct kiln__occupancy *occupied, const struct visit *visit)
{
    struct visit half[2];
    bool within = is_within(visit), done = true;
    const struct ranges *ranges = &(within ? occupied->any : occupied->all)[visit->node];
    if (ranges->list.count && !kiln__vector_add(&occupied->asked, ranges))
        return false;
    for (unsigned i = within ? 0 : halves(visit, half); i-- > 0 && done;)
        done = occupancy_collect(occupied, &half[i]);
    return done;
}

static bool occupancy_note(struct kiln__occupancy *occupied, const struct visit *visit,
                           struct range taken)
{
    struct visit half[2];
    bool done = add_range(&occupied->any[visit->node], taken);
    if (is_within(visit))
        return done && add_range(&occupied->all[visit->node], taken);
    for (unsigned i = halves(visit, half); i-- > 0 && done;)
        done = occupancy_note(occupied, &half[i], taken);
    return done;
}

/* The end of a range that is in the way of `wanted`, or where that begins. */
static size_t pass(const struct ranges *ranges, struct range wanted)
{
    size_t at = find_end(ranges, wanted.from + 1);
    bool clash = at < ranges->list.count && ranges->list.items[at].from < wanted.to;
    return clash ? ranges->list.items[at].to : wanted.from;
}

/* Whatever is in the way of an offset is in the way of all others up to its end. */
static size_t lowest_offset(const struct kiln__occupancy *occupied, size_t bytes)
{
    size_t offset = 0, clear = 0;
    for (size_t i = 0; clear < occupied->asked.count; i = (i + 1) % occupied->asked.count) {
        size_t next = pass(occupied->asked.items[i], (struct range){offset, offset + bytes});
        clear = next == offset ? clear + 1 : 0;
        offset = next;
    }
    return offset;
}

bool kiln__occupancy_take(struct kiln__occupancy *occupied, uint32_t first, uint32_t last,
                          size_t bytes, size_t *offset)
{
    struct visit root = {1, 0, occupied->leaves, first, last};
    occupied->asked.count = 0;
    if (!occupancy_collect(occupied, &root))
        return false;
    *offset = lowest_offset(occupied, bytes);
    return occupancy_note(occupied, &root, (struct range){*offset, *offset + bytes});
}
