# SPDX-License-Identifier: Apache-2.0
"""Elements picked and put by tensors of indices. Negative ones count from the end."""
from __future__ import annotations

from typing import Any, Optional, Sequence, Union

import numpy as np

from . import _operations as _o
from . import _tensor
from ._manipulation import reshape
from ._record import axis_in, operand, operands
from ._types import BY_NAME

def counted(indices: _tensor.Array, length: Any) -> Any:
    """Indices below a length, or below one for each of their last dimension, of which negative ones
    count from the end, counted from the start."""
    if not isinstance(indices, _tensor.Operators):
        indices = _tensor.as_array(indices)
        if indices.dtype.kind == 'i':
            indices = indices.astype(np.int64)
            return np.where(indices < 0, indices + length, indices)
        return indices
    tensor = indices._tensor()
    if tensor.dtype.is_floating or tensor.dtype.computed == BY_NAME['u8']:
        return tensor
    tensor = tensor.astype('i32') if tensor.dtype.itemsize == 1 else tensor
    if isinstance(length, np.ndarray):
        length = length.astype(np.int64 if tensor.dtype.itemsize == 8 else np.int32)
    return _o.where(tensor < 0, tensor + length, tensor)


def merged(indices: Sequence[_tensor.Tensor], lengths: Sequence[int],
           may_be_beyond: Sequence[bool]) -> _tensor.Tensor:
    """i32: positions in several dimensions taken as one, of an index in each; -1, which picks nothing,
    where an index that may be beyond its dimension is."""
    flat: Any = None
    within: Any = None
    for k, n, uncertain in zip(indices, lengths, may_be_beyond):
        k = k if k.dtype == BY_NAME['i64'] else k.astype('i32')
        if uncertain:
            here = _o.logical_and(_o.greater_equal(k, 0), _o.less(k, n))
            within = here if within is None else _o.logical_and(within, here)
        k = k.astype('i32')
        flat = k if flat is None else flat * n + k
    return flat if within is None else _o.where(within, flat, -1)


def gather(x: _tensor.Array, indices: _tensor.Array, axis: int) -> _tensor.Tensor:
    """Elements of x picked along an axis, as numpy's take(): the result has the shape of x with the
    axis replaced by all dimensions of `indices` (integers). A negative index counts from the end. One
    beyond x picks NaN, of an integer type 0."""
    x = operand(x)
    return _o.gather(x, counted(indices, x.shape[axis]), axis)


def slice_at(x: _tensor.Array, start: _tensor.Array, count: int, axis: int) -> _tensor.Tensor:
    """A part of x whose place is a tensor: `count` elements along an axis from `start` (integers) on,
    all of the other dimensions. `start` is one position, or by broadcasting one for each element of
    x's dimensions before the axis. A negative one counts from the end; what is beyond x is what
    kiln.gather() picks there."""
    x = operand(x)
    return _o.slice_at(x, counted(start, x.shape[axis]), count, axis)


def update_slice(x: _tensor.Array, part: _tensor.Array, start: _tensor.Array,
                 axis: int) -> _tensor.Tensor:
    """x with the elements of `part`, as x's type, put where kiln.slice_at() would find them; what
    goes beyond x is left out. x itself stays as it is; but of a buffer that gets the result nothing
    else is touched, as with `buffer[:, start] = part`."""
    x = operand(x)
    part = _tensor.as_tensor(part, x._context).astype(x.dtype)
    return _o.update_slice(x, part, counted(start, x.shape[axis]), axis)


def gather_elements(x: _tensor.Array, indices: _tensor.Array, axis: int) -> _tensor.Tensor:
    """One element of x for each of `indices` (of x's rank), at its own position but for the axis,
    where the index is: numpy's take_along_axis(). A negative index counts from the end; one beyond x
    picks as with kiln.gather()."""
    x = operand(x)
    return _o.gather_elements(x, counted(indices, x.shape[axis]), axis)


