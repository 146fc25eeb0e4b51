/* SPDX-License-Identifier: Apache-2.0 */
/* What is cheapest to compute again for the memory that it gives back: costs count all that would
 * have to be computed again with it, so that what others are made from stays (Kirisame et al. 2021,
 * "Dynamic Tensor Rematerialization", whose costs count the same). */
#include "memory/rematerialise.h"

#include <stdlib.h>

/* Of an element that is no product's: what a load and a store take, in additions of a product. */
#define ELEMENT 8

/* Of what is done once, so much may be done again: 24 layers then train in a fifth of their peak,
 * in 2.0 times the time; in parts they took 6.6 times (PoCL). */
#define MOST_WORK 2

/* Where only gaps between values are too much, such a part of what is alive has to go. */
#define GAPS 32

#define NEVER UINT32_MAX

/* A slot's lifetime, in places of groups that have launches: 1 for the first that runs. */
struct lifetime {
    uint32_t first, last;
    uint32_t next; /* first that names it behind the peak; or NEVER */
    bool at_peak;  /* named there */
    bool is_asked; /* its own node is: a result of the batch */
};

struct choosing {
    const struct kiln__plan *plan;
    struct kiln__choice *choices;
    uint32_t *place;   /* per step */
    uint32_t *running; /* per group: its place; 0: it has none */
    struct lifetime *lifetimes;
    uint32_t *seen; /* per node: in the pricing of this number */
    uint32_t pricing;
    uint32_t peak; /* a place */
    uint64_t alive;
};

static const struct kiln__node *node_at(const struct choosing *choosing, uint32_t index)
{
    return &choosing->plan->fusion.graph.nodes.items[index];
}

static const struct lifetime *lifetime_of(const struct choosing *choosing, uint32_t node)
{
    return &choosing->lifetimes[choosing->plan->slot_of[node]];
}

/* ---- what runs when ---- */

static void number_steps(struct choosing *choosing)
{
    const struct kiln__plan *plan = choosing->plan;
    uint32_t now = 0, group = KILN__NO_GROUP;
    for (size_t i = 0; i < plan->steps.count; i++) {
        const struct kiln__plan_step *step = &plan->steps.items[i];
        if (step->kind == KILN__STEP_LAUNCH && plan->launches.items[step->launch].group != group) {
            group = plan->launches.items[step->launch].group;
            choosing->running[group] = ++now;
        }
        choosing->place[i] = now + (step->kind == KILN__STEP_UPLOAD); /* for what follows */
    }
}

static bool is_in_arena(const struct kiln__slot *slot)
{
    return slot->storage == KILN__STORAGE_ARENA && slot->bytes && slot->first <= slot->last;
}

static void find_peak(struct choosing *choosing)
{
    const struct kiln__plan *plan = choosing->plan;
    for (uint32_t i = 0; i < plan->steps.count; i++) {
        uint64_t alive = 0;
        for (size_t k = 0; k < plan->slots.count; k++) {
            const struct kiln__slot *slot = &plan->slots.items[k];
            if (is_in_arena(slot) && slot->first <= i && i <= slot->last)
                alive += slot->bytes;
        }
        if (alive > choosing->alive) {
            choosing->alive = alive;
            choosing->peak = choosing->place[i];
        }
    }
}

static void find_asked(struct choosing *choosing)
{
    const struct kiln__plan *plan = choosing->plan;
    const struct kiln__graph *graph = &plan->fusion.graph;
    for (size_t i = 0; i < graph->requests.count; i++) {
        uint32_t node = graph->requests.items[i].node, slot = plan->slot_of[node];
        if (slot != KILN__NO_SLOT && plan->slots.items[slot].node == node)
            choosing->lifetimes[slot].is_asked = true;
    }
}

static void find_lives(struct choosing *choosing)
{
    const struct kiln__plan *plan = choosing->plan;
    for (size_t i = 0; i < plan->slots.count; i++)
        choosing->lifetimes[i] = (struct lifetime){.first = NEVER, .next = NEVER};
    find_asked(choosing);
    for (size_t i = 0; i < plan->steps.count; i++) {
        struct kiln__named named = {0};
        const uint32_t now = choosing->place[i];
        while (kiln__plan_next_named(plan, &plan->steps.items[i], &named)) {
            struct lifetime *lifetime = &choosing->lifetimes[named.slot];
            lifetime->first = lifetime->first == NEVER ? now : lifetime->first;
            lifetime->last = now;
            lifetime->at_peak = lifetime->at_peak || now == choosing->peak;
            if (now > choosing->peak && lifetime->next == NEVER)
                lifetime->next = now;
        }
    }
}

