/* SPDX-License-Identifier: Apache-2.0 */
/* Runs of short launches become one: each is a phase of it, a function of the work-item, and
 * kernels/one_launch.cl says how work-groups share the phases. A launch costs the host 2 to 3 us on
 * PoCL, a phase 0.5. Phases are in the plan's order, so memory may be used again between them.
 *
 * text   = one_launch.cl function* kernel
 * kernel = memories (loop over phases (loop over work-items (function of the phase), wait)) end
 *
 * Launches of one text are one function (phase_text.h). What else a phase takes is a record of the
 * launch's table: its length; the function's number; how many work-items there are, and along the
 * first two dimensions; the arguments, of memory the number among the kernel's. A record of length
 * 0 ends the table. So the text hangs on which functions there are, not on the phases. */
#include "codegen/codegen.h"

#include <stdlib.h>
#include <string.h>

#include "codegen/phase_text.h"
#include "util/kernel_texts.h"

/* What a phase may move: to move a megabyte takes a core longer than to enqueue a launch. */
#define MOST_BYTES ((uint64_t)1 << 20)

/* Memories of a launch: with counters and table 1 kB of arguments, which any device takes
 * (CL_DEVICE_MAX_PARAMETER_SIZE). Their number is a multiple, so that more launches share a text.
 */
#define MOST_MEMORIES 120
#define MULTIPLE 8

/* So that there are counters for all (KILN_LINE in kernels/one_launch.cl). */
#define MOST_PHASES 256
_Static_assert((2 * MOST_PHASES + 1) * 16 <= KILN__COUNTERS, "room for counters");

/* Of a record, before the arguments. */
enum { RECORD_LENGTH, RECORD_FUNCTION, RECORD_ITEMS, RECORD_WIDE, RECORD_HIGH, RECORD_ARGUMENTS };

static const struct kiln__launch *phase_at(const struct kiln__plan *plan,
                                           const struct kiln__launch *joined, size_t phase)
{
    return &plan->launches.items[joined->phases.items[phase]];
}

/* ---- functions ---- */

/* What the phases call: a text and a kernel of it. */
struct functions {
    struct kiln__text *names; /* of each phase's */
    uint32_t *of;             /* per phase: the first phase with the same, which gives its number */
};

static bool find_functions(const struct kiln__plan *plan, const struct kiln__launch *joined,
                           struct functions *functions)
{
    const size_t count = joined->phases.count;
    *functions = (struct functions){calloc(count + 1, sizeof *functions->names),
                                    calloc(count + 1, sizeof *functions->of)};
    bool done = functions->names && functions->of;
    for (uint32_t i = 0; i < count && done; i++) {
        struct kiln__text *name = &functions->names[i];
        kiln__codegen_name(plan, phase_at(plan, joined, i), name);
        kiln__text_add(name, " %s", phase_at(plan, joined, i)->kernel);
        done = !name->failed;
        uint32_t k = 0;
        while (done && k < i &&
               (functions->names[k].length != name->length ||
                memcmp(functions->names[k].data, name->data, name->length) != 0))
            k++;
        functions->of[i] = k;
    }
    return done;
}

static void free_functions(const struct kiln__launch *joined, struct functions *functions)
{
    for (size_t i = 0; functions->names && i < joined->phases.count; i++)
        kiln__text_free(&functions->names[i]);
    free(functions->names);
    free(functions->of);
}

/* ---- memories ---- */

/* Whether runs have the same memory for both. */
static bool is_same(const struct kiln__plan *plan, uint32_t a, uint32_t b)
{
    return a == b || (plan->slots.items[a].storage == KILN__STORAGE_ARENA &&
                      plan->slots.items[b].storage == KILN__STORAGE_ARENA);
}

