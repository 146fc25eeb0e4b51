/* SPDX-License-Identifier: Apache-2.0 */
/* Runs of short launches become one: each is a phase of it, a function of the work-item, and
 * kernels/one_launch.cl says how work-groups share the phases. A launch costs the host 2 to 3 us on
 * PoCL, and each of two cores 5 us where it falls asleep before it; a phase 0.5. Phases are in the
 * plan's order, so memory may be used again between them; what brings weights into other forms,
 * once, is before all of them (lower/frozen.c).
 *
 * On devices that are not chunked a launch costs the host 6 to 10 us and work-groups would wait for
 * each other for 2 to 3. There maps that need nothing of each other become one, in which each
 * work-group is one of one of them, and what is short behind a product is done by its last
 * work-groups (last_groups.h).
 *
 * Launches of one text are one function (phase_text.h). What else a phase takes is a record of the
 * launch's table: its length; the function's number; how many work-items, or work-groups, there
 * are, and along the first two dimensions; the arguments, of memory the number among the kernel's.
 * A record of length 0 ends the table. So the text hangs on which functions there are, not on the
 * phases; and all joined launches of a plan have one, with all its functions. */
#include "codegen/one_launch.h"

#include <stdlib.h>
#include <string.h>

#include "codegen/codegen.h"
#include "codegen/last_groups.h"
#include "graph/attention.h"
#include "plan/launch_text.h"
#include "plan/packing.h"

/* What a phase may move: to move as much takes a core fifty times as long as a launch costs. */
#define MOST_BYTES ((uint64_t)1 << 22)

/* And a GPU about as long. */
#define MOST_BYTES_HORIZONTAL ((uint64_t)1 << 24)

/* Where joining has to pay on a chunked device: what a phase may compute, half a millisecond of a
 * core, and how many phases make up for the kernel of all. */
#define MOST_OPERATIONS ((uint64_t)64000000)
#define FEWEST_PHASES 4

/* Memories of a launch: with counters and table 1 kB of arguments, which any device takes
 * (CL_DEVICE_MAX_PARAMETER_SIZE). Their number is a multiple, so that more launches share a text.
 */
#define MOST_MEMORIES 120
#define MULTIPLE 8
#define MULTIPLE_HORIZONTAL 2 /* each costs NVIDIA's host 0.4 us */

/* So that there are counters for all (KILN_LINE in kernels/one_launch.cl). */
#define MOST_PHASES 256
_Static_assert((2 * MOST_PHASES + 1) * 16 <= KILN__COUNTERS, "room for counters");

/* ---- functions ---- */

/* A text and a kernel of it, that phases call. */
struct function {
    struct kiln__text name;
    uint32_t number; /* in the order in which they were met */
    uint32_t launch; /* the first with it */
};

struct functions {
    KILN__VECTOR(struct function) all;
    uint32_t *of; /* per launch of the plan: its number, of joined ones */
};

static int compare_names(const struct kiln__text *a, const struct kiln__text *b)
{
    if (a->length != b->length)
        return a->length < b->length ? -1 : 1;
    return memcmp(a->data, b->data, a->length);
}

static int compare_functions(const void *a, const void *b)
{
    return compare_names(&((const struct function *)a)->name, &((const struct function *)b)->name);
}

/* The name is taken over. */
static bool add_function(struct functions *functions, uint32_t launch, struct kiln__text *name)
{
    size_t k = 0;
    while (k < functions->all.count && compare_names(&functions->all.items[k].name, name) != 0)
        k++;
    functions->of[launch] = (uint32_t)k;
    if (k < functions->all.count) {
        kiln__text_free(name);
        return true;
    }
    if (kiln__vector_add(&functions->all, (struct function){*name, (uint32_t)k, launch}))
        return true;
    kiln__text_free(name);
    return false;
}

/* Of a launch with a table. */
static bool is_phase(const struct kiln__plan *plan, const struct kiln__launch *launch)
{
    return launch->joined && !kiln__launch_has_behind(&plan->joined.items[launch->joined - 1]);
}

