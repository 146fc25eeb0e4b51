/* SPDX-License-Identifier: Apache-2.0 */
/* Choice of the micro-batch size by memory, and the run of all micro-batches, phase by phase;
 * partial sums stay on the device between them. */
#include "api/micro_batches.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/micro_batch_plan.h"
#include "debug/intermediates.h"
#include "debug/nan_check.h"
#include "runtime/commands.h"
#include "runtime/memory_pool.h"
#include "session/context.h"
#include "util/log.h"

/* With one row alone sums may take another order (kiln_batch_set_batch_invariant()). */
#define FEWEST_INVARIANT 2

/* Divisions that are tried: by the rows of these inputs. */
#define MOST_TRIED 3

struct kiln__micro_batches {
    struct kiln__partition partition;
    size_t part;                                       /* rows of most runs */
    KILN__VECTOR(struct kiln__micro_batch_plan) plans; /* in the order in which they run */
    struct kiln__bindings bindings;                    /* of the run that is being enqueued */
};

/* Why there are no parts. */
struct reason {
    const char *why;
    uint32_t node; /* that it is about, or KILN__MICRO_BATCH_FINE */
};

/* ---- what there is to say ---- */

static kiln_status micro_batches_refuse(const kiln_batch *batch, const struct reason *reason,
                                        struct kiln__error *error)
{
    const struct kiln__budget *budget = &batch->context->runtime.memory;
    bool limited = budget->limit < budget->device_memory;
    struct kiln__text text = {0};
    if (reason->node != KILN__MICRO_BATCH_FINE)
        kiln__node_dump(&batch->graph, reason->node, &text);
    while (text.length && text.data[text.length - 1] == '\n')
        text.data[--text.length] = 0;
    kiln_status status =
        kiln__fail(error, KILN_OUT_OF_DEVICE_MEMORY,
                   "kiln: no %" PRIu64 " bytes of device memory; the %s has %" PRIu64
                   ", and the batch cannot run in parts: %s%s",
                   kiln__executable_room(batch->lease.plan, 0), limited ? "pool's limit" : "device",
                   budget->limit, reason->why, text.data ? text.data : "");
    kiln__text_free(&text);
    return status;
}

static kiln_status refuse_plainly(const kiln_batch *batch, const char *why,
                                  struct kiln__error *error)
{
    return micro_batches_refuse(batch, &(struct reason){why, KILN__MICRO_BATCH_FINE}, error);
}

static kiln_status no_memory(struct kiln__error *error)
{
    return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to run the batch");
}

/* ---- the sections ---- */

static void free_sections(struct kiln__plan_cache *cache, struct kiln__micro_batches *parts)
{
    for (size_t i = 0; i < parts->plans.count; i++)
        kiln__micro_batch_plan_free(cache, &parts->plans.items[i]);
    parts->plans.count = 0;
}

/* A section with nothing to do is none. */
static kiln_status add_section(kiln_batch *batch, struct kiln__micro_batches *parts,
                               const struct kiln__micro_batch_plan *what, struct kiln__error *error)
{
    struct kiln__plan_cache *cache = batch->context->plan_cache;
    struct kiln__micro_batch_plan *part_plan = kiln__vector_push(&parts->plans);
    if (!part_plan)
        return no_memory(error);
    *part_plan = *what;
    kiln_status status = kiln__micro_batch_plan_make(batch, &parts->partition, part_plan, error);
    if (!status && part_plan->cut.results.count)
        return KILN_OK;
    kiln__micro_batch_plan_free(cache, part_plan);
    parts->plans.count--;
    return status;
}

/* Sums take each row once: what is left of equal parts is a part of its own. Without them it begins
 * within the one before, as it has the same size then. */
