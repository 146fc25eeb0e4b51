/* SPDX-License-Identifier: Apache-2.0 */
/* What each rank keeps a part of becomes whole, and the other way round. */
#include <stdlib.h>

#include <kiln/buffer.h>

#include "mpi/ranks.h"

/* Of one buffer of each list. */
struct divided {
    size_t elements, bytes; /* of the whole; of an element */
};

struct division {
    struct kiln__mpi_passage passage;
    size_t n;
    kiln_buffer *const *shards, *const *wholes; /* wholes may be NULL */
    double *numbers; /* of each: elements and bytes of one, the largest of all ranks' */
};

static size_t element_bytes(const kiln_buffer *buffer)
{
    kiln_type type;
    return kiln_buffer_shape(buffer, &type, NULL, NULL) || kiln_type_block(type) != 1
               ? 0
               : kiln_type_size(type);
}

static struct divided divided_of(const struct division *division, size_t i)
{
    return (struct divided){(size_t)division->numbers[2 * i], (size_t)division->numbers[2 * i + 1]};
}

static size_t range_of(const struct division *division, size_t i, int rank, size_t *first)
{
    return kiln_shard_range(divided_of(division, i).elements, (size_t)rank,
                            (size_t)division->passage.mpi->ranks, first);
}

/* Whether the ranks' shards are those of the wholes. */
static kiln_status check_shards(const struct division *division)
{
    const kiln_mpi *mpi = division->passage.mpi;
    for (size_t i = 0; i < division->n; i++) {
        const struct divided all = divided_of(division, i);
        size_t bytes = element_bytes(division->shards[i]), first;
        size_t kept = range_of(division, i, mpi->rank, &first);
        if (!bytes || bytes != all.bytes || kiln_buffer_bytes(division->shards[i]) != kept * bytes)
            return kiln__mpi_fail(KILN_SHAPE_MISMATCH,
                                  "%s: shard %zu of rank %d has %zu bytes, and is to have %zu "
                                  "elements of %zu bytes, of %zu in all",
                                  division->passage.call, i, mpi->rank,
                                  kiln_buffer_bytes(division->shards[i]), kept, all.bytes,
                                  all.elements);
    }
    return KILN_OK;
}

static kiln_status check_arguments(struct division *division, bool has_wholes)
{
    const char *call = division->passage.call;
    kiln_status status = kiln__mpi_check_buffers(division->n, division->shards, call);
    if (!status && has_wholes)
        status = kiln__mpi_check_buffers(division->n, division->wholes, call);
    if (status)
        return status;
    division->numbers = calloc(2 * division->n + 1, sizeof *division->numbers);
    if (!division->numbers)
        return kiln__mpi_fail(KILN_OUT_OF_HOST_MEMORY, "%s: no memory", call);
    for (size_t i = 0; i < division->n && has_wholes; i++) {
        size_t bytes = element_bytes(division->wholes[i]);
        size_t elements = bytes ? kiln_buffer_bytes(division->wholes[i]) / bytes : 0;
        division->numbers[2 * i] = (double)elements;
        division->numbers[2 * i + 1] = (double)bytes;
    }
    return KILN_OK;
}

/* All ranks know how large the wholes are, and that their shards fit. */
static kiln_status open_division(struct division *division, kiln_status status, bool has_wholes)
{
    struct kiln__mpi_passage *passage = &division->passage;
    kiln_mpi *mpi = passage->mpi;
    if (!status)
        status = check_arguments(division, has_wholes);
    status = kiln__mpi_depart(passage, status);
    if (!status)
        status = kiln__mpi_compare(mpi, passage->call, "buffers", division->n);
    if (!status)
        passage->travels =
            kiln__mpi_do(mpi, &(struct kiln__mpi_work){.begin = kiln__mpi_largest_doubles,
                                                       .values = division->numbers,
                                                       .count = (int)(2 * division->n)});
    if (!status && !passage->travels)
        status = kiln__mpi_agree(mpi, check_shards(division), passage->call);
    return status ? status : passage->travels;
}