/* Behind the peak copies come before the first node of each kernel that they are for. */
static void find_late(struct choosing *choosing)
{
    const struct kiln__fusion *fusion = &choosing->plan->fusion;
    uint32_t *first = choosing->seen; /* not needed yet; groups are no more than nodes */
    for (uint32_t i = 0; i < fusion->graph.nodes.count; i++) {
        uint32_t group = fusion->group_of[i], slot = choosing->plan->slot_of[i];
        choosing->choices[i].held =
            fusion->stored[i] && slot != KILN__NO_SLOT &&
            (choosing->plan->slots.items[slot].storage == KILN__STORAGE_INPUT ||
             choosing->lifetimes[slot].first != NEVER);
        if (group == KILN__NO_GROUP || choosing->running[group] <= choosing->peak)
            continue;
        first[group] = first[group] ? first[group] : i + 1;
        choosing->choices[i].before = first[group];
    }
    for (size_t i = 0; i < fusion->groups.count; i++)
        first[i] = 0;
}

/* ---- what it would cost ---- */

static double work_of(const struct choosing *choosing, uint32_t index)
{
    const struct kiln__node *node = node_at(choosing, index);
    double count = (double)kiln__node_count(node);
    const struct kiln__shape *operand = &node_at(choosing, node->input[0])->shape;
    if (node->kind == KILN__MATMUL)
        return count * (double)operand->dims[operand->rank - 1];
    if (node->kind == KILN__ATTENTION)
        return 2 * count * (double)operand->dims[operand->rank - 2];
    return kiln__node_is_movement(node) ? 0 : count * ELEMENT;
}

/* Kinds whose kernels do the same wherever they run, whatever else they compute: sums of others go
 * by what is fused with them. */
static bool may_repeat(const struct kiln__node *node)
{
    return kiln__node_is_computed(node) || kiln__node_is_movement(node) ||
           node->kind == KILN__MATMUL || node->kind == KILN__ATTENTION;
}

/* Whether what lies in memory can be read at that place, as it is. */
static bool is_alive(const struct choosing *choosing, uint32_t index, uint32_t place)
{
    const struct kiln__plan *plan = choosing->plan;
    const struct kiln__slot *slot = &plan->slots.items[plan->slot_of[index]];
    const struct lifetime *lifetime = lifetime_of(choosing, index);
    if (slot->storage != KILN__STORAGE_ARENA)
        return true;
    return choosing->choices[index].chosen ? lifetime->next <= place
                                           : lifetime->first <= place && place <= lifetime->last;
}

/* Add the work of computing `index` at that place, with all that is not there then. */
static bool price(struct choosing *choosing, uint32_t index, uint32_t place, double *work)
{
    const struct kiln__node *node = node_at(choosing, index);
    bool possible = may_repeat(node);
    if (choosing->seen[index] == choosing->pricing)
        return true;
    choosing->seen[index] = choosing->pricing;
    *work += work_of(choosing, index);
    for (unsigned k = 0; k < node->n_inputs && possible; k++) {
        uint32_t input = node->input[k];
        bool held = choosing->choices[input].held;
        if (held && choosing->plan->fusion.donated_to[input] != KILN__NO_DONATION)
            return false;
        if (!held && !node_at(choosing, input)->n_inputs)
            continue;
        if (!held || !is_alive(choosing, input, place))
            possible = price(choosing, input, place, work);
    }
    return possible;
}

/* ---- choosing ---- */

static bool is_candidate(const struct choosing *choosing, uint32_t index)
{
    const struct kiln__plan *plan = choosing->plan;
    const struct lifetime *lifetime = lifetime_of(choosing, index);
    return choosing->choices[index].held && !choosing->choices[index].chosen &&
           is_in_arena(&plan->slots.items[plan->slot_of[index]]) &&
           plan->slots.items[plan->slot_of[index]].node == index &&
           plan->fusion.donated_to[index] == KILN__NO_DONATION && !lifetime->is_asked &&
           lifetime->first < choosing->peak && lifetime->next != NEVER && !lifetime->at_peak &&
           may_repeat(node_at(choosing, index));
}

