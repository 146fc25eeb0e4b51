# SPDX-License-Identifier: Apache-2.0
"""Beside other OpenCL code, such as pyopencl's: its queue and its memory are lent to kiln, and
kiln's are taken out. Objects are pyopencl's, or others with an `int_ptr`, or the pointers themselves,
as numbers. The page doc/opencl.md tells how commands of both follow each other."""
from __future__ import annotations

import ctypes
from typing import Any, NamedTuple, Optional

from ._buffer import Buffer
from ._context import Context
from ._library import Error, Library, Owned, check, lib, sizes
from ._record import dims_of
from ._types import Type, as_dtype

__all__ = ['Objects', 'buffer', 'context', 'memory', 'objects']

_POINTER = 'void *'
# kiln/opencl.h, which needs OpenCL's headers: so it is not in the table that is made from headers.
_lib = Library(lib._cdll, lib.path, {
    'kiln_context_create_cl': ('int', [_POINTER] * 5),
    'kiln_context_cl': ('int', [_POINTER] * 4),
    'kiln_buffer_create_cl': ('int', [_POINTER, _POINTER, 'int', 'size_t', _POINTER, _POINTER]),
    'kiln_buffer_cl': (_POINTER, [_POINTER]),
})


class Objects(NamedTuple):
    """Pointers to a context's cl_context, cl_device_id and cl_command_queue, which stay its own:
    pyopencl.CommandQueue.from_int_ptr(queue) holds one for longer."""

    context: int
    device: int
    queue: int


def _pointer(of: Any) -> Optional[int]:
    return of if of is None or isinstance(of, int) else int(of.int_ptr)


class _Lent(Context):
    """A context over objects of others."""

    def __init__(self, queue: Any, **options: Any) -> None:
        self._objects = [_pointer(each) for each in (queue.context, queue.device, queue)]
        super().__init__(**options)

    def _create(self, options: Any, out: Any) -> int:
        status: int = _lib.kiln_context_create_cl(*self._objects, options, out)
        return status


def context(queue: Any, **options: Any) -> Context:
    """A context that works in this in-order queue, of its device and its cl_context, with the options
    of kiln.Context. kiln's commands and others of the queue run in the order in which they are
    given to it. The queue has to be made with profiling where `profile` is asked for."""
    if 'device' in options:
        raise TypeError('the queue has its device')
    return _Lent(queue, **options)


def objects(context: Context) -> Objects:
    """The OpenCL objects of a context."""
    found = (ctypes.c_void_p * 3)()
    check(_lib.kiln_context_cl(context._held(), *(ctypes.addressof(found) + i * ctypes.sizeof(
        ctypes.c_void_p) for i in range(3))))
    return Objects(*(pointer or 0 for pointer in found))


def buffer(memory: Any, shape: Any, dtype: Type = 'f32', *, context: Context) -> Buffer:
    """A buffer over a cl_mem of the context's own cl_context, such as a pyopencl.Buffer or
    pyopencl.array.Array.data: nothing is copied, and kiln holds the cl_mem. Others may write it
    in the context's queue; a tensor that is computed already keeps its value then."""
    dims = dims_of(shape)
    owned = Owned(lib.kiln_buffer_release)
    check(_lib.kiln_buffer_create_cl(context._held(), _pointer(memory), as_dtype(dtype).value,
                                     len(dims), sizes(dims), owned.out))
    return Buffer._of(context, owned)


def memory(buffer: Buffer) -> int:
    """A pointer to the cl_mem of a buffer, which stays the buffer's own:
    pyopencl.MemoryObject.from_int_ptr(kiln.opencl.memory(x)) holds it for longer."""
    if not buffer.nbytes:
        raise Error('INVALID_ARGUMENT', 'a buffer without elements has no cl_mem')
    pointer = _lib.kiln_buffer_cl(buffer._owned)
    if not pointer:
        raise Error('WRONG_STATE', (lib.kiln_last_error() or b'').decode(errors='replace'))
    return int(pointer)
