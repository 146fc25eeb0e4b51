/* SPDX-License-Identifier: Apache-2.0 */
/* Counted integer tensors, and expectations of their elements after movements. */
#include "movement.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#include "ops/ops.h"

kiln_tensor numbers(kiln_batch *batch, size_t rank, const size_t *dims, const int32_t *values)
{
    return check_given(batch, KILN_I32, rank, dims, values);
}

kiln_tensor counted_from(kiln_batch *batch, int32_t first, size_t rank, const size_t *dims)
{
    int32_t values[256];
    size_t count = 1;
    for (size_t d = 0; d < rank; d++)
        count *= dims[d];
    cr_assert_leq(count, 256u);
    for (size_t i = 0; i < count; i++)
        values[i] = first + (int32_t)i;
    return numbers(batch, rank, dims, values);
}

kiln_tensor counted(kiln_batch *batch, size_t rank, const size_t *dims)
{
    return counted_from(batch, 0, rank, dims);
}

kiln_tensor random_indices(kiln_batch *batch, kiln_type type, size_t rank, const size_t *dims,
                           uint32_t extent)
{
    size_t count = 1;
    for (size_t d = 0; d < rank; d++)
        count *= dims[d];
    const size_t size = kiln_type_size(type);
    uint8_t *values = malloc((count + 1) * size);
    cr_assert(values);
    for (size_t i = 0; i < count; i++) {
        double index = type == KILN_U8 ? check_random(extent + 1) : check_random(extent + 2) - 1.0;
        kiln__type_store(type, index, values + i * size);
    }
    kiln_tensor indices = check_given(batch, type, rank, dims, values);
    free(values);
    return indices;
}

void expect_shape(kiln_batch *batch, kiln_tensor tensor, size_t rank, const size_t *dims)
{
    size_t found_rank, found[KILN_MAX_RANK];
    expect_ok(kiln_tensor_shape(batch, tensor, NULL, &found_rank, found));
    cr_assert_eq(found_rank, rank);
    for (size_t d = 0; d < rank; d++)
        cr_expect_eq(found[d], dims[d], "dimension %zu is %zu, not %zu", d, found[d], dims[d]);
}

void expect_elements(kiln_batch *batch, kiln_tensor tensor, size_t count, const int32_t *wanted)
{
    int32_t *copied = check_read(batch, tensor);
    int32_t *read = check_read(batch, kiln_neg(batch, tensor));
    check_run(batch);
    for (size_t i = 0; i < count; i++) {
        cr_expect_eq(copied[i], wanted[i], "element %zu is %d, not %d", i, copied[i], wanted[i]);
        int32_t negated = (int32_t)(0u - (uint32_t)wanted[i]); /* as kernels wrap around */
        cr_expect_eq(read[i], negated, "element %zu is read as %d, not %d", i, read[i], negated);
    }
    check_end(batch);
}