static bool collect_functions(const struct kiln__plan *plan, struct functions *functions)
{
    bool done = functions->of;
    for (uint32_t i = 0; i < plan->launches.count && done; i++) {
        struct kiln__text name = {0};
        if (!is_phase(plan, &plan->launches.items[i]))
            continue;
        kiln__phase_name(plan, i, &name);
        done = !name.failed && add_function(functions, i, &name);
    }
    return done;
}

/* By their names: plans with the same ones have one text, in whatever order they need them. */
static bool sort_functions(struct kiln__plan *plan, struct functions *functions)
{
    uint32_t *place_of = calloc(functions->all.count + 1, sizeof *place_of);
    bool done = place_of;
    if (done && functions->all.count) /* qsort() takes no NULL */
        qsort(functions->all.items, functions->all.count, sizeof *functions->all.items,
              compare_functions);
    for (uint32_t i = 0; i < functions->all.count && done; i++) {
        done = kiln__vector_add(&plan->functions, functions->all.items[i].launch);
        place_of[functions->all.items[i].number] = i;
    }
    for (size_t i = 0; i < plan->launches.count && done; i++)
        if (is_phase(plan, &plan->launches.items[i]))
            functions->of[i] = place_of[functions->of[i]];
    free(place_of);
    return done;
}

static bool find_functions(struct kiln__plan *plan, struct functions *functions)
{
    *functions = (struct functions){.of = calloc(plan->launches.count + 1, sizeof *functions->of)};
    return collect_functions(plan, functions) && sort_functions(plan, functions);
}

static void free_functions(struct functions *functions)
{
    for (size_t i = 0; i < functions->all.count; i++)
        kiln__text_free(&functions->all.items[i].name);
    kiln__vector_free(&functions->all);
    free(functions->of);
}

/* ---- memories ---- */

/* The argument that is the slot's memory, or how many arguments there are. */
static size_t find_memory(const struct kiln__plan *plan, const struct kiln__launch *joined,
                          uint32_t slot)
{
    size_t i = 0;
    while (i < joined->arguments.count &&
           (joined->arguments.items[i].kind != KILN__ARGUMENT_MEMORY ||
            !kiln__slots_share_memory(plan, joined->arguments.items[i].slot, slot)))
        i++;
    return i;
}

/* ---- which launches ---- */

static bool is_product(const struct kiln__launch *launch)
{
    return launch->source == KILN__SOURCE_TEMPLATE && !launch->variant.generic &&
           kiln__launch_is_by(launch, KILN__KERNEL_PRODUCT);
}

/* Or what puts its parts together; gradients are another family. */
static bool is_attention(const struct kiln__launch *launch)
{
    return launch->source == KILN__SOURCE_TEMPLATE && !launch->variant.generic &&
           kiln__launch_is_by(launch, KILN__KERNEL_ATTENTION);
}

static bool is_lone(const struct kiln__launch *launch)
{
    bool lone = true;
    for (uint32_t d = 0; d < launch->dimensions; d++)
        lone = lone && launch->local[d] == 1;
    return lone;
}

/* Of work-items that exchange nothing. */
static bool is_map(const struct kiln__plan *plan, const struct kiln__launch *launch)
{
    return launch->source == KILN__SOURCE_NEST && launch->dimensions == 1 &&
           !launch->variant.across &&
           plan->fusion.groups.items[launch->group].kind == KILN__GROUP_MAP;
}

/* One of kernels/ that takes all steps of something; a program's own may do anything. */
static bool takes_steps(const struct kiln__plan *plan, const struct kiln__launch *launch)
{
    return launch->source == KILN__SOURCE_CUSTOM && kiln__launch_custom(plan, launch)->file;
}

