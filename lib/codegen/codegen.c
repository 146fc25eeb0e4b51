/* SPDX-License-Identifier: Apache-2.0 */
/* Name and text of each launch's kernel: generated from a group, or a template of kernels/ with
 * prologue and epilogue before it. */
#include "codegen/codegen.h"

#include <string.h>

#include "codegen/emit.h"
#include "codegen/last_groups.h"
#include "codegen/packed_text.h"
#include "fuse/loop_nest.h"
#include "util/kernel_texts.h"

/* Everything in it is part of the text, nothing that is not. */
static void name_group(const struct kiln__plan *plan, const struct kiln__launch *launch,
                       struct kiln__text *name)
{
    const struct kiln__group *group = &plan->fusion.groups.items[launch->group];
    const struct kiln__node *nodes = plan->fusion.graph.nodes.items;
    uint8_t head[3] = {launch->source, (uint8_t)group->kind, (uint8_t)group->stores.count};
    kiln__text_add_bytes(name, head, sizeof head);
    kiln__text_add_bytes(name, &launch->variant, sizeof launch->variant);
    kiln__text_add_bytes(name, group->steps.items, group->steps.count * sizeof *group->steps.items);
    for (size_t i = 0; i < group->stores.count; i++) {
        const struct kiln__store *store = &group->stores.items[i];
        kiln__text_add_bytes(name, &store->step, sizeof store->step);
        const uint8_t stored[2] = {nodes[store->node].type,
                                   (uint8_t)(store->full | (store->position != 0) << 1)};
        kiln__text_add_bytes(name, stored, sizeof stored);
        if (store->position)
            kiln__text_add_bytes(name, &store->position, sizeof store->position);
    }
    if (launch->source != KILN__SOURCE_NEST)
        return;
    struct kiln__nest nest; /* loads that stand still along a row are made before it */
    kiln__nest_of(group, false, &nest);
    kiln__text_add_bytes(name, nest.full, group->steps.count * sizeof *nest.full);
    /* Which phases follow others is decided by limits, too, which are numbers. */
    for (unsigned phase = 0; launch->variant.online && phase < nest.phases; phase++) {
        const uint8_t follows = kiln__nest_is_online(group, &nest, phase);
        kiln__text_add_bytes(name, &follows, sizeof follows);
    }
}

/* The kernel's own text says all, but for how narrow types round. A loop has its program. */
static void name_custom(const struct kiln__plan *plan, const struct kiln__launch *launch,
                        struct kiln__text *name)
{
    const struct kiln__custom *custom = kiln__launch_custom(plan, launch);
    if (custom->loop) {
        kiln__text_add(name, "loop");
        kiln__text_add_bytes(name, &launch->variant, sizeof launch->variant);
        kiln__text_add_bytes(name, custom->loop, kiln__loop_bytes(custom->loop));
        kiln__text_add_bytes(name, custom->call.inputs, sizeof custom->call.inputs);
        for (unsigned k = 0; k < custom->call.n_outputs; k++)
            kiln__text_add(name, "%d,", (int)custom->call.outputs[k].type);
        for (unsigned k = 0; k < custom->call.n_arguments; k++)
            kiln__text_add(name, "%d,", custom->arguments[k].kind);
        return;
    }
    if (custom->file) {
        kiln__text_add(name, "%s ", custom->file);
        kiln__text_add_bytes(name, &launch->variant, sizeof launch->variant);
    }
    kiln__text_add(name, "custom %d %s", launch->variant.level_80, custom->text);
}

void kiln__codegen_phase_name(const struct kiln__plan *plan, const struct kiln__launch *launch,
                              struct kiln__text *name)
{
    if (launch->phases.count) {
        kiln__joined_name(plan, launch, name);
        return;
    }
    if (launch->source == KILN__SOURCE_CUSTOM) {
        name_custom(plan, launch, name);
        return;
    }
    if (launch->source == KILN__SOURCE_TEMPLATE)
        kiln__text_add(name, "%s ", launch->file);
    kiln__text_add(name, "%s", launch->options);
    if (launch->variant.generic)
        kiln__text_add_bytes(name, &launch->variant, sizeof launch->variant);
    else if (kiln__launch_has_text(launch))
        name_group(plan, launch, name);
}

