# SPDX-License-Identifier: Apache-2.0
"""Orders and searches: sorted elements, where they are, which are not 0, which there are.

What has a shape that depends on values (nonzero(), unique_values()) is computed on the device, but
for one number, how many there are, which is evaluated at once. So it has no place in a kiln.function."""
from __future__ import annotations

from typing import Any, NamedTuple, Optional

from . import _operations as _o
from . import _tape, _tensor
from ._manipulation import astype, broadcast_to, reshape
from ._record import axis_in, operand, operands
from ._types import result_of

# ---- orders ----

def sort(x: _tensor.Array, axis: int = -1, descending: bool = False,
         stable: bool = True) -> _tensor.Tensor:
    """x in order along an axis: the smallest first, or with `descending` the largest. NaN counts as
    the largest. Equal elements always stay in their order."""
    return _o.sort(x, axis, descending)


def argsort(x: _tensor.Array, axis: int = -1, descending: bool = False,
            stable: bool = True) -> _tensor.Tensor:
    """i32: the positions along an axis of x's elements in order: the smallest first, or with
    `descending` the largest. NaN counts as the largest. Equal elements always stay in their order."""
    return _o.argsort(x, axis, descending)


def searchsorted(x1: _tensor.Array, x2: _tensor.Array, *, side: str = 'left',
                 sorter: Optional[_tensor.Array] = None) -> _tensor.Tensor:
    """i32: where each of x2 belongs in x1, a vector in ascending order: before the elements that are
    not smaller ("left"), or behind those that are not larger ("right"). `sorter` are the positions
    of x1's elements in order, if these do not stand so. NaN counts as the largest."""
    if side not in ('left', 'right'):
        raise ValueError(f"searchsorted: side is 'left' or 'right', not {side!r}")
    ordered, wanted = operands(x1, x2)
    if ordered.ndim != 1:
        raise ValueError(f'searchsorted: x1 is a vector, not of shape {list(ordered.shape)}')
    if sorter is not None:
        ordered = _o.gather(ordered, sorter, 0)
    kind = result_of([ordered.dtype, wanted.dtype]).computed
    ordered, wanted = astype(ordered, kind, copy=False), astype(wanted, kind, copy=False)
    n = ordered.size
    place = _o.fill('i32', wanted.shape, 0.0, context=wanted._context)
    # Halves of what is left, from the largest power of 2 on.
    for step in reversed([1 << bit for bit in range(n.bit_length())]):
        further = place + step
        element = _o.gather(ordered, _o.minimum(further, n) - 1, 0)
        before = _is_before(element, wanted, side)
        place = _o.where(_o.logical_and(before, _o.less_equal(further, n)), further, place)
    return place


def _is_before(element: Any, wanted: Any, side: str) -> Any:
    """Whether an element in order stands before the place of what is wanted."""
    before = _o.less(element, wanted) if side == 'left' else _o.less_equal(element, wanted)
    if not wanted.dtype.is_floating:
        return before
    largest = _o.isnan(wanted) if side == 'right' else \
        _o.logical_and(_o.isnan(wanted), _o.logical_not(_o.isnan(element)))
    return _o.logical_or(before, largest)


# ---- which are there ----

def _numbered(flags: Any, what: str) -> tuple[Any, int]:
    """Of a vector of flags: which number among those that are set each is, beyond all where it is not;
    and how many are set."""
    if not flags.size:
        return astype(flags, 'i64'), 0
    numbers = _o.cumsum(flags, 0)
    count = int(_tensor.known(numbers[-1], what))
    return _o.where(flags, numbers - 1, count), count


def nonzero(x: _tensor.Array) -> tuple[_tensor.Tensor, ...]:
    """Where x is not 0: of each dimension the positions, row by row, i32."""
    x = operand(x)
    if not x.ndim:
        raise ValueError('nonzero: a tensor of one dimension or more')
    flags = reshape(_o.not_equal(x, 0), -1)
    numbers, count = _numbered(flags, "nonzero()'s shape")
    context = x._context
    place = _o.scatter(_o.fill('i32', (count,), 0.0, context=context), numbers,
                       _o.iota((flags.size,), 0, context=context), 0, 'set')
    positions = []
    for n in reversed(x.shape):
        n = max(n, 1)
        positions.append(place % n)
        place = place // n
    return tuple(reversed(positions))


def argwhere(x: _tensor.Array) -> _tensor.Tensor:
    """Where x is not 0: a row of positions for each such element, i32."""
    return _o.stack(nonzero(x), 1)


