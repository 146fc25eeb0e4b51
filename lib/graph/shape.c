/* SPDX-License-Identifier: Apache-2.0 */
/* Arithmetic of shapes: counts, broadcasting, row-major strides, texts for messages. */
#include "graph/shape.h"

#include <stdio.h>
#include <string.h>

/* Elements of 8 bytes each have to fit an int64, and memory. */
#define MOST_ELEMENTS ((SIZE_MAX < INT64_MAX ? SIZE_MAX : INT64_MAX) / 8)

bool kiln__shape_make(size_t rank, const size_t *dims, struct kiln__shape *shape)
{
    struct kiln__shape made = {.rank = (uint32_t)rank}; /* dims may be shape->dims */
    if (rank > KILN_MAX_RANK) {
        *shape = (struct kiln__shape){0};
        return false;
    }
    uint64_t count = 1;
    bool fits = true, empty = false;
    for (size_t i = 0; i < rank; i++) {
        made.dims[i] = dims[i];
        empty |= dims[i] == 0;
        fits = fits && !__builtin_mul_overflow(count, dims[i], &count) && count <= MOST_ELEMENTS;
    }
    *shape = made;
    return fits || empty;
}

size_t kiln__shape_count(const struct kiln__shape *shape)
{
    size_t count = 1;
    for (uint32_t i = 0; i < shape->rank; i++)
        count *= shape->dims[i];
    return count;
}

bool kiln__shape_has_blocks(const struct kiln__shape *shape, kiln_type type)
{
    const size_t block = kiln_type_block(type);
    return block == 1 || (shape->rank && shape->dims[shape->rank - 1] % block == 0);
}

bool kiln__shape_equal(const struct kiln__shape *a, const struct kiln__shape *b)
{
    return a->rank == b->rank && !memcmp(a->dims, b->dims, a->rank * sizeof *a->dims);
}

static size_t from_the_end(const struct kiln__shape *shape, uint32_t i)
{
    return i <= shape->rank ? shape->dims[shape->rank - i] : 1;
}

bool kiln__shape_matches(const struct kiln__shape *a, const struct kiln__shape *b)
{
    for (uint32_t i = 1; i <= a->rank && i <= b->rank; i++) {
        size_t x = from_the_end(a, i), y = from_the_end(b, i);
        if (x != y && x != 1 && y != 1)
            return false;
    }
    return true;
}

bool kiln__shape_broadcast(const struct kiln__shape *a, const struct kiln__shape *b,
                           struct kiln__shape *result)
{
    uint32_t rank = a->rank > b->rank ? a->rank : b->rank;
    size_t dims[KILN_MAX_RANK];
    if (!kiln__shape_matches(a, b))
        return false;
    for (uint32_t i = 1; i <= rank; i++) {
        size_t x = from_the_end(a, i);
        dims[rank - i] = x == 1 ? from_the_end(b, i) : x;
    }
    return kiln__shape_make(rank, dims, result);
}

bool kiln__shape_gathered(const struct kiln__shape *data, const struct kiln__shape *indices,
                          uint32_t axis, struct kiln__shape *result)
{
    size_t dims[2 * KILN_MAX_RANK], rank = 0;
    for (uint32_t d = 0; d < axis; d++)
        dims[rank++] = data->dims[d];
    for (uint32_t d = 0; d < indices->rank; d++)
        dims[rank++] = indices->dims[d];
    for (uint32_t d = axis + 1; d < data->rank; d++)
        dims[rank++] = data->dims[d];
    return kiln__shape_make(rank, dims, result);
}

struct kiln__shape_text kiln__shape_text(const struct kiln__shape *shape)
{
    struct kiln__shape_text result = {"["};
    size_t used = 1;
    for (uint32_t i = 0; i < shape->rank && used < sizeof result.text - 24; i++)
        used += (size_t)snprintf(result.text + used, sizeof result.text - used, "%s%zu",
                                 i ? "," : "", shape->dims[i]);
    snprintf(result.text + used, sizeof result.text - used, "]");
    return result;
}