static const char *obstacle_of_items(const struct kiln__plan *plan,
                                     const struct kiln__launch *launch)
{
    const bool nest = launch->source == KILN__SOURCE_NEST && launch->variant.chunked;
    if (!nest && !is_product(launch) && !is_attention(launch) && !takes_steps(plan, launch))
        return "its kernel is no map, reduction, product, attention or recurrent layer";
    return is_lone(launch) ? NULL : "its work-groups have several work-items";
}

/* Whether what it moves and computes is not known before it runs: its keys are those that lengths
 * say, often far fewer than there is room for. */
static bool may_be_short(const struct kiln__plan *plan, const struct kiln__launch *launch)
{
    const struct kiln__group *group = &plan->fusion.groups.items[launch->group];
    return is_attention(launch) &&
           kiln__attention_lengths(&plan->fusion.graph.nodes.items[group->nodes.items[0]]);
}

static const char *obstacle_of_length(const struct kiln__plan *plan, uint32_t index)
{
    const struct kiln__launch *launch = &plan->launches.items[index];
    const bool chunked = !kiln__phases_share_groups(plan);
    if (chunked && may_be_short(plan, launch))
        return NULL;
    if (launch->bytes > (chunked ? MOST_BYTES : MOST_BYTES_HORIZONTAL))
        return "it moves so much that a launch's time is little";
    if (chunked && plan->options.one_launch == KILN__ONE_LAUNCH_AUTO &&
        kiln__launch_operations(plan, index) > MOST_OPERATIONS)
        return "it computes for so long that a launch's time is little";
    return NULL;
}

/* Why it is no phase: one has no more than a launch's numbers. NULL: it can be one. */
static const char *obstacle(const struct kiln__plan *plan, uint32_t index)
{
    const struct kiln__launch *launch = &plan->launches.items[index];
    if (launch->joined)
        return "a product's last work-groups do it, or what is behind it";
    if (kiln__phases_share_groups(plan) && !is_map(plan, launch))
        return "its kernel is no map whose work-items exchange nothing";
    if (!kiln__phases_share_groups(plan) && obstacle_of_items(plan, launch))
        return obstacle_of_items(plan, launch);
    if (launch->prepacks)
        return "runs leave it out while its buffers stay";
    if (launch->covers || launch->table.count)
        return "its kernel takes more than its memory and numbers";
    return obstacle_of_length(plan, index);
}

static bool is_wanted(const struct kiln__plan *plan)
{
    return plan->options.one_launch && plan->options.device->traits->one_launch;
}

static size_t fewest_phases(const struct kiln__plan *plan)
{
    return plan->options.one_launch == KILN__ONE_LAUNCH_AUTO && !kiln__phases_share_groups(plan)
               ? FEWEST_PHASES
               : 2;
}

const char *kiln__launch_unjoined_because(const struct kiln__plan *plan, uint32_t index)
{
    if (!kiln__launches_may_join(plan) || plan->launches.items[index].joined)
        return NULL;
    const char *why = obstacle(plan, index);
    return why ? why : "too few beside it can be joined with it";
}

static bool has_room(const struct kiln__launch *joined, const struct kiln__launch *launch)
{
    return joined->phases.count < MOST_PHASES && joined->local[0] == launch->local[0] &&
           joined->arguments.count + launch->arguments.count <= MOST_MEMORIES;
}

static struct kiln__launch begin(uint32_t counters, const struct kiln__launch *first)
{
    struct kiln__launch joined = {.source = KILN__SOURCE_NEST,
                                  .group = first->group,
                                  .kernel = "kiln_one_launch",
                                  .dimensions = 1,
                                  .global = {first->local[0], 1, 1},
                                  .local = {first->local[0], 1, 1}};
    if (counters != KILN__NO_SLOT)
        kiln__launch_memory(&joined, counters);
    return joined;
}

/* Work-items, or work-groups where these have several. */
static size_t count_items(const struct kiln__launch *phase)
{
    size_t items = 1;
    for (uint32_t d = 0; d < phase->dimensions; d++)
        items *= phase->global[d] / phase->local[d];
    return items;
}

