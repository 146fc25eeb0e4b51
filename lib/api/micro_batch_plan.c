/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of one micro-batch graph: its bindings are slices of the batch's own along the batch
 * axis. */
#include "api/micro_batch_plan.h"

#include <stdlib.h>

#include "runtime/executable.h"
#include "runtime/memory_pool.h"
#include "session/context.h"

size_t kiln__micro_batch_plan_first(const struct kiln__micro_batch_plan *part_plan, size_t number)
{
    size_t first = part_plan->first + number * part_plan->what.part;
    return part_plan->rows - first < part_plan->what.part ? part_plan->rows - part_plan->what.part
                                                          : first;
}

/* Uploads of earlier runs may be under way while later ones are enqueued: each has its own. */
static kiln_status list_numbers(struct kiln__micro_batch_plan *part_plan, struct kiln__error *error)
{
    size_t inputs = part_plan->micro_graph.inputs.count;
    part_plan->numbers = calloc(part_plan->count * inputs + 1, sizeof *part_plan->numbers);
    if (!part_plan->numbers)
        return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to plan the batch");
    for (size_t i = 0; i < part_plan->count * inputs; i++)
        part_plan->numbers[i] = (int32_t)(kiln__micro_batch_plan_first(part_plan, i / inputs) *
                                          part_plan->micro_graph.inputs.items[i % inputs].numbers);
    return KILN_OK;
}

kiln_status kiln__micro_batch_plan_label(const kiln_batch *batch,
                                         struct kiln__micro_batch_plan *part_plan,
                                         struct kiln__error *error)
{
    struct kiln__labels labels = batch->labels;
    size_t count = part_plan->micro_graph.of.count;
    struct kiln__label *own = calloc(count + 1, sizeof *own);
    if (!own)
        return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to run the batch");
    for (size_t i = 0; i < count; i++)
        own[i] = labels.nodes.items[part_plan->micro_graph.of.items[i]];
    free(part_plan->labels.nodes.items);
    part_plan->labels = labels;
    part_plan->labels.nodes.items = own;
    part_plan->labels.nodes.count = part_plan->labels.nodes.capacity = count;
    part_plan->micro_graph.graph.labels = &part_plan->labels;
    return KILN_OK;
}

kiln_status kiln__micro_batch_plan_make(const kiln_batch *batch,
                                        const struct kiln__partition *partition,
                                        struct kiln__micro_batch_plan *part_plan,
                                        struct kiln__error *error)
{
    part_plan->rows = partition->rows;
    if (!kiln__micro_batch_graph_make(partition, &part_plan->what, &part_plan->micro_graph))
        return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to plan the batch");
    kiln_status status = list_numbers(part_plan, error);
    return status ? status : kiln__micro_batch_plan_label(batch, part_plan, error);
}

void kiln__micro_batch_plan_free(struct kiln__plan_cache *cache,
                                 struct kiln__micro_batch_plan *part_plan)
{
    kiln__plan_cache_return(cache, &part_plan->lease);
    kiln__micro_batch_graph_free(&part_plan->micro_graph);
    free(part_plan->labels.nodes.items);
    free(part_plan->numbers);
    *part_plan = (struct kiln__micro_batch_plan){0};
}

/* ---- memory ---- */

static uint64_t rows_of(const struct kiln__micro_batch_plan *part_plan,
                        const struct kiln__binding *binding)
{
    return binding->bytes / part_plan->rows * part_plan->what.part;
}

/* A result that goes over an input, and is not computed there, is kept aside until then. */
static bool is_kept_aside(const struct kiln__micro_batch_plan *part_plan, size_t result)
{
    const struct kiln__plan *plan = part_plan->lease.plan;
    for (size_t i = 0; i < plan->slots.count; i++)
        if (plan->slots.items[i].storage == KILN__STORAGE_RESULT &&
            plan->slots.items[i].binding == result && plan->slots.items[i].in_place)
            return false;
    return part_plan->micro_graph.graph.requests.items[result].replaces;
}

