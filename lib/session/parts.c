/* SPDX-License-Identifier: Apache-2.0 */
#include "session/parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "graph/cut.h"
#include "runtime/commands.h"
#include "runtime/pool.h"
#include "session/context.h"
#include "session/expose.h"
#include "session/values.h"

/* With one row alone sums may take another order (kiln_batch_sum_alike()). */
#define FEWEST_ROWS 2

struct kiln__parts {
    size_t rows,
        part; /* of the batch; of one part. The last one begins so that it ends with them */
    struct kiln__cut cut;
    struct kiln__labels labels; /* of the cut's nodes: the batch's, of which only `nodes` is ours */
    int32_t *numbers;           /* per part, each input of the cut that is none of the batch's */
    struct kiln__lease lease;
    struct kiln__bindings bindings; /* of the part that is being run */
};

/* ---- how many rows fit ---- */

static kiln_status refuse(const kiln_batch *batch, const char *why, const struct kiln__text *what,
                          struct kiln__error *error)
{
    const struct kiln__budget *budget = &batch->context->runtime.memory;
    bool limited = budget->limit < budget->device_memory;
    return kiln__fail(error, KILN_OUT_OF_DEVICE_MEMORY,
                      "kiln: no %" PRIu64 " bytes of device memory; the %s has %" PRIu64
                      ", and the batch cannot run in parts: %s%s",
                      kiln__executable_room(batch->lease.plan, 0),
                      limited ? "pool's limit" : "device", budget->limit, why,
                      what && what->data ? what->data : "");
}

static kiln_status refuse_node(const kiln_batch *batch, uint32_t node, struct kiln__error *error)
{
    struct kiln__text text = {0};
    kiln__node_dump(&batch->graph, node, &text);
    while (text.length && text.data[text.length - 1] == '\n')
        text.data[--text.length] = 0;
    kiln_status status =
        refuse(batch, "each of its rows would need all of an operand's in ", &text, error);
    kiln__text_free(&text);
    return status;
}

static size_t count_parts(const struct kiln__parts *parts)
{
    return (parts->rows + parts->part - 1) / parts->part;
}

/* The row that a part begins with. */
static size_t first_of(const struct kiln__parts *parts, size_t number)
{
    size_t first = number * parts->part;
    return parts->rows - first < parts->part ? parts->rows - parts->part : first;
}

/* Uploads of earlier parts may be under way while later ones are enqueued: each has its own. */
static kiln_status list_numbers(struct kiln__parts *parts, struct kiln__error *error)
{
    size_t inputs = parts->cut.inputs.count, count = count_parts(parts);
    free(parts->numbers);
    parts->numbers = calloc(count * inputs + 1, sizeof *parts->numbers);
    if (!parts->numbers)
        return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to plan the batch");
    for (size_t i = 0; i < count * inputs; i++)
        parts->numbers[i] =
            (int32_t)(first_of(parts, i / inputs) * parts->cut.inputs.items[i % inputs].numbers);
    return KILN_OK;
}

/* Names may have come or gone since. */
static kiln_status label(const kiln_batch *batch, struct kiln__parts *parts,
                         struct kiln__error *error)
{
    struct kiln__labels labels = batch->labels;
    size_t count = parts->cut.of.count;
    struct kiln__label *own = calloc(count + 1, sizeof *own);
    if (!own)
        return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to run the batch");
    for (size_t i = 0; i < count; i++)
        own[i] = labels.nodes.items[parts->cut.of.items[i]];
    free(parts->labels.nodes.items);
    parts->labels = labels;
    parts->labels.nodes.items = own;
    parts->labels.nodes.count = parts->labels.nodes.capacity = count;
    parts->cut.graph.labels = &parts->labels;
    return KILN_OK;
}