void kiln__codegen_name(const struct kiln__plan *plan, const struct kiln__launch *launch,
                        bool checked, struct kiln__text *name)
{
    struct kiln__packing packing;
    kiln__codegen_phase_name(plan, launch, name);
    if (checked)
        kiln__text_add(name, " checked");
    else if (kiln__packing_of(plan, launch, &packing))
        kiln__packed_name(launch, &packing, name);
}

static void emit_text(const struct kiln__plan *plan, const struct kiln__launch *launch, bool brief,
                      bool checked, struct kiln__text *source)
{
    if (kiln__launch_has_behind(launch)) {
        const struct kiln__launch *product = &plan->launches.items[launch->phases.items[0]];
        if (kiln__launch_has_text(product))
            emit_text(plan, product, brief, checked, source);
        kiln__last_groups_source(plan, launch, brief, source);
        return;
    }
    if (launch->phases.count) {
        kiln__joined_source(plan, launch, brief, source);
        return;
    }
    struct kiln__code code = {.open = 0};
    const bool generic = launch->variant.generic, custom = launch->source == KILN__SOURCE_CUSTOM;
    struct kiln__emit emit = {
        .code = &code,
        .plan = plan,
        .launch = launch,
        .variant = &launch->variant,
        .brief = brief,
        .checked = checked,
        .group = &plan->fusion.groups.items[launch->group],
    };
    if (generic)
        kiln__emit_generic_prelude(&emit);
    else if (custom)
        kiln__emit_custom(&emit);
    else
        kiln__emit_prelude(&emit);
    kiln__emit_check_helper(&emit);
    if (generic)
        kiln__emit_generic(&emit);
    if (launch->source == KILN__SOURCE_NEST)
        kiln__emit_nest(&emit);
    if (launch->variant.operands)
        kiln__emit_operands(&emit);
    if (launch->variant.epilogue)
        kiln__emit_epilogue(&emit);
    kiln__code_print(&code, source);
}

bool kiln__codegen_is_foreign(const struct kiln__plan *plan, const struct kiln__launch *launch)
{
    if (launch->source != KILN__SOURCE_CUSTOM)
        return false;
    const struct kiln__custom *custom = kiln__launch_custom(plan, launch);
    return !custom->file && !custom->loop;
}

bool kiln__codegen_is_checked(const struct kiln__launch *launch)
{
    return launch->source == KILN__SOURCE_NEST;
}

static void write_source(const struct kiln__plan *plan, const struct kiln__launch *launch,
                         bool checked, struct kiln__text *source)
{
    if (kiln__launch_has_text(launch))
        emit_text(plan, launch, false, checked, source);
    if (launch->source != KILN__SOURCE_TEMPLATE)
        return;
    const char *file = kiln__kernel_text(launch->file);
    kiln__text_add_bytes(source, file, file ? strlen(file) : 0);
}

void kiln__codegen_phase(const struct kiln__plan *plan, const struct kiln__launch *launch,
                         struct kiln__text *source)
{
    write_source(plan, launch, false, source);
}

void kiln__codegen_source(const struct kiln__plan *plan, const struct kiln__launch *launch,
                          bool checked, struct kiln__text *source)
{
    struct kiln__packing packing;
    write_source(plan, launch, checked, source);
    if (!checked && kiln__packing_of(plan, launch, &packing))
        kiln__packed_text(plan, launch, &packing, source);
}

void kiln__codegen_show(const struct kiln__plan *plan, const struct kiln__launch *launch,
                        struct kiln__text *text)
{
    struct kiln__packing packing;
    if (kiln__launch_has_text(launch))
        emit_text(plan, launch, true, false, text);
    if (launch->source == KILN__SOURCE_TEMPLATE || launch->source == KILN__SOURCE_CLBLAST)
        kiln__text_add(text, "/* kernels/%s.cl %s */\n", launch->file, launch->options);
    if (kiln__packing_of(plan, launch, &packing))
        kiln__text_add(text, "/* packed: %u of memory, %u long16 of numbers */\n", packing.memories,
                       packing.vectors);
}
