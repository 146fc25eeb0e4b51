/* SPDX-License-Identifier: Apache-2.0 */
/* How often a run of a batch runs each part of it. */
#include "api/loop_counts.h"

#include "session/context.h"

/* Between looks whether a loop has ended. */
#define LOOK_EVERY 64

bool kiln__loop_polls_end_before(size_t step, size_t before)
{
    size_t power = 1;
    while (power <= step / 2)
        power *= 2;
    return step && (step < LOOK_EVERY ? power > before : step / LOOK_EVERY > before / LOOK_EVERY);
}

bool kiln__loop_runs_single_steps(const kiln_batch *batch)
{
    return batch->context->validate.share > 0 || batch->context->check_values.share > 0;
}

size_t kiln__loop_steps_per_run(const kiln_batch *batch, const struct kiln__replayed *loop)
{
    return loop->stretch && !kiln__loop_runs_single_steps(batch) ? loop->stretch->options.steps : 1;
}

static double looks(const struct kiln__replayed *loop)
{
    const size_t regular = loop->options.steps / LOOK_EVERY;
    double count = (double)regular;
    for (size_t step = 1; step < LOOK_EVERY && step < loop->options.steps; step *= 2)
        count++;
    return count;
}

kiln_status kiln__loop_each_part(const kiln_batch *batch, struct kiln__loop_scope *scope,
                                 double times, kiln__loop_visitor *visit, void *of)
{
    kiln_status status = KILN_OK;
    for (size_t i = 0; i < scope->parts.count && !status; i++) {
        struct kiln__loop_part *part = &scope->parts.items[i];
        if (part->graph.requests.count)
            status = visit(of, part, times);
        for (size_t l = 0; l < part->loops.count && !status; l++) {
            struct kiln__loop_inside *inside = &part->loops.items[l];
            const size_t steps = inside->loop->options.steps;
            const size_t stretch = kiln__loop_steps_per_run(batch, inside->loop);
            const size_t stretches = stretch > 1 ? steps / stretch : 0;
            status =
                kiln__loop_each_part(batch, &inside->stretch, times * (double)stretches, visit, of);
            if (!status)
                status = kiln__loop_each_part(
                    batch, &inside->step, times * (double)(steps - stretches * stretch), visit, of);
            if (!status)
                status = kiln__loop_each_part(batch, &inside->ended, times * looks(inside->loop),
                                              visit, of);
        }
    }
    return status;
}
