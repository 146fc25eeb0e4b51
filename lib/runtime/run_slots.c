/* SPDX-License-Identifier: Apache-2.0 */
/* Room for what a run finds. */
#include "runtime/run_slots.h"

#include <stdlib.h>

/* Where nothing is kept no run leaves a launch out, and all read what they name. */
static void mark_needed(const struct kiln__plan *plan, bool *needed)
{
    for (size_t i = 0; i < plan->launches.count && !plan->prepacked_bytes; i++) {
        const struct kiln__launch *launch = &plan->launches.items[i];
        for (size_t k = 0; launch->prepacks && k < launch->arguments.count; k++)
            if (launch->arguments.items[k].kind == KILN__ARGUMENT_MEMORY)
                needed[launch->arguments.items[k].slot] = true;
    }
}

bool kiln__run_slots_begin(struct kiln__run_slots *run, const struct kiln__plan *plan)
{
    size_t launches = plan->launches.count + 1, slots = plan->slots.count + 1;
    *run = (struct kiln__run_slots){
        .memory = calloc(slots, sizeof *run->memory),
        .foreign = calloc(slots, sizeof *run->foreign),
        .ready = calloc(slots, sizeof *run->ready),
        .needed = calloc(slots, sizeof *run->needed),
        .left_out = calloc(launches, sizeof *run->left_out),
        .anew = calloc(slots, sizeof *run->anew),
    };
    if (run->needed)
        mark_needed(plan, run->needed);
    return run->memory && run->foreign && run->ready && run->needed && run->left_out && run->anew;
}

void kiln__run_slots_end(struct kiln__run_slots *run)
{
    free(run->memory);
    free(run->foreign);
    free(run->ready);
    free(run->needed);
    free(run->left_out);
    free(run->anew);
}
