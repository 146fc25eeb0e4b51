# SPDX-License-Identifier: Apache-2.0
"""Rows of ATen's operators that order elements, search in order, or run along a dimension."""
from __future__ import annotations

import math
from typing import Any, Callable, Optional, Sequence

import kiln as _f
from . import _operations as _o
from ._tensor import Tensor
from ._torch_operators import ROWS, Unsupported, axis_of, row, type_of

# ---- order ----


def _sorted(x: Tensor, dim: int = -1, descending: bool = False) -> tuple[Any, ...]:
    if not x.ndim:
        return x, _f.zeros((), 'i64')
    order = _o.argsort(x, dim, descending)
    return _f.gather_elements(x, order, dim), order


ROWS['aten.sort.default'] = _sorted
ROWS['aten.sort.stable'] = lambda x, stable=None, dim=-1, descending=False: \
    _sorted(x, dim, descending)


@row('aten.topk.default')
def _topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Any, ...]:
    return _f.topk(x, k, dim, not largest)


def _dropped(x: Tensor, axis: int, keepdim: bool) -> Tensor:
    """Without a dimension of 1, unless it is kept."""
    return x if keepdim else _f.squeeze(x, axis)


def _at(parts: Sequence[Tensor], axis: int, place: Any, keepdim: bool) -> tuple[Any, ...]:
    """The elements of each part at a place along an axis: a number, or a tensor of one for each row."""
    if isinstance(place, int):
        key = (slice(None),) * axis + (slice(place, place + 1),)
        picked = [part[key] for part in parts]
    else:
        picked = [_f.gather_elements(part, place, axis) for part in parts]
    return tuple(_dropped(part, axis, keepdim) for part in picked)


