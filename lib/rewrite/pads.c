/* SPDX-License-Identifier: Apache-2.0 */
/* What is computed element by element and padded with a constant is stored between its padding
 * alone: who else reads it reads it there. And where such steps follow each other, as those of a
 * stencil do, each goes over the padding of the one before the last, which is the same and is read
 * by then. So a step is one kernel, which writes no padding.
 *
 *   p = pad(u), v = f(p, u), q = pad(v), w = f(q, v), r = pad(w)
 *   p = pad(u), v = f(p, part of p), q = pad(v), w = f(q, part of q), r = w over the part of p */
#include "rewrite/rewrite.h"

#include <stdlib.h>
#include <string.h>

/* Operations that are looked through for what a value is made of. */
#define MOST_LOOKED_THROUGH 64

struct kiln__pads {
    /* Per node of `from`. */
    struct kiln__pads_users {
        uint32_t first, last;
        uint32_t others; /* that are not elementwise, and requests */
        uint32_t shown;  /* the node of `to` that shows it between its padding, or KILN__NO_NODE */
    } * users;
    uint32_t last, before; /* pads, of `from`; or KILN__NO_NODE */
};

static const struct kiln__node *from_at(const struct kiln__rewrite *rewrite, uint32_t index)
{
    return &rewrite->from->nodes.items[index];
}

static bool is_elementwise(const struct kiln__node *node)
{
    return node->kind == KILN__ELEMENTWISE || node->kind == KILN__CAST;
}

static bool is_pad(const struct kiln__graph *graph, const struct kiln__node *node)
{
    return node->kind == KILN__INSERT_SLICE && node->n_inputs == 2 &&
           kiln__graph_input(graph, node, 1)->kind == KILN__CONSTANT &&
           is_elementwise(kiln__graph_input(graph, node, 0));
}

bool kiln__rewrite_finds_pads(const struct kiln__graph *graph)
{
    for (size_t i = 0; i < graph->nodes.count; i++)
        if (is_pad(graph, &graph->nodes.items[i]))
            return true;
    return false;
}

/* ---- who reads what ---- */

static void list_users(const struct kiln__rewrite *rewrite, struct kiln__pads_users *users)
{
    const struct kiln__graph *from = rewrite->from;
    for (size_t i = 0; i < from->nodes.count; i++)
        users[i] = (struct kiln__pads_users){.first = UINT32_MAX, .shown = KILN__NO_NODE};
    for (uint32_t i = 0; i < from->nodes.count; i++)
        for (unsigned k = 0; rewrite->from_uses[i] && k < from_at(rewrite, i)->n_inputs; k++) {
            struct kiln__pads_users *input = &users[from_at(rewrite, i)->input[k]];
            input->first = input->first < i ? input->first : i;
            input->last = i;
            input->others += !is_elementwise(from_at(rewrite, i));
        }
    for (size_t i = 0; i < from->requests.count; i++) {
        users[from->requests.items[i].node].others++;
        users[from->requests.items[i].node].last = UINT32_MAX;
    }
}

static struct kiln__pads *begin(const struct kiln__rewrite *rewrite)
{
    struct kiln__pads *pads = calloc(1, sizeof *pads);
    struct kiln__pads_users *users = calloc(rewrite->from->nodes.count + 1, sizeof *users);
    if (!pads || !users) {
        free(pads);
        free(users);
        return NULL;
    }
    list_users(rewrite, users);
    *pads = (struct kiln__pads){users, KILN__NO_NODE, KILN__NO_NODE};
    return pads;
}

void kiln__rewrite_free_pads(struct kiln__rewrite *rewrite)
{
    if (rewrite->pads)
        free(rewrite->pads->users);
    free(rewrite->pads);
}

/* ---- padding that is there ---- */

static bool are_alike(const struct kiln__rewrite *rewrite, uint32_t a, uint32_t b)
{
    const struct kiln__node *one = from_at(rewrite, a), *other = from_at(rewrite, b);
    return one->type == other->type && one->input[1] == other->input[1] &&
           kiln__shape_equal(&one->shape, &other->shape) &&
           kiln__shape_equal(&from_at(rewrite, one->input[0])->shape,
                             &from_at(rewrite, other->input[0])->shape) &&
           !memcmp(&one->view, &other->view, sizeof one->view);
}

