# SPDX-License-Identifier: Apache-2.0
"""Training by the ranks of MPI, through libkiln-mpi."""
from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any, Sequence

from ._buffer import Buffer
from ._files import _named
from ._library import Error, Library, Owned, check, initialised, load_beside, pointers
from ._table import MPI_FUNCTIONS


@functools.lru_cache(maxsize=None)
def mpi_library() -> Library:
    """libkiln-mpi, loaded when ranks first come together."""
    return load_beside('mpi', 'through which ranks train together', MPI_FUNCTIONS)


def _handle(comm: Any) -> int:
    """The communicator of mpi4py as C has it: a pointer or a number."""
    from mpi4py import MPI
    if not isinstance(comm, MPI.Comm):
        raise TypeError(f'ranks are those of a communicator of mpi4py, not of {type(comm).__name__}')
    raw = ctypes.string_at(MPI._addressof(comm), MPI._sizeof(MPI.Comm))
    return int.from_bytes(raw, sys.byteorder)


class Ranks:
    """The ranks of a communicator of mpi4py, which train together through libkiln-mpi
    (`KILN_MPI_LIBRARY` names another one), built for the MPI that mpi4py uses:

        from mpi4py import MPI
        ranks = kiln.Ranks(MPI.COMM_WORLD)
        ranks.broadcast({'parameters': p, 'optimizer': optimizer.state})
        parallel = kiln.Parallel(record, update, contexts, ranks=ranks)

    All ranks make it. Gradients travel in buckets of `bucket_bytes` (0: 4 MiB). A rank waits
    `timeout_s` seconds for the others in one exchange (0: 600), then the call fails as TIMED_OUT;
    with `aborts` the sentence is written to stderr, and MPI ends all ranks. Close it before
    MPI is finalised.
    """

    def __init__(self, comm: Any, *, bucket_bytes: int = 0, timeout_s: int = 0,
                 aborts: bool = False) -> None:
        options = initialised('KILN_MPI_OPTIONS_INIT')
        options.bucket_bytes = bucket_bytes
        options.timeout_s = timeout_s
        options.aborts = aborts
        library = mpi_library()
        made = Owned(library.kiln_mpi_release)
        check(library.kiln_mpi_create(_handle(comm), ctypes.byref(options), made.out))
        self._owned = made

    def _reducer(self) -> Any:
        if self._owned.pointer is None:
            raise Error('WRONG_STATE', 'the ranks have parted')
        return mpi_library().kiln_mpi_reducer(self._owned)

    def broadcast(self, buffers: Any, root: int = 0) -> None:
        """Give the content of rank `root`'s buffers, nested as one likes, to those of all ranks, as
        weights and an optimiser's state before the first step. All ranks call it."""
        given: Sequence[Any] = list(_named(buffers).values())
        if not all(isinstance(b, Buffer) for b in given):
            raise TypeError('kiln.Buffers are broadcast')
        self._reducer()
        for buffer in given:
            buffer._version += 1
        check(mpi_library().kiln_mpi_broadcast(self._owned, len(given),
                                               pointers([b._owned for b in given]), root))

    def close(self) -> None:
        """Part; all ranks call it, after closing what trains with them."""
        self._owned.close()

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
