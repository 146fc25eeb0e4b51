/* SPDX-License-Identifier: Apache-2.0 */
/* Devices that fail, and an MPI that does: the library's calls of it come here first, by its
 * profiling interface. */
#include "network.h"

#include "../support/layer.h"

void fail_next_update(void)
{
    static const char kernels[] = "clEnqueueNDRangeKernel";
    expect(layer_available(), "no OPENCL_LAYERS=.../kiln-layer.so");
    layer_reset();
    ok(kiln_parallel_step(world.parallel), "a step");
    layer_fail((unsigned long)layer_count(kernels), kernels, -36, KILN_LAYER_ONCE, KILN_LAYER_CALL);
}

_Atomic enum call failing;

static int fail(MPI_Comm comm)
{
    failing = NO_CALL;
    MPI_Comm_call_errhandler(comm, MPI_ERR_OTHER);
    return MPI_ERR_OTHER;
}

int MPI_Iallreduce(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op,
                   MPI_Comm comm, MPI_Request *request)
{
    return failing == IALLREDUCE ? fail(comm)
                                 : PMPI_Iallreduce(from, to, count, type, op, comm, request);
}

int MPI_Comm_idup(MPI_Comm comm, MPI_Comm *copy, MPI_Request *request)
{
    return failing == COMM_IDUP ? fail(comm) : PMPI_Comm_idup(comm, copy, request);
}