def where(condition: _tensor.Array, x1: Optional[_tensor.Array] = None,
          x2: Optional[_tensor.Array] = None) -> Any:
    """x1 where the condition is not 0, else x2; what is not chosen has no effect. Without both, as
    numpy has it, kiln.nonzero() of the condition."""
    if x1 is None and x2 is None:
        return nonzero(condition)
    if x1 is None or x2 is None:
        raise TypeError('where() takes a condition alone, or with two more operands')
    return _o.where(condition, x1, x2)


class UniqueAll(NamedTuple):
    """What kiln.unique_all() gives."""
    values: _tensor.Tensor
    indices: _tensor.Tensor
    inverse_indices: _tensor.Tensor
    counts: _tensor.Tensor


class UniqueCounts(NamedTuple):
    """What kiln.unique_counts() gives."""
    values: _tensor.Tensor
    counts: _tensor.Tensor


class UniqueInverse(NamedTuple):
    """What kiln.unique_inverse() gives."""
    values: _tensor.Tensor
    inverse_indices: _tensor.Tensor


def _runs(ordered: Any) -> tuple[Any, int]:
    """Which run of equal elements each one in order is in, but for the first one, which is in run 0,
    and how many there are. What is in order is computed now, too: once."""
    groups = astype(_o.cumsum(_o.not_equal(ordered[1:], ordered[:-1]), 0), 'i32')
    _tape.refuse_while_tracing('the shape of unique elements depends on values, which are asked for')
    if ordered.size == 1:
        _tensor.evaluate_on_device([ordered])
        return groups, 1
    last = groups[-1]
    _tensor.evaluate_on_device([ordered, groups, last])
    return groups, int(_tensor.known(last, 'the shape of unique elements')) + 1


def unique_all(x: _tensor.Array) -> UniqueAll:
    """The elements that x has, each once and in order, where each comes first, which of them each
    element of x is, and how often it occurs. Every NaN is another one."""
    x = operand(x)
    flat, n, context = reshape(x, -1), x.size, x._context
    def numbers(value: float, kind: str, count: int) -> Any:
        return _o.fill(kind, (count,), float(value), context=context)
    if not n:
        nothing = numbers(0, 'i32', 0)
        return UniqueAll(flat, nothing, reshape(nothing, x.shape), nothing)
    order = _o.argsort(astype(flat, flat.dtype.computed, copy=False), 0, False)
    _tape.refuse_while_tracing('the shape of unique elements depends on values, which are asked for')
    _tensor.evaluate_on_device([order])
    groups, count = _runs(_o.gather(flat, order, 0))
    leads = _o.equal(_o.iota((count,), 0, context=context), 0)
    first = _o.scatter(_o.where(leads, order[:1], n), groups, order[1:], 0, 'min')
    inverse = _o.scatter(numbers(0, 'i32', n), order[1:], groups, 0, 'set')
    counts = _o.scatter(astype(leads, 'i32'), groups, numbers(1, 'i32', n - 1), 0, 'add')
    return UniqueAll(_o.gather(flat, first, 0), first, reshape(inverse, x.shape), counts)


def unique_counts(x: _tensor.Array) -> UniqueCounts:
    """The elements that x has, each once and in order, and how often each occurs."""
    found = unique_all(x)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x: _tensor.Array) -> UniqueInverse:
    """The elements that x has, each once and in order, and which of them each element of x is."""
    found = unique_all(x)
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(x: _tensor.Array) -> _tensor.Tensor:
    """The elements that x has, each once and in order. Every NaN is another one."""
    x = operand(x)
    if not x.size:
        return reshape(x, -1)
    ordered = _o.sort(astype(reshape(x, -1), x.dtype.computed, copy=False), 0, False)
    groups, count = _runs(ordered)
    first = broadcast_to(ordered[:1], (count,))
    return astype(_o.scatter(first, groups, ordered[1:], 0, 'set'), x.dtype, copy=False)


def unique(x: _tensor.Array, return_index: bool = False, return_inverse: bool = False,
           return_counts: bool = False) -> Any:
    """kiln.unique_values() as numpy calls it; with further results as numpy has them."""
    if not (return_index or return_inverse or return_counts):
        return unique_values(x)
    found = unique_all(x)
    further = (found.indices, return_index), (found.inverse_indices, return_inverse), \
        (found.counts, return_counts)
    return (found.values, *(part for part, asked in further if asked))


__all__ = [
    'argsort', 'argwhere', 'nonzero', 'searchsorted', 'sort', 'unique', 'unique_all', 'unique_counts',
    'unique_inverse', 'unique_values', 'where',
]