/* The cheapest for its memory, of equals the one that is not needed for longest. */
static uint32_t find_best(struct choosing *choosing)
{
    uint32_t best = NEVER;
    double least = 0;
    for (uint32_t i = 0; i < choosing->plan->fusion.graph.nodes.count; i++) {
        double work = 0;
        if (!choosing->choices[i].held || !is_candidate(choosing, i))
            continue;
        choosing->pricing++;
        if (!price(choosing, i, lifetime_of(choosing, i)->next, &work))
            continue;
        work /= (double)kiln__node_bytes(node_at(choosing, i));
        if (best == NEVER || work < least ||
            (work == least && lifetime_of(choosing, i)->next > lifetime_of(choosing, best)->next)) {
            best = i;
            least = work;
        }
    }
    return best;
}

/* It, and what it is made from that is not there any more either. */
static void rematerialise_choose(struct choosing *choosing, uint32_t index, uint32_t place)
{
    const struct kiln__node *node = node_at(choosing, index);
    if (choosing->seen[index] == choosing->pricing)
        return;
    choosing->seen[index] = choosing->pricing;
    choosing->choices[index].chosen = choosing->choices[index].held;
    for (unsigned k = 0; k < node->n_inputs; k++) {
        uint32_t input = node->input[k];
        bool held = choosing->choices[input].held;
        if (held ? !choosing->choices[input].chosen && !is_alive(choosing, input, place)
                 : node_at(choosing, input)->n_inputs)
            rematerialise_choose(choosing, input, place);
    }
}

static double all_work(const struct choosing *choosing, bool copies)
{
    const struct kiln__graph *graph = &choosing->plan->fusion.graph;
    double work = 0;
    for (uint32_t i = 0; i < graph->nodes.count; i++)
        if ((graph->rematerialised.count && graph->rematerialised.items[i].of) == copies)
            work += work_of(choosing, i);
    return work;
}

/* False: there is nothing left to choose, or too much work. */
static bool choose_all(struct choosing *choosing, uint64_t bytes)
{
    double room = MOST_WORK * all_work(choosing, false) - all_work(choosing, true);
    while (choosing->alive > bytes) {
        uint32_t best = find_best(choosing);
        if (best == NEVER)
            return false;
        room -= work_of(choosing, best);
        if (room < 0)
            return false;
        choosing->alive -= kiln__node_bytes(node_at(choosing, best));
        choosing->pricing++;
        rematerialise_choose(choosing, best, lifetime_of(choosing, best)->next);
    }
    return true;
}

bool kiln__plan_choose_rematerialised(const struct kiln__plan *plan, uint64_t bytes,
                                      struct kiln__choice **choices)
{
    size_t nodes = plan->fusion.graph.nodes.count + 1, groups = plan->fusion.groups.count + 1;
    struct choosing choosing = {.plan = plan};
    choosing.choices = calloc(nodes, sizeof *choosing.choices);
    choosing.place = calloc(plan->steps.count + 1, sizeof *choosing.place);
    choosing.running = calloc(groups, sizeof *choosing.running);
    choosing.lifetimes = calloc(plan->slots.count + 1, sizeof *choosing.lifetimes);
    choosing.seen = calloc(nodes + groups, sizeof *choosing.seen);
    bool done = choosing.choices && choosing.place && choosing.running && choosing.lifetimes &&
                choosing.seen,
         chosen = false;
    if (done) {
        number_steps(&choosing);
        find_peak(&choosing);
        find_lives(&choosing);
        find_late(&choosing);
        if (choosing.alive <= bytes) /* not all gaps are filled */
            bytes = choosing.alive - choosing.alive / GAPS;
        chosen = choose_all(&choosing, bytes);
    }
    free(choosing.place);
    free(choosing.running);
    free(choosing.lifetimes);
    free(choosing.seen);
    if (!chosen)
        free(choosing.choices);
    *choices = chosen ? choosing.choices : NULL;
    return done;
}