/* The argument that is the slot's memory, or how many arguments there are. */
static size_t find_memory(const struct kiln__plan *plan, const struct kiln__launch *joined,
                          uint32_t slot)
{
    size_t i = 0;
    while (i < joined->arguments.count &&
           (joined->arguments.items[i].kind != KILN__ARGUMENT_MEMORY ||
            !is_same(plan, joined->arguments.items[i].slot, slot)))
        i++;
    return i;
}

/* ---- which launches ---- */

/* Maps, reductions and products of lone work-items, with no more than a launch's numbers. */
static bool may_join(const struct kiln__launch *launch)
{
    const bool nest = launch->source == KILN__SOURCE_NEST && launch->variant.chunked;
    const bool product = launch->source == KILN__SOURCE_TEMPLATE && !launch->variant.generic &&
                         kiln__launch_is_by(launch, KILN__KERNEL_PRODUCT);
    bool lone = true;
    for (uint32_t d = 0; d < launch->dimensions; d++)
        lone = lone && launch->local[d] == 1;
    return (nest || product) && lone && !launch->makes && !launch->covers && !launch->table.count &&
           launch->bytes <= MOST_BYTES;
}

static bool has_room(const struct kiln__launch *joined, const struct kiln__launch *launch)
{
    return joined->phases.count < MOST_PHASES &&
           joined->arguments.count + launch->arguments.count <= MOST_MEMORIES;
}

static struct kiln__launch begin(uint32_t counters, const struct kiln__launch *first)
{
    struct kiln__launch joined = {.source = KILN__SOURCE_NEST,
                                  .group = first->group,
                                  .kernel = "kiln_one_launch",
                                  .dimensions = 1,
                                  .global = {1, 1, 1},
                                  .local = {1, 1, 1}};
    kiln__launch_memory(&joined, counters);
    return joined;
}

static size_t count_items(const struct kiln__launch *phase)
{
    size_t items = 1;
    for (uint32_t d = 0; d < phase->dimensions; d++)
        items *= phase->global[d];
    return items;
}

static void add_phase(const struct kiln__plan *plan, struct kiln__launch *joined, uint32_t launch)
{
    const struct kiln__launch *phase = &plan->launches.items[launch];
    const size_t units = plan->options.device->info.compute_units, items = count_items(phase);
    uint32_t *place = kiln__vector_push(&joined->phases);
    joined->failed = joined->failed || !place;
    if (place)
        *place = launch;
    for (size_t i = 0; i < phase->arguments.count; i++) {
        const struct kiln__argument *argument = &phase->arguments.items[i];
        if (argument->kind == KILN__ARGUMENT_MEMORY &&
            find_memory(plan, joined, argument->slot) == joined->arguments.count)
            kiln__launch_memory(joined, argument->slot);
    }
    joined->bytes += phase->bytes;
    const size_t groups = items < units ? items : units;
    if (joined->global[0] < groups)
        joined->global[0] = groups;
}

/* ---- the table ---- */

static void add_number(struct kiln__launch *joined, int64_t number)
{
    int32_t *place = kiln__vector_push(&joined->table);
    if (place)
        *place = (int32_t)number;
    joined->failed = joined->failed || !place;
}

static bool is_long(const struct kiln__launch *phase, const struct kiln__argument *argument)
{
    return argument->kind == KILN__ARGUMENT_I64 ||
           (argument->kind == KILN__ARGUMENT_INDEX && phase->variant.wide);
}

static void add_argument(const struct kiln__plan *plan, struct kiln__launch *joined,
                         const struct kiln__launch *phase, const struct kiln__argument *argument)
{
    int32_t bits;
    if (argument->kind == KILN__ARGUMENT_MEMORY) {
        add_number(joined, (int64_t)find_memory(plan, joined, argument->slot));
    } else if (argument->kind == KILN__ARGUMENT_F32) {
        memcpy(&bits, &argument->real, sizeof bits);
        add_number(joined, bits);
    } else {
        add_number(joined, (int32_t)(uint32_t)(uint64_t)argument->integer);
        if (is_long(phase, argument))
            add_number(joined, (int32_t)(uint32_t)((uint64_t)argument->integer >> 32));
    }
}

