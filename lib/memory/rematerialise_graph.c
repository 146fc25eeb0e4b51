/* SPDX-License-Identifier: Apache-2.0 */
/* The graph rewrite of rematerialisation: copies of the chosen nodes are put before their late
 * users. */
#include "memory/rematerialise_graph.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

struct copying {
    const struct kiln__graph *from;
    const struct kiln__choice *choices;
    struct kiln__graph *to;
    uint32_t *map;            /* per node of `from`: itself in `to` */
    uint32_t *rematerialised; /* what does the same in `to`, for those who are late */
    bool *changes;            /* what is computed where it is used: of something chosen */
    uint32_t
        *first; /* per node: the first late one of a kernel that it begins; chained by `next` */
    uint32_t *next;
    uint32_t *start; /* per node that a late kernel is begun by: where the copies before it begin */
    uint32_t since;  /* of what is added */
    bool failed;
};

/* ---- one node ---- */

static uint32_t rematerialise_add(struct copying *copying, const struct kiln__node *node,
                                  struct kiln__rematerialised mark)
{
    uint32_t index = 0;
    copying->failed = !kiln__vector_add(&copying->to->rematerialised, mark) ||
                      !kiln__graph_add(copying->to, node, &index);
    return copying->failed ? 0 : index;
}

static struct kiln__rematerialised mark_of(const struct copying *copying, uint32_t index)
{
    return copying->from->rematerialised.count ? copying->from->rematerialised.items[index]
                                               : (struct kiln__rematerialised){0};
}

static uint32_t rematerialise_copy(struct copying *copying, uint32_t index);

/* Who is late uses another one than `index` itself. */
static bool is_another(const struct copying *copying, uint32_t index)
{
    return copying->choices[index].chosen || copying->changes[index];
}

/* What does the work of `index` once more. What is computed on the way to it is no value of its
 * own: each has one. */
static uint32_t rematerialise_repeat(struct copying *copying, uint32_t index)
{
    const struct kiln__choice *choice = &copying->choices[index];
    struct kiln__node node = copying->from->nodes.items[index];
    if (copying->rematerialised[index] != NONE)
        return copying->rematerialised[index];
    for (unsigned k = 0; k < node.n_inputs && !copying->failed; k++) {
        uint32_t input = node.input[k];
        bool held = copying->choices[input].held || !copying->from->nodes.items[input].n_inputs;
        node.input[k] = held && !copying->choices[input].chosen
                            ? rematerialise_copy(copying, input)
                            : rematerialise_repeat(copying, input);
    }
    struct kiln__rematerialised mark = {copying->since, choice->held,
                                        1 + index}; /* of `from`, so far */
    return copying->rematerialised[index] =
               copying->failed ? 0 : rematerialise_add(copying, &node, mark);
}

static uint32_t rematerialise_copy(struct copying *copying, uint32_t index)
{
    struct kiln__node node = copying->from->nodes.items[index];
    struct kiln__rematerialised mark = mark_of(copying, index);
    bool late = copying->choices[index].before, changed = false;
    if (copying->map[index] != NONE)
        return copying->map[index];
    if (mark.since)
        mark.since = copying->map[mark.since] != NONE ? copying->map[mark.since]
                                                      : (uint32_t)copying->to->nodes.count;
    for (unsigned k = 0; k < node.n_inputs && !copying->failed; k++) {
        bool other = late && is_another(copying, node.input[k]);
        changed = changed || other;
        node.input[k] = other ? rematerialise_repeat(copying, node.input[k])
                              : rematerialise_copy(copying, node.input[k]);
    }
    if (changed) { /* it joins what it did, and nothing before that */
        uint32_t start = copying->start[copying->choices[index].before - 1];
        mark.since = start != NONE ? start : copying->since;
    }
    mark.held = mark.held || copying->choices[index].chosen;
    return copying->map[index] = copying->failed ? 0 : rematerialise_add(copying, &node, mark);
}

/* ---- all of them ---- */

/* A late kernel that stores or reads what is another one by now comes behind that. */
static void repeat_before(struct copying *copying, uint32_t index)
{
    copying->start[index] = copying->since = (uint32_t)copying->to->nodes.count;
    for (uint32_t i = copying->first[index]; i != NONE; i = copying->next[i]) {
        const struct kiln__node *node = &copying->from->nodes.items[i];
        for (unsigned k = 0; k < node->n_inputs && !copying->failed; k++)
            if (is_another(copying, node->input[k]))
                rematerialise_repeat(copying, node->input[k]);
    }
}

static void list_late(struct copying *copying)
{
    for (size_t i = copying->from->nodes.count; i-- > 0;) {
        uint32_t before = copying->choices[i].before;
        if (!before)
            continue;
        copying->next[i] = copying->first[before - 1];
        copying->first[before - 1] = (uint32_t)i;
    }
}

