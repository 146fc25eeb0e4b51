/* SPDX-License-Identifier: Apache-2.0 */
/* Whether steps that must not change places are ordered by what they depend on: each pair of steps
 * that touch the same bytes, one of them writing, must have a way from one to the other. Found
 * without regard to how dependencies.c finds them: pair by pair, with all earlier steps of each
 * step as bits. That takes the square of the number of steps; of long plans the first ones are
 * looked at, which is all the same, since dependencies go back. */
#include <stdio.h>
#include <stdlib.h>

#include "plan/plan.h"
#include "util/format.h"

#define MOST_STEPS 1024
#define WORD 64

/* Bytes of the arena, of an input or of a result. */
struct region {
    enum kiln__storage storage;
    uint32_t binding;
    size_t from, to;
    bool writes;
};

struct verifier {
    const struct kiln__plan *plan;
    char *text;
    uint32_t steps;   /* looked at */
    size_t words;     /* of bits for a step */
    uint64_t *before; /* per step: those that it comes after */
    KILN__VECTOR(struct region) regions;
    size_t *first; /* per step, and one more: its regions */
};

/* Answers false, for what calls it to hand on. */
#define WRONG(verifier, ...) (kiln__format((verifier)->text, KILN__WRONG, __VA_ARGS__), false)

/* ---- what steps touch ---- */

static bool add_region(struct verifier *verifier, uint32_t index, bool writes)
{
    const struct kiln__plan *plan = verifier->plan;
    const struct kiln__slot *slot = &plan->slots.items[index];
    struct region *region = kiln__vector_push(&verifier->regions);
    if (!region)
        return false;
    *region = (struct region){slot->storage, slot->binding, 0, slot->bytes, writes};
    if (slot->storage == KILN__STORAGE_ARENA)
        *region =
            (struct region){slot->storage, 0, slot->offset, slot->offset + slot->bytes, writes};
    if (slot->storage == KILN__STORAGE_PREPACKED)
        region->binding = index;
    if (slot->in_place)
        *region = (struct region){KILN__STORAGE_INPUT,
                                  plan->fusion.graph.requests.items[slot->binding].replaces - 1, 0,
                                  slot->bytes, writes};
    return true;
}

static bool list_regions(struct verifier *verifier)
{
    const struct kiln__plan *plan = verifier->plan;
    bool done = true;
    for (uint32_t i = 0; i < verifier->steps && done; i++) {
        struct kiln__named named = {0};
        verifier->first[i] = verifier->regions.count;
        while (done && kiln__plan_next_named(plan, &plan->steps.items[i], &named))
            done = add_region(verifier, named.slot, named.written);
    }
    verifier->first[verifier->steps] = verifier->regions.count;
    return done;
}

static bool regions_overlap(const struct region *a, const struct region *b)
{
    return (a->writes || b->writes) && a->storage == b->storage && a->binding == b->binding &&
           a->from < b->to && b->from < a->to;
}

static bool steps_clash(const struct verifier *verifier, uint32_t a, uint32_t b)
{
    for (size_t i = verifier->first[a]; i < verifier->first[a + 1]; i++)
        for (size_t k = verifier->first[b]; k < verifier->first[b + 1]; k++)
            if (regions_overlap(&verifier->regions.items[i], &verifier->regions.items[k]))
                return true;
    return false;
}

/* ---- what comes before what ---- */

static uint64_t *bits(const struct verifier *verifier, uint32_t step)
{
    return verifier->before + step * verifier->words;
}

static bool verify_collect(const struct verifier *verifier, uint32_t index)
{
    const struct kiln__plan *plan = verifier->plan;
    const struct kiln__plan_step *step = &plan->steps.items[index];
    for (uint32_t i = 0; i < step->dependencies; i++) {
        size_t at = (size_t)step->first_dependency + i;
        const uint32_t *on = plan->dependencies.items + at;
        if (at >= plan->dependencies.count || *on >= index || (i && on[-1] >= *on))
            return WRONG(verifier, "step %u: its dependencies are no ascending earlier steps",
                         index);
        for (size_t w = 0; w < verifier->words; w++)
            bits(verifier, index)[w] |= bits(verifier, *on)[w];
        bits(verifier, index)[*on / WORD] |= UINT64_C(1) << *on % WORD;
    }
    return true;
}

static bool check_step(const struct verifier *verifier, uint32_t index)
{
    if (!verify_collect(verifier, index))
        return false;
    for (uint32_t earlier = 0; earlier < index; earlier++)
        if (!(bits(verifier, index)[earlier / WORD] >> earlier % WORD & 1) &&
            steps_clash(verifier, earlier, index))
            return WRONG(verifier, "step %u: uses memory of step %u, and does not wait for it",
                         index, earlier);
    return true;
}

kiln_status kiln__plan_verify_dependencies(const struct kiln__plan *plan, char text[KILN__WRONG])
{
    struct verifier verifier = {.plan = plan, .text = text};
    verifier.steps = plan->steps.count < MOST_STEPS ? (uint32_t)plan->steps.count : MOST_STEPS;
    verifier.words = verifier.steps / WORD + 1;
    verifier.before = calloc(verifier.steps + 1, verifier.words * sizeof *verifier.before);
    verifier.first = calloc(verifier.steps + 1, sizeof *verifier.first);
    bool room = verifier.before && verifier.first && list_regions(&verifier), right = room;
    for (uint32_t i = 0; i < verifier.steps && right; i++)
        right = check_step(&verifier, i);
    free(verifier.before);
    free(verifier.first);
    kiln__vector_free(&verifier.regions);
    return !room ? KILN_OUT_OF_HOST_MEMORY : right ? KILN_OK : KILN_WRONG_STATE;
}