/* Of the joined launch, with one phase more. */
static size_t count_groups(const struct kiln__plan *plan, const struct kiln__launch *joined,
                           size_t items)
{
    const size_t units = plan->options.device->info.compute_units;
    const size_t before = joined->phases.count > 1 ? joined->global[0] / joined->local[0] : 0;
    if (kiln__phases_share_groups(plan))
        return before + items;
    items = items < units ? items : units;
    return before < items ? items : before;
}

static void add_phase(const struct kiln__plan *plan, struct kiln__launch *joined, uint32_t launch)
{
    const struct kiln__launch *phase = &plan->launches.items[launch];
    joined->failed = !kiln__vector_add(&joined->phases, launch) || joined->failed;
    for (size_t i = 0; i < phase->arguments.count; i++) {
        const struct kiln__argument *argument = &phase->arguments.items[i];
        if (argument->kind == KILN__ARGUMENT_MEMORY &&
            find_memory(plan, joined, argument->slot) == joined->arguments.count)
            kiln__launch_memory(joined, argument->slot);
    }
    joined->bytes += phase->bytes;
    joined->global[0] = joined->local[0] * count_groups(plan, joined, count_items(phase));
}

/* ---- the table ---- */

static void add_number(struct kiln__launch *joined, int64_t number)
{
    joined->failed = !kiln__vector_add(&joined->table, (int32_t)number) || joined->failed;
}

static void add_argument(const struct kiln__plan *plan, struct kiln__launch *joined,
                         const struct kiln__launch *phase, const struct kiln__argument *argument)
{
    const uint64_t bits = (uint64_t)kiln__argument_bits(argument);
    if (argument->kind == KILN__ARGUMENT_MEMORY) {
        add_number(joined, (int64_t)find_memory(plan, joined, argument->slot));
        return;
    }
    add_number(joined, (int32_t)(uint32_t)bits);
    if (kiln__phase_is_long(phase, argument))
        add_number(joined, (int32_t)(uint32_t)(bits >> 32));
}

static void add_record(const struct kiln__plan *plan, struct kiln__launch *joined,
                       const struct kiln__launch *phase, uint32_t function)
{
    const size_t begin = joined->table.count;
    add_number(joined, 0);
    add_number(joined, function);
    add_number(joined, (int64_t)count_items(phase));
    add_number(joined, (int64_t)(phase->global[0] / phase->local[0]));
    add_number(joined, phase->dimensions > 1 ? (int64_t)phase->global[1] : 1);
    for (size_t i = 0; i < phase->arguments.count; i++)
        add_argument(plan, joined, phase, &phase->arguments.items[i]);
    if (!joined->failed)
        joined->table.items[begin] = (int32_t)(joined->table.count - begin);
}

/* Of all joined launches alike. */
static size_t count_memories(const struct kiln__plan *plan)
{
    size_t most = 0, multiple = kiln__phases_share_groups(plan) ? MULTIPLE_HORIZONTAL : MULTIPLE;
    for (size_t i = 0; i < plan->joined.count; i++)
        if (!kiln__launch_has_behind(&plan->joined.items[i]) &&
            most < plan->joined.items[i].arguments.count)
            most = plan->joined.items[i].arguments.count;
    return (most + multiple - 1) / multiple * multiple;
}

static bool complete(const struct kiln__plan *plan, const struct functions *functions,
                     size_t memories, struct kiln__launch *joined)
{
    for (size_t i = 0; i < joined->phases.count && !joined->failed; i++) {
        const uint32_t launch = joined->phases.items[i];
        add_record(plan, joined, &plan->launches.items[launch], functions->of[launch]);
    }
    add_number(joined, 0);
    while (!joined->failed && joined->arguments.count < memories)
        kiln__launch_memory(joined, joined->arguments.items[0].slot);
    kiln__launch_table(joined);
    return !joined->failed;
}

