# SPDX-License-Identifier: Apache-2.0
"""Tensors that are made of no others: of numbers, arrays and shapes. `device` and `context` are two
words for the kiln.Context in which they are made."""
from __future__ import annotations

from typing import Any, Optional

import numpy as np

from . import _operations as _o
from . import _dlpack, _tensor
from ._context import default_context
from ._record import dims_of, operand, operands, record
from ._types import Type, as_dtype, type_of_number

# Numbers up to this are exact as C's double, in which the library takes them.
_EXACT = 2 ** 53


def _filled(shape: _tensor.Shape, value: Any, dtype: Optional[Type], context: Any) -> _tensor.Tensor:
    kind = type_of_number(value) if dtype is None else as_dtype(dtype)
    value = bool(value) if kind.name == 'bool' else value
    if kind.name == 'i64' and not -_EXACT <= value <= _EXACT:
        one = _tensor.of_array(np.array(int(value), np.int64), context or default_context())
        return one.broadcast_to(dims_of(shape))
    return _o.fill(kind, shape, float(value), context=context)


def zeros(shape: _tensor.Shape, dtype: Optional[Type] = None, *, device: Any = None,
          context: Any = None) -> _tensor.Tensor:
    """Zeros of a shape, f32 unless a type is given; no memory is filled where they are only read."""
    return _filled(shape, 0.0, dtype or 'f32', context or device)


def ones(shape: _tensor.Shape, dtype: Optional[Type] = None, *, device: Any = None,
         context: Any = None) -> _tensor.Tensor:
    """Ones of a shape, f32 unless a type is given; no memory is filled where they are only read."""
    return _filled(shape, 1.0, dtype or 'f32', context or device)


def empty(shape: _tensor.Shape, dtype: Optional[Type] = None, *, device: Any = None,
          context: Any = None) -> _tensor.Tensor:
    """kiln.zeros(): a tensor's content is always defined."""
    return zeros(shape, dtype, device=device, context=context)


def full(shape: _tensor.Shape, fill_value: Any, dtype: Optional[Type] = None, *, device: Any = None,
         context: Any = None) -> _tensor.Tensor:
    """A value of a shape; without a type in the value's: f32, i64 or bool. No memory is filled where
    it is only read."""
    context = context or device
    if isinstance(fill_value, _tensor.Operators) or np.ndim(fill_value):
        made = operand(fill_value)
        return (made if dtype is None else made.astype(dtype)).broadcast_to(dims_of(shape))
    value = fill_value.item() if isinstance(fill_value, (np.generic, np.ndarray)) else fill_value
    return _filled(shape, value, dtype, context)


def _like(x: _tensor.Array, value: Any, dtype: Optional[Type], context: Any) -> _tensor.Tensor:
    x = operand(x)
    return full(x.shape, value, x.dtype.apart if dtype is None else dtype,
                context=context or x._context)


def zeros_like(x: _tensor.Array, dtype: Optional[Type] = None, *, device: Any = None) -> _tensor.Tensor:
    """Zeros of x's shape, and of its type unless one is given."""
    return _like(x, 0, dtype, device)


def ones_like(x: _tensor.Array, dtype: Optional[Type] = None, *, device: Any = None) -> _tensor.Tensor:
    """Ones of x's shape, and of its type unless one is given."""
    return _like(x, 1, dtype, device)


def empty_like(x: _tensor.Array, dtype: Optional[Type] = None, *, device: Any = None) -> _tensor.Tensor:
    """kiln.zeros_like(): a tensor's content is always defined."""
    return _like(x, 0, dtype, device)


def full_like(x: _tensor.Array, fill_value: Any, dtype: Optional[Type] = None, *,
              device: Any = None) -> _tensor.Tensor:
    """A value of x's shape, and of its type unless one is given."""
    return _like(x, fill_value, dtype, device)


def arange(start: float, stop: Optional[float] = None, step: float = 1,
           dtype: Optional[Type] = None, *, device: Any = None, context: Any = None) -> _tensor.Tensor:
    """start, start + step, ... before stop, as numpy's arange(); of integers i64, else f32."""
    if stop is None:
        start, stop = 0, start
    numbers = [v.item() if isinstance(v, np.generic) else v for v in (start, stop, step)]
    whole = all(isinstance(v, int) for v in numbers)
    kind = as_dtype(('i64' if whole else 'f32') if dtype is None else dtype)
    context = context or device
    if not whole and not kind.is_floating or any(abs(v) > _EXACT for v in numbers):
        # What C's numbers do not hold, or its rule refuses, numpy makes.
        return asarray(np.arange(*numbers).astype(kind.dtype), dtype=kind, device=context)
    return record('arange', [('type', kind), *(('number', float(v)) for v in numbers),
                             ('context', context)])


def linspace(start: float, stop: float, num: int, *, dtype: Optional[Type] = None, device: Any = None,
             endpoint: bool = True) -> _tensor.Tensor:
    """`num` numbers from start to stop, evenly apart; without `endpoint` the one after the last would
    be stop. f32 unless a type is given."""
    kind = as_dtype(dtype or 'f32')
    with np.errstate(all='ignore'):
        numbers = np.linspace(float(start), float(stop), num, endpoint=endpoint)
        numbers = numbers if kind.is_floating else np.floor(numbers)
        return asarray(numbers.astype(kind.dtype), dtype=kind, device=device)