void kiln__shape_strides(const struct kiln__shape *shape, int64_t strides[KILN_MAX_RANK])
{
    int64_t stride = 1;
    memset(strides, 0, KILN_MAX_RANK * sizeof *strides);
    for (uint32_t i = shape->rank; i-- > 0;) {
        strides[i] = stride;
        stride *= (int64_t)shape->dims[i];
    }
}

void kiln__shape_indices(const struct kiln__shape *shape, size_t number, size_t *index)
{
    for (uint32_t d = shape->rank; d-- > 0; number /= shape->dims[d])
        index[d] = number % shape->dims[d];
}

struct kiln__shape_text kiln__shape_position(const struct kiln__shape *shape, size_t number)
{
    struct kiln__shape index = *shape;
    kiln__shape_indices(shape, number, index.dims);
    return kiln__shape_text(&index);
}

size_t kiln__shape_number(const struct kiln__shape *operand, const size_t *index, uint32_t rank)
{
    size_t number = 0;
    for (uint32_t d = 0; d < operand->rank; d++)
        number = number * operand->dims[d] +
                 (operand->dims[d] == 1 ? 0 : index[rank - operand->rank + d]);
    return number;
}

/* Drop dimensions of 1 and merge neighbours that are one run in memory. */
static uint32_t merge_runs(const struct kiln__shape *shape, const int64_t *strides, size_t *dims,
                           int64_t *merged)
{
    uint32_t rank = 0;
    for (uint32_t i = 0; i < shape->rank; i++) {
        if (shape->dims[i] == 1)
            continue;
        if (rank && merged[rank - 1] == strides[i] * (int64_t)shape->dims[i]) {
            dims[rank - 1] *= shape->dims[i];
            merged[rank - 1] = strides[i];
        } else {
            dims[rank] = shape->dims[i];
            merged[rank++] = strides[i];
        }
    }
    return rank;
}

bool kiln__shape_restride(const struct kiln__shape *from, const int64_t *strides,
                          const struct kiln__shape *to, int64_t *result)
{
    size_t dims[KILN_MAX_RANK];
    int64_t merged[KILN_MAX_RANK];
    if (kiln__shape_count(to) == 0) {
        kiln__shape_strides(to, result);
        return true;
    }
    uint32_t run = merge_runs(from, strides, dims, merged);
    memset(result, 0, KILN_MAX_RANK * sizeof *result);
    size_t left = 1; /* of the current run, what later dimensions of `to` have not used */
    int64_t stride = 0;
    for (uint32_t i = to->rank; i-- > 0;) {
        if (to->dims[i] == 1)
            continue;
        if (left == 1) {
            if (run == 0)
                return false;
            left = dims[--run];
            stride = merged[run];
        }
        if (left % to->dims[i])
            return false;
        result[i] = stride;
        stride *= (int64_t)to->dims[i];
        left /= to->dims[i];
    }
    return left == 1 && run == 0;
}

bool kiln__shape_batch_stride(const int64_t *stride, const struct kiln__shape *shape,
                              uint32_t inner, int64_t *result)
{
    int64_t run = 0;
    bool found = false;
    *result = 0;
    for (uint32_t d = shape->rank - inner; d-- > 0;) {
        if (shape->dims[d] == 1)
            continue;
        if (!found)
            *result = stride[d];
        else if (stride[d] != run)
            return false;
        found = true;
        run = stride[d] * (int64_t)shape->dims[d];
    }
    return true;
}

bool kiln__shape_suits_matmul(const struct kiln__shape *shape, const int64_t *stride)
{
    uint32_t rank = shape->rank;
    size_t rows = shape->dims[rank - 2], columns = shape->dims[rank - 1];
    int64_t row = stride[rank - 2], column = stride[rank - 1], batch;
    bool normal = (column == 1 || columns == 1) && (row >= (int64_t)columns || rows == 1);
    bool transposed = (row == 1 || rows == 1) && (column >= (int64_t)rows || columns == 1);
    return (normal || transposed) && row >= 0 && column >= 0 &&
           kiln__shape_batch_stride(stride, shape, 2, &batch) && batch >= 0;
}
