/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks compute together: sums of gradients, and whether all are well. */
#include "mpi/ranks.h"

#include <stdlib.h>
#include <string.h>

/* ---- works ---- */

int kiln__mpi_sum_floats(kiln_mpi *mpi, struct kiln__mpi_work *work)
{
    return MPI_Iallreduce(work->own ? work->own : MPI_IN_PLACE, work->values, work->count,
                          MPI_FLOAT, MPI_SUM, mpi->comm, &work->request);
}

int kiln__mpi_sum_doubles(kiln_mpi *mpi, struct kiln__mpi_work *work)
{
    return MPI_Iallreduce(MPI_IN_PLACE, work->values, work->count, MPI_DOUBLE, MPI_SUM, mpi->comm,
                          &work->request);
}

int kiln__mpi_largest_doubles(kiln_mpi *mpi, struct kiln__mpi_work *work)
{
    return MPI_Iallreduce(MPI_IN_PLACE, work->values, work->count, MPI_DOUBLE, MPI_MAX, mpi->comm,
                          &work->request);
}

/* How many elements of a work each rank has, and behind them where they begin. */
static int *ranges_of(const kiln_mpi *mpi, const struct kiln__mpi_work *work)
{
    const size_t ranks = (size_t)mpi->ranks;
    int *counts = mpi->ranges + (size_t)(work - mpi->works) * 2 * ranks;
    for (size_t r = 0; r < ranks; r++) {
        size_t first;
        counts[r] = (int)kiln_shard_range((size_t)work->count, r, ranks, &first);
        counts[ranks + r] = (int)first;
    }
    return counts;
}

int kiln__mpi_sum_shard(kiln_mpi *mpi, struct kiln__mpi_work *work)
{
    return MPI_Ireduce_scatter(MPI_IN_PLACE, work->values, ranges_of(mpi, work), MPI_FLOAT, MPI_SUM,
                               mpi->comm, &work->request);
}

int kiln__mpi_gather_shards(kiln_mpi *mpi, struct kiln__mpi_work *work)
{
    const MPI_Datatype type = work->bytes == 1   ? MPI_UINT8_T
                              : work->bytes == 2 ? MPI_UINT16_T
                                                 : MPI_UINT32_T;
    const int *counts = ranges_of(mpi, work);
    return MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, work->values, counts,
                           counts + mpi->ranks, type, mpi->comm, &work->request);
}

int kiln__mpi_broadcast_bytes(kiln_mpi *mpi, struct kiln__mpi_work *work)
{
    return MPI_Ibcast(work->values, work->count, MPI_BYTE, work->root, mpi->comm, &work->request);
}

/* Of pairs of a number and its rank: the largest number, and the lowest rank that has it. */
static int worst(kiln_mpi *mpi, struct kiln__mpi_work *work)
{
    return MPI_Iallreduce(MPI_IN_PLACE, work->values, work->count, MPI_2INT, MPI_MAXLOC, mpi->comm,
                          &work->request);
}

/* ---- agreeing: what a rank hands to MPI outlives a wait that fails ---- */

kiln_status kiln__mpi_agree(kiln_mpi *mpi, kiln_status own, const char *call)
{
    mpi->pair[0] = own < 0 ? -own : 0;
    mpi->pair[1] = mpi->rank;
    kiln_status status = kiln__mpi_do(
        mpi, &(struct kiln__mpi_work){.begin = worst, .values = mpi->pair, .count = 1});
    if (own || status)
        return own ? own : status;
    if (!mpi->pair[0])
        return KILN_OK;
    return kiln__mpi_fail((kiln_status)-mpi->pair[0],
                          "%s: rank %d of %d has failed (%s); its own sentence says why", call,
                          mpi->pair[1], mpi->ranks, kiln_status_name((kiln_status)-mpi->pair[0]));
}

kiln_status kiln__mpi_compare(kiln_mpi *mpi, const char *call, const char *what, size_t size)
{
    mpi->numbers[0] = (double)size;
    mpi->numbers[1] = -(double)size;
    kiln_status status = kiln__mpi_do(
        mpi, &(struct kiln__mpi_work){
                 .begin = kiln__mpi_largest_doubles, .values = mpi->numbers, .count = 2});
    if (status || mpi->numbers[0] == -mpi->numbers[1])
        return status;
    return kiln__mpi_fail(KILN_SHAPE_MISMATCH,
                          "%s: %zu %s in rank %d, and from %.0f to %.0f in all", call, size, what,
                          mpi->rank, -mpi->numbers[1], mpi->numbers[0]);
}

