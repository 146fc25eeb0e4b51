/* SPDX-License-Identifier: Apache-2.0 */
/* The text of launches that are one (one_launch.c): a function for each text of a phase, and a
 * kernel that calls them by the records of its table.
 *
 * text   = one_launch.cl function* kernel
 * kernel = memories (loop over phases (loop over work-items (function of the phase), wait)) end
 *
 * and where phases are beside each other
 *
 * kernel = memories (find the phase) (function of the phase)
 */
#include "codegen/one_launch.h"

#include "codegen/codegen.h"
#include "codegen/last_groups.h"
#include "codegen/phase_text.h"
#include "util/code.h"
#include "util/kernel_texts.h"

bool kiln__phases_share_groups(const struct kiln__plan *plan)
{
    return !plan->options.device->traits->chunked;
}

bool kiln__phase_is_long(const struct kiln__launch *phase, const struct kiln__argument *argument)
{
    return argument->kind == KILN__ARGUMENT_I64 ||
           (argument->kind == KILN__ARGUMENT_INDEX && phase->variant.wide);
}

void kiln__phase_name(const struct kiln__plan *plan, uint32_t launch, struct kiln__text *name)
{
    kiln__codegen_phase_name(plan, &plan->launches.items[launch], name);
    kiln__text_add(name, " %s", plan->launches.items[launch].kernel);
}

void kiln__joined_name(const struct kiln__plan *plan, const struct kiln__launch *joined,
                       struct kiln__text *name)
{
    if (kiln__launch_has_behind(joined)) {
        kiln__last_groups_name(plan, joined, name);
        return;
    }
    kiln__text_add(name, "one launch %zu", joined->arguments.count);
    for (size_t i = 0; i < plan->functions.count; i++) {
        struct kiln__text own = {0};
        kiln__phase_name(plan, plan->functions.items[i], &own);
        kiln__text_add(name, " %zu ", own.length);
        kiln__text_add_bytes(name, own.data, own.length);
        name->failed = name->failed || own.failed;
        kiln__text_free(&own);
    }
}

static void write_function(const struct kiln__plan *plan, const struct kiln__launch *phase,
                           uint32_t number, struct kiln__text *source)
{
    struct kiln__text own = {0};
    kiln__codegen_phase(plan, phase, &own);
    source->failed = source->failed || own.failed;
    const struct kiln__phase_form form = {
        .number = number, .items = kiln__phases_share_groups(plan) ? (unsigned)phase->local[0] : 1};
    if (own.data && !own.failed)
        kiln__phase_text(own.data, phase->options, &form, source);
    kiln__text_free(&own);
}

static void add_call(const struct kiln__plan *plan, uint32_t number, struct kiln__code *code)
{
    const struct kiln__launch *phase = &plan->launches.items[plan->functions.items[number]];
    size_t at = KILN__RECORD_ARGUMENTS;
    kiln__code_single(code, KILN__CASE, "%u", number);
    struct kiln__text *call = kiln__code_add(code, "p%u_%s(i, record[%d], record[%d]", number,
                                             phase->kernel, KILN__RECORD_WIDE, KILN__RECORD_HIGH);
    for (size_t i = 0; i < phase->arguments.count; i++) {
        const struct kiln__argument *argument = &phase->arguments.items[i];
        const bool wide = kiln__phase_is_long(phase, argument);
        const bool memory = argument->kind == KILN__ARGUMENT_MEMORY;
        const char *form = memory && kiln__phases_share_groups(plan) ? "(global void *)memories["
                           : memory                                  ? "memories["
                           : argument->kind == KILN__ARGUMENT_F32    ? "as_float("
                           : wide                                    ? "kiln_long(&"
                                                                     : "(";
        kiln__text_add(call, ", %srecord[%zu]%s", form, at, memory ? "]" : ")");
        at += wide ? 2 : 1;
    }
    kiln__text_add(call, ")\nbreak");
}

static void add_calls(const struct kiln__plan *plan, struct kiln__code *code)
{
    kiln__code_switch(code, "record[%d]", KILN__RECORD_FUNCTION);
    for (uint32_t i = 0; i < plan->functions.count; i++)
        add_call(plan, i, code);
    kiln__code_end(code);
}

static void add_signature(const struct kiln__launch *joined, const char *sized,
                          struct kiln__code *code)
{
    struct kiln__text *signature =
        kiln__code_function(code, "kernel %svoid %s(", sized, joined->kernel);
    for (size_t i = 0; i + 1 < joined->arguments.count; i++)
        kiln__text_add(signature, "global void *a%zu, ", i);
    kiln__text_add(signature, "global const int *table)");
}

static void add_kernel(const struct kiln__plan *plan, const struct kiln__launch *joined,
                       struct kiln__code *code)
{
    add_signature(joined, "__attribute__((reqd_work_group_size(1, 1, 1))) ", code);
    struct kiln__text *memories = kiln__code_add(code, "global void *const memories[] = {");
    for (size_t i = 0; i + 1 < joined->arguments.count; i++)
        kiln__text_add(memories, "%sa%zu", i ? ", " : "", i);
    kiln__text_add(memories, "}\nvolatile global int *counter = a0");
    kiln__code_for(code, "global const int *record = table; *record; record += *record");
    kiln__code_for(code, "int i = kiln_first(counter); i < record[%d]; i = kiln_next(counter, i)",
                   KILN__RECORD_ITEMS);
    add_calls(plan, code);
    kiln__code_end(code);
    kiln__code_add(code, "kiln_wait(counter, record[%d])\ncounter += 2 * KILN_LINE",
                   KILN__RECORD_ITEMS);
    kiln__code_end(code);
    kiln__code_add(code, "kiln_end(a0, counter)");
    kiln__code_end(code);
}

/* A work-group's memories are in local memory: an array of each work-item's would be in global. */
static void add_kernel_of_groups(const struct kiln__plan *plan, const struct kiln__launch *joined,
                                 struct kiln__code *code)
{
    add_signature(joined, "", code);
    kiln__code_add(code, "local size_t memories[%zu]", joined->arguments.count - 1);
    kiln__code_add(code, "global const int *record = table\nint i = get_group_id(0)");
    kiln__code_if(code, "get_local_id(0) == 0");
    for (size_t i = 0; i + 1 < joined->arguments.count; i++)
        kiln__code_add(code, "memories[%zu] = (size_t)a%zu", i, i);
    kiln__code_end(code);
    kiln__code_barrier(code);
    kiln__code_single(code, KILN__FOR, "; i >= record[%d]; record += *record", KILN__RECORD_ITEMS);
    kiln__code_add(code, "i -= record[%d]", KILN__RECORD_ITEMS);
    add_calls(plan, code);
    kiln__code_end(code);
}

void kiln__joined_source(const struct kiln__plan *plan, const struct kiln__launch *joined,
                         bool brief, struct kiln__text *source)
{
    struct kiln__code code = {0};
    if (!brief)
        kiln__text_add(source, "%s", kiln__kernel_text("one_launch"));
    for (uint32_t i = 0; i < plan->functions.count && !brief; i++)
        write_function(plan, &plan->launches.items[plan->functions.items[i]], i, source);
    if (kiln__phases_share_groups(plan))
        add_kernel_of_groups(plan, joined, &code);
    else
        add_kernel(plan, joined, &code);
    kiln__code_print(&code, source);
}
