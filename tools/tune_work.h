/* SPDX-License-Identifier: Apache-2.0 */
/* What `kiln tune` measures: batches of common kinds, each with its result in plain C. */
#ifndef KILN_TOOLS_TUNE_WORK_H
#define KILN_TOOLS_TUNE_WORK_H

#include <kiln/kiln.h>

/* Floats of an operand, and of a result, at most. */
#define TUNE_FLOATS ((size_t)1 << 22)

struct tune_work {
    const char *name;
    size_t rows, columns, depth;
    kiln_tensor (*record)(kiln_batch *batch, const struct tune_work *work, kiln_buffer *const *in);
    /* The same in double, element `i` of the result. */
    double (*element)(const struct tune_work *work, const float *a, const float *b, size_t i);
    size_t results;   /* elements */
    double tolerance; /* of an element, relative to 1 + its size */
};

/* Up to one without a name. */
extern const struct tune_work tune_works[];
#define TUNE_MOST_WORKS 16

#endif