/* The graph for `part` rows. */
static kiln_status cut(const kiln_batch *batch, struct kiln__parts *parts, size_t part,
                       struct kiln__error *error)
{
    kiln__cut_free(&parts->cut);
    parts->part = part;
    switch (kiln__cut_make(&batch->graph, parts->rows, part, &parts->cut)) {
    case KILN__CUT_IMPOSSIBLE: return refuse_node(batch, parts->cut.wrong, error);
    case KILN__CUT_NO_MEMORY:
        return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to plan the batch");
    case KILN__CUT_DONE: break;
    }
    kiln_status status = list_numbers(parts, error);
    return status ? status : label(batch, parts, error);
}

/* The plan for `part` rows. */
static kiln_status try(kiln_batch *batch, struct kiln__parts *parts, size_t part,
                       struct kiln__error *error)
{
    struct kiln__plan_cache *cache = batch->context->plan_cache;
    kiln__plan_cache_return(cache, &parts->lease);
    kiln_status status = cut(batch, parts, part, error);
    return status ? status
                  : kiln__plan_cache_lease(cache, &parts->cut.graph, false, &parts->lease, error);
}

static uint64_t bounce_of(const struct kiln__parts *parts, const struct kiln__binding *binding)
{
    return kiln__pool_rounded(binding->bytes / parts->rows * parts->part);
}

/* What a part takes: rows of buffers are copied on their way. */
static uint64_t bytes_of(const kiln_batch *batch, const struct kiln__parts *parts)
{
    const struct kiln__bindings *bindings = &batch->bindings;
    uint64_t bytes = 0;
    for (size_t i = 0; i < parts->cut.inputs.count; i++) {
        const struct kiln__cut_input *input = &parts->cut.inputs.items[i];
        if (input->rows && !bindings->inputs.items[input->binding].host)
            bytes += bounce_of(parts, &bindings->inputs.items[input->binding]);
    }
    for (size_t i = 0; i < bindings->results.count; i++)
        if (!bindings->results.items[i].host)
            bytes += bounce_of(parts, &bindings->results.items[i]);
    return kiln__executable_room(parts->lease.plan, bytes);
}

/* Memory grows with rows, but for what has none: the first guess is mostly right. */
static kiln_status find_part(kiln_batch *batch, struct kiln__parts *parts,
                             struct kiln__error *error)
{
    uint64_t limit = batch->context->runtime.memory.limit,
             bytes = kiln__executable_room(batch->lease.plan, 0);
    size_t part = parts->rows;
    kiln_status status = KILN_OK;
    while (bytes > limit && !status) {
        size_t fewer = (size_t)((double)part * (double)limit / (double)bytes);
        if (part <= FEWEST_ROWS)
            return refuse(batch, "a part of two rows needs too much as well", NULL, error);
        part = fewer < part ? fewer : part - 1;
        part = part < FEWEST_ROWS ? FEWEST_ROWS : part;
        status = try(batch, parts, part, error);
        bytes = status ? 0 : bytes_of(batch, parts);
    }
    return status;
}

/* ---- what a part reads and writes ---- */

/* A wrapper around host memory is each one's own. */
static bool copy_binding(const struct kiln__binding *from, struct kiln__binding *to)
{
    if (!to)
        return false;
    *to = *from;
    to->memory = from->host ? NULL : from->memory;
    return true;
}

static bool copy_bindings(const kiln_batch *batch, struct kiln__parts *parts, size_t number)
{
    const struct kiln__bindings *from = &batch->bindings;
    size_t inputs = parts->cut.inputs.count;
    bool copied = true;
    for (size_t i = 0; i < inputs && copied; i++) {
        const struct kiln__cut_input *input = &parts->cut.inputs.items[i];
        const struct kiln__binding own = {.host = &parts->numbers[number * inputs + i],
                                          .bytes = sizeof *parts->numbers,
                                          .item = sizeof *parts->numbers};
        copied = copy_binding(input->numbers ? &own : &from->inputs.items[input->binding],
                              kiln__vector_push(&parts->bindings.inputs));
    }
    for (size_t i = 0; i < from->results.count && copied; i++)
        copied = copy_binding(&from->results.items[i], kiln__vector_push(&parts->bindings.results));
    return copied;
}