/* All that they still lack. */
static bool complete_all(struct kiln__plan *plan)
{
    struct functions functions;
    const size_t memories = count_memories(plan);
    bool done = find_functions(plan, &functions);
    for (size_t i = 0; i < plan->joined.count && done; i++)
        done = kiln__launch_has_behind(&plan->joined.items[i]) ||
               complete(plan, &functions, memories, &plan->joined.items[i]);
    free_functions(&functions);
    return done;
}

/* ---- runs of launches ---- */

static void drop(struct kiln__launch *joined)
{
    kiln__vector_free(&joined->arguments);
    kiln__vector_free(&joined->phases);
    kiln__vector_free(&joined->table);
    *joined = (struct kiln__launch){.failed = false};
}

/* The run ends: few launches stay what they are. False: no memory. */
static bool end_run(struct kiln__plan *plan, struct kiln__launch *joined)
{
    struct kiln__launch *place = NULL;
    const bool many = joined->phases.count >= fewest_phases(plan), failed = joined->failed;
    if (!failed && many)
        place = kiln__vector_push(&plan->joined);
    const bool done = !failed && (!many || place);
    if (!place) {
        drop(joined);
        return done;
    }
    *place = *joined;
    *joined = (struct kiln__launch){.failed = false};
    for (size_t i = 0; i < place->phases.count; i++)
        plan->launches.items[place->phases.items[i]].joined = (uint32_t)plan->joined.count;
    return true;
}

static uint32_t add_counters(struct kiln__plan *plan)
{
    const uint32_t slot = kiln__plan_counters(plan);
    if (slot != KILN__NO_SLOT)
        plan->slots.items[slot].wanted = true;
    return slot;
}

/* Whether the step has to wait for one from `first` on. */
static bool waits_for(const struct kiln__plan *plan, const struct kiln__plan_step *step,
                      size_t first)
{
    for (size_t i = 0; i < step->dependencies; i++)
        if (plan->dependencies.items[step->first_dependency + i] >= first)
            return true;
    return false;
}

static bool join_steps(struct kiln__plan *plan, uint32_t counters, struct kiln__launch *joined)
{
    bool done = true;
    size_t first = 0; /* of the run's steps */
    for (size_t i = 0; i < plan->steps.count && done; i++) {
        const struct kiln__plan_step *step = &plan->steps.items[i];
        const struct kiln__launch *launch =
            step->kind == KILN__STEP_LAUNCH ? &plan->launches.items[step->launch] : NULL;
        const bool joins = launch && !obstacle(plan, step->launch);
        if (joined->phases.count &&
            (!joins || !has_room(joined, launch) ||
             (kiln__phases_share_groups(plan) && waits_for(plan, step, first))))
            done = end_run(plan, joined);
        if (joins && !joined->phases.count) {
            *joined = begin(counters, launch);
            first = i;
        }
        if (joins)
            add_phase(plan, joined, step->launch);
        done = done && !joined->failed;
    }
    return end_run(plan, joined) && done;
}

bool kiln__launches_may_join(const struct kiln__plan *plan)
{
    return is_wanted(plan) && plan->launches.count >= fewest_phases(plan);
}

bool kiln__launches_join(struct kiln__plan *plan)
{
    struct kiln__launch joined = {.failed = false};
    size_t candidates = 0;
    if (!kiln__launches_may_join(plan))
        return true;
    if (kiln__phases_share_groups(plan) && !kiln__join_last_groups(plan))
        return false;
    for (uint32_t i = 0; i < plan->launches.count; i++)
        candidates += !obstacle(plan, i);
    if (candidates < fewest_phases(plan))
        return true;
    const uint32_t counters = kiln__phases_share_groups(plan) ? KILN__NO_SLOT : add_counters(plan);
    return (kiln__phases_share_groups(plan) || counters != KILN__NO_SLOT) &&
           join_steps(plan, counters, &joined) && complete_all(plan);
}
