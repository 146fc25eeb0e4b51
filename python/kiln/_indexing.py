# SPDX-License-Identifier: Apache-2.0
"""x[key] and x with x[key] replaced: numpy's keys, of which tensors may be a part."""
from __future__ import annotations

import builtins
import math
import operator
from typing import Any, Optional, Sequence

import numpy as np

from . import _operations as _o
from . import _tape, _tensor
from ._gather import counted, merged, update_slice
from ._library import lib, longs
from ._manipulation import broadcast_to, expand_dims, reshape, transpose
from ._record import call, operand
from ._tape import Expression
from ._types import BY_NAME

# ---- keys ----

def _is_array(k: Any) -> bool:
    return isinstance(k, (np.ndarray, _tensor.Operators))


def _is_integer(k: Any) -> bool:
    return hasattr(k, '__index__') and not _is_array(k) and not _is_truth_value(k)


def _is_truth_value(k: Any) -> bool:
    return isinstance(k, (bool, np.bool_)) or _is_mask(k) and not k.ndim


def _is_mask(k: Any) -> bool:
    return _is_array(k) and k.dtype == np.bool_


def _dimensions(k: Any) -> int:
    """How many dimensions an entry of a key is for."""
    return 0 if k is None or k is Ellipsis else k.ndim if _is_mask(k) else 1


def _normal_key(key: tuple[Any, ...], ndim: int) -> list[Any]:
    """The key with an entry for each dimension, and None where one is new."""
    given = builtins.sum(map(_dimensions, key))
    if given > ndim:
        raise IndexError(f'{given} indices for a tensor of {ndim} dimensions')
    places = [i for i, k in enumerate(key) if k is Ellipsis]
    if len(places) > 1:
        raise IndexError('an index has at most one ...')
    place = places[0] if places else len(key)
    return [*key[:place], *[slice(None)] * (ndim - given), *key[place + 1:]]


def _as_tuple(key: Any) -> tuple[Any, ...]:
    given = key if isinstance(key, tuple) else (key,)
    return tuple(np.asarray(k) if isinstance(k, list) else k for k in given)


def _entries(key: tuple[Any, ...], shape: tuple[int, ...]) -> list[Any]:
    """An entry for each dimension, None where one is new; masks are the positions that they pick."""
    entries, at = [], 0
    for k in _normal_key(key, len(shape)):
        entries += _as_entry(k, shape[at:at + _dimensions(k)])
        at += _dimensions(k)
    return entries


def _as_entry(k: Any, shape: tuple[int, ...]) -> list[Any]:
    """The entries that one of the key stands for, over dimensions of this shape."""
    if k is None or isinstance(k, slice):
        return [k]
    if _is_mask(k):
        if any(n not in (dim, 0) for n, dim in zip(k.shape, shape)):
            raise IndexError(f'a mask of shape {list(k.shape)} over dimensions {list(shape)}')
        if isinstance(k, np.ndarray):
            return list(np.nonzero(k))
        from ._search import nonzero
        return list(nonzero(k))
    if isinstance(k, _tensor.Operators):
        return [k]
    if _is_integer(k):
        return [operator.index(k)]
    array = np.asarray(k)
    return [array.astype(np.int64) if array.size == 0 else array]


def _by_truth(x: Any, key: tuple[Any, ...]) -> _tensor.Tensor:
    """x[key] with True or False in it: a mask of no dimensions, hence a further one, of 1 or 0."""
    if any(_is_array(k) and not _is_truth_value(k) for k in key) or \
            builtins.sum(map(_is_truth_value, key)) > 1:
        raise IndexError('True or False is an index beside integers, slices, ... and None')
    i = next(i for i, k in enumerate(key) if _is_truth_value(k))
    before, behind = key[:i], key[i + 1:]
    axis = x.ndim - builtins.sum(map(_dimensions, behind)) if any(k is Ellipsis for k in before) else \
        builtins.sum(map(_dimensions, before))
    return index(expand_dims(x, axis), (*before, slice(0, int(bool(key[i]))), *behind))


# ---- parts ----

def _bounds(k: Any, length: int) -> tuple[int, int, int]:
    """start, stop, step of an entry, within the dimension."""
    if isinstance(k, slice):
        start, stop, step = k.indices(length)
        if len(range(start, stop, step)) == 0:
            return 0, 0, 1
        return start, stop, step
    if not -length <= k < length:
        raise IndexError(f'index {k} along a dimension of {length}')
    return k % length, k % length + 1, 1


