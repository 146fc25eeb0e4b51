# SPDX-License-Identifier: Apache-2.0
"""Memory that kiln shows to other libraries, and that they show to it, by DLPack.

numpy makes the capsules and takes them, so that owners and deleters are its matter: in C, right in any
thread and at the interpreter's end. What numpy cannot say is written into a capsule here, or read from
it: that elements are bf16 (or bool, before numpy 1.25), and that memory is only to be read."""
from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Optional

import numpy as np

from ._types import BY_NAME, DType

if TYPE_CHECKING:
    from ._operators import Operators

# DLPack's numbers. Memory of the host may be pinned for CUDA or ROCm.
_HOST, _HOSTS = 1, (1, 3, 11)
_OTHERS = {2: 'CUDA', 4: 'OpenCL', 7: 'Vulkan', 8: 'Metal', 10: 'ROCm', 13: 'CUDA, managed,', 14: 'oneAPI'}
_READ_ONLY, _IS_COPIED = 1, 2
_INT, _UINT, _FLOAT, _BFLOAT, _COMPLEX, _BOOL = 0, 1, 2, 4, 5, 6
# What goes through numpy as unsigned integers of the same width.
_DISGUISED = {(_BFLOAT, 16): 'bf16', (_BOOL, 8): 'bool'}
_CODES = {name: code for (code, _), name in _DISGUISED.items()}
# numpy has DLPack 1, where a capsule has flags.
_FLAGS = np.lib.NumpyVersion(np.__version__) >= '2.1.0'


class _Type(ctypes.Structure):
    _fields_ = [('code', ctypes.c_uint8), ('bits', ctypes.c_uint8), ('lanes', ctypes.c_uint16)]


class _Shown(ctypes.Structure):
    """DLTensor as far as its type, with which DLManagedTensor begins."""
    _fields_ = [('data', ctypes.c_void_p), ('device', 2 * ctypes.c_int32), ('rank', ctypes.c_int32),
                ('type', _Type)]
    type: _Type


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned, of DLPack 1."""
    _fields_ = [('version', 2 * ctypes.c_uint32), ('context', ctypes.c_void_p),
                ('deleter', ctypes.c_void_p), ('flags', ctypes.c_uint64), ('shown', _Shown)]
    flags: int
    shown: _Shown


# Prototypes of their own: those of ctypes.pythonapi belong to everybody.
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ('PyCapsule_IsValid', ctypes.pythonapi))
_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ('PyCapsule_GetPointer', ctypes.pythonapi))


def _contents(capsule: Any) -> tuple[Optional[_Versioned], Optional[_Shown]]:
    """What a capsule holds, both to be used while nobody has taken it. None is what is laid out in ways
    of later versions, or not there."""
    if _is_valid(capsule, b'dltensor'):
        return None, _Shown.from_address(_pointer_of(capsule, b'dltensor'))
    if not _is_valid(capsule, b'dltensor_versioned'):
        return None, None
    held = _Versioned.from_address(_pointer_of(capsule, b'dltensor_versioned'))
    return (held, held.shown) if held.version[0] == 1 else (None, None)


# ---- of kiln's ----

def capsule_of(x: Operators, stream: Any, max_version: Any, dl_device: Any, copy: Optional[bool]) -> Any:
    """A capsule of a tensor's elements as they are stored, bytes where these are blocks."""
    if dl_device is not None and int(dl_device[0]) != _HOST:
        raise BufferError(f'__dlpack__: kiln shows memory of the host, device ({_HOST}, 0), not of device '
                          f'({int(dl_device[0])}, {int(dl_device[1])})')
    if stream not in (None, -1):
        raise BufferError(f'__dlpack__: memory of the host has no stream, and this is {stream}')
    flags = _FLAGS and max_version is not None and max_version[0] >= 1
    if copy is False and not flags:
        raise BufferError('__dlpack__: a tensor never changes, and is shared only as what cannot be written, '
                          'which takes a reader of DLPack 1.0 and numpy 2.1: have it copied')
    array = x._host()
    if copy is False and x._tensor()._value is not array:
        raise BufferError('__dlpack__: what lies on the device is copied to the host, which copy=False forbids')
    if copy is not False and x._tensor()._value is array:
        array = array.copy()
    code = _CODES.get(x.dtype.name)
    if code is not None:
        array = array.view(f'u{x.dtype.itemsize}')
    capsule = array.__dlpack__(max_version=(1, 0)) if flags else array.__dlpack__()
    held, shown = _contents(capsule)
    if held is not None:
        held.flags = _READ_ONLY if copy is False else _IS_COPIED
    if code is not None and shown is not None:
        shown.type.code = code
    return capsule


# ---- of others ----

class _Disguised:
    """What another object shows, in a type that numpy has; `name` is its own, where that is another."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self.name: Optional[str] = None

    def __dlpack__(self, **options: Any) -> Any:
        capsule = self.owner.__dlpack__(**options)
        shown = _contents(capsule)[1]
        if shown is not None:
            kind = shown.type
            self.name = _DISGUISED.get((kind.code, kind.bits))
            if kind.lanes != 1 or self.name is None and kind.code not in (_INT, _UINT, _FLOAT, _COMPLEX):
                raise BufferError(f"kiln has no type for elements of DLPack's type code {kind.code} with "
                                  f'{kind.bits} bits and {kind.lanes} lanes')
            if self.name is not None:
                kind.code = _UINT
        return capsule

    def __dlpack_device__(self) -> Any:
        return self.owner.__dlpack_device__()


def array_of(x: Any, copy: Optional[bool] = None) -> tuple[np.ndarray, Optional[DType]]:
    """An array over the memory that x shows, and the type of its elements where numpy's may not say it:
    that of bf16 is `raw`. With False for `copy` x may not copy, either."""
    if isinstance(x, np.ndarray):
        return x, None
    if not hasattr(x, '__dlpack__'):
        raise TypeError(f'{type(x).__name__} has no __dlpack__')
    kind = int(x.__dlpack_device__()[0])
    if kind not in _HOSTS:
        raise BufferError(f"{type(x).__name__} lies in memory of {_OTHERS.get(kind, 'a device')} (DLPack's "
                          f'device type {kind}): kiln takes what is in memory of the host')
    disguised = _Disguised(x)
    options: Any = {'copy': False} if copy is False and _FLAGS else {}
    array = np.from_dlpack(disguised, **options)
    if disguised.name is None:
        return array, None
    dtype = BY_NAME[disguised.name]
    return array.view(dtype.raw), dtype
