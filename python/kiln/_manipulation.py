# SPDX-License-Identifier: Apache-2.0
"""Shapes: the same elements in another order, repeated, cut or joined."""
from __future__ import annotations

import builtins
import math
import operator
from typing import Any, Optional, Sequence, Union

import numpy as np

from . import _operations as _o
from . import _tensor
from ._context import default_context
from ._library import Handle, lib, sizes, word
from ._record import (axes_in, axis_in, call, dims_of, find_context, operand, operands, several)
from ._types import Type, as_dtype, result_of

# ---- one tensor ----

def astype(x: _tensor.Array, dtype: Type, *, copy: bool = True, device: Any = None) -> _tensor.Tensor:
    """The elements of x as another type: kiln.cast(). Nothing is copied where it is of that type;
    without `copy` it is x itself then."""
    x, wanted = operand(x), as_dtype(dtype)
    if x.dtype.value == wanted.value:
        made = _tensor.another(x) if copy else x
    else:
        made = call(x, 'cast', wanted.value)
    return made if device is None else made.to_device(device)


def reshape(x: _tensor.Array, shape: _tensor.Shape, *, copy: Optional[bool] = None) -> _tensor.Tensor:
    """The same elements in row-major order under another shape; one dimension may be -1: what is
    left. Whether anything is copied makes no difference: tensors do not share what is written."""
    x = operand(x)
    dims = [operator.index(shape)] if hasattr(shape, '__index__') else [int(d) for d in shape]
    if dims.count(-1) == 1:
        known = math.prod(d for d in dims if d != -1)
        dims[dims.index(-1)] = x.size // known if known else 0
    dims = dims_of(dims)
    return _tensor.another(x) if tuple(dims) == x.shape else call(x, 'reshape', len(dims), sizes(dims))


def transpose(x: _tensor.Array, axes: Optional[Sequence[int]] = None) -> _tensor.Tensor:
    """Dimensions in another order: dimension i of the result is dimension axes[i] of x. None: in
    the opposite order, as numpy has it."""
    x = operand(x)
    order = list(range(x.ndim))[::-1] if axes is None else [axis_in(a, x.ndim) for a in axes]
    if sorted(order) != list(range(x.ndim)):
        raise ValueError(f'axes {list(axes or ())} are no order of {x.ndim} dimensions')
    return _tensor.another(x) if order == list(range(x.ndim)) else call(x, 'transpose', sizes(order))


def swapaxes(x: _tensor.Array, first: int, second: int) -> _tensor.Tensor:
    """x with two dimensions swapped."""
    x = operand(x)
    order = list(range(x.ndim))
    first, second = axis_in(first, x.ndim), axis_in(second, x.ndim)
    order[first], order[second] = second, first
    return transpose(x, order)


def expand_dims(x: _tensor.Array, axis: _tensor.Axis) -> _tensor.Tensor:
    """x with a further dimension of 1, or several, where `axis` says for the result."""
    x = operand(x)
    axes: Sequence[Any] = [axis] if hasattr(axis, '__index__') else list(axis or ())
    rank = x.ndim + len(axes)
    places = {axis_in(a, rank) for a in axes}
    dims = iter(x.shape)
    return reshape(x, [1 if i in places else next(dims) for i in range(rank)])


def squeeze(x: _tensor.Array, axis: _tensor.Axis = None) -> _tensor.Tensor:
    """x without its dimensions of 1, or without these of them."""
    x = operand(x)
    axes = [i for i, dim in enumerate(x.shape) if dim == 1] if axis is None else \
        axes_in(axis, x.ndim)
    if any(x.shape[a] != 1 for a in axes):
        raise ValueError(f'only dimensions of 1 can be dropped, of shape {list(x.shape)}')
    return reshape(x, [dim for i, dim in enumerate(x.shape) if i not in axes])


def broadcast_to(x: _tensor.Array, shape: _tensor.Shape) -> _tensor.Tensor:
    """x repeated to a larger shape by numpy's rule: aligned at the last dimension, 1 repeats."""
    x = operand(x)
    dims = dims_of(shape)
    return _tensor.another(x) if tuple(dims) == x.shape else call(x, 'broadcast', len(dims), sizes(dims))