static void add_record(const struct kiln__plan *plan, struct kiln__launch *joined,
                       const struct kiln__launch *phase, uint32_t function)
{
    const size_t begin = joined->table.count;
    add_number(joined, 0);
    add_number(joined, function);
    add_number(joined, (int64_t)count_items(phase));
    add_number(joined, (int64_t)phase->global[0]);
    add_number(joined, phase->dimensions > 1 ? (int64_t)phase->global[1] : 1);
    for (size_t i = 0; i < phase->arguments.count; i++)
        add_argument(plan, joined, phase, &phase->arguments.items[i]);
    if (!joined->failed)
        joined->table.items[begin] = (int32_t)(joined->table.count - begin);
}

/* All that it still lacks. */
static void complete(const struct kiln__plan *plan, struct kiln__launch *joined)
{
    struct functions functions;
    const bool found = find_functions(plan, joined, &functions);
    joined->failed = joined->failed || !found;
    for (uint32_t i = 0; i < joined->phases.count && !joined->failed; i++)
        add_record(plan, joined, phase_at(plan, joined, i), functions.of[i]);
    add_number(joined, 0);
    while (!joined->failed && joined->arguments.count % MULTIPLE)
        kiln__launch_memory(joined, joined->arguments.items[0].slot);
    kiln__launch_table(joined);
    free_functions(joined, &functions);
}

/* ---- runs of launches ---- */

static void drop(struct kiln__launch *joined)
{
    kiln__vector_free(&joined->arguments);
    kiln__vector_free(&joined->phases);
    kiln__vector_free(&joined->table);
    *joined = (struct kiln__launch){.failed = false};
}

