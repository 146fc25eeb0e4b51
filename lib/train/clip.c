/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients that are too large become shorter, all by one factor. */
#include <kiln/training.h>

#include <stdio.h>
#include <stdlib.h>

#include <kiln/elementwise.h>
#include <kiln/normalization.h>
#include <kiln/operations.h>

#include "record/call.h"
#include "record/operations.h"
#include "train/gradients.h"

const struct kiln__node *kiln__training_gradient(kiln_batch *batch, const kiln_tensor *gradients,
                                                 size_t i, const char *call)
{
    char name[48];
    snprintf(name, sizeof name, "gradients[%zu]", i);
    return kiln__batch_floating(batch, gradients[i], call, name);
}

static bool check_clipping(kiln_batch *batch, size_t n, const kiln_tensor *gradients,
                           double max_norm, const kiln_tensor *clipped, const char *call)
{
    if (!kiln__batch_is_open(batch, call))
        return false;
    if (n && (!gradients || !clipped))
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT, "%s: %s is NULL", call,
                   gradients ? "clipped" : "gradients");
    else if (!(max_norm > 0))
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT, "%s: max_norm is %g, not above 0", call,
                   max_norm);
    else if (n && batch->divided)
        kiln__fail(&batch->error, KILN_UNSUPPORTED,
                   "%s: this process has a part of the gradients, whose norm is not that of all; "
                   "clip each element by kiln_clamp(), or let all processes update all weights",
                   call);
    for (size_t i = 0; i < n && !batch->error.status; i++)
        kiln__training_gradient(batch, gradients, i, call);
    return !batch->error.status;
}

/* The norm of norms, which are scaled as numbers are. */
static kiln_tensor common_norm(kiln_batch *batch, size_t n, const kiln_tensor *tensors)
{
    kiln_tensor total = kiln_constant(batch, KILN_F32, 0), top = total, back;
    kiln_tensor *norms = calloc(n + 1, sizeof *norms);
    if (!norms) {
        kiln__fail(&batch->error, KILN_OUT_OF_HOST_MEMORY, "kiln_clip_by_norm: no memory");
        return (kiln_tensor){0};
    }
    for (size_t i = 0; i < n; i++) {
        norms[i] = kiln_norm(batch, tensors[i], 0, NULL, 0);
        top = kiln_maximum(batch, top, norms[i]);
    }
    kiln_tensor scale = kiln__record_square_scale(batch, "kiln_clip_by_norm", top, &back);
    for (size_t i = 0; i < n; i++)
        total = kiln_add(batch, total, kiln_square(batch, kiln_mul(batch, norms[i], scale)));
    free(norms);
    return kiln_mul(batch, kiln_sqrt(batch, total), back);
}

kiln_tensor kiln_clip_by_norm(kiln_batch *batch, size_t n, const kiln_tensor *gradients,
                              double max_norm, kiln_tensor *clipped)
{
    KILN__CALL(batch);
    const kiln_tensor none = {0};
    if (!check_clipping(batch, n, gradients, max_norm, clipped, __func__)) {
        for (size_t i = 0; clipped && i < n; i++)
            clipped[i] = none;
        return none;
    }
    kiln_tensor norm = common_norm(batch, n, gradients);
    kiln_tensor room = kiln_constant(batch, KILN_F32, max_norm);
    kiln_tensor guard = kiln_constant(batch, KILN_F32, 1e-6);
    kiln_tensor one = kiln_constant(batch, KILN_F32, 1);
    kiln_tensor ratio = kiln_div(batch, room, kiln_add(batch, norm, guard));
    kiln_tensor factor = kiln_minimum(batch, ratio, one);
    for (size_t i = 0; i < n; i++)
        clipped[i] = kiln_mul(batch, gradients[i], factor);
    return batch->error.status ? none : norm;
}