def pad(x: _tensor.Array, width: Any, value: float = 0.0, mode: str = 'constant') -> _tensor.Tensor:
    """x with elements of this value around it, or with its own: `mode` is "constant", "edge",
    "reflect", "symmetric" or "wrap". `width` is a number for all sides, a pair (before, behind) for
    all dimensions, or a pair for each."""
    x = operand(x)
    widths = np.broadcast_to(np.asarray(width, np.int64), (x.ndim, 2)).tolist()
    if any(side < 0 for pair in widths for side in pair):
        raise ValueError(f'a width below 0: {width}')
    low, high = ([pair[i] for pair in widths] for i in (0, 1))
    if mode == 'constant':
        return call(x, 'pad', sizes(low), sizes(high), float(value))
    return call(x, 'pad_by', sizes(low), sizes(high), word('kiln_padding', mode))


def windows(x: _tensor.Array, axis: int, size: Sequence[int], step: Optional[Sequence[int]] = None,
            dilation: Optional[Sequence[int]] = None) -> _tensor.Tensor:
    """Windows of these sizes that slide over the dimensions of x from `axis` on, in place of these:
    first how many there are along each, then their sizes. No element is copied."""
    x = operand(x)
    size = dims_of(size)
    count = len(size)
    lists = [None if v is None else sizes(dims_of(v)) for v in (step, dilation)]
    if any(v is not None and len(v) != count for v in lists):
        raise ValueError(f'step and dilation have {count} numbers, as size has')
    return call(x, 'windows', axis_in(axis, x.ndim), count, sizes(size), *lists)


def split(x: _tensor.Array, parts: Union[int, Sequence[int]], axis: int = 0) -> list[Any]:
    """x cut along an axis into so many equal parts, or into parts of these sizes. No element is
    copied."""
    x = operand(x)
    count = parts if isinstance(parts, int) else len(parts)
    lengths = None if isinstance(parts, int) else sizes(dims_of(parts))

    def enter(batch: Any, handles: list[Any]) -> list[Any]:
        out = (Handle * builtins.max(count, 1))()
        lib.kiln_split(batch, handles[0], axis, count, lengths, out)
        return [Handle(out[i].id) for i in range(count)]
    return several(x._context, [x], enter, count)


def permute_dims(x: _tensor.Array, axes: Sequence[int]) -> _tensor.Tensor:
    """kiln.transpose(), as the array standard calls it."""
    return transpose(x, axes)


def matrix_transpose(x: _tensor.Array) -> _tensor.Tensor:
    """x with its last two dimensions swapped."""
    return swapaxes(x, -1, -2)


def moveaxis(x: _tensor.Array, source: Union[int, Sequence[int]],
             destination: Union[int, Sequence[int]]) -> _tensor.Tensor:
    """x with some dimensions at other places; the others keep their order."""
    x = operand(x)
    sources, targets = axes_in(source, x.ndim), axes_in(destination, x.ndim)
    if len(sources) != len(targets) or len({*sources}) != len(sources) or \
            len({*targets}) != len(targets):
        raise ValueError(f'moveaxis: {source} go to {destination}: as many, and each once')
    order = [i for i in range(x.ndim) if i not in sources]
    for target, axis in sorted(zip(targets, sources)):
        order.insert(target, axis)
    return transpose(x, order)


def flip(x: _tensor.Array, *, axis: _tensor.Axis = None) -> _tensor.Tensor:
    """x in the opposite order along an axis, or several; None: all."""
    made = operand(x)
    gone = axes_in(axis, made.ndim)
    return made[tuple(slice(None, None, -1) if i in gone else slice(None) for i in range(made.ndim))]


def roll(x: _tensor.Array, shift: Union[int, Sequence[int]], *,
         axis: _tensor.Axis = None) -> _tensor.Tensor:
    """x with its elements so many places further along an axis, and those that leave it at its
    beginning. Several axes have a shift each, or one for all; None: over the flattened x."""
    made = _tensor.another(operand(x))
    if axis is None:
        return reshape(roll(reshape(made, -1), shift, axis=0), made.shape)
    axes = axes_in(axis, made.ndim)
    shifts = np.broadcast_to(np.asarray(shift, object), (len(axes),)).tolist()
    for along, by in zip(axes, shifts):
        n = made.shape[along]
        at = -operator.index(by) % n if n else 0
        if at:
            before = [slice(None)] * along
            made = _o.concat([made[(*before, slice(at, None))], made[(*before, slice(0, at))]], along)
    return made