static kiln_status add_phase(kiln_batch *batch, struct kiln__micro_batches *parts, uint32_t phase,
                             struct kiln__error *error)
{
    const size_t rows = parts->partition.rows, part = parts->part, left = rows % part;
    bool once = parts->partition.n_sums;
    const struct kiln__micro_batch_plan begin = {.what = {KILN__MICRO_BATCH_BEGIN, phase, 0},
                                                 .count = 1};
    const struct kiln__micro_batch_plan equal = {.what = {KILN__MICRO_BATCH_ROWS, phase, part},
                                                 .count = rows / part + (left && !once)};
    const struct kiln__micro_batch_plan rest = {
        .what = {KILN__MICRO_BATCH_ROWS, phase, left}, .first = rows - left, .count = 1};
    kiln_status status = add_section(batch, parts, &begin, error);
    if (!status)
        status = add_section(batch, parts, &equal, error);
    return status || !left || !once ? status : add_section(batch, parts, &rest, error);
}

/* All sections of `part` rows, without plans. */
static kiln_status micro_batches_cut(kiln_batch *batch, struct kiln__micro_batches *parts,
                                     size_t part, struct kiln__error *error)
{
    const struct kiln__micro_batch_plan end = {.what = {.kind = KILN__MICRO_BATCH_END}, .count = 1};
    kiln_status status = KILN_OK;
    free_sections(batch->context->plan_cache, parts);
    parts->part = part;
    for (uint32_t phase = 0; phase < parts->partition.phases && !status; phase++)
        status = add_phase(batch, parts, phase, error);
    return status ? status : add_section(batch, parts, &end, error);
}

static uint64_t bytes_of_sums(const struct kiln__micro_batches *parts)
{
    const struct kiln__partition *partition = &parts->partition;
    uint64_t bytes = 0;
    for (size_t i = 0; i < partition->n_sums; i++)
        bytes += kiln__pool_rounded(
            kiln__node_bytes(&partition->graph->nodes.items[partition->sums[i]]));
    return bytes;
}

/* Plans for `part` rows, and what the largest takes. Those behind one that does not fit are not
 * asked. */
static kiln_status micro_batches_try(kiln_batch *batch, struct kiln__micro_batches *parts,
                                     size_t part, uint64_t *bytes, struct reason *reason,
                                     struct kiln__error *error)
{
    struct kiln__plan_cache *cache = batch->context->plan_cache;
    const uint64_t limit = batch->context->runtime.memory.limit, sums = bytes_of_sums(parts);
    kiln_status status = micro_batches_cut(batch, parts, part, error);
    *bytes = 0;
    for (size_t i = 0; i < parts->plans.count && !status && *bytes <= limit; i++) {
        struct kiln__micro_batch_plan *part_plan = &parts->plans.items[i];
        status =
            kiln__plan_cache_lease(cache, &part_plan->cut.graph, false, &part_plan->lease, error);
        uint64_t own = status ? 0 : kiln__micro_batch_plan_room(batch, part_plan, sums);
        *bytes = own > *bytes ? own : *bytes;
        if (own > limit && part_plan->cut.wrong != KILN__MICRO_BATCH_FINE)
            *reason = (struct reason){"each of its rows would need all of an operand's in ",
                                      part_plan->cut.wrong};
    }
    return status;
}

/* ---- how many rows fit ---- */

static bool delivers_rows(const struct kiln__micro_batches *parts)
{
    const struct kiln__graph *graph = parts->partition.graph;
    for (size_t i = 0; i < graph->requests.count; i++)
        if (kiln__partition_axis(&parts->partition, graph->requests.items[i].node) >= 0)
            return true;
    return false;
}

static uint32_t largest_sum(const struct kiln__micro_batches *parts)
{
    const struct kiln__partition *partition = &parts->partition;
    const struct kiln__node *nodes = partition->graph->nodes.items;
    uint32_t largest = partition->sums[0];
    for (size_t i = 1; i < partition->n_sums; i++)
        if (kiln__node_bytes(&nodes[partition->sums[i]]) > kiln__node_bytes(&nodes[largest]))
            largest = partition->sums[i];
    return largest;
}