def scatter(x: _tensor.Array, indices: _tensor.Array, values: _tensor.Array, axis: int,
            mode: Union[int, str] = 'set') -> _tensor.Tensor:
    """x with values put to the elements that kiln.gather() would pick, or, by `mode`, added to them
    ("add"), multiplied ("mul"), or the smaller or larger of both ("min", "max"). Values come in their
    order; one whose index is beyond x is left out. x itself stays as it is."""
    x = operand(x)
    return _o.scatter(x, counted(indices, x.shape[axis]), values, axis, mode)


def scatter_add(x: _tensor.Array, indices: _tensor.Array, values: _tensor.Array,
                axis: int) -> _tensor.Tensor:
    """kiln.scatter() with "add"."""
    return scatter(x, indices, values, axis, 'add')


def scatter_elements(x: _tensor.Array, indices: _tensor.Array, values: _tensor.Array, axis: int,
                     mode: Union[int, str] = 'set') -> _tensor.Tensor:
    """x with values, of indices' shape, put to the elements that kiln.gather_elements() would pick;
    the rest as with kiln.scatter()."""
    x = operand(x)
    return _o.scatter_elements(x, counted(indices, x.shape[axis]), values, axis, mode)


def _counted_parts(x: Any, indices: Any, batch_dims: int) -> Any:
    """Positions of parts, counted from the start; those that fit no x are for the call to refuse."""
    shape = np.shape(indices)
    lengths = x.shape[batch_dims:batch_dims + (shape[-1] if shape else 0)]
    if not shape or len(lengths) != shape[-1] or not lengths:
        return indices
    return counted(indices, np.array(lengths, np.int64))


def gather_nd(x: _tensor.Array, indices: _tensor.Array, batch_dims: int = 0) -> _tensor.Tensor:
    """Parts of x: the last dimension of `indices` (integers) has positions in as many dimensions of
    x, from number `batch_dims` on, in its place the part that is there. The first `batch_dims`
    dimensions of both are the same ones, each with indices of its own. A negative position counts
    from the end; one beyond x picks as with kiln.gather()."""
    x = operand(x)
    return _o.gather_nd(x, _counted_parts(x, indices, batch_dims), batch_dims)


def scatter_nd(x: _tensor.Array, indices: _tensor.Array, values: _tensor.Array,
               mode: Union[int, str] = 'set') -> _tensor.Tensor:
    """x with values put to the parts that kiln.gather_nd() of `batch_dims` 0 would pick; the rest as
    with kiln.scatter()."""
    x = operand(x)
    return _o.scatter_nd(x, _counted_parts(x, indices, 0), values, mode)


def take(x: _tensor.Array, indices: _tensor.Array, *, axis: Optional[int] = None) -> _tensor.Tensor:
    """Elements of x picked along an axis: kiln.gather(). None: of the flattened x, as numpy has it."""
    x = operand(x)
    if axis is None:
        x, axis = reshape(x, -1), 0
    return gather(x, indices, axis_in(axis, x.ndim))


def take_along_axis(x: _tensor.Array, indices: _tensor.Array, *, axis: int = -1) -> _tensor.Tensor:
    """One element of x for each index, at its own position but for the axis, where the index is:
    kiln.gather_elements(). The other dimensions broadcast."""
    x, at = operands(x, indices)
    axis = axis_in(axis, x.ndim)
    if at.ndim != x.ndim:
        raise ValueError(f'take_along_axis: {at.ndim} dimensions of indices, {x.ndim} of x')
    shape = list(np.broadcast_shapes(*([1 if i == axis else n for i, n in enumerate(y.shape)]
                                       for y in (x, at))))
    at = at.broadcast_to([n if i != axis else at.shape[i] for i, n in enumerate(shape)])
    x = x.broadcast_to([n if i != axis else x.shape[i] for i, n in enumerate(shape)])
    return gather_elements(x, at, axis)


__all__ = [
    'gather', 'gather_elements', 'gather_nd', 'scatter', 'scatter_add', 'scatter_elements',
    'scatter_nd', 'slice_at', 'take', 'take_along_axis', 'update_slice',
]
