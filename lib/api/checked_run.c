/* SPDX-License-Identifier: Apache-2.0 */
/* One run by a batch's lease: before it the check of values, around it validation. */
#include "api/checked_run.h"

#include "debug/nan_check.h"
#include "debug/validate.h"
#include "runtime/commands.h"

kiln_status kiln__checked_run(kiln_batch *batch, struct kiln__stream *stream,
                              const uint32_t *numbers, const char *call, struct kiln__error *error)
{
    struct kiln__inputs inputs = {0};
    struct kiln__run *made = NULL;
    kiln_status status =
        kiln__nan_check_wanted(batch) ? kiln__nan_check(batch, numbers, call, error) : KILN_OK;
    if (!status)
        status = kiln__validate_begin(&inputs, batch, numbers, call, error);
    if (!status)
        status =
            kiln__commands_run(batch->lease.executable, stream, &batch->bindings, &made, error);
    if (status) {
        kiln__intermediates_inputs_free(&inputs);
        return status;
    }
    kiln__run_release(batch->last);
    batch->last = made;
    return kiln__validate_end(&inputs, batch, call, error);
}