/* Memory grows with rows, but for what has none: the first guess is mostly right. *fits is false
 * where no number of rows does. */
static kiln_status find_part(kiln_batch *batch, struct kiln__micro_batches *parts, bool *fits,
                             struct reason *reason, struct kiln__error *error)
{
    const uint64_t limit = batch->context->runtime.memory.limit, sums = bytes_of_sums(parts);
    uint64_t bytes = kiln__executable_room(batch->lease.plan, sums);
    size_t part = parts->partition.rows, fewest = delivers_rows(parts) ? FEWEST_INVARIANT : 1;
    kiln_status status = KILN_OK;
    *fits = false;
    *reason =
        sums >= limit
            ? (struct reason){"the sums over its rows do not fit, as of ", largest_sum(parts)}
        : fewest == 1
            ? (struct reason){"a part of one row needs too much as well", KILN__MICRO_BATCH_FINE}
            : (struct reason){"a part of two rows needs too much as well", KILN__MICRO_BATCH_FINE};
    while (bytes > limit && part > fewest && sums < limit && !status) {
        size_t fewer = (size_t)((double)part * (double)(limit - sums) / (double)(bytes - sums));
        part = fewer < part ? fewer : part - 1;
        part = part < fewest ? fewest : part;
        status = micro_batches_try(batch, parts, part, &bytes, reason, error);
    }
    *fits = bytes <= limit;
    return status;
}

/* ---- which rows ---- */

/* How many rows an input has; 0: none. */
static size_t rows_of_input(const struct kiln__node *node)
{
    uint32_t d = 0;
    while (d < node->shape.rank && node->shape.dims[d] == 1)
        d++;
    bool is = !node->n_inputs && node->kind != KILN__CONSTANT && d < node->shape.rank;
    return is ? node->shape.dims[d] : 0;
}

struct choice {
    size_t rows;
    double bytes; /* that are computed by these rows */
};

/* The numbers of rows by which most is computed, best first. */
static kiln_status micro_batches_choose(const kiln_batch *batch, struct choice chosen[MOST_TRIED],
                                        struct kiln__error *error)
{
    for (size_t i = 0; i < MOST_TRIED; i++)
        chosen[i] = (struct choice){0, -1};
    for (size_t i = 0; i < batch->graph.nodes.count; i++) {
        struct choice own = {rows_of_input(&batch->graph.nodes.items[i]), 0};
        struct kiln__partition partition;
        bool known = own.rows < 2;
        for (size_t k = 0; k < MOST_TRIED; k++)
            known = known || chosen[k].rows == own.rows;
        if (known)
            continue;
        bool made = kiln__partition_make(&batch->graph, own.rows, true, &partition);
        own.bytes = made ? kiln__partition_bytes(&partition) : 0;
        kiln__partition_free(&partition);
        if (!made)
            return no_memory(error);
        for (size_t k = 0; k < MOST_TRIED; k++)
            if (own.bytes > chosen[k].bytes) {
                struct choice worse = chosen[k];
                chosen[k] = own;
                own = worse;
            }
    }
    return KILN_OK;
}

/* Divide by so many rows. */
static kiln_status micro_batches_divide(kiln_batch *batch, struct kiln__micro_batches *parts,
                                        size_t rows, bool with_sums, struct kiln__error *error)
{
    free_sections(batch->context->plan_cache, parts);
    kiln__partition_free(&parts->partition);
    return kiln__partition_make(&batch->graph, rows, with_sums, &parts->partition)
               ? KILN_OK
               : no_memory(error);
}

static bool all_by_rows(const struct kiln__micro_batches *parts)
{
    const struct kiln__graph *graph = parts->partition.graph;
    for (size_t i = 0; i < graph->requests.count; i++)
        if (kiln__partition_axis(&parts->partition, graph->requests.items[i].node) != 0)
            return false;
    return true;
}

/* Rows that all results have need no sums, and so change no bits; else those by which most is
 * computed. */
