/* SPDX-License-Identifier: Apache-2.0 */
/* Chains of insertions, as a concatenation leaves them. Each knows another one further down, and
 * a box around all parts between (E. W. Myers, "An applicative random-access stack", 1983): a view
 * beside the box goes on there, so that it takes few steps to the part that it shows. */
#include "rewrite/rewrite.h"

/* Shorter ways are gone step by step. */
#define SHORTEST_JUMP 8

/* Insertions are added in ascending order. */
static const struct kiln__link *find_link(const struct kiln__rewrite *rewrite, uint32_t node)
{
    size_t low = 0, high = rewrite->links.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (rewrite->links.items[middle].node < node)
            low = middle + 1;
        else
            high = middle;
    }
    bool found = low < rewrite->links.count && rewrite->links.items[low].node == node;
    return found ? &rewrite->links.items[low] : NULL;
}

static void widen(struct kiln__box *box, const struct kiln__box *by)
{
    for (uint32_t d = 0; d < KILN_MAX_RANK && !by->empty; d++) {
        box->low[d] = box->empty || by->low[d] < box->low[d] ? by->low[d] : box->low[d];
        box->high[d] = box->empty || by->high[d] > box->high[d] ? by->high[d] : box->high[d];
    }
    box->empty = box->empty && by->empty;
}

struct kiln__box kiln__rewrite_box(const struct kiln__view *view, const struct kiln__shape *shape,
                                   uint32_t rank)
{
    struct kiln__box box = {.empty = kiln__shape_count(shape) == 0};
    if (!box.empty)
        kiln__view_range(view, shape, rank, box.low, box.high);
    return box;
}

bool kiln__rewrite_boxes_overlap(const struct kiln__box *a, const struct kiln__box *b)
{
    bool meet = !a->empty && !b->empty;
    for (uint32_t d = 0; meet && d < KILN_MAX_RANK; d++)
        meet = a->low[d] <= b->high[d] && b->low[d] <= a->high[d];
    return meet;
}

bool kiln__rewrite_add_link(struct kiln__rewrite *rewrite, uint32_t index)
{
    const struct kiln__node *insertion = kiln__rewrite_at(rewrite, index);
    struct kiln__link *link = kiln__vector_push(&rewrite->links);
    if (!link)
        return false;
    uint32_t below = insertion->input[1];
    *link = (struct kiln__link){.node = index, .jump = below, .depth = 1};
    link->box =
        kiln__rewrite_box(&insertion->view, &kiln__rewrite_at(rewrite, insertion->input[0])->shape,
                          insertion->shape.rank);
    const struct kiln__link *first = find_link(rewrite, below);
    const struct kiln__link *second = first ? find_link(rewrite, first->jump) : NULL;
    if (first)
        link->depth = first->depth + 1;
    uint32_t middle = second ? second->depth : 0;
    const struct kiln__link *third = second ? find_link(rewrite, second->jump) : NULL;
    if (!second || first->depth - middle != middle - (third ? third->depth : 0))
        return true;
    widen(&link->box, &first->box);
    widen(&link->box, &second->box);
    link->jump = second->jump;
    return true;
}

uint32_t kiln__rewrite_skip_links(const struct kiln__rewrite *rewrite, uint32_t index,
                                  const struct kiln__box *seen)
{
    for (const struct kiln__link *link; (link = find_link(rewrite, index));) {
        const struct kiln__link *next = find_link(rewrite, link->jump);
        uint32_t length = link->depth - (next ? next->depth : 0);
        if (length < SHORTEST_JUMP || kiln__rewrite_boxes_overlap(seen, &link->box))
            break;
        index = link->jump;
    }
    return index;
}
