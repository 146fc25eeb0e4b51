/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel of the program's own with one input and one output, as tests begin with. */
#pragma once

#include <kiln/kiln.h>

/* One input x, one output y of `n` f32. */
struct one {
    kiln_custom_tensor x, y;
    kiln_custom_kernel kernel;
};

static inline struct one *one(const char *name, const char *source, kiln_type type, size_t rank,
                              const size_t *dims)
{
    static struct one made;
    made = (struct one){.x = {.name = "x"},
                        .y = {.name = "y", .type = type, .rank = rank},
                        .kernel = KILN_CUSTOM_KERNEL_INIT};
    for (size_t d = 0; d < rank; d++)
        made.y.dims[d] = dims[d];
    made.kernel.name = name;
    made.kernel.source = source;
    made.kernel.inputs = &made.x;
    made.kernel.input_count = 1;
    made.kernel.outputs = &made.y;
    made.kernel.output_count = 1;
    return &made;
}
