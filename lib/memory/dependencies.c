/* SPDX-License-Identifier: Apache-2.0 */
/* What each step has to wait for: steps that wrote what it reads or writes over, steps that read
 * what it writes over. That includes arena memory which other values had before, so it is found
 * last, when every slot has its place, by a walk over the steps in their order; in_place.c, which
 * finds that order, has no memory to look at yet. */
#include <stdlib.h>
#include <string.h>

#include "memory/memory.h"

#define NONE UINT32_MAX

/* Of more readers than this, whoever writes over a slot first stands for all to those who write
 * over another part of it later: that keeps what is noted in proportion to the plan. */
#define MOST_READERS 8

/* What the steps so far did with a slot. */
struct use {
    uint32_t writer;  /* the last, or NONE */
    uint32_t readers; /* since then: the last of a list, or NONE */
    uint32_t count;   /* of readers */
};

struct reader {
    uint32_t step, before; /* before: the one noted earlier, or NONE */
};

/* Part of the arena and the slot that had it last. */
struct range {
    size_t from, to;
    uint32_t slot;
};

struct walk {
    struct kiln__plan *plan;
    struct use *uses;    /* per slot; those that share memory for good share one */
    uint32_t *memory;    /* per slot: the slot whose use stands for it */
    uint32_t *noted_for; /* per step: 1 + the last step that noted it */
    uint32_t step;       /* the current one */
    bool failed;
    KILN__VECTOR(struct reader) readers;
    KILN__VECTOR(struct range) arena; /* ascending */
    KILN__VECTOR(struct range) left;  /* scratch: what is left of ranges that are cut */
};

/* ---- noting ---- */

static void dependencies_note(struct walk *walk, uint32_t step)
{
    if (step == NONE || step == walk->step || walk->noted_for[step] == walk->step + 1)
        return;
    walk->noted_for[step] = walk->step + 1;
    walk->failed = !kiln__vector_add(&walk->plan->dependencies, step) || walk->failed;
}

/* Readers come after the writer: who waits for them need not wait for it. */
static void note_all(struct walk *walk, const struct use *use)
{
    if (use->readers == NONE)
        dependencies_note(walk, use->writer);
    for (uint32_t i = use->readers; i != NONE; i = walk->readers.items[i].before)
        dependencies_note(walk, walk->readers.items[i].step);
}

static void read_slot(struct walk *walk, struct use *use)
{
    dependencies_note(walk, use->writer);
    if (!kiln__vector_add(&walk->readers, (struct reader){walk->step, use->readers})) {
        walk->failed = true;
        return;
    }
    use->readers = (uint32_t)(walk->readers.count - 1);
    use->count++;
}

static void write_slot(struct walk *walk, struct use *use)
{
    note_all(walk, use);
    *use = (struct use){.writer = walk->step, .readers = NONE};
}

/* ---- the arena ---- */

static void dependencies_hold(struct walk *walk, size_t from, size_t to, uint32_t slot)
{
    if (from < to && !kiln__vector_add(&walk->left, (struct range){from, to, slot}))
        walk->failed = true;
}

/* The range is written over: in whole or in part. */
static void pass_on(struct walk *walk, uint32_t slot)
{
    struct use *use = &walk->uses[slot];
    note_all(walk, use);
    if (use->count > MOST_READERS)
        *use = (struct use){.writer = walk->step, .readers = NONE};
}