static void cut_binding(const struct kiln__parts *parts, struct kiln__binding *binding,
                        size_t first)
{
    size_t row = binding->bytes / parts->rows;
    binding->bytes = row * parts->part;
    binding->is_part = true;
    if (binding->host)
        binding->host = (char *)binding->host + row * first;
    else
        binding->offset = row * first;
}

static bool bind(const kiln_batch *batch, struct kiln__parts *parts, size_t number)
{
    size_t first = first_of(parts, number);
    if (!copy_bindings(batch, parts, number))
        return false;
    for (size_t i = 0; i < parts->bindings.inputs.count; i++)
        if (parts->cut.inputs.items[i].rows)
            cut_binding(parts, &parts->bindings.inputs.items[i], first);
    for (size_t i = 0; i < parts->bindings.results.count; i++)
        cut_binding(parts, &parts->bindings.results.items[i], first);
    parts->bindings.labels = &parts->labels;
    return true;
}

/* ---- the whole ---- */

static void free_contents(struct kiln__parts *parts)
{
    kiln__cut_free(&parts->cut);
    free(parts->labels.nodes.items);
    free(parts->numbers);
}

void kiln__parts_free(struct kiln__plan_cache *cache, struct kiln__parts *parts)
{
    if (!parts)
        return;
    kiln__plan_cache_return(cache, &parts->lease);
    free_contents(parts);
    free(parts);
}

kiln_status kiln__parts_make(kiln_batch *batch, struct kiln__parts **made,
                             struct kiln__error *error)
{
    struct kiln__parts *parts = calloc(1, sizeof *parts);
    kiln_status status = KILN_OK;
    *made = NULL;
    if (!parts)
        return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to plan the batch");
    parts->rows = kiln__cut_rows(&batch->graph);
    if (parts->rows < FEWEST_ROWS)
        status = refuse(batch, "its results have no rows in common", NULL, error);
    if (!status)
        status = find_part(batch, parts, error);
    if (status)
        kiln__parts_free(batch->context->plan_cache, parts);
    else
        *made = parts;
    return status;
}

/* ---- results in the memory of operands ---- */

/* Whether a result only goes over the rows of operands that its own rows are made from. */
static bool is_in_place(const kiln_batch *batch, const struct kiln__parts *parts, size_t number)
{
    const struct kiln__bindings *bindings = &batch->bindings;
    const struct kiln__binding *result = &bindings->results.items[number];
    for (size_t i = 0; i < bindings->results.count; i++)
        if (i != number && kiln__bindings_overlap(result, &bindings->results.items[i]))
            return false;
    for (size_t i = 0; i < parts->cut.inputs.count; i++) {
        const struct kiln__cut_input *input = &parts->cut.inputs.items[i];
        const struct kiln__binding *operand = &bindings->inputs.items[input->binding];
        if (!input->numbers && kiln__bindings_overlap(result, operand) &&
            (!input->rows || operand->host != result->host || operand->bytes != result->bytes))
            return false;
    }
    return true;
}

/* No row may be in two parts: it would be made from what the first has left. */
static kiln_status make_equal(kiln_batch *batch, struct kiln__parts *parts,
                              struct kiln__error *error)
{
    size_t part = parts->part;
    while (part >= FEWEST_ROWS && parts->rows % part)
        part--;
    if (part < FEWEST_ROWS)
        return refuse(batch, "a result is left where an operand is, and no parts are equal", NULL,
                      error);
    return part == parts->part ? KILN_OK : try(batch, parts, part, error);
}

