/* SPDX-License-Identifier: Apache-2.0 */
/* Which launches a product's last work-groups do. */
#include "codegen/last_groups.h"

#include <string.h>

#include "lower/lower.h"
#include "plan/packing.h"
#include "util/kernel_texts.h"

/* What one may move; and how often each helper may take a work-group's part of it, one after the
 * other: more take longer than a launch. */
#define MOST_BYTES ((uint64_t)1 << 20)
#define MOST_TURNS 4

/* Launches behind one product: their functions are one program. */
#define MOST_BEHIND 4

/* What the product and all behind it take, at most: with more it would not be packed. */
#define MOST_NUMBERS ((size_t)KILN__MOST_VECTORS * KILN__PACKED_LANES)
#define MOST_ARGUMENTS 110 /* in 1,024 bytes, where none are packed */

/* ---- helpers ---- */

/* Units for each helper. A helper waits for work-groups that may not have begun, so that others
 * have to have room: those of 32 queues, as many as a GPU has, take one work-group a unit. */
#define UNITS_OF_HELPER 32

/* As many as the device may have wait for each other. */
static size_t most_helpers(const struct kiln__plan *plan)
{
    const struct kiln__device *device = plan->options.device;
    const size_t helpers = device->info.compute_units / UNITS_OF_HELPER;
    return device->traits->fence == KILN__FENCE_PTX && helpers ? helpers : 1;
}

/* ---- which launches ---- */

/* Its file calls what is behind it, and its work-groups have a power of two of items. */
static bool may_lead(const struct kiln__launch *launch)
{
    const char *file =
        launch->source == KILN__SOURCE_TEMPLATE ? kiln__kernel_text(launch->file) : NULL;
    return file && strstr(file, "BEHIND_PARAMETERS") && !launch->variant.generic &&
           !launch->prepacks && !launch->covers && !launch->table.count &&
           !(launch->local[0] & (launch->local[0] - 1));
}

static size_t count_numbers(const struct kiln__launch *launch)
{
    size_t count = 0;
    for (size_t i = 0; i < launch->arguments.count; i++)
        count += launch->arguments.items[i].kind != KILN__ARGUMENT_MEMORY;
    return count;
}

static size_t number_of(const struct kiln__launch *launch, const char *name)
{
    for (size_t i = 0; i < launch->arguments.count; i++) {
        const struct kiln__argument *argument = &launch->arguments.items[i];
        if (argument->name && !strcmp(argument->name, name))
            return (size_t)argument->integer;
    }
    return 0;
}

/* Items that share a row; 1: none do. */
static size_t lanes_of(const struct kiln__launch *launch)
{
    if (launch->variant.kept_mapping != KILN__AXIS_LANES)
        return 1;
    return launch->variant.shuffles ? (size_t)1 << (launch->variant.shuffles - 1)
                                    : number_of(launch, "lanes");
}

/* Work-groups of so many items, however many the launch of its own has. */
static size_t count_groups(const struct kiln__launch *launch, size_t items)
{
    const size_t n = number_of(launch, "n");
    if (launch->variant.kept_mapping == KILN__AXIS_LANES)
        return kiln__divide_up(n * lanes_of(launch), items);
    return kiln__divide_up(n, items * ((size_t)launch->variant.vector << launch->variant.pairs));
}

/* A map whose items exchange nothing, or rows that a work-group's items share. */
static bool is_simple(const struct kiln__plan *plan, const struct kiln__launch *launch)
{
    const struct kiln__group *group = &plan->fusion.groups.items[launch->group];
    const struct kiln__variant *variant = &launch->variant;
    return launch->source == KILN__SOURCE_NEST && launch->dimensions == 1 && !variant->chunked &&
           !variant->across && variant->stage == KILN__STAGE_WHOLE && !kiln__group_scan(group) &&
           (variant->kept_mapping == KILN__AXIS_ITEM || variant->kept_mapping == KILN__AXIS_LANES);
}

static bool may_follow(const struct kiln__plan *plan, const struct kiln__launch *leader,
                       const struct kiln__launch *launch)
{
    return is_simple(plan, launch) && !launch->prepacks && !launch->covers &&
           launch->bytes <= MOST_BYTES && lanes_of(launch) <= leader->local[0] &&
           count_groups(launch, leader->local[0]) <= MOST_TURNS * most_helpers(plan);
}

/* ---- the joined launch ---- */

static size_t groups_of(const struct kiln__launch *launch)
{
    size_t groups = 1;
    for (uint32_t d = 0; d < launch->dimensions; d++)
        groups *= launch->global[d] / launch->local[d];
    return groups;
}

static void add_index(struct kiln__launch *joined, size_t value, const char *name, size_t k)
{
    kiln__launch_add(joined, KILN__INDEX(value), name, k, 0);
}