static void find_changes(struct copying *copying)
{
    for (size_t i = 0; i < copying->from->nodes.count; i++) {
        const struct kiln__node *node = &copying->from->nodes.items[i];
        for (unsigned k = 0; k < node->n_inputs; k++)
            copying->changes[i] =
                copying->changes[i] || (!copying->choices[i].held && !copying->choices[i].before &&
                                        is_another(copying, node->input[k]));
    }
}

static void copy_nodes(struct copying *copying)
{
    const struct kiln__graph *from = copying->from;
    for (uint32_t i = 0; i < from->nodes.count && !copying->failed; i++) {
        repeat_before(copying, i);
        if (!copying->failed)
            rematerialise_copy(copying, i);
    }
    copying->failed =
        copying->failed || !kiln__graph_pass_requests(from, copying->map, copying->to);
}

/* ---- what nobody uses any more ---- */

/* Where each node that is needed goes, and else the next one that is. */
static void rematerialise_number(const bool *needed, size_t count, uint32_t *now)
{
    uint32_t next = 0;
    for (size_t i = 0; i < count; i++) {
        now[i] = next;
        next += needed[i];
    }
}

/* What a node of `from` is now: itself, or where only those who are late use it, its copy. */
static uint32_t stands_for(const struct copying *copying, const bool *needed, const uint32_t *now,
                           uint32_t index)
{
    uint32_t own = copying->map[index];
    if (!needed[own])
        own = copying->rematerialised[index];
    return own != NONE && needed[own] ? now[own] : KILN__DROPPED;
}

static void follow_recorded(struct copying *copying, const bool *needed, const uint32_t *now)
{
    const struct kiln__graph *from = copying->from;
    for (size_t i = 0; i < from->became.count && !copying->failed; i++) {
        uint32_t was = from->became.items[i];
        copying->failed =
            !kiln__vector_add(&copying->to->became,
                              was == KILN__DROPPED ? was : stands_for(copying, needed, now, was));
    }
}

static void drop_unused(struct copying *copying)
{
    struct kiln__graph *to = copying->to;
    size_t count = to->nodes.count, left = 0;
    bool *needed = kiln__graph_needed(to);
    uint32_t *now = malloc((count + 1) * sizeof *now);
    copying->failed = !needed || !now;
    if (!copying->failed) {
        rematerialise_number(needed, count, now);
        follow_recorded(copying, needed, now);
    }
    for (size_t i = 0; i < count && !copying->failed; i++) {
        struct kiln__node node = to->nodes.items[i];
        struct kiln__rematerialised mark = to->rematerialised.items[i];
        if (!needed[i])
            continue;
        for (unsigned k = 0; k < node.n_inputs; k++)
            node.input[k] = now[node.input[k]];
        mark.since = now[mark.since];
        if (mark.of) /* if not the only one that is left */
            mark.of = 1 + stands_for(copying, needed, now, mark.of - 1);
        mark.of = mark.of == left + 1 ? 0 : mark.of;
        to->nodes.items[left] = node;
        to->rematerialised.items[left++] = mark;
    }
    for (size_t i = 0; i < to->requests.count && !copying->failed; i++)
        to->requests.items[i].node = now[to->requests.items[i].node];
    if (!copying->failed)
        to->nodes.count = to->rematerialised.count = left;
    free(needed);
    free(now);
}

bool kiln__rematerialise(const struct kiln__graph *from, const struct kiln__choice *choices,
                         struct kiln__graph *to)
{
    size_t count = from->nodes.count + 1;
    struct copying copying = {.from = from, .choices = choices, .to = to};
    *to = (struct kiln__graph){.batch_invariant = from->batch_invariant};
    copying.map = malloc(count * sizeof *copying.map);
    copying.rematerialised = malloc(count * sizeof *copying.rematerialised);
    copying.first = malloc(count * sizeof *copying.first);
    copying.next = malloc(count * sizeof *copying.next);
    copying.start = malloc(count * sizeof *copying.start);
    copying.changes = calloc(count, sizeof *copying.changes);
    copying.failed = !copying.map || !copying.rematerialised || !copying.first || !copying.next ||
                     !copying.start || !copying.changes;
    for (size_t i = 0; i < count && !copying.failed; i++)
        copying.map[i] = copying.rematerialised[i] = copying.first[i] = copying.next[i] =
            copying.start[i] = NONE;
    if (!copying.failed) {
        list_late(&copying);
        find_changes(&copying);
        copy_nodes(&copying);
    }
    if (!copying.failed)
        drop_unused(&copying);
    free(copying.map);
    free(copying.rematerialised);
    free(copying.first);
    free(copying.next);
    free(copying.start);
    free(copying.changes);
    return !copying.failed;
}