/* ---- the reducer ---- */

static const char create_call[] = "kiln_parallel_create", step_call[] = "kiln_parallel_step";

/* Open MPI (up to 5.0) makes sums in place along a tree to one rank and back, which sends
 * log2(ranks) times the bytes; sums of another array by exchanging halves, which sends twice the
 * bytes. */
static bool sums_in_place(const kiln_mpi *mpi)
{
#ifdef OPEN_MPI
    return mpi->ranks < 4;
#else
    (void)mpi;
    return true;
#endif
}

static kiln_status make_room(kiln_mpi *mpi, size_t count)
{
    if (sums_in_place(mpi) || count <= mpi->room)
        return KILN_OK;
    float *copies = malloc(count * sizeof *copies);
    if (!copies)
        return kiln__mpi_fail(KILN_OUT_OF_HOST_MEMORY, "%s: no memory for gradients", create_call);
    free(mpi->copies);
    mpi->copies = copies;
    mpi->room = count;
    return KILN_OK;
}

static kiln_status join(void *user, kiln_status own, size_t count, uint32_t layout, double *shares)
{
    kiln_mpi *mpi = user;
    /* MPI may still read the copies of a step that did not end: then this says so. */
    kiln_status status = kiln__mpi_agree(mpi, own, create_call);
    if (!status)
        status = kiln__mpi_agree(mpi, make_room(mpi, count), create_call);
    if (!status)
        status = kiln__mpi_compare(mpi, create_call, "numbers in the gradients", count);
    if (!status) {
        status = kiln__mpi_compare(mpi, create_call, "(a digest)", layout);
        if (status == KILN_SHAPE_MISMATCH)
            kiln__mpi_fail(status,
                           "%s: gradients are of other sizes, or divided otherwise, in "
                           "other ranks",
                           create_call);
    }
    mpi->numbers[0] = *shares;
    if (!status)
        status = kiln__mpi_do(mpi, &(struct kiln__mpi_work){.begin = kiln__mpi_sum_doubles,
                                                            .values = mpi->numbers,
                                                            .count = 1});
    if (!status)
        *shares = mpi->numbers[0];
    return status;
}

/* NULL: they are added in place, as are numbers that were not announced; alike in all ranks. */
static const float *copy_of(kiln_mpi *mpi, const float *values, size_t count)
{
    if (sums_in_place(mpi) || mpi->room - mpi->copied < count)
        return NULL;
    float *copy = mpi->copies + mpi->copied;
    mpi->copied += count;
    return memcpy(copy, values, count * sizeof *copy);
}

static kiln_status begin(void *user, float *values, size_t count)
{
    kiln_mpi *mpi = user;
    return kiln__mpi_begin(mpi, &(struct kiln__mpi_work){.begin = kiln__mpi_sum_floats,
                                                         .values = values,
                                                         .own = copy_of(mpi, values, count),
                                                         .count = (int)count});
}

static kiln_status begin_shard(void *user, float *values, size_t elements)
{
    return kiln__mpi_begin(user, &(struct kiln__mpi_work){.begin = kiln__mpi_sum_shard,
                                                          .values = values,
                                                          .count = (int)elements});
}

static kiln_status begin_gather(void *user, void *values, size_t elements, size_t bytes)
{
    return kiln__mpi_begin(user, &(struct kiln__mpi_work){.begin = kiln__mpi_gather_shards,
                                                          .values = values,
                                                          .count = (int)elements,
                                                          .bytes = bytes});
}

static kiln_status wait(void *user)
{
    return kiln__mpi_wait(user);
}

/* All sums of the step are there, or none is made any more. */
static kiln_status agree(void *user, kiln_status own)
{
    kiln_mpi *mpi = user;
    mpi->copied = 0;
    return kiln__mpi_agree(mpi, own, step_call);
}

kiln_reducer kiln__mpi_make_reducer(kiln_mpi *mpi)
{
    kiln_reducer reducer = KILN_REDUCER_INIT;
    reducer.user = mpi;
    reducer.piece = mpi->options.bucket_bytes / sizeof(float);
    reducer.join = join;
    reducer.begin = begin;
    reducer.wait = wait;
    reducer.agree = agree;
    reducer.process = (size_t)mpi->rank;
    reducer.processes = (size_t)mpi->ranks;
    reducer.begin_shard = begin_shard;
    reducer.begin_gather = begin_gather;
    return reducer;
}