static kiln_status find_division(kiln_batch *batch, struct kiln__micro_batches *parts,
                                 struct kiln__error *error)
{
    struct reason reason = {"nothing in it has rows", KILN__MICRO_BATCH_FINE}, own;
    struct choice chosen[MOST_TRIED];
    size_t rows = kiln__micro_batch_rows(&batch->graph);
    bool fits = false;
    kiln_status status = micro_batches_choose(batch, chosen, error);
    if (!status && rows >= FEWEST_INVARIANT)
        status = micro_batches_divide(batch, parts, rows, false, error);
    if (!status && rows >= FEWEST_INVARIANT && all_by_rows(parts))
        status = find_part(batch, parts, &fits, &reason, error);
    for (size_t i = 0; i < MOST_TRIED && chosen[i].rows && !fits && !status; i++) {
        status = micro_batches_divide(batch, parts, chosen[i].rows, true, error);
        if (!status)
            status = find_part(batch, parts, &fits, &own, error);
        if (i == 0)
            reason = own;
    }
    return status || fits ? status : micro_batches_refuse(batch, &reason, error);
}

/* ---- the whole ---- */

static void free_contents(struct kiln__plan_cache *cache, struct kiln__micro_batches *parts)
{
    free_sections(cache, parts);
    kiln__vector_free(&parts->plans);
    kiln__partition_free(&parts->partition);
}

void kiln__micro_batches_free(struct kiln__plan_cache *cache, struct kiln__micro_batches *parts)
{
    if (parts)
        free_contents(cache, parts);
    free(parts);
}

kiln_status kiln__micro_batches_make(kiln_batch *batch, struct kiln__micro_batches **made,
                                     struct kiln__error *error)
{
    struct kiln__micro_batches *parts = calloc(1, sizeof *parts);
    *made = NULL;
    if (!parts)
        return no_memory(error);
    kiln_status status = find_division(batch, parts, error);
    if (status)
        kiln__micro_batches_free(batch->context->plan_cache, parts);
    else
        *made = parts;
    return status;
}

/* ---- results in the memory of operands ---- */

/* The phase in which a result is delivered by rows; phases: at the end. */
static uint32_t phase_of(const struct kiln__micro_batches *parts, size_t result)
{
    const struct kiln__partition *partition = &parts->partition;
    uint32_t node = partition->graph->requests.items[result].node;
    return kiln__partition_axis(partition, node) < 0 ? partition->phases : partition->level[node];
}

/* Whether a section leaves the operands alone that a result goes over, which some phase delivers by
 * rows, or reads no more of them than the rows that the result's are made from. */
static bool allows(const kiln_batch *batch, const struct kiln__micro_batch_plan *part_plan,
                   uint32_t phase, const struct kiln__binding *result)
{
    bool same = part_plan->what.kind == KILN__MICRO_BATCH_ROWS && part_plan->what.phase == phase;
    bool before =
        part_plan->what.kind != KILN__MICRO_BATCH_END && !same && part_plan->what.phase <= phase;
    for (size_t i = 0; i < part_plan->cut.inputs.count && !before; i++) {
        const struct kiln__micro_batch_input *input = &part_plan->cut.inputs.items[i];
        const struct kiln__binding *operand = &batch->bindings.inputs.items[input->binding];
        if (!input->numbers && !input->sum && kiln__bindings_overlap(result, operand) &&
            !(same && input->rows && operand->host == result->host &&
              operand->bytes == result->bytes))
            return false;
    }
    return true;
}

/* What comes at the end, all of it in one run, may go over anything. */
static bool is_in_place(const kiln_batch *batch, const struct kiln__micro_batches *parts,
                        size_t number)
{
    const struct kiln__bindings *bindings = &batch->bindings;
    const struct kiln__binding *result = &bindings->results.items[number];
    const uint32_t phase = phase_of(parts, number), end = parts->partition.phases;
    for (size_t i = 0; i < bindings->results.count; i++)
        if (i != number && (phase < end || phase_of(parts, i) < end) &&
            kiln__bindings_overlap(result, &bindings->results.items[i]))
            return false;
    for (size_t i = 0; i < parts->plans.count && phase < end; i++)
        if (!allows(batch, &parts->plans.items[i], phase, result))
            return false;
    return true;
}

