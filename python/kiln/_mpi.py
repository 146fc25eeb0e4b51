# SPDX-License-Identifier: Apache-2.0
"""Training by the ranks of MPI, through libkiln-mpi."""
from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any, Sequence

from ._buffer import Buffer
from ._files import _named
from ._library import Error, Library, Owned, check, initialised, lib, load_beside, pointers
from ._table import MPI_FUNCTIONS
from ._tree import leaves_of, rebuilt


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

    def shards(self, weights: Any) -> Any:
        """What this rank updates of these buffers, nested as one likes, where each keeps a part of
        what an optimiser remembers: flat buffers for kiln.optim, and for kiln.Parallel's `shards`.
        Small ones are the weights themselves."""
        def shard(buffer: Any) -> Buffer:
            if not isinstance(buffer, Buffer):
                raise TypeError('kiln.Buffers have shards')
            made = Owned(lib.kiln_buffer_release)
            check(lib.kiln_shard_create(buffer.context._held(), self._reducer(), buffer._owned,
                                        made.out))
            whole = made.pointer == buffer._owned.pointer
            return buffer if whole else Buffer._of(buffer.context, made)
        return rebuilt(weights, iter([shard(leaf) for leaf in leaves_of(weights)]))

    def gather(self, shards: Any, wholes: Any = None) -> None:
        """Put together what ranks keep parts of, such as the `state` of an optimiser of shards: into
        `wholes`, buffers as that of an optimiser of the weights has, of at least one rank. All
        ranks call it."""
        self._move(lambda n, parts, whole: mpi_library().kiln_mpi_gather(
            self._owned, n, parts, whole), shards, wholes, lambda parts, whole: whole)

    def scatter(self, wholes: Any, shards: Any, root: int = 0) -> None:
        """The other way round: each rank's shards get their parts of rank `root`'s wholes; those of
        others are not read, and may be None. All ranks call it."""
        self._move(lambda n, parts, whole: mpi_library().kiln_mpi_scatter(
            self._owned, n, whole, parts, root), shards, wholes, lambda parts, whole: parts)

    def _move(self, call: Any, shards: Any, wholes: Any, written: Any) -> None:
        parts: Sequence[Any] = leaves_of(shards)
        whole: Sequence[Any] = [] if wholes is None else leaves_of(wholes)
        if not all(isinstance(b, Buffer) for b in [*parts, *whole]):
            raise TypeError('kiln.Buffers are gathered and scattered')
        if whole and len(whole) != len(parts):
            raise ValueError(f'{len(parts)} shards of {len(whole)} buffers')
        self._reducer()
        for buffer in written(parts, whole):
            buffer._version += 1
        check(call(len(parts), pointers([b._owned for b in parts]),
                   pointers([b._owned for b in whole]) if whole else None))

    def close(self) -> None:
        """Part; all ranks call it, after closing what trains with them."""
        self._owned.close()

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