/* How many work-groups share what is behind: at most one for each of the longest launch's. */
static size_t helpers_of(const struct kiln__plan *plan, const struct kiln__launch *joined)
{
    size_t helpers = most_helpers(plan), most = 1;
    for (size_t k = 1; k < joined->phases.count; k++) {
        const struct kiln__launch behind = kiln__launch_behind(plan, joined, k);
        const size_t groups = count_groups(&behind, joined->local[0]);
        most = groups > most ? groups : most;
    }
    helpers = helpers < most ? helpers : most;
    return helpers < groups_of(joined) ? helpers : groups_of(joined);
}

/* Behind the product's arguments: the counters, the helpers, and of each launch its work-groups and
 * its arguments. */
static void add_arguments(const struct kiln__plan *plan, uint32_t counters,
                          struct kiln__launch *joined)
{
    kiln__launch_memory(joined, counters);
    add_index(joined, helpers_of(plan, joined), "behind_helpers", 0);
    for (size_t k = 1; k < joined->phases.count; k++) {
        const struct kiln__launch behind = kiln__launch_behind(plan, joined, k);
        add_index(joined, count_groups(&behind, joined->local[0]), "behind#_groups", k);
        for (size_t i = 0; i < behind.arguments.count; i++)
            joined->failed =
                !kiln__vector_add(&joined->arguments, behind.arguments.items[i]) || joined->failed;
        joined->bytes += behind.bytes;
    }
}

static bool copy_arguments(const struct kiln__launch *from, struct kiln__launch *to)
{
    *to = *from;
    memset(&to->arguments, 0, sizeof to->arguments);
    bool done = true;
    for (size_t i = 0; i < from->arguments.count && done; i++)
        done = kiln__vector_add(&to->arguments, from->arguments.items[i]);
    return done;
}

/* So many launches of steps that follow each other, the first of them the product's. */
static bool join(struct kiln__plan *plan, const uint32_t *launches, size_t count)
{
    const uint32_t counters = kiln__plan_counters(plan);
    struct kiln__launch joined;
    bool done =
        counters != KILN__NO_SLOT && copy_arguments(&plan->launches.items[launches[0]], &joined);
    if (counters == KILN__NO_SLOT)
        return false;
    plan->slots.items[counters].wanted = true;
    for (size_t k = 0; k < count && done; k++)
        done = kiln__vector_add(&joined.phases, launches[k]);
    if (done)
        add_arguments(plan, counters, &joined);
    done = done && !joined.failed && kiln__vector_add(&plan->joined, joined);
    if (!done) {
        kiln__vector_free(&joined.arguments);
        kiln__vector_free(&joined.phases);
        return false;
    }
    for (size_t k = 0; k < count; k++)
        plan->launches.items[launches[k]].joined = (uint32_t)plan->joined.count;
    return true;
}

struct kiln__launch kiln__launch_behind(const struct kiln__plan *plan,
                                        const struct kiln__launch *joined, size_t k)
{
    struct kiln__launch behind = plan->launches.items[joined->phases.items[k]];
    behind.variant.work_group = (uint8_t)__builtin_ctzll(joined->local[0]);
    behind.local[0] = joined->local[0];
    return behind;
}

/* ---- runs of launches ---- */

static const struct kiln__launch *launch_of(const struct kiln__plan *plan, size_t step)
{
    const bool launches =
        step < plan->steps.count && plan->steps.items[step].kind == KILN__STEP_LAUNCH;
    return launches ? &plan->launches.items[plan->steps.items[step].launch] : NULL;
}

/* How many of the steps behind `first` its launch can do. One of them may share rows: each would
 * bring the same functions along (kernels/lanes.cl). */
static size_t count_behind(const struct kiln__plan *plan, size_t first)
{
    const struct kiln__launch *leader = launch_of(plan, first), *launch;
    size_t count = 0, shared = 0;
    size_t arguments = leader->arguments.count + 2, numbers = count_numbers(leader) + 1;
    while (count < MOST_BEHIND && (launch = launch_of(plan, first + 1 + count)) &&
           may_follow(plan, leader, launch)) {
        shared += launch->variant.kept_mapping == KILN__AXIS_LANES;
        arguments += launch->arguments.count + 1;
        numbers += count_numbers(launch) + 1;
        if (shared > 1 || arguments > MOST_ARGUMENTS || numbers > MOST_NUMBERS)
            break;
        count++;
    }
    return count;
}

bool kiln__join_last_groups(struct kiln__plan *plan)
{
    bool done = true;
    if (plan->options.device->traits->fence == KILN__FENCE_NONE)
        return true;
    for (size_t i = 0; i < plan->steps.count && done; i++) {
        const struct kiln__launch *launch = launch_of(plan, i);
        if (!launch || !may_lead(launch))
            continue;
        uint32_t launches[1 + MOST_BEHIND];
        const size_t behind = count_behind(plan, i);
        for (size_t k = 0; k <= behind; k++)
            launches[k] = plan->steps.items[i + k].launch;
        if (behind)
            done = join(plan, launches, behind + 1);
        i += behind;
    }
    return done;
}
