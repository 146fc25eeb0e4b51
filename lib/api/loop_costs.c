/* SPDX-License-Identifier: Apache-2.0 */
/* What the loops of a batch take, and what is told about their parts. */
#include "api/loop_counts.h"
#include "api/loop_runs.h"
#include "session/context.h"

/* Its visitors change nothing. */
static struct kiln__loop_scope *scope_of(const struct kiln__loop_runs *runs)
{
    return &((struct kiln__loop_runs *)(uintptr_t)runs)->scope;
}

static kiln_status add_part_cost(void *of, struct kiln__loop_part *part, double times)
{
    kiln_batch_cost *cost = of;
    const struct kiln__plan *plan = part->lease.plan;
    if (!plan)
        return KILN_OK;
    const double launches = (double)kiln__plan_enqueued(plan) * times;
    if (kiln__plan_peak(plan) > cost->peak_bytes)
        cost->peak_bytes = kiln__plan_peak(plan);
    cost->launches += launches < 0x1p62 ? (size_t)launches : 0;
    cost->unshared_bytes += plan->unshared_bytes + plan->prepacked_bytes;
    cost->saved_bytes += (uint64_t)((double)plan->fusion.saved_bytes * times);
    for (size_t i = 0; i < plan->steps.count; i++) {
        cost->uploads += plan->steps.items[i].kind == KILN__STEP_UPLOAD;
        cost->downloads += plan->steps.items[i].kind == KILN__STEP_DOWNLOAD;
    }
    return KILN_OK;
}

/* Two pieces of memory for each state. */
static uint64_t bytes_between(const kiln_batch *batch, const struct kiln__loop_scope *scope)
{
    const struct kiln__node *nodes = batch->graph.nodes.items;
    uint64_t bytes = 0;
    for (size_t i = 0; i < scope->parts.count; i++) {
        const struct kiln__loop_part *part = &scope->parts.items[i];
        for (size_t k = 0; k < part->values.count; k++)
            bytes += kiln__node_bytes(&nodes[part->values.items[k]]);
        for (size_t l = 0; l < part->loops.count; l++) {
            const struct kiln__replayed *loop = part->loops.items[l].loop;
            for (uint32_t k = loop->results; k < loop->end; k++)
                bytes += kiln__node_bytes(&nodes[k]) * (1 + (k < loop->results + loop->n_states));
            bytes += bytes_between(batch, &part->loops.items[l].step);
        }
    }
    return bytes;
}

void kiln__loop_runs_cost(const kiln_batch *batch, const struct kiln__loop_runs *runs,
                          kiln_batch_cost *cost)
{
    kiln__loop_each_part(batch, scope_of(runs), 1, add_part_cost, cost);
    const uint64_t bytes = bytes_between(batch, &runs->scope);
    cost->peak_bytes += bytes;
    cost->unshared_bytes += bytes;
}

struct telling {
    kiln_batch *batch;
    bool heads;
    kiln__graph_teller *tell;
    struct kiln__text *text;
    struct kiln__error *error;
};

static kiln_status tell_part(void *of, struct kiln__loop_part *part, double times)
{
    const struct telling *telling = of;
    if (times == 0)
        return KILN_OK;
    if (telling->heads)
        kiln__text_add(telling->text, "==== a part that runs %.0f times", times);
    if (telling->heads && part->steps > 1)
        kiln__text_add(telling->text, ", %zu steps each", part->steps);
    if (telling->heads)
        kiln__text_add(telling->text, " ====\n");
    return telling->tell(telling->batch->context->plan_cache, &part->graph, telling->text,
                         telling->error);
}

kiln_status kiln__loop_runs_explain(kiln_batch *batch, const struct kiln__loop_runs *runs,
                                    bool heads, kiln__graph_teller *tell, struct kiln__text *text,
                                    struct kiln__error *error)
{
    return kiln__loop_each_part(batch, scope_of(runs), 1, tell_part,
                                &(struct telling){batch, heads, tell, text, error});
}