/* The run ends: one launch alone stays what it is. False: no memory. */
static bool settle(struct kiln__plan *plan, struct kiln__launch *joined)
{
    struct kiln__launch *place = NULL;
    if (joined->phases.count > 1)
        complete(plan, joined);
    const bool failed = joined->failed;
    if (!failed && joined->phases.count > 1)
        place = kiln__vector_push(&plan->joined);
    const bool done = !failed && (joined->phases.count < 2 || place);
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

static bool join_steps(struct kiln__plan *plan, uint32_t counters, struct kiln__launch *joined)
{
    bool done = true;
    for (size_t i = 0; i < plan->steps.count && done; i++) {
        const struct kiln__plan_step *step = &plan->steps.items[i];
        const struct kiln__launch *launch =
            step->kind == KILN__STEP_LAUNCH ? &plan->launches.items[step->launch] : NULL;
        const bool joins = launch && may_join(launch);
        if (joined->phases.count && (!joins || !has_room(joined, launch)))
            done = settle(plan, joined);
        if (joins && !joined->phases.count)
            *joined = begin(counters, launch);
        if (joins)
            add_phase(plan, joined, step->launch);
    }
    return settle(plan, joined) && done;
}

bool kiln__launches_join(struct kiln__plan *plan)
{
    struct kiln__launch joined = {.failed = false};
    size_t candidates = 0;
    for (size_t i = 0; i < plan->launches.count; i++)
        candidates += may_join(&plan->launches.items[i]);
    if (!plan->options.one_launch || !plan->options.device->traits->one_launch || candidates < 2)
        return true;
    const uint32_t counters = add_counters(plan);
    return counters != KILN__NO_SLOT && join_steps(plan, counters, &joined);
}

/* ---- texts ---- */

void kiln__joined_name(const struct kiln__plan *plan, const struct kiln__launch *joined,
                       struct kiln__text *name)
{
    struct functions functions;
    const bool found = find_functions(plan, joined, &functions);
    kiln__text_add(name, "one launch %zu", joined->arguments.count);
    for (uint32_t i = 0; i < joined->phases.count && found; i++) {
        if (functions.of[i] != i)
            continue;
        kiln__text_add(name, " %u %zu ", i, functions.names[i].length);
        kiln__text_add_bytes(name, functions.names[i].data, functions.names[i].length);
    }
    name->failed = name->failed || !found;
    free_functions(joined, &functions);
}

static void write_function(const struct kiln__plan *plan, const struct kiln__launch *phase,
                           uint32_t number, struct kiln__text *source)
{
    struct kiln__text own = {0};
    kiln__codegen_source(plan, phase, false, &own);
    source->failed = source->failed || own.failed;
    if (own.data && !own.failed)
        kiln__phase_text(own.data, phase->options, number, source);
    kiln__text_free(&own);
}

static void write_call(const struct kiln__launch *phase, uint32_t number, struct kiln__text *source)
{
    size_t at = RECORD_ARGUMENTS;
    kiln__text_add(source,
                   "            case %u:\n"
                   "                p%u_%s(i, record[%d], record[%d]",
                   number, number, phase->kernel, RECORD_WIDE, RECORD_HIGH);
    for (size_t i = 0; i < phase->arguments.count; i++) {
        const struct kiln__argument *argument = &phase->arguments.items[i];
        const bool wide = is_long(phase, argument);
        const bool memory = argument->kind == KILN__ARGUMENT_MEMORY;
        const char *form = memory                                 ? "memories["
                           : argument->kind == KILN__ARGUMENT_F32 ? "as_float("
                           : wide                                 ? "kiln_long(&"
                                                                  : "(";
        kiln__text_add(source, ", %srecord[%zu]%s", form, at, memory ? "]" : ")");
        at += wide ? 2 : 1;
    }
    kiln__text_add(source, ");\n                break;\n");
}

static void write_kernel(const struct kiln__plan *plan, const struct kiln__launch *joined,
                         const struct functions *functions, struct kiln__text *source)
{
    const size_t memories = joined->arguments.count - 1;
    kiln__text_add(source, "kernel __attribute__((reqd_work_group_size(1, 1, 1))) void %s(",
                   joined->kernel);
    for (size_t i = 0; i < memories; i++)
        kiln__text_add(source, "global void *a%zu, ", i);
    kiln__text_add(source, "global const int *table)\n{\n    global void *const memories[] = {");
    for (size_t i = 0; i < memories; i++)
        kiln__text_add(source, "%sa%zu", i ? ", " : "", i);
    kiln__text_add(source,
                   "};\n    volatile global int *counter = a0;\n"
                   "    for (global const int *record = table; *record; record += *record) {\n"
                   "        for (int i = kiln_first(counter); i < record[%d]; "
                   "i = kiln_next(counter, i)) {\n"
                   "            switch (record[%d]) {\n",
                   RECORD_ITEMS, RECORD_FUNCTION);
    for (uint32_t i = 0; i < joined->phases.count; i++)
        if (functions->of[i] == i)
            write_call(phase_at(plan, joined, i), i, source);
    kiln__text_add(source,
                   "            }\n        }\n        kiln_wait(counter, record[%d]);\n"
                   "        counter += 2 * KILN_LINE;\n    }\n    kiln_end(a0, counter);\n}\n",
                   RECORD_ITEMS);
}

void kiln__joined_source(const struct kiln__plan *plan, const struct kiln__launch *joined,
                         bool brief, struct kiln__text *source)
{
    struct functions functions;
    const bool found = find_functions(plan, joined, &functions);
    if (found && !brief)
        kiln__text_add(source, "%s", kiln__kernel_text("one_launch"));
    for (uint32_t i = 0; i < joined->phases.count && found && !brief; i++)
        if (functions.of[i] == i)
            write_function(plan, phase_at(plan, joined, i), i, source);
    if (found)
        write_kernel(plan, joined, &functions, source);
    source->failed = source->failed || !found;
    free_functions(joined, &functions);
}
