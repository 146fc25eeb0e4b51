# SPDX-License-Identifier: Apache-2.0
"""Types of elements, and how numpy's become them."""
from __future__ import annotations

import ctypes
import sys
from typing import TYPE_CHECKING, Any, Optional, TypeVar, Union

import numpy as np

from ._table import BLOCK_TYPES, TYPES

try:  # numpy has no bfloat16
    from ml_dtypes import bfloat16 as _bfloat16
except ImportError:
    _bfloat16 = None

_NUMPY = {
    'f32': np.float32, 'i32': np.int32, 'u8': np.uint8, 'f16': np.float16, 'i64': np.int64,
    'bool': np.bool_, 'i8': np.int8, 'bf16': _bfloat16 or np.uint16,
}
# What operations read a type as, and give.
_COMPUTED = {'f16': 'f32', 'bf16': 'f32', 'bool': 'u8'}
# Of two types that operations compute in, the one that both are converted to.
_ORDER = ['u8', 'i8', 'i32', 'i64', 'f32']


# What a function takes and gives, for type checkers alone: Python 3.9 has no ParamSpec.
R = TypeVar('R')
if TYPE_CHECKING:
    from typing_extensions import ParamSpec
    P = ParamSpec('P')
else:
    P = TypeVar('P')


class DType:
    """The type of a tensor's elements: kiln.f32, kiln.i64, kiln.i32, kiln.i8, kiln.u8; stored only:
    kiln.f16, kiln.bf16, kiln.bool_, and blocks of quantised numbers, kiln.q8_0 to kiln.q8_z. Wherever
    one is asked for, its name, numpy's type or Python's (float, int, bool) will do."""

    __slots__ = ('name', 'value', 'itemsize', 'block', 'raw')

    def __init__(self, name: str, value: int, itemsize: int, block: int = 1) -> None:
        self.name = name
        self.value = value
        self.itemsize = itemsize  # bytes of an element, or of a block
        self.block = block  # elements of a block, or 1
        # What its elements are in numpy; of bf16 without ml_dtypes their bits, of blocks bytes.
        self.raw = np.dtype(_NUMPY.get(name, np.uint8))

    def raw_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape that elements of this shape have in numpy: rows of blocks are rows of bytes."""
        if self.block == 1:
            return shape
        return (*shape[:-1], shape[-1] // self.block * self.itemsize)

    def shape_of(self, array: np.ndarray) -> tuple[int, ...]:
        """The shape of the elements that an array of `raw` holds."""
        if self.block == 1:
            return array.shape
        if array.dtype != self.raw or not array.ndim or array.shape[-1] % self.itemsize:
            raise ValueError(f'{self.name} is made of uint8 whose rows are blocks of {self.itemsize} bytes, '
                             f'not of {array.dtype} of shape {list(array.shape)}')
        return (*array.shape[:-1], array.shape[-1] // self.itemsize * self.block)

    @property
    def dtype(self) -> np.dtype:
        """numpy's type of what Tensor.numpy() gives."""
        return np.dtype(np.float32) if self.name == 'bf16' and not _bfloat16 else self.raw

    @property
    def computed(self) -> DType:
        """What operations read it as."""
        return BY_NAME['f32' if self.block > 1 else _COMPUTED.get(self.name, self.name)]

    @property
    def apart(self) -> DType:
        """Itself, or, of blocks, what operations give where they keep an operand's type."""
        return self.computed if self.block > 1 else self

    @property
    def is_floating(self) -> bool:
        return self.computed.name == 'f32'

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (DType, str, type, np.dtype)):
            return False
        try:
            return self.value == as_dtype(other).value
        except (TypeError, ValueError):
            return False

    def __hash__(self) -> int:
        return hash(self.name if self.name == 'bf16' or self.block > 1 else self.raw)

    def __repr__(self) -> str:
        return 'kiln.' + ('bool_' if self.name == 'bool' else self.name)

    def __reduce__(self) -> Any:
        return as_dtype, (self.name,)


Type = Union[DType, str, type, np.dtype]

BY_NAME = {name: DType(name, value, size) for name, value, size, _ in TYPES}
BY_NAME.update((name, DType(name, *numbers)) for name, *numbers in BLOCK_TYPES)
BY_VALUE = {dtype.value: dtype for dtype in BY_NAME.values()}
OF_NUMPY = {dtype.raw: dtype for dtype in BY_NAME.values()
             if dtype.block == 1 and (dtype.name != 'bf16' or _bfloat16)}
_BY_PYTHON = {float: 'f32', int: 'i32', bool: 'bool'}
_ALIASES = {'bfloat16': 'bf16', 'float': 'f32', 'int': 'i32', 'bool_': 'bool'}

