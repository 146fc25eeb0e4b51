/* SPDX-License-Identifier: Apache-2.0 */
/* Content of buffers on its way from one rank to all, through a bucket of host memory. */
#include <stdlib.h>

#include <kiln/buffer.h>

#include "mpi/ranks.h"

static const kiln_status bad = KILN_INVALID_ARGUMENT;

kiln_status kiln__mpi_check_buffers(size_t n, kiln_buffer *const *buffers, const char *call)
{
    for (size_t i = 0; i < n; i++)
        if (!buffers || !buffers[i])
            return kiln__mpi_fail(bad, "%s: buffer %zu is NULL", call, i);
    return KILN_OK;
}

kiln_status kiln__mpi_check_root(const kiln_mpi *mpi, int root, const char *call)
{
    return root < 0 || root >= mpi->ranks
               ? kiln__mpi_fail(bad, "%s: root is %d, and there are %d ranks", call, root,
                                mpi->ranks)
               : KILN_OK;
}

kiln_status kiln__mpi_depart(struct kiln__mpi_passage *passage, kiln_status own)
{
    kiln_mpi *mpi = passage->mpi;
    passage->memory = own ? NULL : malloc(mpi->options.bucket_bytes);
    if (!own && !passage->memory)
        own = kiln__mpi_fail(KILN_OUT_OF_HOST_MEMORY, "%s: no memory", passage->call);
    return kiln__mpi_agree(mpi, own, passage->call);
}

void kiln__mpi_send(struct kiln__mpi_passage *passage, int root, kiln_buffer *from, size_t at,
                    size_t bytes)
{
    kiln_mpi *mpi = passage->mpi;
    if (mpi->rank == root && !passage->status)
        passage->status = kiln_buffer_read(from, at, passage->memory, bytes);
    if (!passage->travels)
        passage->travels =
            kiln__mpi_do(mpi, &(struct kiln__mpi_work){.begin = kiln__mpi_broadcast_bytes,
                                                       .values = passage->memory,
                                                       .count = (int)bytes,
                                                       .root = root});
}

void kiln__mpi_take(struct kiln__mpi_passage *passage, kiln_buffer *to, size_t at, size_t from,
                    size_t bytes)
{
    if (!passage->status && !passage->travels && bytes)
        passage->status = kiln_buffer_write(to, at, passage->memory + from, bytes);
}

kiln_status kiln__mpi_arrive(struct kiln__mpi_passage *passage, kiln_status made)
{
    if (passage->travels) /* MPI may still write into the memory */
        return passage->travels;
    free(passage->memory);
    return made ? made : kiln__mpi_agree(passage->mpi, passage->status, passage->call);
}
