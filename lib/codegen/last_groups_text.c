/* SPDX-License-Identifier: Apache-2.0 */
/* The text of a product whose last work-groups do what is behind it (last_groups.c):
 *
 * text = product's own | last_groups.cl | function of each launch behind | BEHIND_... | file
 *
 * A function is its launch's kernel (phase_text.h); BEHIND, with which the file's kernel ends, has
 * the helpers call each for its work-groups, one launch after the other. */
#include "codegen/codegen.h"
#include "codegen/emit.h"
#include "codegen/last_groups.h"
#include "codegen/phase_text.h"
#include "lower/lower.h"
#include "util/kernel_texts.h"

void kiln__last_groups_name(const struct kiln__plan *plan, const struct kiln__launch *joined,
                            struct kiln__text *name)
{
    kiln__codegen_phase_name(plan, &plan->launches.items[joined->phases.items[0]], name);
    kiln__text_add(name, " behind %d", plan->options.device->traits->fence);
    for (size_t k = 1; k < joined->phases.count; k++) {
        const struct kiln__launch behind = kiln__launch_behind(plan, joined, k);
        struct kiln__text own = {0};
        kiln__codegen_phase_name(plan, &behind, &own);
        kiln__text_add(name, " %zu ", own.length);
        kiln__text_add_bytes(name, own.data, own.length);
        name->failed = name->failed || own.failed;
        kiln__text_free(&own);
    }
}

static bool is_long(const struct kiln__argument *argument)
{
    return argument->kind < KILN__ARGUMENT_I32 || argument->kind == KILN__ARGUMENT_I64;
}

/* Numbers of indices are as long as the product's. */
static void add_parameters(const struct kiln__launch *behind, size_t k, struct kiln__text *text)
{
    kiln__text_add(text, ", long behind%zu_groups", k);
    for (size_t i = 0; i < behind->arguments.count; i++) {
        const struct kiln__argument *argument = &behind->arguments.items[i];
        const struct kiln__phrase name = kiln__argument_name(argument);
        if (argument->kind == KILN__ARGUMENT_MEMORY)
            kiln__text_add(text, ", global %s%s *p%zu_%s", argument->constant ? "const " : "",
                           kiln__emit_memory_type(argument->type), k, name.text);
        else
            kiln__text_add(text, ", %s p%zu_%s",
                           argument->kind == KILN__ARGUMENT_F32 ? "float"
                           : is_long(argument)                  ? "long"
                                                                : "int",
                           k, name.text);
    }
}

/* A work-group's turns; local memory is used again in the next one. */
static void add_calls(const struct kiln__launch *behind, size_t k, struct kiln__text *text)
{
    kiln__text_add(text,
                   " for (int i = helper; i < behind%zu_groups; i += behind_helpers) {"
                   " barrier(CLK_LOCAL_MEM_FENCE); p%zu_%s(behind_memory, i, 0, 0",
                   k, k, behind->kernel);
    for (size_t i = 0; i < behind->arguments.count; i++)
        kiln__text_add(text, ", p%zu_%s", k, kiln__argument_name(&behind->arguments.items[i]).text);
    kiln__text_add(text, "); }");
}

static void add_function(const struct kiln__plan *plan, const struct kiln__launch *behind, size_t k,
                         size_t *bytes, struct kiln__text *source)
{
    struct kiln__text own = {0};
    kiln__codegen_phase(plan, behind, &own);
    source->failed = source->failed || own.failed;
    if (own.data && !own.failed) {
        const struct kiln__phase_form form = {
            .number = (unsigned)k, .items = (unsigned)behind->local[0], .lent_memory = true};
        const size_t taken = kiln__phase_text(own.data, behind->options, &form, source);
        *bytes = taken > *bytes ? taken : *bytes;
    }
    kiln__text_free(&own);
}

void kiln__last_groups_source(const struct kiln__plan *plan, const struct kiln__launch *joined,
                              bool brief, struct kiln__text *source)
{
    size_t bytes = sizeof(int64_t);
    struct kiln__text parameters = {0}, calls = {0};
    if (!brief)
        kiln__text_add(source, "#define KILN_FENCE() %s\n%s",
                       plan->options.device->traits->fence == KILN__FENCE_PTX
                           ? "asm volatile(\"membar.gl;\" : : : \"memory\")"
                           : "mem_fence(CLK_GLOBAL_MEM_FENCE)",
                       kiln__kernel_text("last_groups"));
    for (size_t k = 1; k < joined->phases.count; k++) {
        const struct kiln__launch behind = kiln__launch_behind(plan, joined, k);
        if (!brief)
            add_function(plan, &behind, k, &bytes, source);
        add_parameters(&behind, k, &parameters);
        if (k > 1)
            kiln__text_add(&calls, " kiln_meet(behind_counters, %zu, behind_helpers);", k - 1);
        add_calls(&behind, k, &calls);
    }
    kiln__text_add(source,
                   "#define BEHIND_PARAMETERS , volatile global int *behind_counters, "
                   "long behind_helpers%s\n"
                   "#define BEHIND_MEMORY local int behind_told; local long behind_memory[%zu];\n"
                   "#define BEHIND { const int helper = kiln_arrive(behind_counters, &behind_told, "
                   "behind_helpers); if (helper >= 0) {%s kiln_leave(behind_counters, "
                   "behind_helpers); } }\n",
                   parameters.data, kiln__divide_up(bytes, sizeof(int64_t)), calls.data);
    source->failed = source->failed || parameters.failed || calls.failed;
    kiln__text_free(&parameters);
    kiln__text_free(&calls);
}