def eye(n_rows: int, n_cols: Optional[int] = None, *, k: int = 0, dtype: Optional[Type] = None,
        device: Any = None) -> _tensor.Tensor:
    """A matrix with ones on a diagonal, zeros elsewhere: k is 0 for the main one, above 0 above it."""
    columns = n_rows if n_cols is None else n_cols
    shape = (n_rows, columns)
    k = min(max(k, -n_rows), columns)
    row, column = (_o.iota(shape, axis, context=device) for axis in (0, 1))
    return _o.equal(row + k, column).astype(dtype or 'f32')


def _triangle(x: _tensor.Array, k: int, upper: bool) -> _tensor.Tensor:
    x = operand(x)
    if x.ndim < 2:
        raise ValueError('a triangle is a part of a matrix, of two dimensions or more')
    rows, columns = x.shape[-2:]
    return _o.triangle(x, upper, min(max(k, -rows - 1), columns + 1)).astype(x.dtype.apart)


def tril(x: _tensor.Array, *, k: int = 0) -> _tensor.Tensor:
    """Matrices with zeros above a diagonal: 0 is the main one, numbers above 0 those above it."""
    return _triangle(x, k, False)


def triu(x: _tensor.Array, *, k: int = 0) -> _tensor.Tensor:
    """Matrices with zeros below a diagonal: 0 is the main one, numbers above 0 those above it."""
    return _triangle(x, k, True)


def meshgrid(*arrays: _tensor.Array, indexing: str = 'xy') -> list[_tensor.Tensor]:
    """Coordinates of a grid: of vectors, each along a dimension of its own of the result and repeated
    over the others. "xy": the first vector along the second dimension, as columns of a picture;
    "ij": in their order."""
    if indexing not in ('xy', 'ij'):
        raise ValueError(f"meshgrid: indexing is 'xy' or 'ij', not {indexing!r}")
    given = [x.reshape(-1) for x in operands(*arrays)]
    count = len(given)
    axes = list(range(count))
    if indexing == 'xy' and count > 1:
        axes[0], axes[1] = 1, 0
    shape = [0] * count
    for x, axis in zip(given, axes):
        shape[axis] = x.size
    return [x.reshape([x.size if i == axis else 1 for i in range(count)]).broadcast_to(shape)
            for x, axis in zip(given, axes)]


# ---- of what is there already ----

def asarray(obj: _tensor.Array, *, dtype: Optional[Type] = None, device: Any = None,
            copy: Optional[bool] = None, context: Any = None) -> _tensor.Tensor:
    """A tensor of a tensor, an array, of lists or a number. As numpy has it, integers are i64 unless
    a type is given; floats are f32. Memory of others is borrowed where it can be, as kiln.tensor() does;
    with `copy` it never is, and False raises an error where it cannot be."""
    context = context or device
    if isinstance(obj, _tensor.Operators):
        made = obj._tensor()
        wanted = made.dtype if dtype is None else as_dtype(dtype)
        if copy is False and (made.dtype != wanted or context not in (None, made._context)):
            raise ValueError('asarray: another type or device needs a copy')
        if context not in (None, made._context):
            made = made.to_device(context)
        elif made.dtype == wanted and not copy:
            return obj if isinstance(obj, _tensor.Tensor) else _tensor.another(made)
        return made.astype(wanted)
    array, stored = _listed(obj, dtype)
    borrowed = isinstance(obj, np.ndarray) or not isinstance(obj, (list, tuple, bool, int, float))
    if copy and borrowed:
        array = array.copy()
    made = _of_array(array, stored, dtype, context)
    if copy is False:
        _refuse_copied(made, array if stored else _tensor.as_array(obj))
    return made


def _of_array(array: np.ndarray, stored: Any, dtype: Optional[Type], context: Any) -> _tensor.Tensor:
    """A tensor of `dtype` over an array, whose elements are `stored` where numpy's type does not say so."""
    if stored is None:
        return _tensor.tensor(array, dtype, context)
    made = _tensor.of_array(array, context or default_context(), stored)
    return made if dtype in (None, stored) else made.astype(dtype)


def _refuse_copied(made: _tensor.Tensor, source: np.ndarray) -> None:
    if made.size and not np.shares_memory(made._host(), source):
        raise ValueError('asarray: this has no memory that can be borrowed: it needs a copy')


def _listed(obj: Any, dtype: Optional[Type]) -> tuple[np.ndarray, Any]:
    """An array of what lists and numbers hold, with raw_array()'s type; tensors may be among them."""
    if not isinstance(obj, (list, tuple, bool, int, float)):
        return _tensor.raw_array(obj)
    array = np.asarray(obj)
    if array.dtype.kind not in 'biuf':
        raise TypeError(f'a tensor cannot be made of elements of {array.dtype}')
    if dtype is not None and as_dtype(dtype).name not in ('bf16', 'bool') and array.dtype.kind in 'biu':
        return np.asarray(obj, as_dtype(dtype).raw), None  # or an error, where it is beyond the type
    return array, None


def from_dlpack(x: Any, *, device: Any = None, copy: Optional[bool] = None) -> _tensor.Tensor:
    """A tensor over the memory of whatever has DLPack, without a copy where its type and order are
    kiln's. What is on another device than the host is for its owner to bring there."""
    if isinstance(x, _tensor.Operators):
        return asarray(x, device=device, copy=copy)
    array, stored = _dlpack.array_of(x, copy)
    made = _of_array(array.copy() if copy else array, stored, None, device)
    if copy is False:
        _refuse_copied(made, array)
    return made


__all__ = [
    'arange', 'asarray', 'empty', 'empty_like', 'eye', 'from_dlpack', 'full', 'full_like', 'linspace',
    'meshgrid', 'ones', 'ones_like', 'tril', 'triu', 'zeros', 'zeros_like',
]
