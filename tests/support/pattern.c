/* SPDX-License-Identifier: Apache-2.0 */
/* Deterministic test data with a closed form, so that other languages can make the same. */
#include "pattern.h"

#include <criterion/criterion.h>
#include <math.h>

#include "graph/graph.h"
#include "record/batch.h"

kiln_tensor pattern(kiln_batch *batch, size_t rank, const size_t *dims, unsigned salt)
{
    float values[512];
    size_t count = 1;
    for (size_t d = 0; d < rank; d++)
        count *= dims[d];
    cr_assert(count <= 512);
    for (size_t i = 0; i < count; i++)
        values[i] = (float)((double)((i * i * 3 + i * 7 + salt) % 23) - 11) / 8;
    return check_given(batch, KILN_F32, rank, dims, values);
}

void expect_pattern(kiln_batch *batch, kiln_tensor tensor, size_t count, const double *wanted)
{
    cr_assert_eq(kiln_batch_status(batch), KILN_OK, "%s", kiln_batch_error(batch));
    const float *found = check_read(batch, tensor);
    cr_assert_eq(kiln__node_count(kiln__batch_node(batch, tensor, "test", "tensor")), count);
    check_run(batch);
    for (size_t i = 0; i < count; i++)
        cr_expect_leq(fabs((double)found[i] - wanted[i]), 1e-5 * (1 + fabs(wanted[i])),
                      "element %zu is %.9g, not %.9g", i, (double)found[i], wanted[i]);
    check_end(batch);
}
