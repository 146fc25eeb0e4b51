/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of weights, each of which one process alone updates. */
#include "executor/parallel.h"

#include <kiln/buffer.h>

#include "ops/ops.h"

/* Fewer elements than that take more time to divide than room to keep. */
#define LEAST_DIVIDED ((size_t)1 << 12)
/* A count of MPI is an int. */
#define MOST_DIVIDED ((size_t)INT32_MAX)

size_t kiln_shard_range(size_t elements, size_t process, size_t processes, size_t *first)
{
    size_t begin = 0, end = elements;
    if (process < processes && processes <= LEAST_DIVIDED && elements >= LEAST_DIVIDED &&
        elements <= MOST_DIVIDED) {
        begin = (size_t)((uint64_t)elements * process / processes);
        end = (size_t)((uint64_t)elements * (process + 1) / processes);
    }
    if (first)
        *first = begin;
    return end - begin;
}

static size_t elements_of(const kiln_buffer *buffer, const struct kiln__type_row **row)
{
    kiln_type type = KILN_F32;
    kiln_status status = kiln_buffer_shape(buffer, &type, NULL, NULL);
    *row = kiln__type_row(type);
    return status ? 0 : kiln_buffer_bytes(buffer) / (*row)->bytes * (*row)->block;
}

/* Whole where the reducer leaves nothing to others. */
static size_t range_of(const kiln_reducer *reducer, size_t elements, size_t *first)
{
    return kiln_shard_range(elements, reducer->process, reducer->processes, first);
}

kiln_status kiln_shard_create(kiln_context *context, const kiln_reducer *reducer,
                              kiln_buffer *weights, kiln_buffer **shard)
{
    kiln_reducer own = KILN_REDUCER_INIT;
    kiln_type type;
    if (shard)
        *shard = NULL;
    KILN__RETURN_IF_NULL(NULL, __func__, shard, context, weights);
    kiln_status status = reducer ? kiln__read_reducer(reducer, &own, __func__) : KILN_OK;
    if (!status)
        status = kiln_buffer_shape(weights, &type, NULL, NULL);
    if (status)
        return status;
    const struct kiln__type_row *row;
    size_t elements = elements_of(weights, &row), kept = range_of(&own, elements, NULL);
    if (kept < elements)
        return kiln_buffer_create(context, type, 1, &kept, shard);
    kiln_buffer_retain(weights);
    *shard = weights;
    return KILN_OK;
}

/* ---- those of a training ---- */

static kiln_status refuse(const struct kiln__member *member, size_t gradient, kiln_status status,
                          const char *what)
{
    return kiln__fail(NULL, status, "kiln_parallel_create: context %zu: %s %zu %s", member->number,
                      "weights and shard", gradient, what);
}

kiln_status kiln__parallel_take_shard(struct kiln__member *member, size_t gradient)
{
    const kiln_training *training = &member->parallel->training;
    struct kiln__gradient_range *range = &member->parallel->ranges[gradient];
    const struct kiln__type_row *row, *same;
    range->kept = range->elements;
    if (!training->shards)
        return KILN_OK;
    const size_t number = member->number * training->gradient_count + gradient;
    kiln_buffer *weights = training->weights[number], *shard = training->shards[number];
    if (!weights || !shard)
        return refuse(member, gradient, KILN_INVALID_ARGUMENT, "are not both there");
    size_t elements = elements_of(weights, &row), kept = elements_of(shard, &same);
    if (row != same || !row->floating || row->block > 1)
        return refuse(member, gradient, KILN_TYPE_MISMATCH,
                      "are not of one floating type whose elements lie apart");
    range->kept = range_of(&member->parallel->reducer, range->elements, &range->first);
    if (elements != range->elements || kept != range->kept)
        return refuse(member, gradient, KILN_SHAPE_MISMATCH,
                      "have not the gradient's elements and those of kiln_shard_range()");
    if ((range->kept == range->elements) != (weights == shard))
        return refuse(member, gradient, KILN_INVALID_ARGUMENT,
                      "are one buffer, or two, where kiln_shard_create() makes the other");
    if (!kiln__parallel_divides(member->parallel, gradient))
        return KILN_OK;
    kiln_buffer_retain(weights);
    kiln_buffer_retain(shard);
    member->weights[gradient] = weights;
    member->shards[gradient] = shard;
    return KILN_OK;
}

kiln_status kiln__parallel_fill_shards(const struct kiln__member *member)
{
    const kiln_parallel *parallel = member->parallel;
    kiln_status status = KILN_OK;
    for (size_t i = 0; i < parallel->training.gradient_count && !status; i++) {
        if (!kiln__parallel_divides(parallel, i))
            continue;
        const struct kiln__gradient_range *range = &parallel->ranges[i];
        const size_t bytes = kiln_buffer_bytes(member->shards[i]);
        status = kiln_buffer_read(member->weights[i], range->first * (bytes / range->kept),
                                  member->host, bytes);
        if (!status)
            status = kiln_buffer_write(member->shards[i], 0, member->host, bytes);
    }
    return status;
}