static kiln_status close_division(struct division *division, kiln_status status)
{
    if (!division->passage.travels)
        free(division->numbers);
    return kiln__mpi_arrive(&division->passage, status);
}

/* ---- to the wholes ---- */

static void copy_own(struct division *division, size_t i)
{
    struct kiln__mpi_passage *passage = &division->passage;
    const size_t bytes = kiln_buffer_bytes(division->shards[i]),
                 most = passage->mpi->options.bucket_bytes;
    for (size_t at = 0; at < bytes && !passage->status; at += most) {
        size_t count = bytes - at < most ? bytes - at : most;
        passage->status = kiln_buffer_read(division->shards[i], at, passage->memory, count);
        kiln__mpi_take(passage, division->wholes[i], at, 0, count);
    }
}

static void gather_from(struct division *division, size_t i, int rank)
{
    struct kiln__mpi_passage *passage = &division->passage;
    size_t first, kept = range_of(division, i, rank, &first);
    const size_t size = divided_of(division, i).bytes, most = passage->mpi->options.bucket_bytes;
    for (size_t at = 0; at < kept * size; at += most) {
        size_t count = kept * size - at < most ? kept * size - at : most;
        kiln__mpi_send(passage, rank, division->shards[i], at, count);
        if (division->wholes)
            kiln__mpi_take(passage, division->wholes[i], first * size + at, 0, count);
    }
}

kiln_status kiln_mpi_gather(kiln_mpi *mpi, size_t n, kiln_buffer *const *shards,
                            kiln_buffer *const *wholes)
{
    struct division division = {{.mpi = mpi, .call = __func__}, n, shards, wholes, NULL};
    if (!mpi)
        return kiln__mpi_fail(KILN_INVALID_ARGUMENT, "%s: mpi is NULL", __func__);
    kiln_status status = open_division(&division, KILN_OK, wholes);
    for (size_t i = 0; i < n && !status; i++) {
        bool is_divided = range_of(&division, i, 0, NULL) < divided_of(&division, i).elements;
        for (int r = 0; r < mpi->ranks && is_divided; r++)
            gather_from(&division, i, r);
        if (!is_divided && wholes)
            copy_own(&division, i);
    }
    return close_division(&division, status);
}

/* ---- from the wholes ---- */

static void scatter_from(struct division *division, size_t i, int root)
{
    struct kiln__mpi_passage *passage = &division->passage;
    const kiln_mpi *mpi = passage->mpi;
    const struct divided all = divided_of(division, i);
    const size_t bytes = all.elements * all.bytes, most = mpi->options.bucket_bytes;
    size_t first, kept = range_of(division, i, mpi->rank, &first) * all.bytes;
    first *= all.bytes;
    for (size_t at = 0; at < bytes; at += most) {
        size_t end = bytes - at < most ? bytes : at + most;
        kiln__mpi_send(passage, root, mpi->rank == root ? division->wholes[i] : NULL, at, end - at);
        size_t from = first > at ? first : at, to = first + kept < end ? first + kept : end;
        if (from < to)
            kiln__mpi_take(passage, division->shards[i], from - first, from - at, to - from);
    }
}

kiln_status kiln_mpi_scatter(kiln_mpi *mpi, size_t n, kiln_buffer *const *wholes,
                             kiln_buffer *const *shards, int root)
{
    struct division division = {{.mpi = mpi, .call = __func__}, n, shards, wholes, NULL};
    if (!mpi)
        return kiln__mpi_fail(KILN_INVALID_ARGUMENT, "%s: mpi is NULL", __func__);
    kiln_status status = kiln__mpi_check_root(mpi, root, __func__);
    status = open_division(&division, status, mpi->rank == root);
    for (size_t i = 0; i < n && !status; i++)
        scatter_from(&division, i, root);
    return close_division(&division, status);
}