/* What one part writes another one would read, unless these are the same rows. */
static kiln_status check_overlaps(kiln_batch *batch, struct kiln__parts *parts,
                                  struct kiln__error *error)
{
    bool any = false;
    if (!kiln__bindings_check(&batch->bindings))
        return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to run the batch");
    for (size_t i = 0; i < batch->bindings.results.count; i++) {
        bool overlaps = batch->bindings.results.items[i].overlaps;
        if (overlaps && !is_in_place(batch, parts, i))
            return refuse(batch, "a result is left where an operand is, or another result", NULL,
                          error);
        any = any || overlaps;
    }
    kiln_status status = any ? make_equal(batch, parts, error) : KILN_OK;
    if (!status && !parts->lease.executable) /* the run before could not have it */
        status = try(batch, parts, parts->part, error);
    return status || parts->lease.executable
               ? status
               : refuse(batch, "a part needs too much as well", NULL, error);
}

/* ---- looking at values ---- */

/* What looks like a batch of these rows. */
static kiln_batch batch_of(const kiln_batch *batch, const struct kiln__parts *parts)
{
    return (kiln_batch){.context = batch->context,
                        .graph = parts->cut.graph,
                        .bindings = parts->bindings,
                        .unvalidated = batch->unvalidated};
}

/* Fewer rows at a time than of a run: every value is held at once. */
static kiln_status find_fewer(const kiln_batch *batch, struct kiln__parts *parts, size_t part,
                              struct kiln__error *error)
{
    kiln_status status = cut(batch, parts, part, error);
    kiln_batch rows = batch_of(batch, parts);
    while (!status && parts->part > 1 && !kiln__exposure_fits(&rows, NULL)) {
        status = cut(batch, parts, parts->part / 2, error);
        rows = batch_of(batch, parts);
    }
    return status;
}

static kiln_status check_part(const kiln_batch *batch, struct kiln__parts *parts, size_t number,
                              const char *call, struct kiln__error *error)
{
    char said[96];
    size_t first = first_of(parts, number);
    snprintf(said, sizeof said, "%s, rows %zu to %zu of %zu", call, first, first + parts->part - 1,
             parts->rows);
    kiln_status status = KILN_OK;
    if (!bind(batch, parts, number))
        status = kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to run the batch");
    kiln_batch rows = batch_of(batch, parts);
    if (!status)
        status = kiln__values_check(&rows, parts->cut.of.items, said, error);
    kiln__bindings_free(&parts->bindings);
    return status;
}

kiln_status kiln__parts_check_values(const kiln_batch *batch, const struct kiln__parts *parts,
                                     const char *call, struct kiln__error *error)
{
    struct kiln__parts fewer = {.rows = parts->rows};
    kiln_status status = find_fewer(batch, &fewer, parts->part, error);
    for (size_t number = 0; !status && number < count_parts(&fewer); number++)
        status = check_part(batch, &fewer, number, call, error);
    free_contents(&fewer);
    return status;
}

/* ---- running ---- */

kiln_status kiln__parts_run(kiln_batch *batch, struct kiln__parts *parts,
                            struct kiln__stream *stream, struct kiln__run **run,
                            struct kiln__error *error)
{
    kiln_status status = check_overlaps(batch, parts, error);
    struct kiln__run *made = NULL;
    *run = NULL;
    if (!status)
        status = label(batch, parts, error);
    for (size_t number = 0; !status && number < count_parts(parts); number++) {
        if (!bind(batch, parts, number))
            status = kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to run the batch");
        if (!status)
            status =
                kiln__commands_run(parts->lease.executable, stream, &parts->bindings, &made, error);
        kiln__bindings_free(&parts->bindings);
        if (*run && !status)
            kiln__runs_add(*run);
        kiln__run_release(status ? NULL : *run);
        *run = status ? *run : made;
    }
    if (status && *run) { /* nothing of it is under way any more */
        kiln__run_await(*run, "kiln", NULL);
        kiln__run_release(*run);
        *run = NULL;
    }
    return status;
}