# What kiln has not is stored as the next type that it has.
_NEXT = {
    np.dtype(np.float64): np.float32, np.dtype(np.longdouble): np.float32,
    np.dtype(np.int16): np.int32, np.dtype(np.uint16): np.int32,
    np.dtype(np.uint32): np.int64, np.dtype(np.uint64): np.int64,
}


def as_dtype(value: Type) -> DType:
    """The type that a name, a type of numpy's or of Python's means."""
    if isinstance(value, DType):
        return value
    if isinstance(value, str):
        name = _ALIASES.get(value, value)
        if name in BY_NAME:
            return BY_NAME[name]
    if isinstance(value, type) and value in _BY_PYTHON:
        return BY_NAME[_BY_PYTHON[value]]
    dtype = np.dtype(value)
    if dtype not in OF_NUMPY:
        raise TypeError(f'kiln has no type for elements of {dtype}; it has ' +
                        ', '.join(name for name, *_ in TYPES))
    return OF_NUMPY[dtype]


def _reading_headers() -> bool:
    """Whether an array of numpy's begins with Python's header of objects and the address of its
    elements, as its C headers say (PyArrayObject_fields): asking it by `ctypes.data` takes longer than
    all else that a call of a kiln.function does for it."""
    if sys.implementation.name != 'cpython':
        return False
    some = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    return all(_address_in(id(a) + _HEADER).value == a.ctypes.data
               for a in (some, some[1:, 1, ::2], some[:0], some[1, 2, 3:4].reshape(())))


_HEADER = object.__basicsize__
_address_in = ctypes.c_void_p.from_address
if _reading_headers():
    def address_of(array: np.ndarray) -> int:
        """Of its first element. Whoever uses it holds the array."""
        return _address_in(id(array) + _HEADER).value or 0
else:
    def address_of(array: np.ndarray) -> int:
        return int(array.ctypes.data)


def storable(array: np.ndarray, kind: Optional[DType] = None) -> np.ndarray:
    """The array in a type of kiln's and row-major; itself where it is so already. float64 is
    rounded to float32; whole numbers of other widths go into the next type that holds them. Of
    `kind`, which it has already, it keeps the elements: bits of bf16 are no whole numbers."""
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder('='))
    dtype = array.dtype
    if dtype not in OF_NUMPY and not (kind and dtype == kind.raw):
        if dtype not in _NEXT:
            raise TypeError(f'kiln has no type for elements of {dtype}')
        if dtype == np.uint64 and array.size and int(array.max()) > np.iinfo(np.int64).max:
            raise OverflowError('an element of the uint64 array is beyond int64')
        array = array.astype(_NEXT[dtype])
    return np.ascontiguousarray(array).reshape(array.shape)


def bits_of_bf16(array: np.ndarray) -> np.ndarray:
    """The bits of the bf16 next to each number, ties to the even one, as the device rounds."""
    wide = np.ascontiguousarray(array, np.float32).reshape(array.shape)
    bits = wide.view(np.uint32)
    rounded = (bits + (np.uint32(0x7fff) + ((bits >> 16) & 1))) >> 16
    # A NaN stays one: rounding could carry its fraction into infinity.
    return np.where(np.isnan(wide), (bits >> 16) | 0x40, rounded).astype(np.uint16)


def promoted(dtypes: list[DType]) -> DType:
    """The type that operands of several types are converted to, as numpy would."""
    names = {dtype.computed.name for dtype in dtypes}
    if names == {'u8', 'i8'}:  # neither holds the other's
        return BY_NAME['i32']
    return BY_NAME[max(names, key=_ORDER.index)]


def result_of(dtypes: list[DType]) -> DType:
    """The type of elements that are put together from several tensors: one that all have, or the one
    in which operands meet."""
    first = dtypes[0].apart
    return first if all(dtype.apart is first for dtype in dtypes) else promoted(dtypes)


def type_of_number(value: Any) -> DType:
    """The type that a number has where nothing else says so, as numpy has it: bool, i64 or f32."""
    return BY_NAME['bool' if isinstance(value, (bool, np.bool_)) else
                   'i64' if isinstance(value, (int, np.integer)) else 'f32']


def from_raw(array: np.ndarray, dtype: DType) -> np.ndarray:
    """Elements as users see them: of bf16 without ml_dtypes as float32, which holds each."""
    if dtype.name == 'bf16' and not _bfloat16:
        wide = array.astype(np.uint32)
        wide <<= np.uint32(16)  # in place: of no dimension it stays an array
        return wide.view(np.float32)
    return array