static size_t first_after(const struct walk *walk, size_t at)
{
    size_t low = 0, high = walk->arena.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (walk->arena.items[middle].to <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Put `walk->left` in the place of `count` ranges from `first` on. */
static void dependencies_exchange(struct walk *walk, size_t first, size_t count)
{
    size_t behind = walk->arena.count - first - count;
    for (size_t i = count; i < walk->left.count && !walk->failed; i++) {
        struct range *more = kiln__vector_push(&walk->arena);
        walk->failed = !more;
    }
    if (walk->failed)
        return;
    struct range *at = &walk->arena.items[first];
    if (behind)
        memmove(at + walk->left.count, at + count, behind * sizeof *at);
    if (walk->left.count)
        memcpy(at, walk->left.items, walk->left.count * sizeof *at);
    walk->arena.count = first + walk->left.count + behind;
}

/* The slot is used for the first time: what had its memory before is over. */
static void dependencies_enter(struct walk *walk, uint32_t index)
{
    const struct kiln__slot *slot = &walk->plan->slots.items[index];
    const size_t from = slot->offset, to = from + slot->bytes;
    size_t first = first_after(walk, from), last = first;
    walk->left.count = 0;
    if (first < walk->arena.count && walk->arena.items[first].from < from)
        dependencies_hold(walk, walk->arena.items[first].from, from, walk->arena.items[first].slot);
    dependencies_hold(walk, from, to, index);
    for (; last < walk->arena.count && walk->arena.items[last].from < to; last++) {
        const struct range *range = &walk->arena.items[last];
        pass_on(walk, range->slot);
        if (range->to > to)
            dependencies_hold(walk, to, range->to, range->slot);
    }
    dependencies_exchange(walk, first, last - first);
}

/* ---- steps ---- */

static void dependencies_touch(struct walk *walk, uint32_t index, bool written)
{
    const struct kiln__slot *slot = &walk->plan->slots.items[index];
    struct use *use = &walk->uses[walk->memory[index]];
    if (slot->bytes == 0)
        return;
    if (slot->storage == KILN__STORAGE_ARENA && slot->first == walk->step && use->writer == NONE)
        dependencies_enter(walk, index);
    if (written)
        write_slot(walk, use);
    else
        read_slot(walk, use);
}

static int ascending(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static void walk_step(struct walk *walk, struct kiln__plan_step *step)
{
    struct kiln__plan *plan = walk->plan;
    struct kiln__named named = {0};
    step->first_dependency = (uint32_t)plan->dependencies.count;
    while (kiln__plan_next_named(plan, step, &named))
        dependencies_touch(walk, named.slot, named.written);
    step->dependencies = (uint32_t)plan->dependencies.count - step->first_dependency;
    if (step->dependencies > 1)
        qsort(plan->dependencies.items + step->first_dependency, step->dependencies,
              sizeof *plan->dependencies.items, ascending);
}

/* A result that is computed in place is the memory of the input that it replaces. */
static void share_memory(struct walk *walk, const struct kiln__plan_builder *builder)
{
    const struct kiln__plan *plan = walk->plan;
    for (uint32_t s = 0; s < plan->slots.count; s++) {
        const struct kiln__slot *slot = &plan->slots.items[s];
        bool input = slot->storage == KILN__STORAGE_INPUT;
        const struct kiln__node *node = input ? &plan->fusion.graph.nodes.items[slot->node] : NULL;
        uint32_t request = input ? kiln__replacement_of(&builder->replacements, node) : 0;
        uint32_t result = request ? plan->fusion.graph.requests.items[request - 1].node : 0;
        walk->uses[s] = (struct use){.writer = NONE, .readers = NONE};
        walk->memory[s] =
            request && builder->takes_over[result] == request ? plan->slot_of[result] : s;
    }
}

bool kiln__plan_find_dependencies(struct kiln__plan_builder *builder)
{
    struct kiln__plan *plan = builder->plan;
    struct walk walk = {.plan = plan};
    walk.uses = calloc(plan->slots.count + 1, sizeof *walk.uses);
    walk.memory = calloc(plan->slots.count + 1, sizeof *walk.memory);
    walk.noted_for = calloc(plan->steps.count + 1, sizeof *walk.noted_for);
    walk.failed = !walk.uses || !walk.memory || !walk.noted_for;
    if (!walk.failed)
        share_memory(&walk, builder);
    for (; walk.step < plan->steps.count && !walk.failed; walk.step++)
        walk_step(&walk, &plan->steps.items[walk.step]);
    free(walk.uses);
    free(walk.memory);
    free(walk.noted_for);
    kiln__vector_free(&walk.readers);
    kiln__vector_free(&walk.arena);
    kiln__vector_free(&walk.left);
    return !walk.failed;
}
