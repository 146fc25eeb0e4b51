/* SPDX-License-Identifier: Apache-2.0 */
/* Runs of short launches become one: each is a phase of it, a function of the work-item, and
 * kernels/one_launch.cl says how work-groups share the phases. A launch costs the host 2 to 3 us on
 * PoCL, a phase 0.5. Phases are in the plan's order, so memory may be used again between them.
 *
 * text   = one_launch.cl phase* kernel
 * kernel = parameters (loop over the work-items of a phase, wait)* end
 *
 * Phases of one text are one function (phase_text.h). The kernel's parameters are the counters, and
 * of each phase how many work-items it has, along two dimensions and in all, and its own. */
#include "codegen/codegen.h"

#include <stdlib.h>
#include <string.h>

#include "codegen/phase_text.h"
#include "util/kernel_texts.h"

/* What a phase may move: to move a megabyte takes a core longer than to enqueue a launch. */
#define MOST_BYTES ((uint64_t)1 << 20)

/* Arguments that any device takes (CL_DEVICE_MAX_PARAMETER_SIZE), of 8 bytes at most. */
#define MOST_ARGUMENTS (1024 / 8)

/* Of a phase, before its own. */
#define SIZES 3

static const struct kiln__launch *phase_at(const struct kiln__plan *plan,
                                           const struct kiln__launch *joined, size_t phase)
{
    return &plan->launches.items[joined->phases.items[phase]];
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
    return joined->arguments.count + SIZES + launch->arguments.count <= MOST_ARGUMENTS;
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

static void add_number(struct kiln__launch *joined, size_t number)
{
    kiln__launch_add(
        joined, (struct kiln__argument){.kind = KILN__ARGUMENT_I32, .integer = (int64_t)number},
        "size");
}

static void add_phase(const struct kiln__plan *plan, struct kiln__launch *joined, uint32_t launch)
{
    const struct kiln__launch *phase = &plan->launches.items[launch];
    size_t units = plan->options.device->info.compute_units, items = 1;
    uint32_t *place = kiln__vector_push(&joined->phases);
    joined->failed = joined->failed || !place;
    if (place)
        *place = launch;
    for (uint32_t d = 0; d < phase->dimensions; d++)
        items *= phase->global[d];
    add_number(joined, items);
    add_number(joined, phase->global[0]);
    add_number(joined, phase->dimensions > 1 ? phase->global[1] : 1);
    for (size_t i = 0; i < phase->arguments.count; i++) {
        struct kiln__argument argument = phase->arguments.items[i];
        if (argument.kind == KILN__ARGUMENT_INDEX)
            argument.kind = phase->variant.wide ? KILN__ARGUMENT_I64 : KILN__ARGUMENT_I32;
        kiln__launch_add(joined, argument, "argument");
    }
    joined->bytes += phase->bytes;
    units = items < units ? items : units;
    if (joined->global[0] < units)
        joined->global[0] = units;
}

static void drop(struct kiln__launch *joined)
{
    kiln__vector_free(&joined->arguments);
    kiln__vector_free(&joined->phases);
    *joined = (struct kiln__launch){.failed = false};
}

/* The run ends: one launch alone stays what it is. False: no memory. */
static bool settle(struct kiln__plan *plan, struct kiln__launch *joined)
{
    struct kiln__launch *place = NULL;
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

/* Names of the phases' texts, and for each phase the first one that has the same. */
struct texts {
    struct kiln__text *names;
    uint32_t *first;
};

static bool find_texts(const struct kiln__plan *plan, const struct kiln__launch *joined,
                       struct texts *texts)
{
    const size_t count = joined->phases.count;
    *texts = (struct texts){calloc(count, sizeof *texts->names), calloc(count, sizeof(uint32_t))};
    bool done = texts->names && texts->first;
    for (uint32_t i = 0; i < count && done; i++) {
        struct kiln__text *name = &texts->names[i];
        kiln__codegen_name(plan, phase_at(plan, joined, i), name);
        done = !name->failed;
        uint32_t k = 0;
        while (done && k < i &&
               (texts->names[k].length != name->length ||
                memcmp(texts->names[k].data, name->data, name->length) != 0))
            k++;
        texts->first[i] = k;
    }
    return done;
}

static void free_texts(const struct kiln__launch *joined, struct texts *texts)
{
    for (size_t i = 0; texts->names && i < joined->phases.count; i++)
        kiln__text_free(&texts->names[i]);
    free(texts->names);
    free(texts->first);
}

void kiln__joined_name(const struct kiln__plan *plan, const struct kiln__launch *joined,
                       struct kiln__text *name)
{
    struct texts texts;
    const bool found = find_texts(plan, joined, &texts);
    kiln__text_add(name, "one launch");
    for (uint32_t i = 0; i < joined->phases.count && found; i++) {
        kiln__text_add(name, " %u %s", texts.first[i], phase_at(plan, joined, i)->kernel);
        if (texts.first[i] != i)
            continue;
        kiln__text_add(name, " %zu ", texts.names[i].length);
        kiln__text_add_bytes(name, texts.names[i].data, texts.names[i].length);
    }
    name->failed = name->failed || !found;
    free_texts(joined, &texts);
}

static void write_phases(const struct kiln__plan *plan, const struct kiln__launch *joined,
                         const struct texts *texts, struct kiln__text *source)
{
    for (uint32_t i = 0; i < joined->phases.count; i++) {
        struct kiln__text own = {0};
        if (texts->first[i] != i)
            continue;
        kiln__codegen_source(plan, phase_at(plan, joined, i), false, &own);
        source->failed = source->failed || own.failed;
        if (own.data && !own.failed)
            kiln__phase_text(own.data, phase_at(plan, joined, i)->options, i, source);
        kiln__text_free(&own);
    }
}

/* "global void *a7": argument 7. */
static void write_parameter(const struct kiln__argument *argument, size_t number,
                            struct kiln__text *source)
{
    static const char *const types[] = {
        [KILN__ARGUMENT_MEMORY] = "global void *",
        [KILN__ARGUMENT_I32] = "const int ",
        [KILN__ARGUMENT_I64] = "const long ",
        [KILN__ARGUMENT_F32] = "const float ",
    };
    kiln__text_add(source, "%s%sa%zu", number ? ", " : "", types[argument->kind], number);
}

/* `at`: the phase's first argument. */
static void write_call(const struct kiln__plan *plan, const struct kiln__launch *joined,
                       uint32_t phase, const struct texts *texts, size_t at,
                       struct kiln__text *source)
{
    const struct kiln__launch *launch = phase_at(plan, joined, phase);
    const struct kiln__phrase counter =
        kiln__phrase("(volatile global int *)a0 + %u * KILN_LINE", 2 * phase);
    kiln__text_add(source,
                   "    for (int i = kiln_first(%s); i < a%zu; i = kiln_next(%s, i))\n"
                   "        p%u_%s(i, a%zu, a%zu",
                   counter.text, at, counter.text, texts->first[phase], launch->kernel, at + 1,
                   at + 2);
    for (size_t i = 0; i < launch->arguments.count; i++)
        kiln__text_add(source, ", a%zu", at + SIZES + i);
    kiln__text_add(source, ");\n    kiln_wait(%s, a%zu);\n", counter.text, at);
}

static void write_kernel(const struct kiln__plan *plan, const struct kiln__launch *joined,
                         const struct texts *texts, struct kiln__text *source)
{
    size_t at = 1;
    kiln__text_add(source, "kernel __attribute__((reqd_work_group_size(1, 1, 1))) void %s(",
                   joined->kernel);
    for (size_t i = 0; i < joined->arguments.count; i++)
        write_parameter(&joined->arguments.items[i], i, source);
    kiln__text_add(source, ")\n{\n");
    for (uint32_t i = 0; i < joined->phases.count; i++) {
        write_call(plan, joined, i, texts, at, source);
        at += SIZES + phase_at(plan, joined, i)->arguments.count;
    }
    kiln__text_add(source, "    kiln_end((volatile global int *)a0, %zu);\n}\n",
                   joined->phases.count);
}

void kiln__joined_source(const struct kiln__plan *plan, const struct kiln__launch *joined,
                         bool brief, struct kiln__text *source)
{
    struct texts texts;
    const bool found = find_texts(plan, joined, &texts);
    if (found) {
        kiln__text_add(source, "%s", brief ? "" : kiln__kernel_text("one_launch"));
        if (!brief)
            write_phases(plan, joined, &texts, source);
        write_kernel(plan, joined, &texts, source);
    }
    source->failed = source->failed || !found;
    free_texts(joined, &texts);
}