/* Rows of buffers are copied on their way. */
uint64_t kiln__micro_batch_plan_pool_bytes(const kiln_batch *batch,
                                           const struct kiln__micro_batch_plan *part_plan,
                                           uint64_t others)
{
    const struct kiln__bindings *bindings = &batch->bindings;
    for (size_t i = 0; i < part_plan->micro_graph.inputs.count; i++) {
        const struct kiln__micro_batch_input *input = &part_plan->micro_graph.inputs.items[i];
        if (input->rows && !bindings->inputs.items[input->binding].host)
            others +=
                kiln__pool_rounded(rows_of(part_plan, &bindings->inputs.items[input->binding]));
    }
    for (size_t i = 0; i < part_plan->micro_graph.results.count; i++) {
        const struct kiln__micro_batch_result *result = &part_plan->micro_graph.results.items[i];
        const struct kiln__binding *binding = &bindings->results.items[result->binding];
        uint32_t node = part_plan->micro_graph.graph.requests.items[i].node;
        if (result->rows && !binding->host)
            others += kiln__pool_rounded(rows_of(part_plan, binding));
        else if (is_kept_aside(part_plan, i))
            others += kiln__pool_rounded(
                kiln__node_bytes(&part_plan->micro_graph.graph.nodes.items[node]));
    }
    return kiln__executable_pool_bytes(part_plan->lease.plan, others);
}

/* ---- what a run reads and writes ---- */

static void slice_binding(const struct kiln__micro_batch_plan *part_plan,
                          struct kiln__binding *binding, size_t first)
{
    size_t row = binding->bytes / part_plan->rows;
    binding->bytes = row * part_plan->what.part;
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

static struct kiln__binding bind_input(const kiln_batch *batch,
                                       const struct kiln__micro_batch_plan *part_plan,
                                       size_t number, size_t i, const struct kiln__binding *sums)
{
    const struct kiln__micro_batch_input *input = &part_plan->micro_graph.inputs.items[i];
    if (input->sum)
        return sums[input->sum - 1];
    if (input->numbers)
        return (struct kiln__binding){
            .host = &part_plan->numbers[number * part_plan->micro_graph.inputs.count + i],
            .bytes = sizeof *part_plan->numbers,
            .item = sizeof *part_plan->numbers};
    struct kiln__binding binding = copy_binding(&batch->bindings.inputs.items[input->binding]);
    if (input->rows)
        slice_binding(part_plan, &binding, kiln__micro_batch_plan_first(part_plan, number));
    return binding;
}

static struct kiln__binding bind_result(const kiln_batch *batch,
                                        const struct kiln__micro_batch_plan *part_plan,
                                        size_t number, size_t i, const struct kiln__binding *sums)
{
    const struct kiln__micro_batch_result *result = &part_plan->micro_graph.results.items[i];
    if (result->sum)
        return sums[result->sum - 1];
    struct kiln__binding binding = copy_binding(&batch->bindings.results.items[result->binding]);
    if (result->rows)
        slice_binding(part_plan, &binding, kiln__micro_batch_plan_first(part_plan, number));
    return binding;
}

bool kiln__micro_batch_plan_bind(const kiln_batch *batch,
                                 const struct kiln__micro_batch_plan *part_plan, size_t number,
                                 const struct kiln__binding *sums, struct kiln__bindings *bindings)
{
    for (size_t i = 0; i < part_plan->micro_graph.inputs.count; i++)
        if (!kiln__vector_add(&bindings->inputs, bind_input(batch, part_plan, number, i, sums)))
            return false;
    for (size_t i = 0; i < part_plan->micro_graph.results.count; i++)
        if (!kiln__vector_add(&bindings->results, bind_result(batch, part_plan, number, i, sums)))
            return false;
    bindings->labels = &part_plan->labels;
    return true;
}

bool kiln__micro_batch_plan_allows(const kiln_batch *batch,
                                   const struct kiln__micro_batch_plan *part_plan, uint32_t phase,
                                   const struct kiln__binding *result)
{
    bool same = part_plan->what.kind == KILN__MICRO_BATCH_ROWS && part_plan->what.phase == phase;
    bool before =
        part_plan->what.kind != KILN__MICRO_BATCH_END && !same && part_plan->what.phase <= phase;
    for (size_t i = 0; i < part_plan->micro_graph.inputs.count && !before; i++) {
        const struct kiln__micro_batch_input *input = &part_plan->micro_graph.inputs.items[i];
        const struct kiln__binding *operand = &batch->bindings.inputs.items[input->binding];
        if (!input->numbers && !input->sum && kiln__bindings_overlap(result, operand) &&
            !(same && input->rows && operand->host == result->host &&
              operand->bytes == result->bytes))
            return false;
    }
    return true;
}
