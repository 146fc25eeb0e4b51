/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of one micro-batch graph: its bindings are slices of the batch's own along the batch
 * axis. */
#include "api/micro_batch_plan.h"

#include <stdlib.h>

#include "runtime/executable.h"
#include "runtime/memory_pool.h"
#include "session/context.h"

size_t kiln__section_first(const struct kiln__section *section, size_t number)
{
    size_t first = section->first + number * section->what.part;
    return section->rows - first < section->what.part ? section->rows - section->what.part : first;
}

/* Uploads of earlier runs may be under way while later ones are enqueued: each has its own. */
static kiln_status list_numbers(struct kiln__section *section, struct kiln__error *error)
{
    size_t inputs = section->cut.inputs.count;
    section->numbers = calloc(section->count * inputs + 1, sizeof *section->numbers);
    if (!section->numbers)
        return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to plan the batch");
    for (size_t i = 0; i < section->count * inputs; i++)
        section->numbers[i] = (int32_t)(kiln__section_first(section, i / inputs) *
                                        section->cut.inputs.items[i % inputs].numbers);
    return KILN_OK;
}

kiln_status kiln__section_label(const kiln_batch *batch, struct kiln__section *section,
                                struct kiln__error *error)
{
    struct kiln__labels labels = batch->labels;
    size_t count = section->cut.of.count;
    struct kiln__label *own = calloc(count + 1, sizeof *own);
    if (!own)
        return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to run the batch");
    for (size_t i = 0; i < count; i++)
        own[i] = labels.nodes.items[section->cut.of.items[i]];
    free(section->labels.nodes.items);
    section->labels = labels;
    section->labels.nodes.items = own;
    section->labels.nodes.count = section->labels.nodes.capacity = count;
    section->cut.graph.labels = &section->labels;
    return KILN_OK;
}

kiln_status kiln__section_make(const kiln_batch *batch, const struct kiln__division *division,
                               struct kiln__section *section, struct kiln__error *error)
{
    section->rows = division->rows;
    if (!kiln__cut_make(division, &section->what, &section->cut))
        return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to plan the batch");
    kiln_status status = list_numbers(section, error);
    return status ? status : kiln__section_label(batch, section, error);
}

void kiln__section_free(struct kiln__plan_cache *cache, struct kiln__section *section)
{
    kiln__plan_cache_return(cache, &section->lease);
    kiln__cut_free(&section->cut);
    free(section->labels.nodes.items);
    free(section->numbers);
    *section = (struct kiln__section){0};
}

/* ---- memory ---- */

static uint64_t rows_of(const struct kiln__section *section, const struct kiln__binding *binding)
{
    return binding->bytes / section->rows * section->what.part;
}

/* A result that goes over an input, and is not computed there, is kept aside until then. */
static bool is_kept_aside(const struct kiln__section *section, size_t result)
{
    const struct kiln__plan *plan = section->lease.plan;
    for (size_t i = 0; i < plan->slots.count; i++)
        if (plan->slots.items[i].place == KILN__PLACE_RESULT &&
            plan->slots.items[i].binding == result && plan->slots.items[i].in_place)
            return false;
    return section->cut.graph.requests.items[result].replaces;
}

/* Rows of buffers are copied on their way. */
uint64_t kiln__section_room(const kiln_batch *batch, const struct kiln__section *section,
                            uint64_t others)
{
    const struct kiln__bindings *bindings = &batch->bindings;
    for (size_t i = 0; i < section->cut.inputs.count; i++) {
        const struct kiln__cut_input *input = &section->cut.inputs.items[i];
        if (input->rows && !bindings->inputs.items[input->binding].host)
            others += kiln__pool_rounded(rows_of(section, &bindings->inputs.items[input->binding]));
    }
    for (size_t i = 0; i < section->cut.results.count; i++) {
        const struct kiln__cut_result *result = &section->cut.results.items[i];
        const struct kiln__binding *binding = &bindings->results.items[result->binding];
        uint32_t node = section->cut.graph.requests.items[i].node;
        if (result->rows && !binding->host)
            others += kiln__pool_rounded(rows_of(section, binding));
        else if (is_kept_aside(section, i))
            others += kiln__pool_rounded(kiln__node_bytes(&section->cut.graph.nodes.items[node]));
    }
    return kiln__executable_room(section->lease.plan, others);
}

/* ---- what a run reads and writes ---- */

static void cut_binding(const struct kiln__section *section, struct kiln__binding *binding,
                        size_t first)
{
    size_t row = binding->bytes / section->rows;
    binding->bytes = row * section->what.part;
    binding->is_part = true;
    if (binding->host)
        binding->host = (char *)binding->host + row * first;
    else
        binding->offset = row * first;
}

/* A wrapper around host memory is each one's own. */
static struct kiln__binding copy_binding(const struct kiln__binding *from)
{
    struct kiln__binding to = *from;
    to.memory = from->host ? NULL : from->memory;
    return to;
}

static struct kiln__binding bind_input(const kiln_batch *batch, const struct kiln__section *section,
                                       size_t number, size_t i, const struct kiln__binding *sums)
{
    const struct kiln__cut_input *input = &section->cut.inputs.items[i];
    if (input->sum)
        return sums[input->sum - 1];
    if (input->numbers)
        return (struct kiln__binding){.host =
                                          &section->numbers[number * section->cut.inputs.count + i],
                                      .bytes = sizeof *section->numbers,
                                      .item = sizeof *section->numbers};
    struct kiln__binding binding = copy_binding(&batch->bindings.inputs.items[input->binding]);
    if (input->rows)
        cut_binding(section, &binding, kiln__section_first(section, number));
    return binding;
}

static struct kiln__binding bind_result(const kiln_batch *batch,
                                        const struct kiln__section *section, size_t number,
                                        size_t i, const struct kiln__binding *sums)
{
    const struct kiln__cut_result *result = &section->cut.results.items[i];
    if (result->sum)
        return sums[result->sum - 1];
    struct kiln__binding binding = copy_binding(&batch->bindings.results.items[result->binding]);
    if (result->rows)
        cut_binding(section, &binding, kiln__section_first(section, number));
    return binding;
}

bool kiln__section_bind(const kiln_batch *batch, const struct kiln__section *section, size_t number,
                        const struct kiln__binding *sums, struct kiln__bindings *bindings)
{
    for (size_t i = 0; i < section->cut.inputs.count; i++) {
        struct kiln__binding *binding = kiln__vector_push(&bindings->inputs);
        if (!binding)
            return false;
        *binding = bind_input(batch, section, number, i, sums);
    }
    for (size_t i = 0; i < section->cut.results.count; i++) {
        struct kiln__binding *binding = kiln__vector_push(&bindings->results);
        if (!binding)
            return false;
        *binding = bind_result(batch, section, number, i, sums);
    }
    bindings->labels = &section->labels;
    return true;
}
