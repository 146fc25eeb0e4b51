/* SPDX-License-Identifier: Apache-2.0 */
/* The checked form of a generated kernel: the same text, but that every place in memory is the
 * address that KILN_AT gives (kernels/checked.cl), which is in spare memory if the index is
 * outside; the first that is, is noted. */
#include "codegen/emit.h"
#include "util/kernel_texts.h"

void kiln__emit_check_helper(const struct kiln__emit *emit)
{
    if (emit->checked)
        kiln__code_line(emit->code, "%s", kiln__kernel_text("checked"));
}

void kiln__emit_check_parameters(const struct kiln__emit *emit, struct kiln__text *text)
{
    const struct kiln__launch *launch = emit->launch;
    for (size_t i = 0; emit->checked && i < launch->arguments.count; i++) {
        const struct kiln__phrase name = kiln__argument_name(&launch->arguments.items[i]);
        if (launch->arguments.items[i].kind == KILN__ARGUMENT_MEMORY)
            kiln__text_add(text, ", const long low_%s, const long high_%s", name.text, name.text);
    }
    if (emit->checked)
        kiln__text_add(text, ", const int kiln_launch, volatile global int *kiln_wrong");
}

void kiln__emit_check_memories(const struct kiln__emit *emit)
{
    const struct kiln__launch *launch = emit->launch;
    unsigned number = 0;
    for (size_t i = 0; emit->checked && i < launch->arguments.count; i++) {
        const struct kiln__argument *argument = &launch->arguments.items[i];
        if (argument->kind != KILN__ARGUMENT_MEMORY)
            continue;
        const struct kiln__phrase name = kiln__argument_name(argument);
        const char *type = kiln__emit_memory_type(argument->type);
        const char *constant = argument->constant ? "const " : "";
        kiln__code_add(emit->code,
                       "global %s%s *const spare_%s = (global %s%s *)(kiln_wrong + 16)\n"
                       "const int memory_%s = %u",
                       constant, type, name.text, constant, type, name.text, ++number);
    }
}

void kiln__emit_check_alias(const struct kiln__emit *emit, size_t access, unsigned store)
{
    if (emit->checked)
        kiln__code_add(emit->code,
                       "global const %s *const spare_x%zu = spare_y%u\n"
                       "const int memory_x%zu = memory_y%u\n"
                       "const long low_x%zu = low_y%u, high_x%zu = high_y%u",
                       kiln__emit_memory_type(kiln__emit_access_type(emit, access)), access, store,
                       access, store, access, store, access, store);
}
