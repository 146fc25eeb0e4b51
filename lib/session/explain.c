/* SPDX-License-Identifier: Apache-2.0 */
/* The text of `kiln explain`: values, slots, launches, dependencies, steps of a plan. */
#include "session/explain.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/codegen.h"
#include "plan/names.h"
#include "util/log.h"
#include "util/open_file.h"

static void explain_values(const struct kiln__plan *plan, struct kiln__text *text)
{
    const struct kiln__fusion *fusion = &plan->fusion;
    for (uint32_t i = 0; i < fusion->graph.nodes.count; i++) {
        const struct kiln__node *node = &fusion->graph.nodes.items[i];
        bool value = kiln__node_is_computed(node) || fusion->why[i] > KILN__BECAUSE_INPUT;
        if (!value)
            continue;
        kiln__text_add(text, "  %%%u %s: ", i, kiln__node_name(node));
        if (fusion->stored[i])
            kiln__text_add(text, "in memory, %s\n", kiln__fusion_why(fusion->why[i]));
        else if (fusion->why[i])
            kiln__text_add(text, "never written: every use is in the kernel that computes it\n");
        else
            kiln__text_add(text, "%s, never written\n", kiln__fusion_why(KILN__INLINE));
    }
    kiln__text_add(text, "  saved in each run: %" PRIu64 " bytes of memory traffic\n",
                   fusion->saved_bytes);
}

static void explain_slots(const struct kiln__plan *plan, struct kiln__text *text)
{
    static const char *const places[] = {"shared memory", "input", "result",
                                         "kept while nobody writes input", "counters"};
    for (uint32_t i = 0; i < plan->slots.count; i++) {
        const struct kiln__slot *slot = &plan->slots.items[i];
        if (slot->node == KILN__SCRATCH)
            kiln__text_add(text, "  slot %u working memory", i);
        else
            kiln__text_add(text, "  slot %u %%%u", i, slot->node);
        kiln__text_add(text, ": %zu bytes, %s", slot->bytes, places[slot->storage]);
        if (slot->storage == KILN__STORAGE_ARENA)
            kiln__text_add(text, " from byte %zu", slot->offset);
        else if (slot->storage == KILN__STORAGE_PREPACKED)
            for (uint32_t k = 0; k < slot->n_sources; k++)
                kiln__text_add(text, "%s #%u", k ? "," : "", slot->sources[k]);
        else if (slot->storage != KILN__STORAGE_COUNTERS)
            kiln__text_add(text, " #%u%s", slot->binding, slot->in_place ? " in place" : "");
        if (slot->first <= slot->last && slot->storage != KILN__STORAGE_COUNTERS)
            kiln__text_add(text, ", steps %u to %u", slot->first, slot->last);
        kiln__text_add(text, "\n");
    }
    kiln__text_add(text, "  peak %zu bytes (%" PRIu64 " if nothing shared memory)\n",
                   plan->arena_bytes + plan->prepacked_bytes,
                   plan->unshared_bytes + plan->prepacked_bytes);
}

/* ", a product by packed because it was asked for; next best: tiled" */
static void explain_choice(const struct kiln__selection *choice, struct kiln__text *text)
{
    if (!choice->taken)
        return;
    kiln__text_add(text, ", %s by %s because %s", kiln__kernel_family_name(choice->taken->family),
                   choice->taken->name,
                   choice->substitute ? "the wanted implementation cannot do it"
                                      : kiln__reason_text(choice->reason));
    if (choice->next)
        kiln__text_add(text, "; next best: %s", choice->next->name);
}

static void explain_launch(const struct kiln__names *names, uint32_t index, struct kiln__text *text)
{
    const struct kiln__plan *plan = names->plan;
    const struct kiln__launch *launch = &plan->launches.items[index];
    const char *unjoined = kiln__launch_unjoined_because(plan, index);
    kiln__text_add(text, "launch %u: %s of group %u, %zux%zux%zu work-items in groups of %zu",
                   index, launch->kernel, launch->group, launch->global[0],
                   launch->dimensions > 1 ? launch->global[1] : 1,
                   launch->dimensions > 2 ? launch->global[2] : 1, launch->local[0]);
    explain_choice(&launch->choice, text);
    if (launch->joined)
        kiln__text_add(text, ", done by launch %zu%s", plan->launches.count + launch->joined - 1,
                       kiln__plan_joins_later(plan) ? " once the batch has run often" : "");
    if (unjoined)
        kiln__text_add(text, ", by itself: %s", unjoined);
    kiln__names_append(names, index, ", for ", ", ", text);
}

static void explain_dependencies(const struct kiln__plan *plan, const struct kiln__plan_step *step,
                                 struct kiln__text *text)
{
    for (uint32_t i = 0; i < step->dependencies; i++)
        kiln__text_add(text, "%s %u", i ? "," : ", after",
                       plan->dependencies.items[step->first_dependency + i]);
    kiln__text_add(text, "\n");
}

