# SPDX-License-Identifier: Apache-2.0
"""Rows of ATen's operators that pick elements by indices, and that put, order and search them."""
from __future__ import annotations

import math
from typing import Any, Callable, Optional, Sequence

import numpy as np

import kiln as _f
from . import _operations as _o
from ._gather import counted, merged
from ._tensor import Tensor
from ._torch_operators import Unsupported, axis_of, enter_rows, row
from ._torch_orders import highest_of, lowest_of

# ---- picking and putting ----

def _shown(x: Tensor, shape: Sequence[int]) -> Tensor:
    """The first elements along each dimension."""
    return x[tuple(slice(0, n) for n in shape)]


@row('aten.gather.default')
def _gather(x: Tensor, dim: int, index: Tensor, sparse_grad: bool = False) -> Tensor:
    if not x.ndim or not index.ndim:
        raise Unsupported('no dimension to gather along')
    axis = axis_of(x, dim)
    part = _shown(x, [x.shape[i] if i == axis else n for i, n in enumerate(index.shape)])
    return _f.gather_elements(part, index, axis)


@row('aten.index_select.default')
def _index_select(x: Tensor, dim: int, index: Tensor) -> Tensor:
    if not x.ndim:
        return x
    return _o.gather(x, index if index.ndim else index.reshape((1,)), axis_of(x, dim))


@row('aten.embedding.default')
def _embedding(weight: Tensor, indices: Tensor, padding: int = -1, *_: Any) -> Tensor:
    return _o.gather(weight, indices, 0)


# So many elements are added, or left, sooner than a scatter begins: that is a launch of its own, between
# fills and maps that are joined with nothing.
_MOST_COMPARED = 1 << 18


@row('aten.embedding_dense_backward.default')
def _embedding_backward(gradient: Tensor, indices: Tensor, count: int, padding: int,
                        by_frequency: bool) -> Tensor:
    if by_frequency:
        raise Unsupported('scaled by frequency')
    width = gradient.shape[-1]
    rows = gradient.reshape((-1, width))
    places = indices.reshape((-1,))
    if padding >= 0:
        rows = _o.where(_o.equal(places, padding).reshape((-1, 1)), 0.0, rows)
    if count * places.size * width <= _MOST_COMPARED:
        meant = _o.equal(_f.arange(count, dtype='i32').reshape((-1, 1)), places.astype('i32'))
        return _o.sum(_o.where(_f.expand_dims(meant, -1), rows.astype('f32'), 0.0), 1, False)
    return _f.scatter(_f.zeros((count, width), 'f32'), places, rows.astype('f32'), 0, 'add')


_MODES = {'sum': 'add', 'prod': 'mul', 'amin': 'min', 'amax': 'max', 'add': 'add',
          'multiply': 'mul'}


def _put(x: Tensor, dim: int, index: Tensor, values: Any, mode: str) -> Tensor:
    if not x.ndim or not index.ndim:
        raise Unsupported('no dimension to scatter along')
    values = _shown(values, index.shape) if isinstance(values, Tensor) else \
        _f.full(index.shape, values, x.dtype)
    return _f.scatter_elements(x, index, values.astype(x.dtype), axis_of(x, dim), mode)


@row('aten.scatter.src', 'aten.scatter.value')
def _scatter(x: Tensor, dim: int, index: Tensor, values: Any) -> Tensor:
    one = x.ndim and index.ndim == x.ndim and all(
        n == (1 if i == axis_of(x, dim) else x.shape[i]) for i, n in enumerate(index.shape))
    if one and not isinstance(values, Tensor):
        # Each row has a place, as in the gradient of a loss by classes: a comparison fuses with what is around.
        numbers = _f.arange(x.shape[dim], dtype='i32').reshape((-1,) + (1,) * (x.ndim - axis_of(x, dim) - 1))
        return _o.where(_o.equal(numbers, index.astype('i32')), values, x)
    return _put(x, dim, index, values, 'set')


@row('aten.scatter.reduce', 'aten.scatter.value_reduce')
def _scatter_by(x: Tensor, dim: int, index: Tensor, values: Any, reduce: str) -> Tensor:
    return _put(x, dim, index, values, _MODES[reduce])


@row('aten.scatter_add.default')
def _scatter_add(x: Tensor, dim: int, index: Tensor, values: Tensor) -> Tensor:
    return _put(x, dim, index, values, 'add')


def _neutral(dtype: Any, reduce: str) -> float:
    """What changes nothing."""
    return {'prod': 1, 'amax': lowest_of(dtype), 'amin': highest_of(dtype)}.get(reduce, 0)


def _reduced_into(x: Tensor, values: Tensor, reduce: str, include_self: bool,
                  put: Callable[[Tensor, Tensor, str], Tensor]) -> Tensor:
    """x with values joined to its elements, or to nothing where it has one that is to go.
    put(x, values, mode) puts them."""
    mode = 'add' if reduce == 'mean' else _MODES[reduce]
    values = values.astype(x.dtype)
    start = x if include_self else put(x, _f.full(values.shape, _neutral(x.dtype, reduce), x.dtype),
                                       'set')
    total = put(start, values, mode)
    if reduce != 'mean':
        return total
    joined = put(_f.full(x.shape, int(include_self), 'i32'), _f.full(values.shape, 1, 'i32'), 'add')
    count = _o.maximum(joined, 1).astype(x.dtype)
    return total / count if x.dtype.is_floating else _f.floor_divide(total, count)