def _basic(x: Any, entries: list[Any]) -> Any:
    """The part that integers and slices name; where an array stands, all."""
    bounds = [_bounds(slice(None) if _is_array(k) else k, dim) for k, dim in zip(entries, x.shape)]
    if any(b != (0, dim, 1) for b, dim in zip(bounds, x.shape)):
        x = call(x, 'slice', *(longs(column) for column in zip(*bounds)))
    return x


def _element(x: Any, entries: list[Any]) -> Optional[_tensor.Tensor]:
    """One element of a value that is in the host's memory already: nothing runs for it."""
    if not isinstance(x._value, np.ndarray) or x.dtype.block > 1 or _tape.is_recording() or \
            not all(map(_is_integer, entries)):
        return None
    place = tuple(_bounds(k, n)[0] for k, n in zip(entries, x.shape))
    return _tensor.of_array(x._value[place].reshape(()), x._context, x.dtype)


def index(x: _tensor.Array, key: Any) -> _tensor.Tensor:
    """x[key] as numpy has it: integers, slices (which are clipped), ..., None, arrays of integers and
    masks. A mask that is a tensor is evaluated, because the shape depends on it."""
    x = operand(x)
    given = _as_tuple(key)
    if any(map(_is_truth_value, given)):
        return _by_truth(x, given)
    entries = _entries(given, x.shape)
    plain = [k for k in entries if k is not None]
    one = _element(x, entries)
    if one is not None:
        return one
    x = _basic(x, plain)
    # What the result's dimensions are: an integer's is dropped, None's is new.
    dims: list[int] = []
    axes: list[int] = []
    at = 0
    for k in entries:
        if k is None:
            dims.append(1)
            continue
        if _is_array(k):
            axes.append(len(dims))
        if _is_array(k) or isinstance(k, slice):
            dims.append(x.shape[at])
        at += 1
    made = reshape(x, dims)
    if not axes:
        return made
    x, first = _side_by_side(made, axes, entries)
    return _pick(x, [k for k in plain if _is_array(k)], first)


def _side_by_side(x: Any, axes: list[int], entries: list[Any]) -> tuple[Any, int]:
    """x with the axes that arrays pick along one after the other, and where these begin: where they
    are if integers and arrays of the key stand side by side, else in front of all others."""
    picking = [i for i, k in enumerate(entries) if _is_array(k) or _is_integer(k)]
    if picking[-1] - picking[0] + 1 == len(picking):
        return x, axes[0]
    return transpose(x, [*axes, *(i for i in range(x.ndim) if i not in axes)]), 0


def _wrapped(indices: Any, length: int, context: Any) -> Any:
    """Indices that count from the end made ones from the start; those of numpy's arrays are
    checked."""
    if isinstance(indices, np.ndarray):
        if indices.dtype.kind not in 'iu':
            raise IndexError(f'elements are picked by integers, not by {indices.dtype}')
        if indices.size and not (-length <= indices.min() and indices.max() < length):
            raise IndexError(f'an index beyond a dimension of {length}')
        indices = indices.astype(np.int64)  # or length may be beyond the type
        return _tensor.as_tensor(np.where(indices < 0, indices + length, indices).astype(np.int32),
                                 context)
    if indices.dtype.is_floating:
        raise IndexError('elements are picked by integers')
    return counted(indices, length)


def _pick(x: Any, indices: list[Any], axis: int) -> _tensor.Tensor:
    """Elements that arrays of indices name together, along dimensions from `axis` on."""
    lengths = x.shape[axis:axis + len(indices)]
    picked = [_wrapped(k, n, x._context) for k, n in zip(indices, lengths)]
    if len(picked) == 1:
        return _o.gather(x, picked[0], axis)
    flat = merged(picked, lengths, [not isinstance(k, np.ndarray) for k in indices])
    shape = x.shape[:axis] + (math.prod(lengths),) + x.shape[axis + len(indices):]
    return _o.gather(reshape(x, shape), flat, axis)


# ---- x with a part replaced ----

def _is_position(k: Any) -> bool:
    """Whether an entry of a key is a position that is a tensor: a scalar, or one in a row."""
    return isinstance(k, _tensor.Operators) and k.shape in ((), (1,)) and \
        not k.dtype.is_floating and k.dtype != BY_NAME['bool']


