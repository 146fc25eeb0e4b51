/* SPDX-License-Identifier: Apache-2.0 */
/* The tests' device as one for which kernels are made as for a GPU. */
#pragma once

#include <criterion/criterion.h>
#include <stdlib.h>

#include "context.h"
#include "session/context.h"

/* A context that makes kernels for work-groups, with $KILN_ONE_LAUNCH of this `word`. */
static inline kiln_context *open_grouped(const char *word)
{
    static struct kiln__traits grouped;
    setenv("KILN_ONE_LAUNCH", word, 1);
    kiln_context *context = open_context();
    unsetenv("KILN_ONE_LAUNCH");
    struct kiln__traits traits = *context->runtime.device.traits;
    if (traits.chunked) {
        traits.name = "grouped";
        traits.chunked = traits.nontemporal_stores = false;
        traits.vector = 4;
        traits.chunks = traits.min_chunk = 1;
        traits.work_group = 64;
    }
    traits.one_launch = true;
    traits.fence = traits.fence ? traits.fence : KILN__FENCE_OPENCL;
    grouped = traits;
    context->runtime.device.traits = &grouped;
    return context;
}
