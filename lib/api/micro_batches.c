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

struct kiln__micro_batches {
    struct kiln__partition partition;
    size_t part;                                       /* rows of most runs */
    KILN__VECTOR(struct kiln__micro_batch_plan) plans; /* in the order in which they run */
    struct kiln__bindings bindings;                    /* of the run that is being enqueued */
};

/* Why there are none. */
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
    kiln_status status = kiln__fail(
        error, KILN_OUT_OF_DEVICE_MEMORY,
        "kiln: no %" PRIu64 " bytes of device memory; the %s has %" PRIu64
        ", and the batch cannot run in parts: %s%s",
        kiln__executable_pool_bytes(batch->lease.plan, 0), limited ? "pool's limit" : "device",
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

static void free_sections(struct kiln__plan_cache *cache, struct kiln__micro_batches *micro)
{
    for (size_t i = 0; i < micro->plans.count; i++)
        kiln__micro_batch_plan_free(cache, &micro->plans.items[i]);
    micro->plans.count = 0;
}

/* A section with nothing to do is none. */
static kiln_status add_section(kiln_batch *batch, struct kiln__micro_batches *micro,
                               const struct kiln__micro_batch_plan *what, struct kiln__error *error)
{
    struct kiln__plan_cache *cache = batch->context->plan_cache;
    struct kiln__micro_batch_plan *part_plan = kiln__vector_push(&micro->plans);
    if (!part_plan)
        return no_memory(error);
    *part_plan = *what;
    kiln_status status = kiln__micro_batch_plan_make(batch, &micro->partition, part_plan, error);
    if (!status && part_plan->micro_graph.results.count)
        return KILN_OK;
    kiln__micro_batch_plan_free(cache, part_plan);
    micro->plans.count--;
    return status;
}

/* Sums take each row once: what is left of equal parts is a part of its own. Without them it begins
 * within the one before, as it has the same size then. */
static kiln_status add_phase(kiln_batch *batch, struct kiln__micro_batches *micro, uint32_t phase,
                             struct kiln__error *error)
{
    const size_t rows = micro->partition.rows, part = micro->part, left = rows % part;
    bool once = micro->partition.n_sums;
    const struct kiln__micro_batch_plan begin = {.what = {KILN__MICRO_BATCH_BEGIN, phase, 0},
                                                 .count = 1};
    const struct kiln__micro_batch_plan equal = {.what = {KILN__MICRO_BATCH_ROWS, phase, part},
                                                 .count = rows / part + (left && !once)};
    const struct kiln__micro_batch_plan rest = {
        .what = {KILN__MICRO_BATCH_ROWS, phase, left}, .first = rows - left, .count = 1};
    kiln_status status = add_section(batch, micro, &begin, error);
    if (!status)
        status = add_section(batch, micro, &equal, error);
    return status || !left || !once ? status : add_section(batch, micro, &rest, error);
}

/* All sections of `part` rows, without plans. */
static kiln_status micro_batches_partition(kiln_batch *batch, struct kiln__micro_batches *micro,
                                           size_t part, struct kiln__error *error)
{
    const struct kiln__micro_batch_plan end = {.what = {.kind = KILN__MICRO_BATCH_END}, .count = 1};
    kiln_status status = KILN_OK;
    free_sections(batch->context->plan_cache, micro);
    micro->part = part;
    for (uint32_t phase = 0; phase < micro->partition.phases && !status; phase++)
        status = add_phase(batch, micro, phase, error);
    return status ? status : add_section(batch, micro, &end, error);
}

static uint64_t bytes_of_sums(const struct kiln__micro_batches *micro)
{
    const struct kiln__partition *partition = &micro->partition;
    uint64_t bytes = 0;
    for (size_t i = 0; i < partition->n_sums; i++)
        bytes += kiln__pool_rounded(
            kiln__node_bytes(&partition->graph->nodes.items[partition->sums[i]]));
    return bytes;
}

/* Plans for `part` rows, and what the largest takes. Those behind one that does not fit are not
 * asked. */
static kiln_status micro_batches_try(kiln_batch *batch, struct kiln__micro_batches *micro,
                                     size_t part, uint64_t *bytes, struct reason *reason,
                                     struct kiln__error *error)
{
    struct kiln__plan_cache *cache = batch->context->plan_cache;
    const uint64_t limit = batch->context->runtime.memory.limit, sums = bytes_of_sums(micro);
    kiln_status status = micro_batches_partition(batch, micro, part, error);
    *bytes = 0;
    for (size_t i = 0; i < micro->plans.count && !status && *bytes <= limit; i++) {
        struct kiln__micro_batch_plan *part_plan = &micro->plans.items[i];
        status = kiln__plan_cache_lease(cache, &part_plan->micro_graph.graph, false,
                                        &part_plan->lease, error);
        uint64_t own = status ? 0 : kiln__micro_batch_plan_pool_bytes(batch, part_plan, sums);
        *bytes = own > *bytes ? own : *bytes;
        if (own > limit && part_plan->micro_graph.wrong != KILN__MICRO_BATCH_FINE)
            *reason = (struct reason){"each of its rows would need all of an operand's in ",
                                      part_plan->micro_graph.wrong};
    }
    return status;
}

/* ---- how many rows fit ---- */

static uint32_t largest_sum(const struct kiln__micro_batches *micro)
{
    const struct kiln__partition *partition = &micro->partition;
    const struct kiln__node *nodes = partition->graph->nodes.items;
    uint32_t largest = partition->sums[0];
    for (size_t i = 1; i < partition->n_sums; i++)
        if (kiln__node_bytes(&nodes[partition->sums[i]]) > kiln__node_bytes(&nodes[largest]))
            largest = partition->sums[i];
    return largest;
}

/* Memory grows with rows, but for what has none: the first guess is mostly right. *fits is false
 * where no number of rows does. */
static kiln_status find_part(kiln_batch *batch, struct kiln__micro_batches *micro, bool *fits,
                             struct reason *reason, struct kiln__error *error)
{
    const uint64_t limit = batch->context->runtime.memory.limit, sums = bytes_of_sums(micro);
    uint64_t bytes = kiln__executable_pool_bytes(batch->lease.plan, sums);
    size_t part = micro->partition.rows,
           fewest = kiln__partition_delivers(&micro->partition, false) ? FEWEST_INVARIANT : 1;
    kiln_status status = KILN_OK;
    *fits = false;
    *reason =
        sums >= limit
            ? (struct reason){"the sums over its rows do not fit, as of ", largest_sum(micro)}
        : fewest == 1
            ? (struct reason){"a part of one row needs too much as well", KILN__MICRO_BATCH_FINE}
            : (struct reason){"a part of two rows needs too much as well", KILN__MICRO_BATCH_FINE};
    while (bytes > limit && part > fewest && sums < limit && !status) {
        size_t fewer = (size_t)((double)part * (double)(limit - sums) / (double)(bytes - sums));
        part = fewer < part ? fewer : part - 1;
        part = part < fewest ? fewest : part;
        status = micro_batches_try(batch, micro, part, &bytes, reason, error);
    }
    *fits = bytes <= limit;
    return status;
}

/* ---- which rows ---- */

/* Divide by so many rows. */
static kiln_status micro_batches_divide(kiln_batch *batch, struct kiln__micro_batches *micro,
                                        size_t rows, bool with_sums, struct kiln__error *error)
{
    free_sections(batch->context->plan_cache, micro);
    kiln__partition_free(&micro->partition);
    return kiln__partition_make(&batch->graph, rows, with_sums, &micro->partition)
               ? KILN_OK
               : no_memory(error);
}

/* Rows that all results have need no sums, and so change no bits; else those by which most is
 * computed. */
static kiln_status find_partition(kiln_batch *batch, struct kiln__micro_batches *micro,
                                  struct kiln__error *error)
{
    struct reason reason = {"nothing in it has rows", KILN__MICRO_BATCH_FINE}, own;
    size_t tried[KILN__MOST_TRIED];
    size_t rows = kiln__micro_batch_rows(&batch->graph);
    bool fits = false;
    kiln_status status = kiln__partition_rows(&batch->graph, tried) ? KILN_OK : no_memory(error);
    if (!status && rows >= FEWEST_INVARIANT)
        status = micro_batches_divide(batch, micro, rows, false, error);
    if (!status && rows >= FEWEST_INVARIANT && kiln__partition_delivers(&micro->partition, true))
        status = find_part(batch, micro, &fits, &reason, error);
    for (size_t i = 0; i < KILN__MOST_TRIED && tried[i] && !fits && !status; i++) {
        status = micro_batches_divide(batch, micro, tried[i], true, error);
        if (!status)
            status = find_part(batch, micro, &fits, &own, error);
        if (i == 0)
            reason = own;
    }
    return status || fits ? status : micro_batches_refuse(batch, &reason, error);
}

/* ---- the whole ---- */

static void free_contents(struct kiln__plan_cache *cache, struct kiln__micro_batches *micro)
{
    free_sections(cache, micro);
    kiln__vector_free(&micro->plans);
    kiln__partition_free(&micro->partition);
}

void kiln__micro_batches_free(struct kiln__plan_cache *cache, struct kiln__micro_batches *micro)
{
    if (micro)
        free_contents(cache, micro);
    free(micro);
}

kiln_status kiln__micro_batches_make(kiln_batch *batch, struct kiln__micro_batches **made,
                                     struct kiln__error *error)
{
    struct kiln__micro_batches *micro = calloc(1, sizeof *micro);
    *made = NULL;
    if (!micro)
        return no_memory(error);
    kiln_status status = find_partition(batch, micro, error);
    if (status)
        kiln__micro_batches_free(batch->context->plan_cache, micro);
    else
        *made = micro;
    return status;
}

/* ---- results in the memory of operands ---- */

/* What comes at the end, all of it in one run, may go over anything. */
static bool is_in_place(const kiln_batch *batch, const struct kiln__micro_batches *micro,
                        size_t number)
{
    const struct kiln__bindings *bindings = &batch->bindings;
    const struct kiln__binding *result = &bindings->results.items[number];
    const struct kiln__partition *partition = &micro->partition;
    const uint32_t phase = kiln__partition_phase(partition, number), end = partition->phases;
    for (size_t i = 0; i < bindings->results.count; i++)
        if (i != number && (phase < end || kiln__partition_phase(partition, i) < end) &&
            kiln__bindings_overlap(result, &bindings->results.items[i]))
            return false;
    for (size_t i = 0; i < micro->plans.count && phase < end; i++)
        if (!kiln__micro_batch_plan_allows(batch, &micro->plans.items[i], phase, result))
            return false;
    return true;
}

static bool has_executables(const struct kiln__micro_batches *micro)
{
    for (size_t i = 0; i < micro->plans.count; i++)
        if (!micro->plans.items[i].lease.executable)
            return false;
    return true;
}

static kiln_status try_again(kiln_batch *batch, struct kiln__micro_batches *micro, size_t part,
                             struct kiln__error *error)
{
    struct reason reason = {"a part needs too much as well", KILN__MICRO_BATCH_FINE};
    uint64_t bytes;
    kiln_status status = micro_batches_try(batch, micro, part, &bytes, &reason, error);
    return status || has_executables(micro) ? status : micro_batches_refuse(batch, &reason, error);
}

/* No row may be in two parts: it would be made from what the first has left. */
static kiln_status make_equal(kiln_batch *batch, struct kiln__micro_batches *micro,
                              struct kiln__error *error)
{
    size_t part = micro->part;
    while (part >= FEWEST_INVARIANT && micro->partition.rows % part)
        part--;
    if (part < FEWEST_INVARIANT)
        return refuse_plainly(batch, "a result is left where an operand is, and no parts are equal",
                              error);
    return part == micro->part ? KILN_OK : try_again(batch, micro, part, error);
}

/* What one part writes another one would read, unless these are the same rows. */
static kiln_status check_overlaps(kiln_batch *batch, struct kiln__micro_batches *micro,
                                  struct kiln__error *error)
{
    bool any = false;
    if (!kiln__bindings_check(&batch->bindings))
        return no_memory(error);
    for (size_t i = 0; i < batch->bindings.results.count; i++) {
        bool overlaps = batch->bindings.results.items[i].overlaps;
        if (overlaps && !is_in_place(batch, micro, i))
            return refuse_plainly(batch, "a result is left where an operand is, or another result",
                                  error);
        any = any || overlaps;
    }
    kiln_status status =
        any && !micro->partition.n_sums ? make_equal(batch, micro, error) : KILN_OK;
    if (!status && !has_executables(micro)) /* the run before could not have one */
        status = try_again(batch, micro, micro->part, error);
    return status;
}

/* ---- looking at values ---- */

/* What looks like a batch of these rows. */
static kiln_batch batch_of(const kiln_batch *batch, const struct kiln__micro_batches *micro)
{
    return (kiln_batch){.context = batch->context,
                        .graph = micro->plans.items[0].micro_graph.graph,
                        .bindings = micro->bindings,
                        .unvalidated = batch->unvalidated};
}

/* Fewer rows at a time than of a run: every value is held at once. */
static kiln_status find_fewer(kiln_batch *batch, struct kiln__micro_batches *micro, size_t part,
                              struct kiln__error *error)
{
    kiln_status status = micro_batches_partition(batch, micro, part, error);
    while (!status && micro->part > 1) {
        kiln_batch rows = batch_of(batch, micro);
        if (kiln__intermediates_fits(&rows, NULL))
            break;
        status = micro_batches_partition(batch, micro, micro->part / 2, error);
    }
    return status;
}

static kiln_status check_part(const kiln_batch *batch, struct kiln__micro_batches *micro,
                              size_t number, const char *call, struct kiln__error *error)
{
    char said[96];
    const struct kiln__micro_batch_plan *part_plan = &micro->plans.items[0];
    size_t first = kiln__micro_batch_plan_first(part_plan, number);
    snprintf(said, sizeof said, "%s, rows %zu to %zu of %zu", call, first, first + micro->part - 1,
             micro->partition.rows);
    kiln_status status = KILN_OK;
    if (!kiln__micro_batch_plan_bind(batch, part_plan, number, NULL, &micro->bindings))
        status = no_memory(error);
    kiln_batch rows = batch_of(batch, micro);
    if (!status)
        status = kiln__nan_check(&rows, part_plan->micro_graph.of.items, said, error);
    kiln__bindings_free(&micro->bindings);
    return status;
}

kiln_status kiln__micro_batches_check_nan(kiln_batch *batch,
                                          const struct kiln__micro_batches *micro, const char *call,
                                          struct kiln__error *error)
{
    if (micro->partition.n_sums) {
        KILN__LOG(KILN__LOG_INFO, "values are not looked at: parts add up over rows");
        return KILN_OK;
    }
    struct kiln__micro_batches fewer = {0};
    kiln_status status = micro_batches_divide(batch, &fewer, micro->partition.rows, false, error);
    if (!status)
        status = find_fewer(batch, &fewer, micro->part, error);
    for (size_t number = 0; !status && number < fewer.plans.items[0].count; number++)
        status = check_part(batch, &fewer, number, call, error);
    free_contents(batch->context->plan_cache, &fewer);
    return status;
}

/* ---- running ---- */

/* Memory for all sums, which stays until everything is enqueued. */
static kiln_status take_sums(const struct kiln__micro_batches *micro, struct kiln__stream *stream,
                             struct kiln__binding *sums, struct kiln__error *error)
{
    const struct kiln__partition *partition = &micro->partition;
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
static kiln_status run_section(kiln_batch *batch, struct kiln__micro_batches *micro,
                               struct kiln__micro_batch_plan *part_plan,
                               const struct kiln__binding *sums, struct kiln__stream *stream,
                               struct kiln__run **run, struct kiln__error *error)
{
    struct kiln__run *made = NULL;
    kiln_status status = kiln__micro_batch_plan_label(batch, part_plan, error);
    for (size_t number = 0; !status && number < part_plan->count; number++) {
        if (!kiln__micro_batch_plan_bind(batch, part_plan, number, sums, &micro->bindings))
            status = no_memory(error);
        if (!status)
            status = kiln__commands_run(part_plan->lease.executable, stream, &micro->bindings,
                                        &made, error);
        kiln__bindings_free(&micro->bindings);
        if (*run && !status)
            kiln__runs_add(*run);
        kiln__run_release(status ? NULL : *run);
        *run = status ? *run : made;
    }
    return status;
}

kiln_status kiln__micro_batches_run(kiln_batch *batch, struct kiln__micro_batches *micro,
                                    struct kiln__stream *stream, struct kiln__run **run,
                                    struct kiln__error *error)
{
    size_t n_sums = micro->partition.n_sums;
    struct kiln__binding *sums = calloc(n_sums + 1, sizeof *sums);
    kiln_status status = sums ? check_overlaps(batch, micro, error) : no_memory(error);
    *run = NULL;
    if (!status)
        status = take_sums(micro, stream, sums, error);
    for (size_t i = 0; !status && i < micro->plans.count; i++)
        status = run_section(batch, micro, &micro->plans.items[i], sums, stream, run, error);
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