def _of_rows(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of a tensor, an axis, and whether that is kept, that gives values and positions: of
    the scalar too."""
    def made(x: Tensor, *arguments: Any, dim: int = -1, keepdim: bool = False) -> tuple[Any, ...]:
        if not x.ndim:
            return x, _f.zeros((), 'i64')
        both: tuple[Any, ...] = function(x, *arguments, axis_of(x, dim), keepdim)
        return both
    return made


@_of_rows
def _kth_value(x: Tensor, k: int, axis: int, keepdim: bool) -> tuple[Any, ...]:
    return _at(_sorted(x, axis), axis, k - 1, keepdim)


ROWS['aten.kthvalue.default'] = lambda x, k, dim=-1, keepdim=False: \
    _kth_value(x, k, dim=dim, keepdim=keepdim)


@_of_rows
def _median(x: Tensor, axis: int, keepdim: bool) -> tuple[Any, ...]:
    """The lower of two in the middle; NaN where an element is, and where the first of these is."""
    if not x.shape[axis]:
        raise Unsupported('nothing along the dimension')
    value, place = _at(_sorted(x, axis), axis, (x.shape[axis] - 1) // 2, keepdim)
    if not x.dtype.is_floating:
        return value, place
    absent = _o.isnan(x)
    any_absent = _o.max(absent, axis, keepdim)
    return (_o.where(any_absent, math.nan, value),
            _o.where(any_absent, _o.argmax(absent, axis, keepdim).astype(place.dtype), place))


@_of_rows
def _median_besides_nan(x: Tensor, axis: int, keepdim: bool) -> tuple[Any, ...]:
    if not x.shape[axis]:
        raise Unsupported('nothing along the dimension')
    ordered = _sorted(x, axis)
    if not x.dtype.is_floating:
        return _at(ordered, axis, (x.shape[axis] - 1) // 2, keepdim)
    present = _o.sum(_o.logical_not(_o.isnan(x)).astype('i32'), axis, True).astype('i32')
    middle = _o.div(_o.maximum(present - 1, 0), 2)
    return _at(ordered, axis, middle, keepdim)


for _name, _function in (('median', _median), ('nanmedian', _median_besides_nan)):
    ROWS[f'aten.{_name}.dim'] = lambda x, dim, keepdim=False, function=_function: \
        function(x, dim=dim, keepdim=keepdim)
    ROWS[f'aten.{_name}.default'] = lambda x, function=_function: \
        function(x.reshape((-1,)), dim=0)[0]


@_of_rows
def _mode(x: Tensor, axis: int, keepdim: bool) -> tuple[Any, ...]:
    """The smallest of the most frequent elements, and the last position of it."""
    values, order = _sorted(x, axis)
    places = _o.iota(values.shape, axis)
    differs = _o.not_equal(values, _earlier(values, axis, 1, 0))
    start = _o.where(_o.logical_or(differs, _o.equal(places, 0)), places, 0)
    start, = _running((start,), axis, (0,), lambda a, b: (_o.maximum(a[0], b[0]),))
    return _at((values, order), axis, _o.argmax(places - start, axis, True), keepdim)


ROWS['aten.mode.default'] = lambda x, dim=-1, keepdim=False: _mode(x, dim=dim, keepdim=keepdim)


# ---- running results ----

def _earlier(x: Tensor, axis: int, step: int, first: Optional[float]) -> Tensor:
    """The elements that stand so many places before; where none does `first`, or, if that is None, the
    first element."""
    widths = [(step if i == axis else 0, 0) for i in range(x.ndim)]
    shown = x[(slice(None),) * axis + (slice(0, x.shape[axis] - step),)]
    return _f.pad(shown, widths, mode='edge') if first is None else _f.pad(shown, widths, first)


def _running(parts: Sequence[Tensor], axis: int, firsts: Sequence[Optional[float]],
             join: Callable[[Sequence[Tensor], Sequence[Tensor]], Sequence[Tensor]]) -> Sequence[Tensor]:
    """Each element joined with all before it, by steps of 1, 2, 4 and so on. join(earlier, later) is
    associative, and gives `later` of `firsts`;
    these may be None where it takes the first element as often as one likes."""
    step = 1
    while step < parts[0].shape[axis]:
        earlier = [_earlier(part, axis, step, first) for part, first in zip(parts, firsts)]
        parts = join(earlier, parts)
        step *= 2
    return parts


def lowest_of(dtype: Any) -> float:
    """The lowest value of a type."""
    return -math.inf if dtype.is_floating else 0.0 if dtype.name in ('bool', 'u8') else \
        -2.0 ** (8 * dtype.itemsize - 1)


@row('aten.cumsum.default')
def _cumsum(x: Tensor, dim: int, dtype: Optional[Any] = None) -> Tensor:
    x = x if dtype is None else x.astype(type_of(dtype))
    return x if not x.ndim else _o.cumsum(x, dim)


@row('aten.cumprod.default')
def _cumprod(x: Tensor, dim: int, dtype: Optional[Any] = None) -> Tensor:
    kind = type_of(dtype) if dtype is not None else x.dtype.name if x.dtype.is_floating else 'i64'
    x = x.astype(kind)
    if not x.ndim:
        return x
    return _running((x,), axis_of(x, dim), (1,), lambda a, b: (_o.mul(a[0], b[0]),))[0]


def _log_added(a: Tensor, b: Tensor) -> Tensor:
    larger = _o.maximum(a, b)
    return _o.where(_o.isinf(larger), larger,
                    larger + _o.log1p(_o.exp(_o.neg(_o.abs(a - b)))))


@row('aten.logcumsumexp.default')
def _log_cumsum_exp(x: Tensor, dim: int) -> Tensor:
    if not x.ndim:
        return x
    return _running((x,), axis_of(x, dim), (-math.inf,), lambda a, b: (_log_added(a[0], b[0]),))[0]


def _running_extreme(largest: bool) -> Callable[..., Any]:
    """The extreme so far, and the last position that has it; NaN is more extreme than all."""
    def join(earlier: Sequence[Tensor], later: Sequence[Tensor]) -> tuple[Any, ...]:
        (a, i), (b, j) = earlier, later
        taken = (_o.greater_equal if largest else _o.less_equal)(b, a)
        if a.dtype.is_floating:
            taken = _o.logical_or(_o.isnan(b), _o.logical_and(_o.logical_not(_o.isnan(a)), taken))
        return _o.where(taken, b, a), _o.where(taken, j, i)

    def running(x: Tensor, dim: int) -> tuple[Any, ...]:
        if not x.ndim:
            return x, _f.zeros((), 'i64')
        axis = axis_of(x, dim)
        values, places = _running((x, _o.iota(x.shape, axis)), axis, (None, None), join)
        return values, places
    return running


def highest_of(dtype: Any) -> float:
    """The highest value of a type: of integers a whole number, as no double is the highest i64."""
    return math.inf if dtype.is_floating else 1 if dtype.name == 'bool' else \
        255 if dtype.name == 'u8' else 2 ** (8 * dtype.itemsize - 1) - 1


ROWS['aten.cummax.default'] = _running_extreme(True)
ROWS['aten.cummin.default'] = _running_extreme(False)


# ---- searching ----

def _searched(ordered: Tensor, values: Tensor, pick: Callable[[Tensor], Tensor], right: bool) -> Tensor:
    """How many elements of rows in order stand before each value, by halves. pick(places) gives the
    elements there."""
    count = ordered.shape[-1]
    reaches = _o.greater if right else _o.greater_equal
    place = _f.zeros(values.shape, 'i32')
    step = 1 << count.bit_length() >> 1
    while step:
        further = place + step
        goes = _o.logical_not(reaches(pick(_o.minimum(further, count) - 1), values))
        place = _o.where(_o.logical_and(_o.less_equal(further, count), goes), further, place)
        step //= 2
    return place


@row('aten.searchsorted.Tensor', 'aten.searchsorted.Scalar')
def _search_sorted(ordered: Tensor, values: Any, *, out_int32: bool = False, right: bool = False,
                   side: Optional[str] = None, sorter: Optional[Tensor] = None) -> Tensor:
    if not isinstance(values, Tensor):
        values = _f.full((), values, 'f32' if isinstance(values, float) else ordered.dtype)
    if sorter is not None:
        ordered = _f.gather_elements(ordered, sorter, -1)

    def pick(places: Tensor) -> Tensor:
        if ordered.ndim == 1:
            return _o.gather(ordered, places, 0)
        return _f.gather_elements(ordered, places, -1)
    return _searched(ordered, values, pick, right or side == 'right')


@row('aten.bucketize.Tensor', 'aten.bucketize.Scalar')
def _bucketize(values: Any, boundaries: Tensor, *, out_int32: bool = False,
               right: bool = False) -> Tensor:
    found: Tensor = _search_sorted(boundaries, values, right=right)
    return found


@row('aten.histc.default')
def _histogram(x: Tensor, bins: int = 100, low: Any = 0, high: Any = 0) -> Tensor:
    if not x.size:
        return _f.zeros((bins,), 'f32')
    x = x.reshape((-1,))
    if low == high:
        low, high = _o.min(x, 0, False), _o.max(x, 0, False)
        flat = _o.equal(low, high)
        low, high = _o.where(flat, low - 1, low), _o.where(flat, high + 1, high)
    place = _o.minimum(_o.floor((x - low) / (high - low) * bins), bins - 1)
    within = _o.logical_and(_o.greater_equal(x, low), _o.less_equal(x, high))
    place = _o.where(within, place, bins).astype('i32')  # what is beyond is left out
    return _f.scatter(_f.zeros((bins,), 'f32'), place, _f.full(x.shape, 1, 'f32'), 0, 'add')
