/* SPDX-License-Identifier: Apache-2.0 */
/* Room for what a run finds. */
#include "runtime/run_slots.h"

#include <stdlib.h>
#include <string.h>

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
    if (run->needed && !plan->kept_bytes)
        memset(run->needed, true, slots);
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
