/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers of one rank become those of all. */
#include <stdlib.h>

#include <kiln/buffer.h>

#include "mpi/ranks.h"

static const char call[] = "kiln_mpi_broadcast";

static void send_buffer(struct kiln__mpi_passage *passage, kiln_buffer *buffer, int root)
{
    const kiln_mpi *mpi = passage->mpi;
    const size_t bytes = kiln_buffer_bytes(buffer), piece = mpi->options.bucket_bytes;
    for (size_t first = 0; first < bytes; first += piece) {
        size_t count = bytes - first < piece ? bytes - first : piece;
        kiln__mpi_send(passage, root, buffer, first, count);
        if (mpi->rank != root)
            kiln__mpi_take(passage, buffer, first, 0, count);
    }
}

kiln_status kiln_mpi_broadcast(kiln_mpi *mpi, size_t n, kiln_buffer *const *buffers, int root)
{
    struct kiln__mpi_passage passage = {.mpi = mpi, .call = call};
    size_t sum = 0;
    if (!mpi)
        return kiln__mpi_fail(KILN_INVALID_ARGUMENT, "%s: mpi is NULL", call);
    kiln_status status = kiln__mpi_check_root(mpi, root, call);
    if (!status)
        status = kiln__mpi_check_buffers(n, buffers, call);
    for (size_t i = 0; i < n && !status; i++)
        sum += kiln_buffer_bytes(buffers[i]);
    status = kiln__mpi_depart(&passage, status);
    if (!status)
        status = kiln__mpi_compare(mpi, call, "bytes", sum);
    for (size_t i = 0; i < n && !status; i++)
        send_buffer(&passage, buffers[i], root);
    return kiln__mpi_arrive(&passage, status);
}