static void explain_steps(const struct kiln__names *names, struct kiln__text *text)
{
    static const char *const kinds[] = {"upload", "launch", "download", "copy"};
    const struct kiln__plan *plan = names->plan;
    for (uint32_t i = 0; i < plan->steps.count; i++) {
        const struct kiln__plan_step *step = &plan->steps.items[i];
        kiln__text_add(text, "  %u: %s ", i, kinds[step->kind]);
        if (step->kind == KILN__STEP_LAUNCH)
            explain_launch(names, step->launch, text);
        else
            kiln__text_add(text, "slot %u #%u", step->slot, step->binding);
        explain_dependencies(plan, step, text);
    }
}

/* Whether an earlier launch has the same text. */
static bool is_shown(const struct kiln__text *texts, uint32_t index)
{
    for (uint32_t i = 0; i < index; i++)
        if (texts[i].length == texts[index].length && texts[i].data && texts[index].data &&
            !strcmp(texts[i].data, texts[index].data))
            return true;
    return false;
}

/* Whether it is a kernel of its own that does the launch, if not for good. */
static bool has_text(const struct kiln__plan *plan, uint32_t index)
{
    return !kiln__plan_launch_at(plan, index)->joined || kiln__plan_joins_later(plan);
}

/* Each text once, behind the launches that have it. */
static void explain_kernels(const struct kiln__plan *plan, struct kiln__text *text)
{
    size_t count = kiln__plan_launches(plan);
    struct kiln__text *texts = calloc(count + 1, sizeof *texts);
    for (uint32_t i = 0; i < count && texts; i++)
        if (has_text(plan, i))
            kiln__codegen_show(plan, kiln__plan_launch_at(plan, i), &texts[i]);
    for (uint32_t i = 0; i < count && texts; i++) {
        if (is_shown(texts, i) || !has_text(plan, i))
            continue;
        kiln__text_add(text, "/* launch %u", i);
        for (uint32_t k = i + 1; k < count; k++)
            if (texts[k].length == texts[i].length && texts[k].data && texts[i].data &&
                !strcmp(texts[k].data, texts[i].data))
                kiln__text_add(text, ", %u", k);
        kiln__text_add(text, " */\n%s", texts[i].data ? texts[i].data : "");
    }
    for (size_t i = 0; i < count && texts; i++)
        kiln__text_free(&texts[i]);
    text->failed = text->failed || !texts;
    free(texts);
}

void kiln__explain(const struct kiln__graph *recorded, const struct kiln__text *log,
                   const struct kiln__plan *plan, struct kiln__text *text)
{
    struct kiln__names names;
    kiln__names_make(plan, recorded->labels, &names);
    kiln__text_add(text, "== recorded ==\n");
    kiln__graph_dump(recorded, text);
    kiln__text_add(text, "== passes ==\n%s", log->data ? log->data : "");
    kiln__text_add(text, "== graph ==\n");
    kiln__graph_dump(&plan->fusion.graph, text);
    kiln__text_add(text, "== values ==\n");
    explain_values(plan, text);
    kiln__text_add(text, "== groups ==\n");
    for (uint32_t i = 0; i < plan->fusion.groups.count; i++) {
        kiln__text_add(text, "  group %u: ", i);
        kiln__group_dump(&plan->fusion.groups.items[i], text);
    }
    kiln__text_add(text, "== memory ==\n");
    explain_slots(plan, text);
    kiln__text_add(text, "== steps ==\n");
    explain_steps(&names, text);
    kiln__text_add(text, "== kernels ==\n");
    explain_kernels(plan, text);
    kiln__names_free(&names);
}

static void explain_as(const char *variant, const struct kiln__graph *recorded,
                       const struct kiln__text *log, const struct kiln__plan *plan,
                       struct kiln__text *text)
{
    if (variant && !strcmp(variant, "summary"))
        kiln__explain_summary(recorded, plan, text);
    else if (variant && !strcmp(variant, "json"))
        kiln__explain_json(recorded, plan, text);
    else
        kiln__explain(recorded, log, plan, text);
}

void kiln__explain_to(const char *path, const char *variant, const struct kiln__graph *recorded,
                      const struct kiln__text *log, const struct kiln__plan *plan)
{
    struct kiln__text text = {0};
    explain_as(variant, recorded, log, plan, &text);
    int fd = strcmp(path, "-") ? kiln__open_to_append(path, 0666) : -1;
    FILE *file = !strcmp(path, "-") ? stderr : fd >= 0 ? fdopen(fd, "a") : NULL;
    bool written = file && fprintf(file, "%s\n", text.data ? text.data : "") >= 0;
    if (file && file != stderr)
        written = fclose(file) == 0 && written;
    if (!written)
        KILN__LOG(KILN__LOG_ERROR, "cannot write explanations to %s: %s", path, strerror(errno));
    kiln__text_free(&text);
}