@row('aten.scatter_reduce.two')
def _scatter_reduce(x: Tensor, dim: int, index: Tensor, values: Tensor, reduce: str,
                    include_self: bool = True) -> Tensor:
    if not x.ndim or not index.ndim:
        raise Unsupported('no dimension to scatter along')
    return _reduced_into(x, _shown(values, index.shape), reduce, include_self,
                         lambda x, v, mode: _f.scatter_elements(x, index, v, axis_of(x, dim), mode))


@row('aten.index_reduce.default')
def _index_reduce(x: Tensor, dim: int, index: Tensor, values: Tensor, reduce: str, *,
                  include_self: bool = True) -> Tensor:
    places = index.reshape((-1,))
    if not x.ndim:  # as a row of one
        x, values = x.reshape((1,)), values.reshape((-1,))
        one: Tensor = _index_reduce(x, 0, places, values, reduce, include_self=include_self)
        return one.reshape(())
    if not values.ndim:
        values = values.reshape((1,))
    return _reduced_into(x, values, reduce, include_self,
                         lambda x, v, mode: _f.scatter(x, places, v, axis_of(x, dim), mode))


@row('aten.put.default')
def _put_flat(x: Tensor, index: Tensor, values: Tensor, accumulate: bool = False) -> Tensor:
    return _f.scatter(x.reshape((-1,)), index.reshape((-1,)), values.reshape((-1,)), 0,
                      'add' if accumulate else 'set').reshape(x.shape)


@row('aten.masked_scatter.default')
def _masked_scatter(x: Tensor, mask: Tensor, values: Tensor) -> Tensor:
    chosen = _f.broadcast_to(mask, x.shape).reshape((-1,))
    place = _o.cumsum(chosen.astype('i32'), 0) - 1
    found = _o.gather(values.reshape((-1,)), _o.maximum(place, 0), 0)
    return _o.where(chosen, found, x.reshape((-1,))).reshape(x.shape)


def _picked(x: Tensor, indices: Sequence[Optional[Tensor]]) -> tuple[Any, ...]:
    """How tensors of indices pick: the order of dimensions that has theirs first, their extents, and
    positions in what these are together."""
    picked = [i for i, index in enumerate(indices) if index is not None]
    tensors = [index for index in indices if index is not None]
    if any(t.dtype.name in ('bool', 'u8') for t in tensors):
        raise Unsupported('a mask picks as many as its content says')
    lengths = [x.shape[i] for i in picked]
    flat = counted(tensors[0], lengths[0]) if len(picked) == 1 else \
        merged(list(map(counted, tensors, lengths)), lengths, [True] * len(picked))
    order = picked + [i for i in range(x.ndim) if i not in picked]
    return picked, order, flat


def _index(x: Tensor, indices: Sequence[Optional[Tensor]]) -> Tensor:
    picked, order, flat = _picked(x, indices)
    rest = [x.shape[i] for i in order[len(picked):]]
    pool = _f.transpose(x, order).reshape([math.prod(x.shape[i] for i in picked)] + rest)
    found = _o.gather(pool, flat, 0)
    adjacent = picked == list(range(picked[0], picked[-1] + 1))
    if not adjacent or picked[0] == 0:
        return found
    # Their dimensions stand where the first index does.
    count = flat.ndim
    before = list(range(count, count + picked[0]))
    behind = list(range(count + picked[0], found.ndim))
    return _f.transpose(found, before + list(range(count)) + behind)


enter_rows('Tensor', {'index': _index, '_unsafe_index': _index})


def _index_put(x: Tensor, indices: Sequence[Optional[Tensor]], values: Tensor,
               accumulate: bool = False, unsafe: bool = False) -> Tensor:
    masks = [i for i in indices if i is not None and i.dtype.name == 'bool']
    if masks and len(indices) == 1 and values.size == 1 and not accumulate:
        mask = masks[0].reshape(masks[0].shape + (1,) * (x.ndim - masks[0].ndim))
        return _o.where(mask, values.reshape(()).astype(x.dtype), x)
    picked, order, flat = _picked(x, indices)
    rest = [x.shape[i] for i in order[len(picked):]]
    count = math.prod(x.shape[i] for i in picked)
    adjacent = picked == list(range(picked[0], picked[-1] + 1))
    if adjacent and picked[0]:
        shape = rest[:picked[0]] + list(flat.shape) + rest[picked[0]:]
        values = values.broadcast_to(shape)
        first = list(range(picked[0], picked[0] + flat.ndim))
        values = _f.transpose(values, first + [i for i in range(len(shape)) if i not in first])
    else:
        values = values.broadcast_to([*flat.shape, *rest])
    pool = _f.transpose(x, order).reshape([count] + rest)
    put = _o.scatter(pool, flat.reshape((-1,)), values.reshape([flat.size] + rest).astype(x.dtype), 0,
                     'add' if accumulate else 'set')
    return _f.transpose(put.reshape([x.shape[i] for i in order]), np.argsort(order).tolist())


enter_rows('default', {'index_put': _index_put, '_unsafe_index_put': _index_put})