def tile(x: _tensor.Array, repetitions: Sequence[int]) -> _tensor.Tensor:
    """x so many times along each dimension, the last one's number last; dimensions that lack are
    of 1."""
    x = operand(x)
    times = dims_of(repetitions)
    rank = builtins.max(x.ndim, len(times))
    times = [1] * (rank - len(times)) + times
    dims = (1,) * (rank - x.ndim) + x.shape
    for axis, by in enumerate(times):
        if by != 1:
            before, behind = math.prod(dims[:axis]), math.prod(dims[axis:])
            x = broadcast_to(reshape(x, (before, 1, behind)), (before, by, behind))
            dims = (*dims[:axis], dims[axis] * by, *dims[axis + 1:])
    return reshape(x, dims)


def repeat(x: _tensor.Array, repeats: _tensor.Array, *, axis: Optional[int] = None) -> _tensor.Tensor:
    """x with each element so many times, side by side, along an axis; None: flattened. `repeats` is
    a number, or has one for each place of the axis; where it is a tensor it is evaluated, because
    the shape depends on it."""
    x = operand(x)
    if axis is None:
        x, axis = reshape(x, -1), 0
    axis = axis_in(axis, x.ndim)
    times = np.asarray(repeats) if not isinstance(repeats, _tensor.Operators) else \
        _tensor.known(repeats._tensor(), "repeat()'s shape")
    if times.dtype.kind not in 'iu' or times.ndim > 1 or (times < 0).any():
        raise ValueError('repeat: numbers of times are integers from 0 on')
    if times.size == 1:
        by, dims = int(times.reshape(())), x.shape
        before, behind = math.prod(dims[:axis + 1]), math.prod(dims[axis + 1:])
        made = broadcast_to(reshape(x, (before, 1, behind)), (before, by, behind))
        return reshape(made, (*dims[:axis], dims[axis] * by, *dims[axis + 1:]))
    if times.size != x.shape[axis]:
        raise ValueError(f'repeat: {times.size} numbers for an axis of {x.shape[axis]}')
    places = np.repeat(np.arange(x.shape[axis]), times)
    return _o.gather(x, places.astype(np.int32), axis)


# ---- several tensors ----

def broadcast_arrays(*arrays: _tensor.Array) -> list[_tensor.Tensor]:
    """The tensors with the shape to which they broadcast."""
    given = operands(*arrays)
    shape = np.broadcast_shapes(*(x.shape for x in given))
    return [broadcast_to(x, shape) for x in given]


def broadcast_shapes(*shapes: _tensor.Shape) -> tuple[int, ...]:
    """The shape to which these broadcast."""
    return np.broadcast_shapes(*shapes)


def _of_one_type(arrays: Sequence[_tensor.Array]) -> list[_tensor.Tensor]:
    given = operands(*arrays)
    return [astype(x, result_of([y.dtype for y in given]), copy=False) for x in given]


def concat(arrays: Sequence[_tensor.Array], axis: Optional[int] = 0) -> _tensor.Tensor:
    """The tensors one after the other along an axis; None: all flattened. Of several types they
    meet as operands do."""
    given = _of_one_type(arrays)
    if axis is None:
        return _o.concat([reshape(x, -1) for x in given], 0)
    return _o.concat(given, axis)


def concatenate(parts: Sequence[_tensor.Array], axis: Optional[int] = 0) -> _tensor.Tensor:
    """kiln.concat(), as numpy calls it."""
    return concat(parts, axis)


def stack(arrays: Sequence[_tensor.Array], axis: int = 0) -> _tensor.Tensor:
    """The tensors, all of one shape, side by side along a new dimension. Of several types they meet
    as operands do."""
    return _o.stack(_of_one_type(arrays), axis)


def unstack(x: _tensor.Array, *, axis: int = 0) -> tuple[_tensor.Tensor, ...]:
    """The parts of x along an axis, each without it."""
    x = operand(x)
    axis = axis_in(axis, x.ndim)
    return tuple(x[(*[slice(None)] * axis, i)] for i in range(x.shape[axis]))


__all__ = [
    'astype', 'broadcast_arrays', 'broadcast_shapes', 'broadcast_to', 'concat', 'concatenate',
    'expand_dims', 'flip', 'matrix_transpose', 'moveaxis', 'pad', 'permute_dims', 'repeat', 'reshape',
    'roll', 'split', 'squeeze', 'stack', 'swapaxes', 'tile', 'transpose', 'unstack', 'windows',
]