static bool has_executables(const struct kiln__micro_batches *parts)
{
    for (size_t i = 0; i < parts->plans.count; i++)
        if (!parts->plans.items[i].lease.executable)
            return false;
    return true;
}

static kiln_status try_again(kiln_batch *batch, struct kiln__micro_batches *parts, size_t part,
                             struct kiln__error *error)
{
    struct reason reason = {"a part needs too much as well", KILN__MICRO_BATCH_FINE};
    uint64_t bytes;
    kiln_status status = micro_batches_try(batch, parts, part, &bytes, &reason, error);
    return status || has_executables(parts) ? status : micro_batches_refuse(batch, &reason, error);
}

/* No row may be in two parts: it would be made from what the first has left. */
static kiln_status make_equal(kiln_batch *batch, struct kiln__micro_batches *parts,
                              struct kiln__error *error)
{
    size_t part = parts->part;
    while (part >= FEWEST_INVARIANT && parts->partition.rows % part)
        part--;
    if (part < FEWEST_INVARIANT)
        return refuse_plainly(batch, "a result is left where an operand is, and no parts are equal",
                              error);
    return part == parts->part ? KILN_OK : try_again(batch, parts, part, error);
}

/* What one part writes another one would read, unless these are the same rows. */
static kiln_status check_overlaps(kiln_batch *batch, struct kiln__micro_batches *parts,
                                  struct kiln__error *error)
{
    bool any = false;
    if (!kiln__bindings_check(&batch->bindings))
        return no_memory(error);
    for (size_t i = 0; i < batch->bindings.results.count; i++) {
        bool overlaps = batch->bindings.results.items[i].overlaps;
        if (overlaps && !is_in_place(batch, parts, i))
            return refuse_plainly(batch, "a result is left where an operand is, or another result",
                                  error);
        any = any || overlaps;
    }
    kiln_status status =
        any && !parts->partition.n_sums ? make_equal(batch, parts, error) : KILN_OK;
    if (!status && !has_executables(parts)) /* the run before could not have one */
        status = try_again(batch, parts, parts->part, error);
    return status;
}

/* ---- looking at values ---- */

/* What looks like a batch of these rows. */
static kiln_batch batch_of(const kiln_batch *batch, const struct kiln__micro_batches *parts)
{
    return (kiln_batch){.context = batch->context,
                        .graph = parts->plans.items[0].cut.graph,
                        .bindings = parts->bindings,
                        .unvalidated = batch->unvalidated};
}

/* Fewer rows at a time than of a run: every value is held at once. */
static kiln_status find_fewer(kiln_batch *batch, struct kiln__micro_batches *parts, size_t part,
                              struct kiln__error *error)
{
    kiln_status status = micro_batches_cut(batch, parts, part, error);
    while (!status && parts->part > 1) {
        kiln_batch rows = batch_of(batch, parts);
        if (kiln__intermediates_fits(&rows, NULL))
            break;
        status = micro_batches_cut(batch, parts, parts->part / 2, error);
    }
    return status;
}

static kiln_status check_part(const kiln_batch *batch, struct kiln__micro_batches *parts,
                              size_t number, const char *call, struct kiln__error *error)
{
    char said[96];
    const struct kiln__micro_batch_plan *part_plan = &parts->plans.items[0];
    size_t first = kiln__micro_batch_plan_first(part_plan, number);
    snprintf(said, sizeof said, "%s, rows %zu to %zu of %zu", call, first, first + parts->part - 1,
             parts->partition.rows);
    kiln_status status = KILN_OK;
    if (!kiln__micro_batch_plan_bind(batch, part_plan, number, NULL, &parts->bindings))
        status = no_memory(error);
    kiln_batch rows = batch_of(batch, parts);
    if (!status)
        status = kiln__nan_check(&rows, part_plan->cut.of.items, said, error);
    kiln__bindings_free(&parts->bindings);
    return status;
}