def _replaced_at(x: Any, entries: list[Any], axis: int, value: Any) -> _tensor.Tensor:
    """x with a value where a tensor, the entry `axis` of the key, and numbers and slices say."""
    others = [slice(None) if i == axis else k for i, k in enumerate(entries)]
    kept = [k for k in others if isinstance(k, slice)]
    part = x
    if kept != others or any(k != slice(None) for k in others):
        part = _basic(x, [k if isinstance(k, slice) else operator.index(k) for k in others])
    shown = list(part.shape)
    shown[axis] = 1
    dims = [n for i, n in enumerate(shown)
            if isinstance(others[i], slice) and (i != axis or entries[axis].ndim)]
    value = reshape(broadcast_to(value, dims), shown)
    changed = update_slice(part, value, entries[axis], axis)
    if part is x:
        return changed
    return replaced(x, tuple(others), reshape(changed, [
        n for i, n in enumerate(changed.shape) if isinstance(others[i], slice)]))

def replaced(x: _tensor.Array, key: Any, value: _tensor.Array) -> _tensor.Tensor:
    """x with the elements that the key names replaced by a value, which broadcasts to their shape. A
    key is what x[key] takes. A mask needs no evaluation where the value broadcasts to what each of
    its elements stands for. x itself stays as it is."""
    x, given = operand(x), _as_tuple(key)
    value = _tensor.as_tensor(value, x._context).astype(x.dtype, copy=False)
    if len(given) == 1 and _is_mask(given[0]) and _covers(given[0], x, value):
        value = broadcast_to(value, x.shape[given[0].ndim:])
        mask = reshape(given[0], (*given[0].shape, *[1] * (x.ndim - given[0].ndim)))
        return _o.where(mask, value, x).astype(x.dtype, copy=False)
    if any(k is None or _is_mask(k) or _is_truth_value(k) for k in given):
        return _scattered(x, key, value)
    entries = _normal_key(given, x.ndim)
    positions = [i for i, k in enumerate(entries) if _is_position(k)]
    if len(positions) == 1 and all(i in positions or isinstance(k, slice) or _is_integer(k)
                                   for i, k in enumerate(entries)):
        return _replaced_at(x, entries, positions[0], value)
    if all(isinstance(k, slice) or _is_integer(k) for k in entries):
        return _sliced(x, entries, value)
    return _scattered(x, key, value)


def _covers(mask: Any, x: Any, value: Any) -> bool:
    """Whether x has the mask's dimensions first, and the value at most those that x has behind."""
    return bool(mask.ndim > 0 and mask.shape == x.shape[:mask.ndim] and
                value.ndim <= x.ndim - mask.ndim)


def _sliced(x: Any, entries: list[Any], value: Any) -> _tensor.Tensor:
    """x with a value where integers and slices say."""
    bounds = [_bounds(k if isinstance(k, slice) else operator.index(k), n)
              for k, n in zip(entries, x.shape)]
    counts = [len(range(*b)) for b in bounds]
    shown = [n for n, k in zip(counts, entries) if isinstance(k, slice)]
    part = reshape(broadcast_to(value, shown), counts)
    if 0 in counts:
        return _tensor.another(x)
    return insert_slice(x, part, [b[0] for b in bounds], [b[2] for b in bounds])


def _scattered(x: Any, key: Any, value: Any) -> _tensor.Tensor:
    """x with a value where arrays or masks say: the key picks among the elements' numbers, and the
    values are put there. An index beyond x picks 0 among numbers from 1 on, hence none."""
    numbers = reshape(_o.iota((x.size,), 0, context=x._context) + 1, x.shape)
    places = index(numbers, key) - 1
    put = _o.scatter(reshape(x, -1), reshape(places, -1),
                     reshape(broadcast_to(value, places.shape), -1), 0, 'set')
    return reshape(put, x.shape).astype(x.dtype, copy=False)


def insert_slice(x: _tensor.Array, part: _tensor.Array, start: Sequence[int],
          step: Optional[Sequence[int]] = None) -> _tensor.Tensor:
    """x with some of its elements replaced by those of `part`, of x's type and rank: in dimension i
    the elements start[i], start[i] + step[i], ... as many as part has there."""
    x = operand(x)
    steps = [1] * x.ndim if step is None else list(step)
    if len(start) != x.ndim or len(steps) != x.ndim:
        raise ValueError(f'start and step have {x.ndim} numbers, one for each dimension')
    part = _tensor.as_tensor(part, x._context)
    begin, by = longs(list(start)), longs(steps)
    return _tensor.make(x._context, Expression(
        (x, part), lambda b, h: lib.kiln_insert_slice(b, h[0], h[1], begin, by)))


__all__ = ['insert_slice', 'replaced']