/* Whether `index` is made of `wanted` by a few elementwise operations and views. */
static bool is_made_of(const struct kiln__rewrite *rewrite, uint32_t index, uint32_t wanted)
{
    uint32_t waiting[MOST_LOOKED_THROUGH];
    unsigned count = 0, looked = 0;
    waiting[count++] = index;
    while (count && looked++ < MOST_LOOKED_THROUGH) {
        const uint32_t next = waiting[--count];
        const struct kiln__node *node = from_at(rewrite, next);
        if (next == wanted)
            return true;
        if (next < wanted || (!is_elementwise(node) && node->kind != KILN__VIEW))
            continue;
        for (unsigned k = 0; k < node->n_inputs && count < MOST_LOOKED_THROUGH; k++)
            waiting[count++] = node->input[k];
    }
    return false;
}

/* Who reads the one before the last is what the last pads, or comes before it; and the last is read
 * by what is padded now. */
static bool goes_over(const struct kiln__rewrite *rewrite, uint32_t index)
{
    const struct kiln__pads *pads = rewrite->pads;
    return pads->before != KILN__NO_NODE && are_alike(rewrite, index, pads->last) &&
           are_alike(rewrite, index, pads->before) &&
           is_made_of(rewrite, from_at(rewrite, pads->last)->input[0], pads->before) &&
           is_made_of(rewrite, from_at(rewrite, index)->input[0], pads->last);
}

/* Whether all that read it, some through a view, do so by `last` at the latest. */
static bool is_read_by(const struct kiln__rewrite *rewrite, uint32_t index, uint32_t last)
{
    const struct kiln__pads_users *users = rewrite->pads->users;
    bool is_read = users[index].last <= last;
    for (uint32_t i = users[index].first; is_read && i <= users[index].last; i++)
        for (unsigned k = 0; k < from_at(rewrite, i)->n_inputs; k++)
            if (from_at(rewrite, i)->input[k] == index && !is_elementwise(from_at(rewrite, i)))
                is_read = is_read && from_at(rewrite, i)->kind == KILN__VIEW &&
                          (users[i].last <= last || !rewrite->from_uses[i]);
    return is_read;
}

/* Whether what is padded lies as it did, with less padding than itself around it. */
static bool is_thin(const struct kiln__rewrite *rewrite, uint32_t index)
{
    const struct kiln__node *pad = from_at(rewrite, index), *part = from_at(rewrite, pad->input[0]);
    bool straight = kiln__node_count(pad) <= 2 * kiln__node_count(part);
    for (uint32_t d = 0; d < part->shape.rank; d++)
        straight = straight && (pad->view.step[d] == 1 || part->shape.dims[d] == 1);
    return straight;
}

/* ---- the rule ---- */

static uint32_t add_pad(struct kiln__rewrite *rewrite, const struct kiln__node *node)
{
    struct kiln__pads *pads = rewrite->pads;
    const uint32_t current = rewrite->current, part = from_at(rewrite, current)->input[0];
    struct kiln__pads_users *users = &pads->users[part];
    struct kiln__node own = *node;
    if (goes_over(rewrite, current) &&
        is_read_by(rewrite, pads->before, from_at(rewrite, pads->last)->input[0])) {
        own.input[1] = rewrite->map[pads->before];
        kiln__rewrite_log(rewrite, "goes over the padding of the one before the last");
    }
    const uint32_t made = kiln__rewrite_add(rewrite, &own);
    pads->before = pads->last;
    pads->last = current;
    if (made == KILN__NO_NODE || users->others != 1 || users->first != current ||
        users->last == current || !is_thin(rewrite, current))
        return made;
    struct kiln__node shown = {.kind = KILN__VIEW,
                               .op = KILN__SLICE,
                               .type = node->type,
                               .n_inputs = 1,
                               .input = {made},
                               .shape = from_at(rewrite, part)->shape,
                               .view = node->view};
    users->shown = kiln__rewrite_add(rewrite, &shown);
    kiln__rewrite_log(rewrite, "its part is read between the padding");
    return users->shown == KILN__NO_NODE ? KILN__NO_NODE : made;
}

uint32_t kiln__rewrite_pads(struct kiln__rewrite *rewrite, const struct kiln__node *node)
{
    const struct kiln__node *from = from_at(rewrite, rewrite->current);
    struct kiln__node own = *node;
    if (!rewrite->pads)
        rewrite->pads = begin(rewrite);
    if (!rewrite->pads)
        return KILN__NO_NODE;
    if (is_pad(rewrite->from, from))
        return add_pad(rewrite, node);
    for (unsigned k = 0; is_elementwise(from) && k < from->n_inputs; k++)
        if (rewrite->pads->users[from->input[k]].shown != KILN__NO_NODE)
            own.input[k] = rewrite->pads->users[from->input[k]].shown;
    return kiln__rewrite_add(rewrite, &own);
}