kiln_status kiln__micro_batches_check_nan(kiln_batch *batch,
                                          const struct kiln__micro_batches *parts, const char *call,
                                          struct kiln__error *error)
{
    if (parts->partition.n_sums) {
        KILN__LOG(KILN__LOG_INFO, "values are not looked at: parts add up over rows");
        return KILN_OK;
    }
    struct kiln__micro_batches fewer = {0};
    kiln_status status = micro_batches_divide(batch, &fewer, parts->partition.rows, false, error);
    if (!status)
        status = find_fewer(batch, &fewer, parts->part, error);
    for (size_t number = 0; !status && number < fewer.plans.items[0].count; number++)
        status = check_part(batch, &fewer, number, call, error);
    free_contents(batch->context->plan_cache, &fewer);
    return status;
}

/* ---- running ---- */

/* Memory for all sums, which stays until everything is enqueued. */
static kiln_status take_sums(const struct kiln__micro_batches *parts, struct kiln__stream *stream,
                             struct kiln__binding *sums, struct kiln__error *error)
{
    const struct kiln__partition *partition = &parts->partition;
    kiln_status status = KILN_OK;
    for (size_t i = 0; i < partition->n_sums && !status; i++) {
        const struct kiln__node *node = &partition->graph->nodes.items[partition->sums[i]];
        sums[i].bytes = kiln__node_bytes(node);
        sums[i].item = sums[i].bytes / (kiln__node_count(node) ? kiln__node_count(node) : 1);
        if (sums[i].bytes)
            status = kiln__pool_take(stream->pool, sums[i].bytes, &sums[i].memory, error);
        sums[i].identity = (uintptr_t)sums[i].memory;
    }
    return status;
}

/* One run after the other; *run is the last one's. */
static kiln_status run_section(kiln_batch *batch, struct kiln__micro_batches *parts,
                               struct kiln__micro_batch_plan *part_plan,
                               const struct kiln__binding *sums, struct kiln__stream *stream,
                               struct kiln__run **run, struct kiln__error *error)
{
    struct kiln__run *made = NULL;
    kiln_status status = kiln__micro_batch_plan_label(batch, part_plan, error);
    for (size_t number = 0; !status && number < part_plan->count; number++) {
        if (!kiln__micro_batch_plan_bind(batch, part_plan, number, sums, &parts->bindings))
            status = no_memory(error);
        if (!status)
            status = kiln__commands_run(part_plan->lease.executable, stream, &parts->bindings,
                                        &made, error);
        kiln__bindings_free(&parts->bindings);
        if (*run && !status)
            kiln__runs_add(*run);
        kiln__run_release(status ? NULL : *run);
        *run = status ? *run : made;
    }
    return status;
}

kiln_status kiln__micro_batches_run(kiln_batch *batch, struct kiln__micro_batches *parts,
                                    struct kiln__stream *stream, struct kiln__run **run,
                                    struct kiln__error *error)
{
    size_t n_sums = parts->partition.n_sums;
    struct kiln__binding *sums = calloc(n_sums + 1, sizeof *sums);
    kiln_status status = sums ? check_overlaps(batch, parts, error) : no_memory(error);
    *run = NULL;
    if (!status)
        status = take_sums(parts, stream, sums, error);
    for (size_t i = 0; !status && i < parts->plans.count; i++)
        status = run_section(batch, parts, &parts->plans.items[i], sums, stream, run, error);
    if (status && *run) { /* nothing of it is under way any more */
        kiln__run_await(*run, "kiln", NULL);
        kiln__run_release(*run);
        *run = NULL;
    }
    for (size_t i = 0; sums && i < n_sums; i++)
        kiln__pool_give(stream->pool, sums[i].memory);
    free(sums);
    return status;
}
