/* SPDX-License-Identifier: Apache-2.0 */
/* Common subexpression elimination: equal nodes are computed once. */
#include <stdlib.h>
#include <string.h>

#include "rewrite/rewrite.h"
#include "util/hash.h"

/* A table of at least twice as many slots as nodes; 0 is empty, else node number plus one. */
static bool make_table(struct kiln__rewrite *rewrite)
{
    size_t size = 64;
    while (size < 2 * rewrite->from->nodes.count)
        size *= 2;
    rewrite->table = calloc(size, sizeof *rewrite->table);
    rewrite->table_size = size;
    return rewrite->table;
}

/* More bytes take XXH3 several times as long. What is behind counts when nodes are compared. */
#define HASHED 240

uint32_t kiln__rewrite_cse(struct kiln__rewrite *rewrite, const struct kiln__node *given)
{
    struct kiln__node copy, *node = &copy;
    kiln__node_copy(node, given);
    if (!rewrite->table && !make_table(rewrite))
        return KILN__NO_NODE;
    size_t mask = rewrite->table_size - 1;
    size_t slot = kiln__hash64(node, HASHED) & mask;
    for (; rewrite->table[slot]; slot = (slot + 1) & mask) {
        uint32_t index = rewrite->table[slot] - 1;
        if (memcmp(kiln__rewrite_at(rewrite, index), node, sizeof *node))
            continue;
        kiln__rewrite_log(rewrite, "the same as %%%u of the result, computed once", index);
        return index;
    }
    uint32_t index = kiln__rewrite_add(rewrite, node);
    if (index != KILN__NO_NODE)
        rewrite->table[slot] = index + 1;
    return index;
}
