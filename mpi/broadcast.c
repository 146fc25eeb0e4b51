/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers of one rank become those of all. */
#include <stdlib.h>

#include <kiln/buffer.h>

#include "mpi/ranks.h"

static const char call[] = "kiln_mpi_broadcast";

/* Bytes in all, and of the largest. */
static kiln_status measure(const kiln_mpi *mpi, size_t n, kiln_buffer *const *buffers, int root,
                           size_t *sum, size_t *largest)
{
    *sum = *largest = 0;
    if (root < 0 || root >= mpi->ranks)
        return kiln__mpi_fail(KILN_INVALID_ARGUMENT, "%s: root is %d, and there are %d ranks", call,
                              root, mpi->ranks);
    for (size_t i = 0; i < n; i++) {
        if (!buffers || !buffers[i])
            return kiln__mpi_fail(KILN_INVALID_ARGUMENT, "%s: buffer %zu is NULL", call, i);
        size_t bytes = kiln_buffer_bytes(buffers[i]);
        *sum += bytes;
        *largest = bytes > *largest ? bytes : *largest;
    }
    return KILN_OK;
}

/* What fails here, the others go on with. `travels` is left to what MPI says. */
static kiln_status send_buffer(kiln_mpi *mpi, kiln_buffer *buffer, char *memory, int root,
                               kiln_status *travels)
{
    const size_t bytes = kiln_buffer_bytes(buffer), piece = mpi->options.bucket_bytes;
    kiln_status status = mpi->rank == root ? kiln_buffer_read(buffer, 0, memory, bytes) : KILN_OK;
    for (size_t first = 0; first < bytes && !*travels; first += piece) {
        size_t count = bytes - first < piece ? bytes - first : piece;
        *travels = kiln__mpi_do(mpi, &(struct kiln__mpi_work){.begin = kiln__mpi_broadcast_bytes,
                                                              .values = memory + first,
                                                              .count = (int)count,
                                                              .root = root});
    }
    if (!status && !*travels && mpi->rank != root)
        status = kiln_buffer_write(buffer, 0, memory, bytes);
    return status;
}

kiln_status kiln_mpi_broadcast(kiln_mpi *mpi, size_t n, kiln_buffer *const *buffers, int root)
{
    size_t sum, largest;
    kiln_status travels = KILN_OK;
    if (!mpi)
        return kiln__mpi_fail(KILN_INVALID_ARGUMENT, "%s: mpi is NULL", call);
    kiln_status status = measure(mpi, n, buffers, root, &sum, &largest);
    char *memory = status ? NULL : malloc(largest + 1);
    if (!status && !memory)
        status = kiln__mpi_fail(KILN_OUT_OF_HOST_MEMORY, "%s: no memory", call);
    status = kiln__mpi_agree(mpi, status, call);
    if (!status)
        status = kiln__mpi_compare(mpi, call, "bytes", sum);
    if (!status) {
        for (size_t i = 0; i < n && !travels; i++) {
            kiln_status made = send_buffer(mpi, buffers[i], memory, root, &travels);
            status = status ? status : made;
        }
        status = travels ? travels : kiln__mpi_agree(mpi, status, call);
    }
    if (!travels) /* else MPI may still write into it */
        free(memory);
    return status;
}
